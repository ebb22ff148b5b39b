"""The operators of random programs: what is called, and with which parameters.

A rule of `SMOOTH` has derivatives at (almost) every point and values that a few steps keep small,
so that finite differences can measure it; one of `KINKED` need not. A rule may refuse its operands
by raising, which leaves the step out. None draws random numbers but those that say so: the seed is
set before each run of a program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau

F = flambeau.nn.functional


@dataclass(frozen=True)
class Rule:
    """An operator of the programs.

    Attributes:
        function: of the operands, then of the parameters.
        arity: how many operands.
        parameters: all choices of parameters for an operand's rank and sizes.
    """

    function: Callable[..., Any]
    arity: int = 1
    parameters: Callable[[Any], Sequence[tuple[Any, ...]]] = lambda x: [()]


# ------------------------------------------------------------------------------- parameters


def _dims(x: Any) -> list[tuple[int]]:
    return [(d,) for d in range(x.ndim)]


def _ranked(x: Any) -> list[tuple[()]]:
    return [()] if x.ndim else []


def _kept(x: Any) -> list[tuple[int, bool]]:
    return [(d, keep) for d in range(x.ndim) for keep in (False, True)]


def _several(x: Any) -> list[tuple[tuple[int, ...], bool]]:
    """Two dimensions at least, kept or not."""
    counts = range(2, x.ndim + 1)
    dims = (d for count in counts for d in itertools.combinations(range(x.ndim), count))
    return [(d, keep) for d in dims for keep in (False, True)]


def _pairs(x: Any) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(-x.ndim, 0), 2))


def _filled(x: Any) -> list[tuple[int]]:
    return [(d,) for d in range(x.ndim) if x.shape[d] > 0]


def _wide(x: Any) -> list[tuple[int]]:
    return [(d,) for d in range(x.ndim) if x.shape[d] > 1]


def _rows(x: Any) -> Any:
    return flambeau.atleast_2d(x).flatten(0, -2)


def _matrices(x: Any) -> list[tuple[()]]:
    return [()] if x.ndim >= 2 else []


def _batches(x: Any) -> list[tuple[()]]:
    return [()] if x.ndim >= 3 else []


def _long(x: Any) -> list[tuple[()]]:
    return [()] if x.ndim >= 2 and x.shape[-1] >= 2 else []


def _images(x: Any) -> list[tuple[()]]:
    return [()] if x.ndim in (3, 4) and min(x.shape[-2:]) >= 2 else []


# ------------------------------------------------------------------------------- functions


def _places(x: Any, dim: int, count: int = 3) -> Any:
    """Some places along a dimension, one of them twice."""
    return (flambeau.arange(count) * 2 + 1) % x.shape[dim]


def _along(x: Any, dim: int) -> Any:
    """An index for `gather`: as long as `x`, places in it."""
    return (flambeau.arange(x.numel()).reshape(x.shape) * 3 + 1) % x.shape[dim]


def _scaled(x: Any, dim: int) -> Any:
    y = x.clone()
    y.narrow(dim, 0, 1).mul_(0.5)
    return y


def _added(x: Any, y: Any) -> Any:
    z = x.clone()
    return z.add_(y).mul_(0.5)


def _assigned(x: Any, dim: int) -> Any:
    y = x.clone()
    y.select(dim, -1).fill_(0.25)
    return y


def _assigned_truth(x: Any, dim: int) -> Any:
    y = x.clone()
    y.select(dim, 0).fill_(True)
    y.select(dim, -1)[...] = False
    return y


def _through_views(x: Any) -> Any:
    """Writes through a transposed view, reads through a flat one, writes again."""
    y = x.clone()
    y.mT.mul_(0.75)
    z = y.flatten()[::2] * 0.5
    y[..., 0].add_(1)
    return y.sum() * 0.1 + z


def _row_added(x: Any, dim: int) -> Any:
    y = x.clone()
    y.select(dim, 0).add_(y.select(dim, -1))
    return y


def _masked_write(x: Any) -> Any:
    y = x.clone()
    y[x > 0.3] = 0.3
    return y


def _put(x: Any, accumulate: bool) -> Any:
    """Writes rows, each once unless they add up (which of two equal places wins is not said)."""
    y = x.clone()
    places = flambeau.tensor([0, -1, 0] if accumulate else [-1])
    return y.index_put_((places,), x[:1] * 0.5, accumulate)


def _positive(x: Any) -> Any:
    return x @ x.mT * 0.25 + flambeau.eye(x.shape[-2], dtype=x.dtype)


def _spectrum(x: Any, dim: int) -> Any:
    found = flambeau.fft.rfft(x, dim=dim)
    return found.real + 0.5 * found.imag


def _complex_product(x: Any, y: Any) -> Any:
    z = flambeau.complex(x, y)
    return (z * z + z.conj()).imag


def _norm(x: Any, dim: int) -> Any:
    return (x * x + 1).norm(dim=dim)


SMOOTH: dict[str, Rule] = {
    # pointwise
    "sin": Rule(lambda x: x.sin()),
    "cos": Rule(lambda x: x.cos()),
    "tan": Rule(lambda x: x.tanh().tan()),
    "tanh": Rule(lambda x: x.tanh()),
    "sigmoid": Rule(lambda x: x.sigmoid()),
    "erf": Rule(lambda x: x.erf()),
    "erfc": Rule(lambda x: x.erfc()),
    "atan": Rule(lambda x: x.atan()),
    "asinh": Rule(lambda x: x.asinh()),
    "acos": Rule(lambda x: (x.tanh() * 0.9).acos()),
    "sinc": Rule(flambeau.sinc),
    "expm1": Rule(lambda x: x.tanh().expm1()),
    "log1p": Rule(lambda x: (x * x).log1p()),
    "lgamma": Rule(lambda x: (x * x + 1).lgamma()),
    "i0e": Rule(flambeau.special.i0e),
    "logit": Rule(lambda x: (x.sigmoid() * 0.8 + 0.1).logit()),
    "silu": Rule(F.silu),
    "gelu": Rule(F.gelu),
    "mish": Rule(F.mish),
    "softplus": Rule(F.softplus),
    "exp": Rule(lambda x: x.tanh().exp()),
    "log": Rule(lambda x: (x * x + 1).log()),
    "sqrt": Rule(lambda x: (x * x + 1).sqrt()),
    "rsqrt": Rule(lambda x: (x * x + 1).rsqrt()),
    "square": Rule(lambda x: x.tanh().square()),
    "pow": Rule(lambda x, y: (x * x + 1) ** y.tanh(), 2),
    "cube": Rule(lambda x: x.tanh() ** 3),
    "reciprocal": Rule(lambda x: 1 / (x * x + 1)),
    "affine": Rule(lambda x: x * 0.75 - 0.5),
    "add": Rule(lambda x, y: x + y, 2),
    "sub": Rule(lambda x, y: x - 0.5 * y, 2),
    "rsub": Rule(lambda x: 1 - x),
    "mul": Rule(lambda x, y: x * y, 2),
    "div": Rule(lambda x, y: x / (y * y + 1), 2),
    "atan2": Rule(lambda x, y: flambeau.atan2(x, y * y + 1), 2),
    "hypot": Rule(lambda x, y: flambeau.hypot(x * x + 1, y), 2),
    "logaddexp": Rule(flambeau.logaddexp, 2),
    "xlogy": Rule(lambda x, y: flambeau.xlogy(x, y * y + 1), 2),
    "lerp": Rule(lambda x, y: flambeau.lerp(x, y, 0.3), 2),
    "addcmul": Rule(lambda x, y: flambeau.addcmul(x, y, y, value=0.25), 2),
    "addcdiv": Rule(lambda x, y: flambeau.addcdiv(x, x, y * y + 1, value=0.5), 2),
    "where": Rule(lambda x, y: flambeau.where(x > 0.1, x, y), 2),
    "complex": Rule(_complex_product, 2),
    # reductions and scans
    "sum": Rule(lambda x, d, keep: x.sum(d, keep), 1, _kept),
    "sum all": Rule(lambda x: x.sum()),
    "sum several": Rule(lambda x, d, keep: x.sum(d, keep), 1, _several),
    "mean": Rule(lambda x, d, keep: x.mean(d, keep), 1, _kept),
    "mean several": Rule(lambda x, d, keep: x.mean(d, keep), 1, _several),
    "var": Rule(lambda x, d: x.var(d), 1, _wide),
    "var several": Rule(lambda x, d, keep: x.var(d, correction=0, keepdim=keep), 1, _several),
    "std": Rule(lambda x, d: (x * x + x).std(d, correction=0), 1, _wide),
    "norm": Rule(_norm, 1, _dims),
    "logsumexp": Rule(lambda x, d, keep: x.logsumexp(d, keep), 1, _kept),
    "logsumexp several": Rule(lambda x, d, keep: x.logsumexp(d, keep), 1, _several),
    "softmax": Rule(lambda x, d: x.softmax(d), 1, _dims),
    "softmin": Rule(lambda x, d: F.softmin(x, d), 1, _dims),
    "log_softmax": Rule(lambda x, d: x.log_softmax(d), 1, _dims),
    "cumsum": Rule(lambda x, d: x.cumsum(d), 1, _dims),
    "cumprod": Rule(lambda x, d: x.cumprod(d), 1, _dims),
    "logcumsumexp": Rule(lambda x, d: x.logcumsumexp(d), 1, _dims),
    "prod": Rule(lambda x, d: x.prod(d), 1, _dims),
    "trace": Rule(lambda x: x.diagonal(0, -2, -1).sum(-1), 1, _matrices),
    "diff": Rule(lambda x, d: x.diff(dim=d), 1, _wide),
    # norms, pools, losses
    "layer_norm": Rule(lambda x: F.layer_norm(x, x.shape[-1:]), 1, _long),
    "layer_norm of two": Rule(lambda x: F.layer_norm(x, x.shape[-2:]), 1, _long),
    "rms_norm": Rule(lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-3), 1, _matrices),
    "group_norm": Rule(lambda x: F.group_norm(x, 1), 1, _batches),
    "batch_norm": Rule(lambda x: F.batch_norm(x, None, None, training=True), 1, _long),
    "normalize": Rule(lambda x, d: F.normalize(x * x + 1, dim=d), 1, _dims),
    "avg_pool1d": Rule(lambda x: F.avg_pool1d(x, 2, 1), 1, _long),
    "avg_pool2d": Rule(lambda x: F.avg_pool2d(x, 2, 1, 1), 1, _images),
    "adaptive_avg_pool2d": Rule(lambda x: F.adaptive_avg_pool2d(x, 2), 1, _images),
    "interpolate": Rule(lambda x: F.interpolate(x[None, None].flatten(2), 7, mode="linear")),
    "mse_loss": Rule(F.mse_loss, 2),
    "smooth_l1_loss": Rule(lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), 2),
    "cosine_similarity": Rule(lambda x: F.cosine_similarity(x, x.flip(-1) + 3), 1, _matrices),
    "cross_entropy": Rule(lambda x: F.cross_entropy(x, _places(x, 1, x.shape[0])), 1,
                          lambda x: [()] if x.ndim == 2 else []),
    # products and linear algebra
    "matmul": Rule(lambda x: x @ x.mT, 1, _matrices),
    "matmul of two": Rule(lambda x, y: x @ y.mT * 0.5, 2, _matrices),
    "linear": Rule(lambda x, y: F.linear(x, _rows(y)[:4]), 2, _matrices),
    "vector product": Rule(lambda x: x @ x.flatten()[: x.shape[-1]], 1, _matrices),
    "einsum": Rule(lambda x: flambeau.einsum("...ij,...kj->...ik", x, x * 0.5), 1, _matrices),
    "outer": Rule(lambda x: x.flatten()[:6].outer(x.flatten()[:5]), 1),
    "kron": Rule(lambda x: flambeau.kron(x.flatten()[:3], x.flatten()[:2])),
    "cholesky": Rule(lambda x: flambeau.linalg.cholesky(_positive(x)), 1, _matrices),
    "inverse": Rule(lambda x: flambeau.linalg.inv(_positive(x)), 1, _matrices),
    "solve": Rule(lambda x: flambeau.linalg.solve(_positive(x), x), 1, _matrices),
    "logdet": Rule(lambda x: flambeau.logdet(_positive(x)), 1, _matrices),
    "rfft": Rule(_spectrum, 1, _wide),
    # views and copies
    "transpose": Rule(lambda x: x.mT, 1, _matrices),
    "swap": Rule(lambda x, d, e: x.transpose(d, e), 1, _pairs),
    "reverse": Rule(lambda x: x.permute(*range(x.ndim)[::-1]), 1, _matrices),
    "movedim": Rule(lambda x, d: x.movedim(d, 0), 1, _dims),
    "contiguous": Rule(lambda x: x.mT.contiguous(), 1, _matrices),
    "flatten": Rule(lambda x: x.flatten()),
    "flatten two": Rule(lambda x: x.flatten(-2), 1, _matrices),
    "reshape": Rule(lambda x: x.reshape(x.shape[-1], -1), 1, _ranked),
    "unsqueeze": Rule(lambda x, d: x.unsqueeze(d), 1, _dims),
    "squeeze": Rule(lambda x: x.squeeze()),
    "select": Rule(lambda x, d: x.select(d, -1), 1, _filled),
    "every second": Rule(lambda x: x[..., ::2], 1, _ranked),
    "slices": Rule(lambda x: x[1:, ..., :-1], 1, _long),
    "narrow": Rule(lambda x, d: x.narrow(d, 1, x.shape[d] - 1), 1, _wide),
    "chunk": Rule(lambda x, d: x.chunk(2, d)[0], 1, _wide),
    "unbind": Rule(lambda x, d: x.unbind(d)[0] * x.unbind(d)[-1], 1, _filled),
    "split and cat": Rule(lambda x, d: flambeau.cat(x.split(1, d)[::-1], d), 1, _wide),
    "unfold": Rule(lambda x, d: x.unfold(d, 2, 1), 1, _wide),
    "expand": Rule(lambda x: x.unsqueeze(0).expand(2, *x.shape)),
    "expand inside": Rule(lambda x: x.unsqueeze(-1).expand(*x.shape, 3)),
    "repeat": Rule(lambda x: x.repeat(*[1] * (x.ndim - 1), 2), 1, _ranked),
    "repeat_interleave": Rule(lambda x, d: x.repeat_interleave(2, d), 1, _dims),
    "flip": Rule(lambda x, d: x.flip(d), 1, _dims),
    "roll": Rule(lambda x, d: x.roll(1, d), 1, _dims),
    "rot90": Rule(lambda x: x.rot90(), 1, _matrices),
    "tril": Rule(lambda x: x.tril(), 1, _matrices),
    "triu": Rule(lambda x: x.triu(1), 1, _matrices),
    "diagonal": Rule(lambda x: x.diagonal(0, -2, -1), 1, _matrices),
    "diag_embed": Rule(lambda x: x.diag_embed(), 1, _ranked),
    "pad": Rule(lambda x: F.pad(x, (1, 0)), 1, _ranked),
    "pad reflect": Rule(lambda x: F.pad(x, (1, 1), mode="reflect"), 1, _long),
    "pad circular": Rule(lambda x: F.pad(x, (1, 1), mode="circular"), 1, _long),
    "cat": Rule(lambda x, d: flambeau.cat([x, x * 0.5], d), 1, _dims),
    "cat of two": Rule(lambda x, y: flambeau.cat([x, y], -1), 2, _ranked),
    "stack": Rule(lambda x, y: flambeau.stack([x, y]), 2),
    # indexing
    "index_select": Rule(lambda x, d: x.index_select(d, _places(x, d)), 1, _dims),
    "index": Rule(lambda x: x[flambeau.tensor([-1, 0])], 1, _ranked),
    "index last": Rule(lambda x: x[..., flambeau.tensor([[0, -1]])], 1, _ranked),
    "index two": Rule(lambda x: x[flambeau.tensor([0, -1]), ..., flambeau.tensor([-1, 0])],
                      1, _matrices),
    "gather": Rule(lambda x, d: x.gather(d, _along(x, d)), 1, _dims),
    "take": Rule(lambda x: x.take(flambeau.tensor([[0, -1, 0]]))),
    "scatter": Rule(lambda x, d: (x * 0.5).scatter(d, _along(x, d).narrow(d, 0, 1),
                                                   x.narrow(d, 0, 1)), 1, _dims),
    "scatter_add": Rule(lambda x, d: x.scatter_add(d, _along(x, d), x * 0.5), 1, _dims),
    "index_add": Rule(lambda x, d: x.index_add(d, _places(x, d, x.shape[d]), x, alpha=0.5),
                      1, _dims),
    "index_copy": Rule(lambda x, d: x.index_copy(d, flambeau.tensor([0]),
                                                 x.narrow(d, -1, 1) * 0.5), 1, _dims),
    "masked_fill": Rule(lambda x: x.masked_fill(x > 0.7, 0.5)),
    "masked_select": Rule(lambda x: x[x > -0.2]),
    "embedding": Rule(lambda x: F.embedding(_places(x, 0, 4), x), 1,
                      lambda x: [()] if x.ndim == 2 else []),
    # in place
    "scale a part": Rule(_scaled, 1, _dims),
    "add in place": Rule(_added, 2),
    "assign": Rule(_assigned, 1, _dims),
    "write through views": Rule(_through_views, 1, _matrices),
    "add a row": Rule(_row_added, 1, _dims),
    "masked write": Rule(_masked_write),
    "index_put": Rule(_put, 1, lambda x: [(a,) for a in (False, True) if x.ndim]),
    "sin in place": Rule(lambda x: x.clone().sin_()),
    "copy_": Rule(lambda x, y: x.clone().copy_(y), 2),
    # numbers that depend on a size
    "first half": Rule(lambda x, d: x.narrow(d, 0, (x.shape[d] + 1) // 2), 1, _dims),
    "by its size": Rule(lambda x: x * 0.5 + 1 / (1 + x.numel())),
    "ramp": Rule(lambda x: x + flambeau.linspace(-0.5, 0.5, x.shape[-1], dtype=x.dtype), 1,
                 _ranked),
    "eye": Rule(lambda x: x + flambeau.eye(*x.shape[-2:], dtype=x.dtype), 1, _matrices),
}  # fmt: skip
CASTS = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8",
         "bool", "complex64")  # fmt: skip
KINKED: dict[str, Rule] = {
    # pointwise
    "abs": Rule(lambda x: x.abs()),
    "relu": Rule(lambda x: x.relu()),
    "leaky_relu": Rule(F.leaky_relu),
    "hardswish": Rule(F.hardswish),
    "elu": Rule(F.elu),
    "floor": Rule(lambda x: x.floor()),
    "round": Rule(lambda x: x.round()),
    "trunc": Rule(lambda x: x.trunc()),
    "frac": Rule(lambda x: x.frac()),
    "sign": Rule(lambda x: x.sign()),
    "clamp": Rule(lambda x: x.clamp(-0.5, 1)),
    "clamp by tensors": Rule(lambda x, y: x.clamp(y - 1, y), 2),
    "neg": Rule(lambda x: -x),
    "log of anything": Rule(lambda x: x.log()),
    "divide by anything": Rule(lambda x, y: x / y, 2),
    "nan_to_num": Rule(lambda x: x.nan_to_num(0.5)),
    "maximum": Rule(flambeau.maximum, 2),
    "minimum": Rule(flambeau.minimum, 2),
    "fmax": Rule(flambeau.fmax, 2),
    "copysign": Rule(flambeau.copysign, 2),
    "heaviside": Rule(lambda x: flambeau.heaviside(x, x)),
    "remainder": Rule(lambda x, y: x % (y * y + 1), 2),
    "fmod": Rule(lambda x, y: flambeau.fmod(x, y * y + 1), 2),
    "floor divide": Rule(lambda x, y: x // (y * y + 1), 2),
    "add a number": Rule(lambda x: x + 2),
    "multiply by a number": Rule(lambda x: x * 3),
    "divide by a number": Rule(lambda x: x / 3),
    # truth values in the place of numbers
    "assign truth": Rule(_assigned_truth, 1, _dims),
    "add truth": Rule(lambda x: x + True),
    "times truth": Rule(lambda x: x * False),
    "masked_fill with truth": Rule(lambda x: x.masked_fill(x == x.flip(0), True), 1, _ranked),
    "index_fill with truth": Rule(lambda x, d: x.index_fill(d, flambeau.tensor([0]), False), 1,
                                  _dims),
    "where truth": Rule(lambda x: flambeau.where(x > 0, x, False)),
    "full of truth": Rule(lambda x: x.new_full(x.shape, True)),
    # comparisons, truth, bits
    "greater": Rule(lambda x, y: x > y, 2),
    "at least a number": Rule(lambda x: x >= 0),
    "equal": Rule(lambda x, y: x == y, 2),
    "isclose": Rule(lambda x, y: flambeau.isclose(x, y.to(x.dtype)), 2),
    "isfinite": Rule(lambda x: x.isfinite()),
    "isnan": Rule(lambda x: x.isnan()),
    "signbit": Rule(lambda x: x.signbit()),
    "and": Rule(flambeau.logical_and, 2),
    "xor": Rule(flambeau.logical_xor, 2),
    "not": Rule(lambda x: x.logical_not()),
    "bits and": Rule(lambda x, y: x & y, 2),
    "bits or": Rule(lambda x: x | 5),
    "bits xor": Rule(lambda x, y: x ^ y, 2),
    "bits not": Rule(lambda x: ~x),
    "shift": Rule(lambda x: (x << 2) >> 1),
    "gcd": Rule(flambeau.gcd, 2),
    "where a number": Rule(lambda x: flambeau.where(x > 0, x, 1)),
    "where of two dtypes": Rule(lambda x, y: flambeau.where(x.to(flambeau.bool), y, x), 2),
    # reductions, scans, order
    "amax": Rule(lambda x, d, keep: x.amax(d, keep), 1, _kept),
    "amin several": Rule(lambda x, d, keep: x.amin(d, keep), 1, _several),
    "aminmax": Rule(lambda x, d: x.aminmax(dim=d).max, 1, _dims),
    "max": Rule(lambda x, d: x.max(d).values, 1, _dims),
    "max all": Rule(lambda x: x.max()),
    "argmin": Rule(lambda x, d: x.argmin(d), 1, _dims),
    "argmax all": Rule(lambda x: x.argmax()),
    "sort": Rule(lambda x, d: x.sort(d).values, 1, _dims),
    "argsort": Rule(lambda x, d: x.argsort(d, descending=True, stable=True), 1, _dims),
    "topk": Rule(lambda x, d: x.topk(1, d).values, 1, _dims),
    "kthvalue": Rule(lambda x, d: x.kthvalue(1, d).values, 1, _dims),
    "median": Rule(lambda x, d: x.median(d).values, 1, _dims),
    "unique": Rule(lambda x: x.unique()),
    "searchsorted": Rule(lambda x, y: flambeau.searchsorted(x.flatten().sort().values, y), 2),
    "cummax": Rule(lambda x, d: x.cummax(d).values, 1, _dims),
    "cummin": Rule(lambda x, d: x.cummin(d).values, 1, _dims),
    "any": Rule(lambda x, d: x.any(d), 1, _dims),
    "all": Rule(lambda x: x.all()),
    "count_nonzero": Rule(lambda x, d: x.count_nonzero(d), 1, _dims),
    "nonzero": Rule(lambda x: x.nonzero()),
    "nansum": Rule(lambda x, d: x.nansum(d), 1, _dims),
    "norm 1": Rule(lambda x, d: flambeau.linalg.vector_norm(x, 1, d), 1, _dims),
    "dist": Rule(flambeau.dist, 2),
    # indexing
    "mask": Rule(lambda x: x[x > 0]),
    "mask of rows": Rule(lambda x: x[x.flatten(1).sum(1) > 0], 1, _matrices),
    "masked_scatter": Rule(lambda x: x.masked_scatter(x > 0, x.flatten())),
    "scatter_reduce": Rule(lambda x, d: x.scatter_reduce(d, _along(x, d), x, "amax"), 1, _dims),
    "index by values": Rule(lambda x, y: x[y.to(flambeau.int64) % x.shape[0]], 2, _ranked),
    "one_hot": Rule(lambda x: F.one_hot(x.to(flambeau.int64) % 3)),
    "empty part": Rule(lambda x, d: x.narrow(d, 0, 0), 1, _dims),
    # windows, dtypes, random numbers
    "max_pool1d": Rule(lambda x: F.max_pool1d(x, 2, 1), 1, _long),
    "max_pool2d": Rule(lambda x: F.max_pool2d(x, 2, 1, 1), 1, _images),
    "nearest": Rule(lambda x: F.interpolate(x[None, None].flatten(2), 5)),
    "to": Rule(lambda x, kind: x.to(getattr(flambeau, kind)), 1, lambda x: [(k,) for k in CASTS]),
    "type of another": Rule(lambda x, y: x.to(y.dtype), 2),
    "real": Rule(lambda x: x.real),
    "view as integers": Rule(lambda x: x.view(flambeau.int32)),
    "dropout": Rule(lambda x: F.dropout(x, 0.3)),
    "rand_like": Rule(lambda x: x + flambeau.rand_like(x)),
}  # fmt: skip
RULES = SMOOTH | KINKED
