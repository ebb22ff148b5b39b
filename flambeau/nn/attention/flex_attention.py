"""`torch.nn.attention.flex_attention`: attention whose scores and mask are functions of indices.

Dong et al., "Flex Attention", 2024. A mask alone is one of `scaled_dot_product_attention`, which
stores no scores. With a function of the scores, the formula is evaluated over whole matrices, as
PyTorch does outside of `torch.compile`; inside, the function is fused with the rest of the region.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import flambeau as torch
from flambeau.language.definition import REGISTRY
from flambeau.nn.messages import problem

Tensor = Any
__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask",
    "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """The further results that `flex_attention` is to return.

    Attributes:
        lse: the logarithm of the sum of exponentials of each row.
        max_scores: the greatest score of each row.
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The results that `AuxRequest` selects; None for the others.

    Attributes:
        lse: (B, H, L).
        max_scores: (B, H, L).
    """

    lse: Tensor = None
    max_scores: Tensor = None


class FlexKernelOptions(TypedDict, total=False):
    """PyTorch's settings of its GPU kernels: accepted, without effect on the CPU."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BACKEND: str


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask that hides nothing."""
    return batch.new_ones(size=(), dtype=torch.bool, device=batch.device)


def _joined(name: str, mask_mods: Sequence[Any], combine: Any, first: bool) -> Callable[..., Any]:
    for mod in mask_mods:
        if not callable(mod):
            text = f"All inputs should be callable mask_mods: {mask_mods}"
            raise RuntimeError(problem(name, text, "functions of b, h, q, kv"))

    def joined(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        start = b.new_full((), first, dtype=torch.bool)
        return functools.reduce(combine, (mod(b, h, q, kv) for mod in mask_mods), start)

    return joined


def and_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask that shows what all of these show."""
    return _joined("and_masks", mask_mods, operator.and_, True)


def or_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask that shows what one of these shows."""
    return _joined("or_masks", mask_mods, operator.or_, False)


def _over_indices(
    function: Callable[..., Any], leading: tuple[Any, ...] = ()
) -> Callable[..., Any]:
    """A function of single indices, for all batches, heads, queries and keys."""
    for axes in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None),
                 (0, None, None, None)):  # fmt: skip
        function = torch.vmap(function, in_dims=(*leading, *axes), out_dims=0)
    return function


def _indices(sizes: Sequence[int], device: Any) -> list[Tensor]:
    return [torch.arange(size, device=device) for size in sizes]


def create_mask(
    mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """The mask of a function of indices as a tensor.

    Args:
        mod_fn: of (b, h, q, kv): whether it is shown; or of (score, b, h, q, kv): the score, -inf
            where it is hidden.
        B, H: batches and heads; None is 1.
        Q_LEN, KV_LEN: queries and keys.
        device: of the mask.

    Returns:
        (B, H, Q_LEN, KV_LEN), of bools.

    Example:
        >>> from flambeau.nn.attention.flex_attention import create_mask
        >>> create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2)
        tensor([[[[ True, False],
                  [ True,  True]]]])
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    indices = _indices(sizes, device)
    if len(inspect.signature(mod_fn).parameters) == 5:
        scores = torch.zeros(sizes, device=device)
        changed = _over_indices(mod_fn, (0,))(scores, *indices)
        return torch.logical_not(torch.isneginf(changed))
    return _over_indices(mod_fn)(*indices).expand(sizes)


