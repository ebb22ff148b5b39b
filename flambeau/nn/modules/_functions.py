"""Differentiable functions behind some modules, under PyTorch's private names."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.autograd.function import Function
from flambeau.nn import functional as F  # noqa: N812

__all__ = ["BackwardHookFunction", "CrossMapLRN2d", "SyncBatchNorm"]


class CrossMapLRN2d(Function):
    """Local response norm of `(N, C, H, W)`, over a window of channels around each one.

    PyTorch's sums of squares hold channel 0 in every later window, and its gradient has windows of
    its own; here value and gradient are those of the definition.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1
    ) -> Any:
        """`F.local_response_norm`.

        Raises:
            ValueError: not four dimensions.
        """
        if input.dim() != 4:
            raise ValueError(
                f"[CrossMapLRN2d] Expected input to be 4D, got {input.dim()}D instead\n"
                "hint: (N, C, H, W); LocalResponseNorm takes more"
            )
        ctx.save_for_backward(input)
        ctx.options = size, alpha, beta, k
        return F.local_response_norm(input, *ctx.options)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        """The gradient of the input, which may be differentiated again."""
        (x,) = ctx.saved_tensors
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if again else x.detach().requires_grad_()
            result = F.local_response_norm(x, *ctx.options)
        (grad,) = torch.autograd.grad(result, x, grad_output, create_graph=again)
        return grad, None, None, None, None


class SyncBatchNorm:
    """Batch norm of one process."""

    @staticmethod
    def apply(
        input: Any,
        weight: Any,
        bias: Any,
        running_mean: Any,
        running_var: Any,
        eps: float,
        momentum: float,
        process_group: Any = None,
        world_size: int = 1,
    ) -> Any:
        """`F.batch_norm` in training.

        Raises:
            NotImplementedError: more than one process.
        """
        if world_size != 1:
            raise NotImplementedError(
                f"[SyncBatchNorm] statistics of {world_size} processes\nhint: use one process"
            )
        return F.batch_norm(input, running_mean, running_var, weight, bias, True, momentum, eps)


class BackwardHookFunction(Function):
    """The identity, as one node of the graph of gradients."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Views of the arguments."""
        ctx.mark_non_differentiable(*(arg for arg in args if not arg.requires_grad))
        return tuple(arg.view_as(arg) for arg in args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        """The gradients as they are."""
        return args
