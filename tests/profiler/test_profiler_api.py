"""PyTorch's interface: schedules, steps, handlers, tables, traces."""

from __future__ import annotations

import gzip
import inspect
import json
import re

import pytest

import flambeau as torch
from flambeau.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)


def test_names():
    names = """DeviceType ExecutionTraceObserver ProfilerAction ProfilerActivity kineto_available
    profile record_function schedule supported_activities tensorboard_trace_handler""".split()
    assert set(names) == set(torch.profiler.__all__)
    assert torch.autograd.profiler.record_function is torch.profiler.record_function
    assert supported_activities() == {ProfilerActivity.CPU}
    assert [action.name for action in ProfilerAction] == [
        "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE",
    ]  # fmt: skip
    for method in """start stop step events key_averages export_chrome_trace export_stacks
    add_metadata add_metadata_json preset_metadata_json toggle_collection_dynamic
    export_memory_timeline get_trace_id""".split():
        assert callable(getattr(profile, method))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"wait": 1, "warmup": 1, "active": 2}, "NWRSNWRSNW"),
        ({"wait": 0, "warmup": 1, "active": 1}, "WSWSWSWSWS"),
        ({"wait": 1, "warmup": 1, "active": 1, "repeat": 2}, "NWSNWSNNNN"),
        ({"wait": 1, "warmup": 1, "active": 1, "skip_first": 2}, "NNNWSNWSNW"),
        (
            {"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
            "NWSNNWSNNW",
        ),
    ],
)
def test_schedules(options, expected):
    letters = {"NONE": "N", "WARMUP": "W", "RECORD": "R", "RECORD_AND_SAVE": "S"}
    plan = schedule(**options)
    assert "".join(letters[plan(step).name] for step in range(10)) == expected


def test_schedules_that_are_none():
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=1, warmup=1, active=0)
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=-1, warmup=1, active=1)
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=1, warmup=0, active=1)


def test_steps():
    ready = []

    def handler(prof):
        names = [e.trace_name for e in prof.events() if e.name == "ProfilerStep*"]
        ready.append(
            (prof.step_num, names, len([e for e in prof.events() if e.name == "aten::exp"]))
        )

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    x = torch.ones(3)
    with profile(schedule=plan, on_trace_ready=handler) as prof:
        for _ in range(10):
            x.exp()
            prof.step()
    assert ready == [
        (4, ["ProfilerStep#2", "ProfilerStep#3"], 2),
        (8, ["ProfilerStep#6", "ProfilerStep#7"], 2),
    ]
    assert prof.step_num == 10 and prof.current_action == ProfilerAction.NONE
    step = next(e for e in prof.events() if e.trace_name == "ProfilerStep#6")
    assert [child.name for child in step.cpu_children] == ["aten::exp"]


def test_a_schedule_cut_short():
    ready = []
    plan = schedule(wait=0, warmup=1, active=5)
    with profile(schedule=plan, on_trace_ready=ready.append) as prof:
        prof.step()
        torch.ones(2).exp()
    assert ready == [prof] and any(e.name == "aten::exp" for e in prof.events())
    with profile(schedule=plan, on_trace_ready=ready.append) as prof:
        torch.ones(2).exp()  # warm-up only
    assert len(ready) == 1
    with pytest.raises((AssertionError, RuntimeError)):
        prof.events()


def test_events_of_all_cycles():
    plan = schedule(wait=0, warmup=1, active=1)
    with profile(schedule=plan, acc_events=True) as prof:
        for _ in range(4):
            torch.ones(2).exp()
            prof.step()
    assert len([e for e in prof.events() if e.name == "aten::exp"]) == 2


def test_without_a_schedule_the_handler_is_called_at_the_end():
    ready = []
    with profile(on_trace_ready=ready.append) as prof:
        torch.ones(2).exp()
        prof.step()
        assert ready == []
    assert ready == [prof]
    assert not any(e.name.startswith("ProfilerStep") for e in prof.events())


def test_a_handler_that_raises():
    def handler(_):
        raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"), profile(on_trace_ready=handler):
        pass
    with profile():
        pass


def test_start_and_stop():
    prof = profile(activities=[ProfilerActivity.CPU])
    prof.start()
    torch.ones(2).exp()
    prof.stop()
    assert any(e.name == "aten::exp" for e in prof.events())


def test_pauses():
    with profile() as prof:
        torch.ones(2).exp()
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        torch.ones(2).sin()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        torch.ones(2).cos()
    names = [e.name for e in prof.events()]
    assert "aten::exp" in names and "aten::cos" in names and "aten::sin" not in names


