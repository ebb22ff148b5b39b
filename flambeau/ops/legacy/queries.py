"""Questions about tensors as functions (`is_tensor`, `numel`), and operators made of others.

Ordinary Python over real tensors; nothing here computes elements itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import function, op
from flambeau.language.dtypes import object_of
from flambeau.language.samples import ErrorSample, T, sample
from flambeau.language.schema import Mutable, Scalar, SymInt, Tensor
from flambeau.ops.common import is_one, shown


@function(where="torch", samples=lambda: [sample(T(2)), sample([1, 2])])
def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.

    Example:
        >>> torch.is_tensor([1, 2])
        False
    """
    return tensors.is_tensor(obj)


def _define_query(name: str, text: str, shown: str) -> None:
    def body(input: Any) -> Any:
        return getattr(input, name)()

    body.__name__ = name
    body.__doc__ = f"""{text}

    Example:
        >>> torch.{name}(torch.zeros(2))
        {shown}
    """
    samples = lambda: [sample(T(2, 3)), sample(T(0, 3))]  # noqa: E731
    op(f"{name}(Tensor input) -> Tensor", where="torch", host=True, samples=samples)(body)


for _name, _text, _shown in (
    ("numel", "Number of elements of a tensor.", "2"),
    ("is_floating_point", "Whether a tensor's dtype holds real fractions.", "True"),
    ("is_complex", "Whether a tensor's dtype is complex.", "False"),
    ("is_signed", "Whether a tensor's dtype holds negative values.", "True"),
    ("is_conj", "False: conjugation is computed, never pending.", "False"),
    ("is_neg", "False: negation is computed, never pending.", "False"),
    ("is_inference", "Whether a tensor was made under inference mode.", "False"),
    ("get_device", "The number of a tensor's accelerator; -1 on the CPU.", "-1"),
    ("detach", "The same data (a view) outside of the autograd graph.", "tensor([0., 0.])"),
    ("resolve_conj", "The tensor itself: nothing is pending.", "tensor([0., 0.])"),
    ("resolve_neg", "The tensor itself: nothing is pending.", "tensor([0., 0.])"),
):
    _define_query(_name, _text, _shown)


def _define_truth(name: str, reduce: Any, text: str) -> None:
    def body(self: Node) -> Node:
        if self.dtype != "bool":
            raise failure(RuntimeError, name, "expected a bool tensor", "compare first")
        return prims.reduce_dims(reduce, self, tuple(range(self.ndim)))

    body.__doc__ = f"""{text}

    Example:
        >>> torch.{name}(torch.tensor([True]))
        tensor(True)
    """
    samples = lambda: [sample(T(2, 3, dtype="bool")), sample(T(dtype="bool"))]  # noqa: E731
    op(f"{name}(Tensor self) -> Tensor", samples=samples)(body)


_define_truth("_is_all_true", "all", "Whether every element of a bool tensor is True.")
_define_truth("_is_any_true", "any", "Whether some element of a bool tensor is True.")


@op(host=True, samples=lambda: [sample(T(2, 3))])
def is_distributed(input: Tensor) -> bool:
    """Whether a tensor's parts lie on several machines: False.

    Example:
        >>> torch.is_distributed(torch.zeros(2))
        False
    """
    del input
    return False


@op(host=True, samples=lambda: [sample(T(2, 3), T(2, 3)), sample(T(2), T(3))])
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same sizes.

    Example:
        >>> torch.is_same_size(torch.zeros(2, 3), torch.ones(2, 3))
        True
    """
    return bool(input.shape == other.shape)


def _shape_of(size: Any) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(int(n) for n in size)


@function(
    where="torch",
    out=True,
    samples=lambda: [sample((2, 1), (3,)), sample(2, (4, 1, 1)), sample()],
    errors=lambda: [ErrorSample(sample((2,), (3,)), RuntimeError, "broadcast a dimension")],
)
def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that tensors of these shapes have together; a number is a shape of one dimension.

    Raises:
        RuntimeError: sizes that are neither equal nor 1.
        ValueError: a negative size.

    Example:
        >>> torch.broadcast_shapes((2, 1), (3,))
        torch.Size([2, 3])
    """
    result: list[int] = []
    for position, shape in enumerate(map(_shape_of, shapes)):
        if any(n < 0 for n in shape):
            problem = "Attempting to broadcast a dimension with negative length!"
            raise failure(ValueError, "broadcast_shapes", problem, "sizes count elements")
        result = [1] * (len(shape) - len(result)) + result
        for back, n in enumerate(reversed(shape), 1):
            if n not in (1, result[-back]) and result[-back] != 1:
                problem = f"Attempting to broadcast a dimension of length {n} at {-back}! "
                problem += f"Mismatching argument at index {position} had {shape}; but expected "
                problem += f"shape should be broadcastable to {result}"
                raise failure(RuntimeError, "broadcast_shapes", problem, "sizes equal, or 1")
            result[-back] = n if result[-back] == 1 else result[-back]
    return tensors.Size(result)


