"""Folds batch norm, at evaluation, into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.nn.messages import problem
from flambeau.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
]  # fmt: skip


def _require_eval(name: str, first: Any, norm: Any) -> None:
    if first.training or norm.training:
        text = "Fusion only for eval!"
        raise AssertionError(problem(name, text, "call .eval() on both"))


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that computes what `conv` followed by `bn` computes."""
    _require_eval("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
    transpose: bool = False,
) -> tuple[Any, Any]:
    """Weight and bias of the fused convolution."""
    conv_b = torch.zeros_like(bn_rm) if conv_b is None else conv_b
    bn_w = torch.ones_like(bn_rm) if bn_w is None else bn_w
    bn_b = torch.zeros_like(bn_rm) if bn_b is None else bn_b
    scale = bn_w * torch.rsqrt(bn_rv + bn_eps)
    if transpose:
        shape = (1, -1, *([1] * (conv_w.dim() - 2)))
    else:
        shape = (-1, 1, *([1] * (conv_w.dim() - 2)))
    weight = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    bias = ((conv_b - bn_rm) * scale + bn_b).to(conv_w.dtype)
    return (
        Parameter(weight.detach(), conv_w.requires_grad),
        Parameter(bias.detach(), conv_b.requires_grad),
    )


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that computes what `linear` followed by `bn` computes."""
    _require_eval("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        text = "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        raise AssertionError(problem("fuse_linear_bn_eval", text, "sizes must agree"))
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Any, Any]:
    """Weight and bias of the fused linear layer."""
    linear_b = torch.zeros_like(bn_rm) if linear_b is None else linear_b
    scale = bn_w * torch.rsqrt(bn_rv + bn_eps)
    weight = (linear_w * scale.unsqueeze(-1)).to(linear_w.dtype)
    bias = ((linear_b - bn_rm) * scale + bn_b).to(linear_w.dtype)
    return (
        Parameter(weight.detach(), linear_w.requires_grad),
        Parameter(bias.detach(), linear_b.requires_grad),
    )