def test_other_activities_are_disabled_with_a_warning():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        prof = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    assert prof.activities == {ProfilerActivity.CPU}
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])
    with pytest.raises(NotImplementedError, match="ExecutionTraceObserver"):
        torch.profiler.ExecutionTraceObserver()


# ------------------------------------------------------------------------------- averages, tables


def averages():
    x = torch.ones(32, 32)
    with profile(record_shapes=True, profile_memory=True, with_flops=True) as prof:
        x @ x
        x.exp()
        x[:16].exp()
    return prof


@pytest.mark.usefixtures("no_garbage")
def test_averages():
    prof = averages()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::exp"].count == 2
    calls = [e for e in prof.events() if e.name == "aten::exp"]
    assert rows["aten::exp"].cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in calls))
    assert rows["aten::exp"].cpu_time == pytest.approx(rows["aten::exp"].cpu_time_total / 2)
    assert rows["aten::exp"].cpu_memory_usage == sum(e.cpu_memory_usage for e in calls) == 6144
    assert rows["aten::matmul"].flops == 2 * 32**3
    by_shape = prof.key_averages(group_by_input_shape=True)
    shapes = [row.input_shapes for row in by_shape if row.key == "aten::exp"]
    assert shapes == [[[32, 32]], [[16, 32]]]
    total = prof.key_averages().total_average()
    assert total.self_cpu_time_total == pytest.approx(prof.key_averages().self_cpu_time_total)


def test_tables():
    found = averages().key_averages(group_by_input_shape=True)
    text = found.table(sort_by="cpu_time_total", row_limit=3)
    lines = text.splitlines()
    titles = re.split(r"\s{2,}", lines[1].strip())
    assert titles[:6] == [
        "Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg",
    ]  # fmt: skip
    assert {"CPU Mem", "Self CPU Mem", "# of Calls", "Input Shapes", "Total KFLOPs"} <= set(titles)
    assert len(lines) == 3 + 3 + 2
    assert lines[-1].startswith("Self CPU time total: ")
    times = [row.cpu_time_total for row in found]
    order = sorted(range(len(times)), key=lambda i: -times[i])
    assert lines[3].split()[0] == found[order[0]].key
    assert len({len(line) for line in lines[:-1]}) == 1
    assert "us" in found.table(time_unit="us") and "ms" not in found.table(time_unit="us")
    assert found.table(header="my header").splitlines()[1] == "my header"
    assert len(found.table(row_limit=-1).splitlines()) == len(found) + 5
    with pytest.raises(AttributeError, match="cannot be sorted"):
        found.table(sort_by="nothing")
    assert found.table(sort_by="cuda_time_total") and str(found) == found.table()


def test_a_table_of_nothing():
    with profile() as prof:
        pass
    assert prof.key_averages().table() == ""


def test_long_names_are_shortened():
    with profile() as prof, record_function("x" * 100):
        pass
    name = prof.key_averages().table(max_name_column_width=20).splitlines()[3].split()[0]
    assert name == "x" * 17 + "..."


def test_top_level_events():
    with profile() as prof, record_function("top"):
        torch.ones(2).exp()
    text = prof.events().table(top_level_events_only=True)
    assert "top" in text and "aten::exp" not in text


# ------------------------------------------------------------------------------- traces


def trace_of(prof, path):
    prof.export_chrome_trace(str(path))
    return json.loads(path.read_text())


def test_traces(tmp_path):
    x = torch.randn(32, 32, requires_grad=True)
    (x @ x).relu().sum().backward()
    with profile(record_shapes=True, with_stack=True, profile_memory=True, with_flops=True) as prof:
        with record_function("forward"):
            loss = (x @ x).relu().sum()
        loss.backward()
        prof.add_metadata("note", "hello")
        prof.add_metadata_json("numbers", "[1, 2]")
    trace = trace_of(prof, tmp_path / "trace.json")
    assert trace["note"] == "hello" and trace["numbers"] == [1, 2]
    assert trace["with_stack"] == 1 and trace["schemaVersion"] == 1
    entries = trace["traceEvents"]
    complete = [e for e in entries if e["ph"] == "X"]
    expected = [e.trace_name for e in prof.events() if e.name != "[memory]"]
    assert [
        e["name"] for e in complete if e["cat"] != "kernel" or "External id" in e["args"]
    ] == expected
    for entry in complete:
        assert entry["dur"] >= 0 and {"name", "pid", "tid", "ts", "cat"} <= entry.keys()
    (product,) = [e for e in complete if e["name"] == "aten::matmul"]
    assert product["args"]["Input Dims"][:2] == [[32, 32], [32, 32]]
    assert product["args"]["flops"] == 2 * 32**3
    assert "test_traces" in product["args"]["Call stack"]
    begins = {e["id"]: e for e in entries if e["ph"] == "s"}
    ends = {e["id"]: e for e in entries if e["ph"] == "f"}
    assert begins.keys() == ends.keys() and begins
    assert all(begins[i]["ts"] <= ends[i]["ts"] for i in begins)
    curve = [e["args"]["bytes"] for e in entries if e["ph"] == "C"]
    assert max(curve) >= 32 * 32 * 4
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]  # nothing half written is left


