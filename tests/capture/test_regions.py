"""Regions: flush reasons, errors, threads, nesting, modules, state that a region writes."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core, nn

F = nn.functional


def builds() -> int:
    """Streams compiled since the test began."""
    return int(_core.stream_stats()["builds"])


# ---------------------------------------------------------------- flushes

FLUSHES = {
    "item": lambda y: y.sum().item(),
    "bool": lambda y: bool(y.sum() > 0),
    "float": lambda y: float(y.sum()),
    "int": lambda y: int(y.sum()),
    "tolist": lambda y: y.tolist(),
    "numpy": lambda y: y.numpy(),
    "print": lambda y: repr(y),
}


@pytest.mark.parametrize("name", FLUSHES)
def test_flush_names_line_and_reason(name: str) -> None:
    needs = FLUSHES[name]

    def program(x: Any) -> Any:
        y = x * 2
        needs(y)
        return y + 1

    report = torch.compiler.explain(program, torch.ones(3))
    assert report.graph_break_count == 1
    first = report.flushes[0]
    assert first.reason and first.reason != "end of region"
    assert "test_regions.py:" in first.line
    assert first.records >= 1
    assert str(first.line) in str(report)


def test_explain_counts() -> None:
    def program(x: Any) -> Any:
        y = (x * 2 + 1).sin()
        if y.sum().item() > 1e9:
            return x
        return y.cos()

    x = torch.ones(1000)
    report = torch.compiler.explain(program, x)
    assert report.plans == 2
    assert [f.records for f in report.flushes] == [4, 1]
    assert report.kernels >= 2
    # first: x in, y and the sum out; second: y in, result out
    assert report.bytes_least == (1000 + 1000 + 1) * 4 + 2 * 1000 * 4
    assert report.bytes_least <= report.bytes_moved < report.bytes_eager
    assert len(report.graphs) == 2


def test_a_chain_is_one_kernel() -> None:
    report = torch.compiler.explain(lambda x: ((x + 1) * 2).tanh().exp() - x, torch.ones(64, 64))
    assert (report.plans, report.kernels) == (1, 1)
    assert report.bytes_moved == 2 * 64 * 64 * 4


def test_fullgraph_refuses_a_branch_on_data() -> None:
    f = torch.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)
    with pytest.raises(RuntimeError, match=r"fullgraph=True.*test_regions\.py:\d+"):
        f(torch.ones(3))
    assert not _core.is_recording()
    g = torch.compile(lambda x: x * x.sum(), fullgraph=True)
    assert g(torch.ones(3)).tolist() == [3, 3, 3]


def test_disable_runs_eagerly_inside_a_region() -> None:
    seen = []

    @torch.compiler.disable
    def eager(y: Any) -> Any:
        seen.append(torch.compiler.is_compiling())
        return y + 1

    @torch.compile
    def program(x: Any) -> Any:
        seen.append(torch.compiler.is_compiling())
        return eager(x * 2) * 3

    assert program(torch.ones(2)).tolist() == [9, 9]
    assert seen == [True, False]


def test_nested_compiled_functions_are_one_region() -> None:
    inner = torch.compile(lambda x: x.sin() + 1)
    outer = torch.compile(lambda x: inner(x) * inner(x * 2))
    x = torch.randn(10)
    assert torch.equal(outer(x), (x.sin() + 1) * ((x * 2).sin() + 1))
    assert _core.stream_stats()["flushes"] == 1


# ---------------------------------------------------------------- errors and threads


def test_error_in_a_region_leaves_tensors_usable() -> None:
    kept = []

    @torch.compile
    def program(x: Any) -> Any:
        kept.append(x * 2)
        kept.append(kept[0] + 1)
        raise ValueError("stop")

    x = torch.ones(3)
    with pytest.raises(ValueError, match="stop"):
        program(x)
    assert kept[0].tolist() == [2, 2, 2]
    assert (kept[1] + x).tolist() == [4, 4, 4]


def test_error_of_an_op_is_raised_at_its_line() -> None:
    f = torch.compile(lambda x, y: (x + 1) @ y)
    with pytest.raises(RuntimeError, match="matmul|mat"):
        f(torch.ones(2, 3), torch.ones(2, 3))
    assert f(torch.ones(2, 3), torch.ones(3, 1)).tolist() == [[6], [6]]


def test_bad_index_is_found_at_the_flush() -> None:
    f = torch.compile(lambda table, i: table[i] * 2)
    table = torch.arange(4.0)
    with pytest.raises(IndexError):
        f(table, torch.tensor([1, 7]))
    assert f(table, torch.tensor([1, 3])).tolist() == [2, 6]


def test_every_thread_records_for_itself() -> None:
    torch.manual_seed(0)
    w = torch.randn(8, 8)
    f = torch.compile(lambda x: torch.tanh(x @ w).sum(1))
    inputs = [torch.randn(4, 8) for _ in range(6)]
    expected = [torch.tanh(x @ w).sum(1) for x in inputs]
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(20):
            found[k] = f(inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(torch.equal(found[k], expected[k]) for k in range(6))


def test_values_of_a_running_region_seen_by_another_thread() -> None:
    shared: dict[str, Any] = {}

    def other() -> None:
        shared["found"] = (shared["y"] + 1).tolist()

    @torch.compile
    def program(x: Any) -> Any:
        shared["y"] = x * 2
        t = threading.Thread(target=other)
        t.start()
        t.join()
        return shared["y"] * 3

    assert program(torch.ones(2)).tolist() == [6, 6]
    assert shared["found"] == [3, 3]


# ---------------------------------------------------------------- modules


class Small(nn.Module):
    """A module with parameters, a buffer and a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.drop, self.scale = nn.Dropout(0.5), 2.0

    def forward(self, x: Any) -> Any:
        return self.drop(self.norm(self.first(x)).relu()) * self.scale


