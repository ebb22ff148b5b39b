"""`torch._guards`: contexts of PyTorch's compiler, of which there are none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.ir.lock import late

__all__: list[str] = []


class TracingContext:
    """The context of a trace: there is none."""

    @staticmethod
    def try_get() -> None:
        """The active context: None."""

    @staticmethod
    def get() -> Any:
        """Raises: no context is active.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "TracingContext.get() must be called within an ongoing trace.\nhint: use try_get()"
        )


class CompileContext:
    """The context of a compile: there is none."""

    @staticmethod
    def current_compile_id() -> None:
        """The compile's number: None."""

    @staticmethod
    def current_trace_id() -> None:
        """The trace's number: None."""


@contextlib.contextmanager
def tracing(context: Any) -> Iterator[Any]:
    """A block; the context has no effect."""
    yield context


@contextlib.contextmanager
def compile_context(context: Any) -> Iterator[Any]:
    """A block; the context has no effect."""
    yield context


def active_fake_mode() -> Any:
    """The `FakeTensorMode` that is active, or None."""
    return detect_fake_mode()


def detect_fake_mode(inputs: Any = None) -> Any:
    """The `FakeTensorMode` of some tensors or of a block around, or None."""
    fake = late("flambeau._subclasses.fake_tensor")
    for leaf in late("flambeau.utils._pytree").tree_leaves(inputs):
        if isinstance(leaf, fake.FakeTensor):
            return leaf.fake_mode
    stack = late("flambeau.utils._python_dispatch")._get_current_dispatch_mode_stack()
    return next((mode for mode in stack if isinstance(mode, fake.FakeTensorMode)), None)
