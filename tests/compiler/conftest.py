"""Fixtures of the compiler's tests: golden files, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


@pytest.fixture
def golden(request):
    """A function that compares a text with the golden file of a name."""

    def compare(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing\nhint: run pytest tests/compiler --update-golden"
        assert text == path.read_text(), "differs\nhint: pytest --update-golden, then read the diff"

    return compare
