"""`draft_export`: branches of the example, sizes that vary as far as they can, reports."""

from __future__ import annotations

import logging

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.export import Dim, draft_export, export, load, save
from flambeau.export._draft_export import FailureType


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Counted(nn.Module):
    def forward(self, x):
        for _ in range(int((x > 0).sum().item())):
            x = x + 1
        return x * 2 if x.sum().item() > 3.5 else x


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.total.add_((x * self.weight).sum())
        return x * 3 if self.total > 2 else x


class Halves(nn.Module):
    def forward(self, x):
        return x.view(2, -1) if x.shape[0] > 3 else x


def kinds(program):
    return [failure.failure_type for failure in program._report.failures]


@pytest.mark.parametrize("model", [Branch, Counted, Written])
@pytest.mark.parametrize("varies", [False, True])
def test_branches_on_data_are_those_of_the_example(model, varies, tmp_path):
    x, module = torch.ones(4), model()
    shapes = ({0: Dim("n", min=2)},) if varies and model is not Written else None
    before = torch.get_rng_state()
    program = draft_export(module, (x,), dynamic_shapes=shapes)
    assert torch.equal(torch.get_rng_state(), before)
    assert not program._report.successful()
    assert set(kinds(program)) == {FailureType.DATA_DEPENDENT_ERROR}
    assert "__file__" not in str(program._report) and "test_draft_export.py" in str(program._report)
    if model is Written:
        assert module.total == 0
    save(program, tmp_path / "model.pt2")
    for each in (program, program.run_decompositions(), load(tmp_path / "model.pt2")):
        if model is Written:
            module.total.zero_()
            each._state_dict["total"].zero_()
        found = each.module()(x)
        if model is Written:
            module.total.zero_()
        assert torch.equal(found, model()(x))
        if model is Written:
            module.total.fill_(-100.0)
            each._state_dict["total"].fill_(-100.0)
        with pytest.raises(RuntimeError, match="assertion failed"):
            each.module()(-x)


def test_a_decision_is_reported_once_for_each_place():
    class Often(nn.Module):
        def forward(self, x):
            for scale in (1.0, 2.0, 3.0):
                if (x * scale).sum() > 0:
                    x = x + 1
            return x

    report = draft_export(Often(), (torch.ones(2),))._report
    assert [f.data["result"] for f in report.failures] == [True] * 3
    assert {f.data["user_stack"][0]["name"] for f in report.failures} == {"forward"}


def test_sizes_vary_as_far_as_the_program_allows(caplog):
    with caplog.at_level(logging.WARNING):
        program = draft_export(Halves(), (torch.ones(8),), dynamic_shapes=({0: Dim("n")},))
    assert set(kinds(program)) == {FailureType.GUARD_ADDED}
    assert "4 <= L['x'].size()[0]" in caplog.text
    assert str(program.range_constraints) == "{s0: VR[4, int_oo]}"
    assert program.module()(torch.ones(6)).shape == (2, 3)
    for size in (2, 7):
        with pytest.raises(AssertionError, match="Guard failed"):
            program.module()(torch.ones(size))
    constant = draft_export(
        nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({1: Dim.DYNAMIC},)
    )
    assert kinds(constant) == [FailureType.GUARD_ADDED]
    assert constant.module()(torch.ones(4, 3)).shape == (4, 2)


def test_programs_without_problems():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.ones(2, 3)
    shapes = ({0: Dim("batch", min=2)},)
    draft, program = (make(model, (x,), dynamic_shapes=shapes) for make in (draft_export, export))
    assert draft._report.successful() and "no problem" in str(draft._report)
    assert str(draft) == str(program)


def test_errors_of_arguments_are_raised():
    with pytest.raises(RuntimeError, match="`args` to be a tuple"):
        draft_export(nn.ReLU(), torch.ones(2))
    with pytest.raises(RuntimeError, match="Unsupported input type"):
        draft_export(nn.ReLU(), (object(),))
