"""Memory without writes: values of tensors, the views that lead to them, and updates that wait.

A write into a view is stored as the view's new value. Whoever reads another alias next applies
the waiting updates to the base, by the inverse of each view, and computes its own value again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.ir.failure import failure
from flambeau.ops import aten

__all__ = ["INPLACE_VIEWS", "VIEWS", "Alias", "Base", "View"]

Value = Any  # a tensor, a number, or an argument of an operator
Inverse = Callable[["View", Value, Value], Value]


class View(NamedTuple):
    """One view operator with its arguments after the tensor.

    Attributes:
        func: the overload.
        args, kwargs: without the tensor.
        item: which of several results; None: there is one.
        copies: whether the operator's copying form is called, for graphs without aliases.
    """

    func: aten.Overload
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    item: int | None
    copies: bool

    @property
    def name(self) -> str:
        """The operator's name."""
        return str(self.func.overloadpacket.__name__)

    def results(self, tensor: Value) -> Value:
        """The operator's results for a tensor."""
        return self.named(self.name, self.func._overloadname)(tensor, *self.args, **self.kwargs)

    def forward(self, tensor: Value) -> Value:
        """The view of a tensor."""
        results = self.results(tensor)
        return results if self.item is None else results[self.item]

    def inverse(self, base: Value, value: Value) -> Value:
        """The tensor that the view has this value of, elsewhere equal to *base*."""
        return VIEWS[self.name](self, base, value)

    def named(self, name: str, overload: str = "default") -> aten.Overload:
        """A view operator, in its copying form where there are no aliases."""
        name = f"{name}_copy" if self.copies and name not in _ALWAYS_COPY else name
        operator: aten.Overload = getattr(aten.__getattr__(name), overload)
        return operator

    def argument(self, place: int, name: str, default: Value = None) -> Value:
        """An argument by its place after the tensor, or by its name."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    def dimension(self, base: Value, place: int = 0, name: str = "dim", default: int = 0) -> int:
        """An argument that is a dimension of the tensor, not negative."""
        return int(self.argument(place, name, default)) % max(base.ndim, 1)


class Base:
    """Memory that tensors share.

    Attributes:
        value: a tensor of all of it.
        generation: how many writes there were.
    """

    def __init__(self, value: Value) -> None:
        self.value = value
        self.generation = 0
        self._updates: list[tuple[Value, tuple[View, ...]]] = []

    def update(self, value: Value, views: tuple[View, ...]) -> None:
        """Notes that a view of the memory has a new value."""
        self._updates.append((value, views))
        self.generation += 1

    def apply(self) -> None:
        """Computes the value after all updates."""
        for value, views in self._updates:
            self.value = self._updated(value, views)
        self._updates.clear()

    def _updated(self, value: Value, views: tuple[View, ...]) -> Value:
        tensors = [self.value]
        for view in views[:-1]:
            tensors.append(view.forward(tensors[-1]))
        for view, tensor in zip(reversed(views), reversed(tensors), strict=False):
            value = view.inverse(tensor, value)
        return value


class Alias:
    """The value of one tensor.

    Attributes:
        base: its memory.
        views: lead from the memory to it.
    """

    def __init__(self, value: Value, base: Base, views: tuple[View, ...] = ()) -> None:
        self.base, self.views = base, views
        self.stale = value  # as of a generation
        self._generation = 0

    def value(self) -> Value:
        """The value after all writes so far."""
        if self._generation != self.base.generation:
            self.base.apply()
            value = self.base.value
            for view in self.views:
                value = view.forward(value)
            self._replace(value)
            self._generation = self.base.generation
        return self.stale

    def _replace(self, value: Value) -> None:
        dtype = self.stale.dtype
        self.stale = value if value.dtype == dtype else aten._to_copy(value, dtype=dtype)

    def write(self, value: Value) -> None:
        """Gives the tensor a value, which its aliases get when they are read."""
        self._replace(value)
        self.base.update(self.stale, self.views)
        self.value()

    def view(self, view: View) -> None:
        """Makes the tensor a view of what it was: `transpose_` and its like."""
        self.views = (*self.views, view)
        self.stale = view.forward(self.stale)


# ------------------------------------------------------------------------------ inverses
def _same(view: View, base: Value, value: Value) -> Value:
    return value


def _again(view: View, base: Value, value: Value) -> Value:
    return view.forward(value)


def _viewed(view: View, base: Value, value: Value) -> Value:
    if view.func._overloadname == "dtype":
        return view.named("view", "dtype")(value, base.dtype)
    return view.named("view")(value, list(base.shape))


def _permuted(view: View, base: Value, value: Value) -> Value:
    dims = [d % base.ndim for d in view.argument(0, "dims")]
    return view.named("permute")(value, [dims.index(d) for d in range(len(dims))])


def _summed(view: View, base: Value, value: Value) -> Value:
    """The sum over what `expand` repeated."""
    lead = value.ndim - base.ndim
    pairs = zip(base.shape, value.shape[lead:], strict=True)
    dims = [*range(lead), *(lead + d for d, (a, b) in enumerate(pairs) if a == 1 and b != 1)]
    if dims:
        value = aten.sum.dim_IntList(value, dims, True)
    return view.named("view")(value, list(base.shape)) if lead else value


def _unsqueezed(view: View, base: Value, value: Value) -> Value:
    dims = view.argument(0, "dim", range(base.ndim))
    dims = sorted(d % base.ndim for d in ([dims] if isinstance(dims, int) else dims))
    for dim in dims:
        if base.shape[dim] == 1:
            value = view.named("unsqueeze")(value, dim)
    return value


def _squeezed(view: View, base: Value, value: Value) -> Value:
    return view.named("squeeze", "dim")(value, int(view.argument(0, "dim")))


def _selected(view: View, base: Value, value: Value) -> Value:
    return aten.select_scatter.default(base, value, *view.args, **view.kwargs)


def _sliced(view: View, base: Value, value: Value) -> Value:
    return aten.slice_scatter.default(base, value, *view.args, **view.kwargs)


def _diagonal(view: View, base: Value, value: Value) -> Value:
    return aten.diagonal_scatter.default(base, value, *view.args, **view.kwargs)


def _strided(view: View, base: Value, value: Value) -> Value:
    return aten.as_strided_scatter.default(base, value, *view.args, **view.kwargs)


def _part(view: View, base: Value, value: Value) -> Value:
    size, dim = view.argument(0, "split_size"), view.dimension(base, 1)
    start = size * (view.item or 0)
    end = start + value.shape[dim]
    return aten.slice_scatter.default(base, value, dim, start, end)


def _sized_part(view: View, base: Value, value: Value) -> Value:
    sizes, dim = view.argument(0, "split_sizes"), view.dimension(base, 1)
    edges = [0, *itertools.accumulate(sizes)]
    item = view.item or 0
    return aten.slice_scatter.default(base, value, dim, edges[item], edges[item + 1])


def _row(view: View, base: Value, value: Value) -> Value:
    return aten.select_scatter.default(base, value, int(view.argument(0, "dim", 0)), view.item)


def _folded(view: View, base: Value, value: Value) -> Value:
    problem = "a window of `unfold` is written: windows share elements"
    raise failure(NotImplementedError, "functionalize", problem, "write a slice of the tensor")


def _complex(view: View, base: Value, value: Value) -> Value:
    return view.named("view_as_complex")(value)


def _real(view: View, base: Value, value: Value) -> Value:
    return view.named("view_as_real")(value)


_ALWAYS_COPY = ("_unsafe_view",)  # operators that have no copying form, and need none

VIEWS: dict[str, Inverse] = {
    "alias": _same, "detach": _same, "view": _viewed, "_unsafe_view": _viewed, "t": _again,
    "transpose": _again, "permute": _permuted, "expand": _summed, "squeeze": _unsqueezed,
    "unsqueeze": _squeezed, "select": _selected, "slice": _sliced, "diagonal": _diagonal,
    "as_strided": _strided, "split": _part, "split_with_sizes": _sized_part, "unbind": _row,
    "unfold": _folded, "view_as_real": _complex, "view_as_complex": _real,
}  # fmt: skip

INPLACE_VIEWS: dict[str, str] = {
    name: name.removesuffix("_")
    for name in ("t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_", "detach_")
}


def tensors_of(values: Sequence[Value]) -> list[Value]:
    """The tensors among results, those of lists included."""
    flat = itertools.chain.from_iterable(
        value if isinstance(value, (list, tuple)) else (value,) for value in values
    )
    return [value for value in flat if isinstance(value, _core.Tensor)]