def test_events_of_a_thread_nest_in_a_trace(tmp_path):
    torch.set_num_threads(2)
    x = torch.randn(512, 512, requires_grad=True)
    step = torch.compile(lambda x: [(x.sin() * i).sum() for i in range(6)])
    sum(step(x)).backward()
    with profile() as prof:
        sum(step(x)).backward()
        (x @ x).sum().backward()
    entries = trace_of(prof, tmp_path / "trace.json")["traceEvents"]
    by_thread = {}
    for entry in entries:
        if entry["ph"] == "X":
            by_thread.setdefault(entry["tid"], []).append((entry["ts"], entry["ts"] + entry["dur"]))
    for spans in by_thread.values():
        open_ends = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start + 0.0015:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 0.0015
            open_ends.append(end)


def test_compressed_traces_and_the_handler(tmp_path):
    plan = schedule(wait=0, warmup=1, active=1)
    folder = tmp_path / "a" / "b"
    handler = tensorboard_trace_handler(str(folder), worker_name="w", use_gzip=True)
    with profile(schedule=plan, on_trace_ready=handler) as prof:
        for _ in range(4):
            torch.ones(2).exp()
            prof.step()
    files = sorted(folder.iterdir())
    assert len(files) == 2
    for file in files:
        assert re.fullmatch(r"w\.\d+\.pt\.trace\.json\.gz", file.name)
        assert json.loads(gzip.open(file, "rt").read())["traceEvents"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="Can't create directory"):
        tensorboard_trace_handler(str(tmp_path / "file"))(prof)


def test_a_trace_that_cannot_be_written(tmp_path):
    with profile() as prof:
        pass
    with pytest.raises(OSError):
        prof.export_chrome_trace(str(tmp_path / "missing" / "trace.json"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        prof.export_chrome_trace(str(tmp_path / "folder"))
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_stacks_for_flame_graphs(tmp_path):
    x = torch.randn(256, 256)
    with profile(with_stack=True) as prof:
        x @ x
    prof.export_stacks(str(tmp_path / "stacks.txt"), "self_cpu_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"\S+ \d+", line) for line in lines)
    assert lines[0].rpartition(" ")[0].endswith("test_stacks_for_flame_graphs")
    with pytest.raises(ValueError, match="metric"):
        prof.export_stacks(str(tmp_path / "x"), "self_cuda_time_total")
    with profile() as prof:
        pass
    with pytest.raises(RuntimeError, match="with_stack"):
        prof.export_stacks(str(tmp_path / "x"))


# ------------------------------------------------------------------------------- the older form


def test_the_older_profile():
    with torch.autograd.profiler.profile(record_shapes=True) as prof:
        torch.ones(3).exp()
    assert any(e.key == "aten::exp" for e in prof.key_averages())
    assert "aten::exp" in str(prof) and prof.table(sort_by="cpu_time_total")
    assert prof.total_average().count == len(prof.function_events)
    assert prof.self_cpu_time_total > 0
    with pytest.raises(RuntimeError, match="didn't finish"):
        torch.autograd.profiler.profile().key_averages()
    with torch.autograd.profiler.profile(enabled=False) as prof:
        torch.ones(3).exp()
    with pytest.raises(NotImplementedError):
        torch.autograd.profiler.emit_nvtx()


def test_the_query_whether_a_profile_records():
    assert not torch.autograd._profiler_enabled()
    with torch.autograd.profiler.profile():
        assert torch.autograd._profiler_enabled()
    assert not torch.autograd._profiler_enabled()


def test_signatures_are_pytorchs():
    expected = """activities schedule on_trace_ready record_shapes profile_memory with_stack
    with_flops with_modules experimental_config execution_trace_observer acc_events use_cuda
    custom_trace_id_callback post_processing_timeout_s""".split()
    assert list(inspect.signature(profile.__init__).parameters)[1:] == expected
    table = inspect.signature(torch.autograd.profiler.EventList.table).parameters
    assert (
        list(table)[1:]
        == """sort_by row_limit max_src_column_width max_name_column_width
    max_shapes_column_width header top_level_events_only time_unit""".split()
    )
