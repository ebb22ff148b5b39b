"""Hostile values in what operators follow: offsets, lengths, bins, coordinates, parts of sparse
and nested tensors, bytes of files.

Random ones, right and wrong, thousands of them. A call either succeeds, and then its result can be
read, or raises an exception that says why. Nothing else: under the sanitizers an access outside of
a tensor's memory ends the process. What must be refused is written beside each call.
"""

from __future__ import annotations

import inspect
import io
import math
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch

F = torch.nn.functional
SEEDS = range(4)
ROUNDS = 12
REFUSED = (IndexError, RuntimeError, ValueError, OverflowError, TypeError, NotImplementedError)
HOSTILE = (-(2**63), -(2**40), -7, -1, 0, 1, 2, 5, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
COORDINATES = (math.nan, math.inf, -math.inf, 1e38, -1e38, 1e300, 2.0**31, -(2.0**63), -1.0, 1.0)


class Values:
    """Random tensors, among whose elements some are hostile."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def size(self, low: int = 1, high: int = 6) -> int:
        return self.random.randint(low, high)

    def integers(self, *shape: int, below: int, hostile: float = 0.2, dtype: Any = None) -> Any:
        def one() -> int:
            if self.random.random() < hostile:
                return self.random.choice((*HOSTILE, below, below + 1, -below - 1))
            return self.random.randrange(max(below, 1))

        numbers = [one() for _ in range(math.prod(shape))]
        made = torch.tensor(numbers, dtype=torch.int64).reshape(shape)
        return made if dtype is None else made.to(dtype)

    def bounds(self, parts: int, end: int, kind: Any) -> Any:
        """Where parts begin and the last one ends; most often in order."""
        found = self.integers(parts + 1, below=end + 1, hostile=0.1, dtype=kind)
        if self.random.random() < 0.7:
            found = found.clamp(0, end).sort().values
            found[0], found[-1] = 0, end
        return found

    def index_dtype(self) -> Any:
        return self.random.choice((torch.int64, torch.int32))

    def floats(self, *shape: int, hostile: float = 0.0) -> Any:
        def one() -> float:
            if self.random.random() < hostile:
                return self.random.choice(COORDINATES)
            return self.random.uniform(-2.0, 2.0)

        return torch.tensor([one() for _ in range(math.prod(shape))]).reshape(shape)

    def layout(self, x: Any) -> Any:
        """The same elements at other places."""
        kind = self.random.randrange(3)
        if kind == 1 and x.ndim > 1:
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        if kind == 2 and x.ndim:
            return torch.stack([x, x], -1)[..., 0]
        return x


def read(result: Any) -> None:
    """Every number of a result."""
    if isinstance(result, (tuple, list)):
        for part in result:
            read(part)
    elif isinstance(result, torch.Tensor):
        if result.is_nested:
            read(list(result.unbind()))
        elif result.layout is not torch.strided:
            read(result.to_dense())
        elif result.numel() < 1 << 20:
            result.tolist()


def tried(call: Callable[[], Any], backward: Any = None) -> bool:
    """Whether the call succeeds; its result, and the gradient, are read."""
    try:
        result = call()
        read(result)
        if backward is not None:
            backward.grad = None
            result.sum().backward()
            read(backward.grad)
    except REFUSED:
        return False
    return True


# ------------------------------------------------------------------------------------ operators


def lookups(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    """Calls, and whether they must succeed (None: either)."""
    rows, width, count = v.size(), v.size(), v.size()
    table = v.layout(v.floats(rows, width))
    index = v.integers(count, below=rows)
    right = bool(((index >= 0) & (index < rows)).all())
    yield lambda: torch.index_select(table, 0, index), right
    wide = v.integers(count, width, below=rows)
    inside = bool(((wide >= -rows) & (wide < rows)).all())
    yield lambda: torch.take_along_dim(table, wide, 0), inside
    pair = (v.integers(count, below=rows), v.integers(count, below=width))
    good = all(bool(((p >= -n) & (p < n)).all()) for p, n in zip(pair, (rows, width)))
    source = v.floats(count)
    yield lambda: table.clone().index_put_(pair, source, accumulate=v.random.random() < 0.5), good
    yield lambda: table[pair], good
    reduce = v.random.choice(("sum", "prod", "amax", "amin", "mean"))
    positive = bool(((wide >= 0) & (wide < rows)).all())
    yield (
        lambda: table.clone().scatter_reduce_(0, wide[:, :1], v.floats(count, 1), reduce),
        bool(((wide[:, :1] >= 0) & (wide[:, :1] < rows)).all()),
    )
    yield lambda: torch.gather(table, 0, wide), positive
    yield lambda: torch.put(table, index, v.floats(count)), None


def bags(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    rows, count, number = v.size(), v.size(0, 9), v.size(1, 4)
    kind = v.index_dtype()
    table = v.floats(rows, v.size()).requires_grad_()
    words = v.integers(count, below=rows, hostile=0.05, dtype=kind)
    offsets = v.integers(number, below=count + 1, dtype=kind)
    if v.random.random() < 0.5:
        offsets = offsets.clamp(0, count).sort().values
        offsets[0] = 0
    mode = v.random.choice(("sum", "mean", "max"))
    last = v.random.random() < 0.3
    wrong = bool(((words < 0) | (words >= rows)).any()) and not last and int(offsets[0]) == 0
    call = lambda: F.embedding_bag(words, table, offsets, mode=mode, include_last_offset=last)  # noqa: E731
    yield call, False if wrong else None


def sequences(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    steps, batch, classes, longest = v.size(1, 8), v.size(1, 3), v.size(2, 5), v.size(1, 4)
    scores = v.floats(steps, batch, classes).requires_grad_()
    targets = v.integers(batch, longest, below=classes, hostile=0.05)
    inputs = v.integers(batch, below=steps + 1, hostile=0.1)
    lengths = v.integers(batch, below=longest + 1, hostile=0.1)
    blank = v.random.choice((0, 0, classes - 1, classes, -1))
    read_ones = [
        targets[b, : max(0, min(int(lengths[b]), longest))] for b in range(batch)
    ]  # only these are looked at
    wrong = bool(((inputs < 0) | (inputs > steps) | (lengths < 0) | (lengths > longest)).any())
    wrong |= not 0 <= blank < classes
    wrong |= any(bool(((t < 0) | (t >= classes)).any()) for t in read_ones)
    logs = scores.log_softmax(2)
    yield lambda: F.ctc_loss(logs, targets, inputs, lengths, blank), False if wrong else None
    flat = targets.flatten()
    yield lambda: F.ctc_loss(logs, flat, inputs, lengths, blank, zero_infinity=True), None


def pieces(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    count, number = v.size(1, 9), v.size(1, 4)
    data = v.floats(count, v.size()).requires_grad_()
    reduce = v.random.choice(("sum", "mean", "max", "min", "prod"))
    lengths = v.integers(number, below=count, hostile=0.2, dtype=v.index_dtype())
    fits = bool((lengths >= 0).all()) and int(sum(lengths.tolist())) == count
    yield lambda: torch.segment_reduce(data, reduce, lengths=lengths), fits
    offsets = v.integers(number + 1, below=count + 1, hostile=0.1, dtype=v.index_dtype())
    numbers = offsets.tolist()
    rising = numbers[0] == 0 and numbers[-1] == count and sorted(numbers) == numbers
    yield lambda: torch.segment_reduce(data, reduce, offsets=offsets), True if rising else None
    yield lambda: torch.segment_reduce(data, reduce, lengths=lengths, unsafe=True), None
    repeats = v.integers(count, below=4, hostile=0.1).clamp(max=1000)
    yield lambda: torch.repeat_interleave(data, repeats, 0), bool((repeats >= 0).all())


def images(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    image = v.layout(v.floats(1, 2, v.size(), v.size())).requires_grad_()
    places = v.floats(1, v.size(), v.size(), 2, hostile=0.3)
    mode = v.random.choice(("bilinear", "nearest", "bicubic"))
    padding = v.random.choice(("zeros", "border", "reflection"))
    corners = v.random.random() < 0.5
    yield lambda: F.grid_sample(image, places, mode, padding, corners), True
    volume = v.floats(1, 1, v.size(), v.size(), v.size())
    there = v.floats(1, 2, 2, 2, 3, hostile=0.3)
    shown = "bilinear" if mode == "bicubic" else mode
    yield lambda: F.grid_sample(volume, there, shown, padding, corners), True
    height, width = v.size(), v.size()
    maxima = v.floats(1, 1, height, width).requires_grad_()
    extent = 4 * height * width
    at = v.integers(1, 1, height, width, below=extent, hostile=0.1)
    yield lambda: F.max_unpool2d(maxima, at, 2), bool(((at >= 0) & (at < extent)).all())
    line = v.integers(1, 1, width, below=2 * width, hostile=0.1)
    row = v.floats(1, 1, width)
    yield lambda: F.max_unpool1d(row, line, 2), bool(((line >= 0) & (line < 2 * width)).all())


def counts(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    x = v.floats(v.size(1, 20), hostile=0.2)
    bins = v.size(1, 5)
    low, high = sorted((v.random.choice((*COORDINATES, 0.5)), v.random.choice((0.0, 1.0))))
    yield lambda: torch.histc(x, bins, low, high), None
    yield lambda: torch.histc(x, bins), bool(x.isfinite().all()) or None
    edges = v.floats(v.size(2, 5), hostile=0.2)
    yield lambda: torch.histogram(x, edges), None
    yield lambda: torch.histogram(x, bins, range=(low, high)), None
    yield lambda: torch.histogramdd(x.reshape(-1, 1), [bins]), None
    yield lambda: torch.bucketize(x, edges), True
    yield lambda: torch.searchsorted(edges, x, right=True), True
    order = v.integers(edges.numel(), below=edges.numel(), hostile=0.2)
    yield lambda: torch.searchsorted(edges, x, sorter=order), None
    whole = v.integers(v.size(1, 9), below=9, hostile=0.1).clamp(max=1000)
    yield lambda: torch.bincount(whole), bool((whole >= 0).all())
    yield lambda: F.one_hot(whole, 9), bool(((whole >= 0) & (whole < 9)).all())
    scores, classes = v.floats(whole.numel(), 9).requires_grad_(), whole
    yield lambda: F.cross_entropy(scores, classes, v.floats(9)), None
    yield lambda: F.multi_margin_loss(scores, classes), None
    yield lambda: F.multilabel_margin_loss(scores, v.integers(whole.numel(), 9, below=9)), None


def windows(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    base = v.floats(v.size(1, 30))
    pick = lambda: v.random.choice((*HOSTILE, 3, 4, 6))  # noqa: E731
    sizes, strides = (pick(), pick()), (pick(), pick())
    offset = pick()
    yield lambda: base.as_strided(sizes, strides, offset), None
    yield lambda: base.as_strided((3, 2), strides, offset).sum(), None
    yield lambda: base.as_strided_scatter(v.floats(2, 2), sizes, strides, offset), None
    size, step = pick(), pick()
    yield lambda: base.unfold(0, size, step), None
    yield lambda: base.narrow(0, offset, size), None
    yield lambda: base[offset :: max(step, 1)], None
    yield lambda: base.select(0, offset), -base.numel() <= offset < base.numel()
    yield lambda: base.roll(offset), None
    yield lambda: base.diag(v.random.choice((-9, 0, 9, 40))), True
    yield lambda: base.new_empty_strided(sizes, strides), None
    yield lambda: torch.empty(0).set_(base.untyped_storage(), offset, sizes, strides), None
    few = v.random.choice((-(2**63), -(2**40), -7, -1, 0, 3, 2**62, 2**63 - 1))
    image = v.floats(1, 1, 5, 5)
    yield lambda: F.unfold(image, (size, 2), padding=1), None
    yield lambda: F.fold(v.floats(1, 4, 9), (few, 4), 2), None
    yield lambda: F.pad(base, (few, 2)), None
    yield lambda: base.repeat(few), None
    yield lambda: base.expand(size, base.numel()), None


def sparse_parts(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    rows, columns, kept = v.size(), v.size(), v.size(0, 5)
    places = torch.stack([v.integers(kept, below=n, hostile=0.1) for n in (rows, columns)])
    numbers = v.floats(kept)
    bounds = torch.tensor([[rows], [columns]])
    right = bool(((places >= 0) & (places < bounds)).all())
    shape = (rows, columns)
    yield lambda: torch.sparse_coo_tensor(places, numbers, shape, check_invariants=True), right
    kind = v.index_dtype()
    for make, outer, inner in (
        (torch.sparse_csr_tensor, rows, columns),
        (torch.sparse_csc_tensor, columns, rows),
    ):
        begins = v.bounds(outer, kept, kind)
        within = v.integers(kept, below=inner, hostile=0.05, dtype=kind)
        made = lambda: make(begins, within, numbers, (rows, columns), check_invariants=True)  # noqa: E731, B023
        yield made, None
        yield lambda: made() @ v.floats(columns, 2), None  # noqa: B023
        yield lambda: made().to_sparse_coo(), None  # noqa: B023
    block = (v.size(1, 2), v.size(1, 3))
    whole = (rows * block[0], columns * block[1])
    blocks = v.floats(kept, *block)
    for make, outer, inner in (
        (torch.sparse_bsr_tensor, rows, columns),
        (torch.sparse_bsc_tensor, columns, rows),
    ):
        begins = v.bounds(outer, kept, kind)
        within = v.integers(kept, below=inner, hostile=0.05, dtype=kind)
        for checked in (True, False):
            made = lambda: make(begins, within, blocks, whole, check_invariants=checked)  # noqa: E731, B023
            yield made, None
            yield lambda: made() @ v.floats(whole[1], 2), None  # noqa: B023
            yield lambda: made().transpose(0, 1), None  # noqa: B023


def unchecked_sparse(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    """The constructors without their checks: what follows the indices checks them again."""
    rows, columns, kept = v.size(), v.size(), v.size(0, 5)
    begins = v.integers(rows + 1, below=kept + 1, hostile=0.2)
    within = v.integers(kept, below=columns, hostile=0.2)
    numbers = v.floats(kept)
    made = lambda: torch.sparse_csr_tensor(  # noqa: E731
        begins, within, numbers, (rows, columns), check_invariants=False
    )
    places = torch.stack([v.integers(kept, below=n, hostile=0.2) for n in (rows, columns)])
    coo = lambda: torch.sparse_coo_tensor(  # noqa: E731
        places, numbers, (rows, columns), check_invariants=False
    )
    for build in (made, coo):
        yield lambda: build(), None  # noqa: B023
        yield lambda: build() @ v.floats(columns, 2), None  # noqa: B023
        yield lambda: build() @ v.floats(columns), None  # noqa: B023
        yield lambda: build().transpose(0, 1).to_dense(), None  # noqa: B023
        yield lambda: build() * 2 + build(), None  # noqa: B023
        yield lambda: torch.sparse.softmax(build(), 1), None  # noqa: B023
        yield lambda: torch.sparse.sum(build()), None  # noqa: B023
        yield lambda: build()[0], None  # noqa: B023
    yield lambda: coo().coalesce(), None
    yield lambda: coo().to_sparse_csr(), None
    yield lambda: v.floats(rows, columns).sparse_mask(coo()), None


def ragged(v: Values) -> Iterator[tuple[Callable[[], Any], bool | None]]:
    count, number = v.size(1, 9), v.size(1, 4)
    values = v.floats(count, v.size(1, 3))
    # A sample as long as memory would be padded for hours.
    offsets = v.bounds(number, count, v.index_dtype()).clamp(-99, 99)
    lengths = None
    if v.random.random() < 0.4:
        lengths = v.integers(number, below=count + 1, hostile=0.1).clamp(-9, 99)
    jagged = lambda: torch.nested.nested_tensor_from_jagged(values, offsets, lengths)  # noqa: E731
    numbers = offsets.tolist()
    rising = numbers[0] == 0 and numbers[-1] == count and sorted(numbers) == numbers
    yield jagged, True if rising and lengths is None else None
    yield lambda: jagged().to_padded_tensor(0.0), None
    yield lambda: jagged().sum(), None
    yield lambda: jagged() * 2, None
    yield lambda: jagged().softmax(-1), None
    yield lambda: F.linear(jagged(), v.floats(2, values.shape[1])), None
    yield lambda: jagged().mean(1), None
    dense = v.floats(number, 4, 2)
    begins, long = v.integers(number, below=5), v.integers(number, below=5)
    yield lambda: torch.nested.narrow(dense, 1, begins, long, layout=torch.jagged), None
    words = v.integers(count, below=4, hostile=0.1)
    bag = torch.nested.nested_tensor_from_jagged
    yield lambda: F.embedding(bag(words, offsets), v.floats(4, 2)), None


FAMILIES = (
    lookups, bags, sequences, pieces, images, counts, windows, sparse_parts, unchecked_sparse,
    ragged,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_operators(family: Any, seed: int) -> None:
    v = Values(seed)
    fine = 0
    for _ in range(ROUNDS):
        for number, (call, expected) in enumerate(family(v)):
            done = tried(call)
            fine += done
            if expected is not None:
                assert done == expected, (
                    family.__name__,
                    number,
                    inspect.getclosurevars(call).nonlocals,
                )
    assert fine > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients(seed: int) -> None:
    """Backward follows the same indices: after a call that succeeds it succeeds, too."""
    v = Values(seed)
    for _ in range(ROUNDS):
        image = v.floats(1, 1, v.size(), v.size()).requires_grad_()
        places = v.floats(1, 2, 3, 2, hostile=0.4).requires_grad_()
        for mode in ("bilinear", "nearest", "bicubic"):
            for padding in ("zeros", "border", "reflection"):
                call = lambda: F.grid_sample(image, places, mode, padding, False)  # noqa: E731, B023
                assert tried(call, image) and places.grad is not None
        rows = v.size()
        table = v.floats(rows, 3).requires_grad_()
        words = v.integers(5, below=rows, hostile=0.1)
        inside = bool(((words >= 0) & (words < rows)).all())
        assert tried(lambda: F.embedding(words, table), table) == inside  # noqa: B023
        data = v.floats(6, 2).requires_grad_()
        lengths = v.integers(3, below=4, hostile=0.1)
        tried(lambda: torch.segment_reduce(data, "mean", lengths=lengths), data)  # noqa: B023
        scores = v.floats(5, 2, 4).requires_grad_()
        targets = v.integers(2, 3, below=4, hostile=0.1)
        long = v.integers(2, below=4, hostile=0.1)
        steps = torch.tensor([5, 5])
        tried(lambda: F.ctc_loss(scores.log_softmax(2), targets, steps, long), scores)  # noqa: B023


# ------------------------------------------------------------------------------------ files


def _saved() -> bytes:
    buffer = io.BytesIO()
    x = torch.arange(12.0).reshape(3, 4)
    torch.save(
        {"x": x, "view": x.t()[1:], "half": x.half(), "n": 3, "sparse": x.to_sparse(), "e": x[:0]},
        buffer,
    )
    return buffer.getvalue()


def _mutated(data: bytes, generator: random.Random) -> bytes:
    """Some bytes changed, cut, doubled or filled."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        if not changed:
            break
        at = generator.randrange(len(changed))
        kind = generator.randrange(5)
        if kind < 2:
            changed[at] = generator.randrange(256)
        elif kind == 2:
            del changed[at : at + generator.randint(1, 9)]
        elif kind == 3:
            changed[at:at] = changed[at : at + generator.randint(1, 9)]
        else:
            changed[at : at + 4] = generator.choice((b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0" * 4))
    return bytes(changed)


def _loaded(data: bytes) -> bool:
    """Whether the file can be read; its tensors are, too."""
    try:
        found = torch.load(io.BytesIO(data), weights_only=True)
    except (
        *REFUSED, EOFError, KeyError, AttributeError, MemoryError, UnicodeError, ArithmeticError,
        pickle.UnpicklingError, NotImplementedError,
    ):  # fmt: skip
        return False
    if isinstance(found, dict):
        for value in found.values():
            tried(lambda: value)  # noqa: B023
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_files(seed: int) -> None:
    """Neither the header's sizes and offsets nor what it says of views is to be trusted."""
    generator = random.Random(seed)
    data = _saved()
    assert _loaded(data)
    header = 8 + int.from_bytes(data[:8], "little")
    for _ in range(20 * ROUNDS):
        _loaded(_mutated(data, generator))
        head = _mutated(data[8:header], generator)
        _loaded(len(head).to_bytes(8, "little") + head + data[header:])
