"""Timers, measurements, tables and random inputs of `torch.utils.benchmark`."""

import pytest

import flambeau as torch
from flambeau.utils import benchmark
from flambeau.utils.benchmark import Compare, Measurement, TaskSpec, Timer


def test_timer_counts_its_runs():
    ticks = iter(range(10**6))
    runs = []
    timer = Timer("runs.append(1)", globals={"runs": runs}, timer=lambda: next(ticks) * 1e-3)
    measurement = timer.timeit(100)
    assert len(runs) == 102 and measurement.times == [1e-5]
    blocks = []
    blocked = timer.blocked_autorange(lambda number, time: blocks.append(number), 0.02)
    assert len(blocked.raw_times) == len(blocks) >= 19
    assert timer.adaptive_autorange(max_run_time=0.1).meets_confidence()


def test_threads_of_operators():
    before = torch.get_num_threads()
    seen = []
    timer = Timer("f()", globals={"f": lambda: seen.append(torch.get_num_threads())}, num_threads=1)
    timer.timeit(1)
    assert set(seen) == {1} and torch.get_num_threads() == before


def test_texts():
    spec = TaskSpec("x + 1", "x = 1", label="add", description="new", num_threads=2)
    text = repr(Measurement(2, [1e-3, 1.2e-3, 1.1e-3, 1.05e-3], spec))
    assert text.splitlines()[1:] == [
        "add",
        "new",
        "setup: x = 1",
        "  Median: 537.50 us",
        "  IQR:    43.75 us (518.75 to 562.50)",
        "  4 measurements, 2 runs per measurement, 2 threads",
    ]
    noisy = Measurement(1, [1e-6, 5e-6, 9e-6], TaskSpec("y", "pass"))
    assert noisy.has_warnings and "environmental influence" in repr(noisy)


def test_table():
    spec = {"label": "L", "setup": "pass", "stmt": "s"}
    results = [
        Measurement(1, [time], TaskSpec(sub_label=row, description=column, **spec))
        for time, row, column in [(1.5e-3, "a", "x"), (2e-3, "a", "y"), (3e-6, "b", "x")]
    ]
    table = Compare(results)
    table.trim_significant_figures()
    assert str(table).splitlines()[:5] == [
        "[---------- L ----------]",
        "         |   x    |   y  ",
        "1 threads: --------------",
        "      a  |  1500  |  2000",
        "      b  |     3  |      ",
    ]
    table.colorize()
    assert "\033[92m" in str(table)


def test_what_is_refused():
    with pytest.raises(NotImplementedError, match="C\\+\\+"):
        Timer("1;", language="c++")
    with pytest.raises((OSError, NotImplementedError), match="collect_callgrind"):
        Timer().collect_callgrind()


def test_random_inputs():
    fuzzer = benchmark.Fuzzer(
        parameters=[
            benchmark.FuzzedParameter("n", 4, 64, "loguniform"),
            benchmark.FuzzedParameter("d", distribution={1: 0.5, 2: 0.5}),
            benchmark.FuzzedParameter("m", distribution={benchmark.ParameterAlias("n"): 1.0}),
        ],
        tensors=[
            benchmark.FuzzedTensor("x", ("n", "m"), ("d", 1), dim_parameter="d"),
            benchmark.FuzzedSparseTensor("s", ("n", "n"), density="share", sparse_dim="d"),
            benchmark.FuzzedTensor("big", (5, 5), min_elements=20, probability_contiguous=0.0),
        ],
        constraints=[lambda n, **others: n % 2 == 0],
        seed=3,
    )
    fuzzer._parameters += (benchmark.FuzzedParameter("share", 0.1, 0.5, "uniform"),)
    for tensors, properties, parameters in fuzzer.take(4):
        assert parameters["n"] % 2 == 0 and parameters["m"] == parameters["n"]
        assert tensors["x"].dim() == parameters["d"]
        assert tensors["s"].is_sparse and properties["big"]["numel"] == 25
    first, second = ([p for _, _, p in fuzzer.take(3)] for _ in range(2))
    assert first == second and fuzzer.rejection_rate > 0
    with pytest.raises(AssertionError, match="normalized"):
        benchmark.FuzzedParameter("n", distribution={1: 0.7})
