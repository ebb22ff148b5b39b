"""A part of PyTorch's operator database, small enough for every run; the command runs the whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
pytest.importorskip("scipy", reason="PyTorch's operator database needs it")

import flambeau  # noqa: E402
from tests.parity import name_coverage, page_sections, verdicts  # noqa: E402
from tests.parity.coverage_page import page, summary  # noqa: E402
from tests.parity.entry_checks import Record, entry_name, run_check  # noqa: E402
from tests.parity.entry_reasons import REASONS  # noqa: E402
from tests.parity.operator_database import database  # noqa: E402

NAMES = """
    __getitem__ add addmm amax cat cumsum div einsum exp index_select log_softmax masked_fill mean
    mul nn.functional.dropout nn.functional.layer_norm permute scatter_add sum transpose where
""".split()
ENTRIES = {entry_name(entry): entry for entry in database()}


def failures(records):
    return [f"{r.entry} {r.check} {r.dtype}: {r.reason}" for r in records if r.failed]


@pytest.mark.parametrize("name", [name for name in NAMES if name in ENTRIES])
@pytest.mark.parametrize("check", ["forward", "gradient"])
def test_entry(name, check):
    assert not failures(run_check(ENTRIES[name], torch.float32, check, limit=4))


def test_a_wrong_result_is_found():
    """The runner is no use if everything passes: a changed entry must not."""
    entry = ENTRIES["exp"]
    wrong = type("Wrong", (), {"op": staticmethod(torch.expm1), "name": "exp", "decorators": ()})
    wrong.variant_test_name = ""
    wrong.sample_inputs = entry.sample_inputs
    records = run_check(wrong, torch.float32, "forward", limit=2)
    assert not failures(records)  # both libraries run expm1
    wrong.op = staticmethod(lambda x: torch.exp(x) + 1)
    found = run_check(wrong, torch.float32, "forward", limit=2)
    assert failures(found)


@pytest.mark.parametrize(
    ("name", "dtype"), [("sort", "bool"), ("nn.functional.conv_transpose2d", "bfloat16")]
)
def test_an_answer_as_good_is_told_apart(name, dtype):
    """Another of several equal elements, and a result nearer to the one in float64."""
    found = run_check(ENTRIES[name], getattr(torch, dtype), "forward", limit=0)[0]
    assert 0 < found.failed == found.excused


def test_a_wrong_answer_is_not_excused():
    class Given:
        input, args, kwargs = torch.tensor([2.0, 1.0, 2.0]), (), {}

    def judged(name, values, indices):
        right = torch.sort(Given.input, stable=True)
        ours = (flambeau.tensor(values), flambeau.tensor(indices))
        return verdicts.excuse(ENTRIES[name], Given, ours, tuple(right))

    assert judged("sort", [1.0, 2.0, 2.0], [1, 2, 0]) == "equal elements"
    assert judged("sort", [1.0, 2.0, 2.0], [1, 2, 2]) is None
    assert judged("sort", [1.0, 2.0, 2.5], [1, 2, 0]) is None


def test_the_page_tells_what_fails_and_why():
    good = Record("exp", "float32", "forward", 3)
    bad = Record("fft.fft", "float32", "forward", 2, 1, 0, "value 1 at (0,), expected 2")
    other = Record("sort", "int64", "forward", 2, 1, 1, "value 1 at (0,), expected 2")
    known = {(r.entry, r.dtype, r.check): [r.as_dict()] for r in (good, bad, other)}
    text = page(["exp", "fft.fft", "sin"], known)
    assert "**1 of 3 entries pass" in text and "int64 1/2, all as good" in text
    assert "value 1 at (0,)" in text and "`sin`" in text
    assert "| forward | int64 | 0 | 1 | 0.0 | 100.0 |" in text
    assert "| torch.fft | 22 | 22 | 100.0 |" in text
    assert "1 of    2 entries pass" in summary(known)


def test_every_failing_entry_of_the_page_has_a_reason():
    text = (Path(__file__).parents[2] / "docs" / "coverage.md").read_text()
    failing = text.partition("## Entries with a failing check")[2].partition("\n## ")[0]
    named = re.findall(r"^- \*\*(\S+)\*\*", failing, re.MULTILINE)
    assert named and "not examined" not in failing
    assert set(named) == set(REASONS)


def test_missing_names_have_reasons():
    assert name_coverage.reason("q_scale") == "quantization"
    assert name_coverage.reason("a_name_of_no_family") == "not built yet"
    assert "sum" in name_coverage.functions(torch, "")
    assert "pi" not in name_coverage.functions(torch, "")


def test_sections_of_a_page_are_replaced_alone():
    text = "# Page\n\nhead\n\n## One\n\na\n\n## Two\n\nb\n"
    assert page_sections.section(text, "## One") == ["## One", "", "a"]
    assert page_sections.section(text, "## Three") == []
    assert page_sections.replaced(text, ["## One", "", "new"]) == text.replace("\na\n", "\nnew\n")
    assert page_sections.replaced(text, ["## Two", "", "new"]) == text.replace("\nb\n", "\nnew\n")
    assert page_sections.replaced(text, ["## Three", "", "c"]) == text + "\n## Three\n\nc\n"
    assert page_sections.replaced(text, []) == text
