"""Gradient operators of PyTorch's inner library: `aten.threshold_backward` and its like.

Each is the gradient of an operator, taken by differentiating that one: a derivative has one home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.decompositions.inner import FLASH, SCALES, inner
from flambeau.ir.lock import late
from flambeau.ops import aten

Tensor = Any


def gradients(
    function: Callable[..., Any], operands: Sequence[Tensor | None], grad: Tensor
) -> list[Tensor | None]:
    """Gradients of a function with respect to its operands; None for those that are None.

    Args:
        function: of the operands.
        operands: tensors whose gradients are wanted, or None.
        grad: of its result.
    """
    transforms = late("flambeau.autograd.transforms.wrappers")
    if any(transforms.inside(x) is not x for x in (*operands, grad)):
        return _inside_transformation(function, operands, grad)
    again = _core.is_grad_enabled() and _requires_grad((operands, grad, function))
    with _core.enable_grad():
        leaves = [x if x is None or (again and x.requires_grad) else _leaf(x) for x in operands]
        result = function(*leaves)
        targets = [x for x in leaves if x is not None]
        results = iter(
            late("flambeau.autograd").grad(
                result, targets, grad, create_graph=again, allow_unused=True
            )
        )
    return [None if x is None else next(results) for x in leaves]


def _inside_transformation(
    function: Callable[..., Tensor], operands: Sequence[Tensor | None], grad: Tensor
) -> list[Tensor | None]:
    """As `gradients`, of tensors that carry tangents, or are samples of a batch."""
    present = [x for x in operands if x is not None]

    def of_present(*values: Tensor) -> Tensor:
        remaining = iter(values)
        return function(*[None if x is None else next(remaining) for x in operands])

    results = iter(late("flambeau.func").vjp(of_present, *present)[1](grad))
    return [None if x is None else next(results) for x in operands]


def _requires_grad(value: object) -> bool:
    """Whether a tensor that a gradient reads requires one; functions read what they enclose."""
    if isinstance(value, (list, tuple)):
        return any(map(_requires_grad, value))
    if isinstance(value, _core.Tensor):
        return bool(value.requires_grad)
    cells = getattr(value, "__closure__", None) or ()
    return any(_requires_grad(cell.cell_contents) for cell in cells)


def _leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


def _of_one(name: str, arguments: str, forward: Callable[..., Tensor]) -> None:
    """A gradient operator of (grad, self, settings).

    Args:
        name: of the forward operator.
        arguments: after the gradient.
        forward: of the same arguments.
    """

    def run(grad: Tensor, operand: Tensor, *settings: Any) -> Tensor:
        return gradients(lambda x: forward(x, *settings), [operand], grad)[0]

    inner(f"{name}_backward(Tensor grad_output, {arguments}) -> Tensor")(run)


def _functional(name: str) -> Any:
    return getattr(late("flambeau.nn.functional"), name)


def _simple(name: str, settings: str = "") -> None:
    def forward(x: Tensor, *values: Any) -> Tensor:
        return _functional(name)(x, *values)

    _of_one(name, "Tensor self" + settings, forward)


for _name in "silu hardswish hardsigmoid mish".split():
    _simple(_name)
_simple("softplus", ", Scalar beta, Scalar threshold")
_simple("softshrink", ", Scalar lambd")
_simple("hardshrink", ", Scalar lambd")
_simple("hardtanh", ", Scalar min_val, Scalar max_val")
_simple("glu", ", int dim")
_of_one(
    "threshold", "Tensor self, Scalar threshold", lambda x, t: _functional("threshold")(x, t, 0)
)
_of_one(
    "gelu",
    "Tensor self, *, str approximate='none'",
    lambda x, approximate: _functional("gelu")(x, approximate=approximate),
)
_of_one(
    "leaky_relu",
    "Tensor self, Scalar negative_slope, bool self_is_result",
    lambda x, slope, _: _functional("leaky_relu")(x, slope),
)
_of_one("log_sigmoid", "Tensor self, Tensor buffer", lambda x, _: _functional("logsigmoid")(x))


@inner("sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor")
def _sigmoid_backward(grad: Tensor, output: Tensor) -> Tensor:
    return grad * (1 - output) * output


@inner("tanh_backward(Tensor grad_output, Tensor output) -> Tensor")
def _tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    return grad * (1 - output * output)


@inner(
    "elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, "
    "bool is_result, Tensor self_or_result) -> Tensor"
)
def _elu_backward(
    grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    if is_result:
        slope = (x + alpha * scale) * input_scale
        return grad * slope.where(x <= 0, _core.Tensor.new_full(x, (), scale))
    return gradients(lambda y: aten.elu(y, alpha, scale, input_scale), [x], grad)[0]


@inner("_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)")
def _prelu_kernel_backward(grad: Tensor, self: Tensor, weight: Tensor) -> Any:
    spread = weight.expand(self.shape)
    return tuple(gradients(aten._prelu_kernel, [self, spread], grad))


# ------------------------------------------------------------------------------ losses
def _loss(name: str, settings: str) -> None:
    def forward(x: Tensor, *values: Any) -> Tensor:
        return getattr(aten, name)(x, *values)

    _of_one(name, f"Tensor self, Tensor target{settings}", forward)


_loss("mse_loss", ", int reduction")
_loss("smooth_l1_loss", ", int reduction, float beta")
_loss("huber_loss", ", int reduction, float delta")
_loss("soft_margin_loss", ", int reduction")
_loss("binary_cross_entropy", ", Tensor? weight=None, int reduction=1")
for _name in ("nll_loss", "nll_loss2d"):
    _of_one(
        _name,
        "Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, "
        "Tensor total_weight",
        lambda x, target, weight, reduction, ignore, total: aten.nll_loss_forward(
            x, target, weight, reduction, ignore
        )[0],
    )


# ------------------------------------------------------------------------------ norms
def _normed_gradient(grad: Tensor, unit: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The gradient of x -> (x - mean) * rstd, from the gradient of its result `unit`."""
    mean = grad.mean(dims, keepdim=True)
    along = (grad * unit).mean(dims, keepdim=True)
    return (grad - mean - unit * along) * rstd


