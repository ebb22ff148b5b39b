"""Base classes of data pipes, and the decorators that give them a functional form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flambeau.ir.failure import failure
from flambeau.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]

Item = TypeVar("Item", covariant=True)
Kind = TypeVar("Kind", bound=type)


class _Forms:
    """The base of both kinds of pipes: functional forms, hooks of pickling, texts."""

    functions: dict[str, Any] = {}
    reduce_ex_hook: Callable[..., Any] | None = None
    getstate_hook: Callable[..., Any] | None = None
    str_hook: Callable[..., str] | None = None
    repr_hook: Callable[..., str] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return functools.partial(type(self).functions[name], self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    @classmethod
    def register_function(cls, function_name: str, function: Any) -> None:
        """Makes `pipe.function_name(...)` call `function(pipe, ...)`."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Makes `pipe.function_name(...)` build another pipe on top of this one.

        Raises:
            Exception: the name is taken.
        """
        if function_name in cls.functions:
            raise Exception(  # noqa: TRY002 - PyTorch's type
                f"[datapipe] Unable to add DataPipe function name {function_name} as it is already "
                "taken\nhint: choose another name"
            )
        cls.functions[function_name] = cls_to_register

    def __getstate__(self) -> Any:
        hook = type(self).getstate_hook
        return dict(self.__dict__) if hook is None else hook(dict(self.__dict__))

    def __reduce_ex__(self, *arguments: Any, **keywords: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(*arguments, **keywords)

    @classmethod
    def set_getstate_hook(cls, hook_fn: Any) -> None:
        """Calls `hook_fn(state)` when a pipe is pickled; None removes it.

        Raises:
            RuntimeError: there is a hook already.
        """
        cls.getstate_hook = _replaced_hook(cls.getstate_hook, hook_fn, "getstate_hook")

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Any) -> None:
        """Calls `hook_fn(pipe)` instead of pickling a pipe; None removes it.

        Raises:
            RuntimeError: there is a hook already.
        """
        cls.reduce_ex_hook = _replaced_hook(cls.reduce_ex_hook, hook_fn, "reduce_ex_hook")

    def __str__(self) -> str:
        hook = type(self).str_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __repr__(self) -> str:
        hook = type(self).repr_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]


def _replaced_hook(present: Any, hook: Any, name: str) -> Any:
    if present is not None and hook is not None:
        problem = f"Attempt to override existing {name}"
        raise failure(RuntimeError, "datapipe", problem, "set it to None first")
    return hook


def _resetting(function: Callable[..., Any]) -> Callable[..., Any]:
    """`__iter__` that resets its pipe first, and counts what it yields."""

    @functools.wraps(function)
    def begin(self: Any) -> Iterator[Any]:
        self.reset()
        self._number_of_samples_yielded = 0
        stream = function(self)
        if stream is self:
            return stream
        return _counted(self, stream)

    return begin


def _counted(pipe: Any, stream: Iterator[Any]) -> Iterator[Any]:
    for item in stream:
        pipe._number_of_samples_yielded += 1
        yield item


class IterDataPipe(_Forms, IterableDataset[Item]):
    """A stream of items made from another stream; each `iter()` begins anew.

    Example:
        >>> IterableWrapper = torch.utils.data.datapipes.iter.IterableWrapper
        >>> list(IterableWrapper(range(5)).map(lambda x: 2 * x).batch(2))
        [[0, 2], [4, 6], [8]]
    """

    functions: dict[str, Any] = {}
    _number_of_samples_yielded = 0

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = _resetting(cls.__dict__["__iter__"])  # type: ignore[method-assign]

    def reset(self) -> None:
        """Called before every pass; subclasses drop what an earlier pass left."""


class DFIterDataPipe(IterDataPipe[Any]):
    """A stream of data frames."""

    def _is_dfpipe(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        raise failure(NotImplementedError, "DFIterDataPipe", "define __iter__", "yield data frames")


class MapDataPipe(_Forms, Dataset[Item]):
    """Items by index, made from another data pipe.

    Example:
        >>> SequenceWrapper = torch.utils.data.datapipes.map.SequenceWrapper
        >>> list(SequenceWrapper([1, 2]).map(str))
        ['1', '2']
    """

    functions: dict[str, Any] = {}


class DataChunk(list[Any]):
    """A batch of a pipe: a list that still knows its items.

    Example:
        >>> DataChunk([1, 2])
        [1, 2]
    """

    def __init__(self, items: Any) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The items in brackets."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[Any]:
        """Iterates over the items themselves."""
        yield from self.items
