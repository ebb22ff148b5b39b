"""What a profile records: operators, launches, backward, compiled regions, threads, memory."""

from __future__ import annotations

import os
import threading

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.profiler import profile, record_function
from flambeau.profiler.events import EventKind


def named(prof, name):
    return [event for event in prof.events() if event.name == name]


def of_kind(prof, kind):
    return [event for event in prof.events() if event.kind == kind]


def test_operators_and_their_launches():
    x = torch.randn(64, 32)
    torch.exp(x)
    with profile() as prof:
        torch.exp(x)
        torch.exp(x)
    calls = named(prof, "aten::exp")
    assert len(calls) == 2
    for call in calls:
        (launch,) = call.cpu_children
        assert launch.kind == EventKind.LAUNCH and launch.cpu_parent is call
        assert launch.name == "kernel::exp[exp]"
        assert call.time_range.start <= launch.time_range.start
        assert launch.time_range.end <= call.time_range.end
        assert launch.bytes == call.bytes == 2 * x.numel() * 4
        assert call.cpu_time_total >= launch.cpu_time_total > 0
        assert launch.estimated_time > 0 and call.estimated_time == 0
        assert call.self_cpu_time_total == pytest.approx(
            call.cpu_time_total - launch.cpu_time_total
        )
    starts = [event.time_range.start for event in prof.events()]
    assert starts == sorted(starts) and starts[0] >= 0


def test_nothing_is_recorded_when_off():
    x = torch.ones(10)
    with profile() as prof:
        pass
    x.exp()
    assert len(prof.events()) == 0
    assert _core.profile_enter("nobody listens") is None
    assert not _core.profile_running()
    with profile() as prof:
        pass
    assert len(prof.events()) == 0


def test_ranges_nest():
    x = torch.ones(8)
    with profile() as prof, record_function("outer"):
        x.exp()
        with record_function("inner"):
            x.sin()
    (outer,), (inner,) = named(prof, "outer"), named(prof, "inner")
    assert outer.is_user_annotation and outer.cpu_parent is None
    assert [child.name for child in outer.cpu_children] == ["aten::exp", "inner"]
    assert [child.name for child in inner.cpu_children] == ["aten::sin"]
    assert outer.cpu_time_total >= inner.cpu_time_total
    children = sum(child.cpu_time_total for child in outer.cpu_children)
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - children)


def test_a_range_as_a_decorator_and_in_recursion():
    @record_function("fib")
    def fib(n):
        """doc"""
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib.__name__ == "fib" and fib.__doc__ == "doc"
    with profile() as prof:
        assert fib(4) == 3
    (average,) = [a for a in prof.key_averages() if a.key == "fib"]
    assert average.count == 9
    assert len([e for e in prof.events() if e.cpu_parent is None]) == 1


def test_ranges_end_with_exceptions():
    x = torch.ones(3)
    with profile() as prof:
        with pytest.raises(ZeroDivisionError), record_function("fails"):
            _ = 1 / 0
        with pytest.raises(IndexError), record_function("index"):
            x[torch.tensor([7])]
        x.exp()
    (fails,), (index,), (exp,) = (
        named(prof, "fails"),
        named(prof, "index"),
        named(prof, "aten::exp"),
    )
    assert fails.cpu_parent is None and exp.cpu_parent is None
    assert index.time_range.end <= exp.time_range.start


def test_an_exception_ends_the_profile():
    with pytest.raises(ValueError), profile() as prof:
        torch.ones(3).exp()
        raise ValueError
    assert named(prof, "aten::exp")
    with profile() as again:
        pass
    assert len(again.events()) == 0


def test_open_ranges_at_the_end():
    range_ = record_function("open")
    with profile() as prof:
        range_.__enter__()
        torch.ones(2).exp()
    range_.__exit__(None, None, None)
    (event,) = named(prof, "open")
    assert event.cpu_time_total > 0
    assert named(prof, "aten::exp")[0].cpu_parent is event