def test_optimized_module_is_the_module() -> None:
    module = Small()
    compiled = torch.compile(module)
    assert isinstance(compiled, nn.Module)
    assert set(compiled.state_dict()) == {f"_orig_mod.{k}" for k in module.state_dict()}
    assert compiled.first is module.first and compiled.scale == 2.0
    assert {id(p) for p in compiled.parameters()} == {id(p) for p in module.parameters()}
    compiled.eval()
    assert not module.training and not compiled.training
    compiled.train()
    assert module.training and module.drop.training
    again = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(again.first.weight, module.first.weight)


def _twins() -> tuple[Any, Any]:
    torch.manual_seed(1)
    first, second = Small(), Small()
    second.load_state_dict(first.state_dict())
    return first, second


def test_module_with_dropout_and_running_statistics() -> None:
    eager, module = _twins()
    compiled = torch.compile(module)
    for step in range(3):
        x = torch.randn(7, 6)
        torch.manual_seed(step)
        expected = eager(x)
        torch.manual_seed(step)
        found = compiled(x)
        assert torch.equal(expected, found)
        expected.square().mean().backward()
        found.square().mean().backward()
    for (name, a), b in zip(eager.named_parameters(), module.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), name
    for (name, a), b in zip(eager.named_buffers(), module.buffers(), strict=True):
        assert torch.equal(a, b), name


def test_compile_method_of_modules() -> None:
    eager, module = _twins()
    module.compile()
    eager.eval()
    module.eval()
    x = torch.randn(3, 6)
    assert torch.equal(eager(x), module(x))
    assert _core.stream_stats()["flushes"] == 1


# ---------------------------------------------------------------- random numbers and writes


def test_random_numbers_are_those_of_eager_mode(check: Any) -> None:
    def program(x: Any) -> Any:
        a = x + torch.randn(4)
        b = torch.rand(3).sum().item()
        return F.dropout(a, 0.3) * torch.randint(0, 9, (4,)) + b + torch.randperm(4)

    check(program, torch.ones(4))
    check(program, torch.ones(4, requires_grad=True))


def test_draws_happen_in_the_order_of_the_program(check: Any) -> None:
    def program(x: Any) -> Any:
        for _ in range(3):  # a draw that depends on nothing could come any time
            x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.2)
            x = F.dropout(x.transpose(1, 2), 0.1).transpose(1, 2)
        late, early = torch.rand(3), torch.randn(3)
        return x, early.exp() + late

    check(program, torch.randn(2, 2, 6, 4))
    check(program, torch.randn(2, 2, 6, 4, requires_grad=True))


def test_draws_that_nobody_reads_advance_the_generator(check: Any) -> None:
    def program(x: Any) -> Any:
        torch.rand(3)
        y = F.dropout(x, 0.5)
        F.dropout(x * 2, 0.5)
        x = torch.empty(4).normal_().zero_() + x
        return x, y * torch.rand(4)

    check(program, torch.ones(4))
    check(program, torch.ones(4, requires_grad=True))


