"""`Module`: the base of every layer and model.

The class is assembled from three parts: what a module owns (`registry`), how it is saved (`state`),
and, here, what it does: calls with hooks, conversions, modes. Calling a module without hooks costs
one check of five dictionaries.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import flambeau as torch
from flambeau import _core
from flambeau._core import Tensor
from flambeau.autograd import no_grad
from flambeau.autograd.graph import RemovableHandle
from flambeau.ir.lock import importing, late, loaded
from flambeau.nn.messages import problem
from flambeau.nn.modules.hooks import (  # noqa: F401 - some are only public here
    BackwardHook,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    _has_any_global_hook,
    _Kind,
    add_hook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    warn_old_backward_hook,
)
from flambeau.nn.modules.registry import Registry
from flambeau.nn.modules.state import (  # noqa: F401
    _EXTRA_STATE_KEY_SUFFIX,
    State,
    _IncompatibleKeys,
    _WrappedHook,
)
from flambeau.nn.parameter import Buffer, Parameter, reset_gradient  # noqa: F401

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

Self = TypeVar("Self", bound="Module")
_HOOK_TABLES = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _addindent(text: str, count: int) -> str:
    """Indents all lines but the first."""
    return text.replace("\n", "\n" + " " * count)


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """Computes a call; every subclass defines its own."""
    raise NotImplementedError(
        problem(
            "forward",
            f'Module [{type(self).__name__}] is missing the required "forward" function',
            "define forward(self, ...)",
        )
    )


class Module(Registry, State):
    """Base class of all modules.

    Subclasses call `super().__init__()`, assign parameters and submodules as attributes and define
    `forward`.

    Attributes:
        training: whether the module is in training mode (True at first).

    Example:
        >>> class Double(nn.Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> Double()(torch.ones(2))
        tensor([2., 2.])
    """

    dump_patches: bool = False
    T_destination = TypeVar("T_destination", bound=dict[str, Any])
    training: bool
    call_super_init: bool = False
    _compiled_call_impl: Callable[..., Any] | None = None
    _is_full_backward_hook: bool | None
    _backward_pre_hooks: OrderedDict[int, Any]
    _backward_hooks: OrderedDict[int, Any]
    _forward_hooks: OrderedDict[int, Any]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: OrderedDict[int, Any]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.call_super_init is False and (args or kwargs):
            name = f"{type(self).__name__}.__init__()"
            if kwargs:
                raise TypeError(f"{name} got an unexpected keyword argument '{next(iter(kwargs))}'")
            raise TypeError(f"{name} takes 1 positional argument but {len(args) + 1} were given")
        members = self.__dict__
        members["training"] = True
        members["_parameters"] = {}
        members["_buffers"] = {}
        members["_non_persistent_buffers_set"] = set()
        members["_is_full_backward_hook"] = None
        for table in _HOOK_TABLES:
            members[table] = OrderedDict()
        members["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    # ------------------------------------------------------------------------ calls
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `forward`, with the hooks around it where there are any."""
        members = self.__dict__
        if (
            members["_forward_hooks"]
            or members["_forward_pre_hooks"]
            or members["_backward_hooks"]
            or members["_backward_pre_hooks"]
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
            or "_compiled_call_impl" in members
        ):
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def _wrapped_call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    def _slow_forward(self, *input: Any, **kwargs: Any) -> Any:
        return self.forward(*input, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """The call with every hook."""
        always = _global_forward_hooks_always_called or self._forward_hooks_always_called
        if not always:
            return self._hooked(args, kwargs, set())
        done: set[int] = set()
        try:
            return self._hooked(args, kwargs, done)
        except Exception:
            self._run_always_called(args, kwargs, done)
            raise

    def _hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any], done: set[int]) -> Any:
        args, kwargs = self._run_pre_hooks(args, kwargs)
        full, old = self._get_backward_hooks()
        pre = self._get_backward_pre_hooks()
        boundary = BackwardHook(self, full, pre) if full or pre else None
        if boundary is not None:
            args = boundary.setup_input_hook(args)
        result = self.forward(*args, **kwargs)
        tables = (
            (_global_forward_hooks, _global_forward_hooks_with_kwargs),
            (self._forward_hooks, self._forward_hooks_with_kwargs),
        )
        for hooks, with_kwargs in tables:
            for key, hook in tuple(hooks.items()):
                done.add(key)
                given = (args, kwargs, result) if key in with_kwargs else (args, result)
                changed = hook(self, *given)
                result = result if changed is None else changed
        if boundary is not None:
            if isinstance(result, (Tensor, tuple)):
                result = boundary.setup_output_hook(result)
            else:
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple "
                    f"of Tensors but received {type(result)}",
                    stacklevel=4,
                )
        if old:
            self._attach_old_hooks(old, args, result)
        return result

    def _run_pre_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        hooks = (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items())
        for key, hook in hooks:
            if key in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(
                        problem(
                            "forward_pre_hook",
                            "forward pre-hook must return None or a tuple of (new_args, "
                            f"new_kwargs), but got {changed}.",
                            "return (args, kwargs)",
                        )
                    )
                args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        return args, kwargs

    def _run_always_called(self, args: Any, kwargs: Any, done: set[int]) -> None:
        """After forward raised: the hooks that want to run all the same and have not yet."""
        tables = (
            (
                _global_forward_hooks,
                _global_forward_hooks_always_called,
                _global_forward_hooks_with_kwargs,
            ),
            (
                self._forward_hooks,
                self._forward_hooks_always_called,
                self._forward_hooks_with_kwargs,
            ),
        )
        for hooks, always, with_kwargs in tables:
            for key, hook in tuple(hooks.items()):
                if key not in always or key in done:
                    continue
                try:
                    hook(self, *((args, kwargs, None) if key in with_kwargs else (args, None)))
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that "
                        f"was silenced as another error was raised in forward: {error}",
                        stacklevel=3,
                    )

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        """Full backward hooks and old ones, global ones first."""
        full: list[Any] = []
        old: list[Any] = []
        if _global_backward_hooks:
            (full if _Kind.full else old).extend(_global_backward_hooks.values())
        if self._backward_hooks:
            (full if self._is_full_backward_hook else old).extend(self._backward_hooks.values())
        return full, old

    def _get_backward_pre_hooks(self) -> list[Any]:
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _attach_old_hooks(self, hooks: Sequence[Any], args: Any, result: Any) -> None:
        first = result
        while not isinstance(first, Tensor):
            values = first.values() if isinstance(first, dict) else first
            first = next((v for v in values if isinstance(v, Tensor)), next(iter(values)))
        if first.grad_fn is None:
            return
        for hook in hooks:
            wrapper = functools.partial(hook, self)
            functools.update_wrapper(wrapper, hook)
            first.grad_fn.register_hook(wrapper)
        self._maybe_warn_non_full_backward_hook(args, result, first.grad_fn)

    def _maybe_warn_non_full_backward_hook(self, inputs: Any, result: Any, grad_fn: Any) -> None:
        warn_old_backward_hook(inputs, result, grad_fn)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles this module's call in place; arguments are those of `torch.compile`."""
        with importing:
            from flambeau.capture.regions import compile as compile_callable

        self._compiled_call_impl = compile_callable(self._call_impl, *args, **kwargs)

    # ------------------------------------------------------------------------ hooks
    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """`hook(module, args)` runs before forward; it may return new arguments.

        Args:
            prepend: run before the hooks that are there.
            with_kwargs: the hook is `hook(module, args, kwargs)` and returns both or None.
        """
        handle = add_hook(self._forward_pre_hooks, hook, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """`hook(module, args, output)` runs after forward; it may return a new output.

        Args:
            prepend: run before the hooks that are there.
            with_kwargs: the hook is `hook(module, args, kwargs, output)`.
            always_call: the hook also runs when forward raised.
        """
        handle = add_hook(
            self._forward_hooks,
            hook,
            self._forward_hooks_with_kwargs,
            self._forward_hooks_always_called,
        )
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """`hook(module, grad_output)` runs before the module's backward; may replace it."""
        handle = add_hook(self._backward_pre_hooks, hook)
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` runs when the input gradients are there.

        Raises:
            RuntimeError: the module has old backward hooks.
        """
        self._set_backward_kind(True)
        handle = add_hook(self._backward_hooks, hook)
        if prepend:
            self._backward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The old form of `register_full_backward_hook`: sees only the last operation."""
        self._set_backward_kind(False)
        return add_hook(self._backward_hooks, hook)

    def _set_backward_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                problem(
                    "register_full_backward_hook" if full else "register_backward_hook",
                    "Cannot use both regular backward hooks and full backward hooks on a single "
                    "Module. Please use only one of them.",
                    "use full backward hooks",
                )
            )
        self._is_full_backward_hook = full

    # ------------------------------------------------------------------------ conversions
    def _apply(self: Self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Replaces every parameter, gradient and buffer by `fn` of it, in place where it can."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._apply_to_parameter(name, parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _apply_to_parameter(self, name: str, parameter: Any, fn: Callable[[Any], Any]) -> None:
        with no_grad():
            applied = fn(parameter)
            future = loaded("flambeau.__future__")
            if future is not None and future.get_swap_module_params_on_conversion():
                self._swap(parameter, applied, fn)
                return
            kept = applied.device == parameter.device
            kept &= future is None or not future.get_overwrite_module_params_on_conversion()
            if kept:
                parameter.data = applied
                owner = parameter
            else:
                owner = Parameter(applied, requires_grad=parameter.requires_grad)
                self._parameters[name] = owner
            if parameter.grad is not None:
                gradient = fn(parameter.grad)
                if kept:
                    parameter.grad.data = gradient
                else:
                    owner.grad = gradient.requires_grad_(parameter.grad.requires_grad)

    @staticmethod
    def _swap(parameter: Any, applied: Any, fn: Callable[[Any], Any]) -> None:
        """Exchanges a parameter with its converted form, and likewise their gradients."""
        swap = late("flambeau.utils.swapping").swap_tensors
        gradient = None if parameter.grad is None else fn(parameter.grad)
        needed = parameter.requires_grad
        replacement = applied if isinstance(applied, Parameter) else Parameter(applied, needed)
        parameter.grad = None
        swap(parameter, replacement)
        parameter.grad = gradient

    def apply(self: Self, fn: Callable[[Any], None]) -> Self:
        """Calls `fn` with every submodule, then with this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Moves or converts parameters and buffers: `to(device)`, `to(dtype)`, `to(tensor)`.

        Args:
            device, dtype: where to, and which floating dtype; integer tensors keep theirs.
            non_blocking: accepted.
            memory_format: of 4- and 5-dimensional tensors.

        Raises:
            TypeError: the dtype is not a floating or complex one.
        """
        device, dtype, non_blocking, memory_format = parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                problem(
                    "to",
                    "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                    f"dtype={dtype}",
                    "convert single tensors",
                )
            )

        def convert(t: Any) -> Any:
            target = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device or t.device, target or t.dtype, non_blocking,
                            memory_format=memory_format)  # fmt: skip
            return t.to(device or t.device, target or t.dtype, non_blocking)

        return self._apply(convert)

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Moves to a device without copying values."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def type(self: Self, dst_type: Any) -> Self:  # noqa: A003
        """Converts all parameters and buffers to a dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: Self) -> Self:  # noqa: A003
        """Converts floating parameters and buffers to float32."""
        return self._to_floating(_core.float32)

    def double(self: Self) -> Self:
        """Converts floating parameters and buffers to float64."""
        return self._to_floating(_core.float64)

    def half(self: Self) -> Self:
        """Converts floating parameters and buffers to float16."""
        return self._to_floating(_core.float16)

    def bfloat16(self: Self) -> Self:
        """Converts floating parameters and buffers to bfloat16."""
        return self._to_floating(_core.bfloat16)

    def _to_floating(self: Self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def cpu(self: Self) -> Self:
        """Moves parameters and buffers to the CPU."""
        return self._apply(lambda t: t.to("cpu"))

    def cuda(self: Self, device: Any = None) -> Self:
        """Moves to a CUDA device.

        Raises:
            AssertionError: this build has none.
        """
        return self._absent("cuda", "CUDA")

    def xpu(self: Self, device: Any = None) -> Self:
        """Moves to an XPU device; there is none."""
        return self._absent("xpu", "XPU")

    def ipu(self: Self, device: Any = None) -> Self:
        """Moves to an IPU device; there is none."""
        return self._absent("ipu", "IPU")

    def mtia(self: Self, device: Any = None) -> Self:
        """Moves to an MTIA device; there is none."""
        return self._absent("mtia", "MTIA")

    def _absent(self: Self, op: str, name: str) -> Self:
        raise AssertionError(problem(op, f"Torch not compiled with {name} enabled", "use .cpu()"))

    def share_memory(self: Self) -> Self:
        """Moves parameters and buffers to memory that processes share."""
        return self._apply(lambda t: t.share_memory_())

    # ------------------------------------------------------------------------ modes
    def train(self: Self, mode: bool = True) -> Self:
        """Sets training mode here and below.

        Raises:
            ValueError: `mode` is not a bool.
        """
        if not isinstance(mode, bool):
            raise ValueError(
                problem("train", "training mode is expected to be boolean", "True or False")
            )
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:  # noqa: A003
        """Sets evaluation mode here and below: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Sets whether the parameters want gradients."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or (set_to_none=False) zeroes them."""
        for parameter in self.parameters():
            reset_gradient(parameter, set_to_none)

    # ------------------------------------------------------------------------ text and pickling
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Returns the text between the parentheses of the module's text; override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [
            f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()
        ]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        if not lines and not children:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join((*lines, *children)) + "\n)"

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def _replicate_for_data_parallel(self) -> Any:
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica.__dict__["_parameters"] = {}
        replica.__dict__["_buffers"] = self._buffers.copy()
        replica.__dict__["_modules"] = self._modules.copy()
        replica.__dict__["_is_replica"] = True
        return replica


def parse_to(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    """Reads the arguments of `to`: device, dtype, non_blocking, memory_format."""
    rest = list(args)
    options = dict(kwargs)
    memory_format = options.pop("memory_format", None)
    device, dtype = options.pop("device", None), options.pop("dtype", None)
    other = options.pop("tensor", options.pop("other", None))
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    if other is not None:
        device, dtype = other.device, other.dtype
    elif rest and not isinstance(rest[0], _core.dtype):
        device = rest.pop(0)
    if rest and isinstance(rest[0], _core.dtype):
        dtype = rest.pop(0)
    elif rest and rest[0] is None:
        rest.pop(0)
    non_blocking = options.pop("non_blocking", rest.pop(0) if rest else False)
    options.pop("copy", None)
    if rest or options or not isinstance(non_blocking, (bool, int)):
        raise TypeError(
            problem(
                "to",
                "to() received an invalid combination of arguments",
                "to(device=None, dtype=None, non_blocking=False), to(dtype), to(tensor)",
            )
        )
    if isinstance(device, (str, int)):
        device = _core.device(device)
    return device, dtype, bool(non_blocking), memory_format
