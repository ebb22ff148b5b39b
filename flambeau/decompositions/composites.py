"""Decompositions of public operators into PyTorch's inner library.

A composition is a Python function of the operator's arguments that calls inner operators. Run on
tensors in a dispatch mode it shows them, with a node of the graph each. A composition that does
not apply to a call returns NotImplemented: the operator is then an inner one itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.language.definition import Overload
from flambeau.ops import aten
from flambeau.ops.legacy.queries import broadcast_shapes
from flambeau.runtime.symbolic import SymInt, has_symbols

__all__ = ["TABLE", "composes", "composite_of"]

Tensor = Any
Composition = Callable[..., Any]

TABLE: dict[str, Composition] = {}
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def composes(names: str) -> Callable[[Composition], Composition]:
    """Registers a composition under public names; "nn.functional." is left out where it is not
    needed to tell two operators apart. In-place operators have names that end in `_`, without home.
    """

    def register(function: Composition) -> Composition:
        for name in names.split():
            TABLE[name] = function
        return function

    return register


def composite_of(overload: Overload, inplace: bool = False) -> Composition | None:
    """The composition of an operator, or None: the table's, or the body where that is one.

    An in-place form without a composition has the operator's.
    """
    name, home = overload.name.rpartition(".")[2], overload.options.where[0]
    if inplace and f"{name}_" in TABLE:
        return TABLE[f"{name}_"]
    table = TABLE.get(name if home in ("torch", "method") else f"{home}.{name}")
    return overload.body if overload.options.composite else table


# ------------------------------------------------------------------------------ creation
CREATIONS = frozenset({"empty", "empty_like", "new_empty"})  # called as users call them


@composes("empty empty_like new_empty")
def _empty(
    body: Composition, *args: Tensor, requires_grad: bool = False, **options: object
) -> Tensor:
    """A tensor that nobody wrote, by the inner operator of the body's name."""
    options = {name: value for name, value in options.items() if value is not None}
    if options.keys() - {"size", "dtype", "device", "memory_format"}:
        return body(*args, requires_grad=requires_grad, **options)
    if body.__name__ == "empty_like":
        result = aten.empty_like(*args, **options)
    else:
        count = 0 if body.__name__ == "empty" else 1
        sizes = options.pop("size", args[count:])
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        operator = aten.empty.memory_format if count == 0 else aten.new_empty.default
        result = operator(*args[:count], list(sizes), **options)
    return result.requires_grad_() if requires_grad else result