def test_interleaved_ranges():
    first, second = record_function("first"), record_function("second")
    with profile() as prof:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        torch.ones(2).exp()
        second.__exit__(None, None, None)
        torch.ones(2).sin()
    assert named(prof, "aten::exp")[0].cpu_parent is named(prof, "second")[0]
    assert named(prof, "aten::sin")[0].cpu_parent is None


def test_one_profile_at_a_time():
    with profile(), pytest.raises(RuntimeError, match="already enabled"), profile():
        pass
    assert not _core.profile_running()


# ------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("batch", [(), (3,)])
def test_flops_of_products(batch):
    a, b = torch.randn(*batch, 5, 7), torch.randn(*batch, 7, 11)
    with profile(with_flops=True) as prof:
        a @ b
    expected = 2 * 5 * 7 * 11 * (batch[0] if batch else 1)
    (call,) = named(prof, "aten::matmul")
    assert call.flops == expected
    assert sum(e.flops for e in prof.events() if e.kind == EventKind.LAUNCH) == expected


def test_flops_of_linear_and_its_backward():
    layer = torch.nn.Linear(16, 8, bias=False)
    x = torch.randn(4, 16, requires_grad=True)
    layer(x).sum().backward()
    with profile(with_flops=True) as prof:
        layer(x).sum().backward()
    (forward,) = named(prof, "aten::linear")
    assert forward.flops == 2 * 4 * 16 * 8
    products = sum(e.flops for e in named(prof, "aten::linear_backward"))
    assert products >= 2 * forward.flops


