"""Copies of views (`view_copy`, `permute_copy` ...) and pieces that share no version counter.

A copy's value is that of the view with the same arguments; its memory is its own, contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.core.definition import REGISTRY, View, op
from flambeau.core.samples import Sample, T, sample
from flambeau.ops import indexing, shape, slices, views  # noqa: F401 - defines the views

_VIEWS: dict[str, tuple[str, tuple[Any, ...]]] = {
    # the view: its arguments after the tensor, and a sample of them for a tensor of (2, 3)
    "alias": ("", ()),
    "as_strided": (
        "SymInt[] size, SymInt[] stride, SymInt? storage_offset=None",
        ((2, 2), (1, 2), 1),
    ),
    "diagonal": ("int offset=0, int dim1=0, int dim2=1", (1,)),
    "expand": ("SymInt[] size, *, bool implicit=False", ((2, 2, 3),)),
    "narrow": ("int dim, SymInt start, SymInt length", (1, 1, 2)),
    "permute": ("int[] dims", ((1, 0),)),
    "select": ("int dim, SymInt index", (1, 2)),
    "slice": (
        "int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1",
        (1, 0, 3, 2),
    ),
    "squeeze": ("int[]? dim=None", ()),
    "t": ("", ()),
    "transpose": ("int dim0, int dim1", (0, 1)),
    "unfold": ("int dimension, SymInt size, SymInt step", (1, 2, 1)),
    "unsqueeze": ("int dim", (1,)),
    "view": ("SymInt[] size", ((3, 2),)),
}
_PIECES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "split_copy": ("SymInt split_size, int dim=0", (1,)),
    "split_with_sizes_copy": ("SymInt[] split_sizes, int dim=0", ((2, 1), 1)),
    "unbind_copy": ("int dim=0", (1,)),
    "unsafe_chunk": ("int chunks, int dim=0", (2,)),
    "unsafe_split": ("SymInt split_size, int dim=0", (1,)),
    "unsafe_split_with_sizes": ("SymInt[] split_sizes, int dim=0", ((2, 1), 1)),
}
_PIECES_OF = {"unsafe_chunk": "chunk"}


def _samples(given: tuple[Any, ...]) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        yield sample(T(2, 3), *given)

    return make


def _value(result: Any) -> Any:
    return result.node if isinstance(result, View) else result


def _define_view(name: str, arguments: str, given: tuple[Any, ...]) -> None:
    source = REGISTRY[name]

    def body(self: Any, *rest: Any) -> Any:
        return _value(source.overloads[0].body(self, *(rest[:1] if name == "expand" else rest)))

    body.__doc__ = f"""What `{name}` with these arguments shows, copied.

    Raises:
        RuntimeError: where `{name}` does.

    Example:
        >>> torch.{name}_copy({", ".join(["torch.ones(2, 3)", *map(str, given)])}).is_contiguous()
        True
    """
    text = f"Tensor self, {arguments}" if arguments else "Tensor self"
    op(f"{name}_copy({text}) -> Tensor", where="torch", out=True, samples=_samples(given))(body)


def _define_pieces(name: str, arguments: str, given: tuple[Any, ...]) -> None:
    original = name.removesuffix("_copy").removeprefix("unsafe_")
    source = REGISTRY[original]
    copied = name.endswith("_copy")

    def body(self: Any, *rest: Any) -> list[Any]:
        return [_value(piece) for piece in source.overloads[0].body(self, *rest)]

    kind = "copied" if copied else "as tensors of their own"
    body.__doc__ = f"""The pieces of `{original}`, {kind}.

    Raises:
        RuntimeError: where `{original}` does.

    Example:
        >>> len(torch.{name}({", ".join(["torch.ones(2, 3)", *map(str, given)])}))
        {3 if original == "unbind" else 2}
    """
    op(
        f"{name}(Tensor self, {arguments}) -> (Tensor...)",
        where="torch" if copied else "torch method",
        out=False,
        samples=_samples(given),
    )(body)


for _name, (_arguments, _given) in _VIEWS.items():
    _define_view(_name, _arguments, _given)
for _name, (_arguments, _given) in _PIECES.items():
    _define_pieces(_name, _arguments, _given)
