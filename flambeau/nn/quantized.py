"""`torch.nn.quantized`: the older home of quantized modules, which raise when they are made."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.runtime import missing as _missing

_NAMES = """BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
ConvTranspose3d DeQuantize Dropout ELU Embedding EmbeddingBag FXFloatFunctional GroupNorm Hardswish
InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm LeakyReLU Linear MaxPool2d
MultiheadAttention PReLU QFunctional Quantize ReLU6 Sigmoid Softmax""".split()

__all__ = [*_NAMES, "FloatFunctional"]  # noqa: F822, PLE0604 - made below, or when asked for


def _refuse(self: Any, *args: Any, **kwargs: Any) -> None:
    """Raises NotImplementedError."""
    name = type(self).__name__
    raise NotImplementedError(
        f"[{name}] quantized modules are not in Flambeau\n"
        f"hint: torch.nn.{name} computes in floating point, torch.float16 halves its memory"
    )


for _name in _NAMES:
    globals()[_name] = type(
        _name,
        (Module,),
        {"__init__": _refuse, "__module__": __name__, "__doc__": "Raises NotImplementedError."},
    )

globals()["__getattr__"] = _missing.getter(
    __name__, {"FloatFunctional": "flambeau.ao.nn.quantized"}
)