def _chosen(values: Sequence[Any], mask: Sequence[bool]) -> Any:
    return tuple(
        [value if selected else None for value, selected in zip(values, mask, strict=True)]
    )


_THREE = "-> (Tensor, Tensor, Tensor)"


@inner(
    "native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, "
    f"Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, object output_mask) {_THREE}"
)
def _layer_norm_backward(
    grad: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any,
    mask: Any,
) -> Any:  # fmt: skip
    dims = tuple(range(-len(shape), 0))
    lead = tuple(range(x.ndim - len(shape)))
    unit = (x - mean) * rstd
    scaled = grad if weight is None else grad * weight
    along = grad * unit
    total = (along.sum(lead), grad.sum(lead)) if lead else (along, grad)
    return _chosen((_normed_gradient(scaled, unit, rstd, dims), *total), mask)


@inner(
    "native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? "
    "running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, "
    f"float eps, object output_mask) {_THREE}"
)
def _batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Any, running_mean: Any, running_var: Any, save_mean: Any,
    save_invstd: Any, train: bool, eps: float, mask: Any,
) -> Any:  # fmt: skip
    dims = (0, *range(2, x.ndim))
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean = save_mean if train else running_mean
    rstd = save_invstd if train else (running_var + eps).rsqrt()
    rstd = rstd.view(shape)
    unit = (x - mean.view(shape)) * rstd
    scaled = grad if weight is None else grad * weight.view(shape)
    first = _normed_gradient(scaled, unit, rstd, dims) if train else scaled * rstd
    return _chosen((first, (grad * unit).sum(dims), grad.sum(dims)), mask)


@inner(
    "native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, "
    "Tensor? weight, SymInt N, SymInt C, SymInt HxW, int group, object output_mask) " + _THREE
)
def _group_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, samples: int, channels: int,
    places: int, group: int, mask: Any,
) -> Any:  # fmt: skip
    grouped = (samples, group, -1)
    wide = rstd.view(samples, group, 1)
    unit = (x.reshape(grouped) - mean.view(samples, group, 1)) * wide
    plain = grad.reshape(samples, channels, places)
    scaled = plain if weight is None else plain * weight.view(1, channels, 1)
    first = _normed_gradient(scaled.reshape(grouped), unit, wide, (2,)).view(x.shape)
    along = (plain * unit.view(samples, channels, places)).sum((0, 2))
    return _chosen((first, along, plain.sum((0, 2))), mask)


