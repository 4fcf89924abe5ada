"""Stands in for SGLang's package of CUDA kernels where there is no GPU: first on PYTHONPATH, SGLang then starts on the CPU.

The copies between device and host pools are done by `kvcacheio`. Every other name is a function that says that it needs a
GPU: SGLang imports many and calls none of them on the CPU.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

__version__ = "0.0.0"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} needs a GPU")

    return kernel


# Not `from sgl_kernel import …`: that asks __getattr__ first.
import sgl_kernel.host_device  # noqa: E402
import sgl_kernel.kvcacheio  # noqa: E402

sys.modules["sgl_kernel.host_device"].install()
sys.modules["sgl_kernel.kvcacheio"].install()
