"""Quantized blocks of GGUF files, dequantized to float32.

The formulas are those of the format's reference, `ggml-quants.c` of github.com/ggml-org/ggml: a
block of 32 elements has one scale (and a minimum); a super-block of 256 ("K") has scales of its 8
or 16 sub-blocks, which are quantized, too. Everything here is an operation on tensors of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as torch

__all__: list[str] = []

_CHUNK = 2**14  # blocks that are dequantized at a time


class Block(NamedTuple):
    """A type of blocks.

    Attributes:
        name: in GGUF's documentation.
        elements: of a block.
        size: of a block, in bytes.
        dequantize: (blocks, size) bytes to (blocks, elements) float32.
    """

    name: str
    elements: int
    size: int
    dequantize: Callable[[Any], Any]


def dequantize(storage: Any, kind: int, count: int) -> Any:
    """The elements of a quantized tensor, as a vector of float32.

    Args:
        storage: its blocks.
        kind: GGUF's number of the type.
        count: of elements.
    """
    block = BLOCKS[kind]
    result = torch.empty(count, dtype=torch.float32)
    if count == 0:
        return result
    blocks = torch.empty(0, dtype=torch.uint8).set_(storage).view(-1, block.size)
    rows = result.view(-1, block.elements)
    for begin in range(0, blocks.shape[0], _CHUNK):
        part = blocks[begin : begin + _CHUNK]
        rows[begin : begin + _CHUNK].copy_(block.dequantize(part))
    return result


def _half(blocks: Any, begin: int) -> Any:
    """A scale of type float16 at a byte of each block, as a column of float32."""
    return blocks[:, begin : begin + 2].contiguous().view(torch.float16).float()


def _ints(blocks: Any, begin: int, end: int) -> Any:
    """Bytes of each block as int32."""
    return blocks[:, begin:end].to(torch.int32)


def _signed(blocks: Any, begin: int, end: int) -> Any:
    return blocks[:, begin:end].contiguous().view(torch.int8).float()


def _nibbles(blocks: Any, begin: int) -> Any:
    """32 numbers of four bits: the lower halves of 16 bytes, then the upper ones."""
    data = _ints(blocks, begin, begin + 16)
    return torch.cat([data & 15, data >> 4], 1)


def _fifth_bits(blocks: Any, begin: int) -> Any:
    """32 numbers of one bit, times 16: those of four bytes, the lowest first."""
    data = _ints(blocks, begin, begin + 4).unsqueeze(2)
    return ((data >> torch.arange(8, dtype=torch.int32)) & 1).reshape(-1, 32) << 4


def _q4_0(blocks: Any) -> Any:
    return _half(blocks, 0) * (_nibbles(blocks, 2) - 8).float()


def _q4_1(blocks: Any) -> Any:
    return _half(blocks, 0) * _nibbles(blocks, 4).float() + _half(blocks, 2)


def _q5_0(blocks: Any) -> Any:
    numbers = _nibbles(blocks, 6) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (numbers - 16).float()


def _q5_1(blocks: Any) -> Any:
    numbers = _nibbles(blocks, 8) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * numbers.float() + _half(blocks, 2)


def _q8_0(blocks: Any) -> Any:
    return _half(blocks, 0) * _signed(blocks, 2, 34)


def _q8_k(blocks: Any) -> Any:
    scale = blocks[:, :4].contiguous().view(torch.float32)
    return scale * _signed(blocks, 4, 260)


def _pairs_of_bits(blocks: Any, begin: int) -> Any:
    """256 numbers of two bits, (blocks, 2, 4, 32): of 32 bytes, by shift, twice."""
    data = _ints(blocks, begin, begin + 64).view(-1, 2, 1, 32)
    return (data >> torch.tensor([0, 2, 4, 6], dtype=torch.int32).view(4, 1)) & 3


def _scaled(scales: Any, numbers: Any, minima: Any = None) -> Any:
    """Numbers of sub-blocks times their scales, less their minima: (blocks, 256)."""
    count = scales.shape[1]
    values = scales.unsqueeze(2) * numbers.float().reshape(-1, count, 256 // count)
    if minima is not None:
        values = values - minima.unsqueeze(2)
    return values.reshape(-1, 256)


def _q2_k(blocks: Any) -> Any:
    both = _ints(blocks, 0, 16)
    scales = _half(blocks, 80) * (both & 15).float()
    minima = _half(blocks, 82) * (both >> 4).float()
    return _scaled(scales, _pairs_of_bits(blocks, 16), minima)


def _q3_k(blocks: Any) -> Any:
    bits = torch.arange(8, dtype=torch.int32).view(1, 2, 4, 1)
    high = (_ints(blocks, 0, 32).view(-1, 1, 1, 32) >> bits) & 1
    numbers = _pairs_of_bits(blocks, 32) - 4 * (1 - high)
    data = _ints(blocks, 96, 108)
    low = torch.cat([data[:, :8] & 15, data[:, :8] >> 4], 1)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.int32).view(4, 1)
    upper = ((data[:, 8:].unsqueeze(1) >> shifts) & 3).reshape(-1, 16)
    scales = (low | (upper << 4)) - 32
    return _scaled(_half(blocks, 108) * scales.float(), numbers)


def _scales_and_minima(blocks: Any) -> tuple[Any, Any]:
    """Scales and minima of 8 sub-blocks: numbers of six bits in 12 bytes, times both scales."""
    data = _ints(blocks, 4, 16)
    first, second, last = data[:, :4], data[:, 4:8], data[:, 8:]
    scales = torch.cat([first & 63, (last & 15) | ((first >> 6) << 4)], 1)
    minima = torch.cat([second & 63, (last >> 4) | ((second >> 6) << 4)], 1)
    return _half(blocks, 0) * scales.float(), _half(blocks, 2) * minima.float()


def _halves(blocks: Any, begin: int) -> Any:
    """256 numbers of four bits, (blocks, 8, 32): of 32 bytes the lower halves, then the upper."""
    data = _ints(blocks, begin, begin + 128).view(-1, 4, 1, 32)
    shifts = torch.tensor([0, 4], dtype=torch.int32).view(2, 1)
    return ((data >> shifts) & 15).reshape(-1, 8, 32)


def _q4_k(blocks: Any) -> Any:
    scales, minima = _scales_and_minima(blocks)
    return _scaled(scales, _halves(blocks, 16), minima)


def _q5_k(blocks: Any) -> Any:
    scales, minima = _scales_and_minima(blocks)
    bits = torch.arange(8, dtype=torch.int32).view(8, 1)
    high = (_ints(blocks, 16, 48).unsqueeze(1) >> bits) & 1
    return _scaled(scales, _halves(blocks, 48) | (high << 4), minima)


def _q6_k(blocks: Any) -> Any:
    data = _ints(blocks, 0, 128).view(-1, 2, 2, 32)
    low = torch.stack([data & 15, data >> 4], 2)  # (blocks, 2, half, 2, 32)
    high = _ints(blocks, 128, 192).view(-1, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.int32).view(4, 1)
    upper = ((high >> shifts) & 3).view(-1, 2, 2, 2, 32)
    numbers = (low | (upper << 4)) - 32
    return _scaled(_half(blocks, 208) * _signed(blocks, 192, 208), numbers)


BLOCKS = {
    2: Block("Q4_0", 32, 18, _q4_0),
    3: Block("Q4_1", 32, 20, _q4_1),
    6: Block("Q5_0", 32, 22, _q5_0),
    7: Block("Q5_1", 32, 24, _q5_1),
    8: Block("Q8_0", 32, 34, _q8_0),
    10: Block("Q2_K", 256, 84, _q2_k),
    11: Block("Q3_K", 256, 110, _q3_k),
    12: Block("Q4_K", 256, 144, _q4_k),
    13: Block("Q5_K", 256, 176, _q5_k),
    14: Block("Q6_K", 256, 210, _q6_k),
    15: Block("Q8_K", 256, 292, _q8_k),
}
