"""`torch._logging`: what is logged. `set_logs` maps PyTorch's names to `FLAMBEAU_DEBUG`'s."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from flambeau.runtime import settings as _settings

__all__ = ["LazyString", "getArtifactLogger", "hide_warnings", "set_logs", "warning_once"]


class LazyString:
    """A text that is made when it is logged."""

    def __init__(self, func: Callable[..., str], *args: Any, **kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    def __str__(self) -> str:
        return self.func(*self.args, **self.kwargs)


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:  # noqa: N802
    """The logger of a kind of output of a module."""
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


def set_logs(*, modules: dict[str, int] | None = None, **settings: Any) -> None:
    """Sets levels of loggers.

    Args:
        modules: logger names to levels.
        settings: PyTorch's names of components (`dynamo`, `inductor`, `aot`, `all` ...) to levels,
            and of outputs (`graph_breaks`, `output_code` ...) to truth values. They set
            `FLAMBEAU_DEBUG` to what shows the same: `output_code=True` is 4.
    """
    for name, level in (modules or {}).items():
        logging.getLogger(name).setLevel(level)
    for name, value in settings.items():
        level = (logging.DEBUG if value else logging.WARNING) if isinstance(value, bool) else value
        logging.getLogger("flambeau" if name == "all" else f"flambeau.{name}").setLevel(level)
    shown = [
        "+" * (value == logging.DEBUG and not isinstance(value, bool)) + name
        for name, value in settings.items()
        if value is True or (not isinstance(value, bool) and value and value <= logging.INFO)
    ]
    if settings:
        _settings.put("DEBUG", _settings.logs_level(",".join(shown)))


@functools.cache
def warning_once(logger_obj: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """Warns the first time that it is called with these arguments."""
    logger_obj.warning(*args, **kwargs)


def trace_structured(*args: Any, **kwargs: Any) -> None:
    """Records nothing: PyTorch's traces of its compiler have no counterpart."""


dtrace_structured = trace_structured


def get_structured_logging_overhead() -> None:
    """Time spent in `trace_structured`: none."""


@contextmanager
def hide_warnings(filter_fn: Callable[..., bool]) -> Any:
    """A block in which warnings are hidden for which `filter_fn(message, ...)` is true."""
    shown = warnings.showwarning

    def show(*args: Any, **kwargs: Any) -> None:
        if not filter_fn(*args, **kwargs):
            shown(*args, **kwargs)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown
