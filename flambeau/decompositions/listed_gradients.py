"""Further gradient operators of PyTorch's inner library: each differentiates its operator."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.ir.lock import late
from flambeau.nn import functional
from flambeau.ops import aten

__all__: list[str] = []

Tensor = Any
Value = Any


def _zeros(grad: Tensor, sizes: Value) -> Tensor:
    return grad.new_zeros(tuple(sizes))


def _masked(results: Value, mask: Value) -> Value:
    return tuple([x if shown else None for x, shown in zip(results, mask, strict=True)])


# ------------------------------------------------------------------------------ shapes, indices
@listed("unfold_backward")
def _unfold_backward(grad: Tensor, sizes: Value, dim: int, size: int, step: int) -> Tensor:
    return gradients(lambda x: x.unfold(dim, size, step), [_zeros(grad, sizes)], grad)[0]


@listed("trace_backward")
def _trace_backward(grad: Tensor, sizes: Value) -> Tensor:
    return gradients(torch.trace, [_zeros(grad, sizes)], grad)[0]


@listed("index_select_backward")
def _index_select_backward(grad: Tensor, sizes: Value, dim: int, index: Tensor) -> Tensor:
    return gradients(lambda x: x.index_select(dim, index), [_zeros(grad, sizes)], grad)[0]


@listed("gather_backward")
def _gather_backward(
    grad: Tensor, self: Tensor, dim: int, index: Tensor, sparse_grad: bool
) -> Tensor:
    return gradients(lambda x: torch.gather(x, dim, index, sparse_grad=sparse_grad), [self], grad)[
        0
    ]


@listed("_gather_sparse_backward")
def _gather_sparse_backward(self: Tensor, dim: int, index: Tensor, grad: Tensor) -> Tensor:
    return _gather_backward(grad, self, dim, index, True)


@listed("masked_select_backward")
def _masked_select_backward(grad: Tensor, input: Tensor, mask: Tensor) -> Tensor:  # noqa: A002
    return gradients(lambda x: x.masked_select(mask), [input], grad)[0]


@listed("masked_scatter_backward")
def _masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Value) -> Tensor:
    target = torch.zeros_like(grad)
    return gradients(lambda x: target.masked_scatter(mask, x), [_zeros(grad, sizes)], grad)[0]


@listed("value_selecting_reduction_backward")
def _value_selecting_reduction_backward(
    grad: Tensor, dim: int, indices: Tensor, sizes: Value, keepdim: bool
) -> Tensor:
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return gradients(lambda x: torch.gather(x, dim, indices), [_zeros(grad, sizes)], grad)[0]


@listed("affine_grid_generator_backward")
def _affine_grid_generator_backward(grad: Tensor, size: Value, align_corners: bool) -> Tensor:
    sizes = (size[0], len(size) - 2, len(size) - 1)
    return gradients(
        lambda theta: functional.affine_grid(theta, tuple(size), align_corners),
        [_zeros(grad, sizes)],
        grad,
    )[0]


@listed("embedding_backward")
def _embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool, sparse: bool
) -> Tensor:
    table = _zeros(grad, (rows, grad.shape[-1]))

    def look_up(weight: Tensor) -> Tensor:
        return torch.embedding(weight, indices, padding, by_frequency, sparse)

    return gradients(look_up, [table], grad)[0]


@listed("embedding_sparse_backward")
def _embedding_sparse_backward(*values: Value) -> Tensor:
    return _embedding_backward(*values, True)


# ------------------------------------------------------------------------------ running values
@listed("cumprod_backward")
def _cumprod_backward(grad: Tensor, input: Tensor, dim: int, output: Tensor) -> Tensor:  # noqa: A002
    return gradients(lambda x: x.cumprod(dim), [input], grad)[0]


@listed("cummaxmin_backward")
def _cummaxmin_backward(grad: Tensor, input: Tensor, indices: Tensor, dim: int) -> Tensor:  # noqa: A002
    return gradients(lambda x: torch.gather(x, dim, indices), [input], grad)[0]


# ------------------------------------------------------------------------------ pointwise
@listed("logit_backward")
def _logit_backward(grad: Tensor, self: Tensor, eps: Value) -> Tensor:
    return gradients(lambda x: torch.logit(x, eps), [self], grad)[0]


@listed("infinitely_differentiable_gelu_backward")
def _gelu_backward(grad: Tensor, self: Tensor) -> Tensor:
    return gradients(functional.gelu, [self], grad)[0]


@listed("glu_jvp")
def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    half = dx.chunk(2, dim)
    gate = torch.sigmoid(x.chunk(2, dim)[1])
    return half[0] * gate + aten.sigmoid_backward(half[1] * x.chunk(2, dim)[0], gate)


@listed("glu_backward_jvp")
def _glu_backward_jvp(
    grad_x: Tensor, grad: Tensor, x: Tensor, of_grad: Tensor, dx: Tensor, dim: int
) -> Tensor:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return aten.glu_backward(grad, x, dim)

    return late("flambeau.func").jvp(backward, (grad, x), (of_grad, dx))[1]


@listed("_segment_reduce_backward")
def _segment_reduce_backward(
    grad: Tensor, output: Tensor, data: Tensor, reduce: str, lengths: Value, offsets: Value,
    axis: int, initial: Value,
) -> Tensor:  # fmt: skip
    options = {"lengths": lengths, "offsets": offsets, "axis": axis, "initial": initial}
    options["unsafe"] = True

    def reduced(x: Tensor) -> Tensor:
        return torch.segment_reduce(x, reduce, **options)

    return gradients(reduced, [data], grad)[0]


# ------------------------------------------------------------------------------ products
@listed("linear_backward")
def _linear_backward(self: Tensor, grad: Tensor, weight: Tensor, mask: Value) -> Value:
    bias = weight.new_zeros((weight.shape[0],))
    return _masked(gradients(functional.linear, [self, weight, bias], grad), mask)


@listed("matmul_backward")
def _matmul_backward(grad: Tensor, self: Tensor, other: Tensor, mask: Value) -> Value:
    return _masked(gradients(torch.matmul, [self, other], grad), mask)


@listed("matrix_exp_backward")
def _matrix_exp_backward(self: Tensor, grad: Tensor) -> Tensor:
    return gradients(torch.matrix_exp, [self], grad)[0]


# ------------------------------------------------------------------------------ distances
_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist",
          "donot_use_mm_for_euclid_dist")  # fmt: skip


@listed("_cdist_forward")
def _cdist_forward(x1: Tensor, x2: Tensor, p: float, mode: Value) -> Tensor:
    return torch.cdist(x1, x2, p, _MODES[mode or 0])


@listed("_euclidean_dist")
def _euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor:
    return torch.cdist(x1, x2, 2.0, _MODES[1])


@listed("_cdist_backward")
def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    return gradients(lambda x: torch.cdist(x, x2, p, _MODES[2]), [x1], grad)[0]


@listed("_pdist_forward")
def _pdist_forward(self: Tensor, p: float) -> Tensor:
    return torch.pdist(self, p)


@listed("_pdist_backward")
def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    return gradients(lambda x: torch.pdist(x, p), [self], grad)[0]


# ------------------------------------------------------------------------------ images
def _of_indices(*names: str, rank: int) -> None:
    """Gradients of pools whose results are elements of a plane, at these indices."""

    def run(grad: Tensor, self: Tensor, *settings: Value) -> Tensor:
        places = settings[-1]

        def pool(x: Tensor) -> Tensor:
            flat = x.flatten(-rank).gather(-1, places.flatten(-rank))
            return flat.reshape(places.shape)

        return gradients(pool, [self], grad)[0]

    listed(*names)(run)


_of_indices("adaptive_max_pool2d_backward", "fractional_max_pool2d_backward", rank=2)
_of_indices("adaptive_max_pool3d_backward", "fractional_max_pool3d_backward", rank=3)
_of_indices("max_pool3d_with_indices_backward", rank=3)


@listed("max_pool2d_backward")
def _max_pool2d_backward(grad: Tensor, self: Tensor, *windows: Value) -> Tensor:
    size, stride, *others = windows
    pool = functional.max_pool2d
    return gradients(lambda x: pool(x, size, stride or None, *others), [self], grad)[0]


@listed("adaptive_avg_pool3d_backward")
def _adaptive_avg_pool3d_backward(grad: Tensor, self: Tensor) -> Tensor:
    return aten._adaptive_avg_pool3d_backward(grad, self)


def _grid(rank: int) -> None:
    def run(grad: Tensor, image: Tensor, grid: Tensor, *settings: Value) -> Value:
        *modes, mask = settings if len(settings) == 4 else (*settings, (True, True))
        sampler = getattr(aten, f"grid_sampler_{rank}d")
        results = gradients(lambda x, g: sampler(x, g, *modes), [image, grid], grad)
        return _masked(results, mask)

    listed(f"grid_sampler_{rank}d_backward")(run)
    if rank == 2:
        listed("_grid_sampler_2d_cpu_fallback_backward")(run)


_grid(2)
_grid(3)


def _antialiased(mode: str) -> None:
    def run(grad: Tensor, output_size: Value, input_size: Value, *values: Value) -> Tensor:
        image = _zeros(grad, input_size)
        resize = getattr(aten, f"_upsample_{mode}2d_aa").default
        return gradients(lambda x: resize(x, tuple(output_size), *values), [image], grad)[0]

    listed(f"_upsample_{mode}2d_aa_backward")(run)


_antialiased("bilinear")
_antialiased("bicubic")
_antialiased("lanczos")
