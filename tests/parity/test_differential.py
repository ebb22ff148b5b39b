"""The programs of `tests/differential` do the same under both frameworks, but for a short list."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")

from tests.differential.comparison import FILES, LISTED, compare_file  # noqa: E402


def test_the_list_is_short() -> None:
    assert len(LISTED) <= 10
    assert {entry.partition(".")[0] for entry in LISTED} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_programs(name: str) -> None:
    found = {f"{name}.{title}": lines for title, lines in compare_file(name).differences.items()}
    wrong = {title: lines for title, lines in found.items() if title not in LISTED}
    assert not wrong, "\n".join(f"{title}: {lines}" for title, lines in wrong.items())
    same = [entry for entry in LISTED if entry.startswith(f"{name}.") and entry not in found]
    assert not same, f"as in PyTorch now, to be taken from the list: {same}"