def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of blocks in each row, and the rows' blocks first in their order."""
    dense = dense.to(torch.int32)
    order = torch.argsort(dense, dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(torch.int32), order.to(torch.int32).contiguous()


def _dense(numbers: Tensor, indices: Tensor, columns: int) -> Tensor:
    """The blocks of `_ordered` as a matrix of 0 and 1."""
    places = torch.arange(indices.shape[-1], device=numbers.device)
    used = (places < numbers[..., None]).to(torch.int32)
    rows = torch.zeros(*numbers.shape, columns, dtype=torch.int32, device=numbers.device)
    return rows.scatter_add(-1, indices[..., :columns].long(), used[..., :columns])


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


class BlockMask:
    """The blocks of a score matrix that are computed, and the mask inside of them.

    Attributes:
        seq_lengths: numbers of queries and keys.
        kv_num_blocks, kv_indices: for each row of blocks, how many are partly masked, and which.
        full_kv_num_blocks, full_kv_indices: likewise, of blocks without masked elements; or None.
        q_num_blocks, q_indices, full_q_num_blocks, full_q_indices: the same by columns; or None.
        BLOCK_SIZE: queries and keys of a block.
        mask_mod: of (b, h, q, kv): whether it is shown.
    """

    _TENSORS = (
        "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks",
        "q_indices", "full_q_num_blocks", "full_q_indices",
    )  # fmt: skip

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor, full_kv_indices: Tensor, q_num_blocks: Tensor,
        q_indices: Tensor, full_q_num_blocks: Tensor, full_q_indices: Tensor,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE,) * 2,
        mask_mod: Callable[..., Any] = noop_mask, **orders: Any,
    ) -> None:  # fmt: skip
        if kv_indices.dim() < 2:
            text = "BlockMask must have at least 2 dimensions"
            raise RuntimeError(problem("BlockMask", text, "BlockMask.from_kv_blocks"))
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            text = "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            raise AssertionError(problem("BlockMask", text, "both"))
        if (q_num_blocks is None) != (q_indices is None):
            text = "q_num_blocks and q_indices must be both provided or omitted"
            raise AssertionError(problem("BlockMask", text, "both"))
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor = None,
        full_kv_indices: Tensor = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Callable[..., Any] | None = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True, **orders: Any,
    ) -> BlockMask:  # fmt: skip
        """A mask from the blocks of each row.

        Args:
            kv_num_blocks: (B, H, rows): how many blocks of each row are partly masked.
            kv_indices: (B, H, rows, columns): which.
            full_kv_num_blocks, full_kv_indices: likewise, of blocks without masked elements.
            BLOCK_SIZE: queries and keys of a block.
            mask_mod: of (b, h, q, kv): whether it is shown.
            seq_lengths: queries and keys; None: all blocks are whole.
            compute_q_blocks: whether to make the lists by columns.
            orders: of writing gradients on GPUs; without effect.
        """
        size = _pair(BLOCK_SIZE)
        columns = kv_indices.shape[-1]
        if seq_lengths is None:
            seq_lengths = (kv_num_blocks.shape[-1] * size[0], columns * size[1])
        by_columns: list[Tensor] = [None] * 4
        if compute_q_blocks:
            by_columns[:2] = _ordered(_dense(kv_num_blocks, kv_indices, columns).mT)
            if full_kv_num_blocks is not None:
                full = _dense(full_kv_num_blocks, full_kv_indices, columns)
                by_columns[2:] = _ordered(full.mT)
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            *by_columns, BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask,
        )  # fmt: skip

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The mask's parts in the order of the constructor's arguments."""
        parts = tuple(getattr(self, name) for name in self._TENSORS)
        if flatten:
            return (*self.seq_lengths, *parts, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *parts, self.BLOCK_SIZE, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batches, heads, queries and keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"

    def __repr__(self) -> str:
        def shown(value: Any) -> str:
            return str(value.shape) if isinstance(value, torch.Tensor) else str(value)

        lines = [f"    {name}={shown(getattr(self, name))}," for name in self._TENSORS]
        lines += [f"    BLOCK_SIZE={self.BLOCK_SIZE},", f"    shape={self.shape},"]
        return "\n".join(["BlockMask(", *lines, ")"])

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads, and rows of blocks.

        The mask's function stays as it is: it is called with indices from 0.
        """
        picks = index if isinstance(index, tuple) else (index,)
        parts = tuple(
            slice(pick + self.kv_num_blocks.shape[axis], pick + self.kv_num_blocks.shape[axis] + 1)
            if isinstance(pick, int) and pick < 0
            else slice(pick, pick + 1)
            if isinstance(pick, int)
            else pick
            for axis, pick in enumerate(picks)
        )
        names = self._TENSORS[:4]
        picked = [None if (t := getattr(self, n)) is None else t[parts] for n in names]
        lengths = self.seq_lengths
        if len(parts) > 2:
            lengths = (picked[0].shape[-1] * self.BLOCK_SIZE[0], lengths[1])
        return BlockMask.from_kv_blocks(
            *picked, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, seq_lengths=lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The mask of fewer queries and keys."""
        rows = -(-new_q_len // self.BLOCK_SIZE[0])
        columns = -(-new_kv_len // self.BLOCK_SIZE[1])
        whole = self.kv_indices.shape[-1]
        parts = []
        for numbers, indices in (
            (self.kv_num_blocks, self.kv_indices),
            (self.full_kv_num_blocks, self.full_kv_indices),
        ):
            if numbers is None:
                parts += [None, None]
            else:
                parts += _ordered(_dense(numbers, indices, whole)[..., :rows, :columns])
        return BlockMask.from_kv_blocks(
            *parts, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod,
            seq_lengths=(new_q_len, new_kv_len),
        )  # fmt: skip

    def numel(self) -> int:
        """Elements of the whole score matrix."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Percent of the score matrix that no block covers; below 0 where blocks are padded."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """The blocks as a matrix of 0 and 1: (B, H, rows, columns)."""
        columns = self.kv_indices.shape[-1]
        partly = _dense(self.kv_num_blocks, self.kv_indices, columns)
        if self.full_kv_num_blocks is None:
            return partly
        return partly | _dense(self.full_kv_num_blocks, self.full_kv_indices, columns)

    def to_string(self, grid_size: Any = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks of the first heads."""
        dense = self.to_dense().flatten(0, -3)[:limit]
        return "\n\n".join(
            "\n".join("".join("██" if cell else "  " for cell in row) for row in head.tolist())
            for head in dense
        )

    def to(self, device: Any) -> BlockMask:
        """The mask on a device."""
        parts = [None if (t := getattr(self, n)) is None else t.to(device) for n in self._TENSORS]
        return BlockMask(self.seq_lengths, *parts, BLOCK_SIZE=self.BLOCK_SIZE,
                         mask_mod=self.mask_mod)  # fmt: skip


def create_block_mask(
    mask_mod: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False, *, separate_full_blocks: bool = True, **orders: Any,
) -> BlockMask:  # fmt: skip
    """The blocks that a function of indices needs.

    Args:
        mask_mod: of (b, h, q, kv): whether it is shown.
        B, H: batches and heads; None is 1.
        Q_LEN, KV_LEN: queries and keys.
        device: of the mask.
        BLOCK_SIZE: queries and keys of a block.
        separate_full_blocks: list blocks without masked elements apart.

    Example:
        >>> from flambeau.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 256, 256)
        >>> mask.to_dense()[0, 0]
        tensor([[1, 0],
                [1, 1]], dtype=torch.int32)
    """
    if len(inspect.signature(mask_mod).parameters) == 5:
        text = f"create-block_mask requires a mask_mod function! Got {mask_mod}"
        raise AssertionError(problem("create_block_mask", text, "a function of b, h, q, kv"))
    rows, columns = _pair(BLOCK_SIZE)
    shown = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    padded = torch.nn.functional.pad(shown, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    blocks = padded.unflatten(-2, (-1, rows)).unflatten(-1, (-1, columns))
    counts = blocks.sum((-1, -3))
    whole = counts == rows * columns
    partly = (counts > 0) & ~whole if separate_full_blocks else counts > 0
    full = _ordered(whole) if separate_full_blocks else (None, None)
    made = BlockMask.from_kv_blocks(
        *_ordered(partly), *full, (rows, columns), mask_mod, (Q_LEN, KV_LEN)
    )
    made._complete = True  # type: ignore[attr-defined]
    return made


def _checked(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    if any(t.dim() != 4 for t in (query, key, value)):
        text = "Expected query, key, and value to be 4D tensors"
        raise NotImplementedError(problem("flex_attention", text, "(B, H, L, E)"))
    if not enable_gqa and query.shape[1] != key.shape[1]:
        text = "Expect query and key/value to have the same number of heads but got "
        text += f"Hq={query.shape[1]} and Hkv={key.shape[1]}."
        raise ValueError(problem("flex_attention", text, "Try setting enable_gqa=True for GQA."))
    if query.shape[1] % key.shape[1]:
        text = "Expect number of query heads to be a multiple of kv heads for GQA but got "
        text += f"Hq={query.shape[1]} and Hkv={key.shape[1]}."
        raise ValueError(problem("flex_attention", text, "key.repeat_interleave"))
    if query.shape[0] != key.shape[0] and key.shape[0] != 1:
        text = f"Expect query and key/value to have the same batch size: {query.shape[0]} and "
        raise ValueError(problem("flex_attention", f"{text}{key.shape[0]}", "key.expand"))
    if query.dtype != key.dtype or query.dtype != value.dtype:
        text = f"Expected query, key, and value to have the same dtype, but got {query.dtype}, "
        text += f"{key.dtype} and {value.dtype}"
        raise ValueError(problem("flex_attention", text, "key.to(query.dtype)"))


def _fits(mask: BlockMask, query: Tensor, key: Tensor) -> None:
    lengths = (query.shape[-2], key.shape[-2])
    if mask.seq_lengths[0] < lengths[0] or mask.seq_lengths[1] < lengths[1]:
        text = f"block_mask was created for block_mask.shape={mask.shape} but got q_len="
        raise ValueError(problem("flex_attention", f"{text}{lengths[0]} and kv_len={lengths[1]}",
                                 "create_block_mask of these lengths"))  # fmt: skip
    if mask.seq_lengths != lengths:
        text = f"block_mask was created for block_mask.shape={mask.shape} but got q_len="
        text += f"{lengths[0]} and kv_len={lengths[1]}. As the block mask was created for a larger "
        text += "length than you're using it for, create a new block mask or adjust it"
        raise ValueError(problem("flex_attention", text, "block_mask._adjust(q_len, kv_len)"))


def _shown(mask: BlockMask, query: Tensor, key: Tensor) -> Tensor:
    """The whole mask of a call."""
    sizes = (query.shape[0], query.shape[1], query.shape[-2], key.shape[-2])
    shown = _over_indices(mask.mask_mod)(*_indices(sizes, query.device)).expand(sizes)
    if getattr(mask, "_complete", False):
        return shown
    rows, columns = mask.BLOCK_SIZE
    width = mask.kv_indices.shape[-1]

    def spread(numbers: Tensor, indices: Tensor) -> Tensor:
        cells = _dense(numbers, indices, width) > 0
        wide = cells.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
        return wide[..., : sizes[2], : sizes[3]]

    shown = shown & spread(mask.kv_num_blocks, mask.kv_indices)
    if mask.full_kv_num_blocks is not None:
        shown = shown | spread(mask.full_kv_num_blocks, mask.full_kv_indices)
    return shown


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: FlexKernelOptions | None = None, *,
    return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """Scaled dot-product attention with scores and mask that are functions of indices.

    Args:
        query: (B, Hq, L, E).
        key: (B, Hkv, S, E).
        value: (B, Hkv, S, Ev).
        score_mod: of (score, b, h, q, kv): the score that takes its place.
        block_mask: which scores are needed.
        scale: of the scores; None: 1 / sqrt(E).
        enable_gqa: groups of query heads share a head of keys.
        return_lse: deprecated: as `return_aux=AuxRequest(lse=True)`, returned as a tensor.
        kernel_options: of GPU kernels; without effect.
        return_aux: what else to return.

    Returns:
        (B, Hq, L, Ev); with `return_aux` a pair with an `AuxOutput`.

    Raises:
        ValueError: sizes or dtypes that do not fit.
        NotImplementedError: tensors that are not 4-D; `max_scores`.

    Example:
        >>> from flambeau.nn.attention.flex_attention import flex_attention
        >>> q = torch.ones(1, 1, 3, 4)
        >>> flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s - (i - j).abs()).shape
        torch.Size([1, 1, 3, 4])
    """
    _checked(query, key, value, enable_gqa)
    if return_aux is not None and return_aux.max_scores:
        text = "Returning max scores is not supported on CPU/MPS."
        raise NotImplementedError(problem("flex_attention", text, "AuxRequest(lse=True)"))
    if block_mask is not None:
        _fits(block_mask, query, key)
    with_sums = return_lse or (return_aux is not None and return_aux.lse)
    if score_mod is not None:
        output, sums = _scored(query, key, value, score_mod, block_mask, scale, with_sums)
    else:
        shown = None if block_mask is None else _shown(block_mask, query, key)
        attend = torch.nn.functional.scaled_dot_product_attention
        if with_sums:
            attend = REGISTRY["private._attention_with_sums"].native
        output = attend(query, key, value, shown, scale=scale, enable_gqa=enable_gqa)
        output, sums = output if with_sums else (output, None)
    if return_lse:
        return output, sums
    return output if return_aux is None else (output, AuxOutput(lse=sums))


def _scored(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any],
    block_mask: BlockMask | None, scale: float | None, with_sums: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention to the scores that a function returns, a matrix."""
    batches, heads, length = query.shape[:3]
    rows = (batches, key.shape[1], heads // key.shape[1] * length)  # those that share keys
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.reshape(*rows, query.shape[3]) @ key.mT
    scores = scores.reshape(batches, heads, length, key.shape[2]).to(precision)
    scores = scores * (1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    indices = _indices(scores.shape, query.device)
    scores = _over_indices(score_mod, (0,))(scores, *indices).to(precision)
    if block_mask is not None:
        scores = scores.masked_fill(~_shown(block_mask, query, key), -math.inf)
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(hidden, 0.0).to(query.dtype)
    output = weights.reshape(*rows, key.shape[2]) @ value
    output = output.reshape(batches, heads, length, value.shape[3])
    return output, torch.logsumexp(scores, -1) if with_sums else None
