"""Calls of inner modules whose form an exported program has, and modules in their places."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.export import Dim, export, load, save, unflatten


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, pair, *, scale=2.0):
        self.calls.add_(1)
        y = self.linear(x).reshape(x.shape[0] * 3)
        return {"a": y.view(-1, 3) * scale, "b": (pair[0] + pair[1], 3)}


class Outer(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.inner, self.other, self.calls = Inner(), nn.Linear(3, 3), calls

    def forward(self, x, y):
        count, z = x.shape[0], x
        for _ in range(self.calls):
            parts = self.inner(z, [z, y], scale=3.0)
            z = parts["a"] + parts["b"][0] * parts["b"][1]
        return (z + self.other(y)) * count


class Other(nn.Module):
    def forward(self, x, pair, *, scale):
        assert isinstance(pair, list) and scale == 3.0
        return {"a": x * 10, "b": (pair[0], 3)}


def program_of(model, **options):
    x, y = torch.ones(4, 3), torch.full((4, 3), 2.0)
    batch = Dim("batch", max=64)
    options = {"preserve_module_call_signature": ("inner", "other"), **options}
    return export(model, (x, y), dynamic_shapes=({0: batch}, {0: batch}), **options)


def names(arguments):
    return [getattr(x, "value", x.name) for x in arguments]


def same(tree, model, *sizes):
    for size in sizes:
        x, y = torch.randn(size, 3), torch.randn(size, 3)
        before = model.inner.calls.clone() if hasattr(model.inner, "calls") else None
        found = tree(x, y)
        if before is not None:
            model.inner.calls.copy_(before)
        assert torch.equal(found, model(x, y))


@pytest.mark.parametrize("form", ["training", "functional", "core", "file"])
def test_other_modules_in_the_place(form, tmp_path):
    torch.manual_seed(0)
    model = Outer(1)
    program = program_of(model)
    if form in ("functional", "core"):
        program = program.run_decompositions({} if form == "functional" else None)
    elif form == "file":
        save(program, tmp_path / "model.pt2")
        before, program = program, load(tmp_path / "model.pt2")
        assert str(before.module_call_graph) == str(program.module_call_graph)
        program._state_dict.update(before.state_dict)
    entries = {x.fqn: x.signature for x in program.module_call_graph}
    assert list(entries) == ["", "inner", "inner.linear", "other"]
    assert names(entries["inner"].inputs) == ["x", "x", "y", 3.0]
    assert names(entries["inner"].outputs)[2] == 3 and entries["inner.linear"] is None
    known = {node.name for node in program.graph.nodes}
    assert {x.name for x in entries["inner"].outputs if x.name} <= known
    tree = unflatten(program)
    same(tree, model, 4, 7)
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    direct, expected = tree.inner(x, [x, y], scale=3.0), model.inner(x, [x, y], scale=3.0)
    assert torch.equal(direct["a"], expected["a"]) and direct["b"][1] == 3
    with pytest.raises(ValueError, match="expected 3.0"):
        tree.inner(x, [x, y], scale=4.0)
    with pytest.raises(TypeError, match="structure"):
        tree.inner(x, (x, y), scale=3.0)
    tree.inner = model.inner = Other()
    same(tree, model, 4, 7)


def test_several_calls_of_a_module():
    torch.manual_seed(0)
    model = Outer(2)
    program = program_of(model)
    assert [x.fqn for x in program.module_call_graph] == [
        "", "inner", "inner.linear", "other", "inner@1",
    ]  # fmt: skip
    tree = unflatten(program)
    same(tree, model, 4, 7)
    assert tree.inner.calls is getattr(tree, "inner@1").calls
    tree.inner = model.inner = Other()
    setattr(tree, "inner@1", Other())
    same(tree, model, 4, 7)


def test_further_calls_of_another_structure():
    class Several(Outer):
        def forward(self, x, y):
            return self.inner(x, [x, y])["a"] + self.inner(x, (x, y))["a"]

    with pytest.raises(AssertionError, match="in_spec mismatch for inner"):
        program_of(Several(1))


def test_calls_without_gradients():
    class Quiet(Outer):
        def forward(self, x, y):
            with torch.no_grad():
                z = self.other(x)
            return z + y

    with pytest.raises(NotImplementedError, match="without gradients"):
        program_of(Quiet(1), preserve_module_call_signature=("other",))


def test_values_that_no_call_passes():
    class Passing(nn.Module):
        def forward(self, x):
            self.seen = x * 2
            return x + 1

    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.passing = Passing()

        def forward(self, x):
            return self.passing(x) + self.passing.seen

    options = {"preserve_module_call_signature": ("passing",)}
    program = export(Reading(), (torch.ones(2),), **options)
    with pytest.raises(NotImplementedError, match="does not pass"):
        unflatten(program)
    x = torch.randn(2)
    assert torch.equal(unflatten(export(Reading(), (x,)))(x), Reading()(x))


@pytest.mark.parametrize("core", [False, True])
def test_sizes_that_vary_belong_to_the_module_that_uses_them(core):
    torch.manual_seed(0)
    model = Outer(1)
    program = program_of(model, preserve_module_call_signature=())
    program = program.run_decompositions(None if core else {})
    tree = unflatten(program)
    same(tree, model, 4, 7)
    assert [name for name, _ in tree.inner.named_children()] == ["linear"]
