"""`autograd.Function`: operations whose backward the user writes.

The context that `forward` and `backward` get *is* the graph's node: a subclass of the native Node
with the user's attributes on it. The node stores saved tensors like those of any operation.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau._core import Node
from flambeau.ir.lock import importing, loaded
from flambeau.runtime import boundaries

Tensor = Any

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]


_EDGES: Any = vars(Node)["next_functions"]  # one per argument


class FunctionCtx(Node):  # type: ignore[misc]
    """The state that `forward`, `setup_context` and `backward` of one call share.

    Attributes:
        needs_input_grad: per argument of `forward`, whether its gradient is wanted.
        saved_tensors: what `save_for_backward` was given.
        materialize_grads: whether absent output gradients reach `backward` as zeros.
    """

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads: bool = True
    to_save: tuple[Any, ...] = ()
    saved_for_forward: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    _finished: bool = False
    _operands: tuple[int, ...] = ()  # which arguments are tensors

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """((node | None, input number), ...) of the tensors among the arguments."""
        pairs = _EDGES.__get__(self)
        return tuple([pairs[k] for k in self._operands])

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `backward`; call once. None entries are allowed."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `jvp`."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, _core.Tensor):
                raise TypeError(
                    "[save_for_forward] save_for_forward expects all arguments to be tensors; you "
                    "should save non-tensors as attributes on ctx\nhint: ctx.value = value"
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs `forward` wrote in place; they must be returned."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self.non_differentiable = tensors

    def mark_shared_storage(self, *pairs: tuple[Tensor, Tensor]) -> None:
        """Accepted and ignored, as in PyTorch: storages are known."""

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` sees zeros (True, the default) or None for absent gradients."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to `save_for_backward`.

        Raises:
            RuntimeError: one was written in place since, or they were freed by a backward.
        """
        if not self._finished:
            return self.to_save or self.saved_for_forward
        saved: tuple[Tensor | None, ...] = self._saved_tensors
        return saved

    @property
    def saved_variables(self) -> tuple[Tensor | None, ...]:
        """The old name of `saved_tensors`."""
        return self.saved_tensors


