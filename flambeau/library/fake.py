"""The context of shape functions (`register_fake`) while they run."""

from __future__ import annotations

import threading
from typing import Any

from flambeau.ir.lock import importing


class FakeImplCtx:
    """The result of `torch.library.get_ctx`.

    Args:
        op: the operator whose sizes are inferred.
    """

    def __init__(self, op: Any) -> None:
        self._op = op

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> Any:  # noqa: A002
        """The old name of `new_dynamic_size`."""
        return self.new_dynamic_size(min=min, max=max)

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:  # noqa: A002
        """A size that only the data tell.

        Raises:
            RuntimeError: always, as tensors without data have none.
        """
        raise NotImplementedError


class MetaContext(FakeImplCtx):
    """The context of a call with tensors on the meta device: no data-dependent size exists."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:  # noqa: A002
        """A size that only the data tell: tensors without data have none."""
        raise RuntimeError(
            f"Attempted to call get_ctx() for the meta implementation for {self._op}. You have "
            "presumably called get_ctx() because the operator has a data-dependent output shape; "
            "if so, there is no such meta implementation and this error is the correct behavior."
        )


class FakeModeContext(FakeImplCtx):
    """The context of a call with fake tensors: sizes are integers, so no data-dependent size
    exists.
    """

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:  # noqa: A002
        """A size that only the data tell.

        Raises:
            DynamicOutputShapeException: always.
        """
        with importing:
            from flambeau._subclasses.fake_errors import DynamicOutputShapeException

        raise DynamicOutputShapeException(self._op)


class UnknownSizeError(Exception):
    """A recorded region met an operator whose results' sizes only its data tell."""


class RecordingContext(FakeImplCtx):
    """The context of a recorded call; the operator runs instead of being recorded."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:  # noqa: A002
        """A size that depends on data: the recorded region ends here."""
        raise UnknownSizeError


class _Current(threading.local):
    def __init__(self) -> None:
        self.context: FakeImplCtx | None = None


_current = _Current()


class entered:  # noqa: N801 - a context manager, used like a function
    """Makes a context the one that `get_ctx` gives."""

    def __init__(self, context: FakeImplCtx) -> None:
        self.context = context

    def __enter__(self) -> FakeImplCtx:
        self.before, _current.context = _current.context, self.context
        return self.context

    def __exit__(self, *exception: object) -> None:
        _current.context = self.before


def get_ctx() -> FakeImplCtx | None:
    """The context of the running `register_fake` function; None outside of one.

    Its `new_dynamic_size()` is a size that depends on data.
    """
    return _current.context
