"""Hooks: the tables of global ones, and the identity function through which backward hooks see
gradients.

A module's own hooks are ordered dicts on the module (`_forward_hooks`, ...); this file holds the
same tables for all modules. `Module.__call__` asks only whether any table is filled.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau._core import Tensor
from flambeau.autograd.graph import RemovableHandle
from flambeau.nn.messages import problem

__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

Hook = Callable[..., Any]

_global_backward_pre_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_backward_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_forward_pre_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_forward_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_buffer_registration_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[int, Hook] = OrderedDict()


class _Kind:
    """The kind of the global backward hooks: full, old, or none yet (None)."""

    full: bool | None = None


def add_hook(table: OrderedDict[int, Hook], hook: Hook, *extra: Any) -> RemovableHandle:
    """Appends a hook; its id also leaves the tables `extra` when the handle is removed."""
    handle = RemovableHandle(table, extra_dict=list(extra) if extra else None)
    table[handle.id] = hook
    return handle


def _has_any_global_hook() -> bool:
    """Whether some global hook takes part in calls."""
    return bool(
        _global_backward_pre_hooks
        or _global_backward_hooks
        or _global_forward_pre_hooks
        or _global_forward_hooks
    )


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, name, buffer)` runs when any module registers a buffer; it may replace it."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, name, submodule)` runs when any module registers a module."""
    return add_hook(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, name, parameter)` runs when any module registers a parameter."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, args)` runs before every module's forward; it may return new arguments."""
    return add_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """`hook(module, args, output)` runs after every module's forward; it may return a new output.

    Args:
        with_kwargs: the hook is `hook(module, args, kwargs, output)`.
        always_call: the hook also runs when forward raised.
    """
    handle = add_hook(
        _global_forward_hooks,
        hook,
        _global_forward_hooks_with_kwargs,
        _global_forward_hooks_always_called,
    )
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, grad_output)` runs before every module's gradients are computed."""
    return add_hook(_global_backward_pre_hooks, hook)


def _set_global_kind(full: bool) -> None:
    if _Kind.full is (not full):
        raise RuntimeError(
            problem(
                "register_module_full_backward_hook" if full else "register_module_backward_hook",
                "Cannot use both regular backward hooks and full backward hooks as a global "
                "Module hook. Please use only one of them.",
                "use full backward hooks",
            )
        )
    _Kind.full = full


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, grad_input, grad_output)` runs when a module's input gradients are there."""
    _set_global_kind(True)
    return add_hook(_global_backward_hooks, hook)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """The old form of `register_module_full_backward_hook`: sees only the last operation."""
    _set_global_kind(False)
    return add_hook(_global_backward_hooks, hook)


