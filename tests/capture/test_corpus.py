"""The corpus (tests/capture/corpus): every program behaves compiled as it does in plain Python."""

from __future__ import annotations

from tests.capture.corpus import cases, running

EXPLAINED = 0.66  # of all cases: their later calls run without Python; may only grow


def test_programs_behave_as_in_plain_python() -> None:
    """Results, side effects and exceptions, call by call; and the share that is explained."""
    corpus = cases.every()
    assert len(corpus) >= 1500
    outcomes = running.run_all(corpus)
    different = [f"{o.name}: {o.difference}" for o in outcomes if o.difference is not None]
    assert not different, "\n".join(different)
    share = sum(outcome.explained for outcome in outcomes) / len(outcomes)
    assert share >= EXPLAINED, running.report(outcomes)
