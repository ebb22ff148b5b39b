"""Functions and methods that are replaced while a function is traced, and put back."""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.fx.node import map_aggregate
from flambeau.fx.proxy import Proxy

# (identity of a module's names, function name) -> the module's names.
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []
_proxyable_classes: dict[type, None] = {}

_tracing = threading.local()
_ABSENT = object()


def _find_proxy(*objects_to_search: object) -> Proxy | None:
    """The first proxy in nested containers."""
    proxies: list[Proxy] = []

    def collect(value: Any) -> Any:
        if isinstance(value, Proxy):
            proxies.append(value)
        return value

    map_aggregate(objects_to_search, collect)  # type: ignore[arg-type]
    return proxies[0] if proxies else None


def _create_wrapped_func(orig_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is recorded if an argument is a proxy."""

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return wrapped


def _create_wrapped_method(cls: type, name: str) -> Callable[..., Any]:
    """A method that is recorded if an argument is a proxy."""
    orig_fn = getattr(cls, name)

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


class _Patcher:
    """A `with` block at whose end everything that it replaced is put back."""

    def __init__(self) -> None:
        self.patches_made: list[tuple[Any, str, Any, Any]] = []
        self.visited: set[int] = set()

    def patch(
        self,
        frame_dict: dict[str, Any],
        name: str,
        new_fn: Callable[..., Any],
        deduplicate: bool = True,
    ) -> None:
        """Replaces a name of a module.

        Args:
            frame_dict: the module's names.
            name: which one.
            new_fn: its new value.
            deduplicate: whether a value that this block put there is left alone.
        """
        before = frame_dict.get(name, _ABSENT)
        if deduplicate and getattr(before, "__fx_already_patched", False):
            return
        if deduplicate:
            new_fn.__fx_already_patched = True  # type: ignore[attr-defined]
        frame_dict[name] = new_fn
        self.patches_made.append((frame_dict, name, before, new_fn))

    def patch_method(
        self, cls: type, name: str, new_fn: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        """Replaces a method of a class.

        Args:
            cls: the class.
            name: the method.
            new_fn: its new function.
            deduplicate: whether a function that this block put there is left alone.
        """
        before = cls.__dict__.get(name, _ABSENT)
        if deduplicate and getattr(before, "__fx_already_patched", False):
            return
        if deduplicate:
            new_fn.__fx_already_patched = True  # type: ignore[attr-defined]
        setattr(cls, name, new_fn)
        self.patches_made.append((cls, name, before, new_fn))

    def visit_once(self, thing: object) -> bool:
        """Whether an object is seen for the first time."""
        if id(thing) in self.visited:
            return False
        self.visited.add(id(thing))
        return True

    def revert_all_patches(self) -> None:
        """Puts everything back, the newest first, and remembers it."""
        for place, name, before, _ in reversed(self.patches_made):
            if isinstance(place, dict):
                if before is _ABSENT:
                    place.pop(name, None)
                else:
                    place[name] = before
            elif before is _ABSENT:
                delattr(place, name)
            else:
                setattr(place, name, before)

    def reapply_all_patches(self) -> None:
        """Replaces everything again."""
        for place, name, _, new in self.patches_made:
            if isinstance(place, dict):
                place[name] = new
            else:
                setattr(place, name, new)

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.revert_all_patches()
        self.patches_made.clear()
        self.visited.clear()


@contextlib.contextmanager
def _new_patcher() -> Iterator[_Patcher]:
    """The patcher of a trace; one that runs already waits outside."""
    before = getattr(_tracing, "patcher", None)
    with _Patcher() as patcher:
        _tracing.patcher = patcher
        try:
            yield patcher
        finally:
            _tracing.patcher = before


@contextlib.contextmanager
def _maybe_revert_all_patches() -> Iterator[None]:
    """A `with` block in which the running trace replaces nothing."""
    patcher = getattr(_tracing, "patcher", None)
    if patcher is None:
        yield
        return
    patcher.revert_all_patches()
    try:
        yield
    finally:
        patcher.reapply_all_patches()


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Replaces the functions and methods that were passed to `wrap`."""
    for key, frame_dict in _wrapped_fns_to_patch.copy().items():
        name = key[1]
        original = frame_dict.get(name, getattr(builtins, name, None))
        if original is None:  # the module's names were deleted since
            del _wrapped_fns_to_patch[key]
            continue
        patcher.patch(frame_dict, name, _create_wrapped_func(original))
    for cls, name in _wrapped_methods_to_patch:
        patcher.patch_method(cls, name, _create_wrapped_method(cls, name))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    """Replaces functions of a module that are to be recorded wherever they are imported."""
    if not patcher.visit_once(frame_dict):
        return
    for name, value in list(frame_dict.items()):
        if not name.startswith("_") and callable(value) and id(value) in function_ids:
            patcher.patch(frame_dict, name, _create_wrapped_func(value))


def wrap(fn_or_name: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """Records calls of a function as one node, instead of what happens inside.

    Call it at the top of a module, or as a decorator there.

    Args:
        fn_or_name: a function of that module, or its name; "len", for example.

    Returns:
        what was passed.

    Raises:
        NotImplementedError: called elsewhere.
        RuntimeError: neither a function nor a name.

    Example:
        >>> def both(x, y):
        ...     return x + y if len(x) == len(y) else x
        >>> _ = torch.fx.wrap("both")
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    if callable(fn_or_name):
        name = fn_or_name.__name__
    else:
        name = fn_or_name
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back  # type: ignore[assignment]
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[(id(frame.f_globals), name)] = frame.f_globals
    return fn_or_name


def _without_varargs(fn: types.FunctionType, nargs: int) -> types.FunctionType:
    """A function whose `*args` and `**kwargs` are plain parameters, which proxies can be."""
    code = fn.__code__
    flags = code.co_flags & ~0x0C  # CO_VARARGS, CO_VARKEYWORDS
    plain = code.replace(
        co_flags=flags, co_argcount=nargs, co_posonlyargcount=0, co_kwonlyargcount=0
    )
    return types.FunctionType(plain, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
