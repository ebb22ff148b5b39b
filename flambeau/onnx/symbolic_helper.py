"""`torch.onnx.symbolic_helper`: decorators of functions that write operators into ONNX files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.runtime import missing as _missing

__all__ = ["parse_args", "quantized_args", "symbolic_functions"]


def symbolic_functions(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module of symbolic functions: all names are functions that raise."""

    def find(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(
                f"[{module.removeprefix('flambeau.')}.{name}] operators cannot be written as ONNX\n"
                "hint: export the model under PyTorch"
            )

        return refuse

    return find


def parse_args(*arg_descriptors: str) -> Callable[[Any], Any]:
    """A decorator that changes nothing: the function is never called."""
    return lambda function: function


def quantized_args(*arg_q_descriptors: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing: the function is never called."""
    return lambda function: function


globals()["__getattr__"] = _missing.getter(__name__)
