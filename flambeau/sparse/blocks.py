"""Block layouts: BSR and BSC, matrices of which only some blocks are stored.

A matrix of blocks is a hybrid matrix: one element per block, which is a dense matrix. Conversions
and products say so and leave the rest to the layouts without blocks; the parts are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import tensor as parts
from flambeau.sparse.tensor import BLOCKS, make

HINT = "to_sparse_coo(), or to_dense() first"


def block_size(tensor: Tensor) -> tuple[int, int]:
    """Sizes of a block."""
    first = parts.batch_dim(tensor) + 1
    height, width = tensor._kept.shape[first : first + 2]
    return height, width


def pair_of(blocksize: Any, name: str) -> tuple[int, int]:
    """The two sizes of a block, as users give them: a number means both.

    Raises:
        RuntimeError: they are not two positive numbers.
    """
    sides = (blocksize,) * 2 if isinstance(blocksize, int) else tuple(blocksize)
    if len(sides) != 2 or any(int(n) <= 0 for n in sides):
        raise RuntimeError(
            f"[{name}] blocksize must have two positive elements, got {sides}\nhint: (2, 2)"
        )
    return int(sides[0]), int(sides[1])


# ------------------------------------------------------------------------------ as hybrids
def hybrid(tensor: Tensor) -> Tensor:
    """The matrix of blocks: a compressed tensor whose elements are the blocks."""
    first = parts.batch_dim(tensor)
    height, width = block_size(tensor)
    rows, columns = tensor.shape[first] // height, tensor.shape[first + 1] // width
    size = (*tensor.shape[:first], rows, columns, *tensor._kept.shape[first + 1 :])
    return make(BLOCKS[tensor._kind], tensor._index, tensor._kept, size)


def joined(tensor: Tensor, layout: Any, size: Sequence[int]) -> Tensor:
    """The inverse: blocks of a compressed hybrid as one matrix."""
    return make(layout, tensor._index, tensor._kept, size)


def cut(dense: Any, batch: int, blocksize: tuple[int, int], name: str) -> Any:
    """(*batch, rows, columns, *) as (*batch, block rows, block columns, height, width, *).

    Raises:
        RuntimeError: blocks do not divide the matrix.
    """
    rows, columns = dense.shape[batch : batch + 2]
    height, width = blocksize
    if rows % height or columns % width:
        raise RuntimeError(
            f"[{name}] tensor sparse size ({rows},{columns}) must be divisible by given blocksize "
            f"({height},{width})\nhint: pad it"
        )
    tail = dense.shape[batch + 2 :]
    shape = (*dense.shape[:batch], rows // height, height, columns // width, width, *tail)
    return dense.reshape(shape).transpose(batch + 1, batch + 2)


def merged(blocks: Any, batch: int) -> Any:
    """The inverse of `cut`."""
    rows, columns, height, width = blocks.shape[batch : batch + 4]
    turned = blocks.transpose(batch + 1, batch + 2)
    tail = blocks.shape[batch + 4 :]
    return turned.reshape(*blocks.shape[:batch], rows * height, columns * width, *tail)


# ------------------------------------------------------------------------------ conversions
def of_dense(dense: Any, layout: Any, blocksize: Any, dense_dim: int) -> Tensor:
    """A strided tensor as matrices of blocks; blocks of zeros are left out."""
    from flambeau.sparse.convert import compressed_of_dense

    name = f"dense_to_{str(layout).removeprefix('torch.')}"
    batch = dense.dim() - 2 - dense_dim
    if batch < 0 or dense_dim < 0:
        raise RuntimeError(
            f"[{name}] dense_dim {dense_dim} does not fit {dense.dim()} dimensions\n"
            "hint: rows and columns come before it"
        )
    pieces = cut(dense, batch, pair_of(blocksize, name), name)
    result = compressed_of_dense(pieces, BLOCKS[layout], dense_dim + 2)
    return joined(result, layout, dense.shape)


def of_sparse(tensor: Tensor, layout: Any, blocksize: Any) -> Tensor:
    """A sparse matrix as matrix of blocks.

    Raises:
        RuntimeError: the requested block size is not the tensor's.
    """
    from flambeau.sparse.convert import coalesce, dense, ordered_sum, to_compressed, to_coordinates

    name = f"to_{str(layout).removeprefix('torch.')}"
    sizes = pair_of(blocksize, name)
    if tensor._kind in BLOCKS:
        if block_size(tensor) != sizes:
            raise RuntimeError(
                f"[{name}] conversion from {parts.layout_name(tensor)} to "
                f"{parts.LAYOUT_NAMES[layout]} with blocksize changed from "
                f"{list(block_size(tensor))} to {list(sizes)} is not supported\nhint: {HINT}"
            )
        if tensor._kind is layout:
            return tensor
    if parts.batch_dim(tensor):
        return of_dense(dense(tensor), layout, sizes, parts.dense_dim(tensor))
    if tensor._kind in BLOCKS:
        turned = to_compressed(to_coordinates(hybrid(tensor)), BLOCKS[layout])
        return joined(turned, layout, tensor.shape)
    coalesced = coalesce(to_coordinates(tensor))
    (height, width), (rows, columns) = sizes, tensor.shape[:2]
    cut(torch.empty((rows, columns), device="meta"), 0, sizes, name)
    row, column = coalesced._index[0]
    keys = (row // height) * (columns // width) + column // width
    blocks, inverse = torch.unique(keys, return_inverse=True)
    places = inverse * (height * width) + (row % height) * width + column % width
    values = ordered_sum(places, coalesced._kept, blocks.shape[0] * height * width)
    values = values.reshape(blocks.shape[0], height, width, *coalesced._kept.shape[1:])
    index = torch.stack([blocks // (columns // width), blocks % (columns // width)])
    size = (rows // height, columns // width, *values.shape[1:])
    compressed = to_compressed(make(torch.sparse_coo, (index,), values, size, True), BLOCKS[layout])
    return joined(compressed, layout, tensor.shape)


def to_dense(tensor: Tensor) -> Any:
    """The strided tensor."""
    from flambeau.sparse.convert import dense

    return merged(dense(hybrid(tensor)), parts.batch_dim(tensor))


def coordinates(tensor: Tensor) -> Any:
    """Indices of all elements of the stored blocks, in the order of the values."""
    from flambeau.sparse.convert import coordinates as places

    height, width = block_size(tensor)
    indices = places(hybrid(tensor))
    inner = torch.arange(height * width)
    first = parts.batch_dim(tensor)
    lead = [part.repeat_interleave(height * width) for part in indices[:first]]
    row = (indices[first].unsqueeze(1) * height + inner // width).reshape(-1)
    column = (indices[first + 1].unsqueeze(1) * width + inner % width).reshape(-1)
    return torch.stack([*lead, row, column])


def transpose(tensor: Tensor) -> Tensor:
    """Rows and columns exchanged: BSR becomes BSC, each block is transposed."""
    first = parts.batch_dim(tensor)
    size = list(tensor.shape)
    size[first], size[first + 1] = size[first + 1], size[first]
    other = torch.sparse_bsc if tensor._kind is torch.sparse_bsr else torch.sparse_bsr
    return make(other, tensor._index, tensor._kept.transpose(first + 1, first + 2), size)


# ------------------------------------------------------------------------------ products
def product(one: Tensor, other: Any) -> Any:
    """A matrix of blocks times a strided one: products of blocks, added row by row in order."""
    from flambeau.sparse.convert import coordinates as places
    from flambeau.sparse.convert import ordered_sum

    blocks = hybrid(one)
    height, width = block_size(one)
    row, column = places(blocks)
    bands = other.reshape(blocks.shape[1], width, other.shape[1])
    terms = torch.bmm(one._kept, bands[column])
    rows = ordered_sum(row, terms, blocks.shape[0])
    return rows.reshape(math.prod(rows.shape[:2]), other.shape[1])


_ANSWERED = frozenset(
    "add sub subtract rsub mul multiply div divide true_divide to type clone zeros_like empty_like "
    "mm matmul mv addmm addmv linear _rmatmul sum transpose swapaxes swapdims t numpy_T adjoint "
    "_matrix_transpose matrix_H permute add_ sub_ mul_ copy_ zero_".split()
)


def answers(name: str) -> bool:
    """Whether an operator of the table of sparse operators knows blocks."""
    return name in _ANSWERED
