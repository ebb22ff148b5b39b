"""The pages' Python blocks run, and print what the pages show; their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runner import blocks, execute

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p.read_text())], ids=lambda p: p.name)
def test_blocks(path: Path) -> None:
    assert execute(path) > 0


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    local = [target for target in targets if "://" not in target]
    gone = [target for target in local if not (path.parent / target).exists()]
    assert not gone, f"{path.name} links to what is not there: {gone}"


def test_runner_compares(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="page.md:2"):
        execute(page)
