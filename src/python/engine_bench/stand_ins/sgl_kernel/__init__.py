"""Stands in for SGLang's package of CUDA kernels on machines without a GPU. Put it first on PYTHONPATH.

`kvcacheio` does the copies between device and host pools. Every other name is a function that raises an error about the
missing GPU: SGLang imports many of them, but calls none on the CPU.
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


# `from sgl_kernel import …` is not used, because it would call __getattr__ first.
import sgl_kernel.host_device  # noqa: E402
import sgl_kernel.kvcacheio  # noqa: E402

sys.modules["sgl_kernel.host_device"].install()
sys.modules["sgl_kernel.kvcacheio"].install()
