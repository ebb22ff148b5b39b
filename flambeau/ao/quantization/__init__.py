"""`torch.ao.quantization`: marks in models that could be quantized; quantizing itself raises."""

from __future__ import annotations

from typing import Any

from flambeau import nn
from flambeau.runtime import missing as _missing

__all__ = [
    "DeQuantStub",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "fuse_modules",
    "fuse_modules_qat",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
]


class QuantStub(nn.Module):
    """Marks where values would be quantized; passes them on.

    Args:
        qconfig: how, kept.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """Returns its argument."""
        return x


class DeQuantStub(QuantStub):
    """Marks where quantized values would become float32 again; passes them on."""


class QuantWrapper(nn.Module):
    """A module between the two marks.

    Args:
        module: the module.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.module = module

    def forward(self, X: Any) -> Any:  # noqa: N803 - PyTorch's name
        """Calls the module."""
        return self.dequant(self.module(self.quant(X)))


def _refusal(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"[ao.quantization.{name}] networks cannot be quantized\nhint: run them in float32"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises NotImplementedError: networks cannot be quantized."
    return refuse


convert = _refusal("convert")
fuse_modules = _refusal("fuse_modules")
fuse_modules_qat = _refusal("fuse_modules_qat")
get_default_qat_qconfig = _refusal("get_default_qat_qconfig")
get_default_qconfig = _refusal("get_default_qconfig")
prepare = _refusal("prepare")
prepare_qat = _refusal("prepare_qat")
quantize = _refusal("quantize")
quantize_dynamic = _refusal("quantize_dynamic")

globals()["__getattr__"] = _missing.getter(__name__)
