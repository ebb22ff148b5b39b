"""A pipe of the files below folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe
from flambeau.utils.data.datapipes.utils.common import get_file_pathnames_from_root

__all__ = ["FileListerIterDataPipe"]


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe[str]):
    """Paths of files.

    Args:
        root: a folder, several, or a pipe of folders.
        masks: patterns of names, as of a shell.
        recursive: goes into folders of folders.
        abspath: yields absolute paths.
        non_deterministic: in the order of the file system.
        length: what `len()` returns; it raises when -1.
    """

    def __init__(
        self,
        root: str | Sequence[str] | IterDataPipe[Any] = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        super().__init__()
        roots: Any = [root] if isinstance(root, str) else root
        pipe = isinstance(roots, IterDataPipe)
        self.datapipe = roots if pipe else IterableWrapperIterDataPipe(roots)
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            yield from get_file_pathnames_from_root(
                root, self.masks, self.recursive, self.abspath, self.non_deterministic
            )

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length
