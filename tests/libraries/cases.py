"""What a case is, and the cases of each library by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

LIBRARIES = (
    "transformers training timm torchvision diffusers torchaudio torch_geometric kornia gpytorch "
    "pyro torchmetrics einops skorch stable_baselines3 lightning"
).split()


@dataclass
class Case:
    """A model and what it is called with.

    Attributes:
        model: a module.
        args, kwargs: of its call.
        choices: arguments by name, of which the first that PyTorch accepts are added.
        backward: whether gradients are compared.
        compiled: whether a compiled call is compared.
    """

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    choices: tuple[dict[str, Any], ...] = ()
    backward: bool = True
    compiled: bool = True


@dataclass
class Program:
    """A function that returns tensors.

    Attributes:
        function: what is run; a second run from the same seed returns the same.
        compiled: whether a compiled run of the whole function is compared.
    """

    function: Callable[[], Any]
    compiled: bool = True


def cases(library: str) -> dict[str, Callable[[], Case | Program]]:
    """The constructors of a library's cases, by name."""
    module = importlib.import_module(f"tests.libraries.{library}_cases")
    return module.CASES


def tensors(value: Any) -> Iterator[Any]:
    """All tensors in nested containers, outputs of models and their like, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict) or hasattr(value, "items"):
        for key in value:
            yield from tensors(value[key])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
    elif hasattr(value, "__dict__") and not callable(value):
        for each in vars(value).values():
            yield from tensors(each)
