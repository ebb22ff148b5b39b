"""Table look-ups and dropout.

Embedding gathers rows; its gradient adds rows in the order of the indices, so it is deterministic.
Dropout draws as PyTorch's CPU generator does (docs/random.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core import install
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.language.definition import function, op
from flambeau.language.dtypes import object_of
from flambeau.language.samples import ErrorSample, T, sample
from flambeau.language.schema import Generator, Scalar, Tensor
from flambeau.ops.common import number_shown, shown
from flambeau.ops.indexing.sorting import bincount
from flambeau.ops.indexing.unique import unique
from flambeau.ops.pointwise.choice import where
from flambeau.ops.random.random import drawn_like

_OUTSIDE = (
    "[embedding] index out of range in self: index {value} for a table of {size} rows\n"
    "hint: indices lie in [0, rows)"
)


def _embedding_samples() -> Any:
    yield sample(T(2, 3, dtype="i64", low=0, high=7), T(7, 4))
    yield sample(T(5, dtype="i64", low=0, high=7), T(7, 33))
    yield sample(T(dtype="i64", low=0, high=7), T(7, 4))
    yield sample(T(4, dtype="i64", low=0, high=7), T(7, 4), 2)


def _checked_rows(input: Node, weight: Node) -> Node:
    """Indices as places of rows of the table."""
    if input.dtype not in ("i32", "i64"):
        problem = "Expected tensor for argument #1 'indices' to have one of the following scalar "
        problem += f"types: Long, Int; but got {input.dtype}"
        raise failure(RuntimeError, "embedding", problem, "call .long()")
    if weight.ndim != 2:
        problem = f"'weight' must be 2-D, got {shown(weight.shape)}"
        raise failure(RuntimeError, "embedding", problem, "(rows, width)")
    return prims.check_index(input, weight.shape[0], "embedding", _OUTSIDE, strict=True)


@op(where="nn.functional", samples=_embedding_samples)
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` at the indices `input`.

    Shape: `(*)` indices, `(V, D)` table -> `(*, D)`.

    Args:
        padding_idx: this row receives no gradient.
        max_norm: rows that are looked up and longer are first scaled to it, in place.
        norm_type: the p of their p-norm.
        scale_grad_by_freq: a row's gradient is divided by how often it is looked up.
        sparse: the gradient of `weight` is a `sparse_coo` tensor that keeps the rows looked up.

    Raises:
        IndexError: an index is outside [0, V), found when the call runs.
        RuntimeError: the indices are no integers.
        AssertionError: `padding_idx` is outside of [-V, V).

    Example:
        >>> table = torch.ones(100, 2, requires_grad=True)
        >>> F.embedding(torch.tensor([3]), table, sparse=True).sum().backward()
        >>> table.grad.indices(), table.grad.values()
        (tensor([[3]]), tensor([[1., 1.]]))
    """
    rows = _checked_rows(input, weight)
    value = prims.take(weight, rows, 0)
    if padding_idx is None:
        return value
    rows_, low = weight.shape[0], -padding_idx if padding_idx < 0 else padding_idx + 1
    if less(rows_, low):
        problem = f"Padding_idx must be within num_embeddings, {number_shown(rows_)}, but got "
        problem += f"{padding_idx}"
        raise failure(AssertionError, "embedding", problem, "the number of a row")
    padding = padding_idx if padding_idx >= 0 else padding_idx + rows_
    keep = prims.ne(rows, prims.constant(padding, rows))
    mask = prims.broadcast(keep, value.shape, range(rows.ndim))
    return prims.with_derivative(value, value, prims.stop_gradient(mask), rule="gate")


