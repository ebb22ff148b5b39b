"""Models at the sizes of their papers and in small, with the loss of a training step each.

The files import `flambeau as torch` and use nothing that PyTorch does not have. `load` runs the
same text with either package, so that tests and benchmarks compare one program with itself.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

CLASSES = {
    "resnet": "ResNet",
    "unet": "UNet",
    "gpt2": "GPT2",
    "bert": "Bert",
    "vit": "ViT",
    "lstm": "LSTMLanguageModel",
}


@cache
def load(name: str, framework: str = "flambeau") -> ModuleType:
    """The model file `name` as a module that computes with `framework`.

    Every mention of `flambeau` in the text is replaced by the framework's name, as a user who
    moves the file from one package to the other would do.
    """
    path = Path(__file__).with_name(f"{name}.py")
    module = ModuleType(f"{framework}_example_{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    text = path.read_text().replace("flambeau", framework)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def build(name: str, framework: str = "flambeau", **sizes: Any) -> Any:
    """The model `name` with random weights: small, or of the given sizes over the full ones."""
    module = load(name, framework)
    config = module.Config(**sizes) if sizes else module.Config.small()
    return getattr(module, CLASSES[name])(config)