@op(
    where="method",
    out=True,
    samples=lambda: [sample(T(2, 3), (1, 3)), sample(T(2, 3), (3,)), sample(T(2, 3), (2, 3))],
)
def sum_to_size(self: Tensor, size: Sequence[SymInt]) -> Tensor:
    """Sums over the dimensions that broadcasting `size` to the tensor's shape would repeat.

    Raises:
        RuntimeError: the size does not broadcast to the tensor's.

    Example:
        >>> torch.ones(2, 3).sum_to_size(1, 3)
        tensor([[2., 2., 2.]])
    """
    lead = self.ndim - len(size)
    fits = lead >= 0 and all(
        is_one(n) or layout.same(n, m)
        for n, m in zip(size, self.shape[max(lead, 0) :], strict=True)
    )
    if not fits:
        problem = f"size {shown(size)} is not expandable to size {shown(self.shape)}."
        raise failure(RuntimeError, "sum_to_size", problem, "sizes must be equal, or 1")
    if self.dtype == "bool" and lead == 0 and size and all(map(layout.same, size, self.shape)):
        return self
    return prims.sum_to_shape(prims.cast(self, "i64") if self.dtype == "bool" else self, size)


@op(
    where="method",
    repeats=True,
    fits="fill_value",
    runtime="fill_value",
    samples=lambda: [sample(T(3, 4), 1.5), sample(T(7, 3), 2, True), sample(T(3, 3, 3), 1.0)],
)
def fill_diagonal_(self: Mutable[Tensor], fill_value: Scalar, wrap: bool = False) -> Tensor:
    """Fills the main diagonal: the places whose indices are all equal.

    Args:
        wrap: tall matrices continue with the diagonal after each n + 1 rows.

    Raises:
        RuntimeError: fewer than two dimensions, or more of different sizes.

    Example:
        >>> torch.zeros(2, 2).fill_diagonal_(1)
        tensor([[1., 0.],
                [0., 1.]])
    """
    equal = self.ndim == 2 or all(layout.same(n, self.shape[0]) for n in self.shape)
    if self.ndim < 2 or not equal:
        problem = "dimensions must larger than 1, and all of one size if more than 2"
        raise failure(RuntimeError, "fill_diagonal_", problem, f"got {shown(self.shape)}")
    place = [prims.iota(self.shape, d) for d in range(self.ndim)]
    if self.ndim == 2 and wrap and less(self.shape[1], self.shape[0]):
        period = prims.constant(self.shape[1] + 1, place[0])
        place[0] = prims.remainder(place[0], period)
    on = prims.eq(place[0], place[1])
    for other in place[2:]:
        on = on & prims.eq(place[0], other)
    number = prims.constant(fill_value, self)
    return prims.where(on, number, self)


@op(host=True, samples=lambda: [sample(T(4)), sample(T(4), 3), sample(T(3), 2, True)])
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """All combinations of r elements of a vector, one per row.

    Raises:
        RuntimeError: not a vector, or a negative r.

    Example:
        >>> torch.combinations(torch.tensor([1, 2, 3]))
        tensor([[1, 2],
                [1, 3],
                [2, 3]])
    """
    from itertools import combinations as without
    from itertools import combinations_with_replacement as repeated

    if input.ndim != 1 or r < 0:
        problem = f"Expect a 1D vector and a non-negative r, but got shape {list(input.shape)} "
        problem += f"and {r}"
        raise failure(RuntimeError, "combinations", problem, "ravel() the tensor")
    if r == 0:
        return input.new_empty(0)
    choose = repeated if with_replacement else without
    rows = list(choose(range(input.shape[0]), r))
    places = input.new_tensor(rows, dtype=object_of("i64")).reshape(len(rows), r)
    return input.take(places)


@function(where="torch", samples=lambda: [sample(T(3, dtype="i64", values=[0, 4, 5]), (2, 3))])
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Coordinates of places in the row-major order of a shape, one tensor per dimension.

    Example:
        >>> torch.unravel_index(torch.tensor([4]), (2, 3))
        (tensor([1]), tensor([1]))
    """
    sizes = [shape] if isinstance(shape, int) else [int(n) for n in shape]
    place, steps = 1, []
    for n in reversed(sizes):
        steps.append(place)
        place *= n
    apart = indices.new_tensor(
        [steps[::-1], sizes], dtype=object_of("i64")
    )  # one result of all, shown in parts
    return (indices.unsqueeze(-1) // apart[0] % apart[1]).unbind(-1)
