"""Lengths of the samples of a jagged tensor, and the symbol that represents them in its shape.

Tensors that were computed from each other share one `Ragged`: that is what makes "same offsets"
a comparison of two objects, and what lets lengths be read on the host once.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.runtime.symbolic import SymInt

_numbers = itertools.count(1)


class RaggedInt(SymInt):
    """The size of a ragged dimension: a name that equals itself in tensors that share offsets.

    It may stand in the sizes given to `view` or `expand`; as a number it has no value.

    Example:
        >>> x = torch.nested.nested_tensor([torch.ones(1), torch.ones(3)], layout=torch.jagged)
        >>> x.shape[1] == (2 * x).shape[1], x.shape[1] == 3
        (True, False)
    """

    def __init__(self, ragged: Any, name: str, factor: int = 1) -> None:
        """A multiple of a length; the reference to `ragged` extends its lifetime."""
        self._ragged, self._name, self._factor = ragged, name, factor

    def __repr__(self) -> str:
        return self._name if self._factor == 1 else f"{self._factor}*{self._name}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RaggedInt):
            return False
        return self._name == other._name and self._factor == other._factor

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self._name, self._factor))

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int:
            return NotImplemented
        return RaggedInt(self._ragged, self._name, self._factor * other)

    __rmul__ = __mul__

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, 2, ">=")

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, 1, ">")

    def __le__(self, other: Any) -> bool:
        return self == other or not self._compared(other, 1, "<=")

    def __lt__(self, other: Any) -> bool:
        return self != other and not self._compared(other, 2, "<")

    def _compared(self, other: Any, largest: int, sign: str) -> bool:
        """Whether it exceeds a number: it is taken for a length that is no 0 and no 1."""
        if self == other:
            return True
        if type(other) is int and other <= largest:
            return True
        raise ValueError(
            f"[SymInt] {self} {sign} {other} has no answer: a ragged size has no one value\n"
            "hint: x.offsets().diff() are the lengths"
        )

    def _no_number(self) -> int:
        raise RuntimeError(
            f"[SymInt] the ragged size {self} is no number\nhint: x.offsets().diff() are the "
            "lengths; keep the symbol itself in sizes given to view() or expand()"
        )

    __int__ = __index__ = _no_number

    def __float__(self) -> float:
        return float(self._no_number())

    def __bool__(self) -> bool:
        return True


class Sizes(tuple[Any, ...]):
    """Sizes of which one is a symbol; otherwise like `torch.Size`."""

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def numel(self) -> Any:
        """The product of the sizes: a multiple of the symbol."""
        product: Any = 1
        for size in self:
            product = size * product
        return product


class Ragged:
    """Where the parts of jagged tensors begin and how long they are.

    Attributes:
        offsets: (B + 1) integers; part i begins at `offsets[i]`.
        lengths: (B) integers, or None: each part ends where the next begins.
        size: the symbol.
    """

    def __init__(
        self,
        offsets: Any,
        lengths: Any = None,
        shortest: int | None = None,
        longest: int | None = None,
        spans: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Uses known extremes and (begin, length) pairs, where the caller has them."""
        self.offsets, self.lengths = offsets, lengths
        self._shortest, self._longest, self._spans = shortest, longest, spans
        self._room: tuple[int, int] | None = None
        self.name = f"j{next(_numbers)}"

    @property
    def size(self) -> RaggedInt:
        """The symbol of the ragged dimension."""
        return RaggedInt(self, self.name)

    @property
    def batch(self) -> int:
        """Number of parts."""
        return int(self.offsets.shape[0]) - 1

    def within(self, rows: int, step: int = 0) -> Ragged:
        """States which rows of the values part i may have: `rows` of them from `i * step` on.

        Offsets and lengths that were given are data, which are not read before something needs
        them on the host: then they are checked.

        Returns:
            This object.

        Raises:
            RuntimeError: they have been read, and do not fit.
        """
        self._room = (rows, step)
        if self._spans is not None:
            self._check(self._spans)
        return self

    def _check(self, spans: Sequence[tuple[int, int]]) -> None:
        if self._room is None:
            return
        rows, step = self._room
        for number, (begin, length) in enumerate(spans):
            low = number * step
            if length < 0 or begin < low or begin + length > low + rows:
                raise RuntimeError(
                    f"[jagged] sample {number} begins at row {begin - low} and has length {length}"
                    f", but there are {rows} rows\nhint: offsets must not decrease, lengths not be "
                    "negative, and samples end within the values"
                )

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """(begin, length) of every part, on the host.

        Raises:
            RuntimeError: they do not fit the values.
        """
        if self._spans is None:
            ends = self.offsets.tolist()
            if self.lengths is not None:
                spans = list(zip(ends, self.lengths.tolist(), strict=False))
            else:
                spans = [(a, b - a) for a, b in itertools.pairwise(ends)]
            self._check(spans)
            self._spans = spans
        return self._spans

    @property
    def longest(self) -> int:
        """The largest length, or what the caller said it is."""
        if self._longest is None:
            self._longest = max((n for _, n in self.spans), default=0)
        return self._longest

    @property
    def shortest(self) -> int:
        """The smallest length, or what the caller said it is."""
        if self._shortest is None:
            self._shortest = min((n for _, n in self.spans), default=0)
        return self._shortest

    def counts(self) -> Any:
        """(B) lengths, as a tensor."""
        return self.offsets.diff() if self.lengths is None else self.lengths

    def owners(self, rows: int) -> Any:
        """(rows): the part that each row of the values belongs to."""
        ends = self.offsets[1:]
        places = torch.arange(rows, dtype=ends.dtype, device=ends.device)
        return torch.searchsorted(ends, places, right=True).clamp(max=max(self.batch - 1, 0))

    def slots(self) -> tuple[Any, Any]:
        """(B, longest) rows of the values, 0 behind the end of a part; and whether it is not."""
        begin, counts = self.offsets[:-1].unsqueeze(1), self.counts().unsqueeze(1)
        steps = torch.arange(self.longest, dtype=begin.dtype, device=begin.device)
        inside = steps < counts
        return torch.where(inside, begin + steps, 0), inside

    def places(self, rows: int) -> Any:
        """(rows): the index of each row of the values among (B * longest) padded ones."""
        owners = self.owners(rows)
        steps = torch.arange(rows, dtype=owners.dtype, device=owners.device)
        within = steps - self.offsets[:-1].to(owners.dtype).index_select(0, owners)
        return owners * self.longest + within.clamp(0, max(self.longest - 1, 0))

    def same_parts(self, other: Ragged) -> bool:
        """Whether parts have the same lengths (a comparison on the host)."""
        return [n for _, n in self.spans] == [n for _, n in other.spans]


_known: weakref.WeakValueDictionary[tuple[int, int], Ragged] = weakref.WeakValueDictionary()


def ragged_of(
    offsets: Any, lengths: Any = None, shortest: int | None = None, longest: int | None = None
) -> Ragged:
    """The `Ragged` of these offset tensors: one object as long as it is referenced."""
    key = (id(offsets), id(lengths))
    ragged = _known.get(key)  # it holds the tensors, so their addresses are not given to others
    if ragged is None:
        ragged = Ragged(offsets, lengths, shortest, longest)
        _known[key] = ragged
    return ragged


def ragged_from_lengths(counts: Sequence[int], device: Any = None) -> Ragged:
    """The `Ragged` of consecutive parts."""
    ends = [0, *itertools.accumulate(counts)]
    offsets = torch.tensor(ends, dtype=torch.int64, device=device)
    spans = list(zip(ends, counts, strict=False))
    ragged = Ragged(offsets, None, min(counts, default=0), max(counts, default=0), spans)
    _known[id(offsets), id(None)] = ragged
    return ragged