# ------------------------------------------------------------------------------ parts
@inner(
    "slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, "
    "SymInt step) -> Tensor"
)
def _slice_backward(grad: Tensor, sizes: Any, dim: int, start: int, end: int, step: int) -> Tensor:
    return grad.new_zeros(tuple(sizes)).slice_scatter(grad, dim, start, end, step)


@inner("select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor")
def _select_backward(grad: Tensor, sizes: Any, dim: int, index: int) -> Tensor:
    return grad.new_zeros(tuple(sizes)).select_scatter(grad, dim, index)


@inner(
    "diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, int dim2) "
    "-> Tensor"
)
def _diagonal_backward(grad: Tensor, sizes: Any, offset: int, dim1: int, dim2: int) -> Tensor:
    return grad.new_zeros(tuple(sizes)).diagonal_scatter(grad, offset, dim1, dim2)


@inner(
    "embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, "
    "SymInt padding_idx, bool scale_grad_by_freq) -> Tensor"
)
def _embedding_dense_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool
) -> Tensor:
    table = grad.new_zeros((rows, grad.shape[-1]))

    def look_up(weight: Tensor) -> Tensor:
        return late("flambeau").embedding(weight, indices, padding, by_frequency)

    return gradients(look_up, [table], grad)[0]


# ------------------------------------------------------------------------------ images
def _of_sizes(name: str, settings: str) -> None:
    """A gradient operator of what only the sizes of the operand tell."""

    def run(grad: Tensor, output_size: Any, input_size: Any, *values: Any) -> Tensor:
        empty = aten.new_empty(grad, tuple(input_size))
        forward = getattr(aten, name)
        return gradients(lambda x: forward(x, tuple(output_size), *values), [empty], grad)[0]

    inner(
        f"{name}_backward(Tensor grad_output, SymInt[] output_size, SymInt[] input_size"
        f"{settings}) -> Tensor"
    )(run)


def _of_operand(name: str, settings: str) -> None:
    def forward(x: Tensor, *values: Any) -> Tensor:
        return getattr(aten, name)(x, *values)

    _of_one(name, "Tensor self" + settings, forward)


for _rank, _text in SCALES.items():
    _of_sizes(f"upsample_nearest{_rank}d", _text)
    _of_sizes(f"_upsample_nearest_exact{_rank}d", _text)
    _of_operand(f"reflection_pad{_rank}d", ", SymInt[] padding")
    _of_operand(f"replication_pad{_rank}d", ", SymInt[] padding")
for _mode, _rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)):
    _of_sizes(f"upsample_{_mode}{_rank}d", ", bool align_corners" + SCALES[_rank])
for _rank in (2, 3):
    _of_operand(
        f"avg_pool{_rank}d",
        ", int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, "
        "bool count_include_pad, int? divisor_override",
    )


def _adaptive(rank: int) -> None:
    def run(grad: Tensor, self: Tensor) -> Tensor:
        pool = getattr(aten, f"_adaptive_avg_pool{rank}d")
        return gradients(lambda x: pool(x, grad.shape[-rank:]), [self], grad)[0]

    inner(f"_adaptive_avg_pool{rank}d_backward(Tensor grad_output, Tensor self) -> Tensor")(run)


_adaptive(2)
_adaptive(3)


# ------------------------------------------------------------------------------ attention
@inner(
    f"{FLASH}_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, "
    "Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, "
    f"float? scale=None) {_THREE}"
)
def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout: float, causal: bool, mask: Any, scale: float | None,
) -> Any:  # fmt: skip
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        attention = _functional("scaled_dot_product_attention")
        return attention(query, key, value, mask, dropout, causal, scale=scale)

    return tuple(gradients(attend, [query, key, value], grad))
