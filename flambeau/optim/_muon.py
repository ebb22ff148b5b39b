"""Muon: momentum made orthogonal by a Newton-Schulz iteration (Jordan et al. 2024)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim._elementwise import ElementwiseOptimizer, column, zeros
from flambeau.optim.optimizer import ParamsT, check_lr

__all__ = ["Muon"]


class Muon(ElementwiseOptimizer):
    """Muon, for the matrices of a model; give other parameters to another optimizer.

    The momentum b += (1 - momentum) (g - b) is replaced by the nearest orthogonal matrix: its
    singular values are moved to about 1 by a polynomial of odd powers, computed in bfloat16
    (Jordan et al. 2024). The decay is decoupled.

    Args:
        params: parameters or groups, all of two axes.
        lr: learning rate.
        weight_decay: decoupled decay.
        momentum: decay of the buffer.
        nesterov: look ahead along the buffer.
        ns_coefficients: coefficients of the powers 1, 3 and 5.
        eps: least norm that the momentum is divided by.
        ns_steps: number of iterations.
        adjust_lr_fn: "original" (also None): times sqrt(max(1, rows / columns));
            "match_rms_adamw": times 0.2 sqrt(max(rows, columns)) (Liu et al. 2025).

    Raises:
        ValueError: a hyper-parameter is out of range, or a parameter is no matrix.

    Example:
        >>> p = torch.eye(2).requires_grad_()
        >>> optimizer = torch.optim.Muon([p], lr=0.1, weight_decay=0.0)
        >>> (3.0 * p.trace()).backward()
        >>> optimizer.step()
        >>> bool(p[0, 0] < 0.95), float(p[0, 1])
        (True, 0.0)
    """

    _step_is_tensor = False
    _later_options = MappingProxyType({"adjust_lr_fn": None})

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        for text, fits in (
            (f"Learning rate should be >= 0 but is: {lr}", 0.0 <= lr),
            (f"momentum should be >= 0 but is: {momentum}", 0.0 <= momentum),
            (f"weight decay should be >= 0 but is: {weight_decay}", 0.0 <= weight_decay),
            (
                f"Adjust learning rate function {adjust_lr_fn} is not supported",
                adjust_lr_fn in (None, "original", "match_rms_adamw"),
            ),
        ):
            if not fits:
                raise failure(ValueError, "optim", f"{text}", "change the value")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    problem = "Muon only supports 2D parameters whereas we found a parameter with "
                    problem += f"size: {parameter.size()}"
                    raise failure(ValueError, "optim", problem, "AdamW for the others")

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if parameter.is_complex():
            problem = "Muon does not support complex parameters"
            raise failure(RuntimeError, "optim", problem, "view_as_real")
        return {"momentum_buffer": zeros(parameter)}

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = (
            "lr", "weight_decay", "momentum", "nesterov", "ns_coefficients", "ns_steps", "eps",
            "adjust_lr_fn",
        )  # fmt: skip
        muon(
            params, grads, column(states, "momentum_buffer"), has_complex=False,
            **{name: group[name] for name in options},
        )  # fmt: skip


def muon(
    params: list[Tensor],
    grads: list[Tensor],
    muon_momentum_bufs: list[Tensor],
    *,
    foreach: bool | None = None,
    lr: float,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    ns_coefficients: tuple[float, float, float],
    ns_steps: int,
    eps: float,
    adjust_lr_fn: str | None,
    has_complex: bool,
) -> None:
    """One step of `Muon` on given buffers, in place.

    Raises:
        RuntimeError: `foreach`, which PyTorch has not either.
    """
    if foreach:
        raise RuntimeError("[optim] Foreach is not supported for Muon yet\nhint: foreach=None")
    rate = float(lr)
    for parameter, grad, buffer in zip(params, grads, muon_momentum_bufs, strict=True):
        buffer.lerp_(grad, 1 - momentum)
        update = grad.lerp(buffer, momentum) if nesterov else buffer
        update = _orthogonal(update, ns_coefficients, ns_steps, eps)
        rows, columns = parameter.shape
        if adjust_lr_fn == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        else:
            scale = math.sqrt(max(1, rows / columns))
        parameter.mul_(1 - rate * weight_decay)
        parameter.add_(update.to(parameter.dtype), alpha=-rate * scale)


def _orthogonal(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix of the same singular vectors with singular values of about 1, in bfloat16."""
    if steps >= 100:
        problem = "Number of steps must be less than 100 for computational efficiency"
        raise failure(ValueError, "optim", problem, "ns_steps=5")
    if len(coefficients) != 3:
        problem = "Coefficients must be a tuple of exactly 3 values"
        raise failure(ValueError, "optim", problem, "(a, b, c)")
    a, b, c = coefficients
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.to(flambeau.bfloat16)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = flambeau.addmm(x, flambeau.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
