"""Files, masks of names, and columns of items, for data pipes."""

from __future__ import annotations

import fnmatch
import inspect
import io
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from flambeau.ir.failure import failure

__all__ = [
    "StreamWrapper",
    "get_file_binaries_from_pathnames",
    "get_file_pathnames_from_root",
    "match_masks",
    "validate_input_col",
    "validate_pathname_binary_tuple",
]


def validate_input_col(fn: Any, input_col: Any) -> None:
    """Checks that a function takes as many arguments as columns are named.

    Raises:
        ValueError: it takes another number of positional arguments.
    """
    try:
        signature = inspect.signature(fn)
    except ValueError:  # of a native function
        return
    count = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    name = getattr(fn, "__name__", repr(fn))
    required = [
        p.name
        for p in signature.parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    if required:
        problem = f"The function {name} takes {len(required)} non-default keyword-only "
        problem += "parameters, which is not allowed."
        raise failure(ValueError, "datapipe", problem, "give them defaults")
    try:
        signature.bind(*range(count))
    except TypeError:
        problem = f"The function {name} does not take {count} positional parameters, as many as "
        problem += f"input_col {input_col!r} names"
        raise failure(ValueError, "datapipe", problem, "name one column per parameter") from None


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Whether a file name matches one of the patterns; no patterns match everything."""
    patterns = [masks] if isinstance(masks, str) else masks
    return not masks or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def get_file_pathnames_from_root(
    root: str,
    masks: str | list[str],
    recursive: bool = False,
    abspath: bool = False,
    non_deterministic: bool = False,
) -> Iterator[str]:
    """Paths of the files below a folder, in order of their names unless `non_deterministic`."""
    if os.path.isfile(root):
        path = os.path.abspath(root) if abspath else root
        if match_masks(os.path.basename(path), masks):
            yield path
        return

    def report(error: OSError) -> None:
        warnings.warn(f"[FileLister] {error.filename}: {error.strerror}", stacklevel=2)
        raise error

    for folder, folders, files in os.walk(root, onerror=report):
        place = os.path.abspath(folder) if abspath else folder
        if not non_deterministic:
            files.sort()
            folders.sort()
        yield from (os.path.join(place, name) for name in files if match_masks(name, masks))
        if not recursive:
            break


def get_file_binaries_from_pathnames(
    pathnames: Iterable[str], mode: str, encoding: str | None = None
) -> Iterator[tuple[str, StreamWrapper]]:
    """Pairs (path, open file).

    Raises:
        TypeError: a path is no string.
    """
    for pathname in [pathnames] if isinstance(pathnames, str) else pathnames:
        if not isinstance(pathname, str):
            problem = f"Expected string type for pathname, but got {type(pathname)}"
            raise failure(TypeError, "FileOpener", problem, "pass paths as strings")
        yield pathname, StreamWrapper(open(pathname, mode, encoding=encoding))  # noqa: SIM115


def validate_pathname_binary_tuple(data: Any) -> None:
    """Checks a pair (path, open file).

    Raises:
        TypeError: it is none.
    """
    hint = "\nhint: pass what FileOpener yields"
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(
            f"[datapipe] pathname binary data should be a tuple of 2, got {type(data)}{hint}"
        )
    if not isinstance(data[0], str):
        raise TypeError(f"[datapipe] pathname should be of type str, got {type(data[0])}{hint}")
    if not isinstance(data[1], (io.IOBase, StreamWrapper)):
        raise TypeError(f"[datapipe] binary stream should be a file, got {type(data[1])}{hint}")


class StreamWrapper:
    """An open file that closes when nothing refers to it any more, and its parent with it."""

    def __init__(self, file_obj: Any, parent_stream: Any = None, name: str | None = None) -> None:
        if parent_stream is not None and not isinstance(parent_stream, StreamWrapper):
            raise RuntimeError(
                f"Parent stream should be StreamWrapper, {type(parent_stream)} was given"
            )
        self.file_obj, self.parent_stream, self.name = file_obj, parent_stream, name
        self.child_counter, self.closed, self.close_on_last_child = 0, False, False
        if parent_stream is not None:
            parent_stream.child_counter += 1

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Closes the file."""
        if self.closed:
            return
        self.closed = True
        self.file_obj.close(*args, **kwargs)
        parent = self.parent_stream
        if parent is not None:
            parent.child_counter -= 1
            if parent.child_counter == 0 and parent.close_on_last_child:
                parent.close()

    def autoclose(self) -> None:
        """Closes the file now, or when its last child is closed."""
        self.close_on_last_child = True
        if self.child_counter == 0:
            self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["file_obj"], name)

    def __dir__(self) -> list[str]:
        return [*vars(self), *dir(StreamWrapper), *dir(self.file_obj)]

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):
            self.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __repr__(self) -> str:
        name = repr(self.file_obj) if self.name is None else f"{self.name},{self.file_obj!r}"
        return f"StreamWrapper<{name}>"

    def __getstate__(self) -> Any:
        return self.file_obj

    def __setstate__(self, state: Any) -> None:
        self.__init__(state)  # type: ignore[misc]
