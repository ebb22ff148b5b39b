"""`flambeau.compiler.report`: a page about one function."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.reports import report, roofline

VOID = {"meta", "path", "circle", "br"}


class Page(HTMLParser):
    """The elements of a page, which must be closed in order, and its text."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(Path(path).read_text())
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        names = {name for name, _ in attrs}
        assert not names & {"src", "href", "onclick", "onload"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def two_programs(x: Any) -> Any:
    y = x @ x
    if y.sum().item() > 1e9:
        return y
    return torch.softmax(y, -1) * 2


def test_a_page_has_everything(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with torch.no_grad():
        assert torch.compiler.report(two_programs, torch.ones(32, 32), path=str(path)) == str(path)
    page = Page(str(path))
    assert "script" not in page.tags and "link" not in page.tags
    assert os.listdir(tmp_path) == ["page.html"]  # no temporary file is left
    words = page.words
    for part in ("Program 1", "Program 2", "simplify", "assemble", "bytes read", "GB/s"):
        assert part in words
    assert "are apart: " in words and "item() after" in words
    assert "void fb_" in words and "prims.matmul" in words
    assert "compiled" in words or "baseline" in words
    assert "svg" in page.tags


def test_texts_are_escaped(tmp_path: Path) -> None:
    def named(x: Any) -> Any:
        return x * 2

    named.__qualname__ = "<script>alert('x')</script>&"
    path = torch.compiler.report(named, torch.ones(4), path=str(tmp_path / "escaped.html"))
    page = Page(path)
    assert "script" not in page.tags
    assert "<script>alert('x')</script>&" in page.words


def test_the_path_is_that_of_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = torch.compiler.report(torch.sin, torch.ones(4))
    assert path == str(tmp_path / "report_sin.html") and os.path.exists(path)


def test_times_are_matched_in_order() -> None:
    from flambeau.runtime import LaunchTime

    run = [LaunchTime("a", 1000, 0, 1), LaunchTime("other", 9, 0, 1)]
    run += [LaunchTime("c (baseline)", 3000, 0, 1), LaunchTime("a", 5000, 0, 1)]
    times = report._matched(["a", "b", "c", "a"], [run])
    assert times == [(1.0, False), (None, False), (3.0, True), (5.0, False)]


def test_a_figure_needs_operations() -> None:
    assert roofline.figure([], 1e9) == ""
