"""Backends of `torch.compile` by name: one compiler, and functions that programs register."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau._dynamo.exc import InvalidBackend
from flambeau.ir.lock import importing

__all__ = ["list_backends", "lookup_backend", "register_backend"]

_BUILT_IN = {
    "inductor": (), "eager": ("debug",), "aot_eager": ("debug",),
    "aot_eager_decomp_partition": ("debug",),
}  # fmt: skip
_registered: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}


def register_backend(
    compiler_fn: Callable[..., Any] | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Stores a function under a name.

    Args:
        compiler_fn: from a `GraphModule` and example inputs to a callable; None gives a decorator.
        name: the function's own where it is None.
        tags: what `list_backends` may leave out.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    if not callable(compiler_fn):
        raise AssertionError(f"compiler_fn must be callable, got {type(compiler_fn)}")
    _registered[name or compiler_fn.__name__] = (compiler_fn, tuple(tags))
    return compiler_fn


def registered(name: str) -> Callable[..., Any] | None:
    """The function that is registered under a name; of "eager", one that returns the graph; of what
    splits graphs into forward and backward, that.

    Args:
        name: of a backend.
    """
    if name in _registered:
        return _registered[name][0]
    if name == "aot_eager_decomp_partition":
        with importing:
            from flambeau._dynamo.backends.debugging import aot_eager_decomp_partition

        return aot_eager_decomp_partition
    return _uncompiled if name == "eager" else None


def _uncompiled(gm: Any, example_inputs: Sequence[Any]) -> Any:
    return gm.forward


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Names of backends, sorted.

    Args:
        exclude_tags: backends with one of these tags are left out.

    Example:
        >>> torch._dynamo.list_backends()
        ['inductor']
    """
    excluded = set(exclude_tags or ())
    tags = {**_BUILT_IN, **{name: entry[1] for name, entry in _registered.items()}}
    return sorted(name for name, own in tags.items() if not excluded & set(own))


def lookup_backend(compiler_fn: Any) -> Any:
    """The function of a name; a function is returned as it is.

    A built-in backend's function returns the module that it is called with: our compiler needs no
    graph from outside.

    Raises:
        InvalidBackend: there is none of this name.
    """
    if not isinstance(compiler_fn, str):
        return compiler_fn
    function = None if compiler_fn == "eager" else registered(compiler_fn)
    if function is not None:
        return function
    if compiler_fn not in _BUILT_IN:
        raise InvalidBackend(name=compiler_fn)
    return _compiling(compiler_fn)


def _compiling(name: str) -> Callable[..., Any]:
    def backend(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        """Compiles a `GraphModule`."""
        import flambeau as torch

        return torch.compile(gm, backend=name)

    backend.__name__ = name
    return backend
