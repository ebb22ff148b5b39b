"""Methods for devices, layouts and dtypes that this build has not: they raise PyTorch's types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from flambeau import _core

_DEVICES: dict[str, tuple[type[Exception], str]] = {
    "xpu": (AssertionError, "Torch not compiled with XPU enabled"),
    "mtia": (AssertionError, "Torch not compiled with MTIA enabled"),
    "ipu": (RuntimeError, "PyTorch is not linked with support for ipu devices"),
}
_QUANTIZED = (
    "int_repr", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points",
    "q_scale", "q_zero_point", "qscheme",
)  # fmt: skip


def _device_method(name: str, error: type[Exception], text: str) -> Callable[..., Any]:
    def method(self: Any, device: Any = None, non_blocking: bool = False, **options: Any) -> Any:
        raise error(f"[{name}] {text}\nhint: this build computes on the CPU")

    method.__doc__ = f"Raises {error.__name__}: there is no such device."
    return method


def _quantized_method(name: str) -> Callable[..., Any]:
    def method(self: Any) -> NoReturn:
        raise NotImplementedError(
            f"[{name}] Could not run 'aten::{name}' with arguments from the 'CPU' backend: the "
            "tensor is not quantized\nhint: only tensors of torch.quint8 and its kind have it"
        )

    method.__doc__ = "Raises NotImplementedError: no tensor is quantized."
    return method


def _dequantize(self: Any) -> Any:
    """The tensor in float32: numbers that are not quantized.

    Example:
        >>> torch.ones(2, dtype=torch.float64).dequantize()
        tensor([1., 1.])
    """
    return self.to(_core.float32)


def _record_stream(self: Any, stream: Any) -> NoReturn:
    """Raises RuntimeError: memory of the CPU belongs to no stream."""
    raise RuntimeError(
        "[record_stream] unknown parameter type: the tensor is on the CPU\n"
        "hint: only tensors of accelerators belong to streams"
    )


def _to_mkldnn(self: Any, dtype: Any = None) -> NoReturn:
    """Raises NotImplementedError: tensors have no layout of oneDNN."""
    raise NotImplementedError(
        "[to_mkldnn] tensors of the layout torch._mkldnn are not in Flambeau\n"
        "hint: dense tensors need no conversion: layouts of weights are chosen by the compiler"
    )


METHODS: dict[str, Any] = {
    **{name: _device_method(name, *entry) for name, entry in _DEVICES.items()},
    **{name: _quantized_method(name) for name in _QUANTIZED},
    "dequantize": _dequantize,
    "record_stream": _record_stream,
    "to_mkldnn": _to_mkldnn,
}
for _name, _method in METHODS.items():
    _method.__name__ = _name
    setattr(_core.Tensor, _name, _core.shield(_method, False, True))
