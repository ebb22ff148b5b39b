"""Inner operators of training: steps of optimizers, scaled gradients, bags of rows.

A step is that of `torch.optim`, which counts it; here the caller did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.optim.adagrad import adagrad
from flambeau.optim.adam import adam
from flambeau.optim.sgd import sgd

__all__: list[str] = []

Tensor = Any
Value = Any


# ------------------------------------------------------------------------------ optimizers
def _before(steps: Value) -> Value:
    return [step - 1 for step in steps]


def _unscale(grads: Value, grad_scale: Value) -> None:
    """Divides gradients by their scale, as a step does before it reads them."""
    if grad_scale is not None:
        torch._foreach_div_(grads, [grad_scale.to(g.dtype) for g in grads])


def _adam(decoupled: bool) -> Callable[..., None]:
    def run(
        params: Value, grads: Value, averages: Value, squares: Value, greatest: Value,
        steps: Value, lr: Value, beta1: float, beta2: float, decay: float, eps: float,
        amsgrad: bool, maximize: bool, grad_scale: Value, found_inf: Value,
    ) -> None:  # fmt: skip
        if found_inf is not None and bool(found_inf):
            return
        _unscale(grads, grad_scale)
        adam(
            params, grads, averages, squares, greatest, _before(steps), amsgrad=amsgrad,
            beta1=beta1, beta2=beta2, lr=float(lr), weight_decay=decay, eps=eps,
            maximize=maximize, decoupled_weight_decay=decoupled,
        )  # fmt: skip

    return run


def _sgd(
    params: Value, grads: Value, buffers: Value, decay: float, momentum: float, lr: Value,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Value,
    found_inf: Value,
) -> None:  # fmt: skip
    if found_inf is not None and bool(found_inf):
        return
    _unscale(grads, grad_scale)
    states = [None] * len(params) if is_first_step or not buffers else list(buffers)
    sgd(
        params, grads, states, weight_decay=decay, momentum=momentum, lr=float(lr),
        dampening=dampening, nesterov=nesterov, maximize=maximize,
    )  # fmt: skip
    for buffer, state in zip(buffers, states, strict=False):
        if is_first_step and state is not None:
            buffer.copy_(state)


def _adagrad(
    params: Value, grads: Value, sums: Value, steps: Value, lr: Value, lr_decay: float,
    decay: float, eps: float, maximize: bool, grad_scale: Value, found_inf: Value,
) -> None:  # fmt: skip
    if found_inf is not None and bool(found_inf):
        return
    _unscale(grads, grad_scale)
    adagrad(
        params, grads, sums, _before(steps), lr=float(lr), weight_decay=decay,
        lr_decay=lr_decay, eps=eps, maximize=maximize,
    )  # fmt: skip


def _step(name: str, run: Callable[..., None], lists: int) -> None:
    """The operator in place, and the one that returns new tensors."""

    def functional(*values: Value) -> Value:
        copies = [[x.clone() for x in tensors] for tensors in values[:lists]]
        run(*copies, *values[lists:])
        return tuple(copies)

    def inplace(*values: Value) -> None:
        with torch.no_grad():
            run(*values)

    listed(f"{name}_", f"{name}_.tensor_lr")(inplace)
    listed(name, f"{name}.tensor_lr")(functional)


_step("_fused_adam", _adam(False), 5)
_step("_fused_adamw", _adam(True), 5)
_step("_fused_sgd", _sgd, 3)
_step("_fused_adagrad", _adagrad, 3)


# ------------------------------------------------------------------------------ scaled gradients
@listed("_amp_foreach_non_finite_check_and_unscale")
def _check_and_unscale(self: Value, found_inf: Tensor, inv_scale: Tensor) -> Value:
    copies, flag = [x.clone() for x in self], found_inf.clone()
    torch._amp_foreach_non_finite_check_and_unscale_(copies, flag, inv_scale)
    return copies, flag


@listed("_amp_update_scale")
def _amp_update_scale(self: Tensor, tracker: Tensor, *values: Value) -> Value:
    scale, count = self.clone(), tracker.clone()
    torch._amp_update_scale_(scale, count, *values)
    return scale, count


# ------------------------------------------------------------------------------ bags of rows
_BAGS = ("sum", "mean", "max")


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool, mode: int, sparse: bool,
    shares: Value, include_last_offset: bool, padding_idx: int,
) -> Tensor:  # fmt: skip
    return torch.nn.functional.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=by_frequency, mode=_BAGS[mode],
        sparse=sparse, per_sample_weights=shares, include_last_offset=include_last_offset,
        padding_idx=padding_idx if padding_idx >= 0 else None,
    )  # fmt: skip


def _numbers(indices: Tensor, offsets: Tensor) -> Tensor:
    """The bag of each index."""
    places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=offsets.device)
    return torch.searchsorted(offsets, places, right=True) - 1


@listed("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, *values: Value) -> Value:
    padding = values[-1] if values[-1] >= 0 else None  # -1 is no row, and in `embedding_bag` one
    return torch.embedding_bag(weight, indices, offsets, *(*values[:-1], padding))


def _bag_gradient(
    grad: Tensor, indices: Tensor, bags: Tensor, rows: int, by_frequency: bool, mode: int,
    sparse: bool, shares: Value, padding_idx: int,
) -> Tensor:  # fmt: skip
    table = grad.new_zeros((rows, grad.shape[1]))
    count = torch.arange(grad.shape[0], dtype=bags.dtype, device=bags.device)
    offsets = torch.searchsorted(bags, count)

    def look_up(weight: Tensor) -> Tensor:
        return _bags(
            weight, indices, offsets, by_frequency, mode, sparse, shares, False, padding_idx
        )

    return gradients(look_up, [table], grad)[0]


def _greatest_gradient(grad: Tensor, places: Tensor, rows: int) -> Tensor:
    """The gradient of bags whose result is their greatest element, in the rows at `places`."""
    table = grad.new_zeros((rows, grad.shape[1]))
    return table.scatter_add(0, places.clamp(min=0), grad * (places >= 0))


@listed("_embedding_bag_backward")
def _embedding_bag_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, sizes: Tensor, greatest: Tensor,
    rows: int, by_frequency: bool, mode: int, sparse: bool, shares: Value, padding_idx: int,
) -> Tensor:  # fmt: skip
    if mode == 2:
        return _greatest_gradient(grad, greatest, rows)
    return _bag_gradient(
        grad, indices, _numbers(indices, offsets), rows, by_frequency, mode, sparse, shares,
        padding_idx,
    )  # fmt: skip


@listed("_embedding_bag_dense_backward")
def _embedding_bag_dense_backward(
    grad: Tensor, indices: Tensor, bags: Tensor, sizes: Tensor, greatest: Tensor, rows: int,
    by_frequency: bool, mode: int, shares: Value, padding_idx: int,
) -> Tensor:  # fmt: skip
    if mode == 2:
        return _greatest_gradient(grad, greatest, rows)
    return _bag_gradient(grad, indices, bags, rows, by_frequency, mode, False, shares, padding_idx)


@listed("_embedding_bag_sparse_backward")
def _embedding_bag_sparse_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, sizes: Tensor, rows: int,
    by_frequency: bool, mode: int, shares: Value, padding_idx: int,
) -> Tensor:  # fmt: skip
    return _bag_gradient(
        grad, indices, _numbers(indices, offsets), rows, by_frequency, mode, True, shares,
        padding_idx,
    )  # fmt: skip


@listed("_embedding_bag_per_sample_weights_backward")
def _embedding_bag_per_sample_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, mode: int,
    padding_idx: int,
) -> Tensor:  # fmt: skip
    def look_up(shares: Tensor) -> Tensor:
        return _bags(weight, indices, offsets, False, mode, False, shares, False, padding_idx)

    return gradients(look_up, [weight.new_zeros(indices.shape)], grad)[0]
