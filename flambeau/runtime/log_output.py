"""How logs are written: handlers, levels and the format of Python's loggers (`runtime/logs.py`)."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Collection, Mapping
from typing import TextIO

from flambeau.runtime import settings
from flambeau.runtime.logs import ARTIFACTS, COMPONENTS, ROOT

_LETTERS = {"DEBUG": "V", "INFO": "I", "WARNING": "W", "ERROR": "E", "CRITICAL": "C"}
_handlers: list[tuple[logging.Logger, logging.Handler]] = []  # ours


class _Formatter(logging.Formatter):
    """Puts level, time, process, line and artifact in front of every line of a message."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        when = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micro = int(record.created % 1 * 1e6)
        letter = _LETTERS.get(record.levelname, record.levelname)
        name = record.name.rpartition(".__")
        artifact = f" [__{name[2]}]" if name[1] else ""
        place = f"{_relative(record.pathname)}:{record.lineno}"
        head = f"{letter}{when}.{micro:06d} {record.process} {place}]{artifact}"
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return "\n".join(f"{head} {line}" for line in text.split("\n"))


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to the standard error stream of the moment."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """The present stream."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError("stream")


def _relative(path: str) -> str:
    """A path below a directory of `sys.path`, without it."""
    folders = [folder + os.sep for folder in sys.path if folder]
    return path.removeprefix(max([x for x in folders if path.startswith(x)], key=len, default=""))


def write(name: str, level: int, text: str, path: str, line: int) -> None:
    """Logs a text.

    Args:
        name: of the logger.
        level: of the text.
        text: what is logged.
        path, line: where in the user's program.
    """
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(name, level, path, line, text, (), None))


def configure(levels: Mapping[str, int], artifacts: Collection[str]) -> None:
    """Sets the levels of loggers, and has them write.

    Args:
        levels: by name of a logger.
        artifacts: names of the loggers of those that are on.
    """
    for name in {name for names in COMPONENTS.values() for name in names}:
        logging.getLogger(name).setLevel(logging.WARNING if name == ROOT else logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    for name, artifact in ARTIFACTS.items():
        own = f"{artifact.module}.__{name}"
        logging.getLogger(own).setLevel(logging.DEBUG if own in artifacts else logging.NOTSET)
    while _handlers:
        logger, handler = _handlers.pop()
        logger.removeHandler(handler)
        handler.close()
    for name in {ROOT, *(each for each in levels if each.partition(".")[0] != ROOT)}:
        _add_handlers(logging.getLogger(name))


def _add_handlers(logger: logging.Logger) -> None:
    """Has a logger write to the standard error stream, and to the file of `TORCH_LOGS_OUT`."""
    path, form = settings.logs_variable("_OUT"), settings.logs_variable("_FORMAT")
    handlers: list[logging.Handler] = [_StandardError()]
    if path:
        handlers.append(logging.FileHandler(path, delay=True))
    if form in ("short", "basic"):
        form = logging.BASIC_FORMAT
    formatter = logging.Formatter(form) if form else _Formatter()
    logger.propagate = False
    for handler in handlers:
        handler.setFormatter(formatter)
        logger.addHandler(handler)
        _handlers.append((logger, handler))