class BackwardCFunction(FunctionCtx):
    """Base of the contexts: its `apply` is what the engine calls."""

    _forward_cls: type[Function]
    __repr__ = object.__repr__  # as any object's; nodes of operators are printed by their names

    def apply(self, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the user's backward on the gradients of the outputs."""
        cls = self._forward_cls
        has_vjp = cls.vjp is not Function.vjp
        if has_vjp and cls.backward is not Function.backward:
            raise RuntimeError(
                f"[{cls.__name__}] Implementing both 'backward' and 'vjp' for a custom Function is "
                "not allowed\nhint: keep one of them"
            )
        cotangents: Sequence[Tensor | None] = grads
        if self.materialize_grads:
            cotangents = [
                _core.node_zeros(self, i) if grad is None else grad for i, grad in enumerate(grads)
            ]
        returned = (cls.vjp if has_vjp else cls.backward)(self, *cotangents)
        return self._checked(returned)

    def _checked(self, returned: Any) -> tuple[Tensor | None, ...]:
        """One gradient per argument of forward; superfluous None at the end are dropped."""
        values = returned if isinstance(returned, tuple) else (returned,)
        if isinstance(returned, list):
            values = tuple(returned)
        expected = len(self.needs_input_grad)
        if len(values) > expected and all(v is None for v in values[expected:]):
            values = values[:expected]
        if len(values) != expected:
            raise RuntimeError(
                f"[backward] function {Node.name(self)} returned an incorrect number of gradients "
                f"(expected {expected}, got {len(values)})\nhint: one per argument of forward, "
                "None for those without a gradient"
            )
        for index, value in enumerate(values):
            if value is None:
                continue
            if not isinstance(value, _core.Tensor):
                raise RuntimeError(
                    f"[backward] expected Variable or None (got {type(value).__name__}): gradient "
                    f"{index} of {Node.name(self)}\nhint: return a tensor"
                )
        return values

    def apply_jvp(self, *tangents: Tensor | None) -> Any:
        """Run the user's `jvp`."""
        return self._forward_cls.jvp(self, *tangents)


class FunctionMeta(type):
    """Gives each Function class its context class, `<name>Backward`."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls})


class Function(metaclass=FunctionMeta):
    """Base class of user-defined differentiable operations.

    Write `forward(ctx, *args)` and `backward(ctx, *grads)` as static methods, or `forward(*args)`,
    `setup_context(ctx, inputs, output)` and `backward`; call the class's `apply`.

    Example:
        >>> class Cube(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x ** 3
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return grad * 3 * x ** 2
        >>> y = Cube.apply(torch.ones(2, requires_grad=True))
    """

    _backward_cls: type[BackwardCFunction]
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"[{type(self).__name__}] functions are not instantiated. hint: write forward and "
            "backward as static methods and call .apply",
            DeprecationWarning,
            stacklevel=2,
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result; takes ctx first unless `setup_context` is defined."""
        raise NotImplementedError(
            "[Function] You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save on *ctx* what `backward` needs, when `forward` takes no ctx."""
        raise NotImplementedError("[Function] setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Return the gradients of the arguments of forward."""
        raise NotImplementedError(
            "[Function] You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name for `backward`."""
        raise NotImplementedError("[Function] vjp is not implemented.")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return the tangents of the outputs (forward mode)."""
        raise NotImplementedError(
            "[Function] You must implement the jvp function for custom autograd.Function to use it "
            "with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """How to batch the function."""
        raise NotImplementedError(
            "[Function] To use autograd.Function with vmap, you must either override the vmap "
            "staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on the arguments and record the call.

        Arguments may be anything; gradients flow to those that are tensors themselves (not to
        tensors inside lists or dicts).
        """
        if boundaries.local.recorder is not None:
            return boundaries.outside(cls.__name__, lambda: cls.apply(*args, **kwargs))
        if _transformed(args):
            with importing:
                from flambeau.autograd.transforms import custom

            return custom.apply(cls, args, kwargs)
        ctx = cls._backward_cls()
        separate = cls.setup_context is not Function.setup_context
        ctx.needs_input_grad = _core.function_begin(ctx, args)
        ctx._operands = tuple([k for k, x in enumerate(args) if isinstance(x, _core.Tensor)])
        tracked = any(ctx.needs_input_grad)
        with _core.no_grad():
            if separate:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        return _finish(ctx, args, output, tracked)


def _transformed(args: tuple[Any, ...]) -> bool:
    """Whether arguments belong to a transformation (`vmap`, `jvp`) that is being run."""
    wrappers = loaded("flambeau.autograd.transforms.wrappers")
    return wrappers is not None and any(isinstance(x, wrappers.Wrapper) for x in args)


def _finish(ctx: BackwardCFunction, args: tuple[Any, ...], output: Any, tracked: bool) -> Any:
    """Gives the outputs their history; a single output stays single."""
    single = not isinstance(output, (tuple, list))
    outputs = (output,) if single else tuple(output)
    results = _core.function_finish(
        ctx,
        args,
        outputs,
        ctx.to_save,
        ctx.dirty_tensors,
        ctx.non_differentiable,
        tracked,
    )
    if tracked:
        ctx.to_save = ()
        ctx._finished = True
    ctx.dirty_tensors = ctx.non_differentiable = ()
    return results[0] if single else results


class InplaceFunction(Function):
    """Old base class of functions with an `inplace` switch, for code that derives from it."""


class NestedIOFunction(Function):
    """Old base class of functions on nested structures: use Function on flat arguments instead."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Not supported."""
        raise NotImplementedError(
            "[NestedIOFunction] is deprecated\nhint: pass tensors as plain arguments of Function"
        )


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a `backward` that cannot be differentiated again.

    The results get a history that raises as soon as somebody differentiates them.
    """

    @functools.wraps(fn)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with _core.no_grad():
            outputs = fn(ctx, *grads)
        if not _core.is_grad_enabled():
            return outputs
        if not any(isinstance(g, _core.Tensor) and g.requires_grad for g in grads):
            return outputs
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        marked = tuple(
            None if v is None else _NotAgain.apply(v.detach(), _anchor(v)) for v in values
        )
        return marked if isinstance(outputs, tuple) else marked[0]

    return wrapper


def refuse_again(grad: Tensor, name: str, operand: Tensor) -> Tensor:
    """A gradient whose own derivative raises; the engine calls it under create_graph.

    Args:
        grad: what the derivative of an operator gave.
        name: of the tape node that made it.
        operand: where the gradient goes, to which a derivative of it would lead.
    """
    return _NotAgain.apply(grad.detach(), operand, name)


def _anchor(value: Tensor) -> Tensor:
    """A tensor that requires grad, so that the marker is recorded."""
    return value.new_zeros(()).requires_grad_()


class _NotAgain(Function):
    """Identity whose backward raises."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, anchor: Tensor, name: str = "") -> Tensor:
        ctx.name_of_node = name
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if ctx.name_of_node:
            raise RuntimeError(
                f"[backward] derivative for {ctx.name_of_node} is not implemented\n"
                "hint: there are first derivatives alone, as in PyTorch"
            )
        raise RuntimeError(
            "[backward] trying to differentiate twice a function that was marked with "
            "@once_differentiable\nhint: write its backward with differentiable operations"
        )