# ------------------------------------------------------------------------------ backward hooks
@functools.cache
def _boundary() -> Any:
    """An identity whose node stands for a module's inputs or outputs in the autograd graph."""
    from flambeau.autograd import Function

    class BackwardHookFunction(Function):
        """Passes its tensors on."""

        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.mark_non_differentiable(*(t for t in tensors if not t.requires_grad))
            return tensors

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients

    return BackwardHookFunction


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class BackwardHook:
    """Runs a module's full backward hooks during one backward.

    The inputs' boundary delivers `grad_input`, the outputs' boundary `grad_output`; the hooks run
    when both are there. Used by wrapping the inputs before forward and the outputs after it.
    """

    def __init__(self, module: Any, user_hooks: Sequence[Hook], pre_hooks: Sequence[Hook]) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.input_tensors_index: list[int] | None = None
        self.output_tensors_index: list[int] | None = None
        self.n_inputs = -1
        self.n_outputs = -1

    @staticmethod
    def _spread(size: int, positions: Sequence[int] | None, values: Sequence[Any]) -> Any:
        spread: list[Any] = [None] * size
        for position, value in zip(positions or (), values):
            spread[position] = value
        return tuple(spread)

    @staticmethod
    def _gather(values: Sequence[Any], positions: Sequence[int] | None, length: int) -> Any:
        if len(values) != length:
            raise RuntimeError(
                problem(
                    "backward hook",
                    f"Backward hook returned an invalid number of grad_input, got {len(values)}, "
                    f"but expected {length}",
                    "return one gradient per input, None where there is none",
                )
            )
        return tuple(values[position] for position in positions or ())

    def _wrap(self, install: Callable[[Any], None], args: Sequence[Any]) -> Any:
        """Passes the tensors of `args` through a boundary; None when no gradient will come."""
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        wanted = _core.is_grad_enabled() and any(args[i].requires_grad for i in places)
        if not wanted:
            return args, None
        passed = _boundary().apply(*(args[i] for i in places))
        passed = _as_tuple(passed)
        nodes = [t.grad_fn for t in passed if t.grad_fn is not None]
        if not nodes:
            raise RuntimeError(
                problem(
                    "backward hook",
                    "Error while setting up backward hooks.",
                    "report this with the module that failed",
                )
            )
        install(nodes[0])
        result = list(args)
        for place, tensor in zip(places, passed):
            result[place] = tensor
        return tuple(result), places

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Wraps the arguments of forward."""

        def install(node: Any) -> None:
            def hook(grad_input: Any, _: Any) -> Any:
                if self.grad_outputs is None:  # the outputs' gradient has not come by
                    return None
                return self._run_hooks(_as_tuple(grad_input))

            node.register_hook(hook)

        wrapped, places = self._wrap(install, args)
        self.n_inputs, self.input_tensors_index = len(args), places
        return wrapped

    def _run_hooks(self, grad_input: tuple[Any, ...]) -> Any:
        current = self._spread(self.n_inputs, self.input_tensors_index, grad_input)
        result = None
        for hook in self.user_hooks:
            out = hook(self.module, current, self.grad_outputs)
            if out is None:
                continue
            current = _as_tuple(out)
            result = self._gather(current, self.input_tensors_index, self.n_inputs)
        self.grad_outputs = None
        return result

    def setup_output_hook(self, args: Any) -> Any:
        """Wraps what forward returned (a tensor or a tuple of them)."""

        def install(node: Any) -> None:
            def hook(grad_output: Any) -> Any:
                return self._run_pre_hooks(_as_tuple(grad_output))

            node.register_prehook(hook)

        single = not isinstance(args, tuple)
        values = (args,) if single else args
        wrapped, places = self._wrap(install, values)
        self.n_outputs, self.output_tensors_index = len(values), places
        return wrapped[0] if single else wrapped

    def _run_pre_hooks(self, grad_output: tuple[Any, ...]) -> Any:
        self.grad_outputs = self._spread(self.n_outputs, self.output_tensors_index, grad_output)
        changed = False
        for hook in self.user_pre_hooks:
            out = hook(self.module, self.grad_outputs)
            if out is None:
                continue
            values = _as_tuple(out)
            self._gather(values, self.output_tensors_index, self.n_outputs)
            self.grad_outputs, changed = values, True
        if self.input_tensors_index is None:  # no input wants a gradient: nothing will come later
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients.",
                stacklevel=5,
            )
            absent = (None,) * self.n_inputs
            for hook in self.user_hooks:
                out = hook(self.module, absent, self.grad_outputs)
                if out is not None and any(part is not None for part in _as_tuple(out)):
                    raise RuntimeError(
                        problem(
                            "backward hook",
                            "Backward hook for Modules where no input requires gradient should "
                            "always return None or None for all gradients.",
                            "return None",
                        )
                    )
        outputs, local = self.grad_outputs, changed
        if self.input_tensors_index is None:
            self.grad_outputs = None
        return self._gather(outputs, self.output_tensors_index, self.n_outputs) if local else None


def warn_old_backward_hook(inputs: Any, result: Any, grad_fn: Any) -> None:
    """Warns where an old backward hook sees less than the module's gradients."""
    results = _as_tuple(result)
    if not all(isinstance(r, Tensor) for r in results) or not all(
        isinstance(i, Tensor) for i in _as_tuple(inputs)
    ):
        text = "does not take as input a single Tensor or a tuple of Tensors"
    elif len(results) > 1 and len({id(r.grad_fn) for r in results}) != 1:
        text = "does not output tensors of one autograd node"
    else:
        known = {id(i.grad_fn) for i in _as_tuple(inputs) if i.grad_fn is not None}
        following = {id(n[0]) for n in getattr(grad_fn, "next_functions", ()) if n[0] is not None}
        if following == known:
            return
        text = "has a forward that contains multiple autograd Nodes"
    warnings.warn(
        f"Using a non-full backward hook when the module {text} is deprecated and will be removed "
        "in future versions. The hook may miss some gradients. Please use "
        "register_full_backward_hook to get the documented behavior.",
        FutureWarning,
        stacklevel=3,
    )
