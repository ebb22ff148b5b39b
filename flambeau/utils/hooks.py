"""`torch.utils.hooks`: handles of hooks, and what hooks mean for copies of tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.autograd.graph import RemovableHandle
from flambeau.ir.lock import late

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a hook of a tensor that is lost without a warning when the tensor is pickled."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warns of each hook of a tensor that pickling loses."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, "
                "you can decorate the function with @torch.utils.hooks.unserializable_hook to "
                "suppress this warning",
                stacklevel=2,
            )


class BackwardHook:
    """Calls functions with the gradients of a module's inputs and outputs.

    Args:
        module: passed to the functions.
        user_hooks: `hook(module, grad_input, grad_output)`, after the module's backward pass.
        user_pre_hooks: `hook(module, grad_output)`, before it.
    """

    def __init__(
        self, module: Any, user_hooks: Sequence[Any], user_pre_hooks: Sequence[Any]
    ) -> None:
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None

    def setup_input_hook(self, args: Any) -> Any:
        """The inputs, through a function that sees their gradients."""

        def after(gradients: tuple[Any, ...]) -> Any:
            for hook in self.user_hooks:
                replaced = hook(self.module, gradients, self.grad_outputs)
                gradients = gradients if replaced is None else _tuple(replaced)
            return gradients

        return self._through(args, after, post=True)

    def setup_output_hook(self, args: Any) -> Any:
        """The outputs, through a function that sees their gradients."""

        def before(gradients: tuple[Any, ...]) -> Any:
            for hook in self.user_pre_hooks:
                replaced = hook(self.module, gradients)
                gradients = gradients if replaced is None else _tuple(replaced)
            self.grad_outputs = gradients
            return gradients

        single = not isinstance(args, tuple)
        result = self._through((args,) if single else args, before, post=False)
        return result[0] if single else result

    def _through(self, args: tuple[Any, ...], function: Any, post: bool) -> tuple[Any, ...]:
        differentiable = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        if not differentiable or not torch.is_grad_enabled():
            return args
        results = iter(
            late("flambeau.nn.modules._functions").BackwardHookFunction.apply(*differentiable)
        )
        passed = tuple(
            next(results) if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args
        )
        node = next(a.grad_fn for a in passed if isinstance(a, torch.Tensor) and a.requires_grad)
        if post:
            node.register_hook(lambda grad_inputs, grad_outputs: function(grad_inputs))
        else:
            node.register_prehook(function)
        return passed


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
