"""Methods of tensors that few programs call: `dim_order`, `module_load`, `new`; removed ones.

`core.tensor` loads this module on the first access to one of them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau import _core
from flambeau.core.legacy import legacy_tensor
from flambeau.language.dtypes import DTYPE_OBJECTS
from flambeau.runtime import removed

_AMBIGUOUS = (
    "[dim_order] The tensor does not have unique dim order, or cannot map to exact one of the "
    "given memory formats.\nhint: ambiguity_check=False"
)


def _new(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A tensor of this dtype: of sizes (not initialised), a sequence, a tensor or a storage.

    Raises:
        TypeError: other arguments, or a tensor of another dtype.

    Example:
        >>> torch.ones(2).new([1, 2])
        tensor([1., 2.])
    """
    return legacy_tensor(self.dtype, "new", args, kwargs)


def _const_data_ptr(self: Any) -> int:
    """Address of the first element, to read it only."""
    address: int = self.data_ptr()
    return address


def _by_strides(tensor: Any) -> list[int]:
    """Dimensions from the largest stride to the smallest; a repeated one stays where it is.

    Of equal strides the larger dimension comes first; a contiguous tensor has the given order.
    """
    stride, order = tensor.stride(), list(range(tensor.dim()))
    if tensor.is_contiguous():
        return order
    order.reverse()
    for start in range(1, len(order)):
        place = start
        for before in range(start - 1, -1, -1):
            inner, outer = order[before], order[place]
            ordered = 0 not in (stride[inner], stride[outer])
            equal = stride[inner] == stride[outer] and tensor.shape[inner] > tensor.shape[outer]
            if ordered and (stride[inner] > stride[outer] or equal):
                order[before], order[place] = outer, inner
                place = before
            elif ordered and stride[inner] < stride[outer]:
                break
    return order[::-1]


def _ambiguous(tensor: Any) -> bool:
    stride = tensor.stride()
    repeated = 0 in stride and len(stride) > 1
    return 1 in tensor.shape or repeated or len(set(stride)) < len(stride)


def _dim_order(self: Any, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost.

    Args:
        ambiguity_check: True: several orders that fit are an error; a list of memory formats:
            unless exactly one of these fits.

    Raises:
        TypeError: neither a bool nor memory formats.
        RuntimeError: the order is ambiguous.
        AttributeError: a tensor that is not strided.

    Example:
        >>> torch.empty(2, 3).t().dim_order()
        (1, 0)
    """
    if self.layout is not _core.strided:
        raise AttributeError(
            f"[dim_order] Can't get dim order on layout {self.layout}\nhint: to_dense()"
        )
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(
        isinstance(f, _core.memory_format) for f in formats
    ):
        raise TypeError(
            "[dim_order] The ambiguity_check argument must be a bool or a list of memory formats."
            "\nhint: True"
        )
    if ambiguity_check is not False and _ambiguous(self):
        fitting = [f for f in formats if self.is_contiguous(memory_format=f)]
        if len(fitting) != 1:
            raise RuntimeError(_AMBIGUOUS)
        return _order_of(fitting[0], self.dim())
    return tuple(_by_strides(self))


def _order_of(memory_format: Any, rank: int) -> tuple[int, ...]:
    if memory_format in (_core.channels_last, _core.channels_last_3d):
        return (0, *range(2, rank), 1)
    return tuple(range(rank))


def _module_load(self: Any, other: Any, assign: bool = False) -> Any:
    """Returns the replacement of this tensor when `load_state_dict` gives a module `other`.

    Args:
        assign: the result is `other` itself, detached; else this tensor with its values.

    Raises:
        RuntimeError: sizes that differ.

    Example:
        >>> torch.zeros(2).module_load(torch.ones(2))
        tensor([1., 1.])
    """
    return other.detach() if assign else self.copy_(other).detach()


def _reinforce(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Removed from PyTorch; `torch.distributions` took its place.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("[reinforce] reinforce() was removed\nhint: torch.distributions")


def _to_full_precision(self: Any, cuda_enabled: bool, cpu_enabled: bool) -> Any:
    """This tensor in float32 where it is of a half type, on the CPU, and `cpu_enabled`."""
    lower = self.dtype in (DTYPE_OBJECTS["f16"], DTYPE_OBJECTS["bf16"])
    applies = cpu_enabled and lower and self.device.type == "cpu"
    return self.to(DTYPE_OBJECTS["f32"]) if applies else self


def _to_reduced_precision(
    self: Any, cuda_enabled: bool, cpu_enabled: bool, cuda_dtype: Any, cpu_dtype: Any
) -> Any:
    """This tensor in `cpu_dtype` where it is float32, on the CPU, and `cpu_enabled`."""
    applies = cpu_enabled and self.dtype is DTYPE_OBJECTS["f32"] and self.device.type == "cpu"
    return self.to(cpu_dtype) if applies else self


_METHODS: dict[str, Any] = {
    "_autocast_to_full_precision": _to_full_precision,
    "_autocast_to_reduced_precision": _to_reduced_precision,
    "new": _new, "const_data_ptr": _const_data_ptr, "dim_order": _dim_order,
    "module_load": _module_load, "reinforce": _reinforce, "eig": removed.eig,
    "lstsq": removed.lstsq, "solve": removed.solve, "symeig": removed.symeig,
}  # fmt: skip
for _name, _method in _METHODS.items():
    setattr(_core.Tensor, _name, _core.shield(_method, False, True))
