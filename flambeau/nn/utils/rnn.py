"""Sequences of different lengths: padded, packed, and back.

A packed sequence holds the steps one after the other, each with one row per sequence that is still
running, longest sequence first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau._core import Tensor
from flambeau.nn.messages import problem

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class _PackedSequence(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_PackedSequence):
    """A packed batch of sequences.

    Attributes:
        data: all rows, step by step.
        batch_sizes: number of sequences at each step (int64, on the CPU).
        sorted_indices: the order that makes lengths fall; None when they did.
        unsorted_indices: the way back.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> Any:
        """Completes `unsorted_indices`."""
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:  # the old form: PackedSequence((data, batch_sizes))
            data, batch_sizes = data
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Moves or converts the data."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def double(self) -> Any:
        """The data as float64."""
        return self.to(dtype=torch.float64)

    def float(self) -> Any:
        """The data as float32."""
        return self.to(dtype=torch.float32)

    def half(self) -> Any:
        """The data as float16."""
        return self.to(dtype=torch.float16)

    def long(self) -> Any:
        """The data as int64."""
        return self.to(dtype=torch.int64)

    def int(self) -> Any:
        """The data as int32."""
        return self.to(dtype=torch.int32)

    def cpu(self, *args: Any, **kwargs: Any) -> Any:
        """The data on the CPU."""
        return self.to("cpu")

    def pin_memory(self) -> Any:
        """Itself: the CPU needs no pinning."""
        return self

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes `permutation`."""
    if permutation is None:
        return None
    places = torch.arange(permutation.numel(), device=permutation.device)
    return torch.empty_like(permutation).scatter_(0, permutation, places)


def _lengths(lengths: Any) -> Any:
    if isinstance(lengths, Tensor):
        return lengths.to(torch.int64)
    return torch.tensor(list(lengths), dtype=torch.int64)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch.

    Args:
        input: `(L, N, *)`, or `(N, L, *)` with `batch_first`.
        lengths: of each sequence; a list or an int64 tensor.
        enforce_sorted: lengths must fall; otherwise they are sorted here.

    Raises:
        RuntimeError: lengths rise, are not positive, or do not fit the batch.
    """
    lengths = _lengths(lengths)
    order = None
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        input = input.index_select(0 if batch_first else 1, order)  # noqa: A001
    if batch_first:
        input = input.transpose(0, 1)  # noqa: A001
    numbers = lengths.tolist()
    _check_lengths(numbers, input)
    steps = numbers[0] if numbers else 0
    sizes = [sum(length > step for length in numbers) for step in range(steps)]
    data = torch.cat([input[step, :size] for step, size in enumerate(sizes)], 0)
    return PackedSequence(data, torch.tensor(sizes, dtype=torch.int64), order)


def _check_lengths(lengths: Sequence[int], padded: Any) -> None:
    text = ""
    if len(lengths) != padded.size(1):
        text = f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} "
        text += f"(batch_size={padded.size(1)})"
    elif not lengths or lengths[-1] <= 0 or min(lengths) <= 0:
        text = "Length of all samples has to be greater than 0, but found an element in 'lengths' "
        text += "that is <= 0"
    elif any(a < b for a, b in zip(lengths, lengths[1:])):
        text = (
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    elif lengths[0] > padded.size(0):
        text = f"Expected lengths up to {padded.size(0)}, but got {lengths[0]}"
    if text:
        raise RuntimeError(problem("pack_padded_sequence", text, "see the lengths"))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """The padded batch and the lengths of a packed one.

    Args:
        batch_first: result `(N, L, *)` instead of `(L, N, *)`.
        padding_value: what fills the rest.
        total_length: L of the result; the longest length when None.

    Raises:
        ValueError: a sequence is longer than `total_length`.
    """
    data, sizes_tensor, _, back = sequence
    sizes = sizes_tensor.tolist()
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            text = (
                "Expected total_length to be at least the length of the longest sequence in input, "
                f"but got total_length={total_length} and max sequence length being {steps}"
            )
            raise ValueError(problem("pad_packed_sequence", text, "give a larger one"))
        steps = total_length
    batch = sizes[0]
    rows = []
    for part, size in zip(data.split(sizes), sizes):
        missing = batch - size
        if missing:
            fill = torch.full(
                (missing, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device
            )
            part = torch.cat([part, fill], 0)
        rows.append(part)
    if steps > len(sizes):
        empty = torch.full(
            (batch, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device
        )
        rows.extend([empty] * (steps - len(sizes)))
    padded = torch.stack(rows, 1 if batch_first else 0)
    lengths = torch.tensor([sum(size > row for size in sizes) for row in range(batch)])
    if back is not None:
        dim = 0 if batch_first else 1
        return padded.index_select(dim, back), lengths[back]
    return padded, lengths


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """Stacks tensors of different lengths, padded to the longest.

    Args:
        sequences: tensors `(L, *)`.
        batch_first: result `(N, L, *)` instead of `(L, N, *)`.
        padding_value: what fills the rest.
        padding_side: "right" or "left".

    Raises:
        RuntimeError: not an iterable of tensors, or an unknown side.
    """
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, Iterable):
        text = (
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
        raise RuntimeError(problem("pad_sequence", text, "pass a list of tensors"))
    sequences = tuple(sequences)
    if not sequences:
        text = "received an empty list of sequences"
        raise RuntimeError(problem("pad_sequence", text, "pass at least one"))
    if padding_side not in ("left", "right"):
        text = f"padding_side must be 'left' or 'right', got {padding_side!r}"
        raise RuntimeError(problem("pad_sequence", text, "padding_side='right'"))
    longest = max(sequence.size(0) for sequence in sequences)
    rows = []
    for sequence in sequences:
        missing = longest - sequence.size(0)
        if missing:
            fill = torch.full(
                (missing, *sequence.shape[1:]),
                padding_value,
                dtype=sequence.dtype,
                device=sequence.device,
            )
            parts = [sequence, fill] if padding_side == "right" else [fill, sequence]
            sequence = torch.cat(parts, 0)
        rows.append(sequence)
    return torch.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The tensors of a padded batch, each cut to its length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [
        sequence[:length]
        for sequence, length in zip(padded_sequences.unbind(0), _lengths(lengths).tolist())
    ]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors of different lengths."""
    lengths = [sequence.size(0) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The tensors of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