def test_flops_of_convolutions_and_attention():
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    q = torch.randn(1, 2, 5, 4)
    with profile(with_flops=True) as prof:
        torch.nn.functional.conv2d(x, weight)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert named(prof, "aten::conv2d")[0].flops >= 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3)
    attention = named(prof, "aten::scaled_dot_product_attention")[0].flops
    assert attention == 2 * 2 * (2 * 5 * 5 * 4)
    with profile(with_flops=True) as prof:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    attention = named(prof, "aten::scaled_dot_product_attention")[0].flops
    assert attention == 2 * 2 * (2 * (5 * 6 // 2) * 4)


@pytest.mark.parametrize(("length", "keys"), [(5, 5), (3, 7), (7, 3)])
def test_pairs_of_causal_attention(length, keys):
    from flambeau.compiler.schedule.flops import pairs

    upper = sum(1 for i in range(length) for j in range(keys) if j <= i)
    lower = sum(1 for i in range(length) for j in range(keys) if j <= i + keys - length)
    assert pairs(length, keys, "none") == length * keys
    assert pairs(length, keys, "upper") == upper
    assert pairs(length, keys, "lower") == lower


def test_flops_of_pointwise_kernels():
    x = torch.randn(100)
    with profile(with_flops=True) as prof:
        x * 2 + x
    assert named(prof, "aten::mul")[0].flops == 100
    with profile() as prof:
        x * 2
    assert named(prof, "aten::mul")[0].flops == 0  # not asked for


def test_bytes_are_those_that_are_touched():
    table, index = torch.randn(1000, 16), torch.tensor([1, 2, 3])
    x, column = torch.randn(64, 32), torch.randn(64, 1)
    with profile() as prof:
        torch.nn.functional.embedding(index, table)
        x + column.expand(64, 32)
        x[:, :16].exp()
    (rows,) = named(prof, "aten::embedding")
    assert rows.bytes <= 2 * 3 * 16 * 4 + 3 * 8
    assert named(prof, "aten::add")[0].bytes == 2 * 64 * 32 * 4 + 64 * 4
    assert named(prof, "aten::exp")[0].bytes == 2 * 64 * 16 * 4


def test_in_place_reads_and_writes():
    x = torch.ones(1000)
    with profile() as prof:
        x.mul_(2)
    assert named(prof, "aten::mul_")[0].bytes == 2 * 1000 * 4


def test_threads_of_a_launch():
    torch.set_num_threads(2)
    x = torch.randn(1 << 20)
    torch.exp(x)
    most = 0
    for _ in range(50):  # a busy machine may have no second core to spare
        with profile() as prof:
            torch.exp(x)
        (launch,) = of_kind(prof, EventKind.LAUNCH)
        assert 1 <= launch.threads <= 2 and launch.busy_time > 0
        most = max(most, launch.threads)
        if most == 2:
            break
    else:
        pytest.skip("no second core was free")
    torch.set_num_threads(1)
    with profile() as prof:
        torch.exp(x)
    (launch,) = of_kind(prof, EventKind.LAUNCH)
    assert launch.threads == 1 and launch.busy_time <= launch.cpu_time_total * 1.01 + 1


def test_shapes():
    x = torch.ones(2, 3)
    with profile(record_shapes=True) as prof:
        torch.cat([x, x], 0)
        x.sum(1)
    (cat,) = named(prof, "aten::cat")
    assert cat.input_shapes[0] == [[2, 3], [2, 3]] and cat.input_shapes[1] == []
    assert cat.input_dtypes[0] == ["float32", "float32"]
    assert named(prof, "aten::sum")[0].input_shapes[0] == [2, 3]
    with profile() as prof:
        x.sum(1)
    assert named(prof, "aten::sum")[0].input_shapes == []


@pytest.mark.usefixtures("no_garbage")
def test_memory():
    x = torch.ones(1000)
    with profile(profile_memory=True) as prof:
        with record_function("keeps"):
            kept = x.clone()
        with record_function("gives back"):
            x.clone()
        with record_function("frees"):
            del kept
    assert named(prof, "keeps")[0].cpu_memory_usage == 4000
    assert named(prof, "keeps")[0].self_cpu_memory_usage == 0  # `clone` did it
    assert named(prof, "aten::clone")[0].self_cpu_memory_usage == 4000
    assert named(prof, "gives back")[0].cpu_memory_usage == 0
    assert named(prof, "frees")[0].cpu_memory_usage == -4000
    with profile() as prof:
        x.clone()
    assert named(prof, "aten::clone")[0].cpu_memory_usage == 0


# ------------------------------------------------------------------------------- backward, compile


def test_backward_is_linked_to_its_forward():
    x = torch.randn(8, 8, requires_grad=True)
    (x @ x).relu().sum().backward()
    with profile() as prof:
        (x @ x).relu().sum().backward()
    (forward,) = named(prof, "aten::relu")
    (backward,) = named(prof, "ReluBackward0")
    assert forward.sequence_nr == backward.sequence_nr >= 0
    assert backward.kind == EventKind.BACKWARD and backward.bytes > 0
    assert [c.name for c in backward.cpu_children] == ["aten::relu_backward"]
    assert named(prof, "torch::autograd::AccumulateGrad")[0].sequence_nr == -1


def test_stacks_are_the_users_lines():
    x = torch.randn(8, 8, requires_grad=True)

    def model():
        return torch.nn.functional.gelu(x).sum()

    model().backward()
    with profile(with_stack=True) as prof:
        loss = model()
        loss.backward()
    file = os.path.basename(__file__)
    (call,) = named(prof, "aten::gelu")
    assert f"{file}({model.__code__.co_firstlineno + 1}): model" in call.stack[0]
    assert "test_stacks_are_the_users_lines" in call.stack[1]
    assert not any("/flambeau/autograd/" in line or "/flambeau/nn/" in line for line in call.stack)
    (backward,) = named(prof, "GeluBackward0")
    assert backward.stack == call.stack  # the forward's line, not that of loss.backward()
    assert all(e.stack == call.stack for e in backward.cpu_children)
    rows = prof.key_averages(group_by_stack_n=1)
    assert {tuple(row.stack) for row in rows if row.key.startswith("aten::gelu")} == {
        (call.stack[0],)
    }
    lines = {row.key: row for row in prof.events().source_averages()}
    assert lines[call.stack[0]].cpu_time_total >= call.self_cpu_time_total
    total = sum(row.cpu_time_total for row in lines.values())
    assert total == pytest.approx(prof.events().self_cpu_time_total)


def test_group_by_stack():
    x = torch.ones(4)
    with profile(with_stack=True) as prof:
        x.exp()
        for _ in range(2):
            x.exp()
    assert [a.count for a in prof.key_averages() if a.key == "aten::exp"] == [3]
    found = prof.key_averages(group_by_stack_n=1)
    assert sorted(a.count for a in found if a.key == "aten::exp") == [1, 2]


def test_compiled_regions():
    x = torch.randn(16, 16)

    @torch.compile
    def step(x):
        return (torch.softmax(x @ x, -1) * 2).sum()

    step(x)
    with profile(with_flops=True) as prof:
        step(x)
    recorded = [e.name for e in of_kind(prof, EventKind.RECORDED)]
    assert recorded == ["recorded::matmul", "recorded::softmax", "recorded::mul", "recorded::sum"]
    (region,) = of_kind(prof, EventKind.REGION)
    assert region.flops >= 2 * 16**3
    launches = [e for e in prof.events() if e.kind == EventKind.LAUNCH]
    assert launches and all(e.cpu_parent is region for e in launches)


def test_compiled_backward():
    x = torch.randn(16, 16, requires_grad=True)
    step = torch.compile(lambda x: torch.tanh(x @ x).sum())
    step(x).backward()
    with profile() as prof:
        step(x).backward()
    nodes = of_kind(prof, EventKind.BACKWARD)
    assert any(node.bytes > 0 for node in nodes)


def test_first_calls_show_tracing_and_compiling():
    from flambeau.runtime import plan_cache_clear

    plan_cache_clear()
    x = torch.ones(3, 5, 7)
    with profile() as prof:
        torch.cosh(x)
    (call,) = named(prof, "aten::cosh")
    kinds = [child.kind for child in call.cpu_children]
    assert kinds == [EventKind.TRACE, EventKind.COMPILE, EventKind.LAUNCH]


# ------------------------------------------------------------------------------- threads, processes


def test_threads_have_trees_of_their_own():
    x = torch.randn(64)

    def work(name):
        with record_function(name):
            for _ in range(50):
                x.exp()

    with profile() as prof:
        workers = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    ranges = [named(prof, f"thread {i}")[0] for i in range(4)]
    assert len({event.thread for event in ranges}) == 4
    for event in ranges:
        assert len(event.cpu_children) == 50
        assert {child.thread for child in event.cpu_children} == {event.thread}


def test_threads_that_outlive_a_profile():
    x, stop = torch.randn(64), threading.Event()

    def work():
        while not stop.is_set():
            with record_function("work"):
                x.exp()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(20):
            with profile(record_shapes=True, with_stack=True, profile_memory=True) as prof:
                x.sin()
            assert len(named(prof, "aten::sin")) == 1
    finally:
        stop.set()
        worker.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_no_profile():
    x = torch.ones(4)
    both = record_function("both")
    with profile() as prof, both:
        child = os.fork()
        if child == 0:
            good = not _core.profile_running()
            x.exp()
            with profile() as own:
                both.__exit__(None, None, None)  # the parent's: nothing here ends
                x.sin()
            good = good and [e.name for e in own.events() if e.cpu_parent is None] == ["aten::sin"]
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        x.exp()
    assert named(prof, "aten::exp") and not named(prof, "aten::sin")


def test_launch_times_of_the_runtime():
    from flambeau.runtime import launch_profile
    from flambeau.runtime import profile as launches

    x = torch.randn(256)
    with launches() as times:
        x.exp()
    assert [time.name for time in times] == ["exp: exp"] and times[0].nanoseconds > 0
    assert launch_profile() == times


def test_ranges_of_optimizers_and_loaders():
    from flambeau.utils.data import DataLoader, TensorDataset

    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
    with torch.profiler.profile() as prof:
        for (x,) in loader:
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()
    counts = {e.key: e.count for e in prof.key_averages() if "#" in e.key}
    assert counts == {
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 3,
        "Optimizer.zero_grad#SGD.zero_grad": 2,
        "Optimizer.step#SGD.step": 2,
    }
