"""Decorators of data pipes: functional forms, determinism, checks of types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = [
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
]

_determinism = False
_checks_types = True


class functional_datapipe:  # noqa: N801 - a decorator
    """Registers a class of pipes under a method name of all pipes of its kind.

    Args:
        name: of the method.
        enable_df_api_tracing: accepted; pipes of data frames are not recorded.

    Raises:
        TypeError: the class is no pipe.
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        base = getattr(cls, "_BASE", None)  # of a class whose instances are several pipes
        for kind in (IterDataPipe, MapDataPipe):
            if base is kind or (isinstance(cls, type) and issubclass(cls, kind)):
                kind.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")


class guaranteed_datapipes_determinism:  # noqa: N801 - a context manager
    """A block in which no pipe may be made that is marked as non-deterministic."""

    def __init__(self) -> None:
        global _determinism
        self._before, _determinism = _determinism, True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        global _determinism
        _determinism = self._before


class non_deterministic:  # noqa: N801 - a decorator
    """Marks a class of stream pipes whose order may differ from run to run.

    Args:
        arg: the class, or a predicate of the constructor's arguments.

    Raises:
        TypeError: neither.
    """

    def __init__(self, arg: Any) -> None:
        self.cls: Any = None
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    "Only `IterDataPipe` can be decorated with `non_deterministic`, but "
                    f"{arg.__name__} is found"
                )
            self.cls, self.deterministic_fn = arg, None
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is not None:
            self._check(self.cls)
            return self.cls(*args, **kwargs)
        kind = args[0]
        if not (isinstance(kind, type) and issubclass(kind, IterDataPipe)):
            raise TypeError("Only `IterDataPipe` can be decorated")
        return functools.wraps(kind, updated=())(functools.partial(self._built, kind))

    def _built(self, kind: Any, *args: Any, **kwargs: Any) -> Any:
        assert self.deterministic_fn is not None
        verdict = self.deterministic_fn(*args, **kwargs)
        if not isinstance(verdict, bool):
            raise TypeError(
                f"deterministic_fn of `non_deterministic` decorator is required to return a "
                f"boolean value, but {type(verdict)} is found"
            )
        if verdict:
            self._check(kind)
        return kind(*args, **kwargs)

    @staticmethod
    def _check(kind: type) -> None:
        if _determinism:
            raise TypeError(
                f"{kind.__name__} is non-deterministic, but you set "
                "'guaranteed_datapipes_determinism'. You can turn off determinism for this "
                "DataPipe if that is acceptable for your application"
            )


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Checks that arguments annotated as pipes are pipes when `f` is called."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        hints = get_type_hints(f)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            kind = getattr(hints.get(name), "__origin__", hints.get(name))
            pipe = isinstance(kind, type) and issubclass(kind, (IterDataPipe, MapDataPipe))
            if pipe and not isinstance(value, kind):
                raise TypeError(
                    f"Expected argument '{name}' as a {kind.__name__}, but found {type(value)}"
                )
        return f(*args, **kwargs)

    return checked


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Checks each item of a pipe's `__iter__` against the element type of its annotation.

    Raises:
        TypeError: `f` is not `__iter__`; an item has another type (when iterated).
    """
    if f.__name__ != "__iter__":
        raise TypeError(
            f"Can not decorate function {f.__name__} with 'runtime_validation'\n"
            "hint: decorate __iter__"
        )

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        kind = _element_type(f)
        for item in f(self):
            if _checks_types and kind is not None and not isinstance(item, kind):
                raise RuntimeError(
                    f"Expected an instance as subtype of {kind}, but found {item}({type(item)})"
                )
            yield item

    return checked


def _element_type(function: Callable[..., Any]) -> Any:
    """T of `-> Iterator[T]`, where it is a class; None otherwise."""
    arguments = getattr(get_type_hints(function).get("return"), "__args__", ())
    return arguments[0] if arguments and isinstance(arguments[0], type) else None


@contextmanager
def runtime_validation_disabled() -> Iterator[None]:
    """A block in which `runtime_validation` does not check."""
    global _checks_types
    before, _checks_types = _checks_types, False
    try:
        yield
    finally:
        _checks_types = before