def test_writes_to_views(check: Any) -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y[1:3] += 1
        y[0] = x.sum()
        y.t()[:2].mul_(3)
        return y

    check(program, torch.randn(4, 3))
    check(program, torch.randn(4, 3, requires_grad=True))


def test_arguments_are_written(check: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x.add_(1)
        y.copy_(x * 2)
        x.mul_(y)
        return x + y

    check(program, torch.randn(3), torch.randn(3))


def test_cache_of_slices() -> None:
    def step(cache: Any, position: int, value: Any) -> Any:
        cache[:, position : position + 1] = value
        return (cache[:, : position + 1] * 2).sum(1)

    compiled = torch.compile(step)
    a, b = torch.zeros(2, 16, 3), torch.zeros(2, 16, 3)
    for position in range(8):
        value = torch.randn(2, 1, 3)
        assert torch.equal(step(a, position, value), compiled(b, position, value))
    assert torch.equal(a, b)


def test_gradients_accumulate_over_calls() -> None:
    eager, module = _twins()
    eager.eval(), module.eval()
    compiled = torch.compile(module)
    for k in range(3):
        x = torch.randn(k + 2, 6)
        eager(x).sum().backward()
        compiled(x).sum().backward()
    for a, b in zip(eager.parameters(), module.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_a_region_that_only_draws_moves_the_generator():
    """Nobody reads what was drawn; what is drawn afterwards is as in eager mode."""
    torch.manual_seed(0)
    torch.rand(3)
    expected = torch.rand(1)
    torch.manual_seed(0)
    torch.compile(lambda: torch.rand(3) is None)()
    assert torch.equal(torch.rand(1), expected)


def test_a_view_of_what_was_written_counts_once():
    """Its base is an operand as well: the gradient goes from one to the other outside."""

    def function(x):
        z = (x * 1.0).mul_(0.5)
        return (z.view(3) * 2.0 + z * 3.0).sum()

    found = []
    for call in (function, torch.compile(function)):
        x = torch.arange(3.0, requires_grad=True)
        call(x).backward()
        found.append(x.grad.tolist())
    assert found == [[2.5, 2.5, 2.5]] * 2


@pytest.mark.parametrize("view", ["permute", "unsqueeze", "slice"])
def test_views_taken_after_a_write_stay_in_the_stream(view: str) -> None:
    """They are views of the newest value; einops.EinMix adds its bias so and rearranges then."""
    views = {
        "permute": lambda y: y.permute(1, 2, 0),
        "unsqueeze": lambda y: y.unsqueeze(1),
        "slice": lambda y: y[1:].t()[0],
    }

    def function(x: Any, bias: Any) -> Any:
        y = x * 2.0
        y += bias
        return views[view](y).amin(-1) + y.sum()

    x, bias = torch.randn(3, 4, 5) if view == "permute" else torch.randn(3, 4), torch.randn(1)
    values = []
    for call in (function, torch.compile(function, fullgraph=True)):
        x, bias = (t.detach().requires_grad_() for t in (x, bias))
        result = call(x, bias)
        result.square().sum().backward()
        values.append((result, x.grad, bias.grad))
    assert all(map(torch.equal, *values))


def test_views_taken_before_a_write_read_memory(check: Any) -> None:
    def program(x: Any) -> Any:
        y = x * 2.0
        older = y.t()
        y += 1.0
        newer = y.t()
        first = newer * 3.0
        y.mul_(2.0)
        return older + 1.0, first, newer - 1.0, y.t()[1:] * 2.0

    check(program, torch.randn(3, 4))
    assert builds() > 1


@pytest.mark.parametrize("training", [False, True])
def test_layers_compiled_one_by_one_share_programs(training):
    """With gradients, the first layer has a program of its own: nobody needs its input's."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0)
                                   for _ in range(6)))  # fmt: skip
    x = torch.randn(5, 3, 8)

    def results():
        with torch.set_grad_enabled(training):
            out = layers(x).square().mean()
        return [out, *torch.autograd.grad(out, list(layers.parameters()))] if training else [out]

    eager = results()
    for layer in layers:
        layer.compile()
    counters = torch._dynamo.utils.counters
    counters.clear()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(results(), eager, strict=True))
    assert counters["stats"]["unique_graphs"] == 1 + training
