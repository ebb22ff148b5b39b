"""`get_unsafe_globals_in_checkpoint`: what a file names that `weights_only` does not allow."""

from __future__ import annotations

import pickletools
from typing import Any

from flambeau.ir.failure import failure
from flambeau.runtime import safe_classes
from flambeau.serialization import names
from flambeau.serialization.sources import damaged, opened
from flambeau.serialization.zip_reader import MAGIC, Archive

__all__ = ["get_unsafe_globals_in_checkpoint"]

_MEMO_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_MEMO_GETS = ("GET", "BINGET", "LONG_BINGET")


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Names of classes and functions in a file that have to be declared safe before `load`.

    Args:
        f: a path or a binary file object with an archive that `save` wrote. Nothing is run.

    Raises:
        ValueError: another form of file.

    Example:
        >>> import collections, io
        >>> file = io.BytesIO()
        >>> torch.save(collections.deque([1]), file)
        >>> _ = file.seek(0)
        >>> torch.serialization.get_unsafe_globals_in_checkpoint(file)
        ['collections.deque']
    """
    with opened(f, False) as source:
        if source.read(0, min(4, source.size)) != MAGIC:
            raise ValueError(
                "[get_unsafe_globals_in_checkpoint] Expected input to be a checkpoint returned by "
                "torch.save\nhint: files of the legacy form have to be saved again"
            )
        archive = Archive(source)
        if "constants.pkl" in archive:
            problem = "a TorchScript archive was passed"
            raise failure(
                ValueError, "get_unsafe_globals_in_checkpoint", problem, "pass a file of torch.save"
            )
        used = sorted(set(_globals(archive.read("data.pkl"))))
        source.finish(archive.end)
    return [f"{module}.{name}" for module, name in used if not _is_allowed(module, name)]


def _is_allowed(module: str, name: str) -> bool:
    try:
        if names.safe(module, name, lambda key: None) is not None:
            return True
    except NotImplementedError:  # of PyTorch, and not here: `load` says so
        return True
    return safe_classes.lookup(f"{module}.{name}") is not None


def _globals(data: bytes) -> list[tuple[str, str]]:
    """Modules and names that a pickle names."""
    pairs: list[tuple[str, str]] = []
    texts: list[Any] = []  # the last values, where they are text
    memo: dict[int, Any] = {}
    try:
        for code, value, _ in pickletools.genops(data):
            argument: Any = value
            if code.name in ("GLOBAL", "INST"):
                module, name = str(argument).split(" ", 1)
                pairs.append((names.canonical(module), name))
            elif code.name == "STACK_GLOBAL" and len(texts) >= 2:
                pairs.append((names.canonical(str(texts[-2])), str(texts[-1])))
            if code.name == "MEMOIZE":
                memo[len(memo)] = texts[-1] if texts else None
            elif code.name in _MEMO_PUTS:
                memo[int(argument)] = texts[-1] if texts else None
            elif code.name in _MEMO_GETS:
                texts.append(memo.get(int(argument)))
            else:
                texts.append(argument if isinstance(argument, str) else None)
    except (ValueError, IndexError, TypeError, UnicodeDecodeError) as error:
        raise damaged(f"the pickle cannot be read, {error}") from error
    return pairs
