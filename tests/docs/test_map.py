"""docs/map.md names every file, and nothing that is not there."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("flambeau", "native", "tools", "examples", "bench")
SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".c", ".cu", ".txt", ".in"}
GENERATED = ("bench/results", "flambeau/_kernels")


def listed() -> set[str]:
    """Paths that the map has an entry for."""
    page = (ROOT / "docs" / "map.md").read_text()
    return set(re.findall(r"^- `([^`]+)`:", page, re.MULTILINE))


def tracked() -> list[str]:
    """Files that git knows (a directory walk where this is no checkout)."""
    command = ["git", "ls-files", "-z", *PARTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        return [name for name in done.stdout.split("\0") if name and (ROOT / name).exists()]
    found = [path for part in PARTS for path in (ROOT / part).rglob("*") if path.is_file()]
    return [str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts]


def _proposed(name: str) -> str:
    """A line to start from: the file's docstring."""
    phrase = "what it is for"
    if name.endswith(".py"):
        doc = ast.get_docstring(ast.parse((ROOT / name).read_text())) or phrase
        phrase = doc.splitlines()[0].rstrip(".")
    return f"- `{name}`: {phrase}"


def test_every_file_has_an_entry() -> None:
    names = [n for n in tracked() if Path(n).suffix in SUFFIXES and not n.startswith(GENERATED)]
    missing = sorted(set(names) - listed())
    assert not missing, "add to docs/map.md, in its step:\n" + "\n".join(map(_proposed, missing))


def test_every_entry_exists() -> None:
    gone = sorted(name for name in listed() if not (ROOT / name).exists())
    assert not gone, "docs/map.md names what is not there: " + ", ".join(gone)


def test_every_test_folder_has_an_entry() -> None:
    folders = {f"tests/{path.parent.relative_to(ROOT / 'tests')}/" for path in
               (ROOT / "tests").glob("*/test_*.py")}  # fmt: skip
    missing = sorted(folders - listed())
    assert not missing, f"add to docs/map.md, tests by folder: {', '.join(missing)}"


def test_entries_are_short() -> None:
    page = (ROOT / "docs" / "map.md").read_text().splitlines()
    long = [line for line in page if line.startswith("- ") and len(line) > 160]
    assert not long, "shorten in docs/map.md:\n" + "\n".join(long)
