"""`Directory`: which files an archive holds."""

from __future__ import annotations

from collections.abc import Iterable

from flambeau.package.glob_group import GlobGroup

__all__ = ["Directory"]


class Directory:
    """A folder of an archive; `str()` draws it as a tree."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def add_file(self, path: str) -> None:
        """Adds a file by its path below this folder."""
        *folders, name = path.split("/")
        place = self
        for folder in folders:
            place = place.children.setdefault(folder, Directory(folder, True))
        place.children[name] = Directory(name, False)

    def has_file(self, filename: str) -> bool:
        """Whether there is a file or folder of that path."""
        place = self
        for part in filename.split("/"):
            if part not in place.children:
                return False
            place = place.children[part]
        return True

    def _lines(self, prefix: str = "") -> list[str]:
        lines = []
        files = [c for c in self.children.values() if not c.is_dir]
        folders = sorted((c for c in self.children.values() if c.is_dir), key=lambda c: c.name)
        members = [*folders, *sorted(files, key=lambda c: c.name)]
        for child in members:
            last = child is members[-1]
            lines.append(prefix + ("└── " if last else "├── ") + child.name)
            lines += child._lines(prefix + ("    " if last else "│   "))
        return lines

    def __str__(self) -> str:
        return "\n".join(["─── " + self.name, *self._lines("    ")]) + "\n"


def create_directory(
    name: str, files: Iterable[str], include: GlobGroup, exclude: GlobGroup
) -> Directory:
    """The files whose paths match."""
    top = Directory(name, True)
    for path in files:
        if include.matches(path) and not exclude.matches(path):
            top.add_file(path)
    return top
