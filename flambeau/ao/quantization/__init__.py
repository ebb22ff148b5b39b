"""`torch.ao.quantization`: marks in models that could be quantized; quantizing itself raises."""

from __future__ import annotations

from abc import ABC
from typing import Any, NoReturn

from flambeau import nn
from flambeau.runtime import missing as _missing

_OBSERVERS = """HistogramObserver MinMaxObserver MovingAverageMinMaxObserver
MovingAveragePerChannelMinMaxObserver NoopObserver PerChannelMinMaxObserver PlaceholderObserver
RecordingObserver""".split()
_FAKES = "FakeQuantize FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize".split()

__all__ = [  # noqa: PLE0604 - names of this module
    *_OBSERVERS,
    *_FAKES,
    "DeQuantStub",
    "FakeQuantizeBase",
    "ObserverBase",
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
        qconfig: how; stored as an attribute.
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


class ObserverBase(ABC, nn.Module):
    """The type of modules that measure ranges of values; nothing is an instance of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


class FakeQuantizeBase(ABC, nn.Module):
    """The type of modules that imitate quantized values; nothing is an instance of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


for _base, _names in ((ObserverBase, _OBSERVERS), (FakeQuantizeBase, _FAKES)):
    for _each in _names:
        _text = "Raises NotImplementedError: networks cannot be quantized."
        globals()[_each] = type(_each, (_base,), {"__doc__": _text, "__module__": __name__})


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"[ao.quantization.{name}] networks cannot be quantized\nhint: run them in float32"
    )


def _refusal(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        _refuse(name)

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