@embedding.overload(
    host=True,
)
def _embedding_options(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if max_norm is not None:
        bound_rows(input, weight, max_norm, norm_type)
    if sparse and weight.requires_grad:
        # Sparse tensors are made of operators: their package is asked for where one is wanted.
        look_up = late("flambeau.sparse.lookup").sparse_lookup
    else:
        look_up = embedding
    rows = look_up(input, weight, padding_idx)
    if scale_grad_by_freq and rows.requires_grad:
        times = bincount(input.reshape(-1), minlength=weight.shape[0])[input]
        rows.register_hook(lambda grad: grad / times.unsqueeze(-1))
    return rows


def bound_rows(indices: Any, weight: Any, max_norm: float, norm_type: float) -> None:
    """Scales the rows looked up, in place, to at most `max_norm`."""
    rows = unique(indices)
    table = weight.detach()
    selected = table[rows]
    lengths = selected.norm(norm_type, 1, True)
    factor = where(lengths > max_norm, max_norm / (lengths + 1e-7), 1.0)
    table[rows] = selected * factor


def kept_share(p: Any) -> Node:
    """1 - p as a float64 node, p a number or a node."""
    return 1.0 - (prims.cast(p, "f64") if isinstance(p, Node) else prims.full(p, (), "f64"))


def keep_mask(x: Node, p: Any, generator: int) -> Node:
    """1 / (1 - p) with probability 1 - p, else 0, for every element of x, in logical order."""
    share = kept_share(p)
    drawn = prims.random("bernoulli", x.shape, x.dtype, share, generator=generator)
    return drawn / prims.constant(share, drawn)


@op(
    name="_dropout",
    where="private",
    promote="keep",
    layout="follow",
    inplace=True,
    runtime="p",
    samples=lambda: [sample(T(3, 4), 0.5), sample(T(3, 4, layout="transposed"), 0.5)],
)
def random_dropout(
    input: Tensor, p: Scalar, generator: Generator | None = None, masked: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Each element zeroed with probability p, the others divided by 1 - p (0 < p < 1).

    The draws follow the memory of `input`, as PyTorch's do. Masked: and which elements are kept.
    """
    share = kept_share(p)
    drawn = drawn_like(input, "bernoulli", share, generator=generator, dense=True)
    result = input * (drawn / prims.constant(share, drawn))
    return (result, prims.ne(drawn, prims.zeros_like(drawn))) if masked else result


def _mask_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 1.5, True), RuntimeError, "expects p to be in")
    yield ErrorSample(sample(T(3, dtype="i64"), 0.5, True), RuntimeError, "can't be cast")


@op(
    where="torch",
    host=True,
    samples=lambda: [sample(T(3, 4), p, p > 0.2) for p in (0.1, 0.5, 1.0)],
    errors=_mask_errors,
)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout`, and the mask of the elements it kept; `train=None` is training.

    Raises:
        RuntimeError: p is not in [0, 1], or the input is not of a floating dtype.

    Example:
        >>> torch.native_dropout(torch.ones(2), 1.0, True)
        (tensor([0., 0.]), tensor([False, False]))
    """
    if train is not None and not train:
        return input.clone(), input.new_ones(input.shape, dtype=object_of("bool"))
    if not 0.0 <= p <= 1.0:
        problem = f"bernoulli_ expects p to be in [0, 1], but got p={1 - p}"
        raise failure(RuntimeError, "native_dropout", problem, "0 <= p <= 1")
    if not (input.is_floating_point() or input.is_complex()):
        problem = f"result type Float can't be cast to the desired output type {input.dtype}"
        raise failure(RuntimeError, "native_dropout", problem, "convert to a floating dtype first")
    if p < 1.0:
        return random_dropout.native(input, p, None, True)
    random_dropout.native(input, 0.0)  # for its draws: nothing is left of the elements
    return input * 0.0, input.new_zeros(input.shape, dtype=object_of("bool"))


@function(where="nn.functional", samples=lambda: [sample(T(3, 4), 0.5, False)])
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeroes elements with probability p and scales the rest by 1 / (1 - p), in training only.

    Source: Srivastava et al., Dropout, 2014.

    Shape: any -> the same; floating dtypes.

    Args:
        training: the input itself is returned when False.
        inplace: writes into the input.

    Raises:
        ValueError: p is not in [0, 1].

    Example:
        >>> F.dropout(torch.ones(3), p=0.5, training=False)
        tensor([1., 1., 1.])
    """
    if not 0.0 <= p <= 1.0:
        problem = f"probability has to be between 0 and 1, but got {p}"
        raise failure(ValueError, "dropout", problem, "0 <= p <= 1")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    if inplace:
        return install.INPLACE["_dropout_"](input, p)
    return random_dropout.native(input, p)
