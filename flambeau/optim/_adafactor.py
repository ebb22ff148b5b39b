"""Adafactor: second moments of matrices as products of row and column means (Shazeer & Stern)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim._elementwise import (
    ElementwiseOptimizer,
    advance,
    check_call,
    scaled_gradients,
    zeros,
)
from flambeau.optim.optimizer import ParamsT, check_lr, scalar_state

__all__ = ["Adafactor", "adafactor"]


class Adafactor(ElementwiseOptimizer):
    """Adafactor.

    A matrix's second moment is estimated from the running means of its rows and columns, which is
    all that is stored. The update is clipped to the root mean square d, and the rate grows with
    that of the parameter (Shazeer & Stern 2018, algorithms 4 and 5).

    Args:
        params: parameters or groups.
        lr: the greatest relative rate.
        beta2_decay: power of the step number that decays the averages.
        eps: regularizes squared gradients (None: the dtype's epsilon) and the parameter's scale.
        d: threshold of clipping.
        weight_decay: decoupled decay.
        foreach: accepted; there is one implementation.
        maximize: ascend.

    Raises:
        ValueError: a hyper-parameter is out of range.
        RuntimeError: a parameter is complex.

    Example:
        >>> p = torch.ones(2, 3, requires_grad=True)
        >>> optimizer = torch.optim.Adafactor([p], lr=0.1)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p[0]
        tensor([0.9000, 0.9000, 0.9000], grad_fn=<SelectBackward0>)
        >>> optimizer.state[p]["row_var"].shape
        torch.Size([2, 1])
    """

    _later_options = MappingProxyType({"foreach": None})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_lr(lr)
        for text, fits in (
            (f"Learning rate should be >= 0 but is: {lr}", 0.0 <= lr),
            (f"beta2_decay should be <= 0 but is: {beta2_decay}", 0.0 >= beta2_decay),
            (f"epsilon1 should be >= 0 but is: {eps[0]}", eps[0] is None or eps[0] >= 0.0),
            (f"epsilon2 should be >= 0 but is: {eps[1]}", eps[1] >= 0.0),
            (f"Clipping threshold d should be >= 1 but is: {d}", d >= 1.0),
            (f"weight_decay should be >= 0 but is: {weight_decay}", weight_decay >= 0.0),
        ):
            if not fits:
                raise failure(ValueError, "optim", f"{text}", "change the value")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if parameter.is_complex():
            problem = "Adafactor does not support complex parameters"
            raise failure(RuntimeError, "optim", problem, "view_as_real")
        state: dict[str, Any] = {"step": scalar_state(0.0)}
        if parameter.dim() < 2:
            return state | {"variance": zeros(parameter)}
        sizes = list(parameter.shape)
        return state | {
            "row_var": parameter.new_zeros([*sizes[:-1], 1]),
            "col_var": parameter.new_zeros([*sizes[:-2], 1, sizes[-1]]),
        }

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = ("foreach", "d", "lr", "beta2_decay", "weight_decay", "maximize")
        columns = (
            [state.get(name) for state in states] for name in ("row_var", "col_var", "variance")
        )
        adafactor(
            params, grads, *columns, [state["step"] for state in states],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            eps1=group["eps"][0], eps2=group["eps"][1],
            **{name: group[name] for name in options},
        )  # fmt: skip


def adafactor(
    params: list[Tensor],
    grads: list[Tensor],
    row_vars: list[Tensor | None],
    col_vars: list[Tensor | None],
    variances: list[Tensor | None],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    *,
    d: float,
    lr: float | Tensor,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
) -> None:
    """One step of `Adafactor` on given state, in place.

    Args:
        row_vars, col_vars: running means of squares of parameters with several axes, else None.
        variances: running squares of the others, else None.

    Example:
        >>> p = torch.ones(1)
        >>> torch.optim._adafactor.adafactor(
        ...     [p], [torch.ones(1)], [None], [None], [torch.zeros(1)], [torch.tensor(0.0)],
        ...     d=1.0, lr=0.1, beta2_decay=-0.8, weight_decay=0, eps1=None, eps2=1e-3,
        ...     maximize=False)
        >>> p
        tensor([0.9000])
    """
    check_call(state_steps, foreach, False, False)
    unscaled = scaled_gradients(grads, grad_scale, found_inf)
    if unscaled is None:
        return
    rate = float(lr)
    numbers = advance(state_steps)
    rows = zip(params, unscaled, row_vars, col_vars, variances, numbers, strict=True)
    for parameter, grad, *state, number in rows:
        grad = -grad if maximize else grad
        share = number**beta2_decay
        relative = min(rate, 1 / number**0.5)
        size = parameter.norm(2) / parameter.numel() ** 0.5
        change_rate = size.clamp(min=eps2) * relative
        if weight_decay != 0:
            parameter.mul_(1 - rate * weight_decay)
        least = flambeau.finfo(parameter.dtype).eps if eps1 is None else eps1
        update = _estimate(grad, state, share, least).clamp_(min=least * least).rsqrt_().mul_(grad)
        clip = (update.norm(2) / (update.numel() ** 0.5 * d)).clamp(min=1.0)
        parameter.sub_(update * (change_rate / clip))


def _estimate(grad: Tensor, state: list[Any], share: float, least: float) -> Tensor:
    """Moves the running means by `share`, and returns the second moment that they give."""
    row, col, variance = state
    if variance is not None:
        variance.lerp_(grad.square(), share)
        return variance.clone()
    row.lerp_(grad.norm(dim=-1, keepdim=True).square_().div_(grad.size(-1)), share)
    col.lerp_(grad.norm(dim=-2, keepdim=True).square_().div_(grad.size(-2)), share)
    return (row @ col).div_(row.mean(dim=-2, keepdim=True).clamp_(min=least))
