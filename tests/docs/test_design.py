"""docs/design.md names what stands: primitives, kernel statements, op options, argument kinds."""

from __future__ import annotations

import re
from pathlib import Path

import flambeau  # noqa: F401 - defines everything
from flambeau.ir import kernel
from flambeau.language.definition import OPTION_NAMES
from flambeau.language.schema import KINDS
from flambeau.prims.record import PRIMITIVES

PAGE = (Path(__file__).parents[2] / "docs" / "design.md").read_text()


def section(number: int) -> set[str]:
    """The words of one section."""
    found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/design.md lacks section {number}: the code refers to it by number"
    return set(re.findall(r"\w+", found[0]))


def test_primitives() -> None:
    missing = sorted(set(PRIMITIVES) - section(2))
    assert not missing, f"docs/design.md § 2 does not name {missing}"


def test_kernels() -> None:
    words = section(4)
    statements = {cls.__name__ for cls in kernel.Statement.__args__}
    missing = sorted((statements | set(kernel.SCANS)) - words)
    assert not missing, f"docs/design.md § 4 does not name {missing}"


def test_argument_kinds() -> None:
    missing = sorted({kind.rstrip("?[]") for kind in KINDS} - section(7))
    assert not missing, f"docs/design.md § 7 does not name {missing}"


def test_options() -> None:
    missing = sorted(set(OPTION_NAMES) - section(8))
    assert not missing, f"docs/design.md § 8 does not name {missing}"
