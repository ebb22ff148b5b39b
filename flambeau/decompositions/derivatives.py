"""Gradients of inner operators, as calls of inner operators: what a dispatch mode sees backward.

A formula gets the call (its arguments by name, `result`, `needs`) and the gradient of the result.
It returns gradients by argument; those that are broadcast are summed afterwards. An operator that
has none here is differentiated by its program, as one gradient operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.decompositions.names import is_inplace
from flambeau.ops import aten

__all__ = ["Formula", "Recorded", "formula_of", "gradient"]

Tensor = Any
Gradients = dict[str, Any]


class Formula(NamedTuple):
    """The gradients of an operator.

    Attributes:
        saves: the tensors that it reads: arguments, or "result".
        run: (call, gradient of the result) -> gradients by argument.
    """

    saves: tuple[str, ...]
    run: Callable[[Any, Any], Gradients]


class Recorded:
    """A call whose gradients are wanted, as formulas see it.

    Attributes:
        shapes, dtypes: of the tensors, by argument; of a list one per tensor.
        operator, overload: their names.
        grads: of all results; None where one is not used.
    """

    def __init__(
        self,
        values: dict[str, Any],
        needed: set[str],
        each: dict[str, list[bool]],
        grads: tuple[Tensor | None, ...],
    ) -> None:
        self.__dict__.update(values)
        self._needed, self._each, self.grads = needed, each, grads

    def needs(self, name: str) -> bool:
        """Whether the gradient of an argument is wanted."""
        return name in self._needed

    def needs_each(self, name: str) -> list[bool]:
        """The same of every tensor of a list."""
        return self._each[name]


_FORMULAS: dict[str, Formula] = {}


def gradient(names: str, saves: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a formula for operators, "name" or "name.overload"."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            _FORMULAS[name] = Formula(tuple(saves.split()), run)
        return run

    return register


def formula_of(operator: str, overload: str) -> Formula | None:
    """The formula of an operator; in place it is the same."""
    plain = operator[:-1] if is_inplace(operator) else operator
    return _FORMULAS.get(f"{plain}.{overload}") or _FORMULAS.get(plain)


# ------------------------------------------------------------------------------ arithmetic
def _scaled(grad: Tensor, factor: Any) -> Tensor:
    return grad if factor == 1 else aten.mul.Scalar(grad, factor)


@gradient("add")
def _add(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": grad, "other": _scaled(grad, getattr(c, "alpha", 1))}


@gradient("sub")
def _sub(c: Recorded, grad: Tensor) -> Gradients:
    gradients: Gradients = {}
    if c.needs("other"):
        gradients["other"] = _scaled(aten.neg(grad), getattr(c, "alpha", 1))
    return gradients | {"self": grad}


@gradient("rsub")
def _rsub(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.neg(grad), "other": grad}


@gradient("mul", "self other")
def _mul(c: Recorded, grad: Tensor) -> Gradients:
    times = aten.mul
    if isinstance(c.other, (int, float, complex)) and c.overload == "Scalar":
        return {"self": times.Scalar(grad, c.other)}
    gradients: Gradients = {}
    if c.needs("self"):
        gradients["self"] = times(grad, c.other)
    if c.needs("other"):
        gradients["other"] = times(grad, c.self)
    return gradients


@gradient("div", "self other")
def _div(c: Recorded, grad: Tensor) -> Gradients:
    if c.overload == "Scalar":
        return {"self": aten.div.Scalar(grad, c.other)}
    gradients: Gradients = {}
    if c.needs("self"):
        gradients["self"] = aten.div(grad, c.other)
    if c.needs("other"):
        quotient = aten.div(c.self, c.other)
        gradients["other"] = aten.div(aten.mul(aten.neg(grad), quotient), c.other)
    return gradients


@gradient("neg")
def _neg(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.neg(grad)}


@gradient("reciprocal", "result")
def _reciprocal(c: Recorded, grad: Tensor) -> Gradients:
    squared = aten.mul(c.result, c.result)
    return {"self": aten.mul(aten.neg(grad), squared)}


@gradient("pow.Tensor_Scalar", "self")
def _pow(c: Recorded, grad: Tensor) -> Gradients:
    if c.exponent == 0:
        return {"self": aten.zeros_like(grad)}
    power = aten.pow(c.self, c.exponent - 1)
    return {"self": aten.mul(grad, aten.mul.Scalar(power, c.exponent))}


@gradient("pow.Scalar", "result")
def _power_of_number(c: Recorded, grad: Tensor) -> Gradients:
    if not isinstance(c.self, (int, float)) or c.self <= 0:
        return NotImplemented
    return {"exponent": aten.mul(grad, aten.mul.Scalar(c.result, math.log(c.self)))}


@gradient("addcmul", "tensor1 tensor2")
def _addcmul(c: Recorded, grad: Tensor) -> Gradients:
    return {
        "self": grad,
        "tensor1": aten.mul(grad, aten.mul.Scalar(c.tensor2, c.value)),
        "tensor2": aten.mul(grad, aten.mul.Scalar(c.tensor1, c.value)),
    }


@gradient("lerp.Scalar")
def _lerp(c: Recorded, grad: Tensor) -> Gradients:
    return {
        "self": aten.mul.Scalar(grad, 1 - c.weight),
        "end": aten.mul.Scalar(grad, c.weight),
    }


@gradient("exp", "result")
def _exp(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.mul(grad, c.result)}


@gradient("log", "self")
def _log(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.div(grad, c.self)}


@gradient("sqrt", "result")
def _sqrt(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.div(grad, aten.mul.Scalar(c.result, 2))}


@gradient("rsqrt", "result")
def _rsqrt(c: Recorded, grad: Tensor) -> Gradients:
    cubed = aten.pow(c.result, 3)
    return {"self": aten.mul(aten.mul.Scalar(grad, -0.5), cubed)}


@gradient("sin", "self")
def _sin(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.mul(grad, aten.cos(c.self))}


@gradient("cos", "self")
def _cos(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.mul(grad, aten.neg(aten.sin(c.self)))}


@gradient("abs", "self")
def _abs(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.mul(grad, aten.sgn(c.self))}


@gradient("where", "condition")
def _where(c: Recorded, grad: Tensor) -> Gradients:
    def zero() -> Tensor:
        return aten.scalar_tensor(0.0, dtype=grad.dtype)

    gradients: Gradients = {}
    for name in ("input", "self"):
        if c.needs(name):
            gradients[name] = aten.where(c.condition, grad, zero())
    if c.needs("other"):
        gradients["other"] = aten.where(c.condition, zero(), grad)
    return gradients


@gradient("masked_fill.Scalar", "mask")
def _masked_fill(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.masked_fill(grad, c.mask, 0)}


@gradient("clamp_min", "self")
def _clamp_min(c: Recorded, grad: Tensor) -> Gradients:
    if isinstance(c.min, _core.Tensor):
        return NotImplemented
    zero = aten.scalar_tensor(0.0, dtype=grad.dtype)
    return {"self": aten.where(aten.ge(c.self, c.min), grad, zero)}


@gradient("clamp", "self")
def _clamp(c: Recorded, grad: Tensor) -> Gradients:
    if isinstance(c.min, _core.Tensor) or isinstance(c.max, _core.Tensor):
        return NotImplemented
    zero = aten.scalar_tensor(0.0, dtype=grad.dtype)
    inside = [] if c.min is None else [aten.ge(c.self, c.min)]
    inside += [] if c.max is None else [aten.le(c.self, c.max)]
    mask = inside[0] if len(inside) == 1 else aten.logical_and_(*inside)
    return {"self": aten.where(mask, grad, zero)}


@gradient("maximum minimum", "self other")
def _maximum(c: Recorded, grad: Tensor) -> Gradients:
    def share(lost: Any) -> Tensor:
        halved = aten.div.Scalar(grad, 2)
        alike = aten.eq(c.self, c.other)
        return aten.masked_fill_(aten.where(alike, halved, grad), lost(c.self, c.other), 0)

    smaller, larger = aten.lt, aten.gt
    if c.operator == "minimum":
        smaller, larger = larger, smaller
    gradients = {"other": share(larger)} if c.needs("other") else {}
    return gradients | ({"self": share(smaller)} if c.needs("self") else {})


@gradient("max.default min.default", "self result")
def _whole_extreme(c: Recorded, grad: Tensor) -> Gradients:
    missing = aten.logical_and(aten.isnan(c.self), aten.isnan(c.result))
    mask = aten.logical_or_(aten.eq(c.self, c.result), missing)
    return {"self": aten.mul(aten.div(grad, aten.sum(mask)), mask)}


@gradient("fill zero zeros_like")
def _overwritten(c: Recorded, grad: Tensor) -> Gradients:
    return {}


# ------------------------------------------------------------------------------ products
@gradient("mm", "self mat2")
def _mm(c: Recorded, grad: Tensor) -> Gradients:
    gradients: Gradients = {}
    if c.needs("mat2"):
        gradients["mat2"] = _second(c.self, c.mat2, grad)
    if c.needs("self"):
        gradients["self"] = _first(c.self, c.mat2, grad)
    return gradients


def _by_columns(x: Tensor) -> bool:
    return bool(x.stride(0) == 1 and x.stride(1) == x.shape[0])


def _first(a: Tensor, b: Tensor, grad: Tensor) -> Tensor:
    """The gradient of the left operand, by columns where that is."""
    if _by_columns(a):
        return aten.t(aten.mm(b, aten.t(grad)))
    return aten.mm(grad, aten.t(b))


def _second(a: Tensor, b: Tensor, grad: Tensor) -> Tensor:
    if _by_columns(b):
        return aten.t(aten.mm(aten.t(grad), a))
    return aten.mm(aten.t(a), grad)


@gradient("addmm", "mat1 mat2")
def _addmm(c: Recorded, grad: Tensor) -> Gradients:
    gradients: Gradients = {"self": _scaled(grad, getattr(c, "beta", 1))}
    alpha = getattr(c, "alpha", 1)
    if c.needs("mat1"):
        gradients["mat1"] = _scaled(_first(c.mat1, c.mat2, grad), alpha)
    if c.needs("mat2"):
        gradients["mat2"] = _scaled(_second(c.mat1, c.mat2, grad), alpha)
    return gradients


def _swapped(x: Tensor) -> Tensor:
    return aten.transpose(x, 1, 2)


@gradient("bmm", "self mat2")
def _bmm(c: Recorded, grad: Tensor) -> Gradients:
    gradients: Gradients = {}
    if c.needs("mat2"):
        gradients["mat2"] = aten.bmm(_swapped(c.self), grad)
    if c.needs("self"):
        gradients["self"] = aten.bmm(grad, _swapped(c.mat2))
    return gradients


@gradient("baddbmm", "batch1 batch2")
def _baddbmm(c: Recorded, grad: Tensor) -> Gradients:
    alpha = getattr(c, "alpha", 1)
    gradients: Gradients = {"self": _scaled(grad, getattr(c, "beta", 1))}
    if c.needs("batch2"):
        gradients["batch2"] = _scaled(aten.bmm(_swapped(c.batch1), grad), alpha)
    if c.needs("batch1"):
        gradients["batch1"] = _scaled(aten.bmm(grad, _swapped(c.batch2)), alpha)
    return gradients


@gradient("mv", "self vec")
def _mv(c: Recorded, grad: Tensor) -> Gradients:
    gradients: Gradients = {}
    if c.needs("self"):
        gradients["self"] = aten.mul(aten.view(grad, (len(grad), 1)), c.vec)
    if c.needs("vec"):
        gradients["vec"] = aten.mv(aten.t(c.self), grad)
    return gradients


@gradient("dot", "self tensor")
def _dot(c: Recorded, grad: Tensor) -> Gradients:
    gradients: Gradients = {}
    if c.needs("self"):
        gradients["self"] = aten.mul(grad, c.tensor)
    if c.needs("tensor"):
        gradients["tensor"] = aten.mul(grad, c.self)
    return gradients


@gradient("convolution", "input weight")
def _convolution(c: Recorded, grad: Tensor) -> Gradients:
    sizes = None if c.bias is None else [grad.shape[1]]
    mask = [c.needs(name) for name in ("input", "weight", "bias")]
    gradients = aten.convolution_backward(
        grad, c.input, c.weight, sizes, c.stride, c.padding, c.dilation, c.transposed,
        c.output_padding, c.groups, mask,
    )  # fmt: skip
    return dict(zip(("input", "weight", "bias"), gradients, strict=True))


# ------------------------------------------------------------------------------ reductions
def _dims(dim: Any, rank: int) -> list[int]:
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return list(range(rank))
    return sorted(d % rank for d in ([dim] if isinstance(dim, int) else dim)) if rank else []


def restored(x: Tensor, c: Recorded) -> Tensor:
    """A reduced value with the dimensions it lost, of size 1."""
    if getattr(c, "keepdim", False) or getattr(c, "dim", None) is None:
        return x
    for dim in _dims(c.dim, len(c.shapes["self"])):
        x = aten.unsqueeze(x, dim)
    return x


@gradient("sum")
def _sum(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.expand(restored(grad, c), c.shapes["self"])}


@gradient("mean")
def _mean(c: Recorded, grad: Tensor) -> Gradients:
    shape = c.shapes["self"]
    count = math.prod(shape[d] for d in _dims(getattr(c, "dim", None), len(shape)))
    return {"self": aten.div.Scalar(aten.expand(restored(grad, c), shape), count)}


@gradient("var", "self")
def _var(c: Recorded, grad: Tensor) -> Gradients:
    shape = c.shapes["self"]
    count = math.prod(shape[d] for d in _dims(c.dim, len(shape)))
    free = count - (1 if c.correction is None else c.correction)
    grad = restored(grad, c)
    mean = aten.mean(c.self, c.dim, True) if c.dim is not None else aten.mean(c.self)
    along = aten.sub(c.self, mean)
    return {"self": aten.mul(aten.mul.Scalar(grad, 2 / free), along)}


@gradient("std", "self result")
def _std(c: Recorded, grad: Tensor) -> Gradients:
    halved = aten.div(grad, aten.mul.Scalar(c.result, 2))
    halved = aten.masked_fill_(halved, aten.eq(c.result, 0), 0)
    return _var(c, halved)


@gradient("linalg_vector_norm", "self result")
def _vector_norm(c: Recorded, grad: Tensor) -> Gradients:
    if c.ord != 2:
        return NotImplemented
    grad, length = restored(grad, c), restored(c.result, c)
    unit = aten.masked_fill_(aten.div(c.self, length), aten.eq(length, 0), 0)
    return {"self": aten.mul(grad, unit)}


@gradient("norm.ScalarOpt_dim", "self result")
def _norm(c: Recorded, grad: Tensor) -> Gradients:
    if c.p != 2:
        return NotImplemented
    grad, length = restored(grad, c), restored(c.result, c)
    unit = aten.masked_fill_(aten.div(c.self, length), aten.eq(length, 0), 0)
    return {"self": aten.mul(grad, unit)}


@gradient("amax amin", "self result")
def _amax(c: Recorded, grad: Tensor) -> Gradients:
    dims = list(c.dim) if not isinstance(c.dim, int) else [c.dim]

    def wide(x: Tensor) -> Tensor:
        if c.keepdim or not dims:
            return x
        return aten.view(x, tuple(1 if d in _dims(dims, c.self.ndim) else n
                                  for d, n in enumerate(c.shapes["self"])))  # fmt: skip

    mask = aten.eq(wide(c.result), c.self)
    shared = aten.div(wide(grad), aten.sum(mask, dims, True))
    return {"self": aten.mul(shared, mask)}


def _placed(c: Recorded, grad: Tensor, indices: Tensor) -> Gradients:
    if getattr(c, "dim", None) is None:
        return NotImplemented
    zeros = aten.new_zeros(grad, c.shapes["self"])
    return {"self": aten.scatter(zeros, c.dim, indices, grad)}


@gradient("max.dim min.dim median.dim", "results1")
def _extreme(c: Recorded, grad: Tensor) -> Gradients:
    return _placed(c, restored(grad, c), restored(c.results1, c))


@gradient("topk sort", "results1")
def _ordered(c: Recorded, grad: Tensor) -> Gradients:
    return _placed(c, grad, c.results1)


@gradient("cumsum")
def _cumsum(c: Recorded, grad: Tensor) -> Gradients:
    if grad.ndim == 0 or grad.numel() <= 1:
        return {"self": grad}
    return {"self": aten.flip(aten.cumsum(aten.flip(grad, [c.dim]), c.dim), [c.dim])}


@gradient("logsumexp", "self result")
def _logsumexp(c: Recorded, grad: Tensor) -> Gradients:
    grad, result = restored(grad, c), restored(c.result, c)
    return {"self": aten.mul(grad, aten.exp(aten.sub(c.self, result)))}


# ------------------------------------------------------------------------------ activations
@gradient("relu", "result")
def _relu(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.threshold_backward(grad, c.result, 0)}


@gradient("threshold", "self")
def _threshold(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.threshold_backward(grad, c.self, c.threshold)}


@gradient("sigmoid", "result")
def _sigmoid(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.sigmoid_backward(grad, c.result)}


@gradient("tanh", "result")
def _tanh(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.tanh_backward(grad, c.result)}


@gradient("gelu", "self")
def _gelu(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.gelu_backward(grad, c.self, approximate=c.approximate)}


def _by_operand(name: str, *settings: str) -> None:
    """`name_backward(grad, self, settings)`."""

    def run(c: Recorded, grad: Tensor) -> Gradients:
        backward = getattr(aten, f"{name}_backward")
        return {"self": backward(grad, c.self, *[getattr(c, s) for s in settings])}

    gradient(name, "self")(run)


for _name in "silu hardswish hardsigmoid mish".split():
    _by_operand(_name)
_by_operand("softplus", "beta", "threshold")
_by_operand("softshrink", "lambd")
_by_operand("hardshrink", "lambd")
_by_operand("hardtanh", "min_val", "max_val")
_by_operand("glu", "dim")


@gradient("leaky_relu", "self")
def _leaky_relu(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.leaky_relu_backward(grad, c.self, c.negative_slope, False)}


@gradient("elu", "self")
def _elu(c: Recorded, grad: Tensor) -> Gradients:
    settings = (c.alpha, c.scale, c.input_scale)
    return {"self": aten.elu_backward(grad, *settings, False, c.self)}


@gradient("celu", "self")
def _celu(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.elu_backward(grad, c.alpha, 1, 1.0 / c.alpha, False, c.self)}


@gradient("log_sigmoid_forward", "self results1")
def _log_sigmoid(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten.log_sigmoid_backward(grad, c.self, c.results1)}


@gradient("_prelu_kernel", "self weight")
def _prelu(c: Recorded, grad: Tensor) -> Gradients:
    first, second = aten._prelu_kernel_backward(grad, c.self, c.weight)
    return {"self": first, "weight": second}


@gradient("_softmax _safe_softmax", "result")
def _softmax(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten._softmax_backward_data(grad, c.result, c.dim, c.result.dtype)}


@gradient("_log_softmax", "result")
def _log_softmax(c: Recorded, grad: Tensor) -> Gradients:
    return {"self": aten._log_softmax_backward_data(grad, c.result, c.dim, c.result.dtype)}


# ------------------------------------------------------------------------------ losses
def _loss(name: str, *settings: str) -> None:
    def run(c: Recorded, grad: Tensor) -> Gradients:
        backward = getattr(aten, f"{name}_backward")
        values = [getattr(c, s) for s in settings]
        gradients = {}
        if c.needs("self"):
            gradients["self"] = backward(grad, c.self, c.target, *values)
        if c.needs("target"):
            gradients["target"] = backward(grad, c.target, c.self, *values)
        return gradients

    gradient(name, "self target")(run)


_loss("mse_loss", "reduction")
_loss("smooth_l1_loss", "reduction", "beta")
_loss("huber_loss", "reduction", "delta")
_loss("soft_margin_loss", "reduction")


@gradient("binary_cross_entropy", "self target weight")
def _binary(c: Recorded, grad: Tensor) -> Gradients:
    if c.needs("target"):
        return NotImplemented
    operands = (grad, c.self, c.target, c.weight)
    default = () if c.reduction == 1 else (c.reduction,)
    return {"self": aten.binary_cross_entropy_backward(*operands, *default)}


@gradient("binary_cross_entropy_with_logits", "self target weight pos_weight")
def _logits(c: Recorded, grad: Tensor) -> Gradients:
    if c.needs("target") or c.pos_weight is not None or c.weight is not None:
        return NotImplemented
    product = aten.mul(aten.sub(aten.sigmoid(c.self), c.target), grad)
    if c.reduction == 1:
        product = aten.div_.Scalar(product, c.self.numel())
    return {"self": product}


def _nll(name: str) -> None:
    def run(c: Recorded, grad: Tensor) -> Gradients:
        backward = getattr(aten, f"{name}_backward")
        settings = (c.weight, c.reduction, c.ignore_index, c.results1)
        return {"self": backward(grad, c.self, c.target, *settings)}

    gradient(f"{name}_forward", "self target weight results1")(run)


_nll("nll_loss")
_nll("nll_loss2d")


# ------------------------------------------------------------------------------ norms
def _mask(c: Recorded, *names: str) -> list[bool]:
    return [c.needs(name) for name in names]


@gradient("native_layer_norm", "input weight bias results1 results2")
def _layer_norm(c: Recorded, grad: Tensor) -> Gradients:
    names = ("input", "weight", "bias")
    gradients = aten.native_layer_norm_backward(
        grad, c.input, c.normalized_shape, c.results1, c.results2, c.weight, c.bias,
        _mask(c, *names),
    )  # fmt: skip
    return dict(zip(names, gradients, strict=True))


@gradient("native_batch_norm", "input weight running_mean running_var results1 results2")
def _batch_norm(c: Recorded, grad: Tensor) -> Gradients:
    names = ("input", "weight", "bias")
    gradients = aten.native_batch_norm_backward(
        grad, c.input, c.weight, c.running_mean, c.running_var, c.results1, c.results2,
        c.training, c.eps, _mask(c, *names),
    )  # fmt: skip
    return dict(zip(names, gradients, strict=True))


@gradient("native_group_norm", "input weight results1 results2")
def _group_norm(c: Recorded, grad: Tensor) -> Gradients:
    names = ("input", "weight", "bias")
    gradients = aten.native_group_norm_backward(
        grad, c.input, c.results1, c.results2, c.weight, c.N, c.C, c.HxW, c.group,
        _mask(c, *names),
    )  # fmt: skip
    return dict(zip(names, gradients, strict=True))


from flambeau.decompositions import derivatives_views  # noqa: E402, F401 - registers its own
