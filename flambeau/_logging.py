"""`torch._logging`: which outputs of the compiler are shown (`runtime/logs.py`)."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from flambeau.runtime import logs as _logs
from flambeau.runtime import settings as _settings

__all__ = ["LazyString", "getArtifactLogger", "hide_warnings", "set_logs", "warning_once"]

DEFAULT_LOG_LEVEL = logging.WARNING
_log = logging.getLogger(_logs.ROOT + "._logging")


class LazyString:
    """A text that is made when it is logged."""

    def __init__(self, func: Callable[..., str], *args: Any, **kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    def __str__(self) -> str:
        return self.func(*self.args, **self.kwargs)


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:  # noqa: N802
    """The logger of an artifact of a module.

    Args:
        module_qname: the module's name.
        artifact_name: one of those that `TORCH_LOGS` takes.

    Raises:
        ValueError: there is no such artifact.

    Example:
        >>> torch._logging.getArtifactLogger("torch._dynamo", "graph_breaks").name
        'torch._dynamo.__graph_breaks'
    """
    if artifact_name not in _logs.ARTIFACTS:
        raise ValueError(
            f"Artifact name: {artifact_name!r} not registered\n"
            f"hint: one of {', '.join(sorted(_logs.ARTIFACTS))}"
        )
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


def set_logs(
    *,
    all: int | None = None,  # noqa: A002 - PyTorch's name
    modules: dict[str, int | bool] | None = None,
    **settings: int | bool | None,
) -> None:
    """Shows these outputs of the compiler from now on, and no others.

    It has no effect while the environment variable `TORCH_LOGS` is set.

    Args:
        all: the level of every component.
        modules: names that are no Python identifiers, or of other modules, to levels.
        settings: levels of components (`dynamo`, `inductor`, `aot`, `dynamic` ...) and truth values
            of artifacts (`graph_breaks`, `recompiles`, `guards`, `output_code` ...). The level
            `logging.DEBUG` of a component also shows its artifacts, but for the long ones.

    Raises:
        ValueError: an unknown name; an artifact that is no bool; a level that `logging` has not.

    Example:
        >>> import logging
        >>> torch._logging.set_logs(dynamo=logging.ERROR, graph_breaks=False)
    """
    if _settings.logs_variable(""):
        _log.warning("TORCH_LOGS is set, so set_logs() has no effect")
        return
    levels: dict[str, int] = {}
    artifacts: set[str] = set()
    for name, value in {"all": all, **settings, **(modules or {})}.items():
        if value is None:
            continue
        if name in _logs.ARTIFACTS:
            if not isinstance(value, bool):
                raise ValueError(f"Expected bool to enable artifact {name}, received {value}")
            artifacts |= {name} if value else set()
        else:
            levels.update(dict.fromkeys(_loggers(name, value), int(value)))
    _logs.switch(_logs.State(levels, frozenset(artifacts)))


def _loggers(name: str, level: int | bool) -> list[str]:
    loggers = list(_logs.loggers_of(name))
    if not loggers:
        raise ValueError(f"Unrecognized log or artifact name passed to set_logs: {name}")
    known_levels = logging.getLevelNamesMapping().values()
    if isinstance(level, bool) or level not in known_levels:
        valid = ",".join(str(each) for each in sorted(set(known_levels)))
        raise ValueError(
            f"Unrecognized log level for log {name}: {level}, valid level values are: {valid}"
        )
    return loggers


def get_loggers() -> list[logging.Logger]:
    """The loggers of all components."""
    return [logging.getLogger(name) for names in _logs.COMPONENTS.values() for name in names]


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