# ------------------------------------------------------------------------------ products
@composes("nn.functional.linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
    if bias is not None and weight.ndim == 2:
        if input.ndim == 2:
            return aten.addmm(bias, input, aten.t(weight))
        if input.is_contiguous():
            flat = aten.view(input, (math.prod(input.shape[:-1]), weight.shape[1]))
            return aten.view(
                aten.addmm(bias, flat, aten.t(weight)), (*input.shape[:-1], len(weight))
            )
    product = _matmul(input, aten.t(weight))
    return product if bias is None else aten.add(product, bias)


@composes("matmul _rmatmul")
def _matmul(self: Tensor, other: Tensor) -> Tensor:
    """Decomposes a product of vectors, matrices or batches into one of four product operators."""
    ranks = (self.ndim, other.ndim)
    if ranks == (1, 1):
        return aten.dot(self, other)
    if ranks == (2, 1):
        return aten.mv(self, other)
    if ranks == (1, 2):
        return aten.squeeze_(aten.mm(aten.unsqueeze(self, 0), other), 0)
    if ranks == (2, 2):
        return aten.mm(self, other)
    if min(ranks) <= 2 and _folds(self, other):
        return _folded(self, other)
    return _batched(self, other)


def _folds(a: Tensor, b: Tensor) -> bool:
    """Whether the batch becomes rows of one product."""
    big, small = (a, b) if a.ndim >= b.ndim else (b.mT, a.mT if a.ndim == 2 else a)
    if big.ndim < 3 or small.ndim > 2:
        return False
    if big.requires_grad or small.requires_grad or small.ndim == 1 or not big.numel():
        return True
    return _dense_rows(big)


def _dense_rows(x: Tensor) -> bool:
    step = x.shape[-1] * x.stride(-1) if x.ndim else 1
    for extent, stride in zip(reversed(x.shape[:-1]), reversed(x.stride()[:-1]), strict=True):
        if stride != step:
            return False
        step *= extent
    return True


def _folded(a: Tensor, b: Tensor) -> Tensor:
    swapped = b.ndim > a.ndim
    big, small = (a, b)
    if swapped:
        aten.transpose(b, -2, -1)  # to see whether it folds
        big = aten.transpose(b, -2, -1)
        small = aten.t(a) if a.ndim == 2 else a
    rows = reshape(big, (math.prod(big.shape[:-1]), big.shape[-1]))
    product = aten.mm(rows, small) if small.ndim == 2 else aten.mv(rows, small)
    shape = (*big.shape[:-1], *small.shape[1:])
    result = aten._unsafe_view(product, shape)
    return contiguous(aten.transpose(result, -2, -1)) if swapped and small.ndim == 2 else result


def _batched(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == 1:
        return aten.squeeze(_batched(aten.unsqueeze(a, 0), b), -2)
    if b.ndim == 1:
        return aten.squeeze(_batched(a, aten.unsqueeze(b, 1)), -1)
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    left, right = [
        reshape(aten.expand(x, (*batch, *x.shape[-2:])), (math.prod(batch), *x.shape[-2:]))
        for x in (a, b)
    ]
    return aten._unsafe_view(aten.bmm(left, right), (*batch, a.shape[-2], b.shape[-1]))


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The shape of two together; symbols of one position are equal, which `expand` checks."""
    if not has_symbols((*one, *other)):
        return tuple(broadcast_shapes(one, other))
    count = max(len(one), len(other))
    padded = [[1] * (count - len(shape)) + list(shape) for shape in (one, other)]
    return tuple([y if type(x) is int and x == 1 else x for x, y in zip(*padded, strict=True)])


@composes("outer ger")
def _outer(self: Tensor, vec2: Tensor) -> Tensor:
    return aten.mul(aten.view(self, (self.shape[0], 1)), vec2)


# ------------------------------------------------------------------------------ layouts
def _is_open(extent: object) -> bool:
    """Whether a size is left to the others."""
    return isinstance(extent, int) and extent == -1


def viewable(x: Tensor, shape: Sequence[int]) -> bool:
    """Whether a tensor can be seen in another shape without a copy."""
    if not x.numel():
        return True
    left = x.numel() // max(1, -math.prod(shape)) if any(map(_is_open, shape)) else 1
    new = [left if _is_open(n) else n for n in shape]
    k, extent = len(new) - 1, 1
    old = list(zip(x.shape, x.stride(), strict=True))
    while old and old[-1][0] == 1:
        old.pop()
    for d in range(len(old) - 1, -1, -1):  # from the last dimension: runs that are one in memory
        extent *= old[d][0]
        if d and (old[d - 1][0] == 1 or old[d - 1][1] == old[d][0] * old[d][1]):
            continue
        part = 1
        while k >= 0 and (part < extent or new[k] == 1):
            part *= new[k]
            k -= 1
        if part != extent:
            return False
        extent = 1
    return all(n == 1 for n in new[: k + 1])


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A view, else a view of a copy."""
    shape = [shape] if isinstance(shape, (int, SymInt)) else shape
    if viewable(x, shape):
        return aten.view(x, tuple(shape))
    if has_symbols(x.shape):
        others = math.prod(n for n in shape if not _is_open(n))
        shape = [x.numel() // others if _is_open(n) else n for n in shape]
    copy = aten.clone(x, memory_format=_core.contiguous_format)
    return aten._unsafe_view(copy, tuple(shape))


def contiguous(x: Tensor, memory_format: Any = _core.contiguous_format) -> Tensor:
    """The tensor, or a copy in order."""
    in_order = x.is_contiguous(memory_format=memory_format)
    return x if in_order else aten.clone(x, memory_format=memory_format)


# ------------------------------------------------------------------------------ activations
def cast(x: Tensor, dtype: Any) -> Tensor:
    """The tensor in a dtype, None: its own."""
    return x if dtype is None or x.dtype == dtype else aten._to_copy(x, dtype=dtype)


def _axis(x: Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    return 0 if x.ndim in (0, 1, 3) else 1


@composes("softmax nn.functional.softmax")
def _softmax(self: Tensor, dim: int | None, dtype: Any = None, _stacklevel: Any = None) -> Tensor:
    return aten._softmax(cast(self, dtype), _axis(self, dim), False)


@composes("log_softmax nn.functional.log_softmax")
def _log_softmax(
    self: Tensor, dim: int | None, dtype: Any = None, _stacklevel: Any = None
) -> Tensor:
    return aten._log_softmax(cast(self, dtype), _axis(self, dim), False)


@composes("nn.functional.softmin")
def _softmin(input: Tensor, dim: int | None, _stacklevel: Any, dtype: Any) -> Tensor:  # noqa: A002
    return aten._softmax(cast(aten.neg(input), dtype), _axis(input, dim), False)


@composes("nn.functional.relu6")
def _relu6(input: Tensor) -> Tensor:  # noqa: A002
    return aten.hardtanh(input, 0.0, 6.0)


@composes("relu6_")
def _relu6_(input: Tensor) -> Tensor:  # noqa: A002
    return aten.hardtanh_(input, 0.0, 6.0)


@composes("selu")
def _selu(self: Tensor) -> Tensor:
    return aten.elu(self, 1.6732632423543772, 1.0507009873554805)


@composes("selu_")
def _selu_(self: Tensor) -> Tensor:
    return aten.elu_(self, 1.6732632423543772, 1.0507009873554805)


@composes("rrelu")
def _rrelu(
    self: Tensor,
    lower: float,
    upper: float,
    training: bool,
    generator: Any,
    run: Any = None,
) -> Tensor:
    if training:  # draws
        return NotImplemented
    noise = aten.empty_like(self, memory_format=_core.contiguous_format)
    return (run or aten.rrelu_with_noise)(self, noise, lower, upper)


@composes("rrelu_")
def _rrelu_(
    self: Tensor,
    lower: float,
    upper: float,
    training: bool,
    generator: Any,
) -> Tensor:
    return _rrelu(self, lower, upper, training, generator, aten.rrelu_with_noise_)


@composes("nn.functional.softsign")
def _softsign(input: Tensor) -> Tensor:  # noqa: A002
    return aten.div(input, aten.add(aten.abs(input), 1))


@composes("nn.functional.tanhshrink")
def _tanhshrink(input: Tensor) -> Tensor:  # noqa: A002
    return aten.sub(input, aten.tanh(input))


@composes("nn.functional.logsigmoid")
def _logsigmoid(self: Tensor) -> Tensor:
    return aten.log_sigmoid_forward(self)[0]


@composes("prelu")
def _prelu(self: Tensor, weight: Tensor) -> Tensor:
    if weight.ndim != self.ndim:
        ones = self.ndim - 2
        shape = (1, *weight.shape, *[1] * ones) if self.ndim > 1 else tuple(weight.shape)
        weight = aten.view(weight, shape if weight.ndim == 1 else (1,) * self.ndim)
    return aten._prelu_kernel(self, weight)


# ------------------------------------------------------------------------------ arithmetic
@composes("square")
def _square(self: Tensor) -> Tensor:
    return aten.pow(self, 2)


@composes("_rdiv")
def _rdiv(self: Tensor, other: Any) -> Tensor:
    if isinstance(other, _core.Tensor):
        return aten.div(other, self)
    return aten.mul(aten.reciprocal(self), other)


@composes("special.ndtr")
def _ndtr(self: Tensor) -> Tensor:
    inside = aten.erf(aten.mul.Scalar(self, math.sqrt(0.5)))
    return aten.mul.Scalar(aten.add.Scalar(inside, 1.0), 0.5)


@composes("nanmean")
def _nanmean(self: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    count = aten.sum(aten.logical_not(aten.isnan(self)), dim, keepdim)
    return aten.div(aten.nansum(self, dim, keepdim, dtype=dtype), count)


@composes("_rpow")
def _rpow(self: Tensor, other: Any) -> Tensor:
    return aten.pow(other, self)


@composes("max")
def _max(self: Tensor, other: Any = None, **options: Any) -> Tensor:
    return NotImplemented if other is None else aten.maximum(self, other)


@composes("min")
def _min(self: Tensor, other: Any = None, **options: Any) -> Tensor:
    return NotImplemented if other is None else aten.minimum(self, other)


@composes("float_power")
def _float_power(self: Any, exponent: Any) -> Tensor:
    def wide(x: Any) -> Any:
        return cast(x, _core.float64) if isinstance(x, _core.Tensor) else x

    return aten.pow(wide(self), wide(exponent))


@composes("cross")
def _cross(self: Tensor, other: Tensor, dim: int | None) -> Tensor:
    if dim is None:
        dim = next(i for i, extent in enumerate(self.shape) if extent == 3)
    return aten.linalg_cross(self, other, dim=dim)


def _of_statistic(name: str) -> Composition:
    def compose(
        self: Tensor,
        dim: Any = None,
        unbiased: bool | None = None,
        correction: Any = None,
        keepdim: bool = False,
    ) -> Any:
        if unbiased is not None:
            correction = int(unbiased)
        operator = getattr(aten, name).correction
        return operator(self, dim, correction=correction, keepdim=keepdim)

    return compose


# ------------------------------------------------------------------------------ norms
@composes("nn.functional.layer_norm layer_norm")
def _layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float,
    cudnn_enable: bool = True,
) -> Tensor:
    return aten.native_layer_norm(input, tuple(normalized_shape), weight, bias, eps)[0]


@composes("group_norm")
def _group_norm(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Any,
    bias: Any,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    samples, channels = input.shape[:2]
    places = math.prod(input.shape[2:])
    operands = (input, weight, bias, samples, channels, places, num_groups, eps)
    return aten.native_group_norm(*operands)[0]


@composes("rms_norm")
def _rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Any,
    weight: Any,
    eps: float | None,
) -> Tensor:
    dims = list(range(-len(normalized_shape), 0))
    mean = aten.mean(aten.pow(input, 2), dims, True)
    least = _core.finfo(input.dtype).eps if eps is None else eps
    scaled = aten.mul(input, aten.rsqrt(aten.add_.Scalar(mean, least)))
    return scaled if weight is None else aten.mul(scaled, weight)


@composes("norm linalg.norm linalg.vector_norm")
def _norm(self: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
    order = options.get("p", options.get("ord"))
    flat = "p" in options or dim is not None or self.ndim != 2
    if not (order in (None, "fro") or (flat and not isinstance(order, str))):
        return NotImplemented  # of matrices
    order = 2 if order is None or order == "fro" else order
    dims = [dim] if isinstance(dim, int) else dim
    return aten.linalg_vector_norm(
        self, order, None if dims is None else list(dims), keepdim, dtype=options.get("dtype")
    )


@composes("nn.functional.normalize")
def _normalize(input: Tensor, p: float, dim: int, eps: float) -> Tensor:  # noqa: A002
    length = aten.clamp_min(aten.linalg_vector_norm(input, p, [dim], True), eps)
    return aten.div(input, aten.expand(length, tuple(input.shape)))


# ------------------------------------------------------------------------------ convolutions
def _convolution(
    x: Tensor, weight: Tensor, bias: Any, settings: Sequence[Any], transposed: bool, extra: Any
) -> Tensor:
    rank = weight.ndim - 2
    stride, padding, dilation, groups = settings

    def every(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * rank if len(values) == 1 else values

    alone = x.ndim == rank + 1
    if alone:
        x = aten.unsqueeze(x, 0)
    result = aten.convolution(
        x, weight, bias, every(stride), every(padding), every(dilation), transposed,
        every(extra), groups,
    )  # fmt: skip
    return aten.squeeze(result, 0) if alone else result


def _same_padding(x: Tensor, weight: Tensor, padding: Any, dilation: Any) -> tuple[Tensor, Any]:
    """Padding given as a word, as numbers; what is not symmetric is padded before."""
    if not isinstance(padding, str):
        return x, padding
    rank = weight.ndim - 2
    if padding == "valid":
        return x, [0] * rank
    steps = [dilation] * rank if isinstance(dilation, int) else list(dilation)
    steps = steps * rank if len(steps) == 1 else steps
    totals = [d * (k - 1) for d, k in zip(steps, weight.shape[2:], strict=True)]
    if any(total % 2 for total in totals):
        odd_sides = [side for total in reversed(totals) for side in (0, total % 2)]
        x = aten.constant_pad_nd(x, odd_sides)
    return x, [total // 2 for total in totals]


@composes("conv1d conv2d conv3d")
def _conv(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    input, padding = _same_padding(input, weight, padding, dilation)  # noqa: A001
    return _convolution(input, weight, bias, (stride, padding, dilation, groups), False, 0)


@composes("conv_transpose1d conv_transpose2d conv_transpose3d")
def _conv_transpose(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    settings = (stride, padding, dilation, groups)
    return _convolution(input, weight, bias, settings, True, output_padding)


# ------------------------------------------------------------------------------ look-ups
@composes("nn.functional.embedding")
def _embedding(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if max_norm is not None or sparse:
        return NotImplemented
    row = -1 if padding_idx is None else padding_idx + len(weight) * (padding_idx < 0)
    return aten.embedding(weight, input, row, scale_grad_by_freq)


for _name in ("std", "var", "std_mean", "var_mean"):
    TABLE[_name] = _of_statistic(_name)

from flambeau.decompositions import (  # noqa: E402, F401 - register theirs
    composed_contraction,
    composed_losses,
    composed_private,
    composed_recurrent,
    composed_steps,
    composed_views,
)
