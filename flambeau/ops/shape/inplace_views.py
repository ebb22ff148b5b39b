"""In-place changes of geometry: `squeeze_`, `t_`, `resize_`, `set_` ... The data stays where it is.

Each makes the tensor what the view of the same name is, so its place in the autograd graph is the
view's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.language.definition import function, op
from flambeau.language.samples import ErrorSample, T, sample
from flambeau.language.schema import Mutable, SymInt, Tensor
from flambeau.ops.shape import views


def _define(name: str, definition: Any, example: tuple[str, list[int]]) -> None:
    def body(self: Any, *args: Any, **options: Any) -> Any:
        return tensors.take_over(self, definition(self, *args, **options))

    body.__name__ = f"{name}_"
    body.__doc__ = f"""Makes the tensor what `{name}` with these arguments is; its data stays.

    Raises:
        RuntimeError: a leaf that requires a gradient.

    Example:
        >>> torch.zeros(2, 3).{name}_({example[0]}).shape
        torch.Size({example[1]})
    """
    home = "torch method" if name == "as_strided" else "method"
    op(f"{name}_(Tensor! self) -> Tensor", where=home, host=True)(body)


@op(where="torch", host=True)
def detach_(self: Mutable[Tensor]) -> Any:
    """Makes a tensor leave the autograd graph.

    Raises:
        RuntimeError: a view.

    Example:
        >>> x = torch.ones(2, requires_grad=True) * 2
        >>> torch.detach_(x).requires_grad
        False
    """
    return self.detach_()


for _definition, _example in (
    (views.squeeze, ("", [2, 3])),
    (views.unsqueeze, ("0", [1, 2, 3])),
    (views.t, ("", [3, 2])),
    (views.transpose, ("0, 1", [3, 2])),
    (views.swapaxes, ("0, 1", [3, 2])),
    (views.swapdims, ("0, 1", [3, 2])),
    (views.as_strided, ("(3,), (2,)", [3])),
):
    _define(_definition.name, _definition, _example)


def _row_major(sizes: Sequence[int]) -> list[int]:
    strides: list[int] = []
    step = 1
    for n in reversed(sizes):
        strides.insert(0, step)
        step *= max(n, 1)
    return strides


@op("resize_(Tensor! self, SymInt[] size) -> Tensor", where="method", host=True)
def resize_(self: Any, *size: Any, memory_format: Any = None) -> Any:
    """Gives the tensor other sizes, row-major; memory is added where it is short.

    Elements keep their places in memory; new ones are uninitialised. A tensor that has these sizes
    keeps its strides, unless a `memory_format` is passed.

    Raises:
        RuntimeError: a tensor that requires a gradient.

    Example:
        >>> torch.zeros(2).resize_(3).shape
        torch.Size([3])
    """
    if self.requires_grad:
        problem = "cannot resize variables that require grad"
        raise failure(RuntimeError, "resize_", problem, "detach() it first")
    sizes = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if any(not -(2**63) <= n < 2**63 for n in sizes):
        raise TypeError("[resize_] a size does not fit in 64 bits\nhint: sizes count elements")
    if memory_format is None and tuple(self.shape) == tuple(sizes):
        return self
    strides = _row_major(sizes)
    storage = self.untyped_storage()
    count = math.prod(sizes)
    needed = (self.storage_offset() + count) * self.element_size()
    if needed >= 2**63:
        problem = f"numel: integer multiplication overflow of sizes {list(sizes)}"
        raise failure(RuntimeError, "resize_", problem, "memory counts its bytes in 63 bits")
    before = storage.nbytes()
    if needed > before:
        storage.resize_(needed)
    result = tensors.set_geometry(self, storage, sizes, strides, self.storage_offset())
    if needed > before and tensors.fills_uninitialised():
        first = max(before // self.element_size() - self.storage_offset(), 0)
        tensors.filled_for_debugging(result.detach().view(-1)[first:])
    return result


@op("resize_as_(Tensor! self, Tensor the_template) -> Tensor", host=True)
def resize_as_(self: Any, the_template: Any, *, memory_format: Any = None) -> Any:
    """`resize_` to the sizes of another tensor.

    Raises:
        RuntimeError: a tensor that requires a gradient.

    Example:
        >>> torch.zeros(2).resize_as_(torch.zeros(3, 4)).shape
        torch.Size([3, 4])
    """
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


def _resized(name: str, self: Any, sizes: Sequence[int]) -> Any:
    warnings.warn("non-inplace resize is deprecated", stacklevel=3)
    if math.prod(sizes) != self.numel():
        problem = f"requested {list(sizes)}, {math.prod(sizes)} elements, of a tensor of "
        problem += f"{list(self.shape)}, {self.numel()} elements"
        raise failure(RuntimeError, name, problem, "resize_ changes the number")
    return self.contiguous().view(tuple(sizes))


@function(
    where="method",
    samples=lambda: [sample(T(2, 3), 3, 2)],
    errors=lambda: [ErrorSample(sample(T(2, 3), 4, 2), RuntimeError, "6 elements")],
)
def resize(self: Tensor, *size: SymInt) -> Any:
    """The elements in other sizes, as `reshape` gives them; deprecated.

    Raises:
        RuntimeError: sizes of another number of elements.

    Example:
        >>> torch.zeros(2, 3).resize(3, 2).shape
        torch.Size([3, 2])
    """
    return _resized("resize", self, size[0] if not isinstance(size[0], int) else size)


@function(
    where="method",
    samples=lambda: [sample(T(2, 3), T(6))],
    errors=lambda: [ErrorSample(sample(T(2, 3), T(4)), RuntimeError, "6 elements")],
)
def resize_as(self: Tensor, tensor: Tensor) -> Any:
    """`resize` to the sizes of another tensor; deprecated.

    Raises:
        RuntimeError: sizes of another number of elements.

    Example:
        >>> torch.zeros(2, 3).resize_as(torch.zeros(6)).shape
        torch.Size([6])
    """
    return _resized("resize_as", self, tuple(tensor.shape))


@op("set_(Tensor! self, object source=None) -> Tensor", where="method", host=True)
def set_(
    self: Any,
    source: Any = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Any:
    """Makes the tensor look at other memory: that of a tensor or a storage.

    Args:
        source: tensor or storage; None empties the tensor.
        storage_offset, size, stride: geometry, in elements; those of `source` where not given.

    Raises:
        RuntimeError: a geometry that leaves the memory, or a tensor of another dtype.

    Example:
        >>> torch.zeros(2).set_(torch.ones(3))
        tensor([1., 1., 1.])
    """
    if source is None:
        source = tensors.empty((0,), self.dtype, self.device)
    if tensors.is_tensor(source):
        if source.dtype != self.dtype:
            problem = f"could not set tensor of type {self.dtype} to a tensor of type "
            problem += f"{source.dtype}"
            raise failure(RuntimeError, "set_", problem, "view(dtype) reads memory as another type")
        if size is None:
            storage_offset = source.storage_offset()
            size, stride = tuple(source.shape), source.stride()
        source = source.untyped_storage()
    elif hasattr(source, "untyped"):
        source = source.untyped()
    if size is None:
        size = ((source.nbytes() // self.element_size()) - storage_offset,)
    if stride is None:
        stride = _row_major(size)
    return tensors.set_geometry(self, source, size, stride, storage_offset)
