"""`torch.overrides`: functions that take `__torch_function__`, and modes that see every call.

The native core checks in one place, for all operators, whether a mode or a type overrides a call
(docs/design.md § 10d). This module has the public side: the modes' base class, the two functions
with which users make functions of their own overridable, and lists of overridable functions.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau.core import install

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "redispatch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]

Function = Callable[..., Any]


# ------------------------------------------------------------------------------ modes
class TorchFunctionMode:
    """A `with` block in which every public function calls this object first.

    Derive a class and define `__torch_function__(self, func, types, args=(), kwargs=None)`. While
    it runs the mode is off: what it calls goes to the mode that was entered before, if any.

    Example:
        >>> from torch.overrides import TorchFunctionMode
        >>> class Counting(TorchFunctionMode):
        ...     calls = 0
        ...     def __torch_function__(self, func, types, args=(), kwargs=None):
        ...         self.calls += 1
        ...         return func(*args, **(kwargs or {}))
        >>> with Counting() as mode:
        ...     y = torch.ones(2) + 1
        >>> mode.calls
        2
    """

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Computes a call in this mode; NotImplemented defers to the types of the arguments."""
        raise NotImplementedError(
            f"[{type(self).__name__}] a mode defines __torch_function__\n"
            "hint: return func(*args, **(kwargs or {})) where nothing changes"
        )

    def __enter__(self) -> Any:
        _core.push_function_mode(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _core.pop_function_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The old name of calling the class."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls *func*."""
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    """The newest mode of this thread."""
    stack = _core.function_modes()
    return stack[-1] if stack else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    """The modes of this thread, the oldest first."""
    return list(_core.function_modes())


@contextmanager
def _pop_mode_temporarily() -> Iterator[TorchFunctionMode]:
    """A `with` block without the newest mode."""
    mode = _core.pop_function_mode()
    try:
        yield mode
    finally:
        _core.push_function_mode(mode)


@functools.cache
def get_default_nowrap_functions() -> set[Function]:
    """Accessors whose results are not converted: `_base`, `grad` and `_grad`."""
    names = ("_base", "grad", "_grad")
    return {getattr(_core.Tensor, n).__get__ for n in names if hasattr(_core.Tensor, n)}


def enable_reentrant_dispatch() -> Any:
    """A `with` block in which `__torch_dispatch__` may call functions with gradients and modes.

    Nothing changes here: handlers may always call public functions.
    """
    return nullcontext()


# ------------------------------------------------------------------------------ functions of users
def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is active, or one of the values has a `__torch_function__` of its own.

    Args:
        relevant_args: the arguments that may be tensors.
    """
    return bool(_core.has_torch_function(relevant_args))


def has_torch_function_unary(value: Any) -> bool:
    """`has_torch_function` of one value."""
    return bool(_core.has_torch_function((value,)))


def has_torch_function_variadic(*values: Any) -> bool:
    """`has_torch_function` of the values."""
    return bool(_core.has_torch_function(values))


def handle_torch_function(
    public_api: Function, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Dispatches a call of a function to the mode or to the types of the arguments.

    Args:
        public_api: the function, which is what `__torch_function__` gets.
        relevant_args: the arguments whose types are checked.
        args: all positional arguments of the call.
        kwargs: all its arguments by name.

    Raises:
        TypeError: all of them returned NotImplemented.

    Example:
        >>> from torch.overrides import handle_torch_function, has_torch_function
        >>> def double(x):
        ...     if has_torch_function((x,)):
        ...         return handle_torch_function(double, (x,), x)
        ...     return x + x
        >>> double(torch.ones(1))
        tensor([2.])
    """
    return _core.handle_torch_function(public_api, relevant_args, args, kwargs)


def wrap_torch_function(dispatcher: Function) -> Callable[[Function], Function]:
    """A decorator that lets `__torch_function__` take over a function written in Python.

    Args:
        dispatcher: called as the function is, returns the arguments whose types are checked.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor, or brings `__torch_function__` to stand for one.

    Example:
        >>> torch.overrides.is_tensor_like(torch.ones(1)), torch.overrides.is_tensor_like(1)
        (True, False)
    """
    return type(inp) is _core.Tensor or hasattr(inp, "__torch_function__")


# ------------------------------------------------------------------------------ what there is
_NOT_ASKED = (
    "_make_subclass", "_make_wrapper_subclass", "as_subclass", "__torch_function__", "__new__",
    "__init__", "__dict__", "__doc__", "__module__", "__hash__", "__setattr__", "__delattr__",
    "__getattribute__", "__dir__", "__sizeof__", "__init_subclass__", "__subclasshook__",
    "__getstate__", "__reduce__", "__weakref__", "__array_priority__", "__class__", "__str__",
)  # fmt: skip
_SPACES = ("", "nn.functional", "linalg", "fft", "special")


def _is_asked(value: Any) -> bool:
    """Whether calls of a function ask who takes over."""
    if isinstance(value, _core.shield):
        name = getattr(value, "__name__", "")
        return name not in install.NOT_OVERRIDABLE
    return isinstance(value, _core.Op)


def _space(path: str) -> Any:
    space: Any = torch
    for part in filter(None, path.split(".")):
        space = getattr(space, part)
    return space


@functools.cache
def _functions() -> dict[str, dict[str, Any]]:
    """Overridable functions per namespace, by name."""
    spaces: dict[str, dict[str, Any]] = {}
    for path in _SPACES:
        names = install.namespace(path or "torch") if path != "nn.functional" else ()
        space = _space(path)
        listed = {n: getattr(space, n) for n in (*names, *vars(space)) if not n.startswith("_")}
        where = ".".join(filter(None, ("torch", path)))
        spaces[where] = {name: value for name, value in listed.items() if _is_asked(value)}
    return spaces


@functools.cache
def _methods() -> dict[str, Any]:
    """Overridable methods and accessors of Tensor, by name."""
    functions: dict[str, Any] = {}
    for name in dir(_core.Tensor):
        value = getattr(_core.Tensor, name)
        if name in _NOT_ASKED or name in vars(object) and name not in ("__repr__", "__reduce_ex__"):
            continue
        if isinstance(value, (types.GetSetDescriptorType, property)):
            functions[f"{name}.__get__"] = value.__get__
        elif callable(value):
            functions[name] = value
    return functions


def get_overridable_functions() -> dict[Any, list[Function]]:
    """Functions that can be overridden, per namespace.

    Returns:
        dict: module or class -> its functions.
    """
    spaces = {_space(where[6:]): list(names.values()) for where, names in _functions().items()}
    spaces[_core.Tensor] = list(_methods().values())
    return spaces


def get_ignored_functions() -> set[Function]:
    """Public functions that nobody can take over: they are about no tensor."""
    names = sorted(install.NOT_OVERRIDABLE)
    functions = [getattr(torch, name) for name in names if hasattr(torch, name)]
    functions += [torch.save, torch.load, torch.compile, torch.no_grad, torch.set_grad_enabled]
    functions += [getattr(_core.Tensor, name) for name in ("as_subclass", "_make_subclass")]
    return {*functions, has_torch_function, handle_torch_function}


def get_testing_overrides() -> dict[Function, Function]:
    """For every overridable function one of the same signature that returns -1.

    Example:
        >>> import inspect
        >>> inspect.signature(torch.overrides.get_testing_overrides()[torch.add])
        <Signature (self, other, *, alpha=1)>
    """
    spaces = [*_functions().values(), _methods()]
    return {f: _dummy(f) for names in spaces for f in names.values()}


def _dummy(function: Function) -> Function:
    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    signature = _signature(function)
    if signature is not None:
        dummy.__signature__ = signature  # type: ignore[attr-defined]
    return dummy


def _signature(function: Any) -> inspect.Signature | None:
    if not isinstance(function, _core.Op):
        try:
            return inspect.signature(function)
        except (TypeError, ValueError):
            return None
    kinds = inspect.Parameter
    parameters = []
    arguments = max((overload[0] for overload in function.overloads), key=len)
    try:
        for name, _, default, keyword_only, *_ in arguments:
            kind = kinds.KEYWORD_ONLY if keyword_only else kinds.POSITIONAL_OR_KEYWORD
            value = default[0] if default else kinds.empty
            parameters.append(kinds(name, kind, default=value))
        return inspect.Signature(parameters)
    except ValueError:  # a name like `from`, a default in front of an argument without one
        return None


def is_tensor_method_or_property(func: Function) -> bool:
    """Whether a function is a method of Tensor, or reads or writes an attribute of it.

    A function of `torch` that is a method, too, is one object here, so it counts as one.
    """
    name = getattr(func, "__name__", "")
    return name in ("__get__", "__set__") or func in _method_set()


@functools.cache
def _method_set() -> frozenset[Any]:
    return frozenset(_methods().values())


@functools.cache
def _names() -> dict[Any, str]:
    qualified = {value: f"torch.Tensor.{name}" for name, value in _methods().items()}
    for where, names in reversed(_functions().items()):
        for name, value in names.items():
            existing = qualified.get(value, "")
            alias = existing.startswith(f"{where}.") and name != value.__name__
            qualified[value] = existing if alias else f"{where}.{name}"
    return qualified


def resolve_name(f: Function) -> str | None:
    """The full name of a function that was given to `__torch_function__`.

    Returns:
        str: such as "torch.add", "torch.Tensor.shape.__get__"; None of unknown functions.

    Example:
        >>> torch.overrides.resolve_name(torch.Tensor.size)
        'torch.Tensor.size'
    """
    try:
        return _names().get(f)
    except TypeError:
        return None


def redispatch_function(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Calls a function from inside of `__torch_function__`, past the types that it handles.

    Args:
        func, types, args, kwargs: as `__torch_function__` received them.

    Returns:
        The function's result; operators that it calls see `__torch_function__` again.
    """
    before = _core.set_torch_function_enabled(False)
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _core.set_torch_function_enabled(before)
