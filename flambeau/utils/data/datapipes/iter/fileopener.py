"""A pipe of open files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.datapipes.utils.common import get_file_binaries_from_pathnames

__all__ = ["FileOpenerIterDataPipe"]

_MODES = ("b", "t", "rb", "rt", "r")


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe[Any]):
    """Pairs (path, open file).

    Args:
        datapipe: paths.
        mode: for reading: "b", "t", "rb", "rt" or "r".
        encoding: of text.
        length: what `len()` returns; it raises when -1.

    Raises:
        ValueError: another mode; an encoding of bytes.
    """

    def __init__(
        self,
        datapipe: Iterable[str],
        mode: str = "r",
        encoding: str | None = None,
        length: int = -1,
    ) -> None:
        super().__init__()
        if mode not in _MODES:
            raise failure(ValueError, "FileOpener", f"Invalid mode {mode}", f"one of {_MODES}")
        if "b" in mode and encoding is not None:
            raise ValueError("[FileOpener] binary mode doesn't take an encoding\nhint: drop it")
        self.datapipe, self.encoding, self.length = datapipe, encoding, length
        self.mode = "r" + mode if mode in ("b", "t") else mode

    def __iter__(self) -> Iterator[Any]:
        yield from get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length
