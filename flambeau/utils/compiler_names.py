"""Names of `torch.compiler` that need no other compiler: settings, marks and their refusals."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.capture import recording, regions
from flambeau.capture.stance import stance as current_stance
from flambeau.ir.failure import failure
from flambeau.ir.lock import late

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "cudagraph_mark_step_begin",
    "get_default_backend",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "nested_compile_region",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "substitute_in_graph",
    "wrap_numpy",
]


def allow_in_graph(fn: Any) -> Any:
    """Returns a function, or a list of them, as it is: every function may be part of a region.

    Raises:
        AssertionError: it is not callable.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Accepts a function; it is called each time."""
    return fn


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Any], Any]:
    """A decorator that changes nothing: regions call the original function.

    Raises:
        TypeError: `original_fn` or what is decorated is no function.
    """
    if not callable(original_fn):
        kind = type(original_fn)
        raise TypeError(f"substitute_in_graph expects a function but got {kind}")

    def decorator(replacement: Callable[..., object]) -> Callable[..., object]:
        if not callable(replacement):
            kind = type(replacement)
            raise TypeError(f"@substitute_in_graph(...) expects a function but got {kind}")
        return replacement

    return decorator


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors from one of NumPy's arrays.

    Its arguments are arrays for `isinstance`, and NumPy's functions run as operators on their
    tensors: they are compiled, and have gradients. A function that has no translation runs as NumPy
    itself, which ends a graph. Results agree with NumPy's to a few units in the last place.

    Args:
        fn: takes and gives NumPy's arrays.

    Example:
        >>> import numpy as np
        >>> @torch.compile
        ... @torch.compiler.wrap_numpy
        ... def energy(x):
        ...     return np.sum(np.square(x - 1), axis=-1)
        >>> x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
        >>> energy(x)
        tensor(10., grad_fn=<CompiledFunctionBackward>)
        >>> energy(x).backward()
        >>> x.grad
        tensor([0., 2., 6.])
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return late("flambeau._numpy").called(fn, args, kwargs)

    return wrapped


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """A function whose calls inside of a compiled region are programs of their own, compiled once.

    A region that calls it 24 times compiles one program for it instead of one with 24 times the
    operators. Its operators are not fused with those around it. Bits are the same.

    Args:
        fn: the function, of layers with equal shapes, say; None returns a decorator.
        options, max_reuse_entries, reuse_hash_fn: of PyTorch; without effect.

    Raises:
        TypeError: *fn* is no function.

    Example:
        >>> @torch.compiler.nested_compile_region
        ... def layer(x):
        ...     return x.sin() + 1
        >>> f = lambda x: layer(layer(layer(x)))
        >>> torch.compiler.explain(f, torch.ones(4)).plans
        1
    """
    return late("flambeau._higher_order_ops.invoke_subgraph").mark_compile_region(fn)


def cudagraph_mark_step_begin() -> None:
    """Returns: there are no CUDA graphs whose memory could be used again."""


def is_dynamo_compiling() -> bool:
    """Whether a region is being recorded."""
    return recording.is_compiling()


def is_exporting() -> bool:
    """Whether a program is being exported: no."""
    return False


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Names that `torch.compile(backend=...)` accepts for its one compiler."""
    return late("flambeau._dynamo.backends.registry").list_backends(exclude_tags)


def get_default_backend() -> Any:
    """The backend of `torch.compile` without `backend=`."""
    return "inductor" if regions.Default.backend is None else regions.Default.backend


def set_default_backend(backend: Any) -> None:
    """Sets the backend of `torch.compile` without `backend=`.

    Args:
        backend: a name of `list_backends`, a function of a `GraphModule` and example inputs, or
            None for "inductor".

    Raises:
        InvalidBackend: there is none of this name.
    """
    if backend is not None:
        late("flambeau._dynamo.backends.registry").lookup_backend(backend)
    regions.Default.backend = backend


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Accepts: there is one process. Returns the former setting."""
    return False


_STANCES = (
    "default", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile",
    "fail_on_recompile", "force_eager",
)  # fmt: skip


class set_stance:  # noqa: N801 - also a context manager and decorator
    """How compiled functions behave from now on, or in a block or a function.

    Args:
        stance: "default"; "force_eager": they run uncompiled; "fail_on_recompile": where one has no
            program for a call it raises RuntimeError; "eager_on_recompile", "eager_then_compile"
            and "aot_eager_then_compile" are as the default, for compiled calls have the bits of
            eager ones.
        skip_guard_eval_unsafe: without effect: there are no guards to skip.
        force_backend: None, "inductor", or "eager", which is as "force_eager".

    Raises:
        RuntimeError: `force_backend` with another stance than the default.
        NotImplementedError: another stance or backend.

    Example:
        >>> f = torch.compile(lambda x: torch.compiler.is_compiling())
        >>> with torch.compiler.set_stance("force_eager"):
        ...     f(torch.ones(1))
        False
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:
        if force_backend is not None and stance != "default":
            raise RuntimeError("force_backend cannot be used with any stance except 'default'")
        if stance not in _STANCES or force_backend not in (None, "inductor", "eager"):
            problem = f"stance {stance!r} with force_backend {force_backend!r} is not in Flambeau"
            raise failure(
                NotImplementedError, "set_stance", problem, f"one of {', '.join(_STANCES)}"
            )
        eager = stance == "force_eager" or force_backend == "eager"
        self._own = eager, stance == "fail_on_recompile"
        self._before = current_stance.present
        current_stance.present = self._own

    def __enter__(self) -> None:
        current_stance.present = self._own

    def __exit__(self, *exception: object) -> None:
        current_stance.present = self._before

    def __call__(self, fn: Any) -> Any:
        """A function that sets the stance while it runs."""
        current_stance.present = self._before

        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            before, current_stance.present = current_stance.present, self._own
            try:
                return fn(*args, **kwargs)
            finally:
                current_stance.present = before

        return inner


def load_compiled_function(file: Any, *, f_globals: Any = None, external_data: Any = None) -> Any:
    """Raises NotImplementedError."""
    problem = "compiled functions are not stored one by one"
    hint = "save_cache_artifacts() stores the programs of a process"
    raise failure(NotImplementedError, "load_compiled_function", problem, hint)


def _keep_all(guard_entries: Any, **options: Any) -> list[bool]:
    """Selects every guard."""
    return [True] * len(guard_entries)


keep_portable_guards_unsafe = keep_tensor_guards_unsafe = _keep_all
skip_all_guards_unsafe = skip_guard_on_all_nn_modules_unsafe = _keep_all
skip_guard_on_globals_unsafe = skip_guard_on_inbuilt_nn_modules_unsafe = _keep_all


@contextlib.contextmanager
def _patch_engine_backward(*args: Any) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _non_strict_tracing_context(*args: Any) -> Iterator[None]:
    yield


def _is_non_strict_tracing() -> bool:
    return False
