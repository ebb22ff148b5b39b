"""`flambeau.profiler` beside PyTorch's: names, signatures, schedules, steps, events, tables."""

from __future__ import annotations

import inspect
import itertools
import json
import warnings

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

LIBRARIES = {"flambeau": flambeau, "torch": torch}
OURS, THEIRS = flambeau.profiler, torch.profiler
OLD = (flambeau.autograd.profiler, torch.autograd.profiler)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return {p.name: (p.default, p.kind) for p in found}


def test_every_name_is_there():
    assert set(THEIRS.__all__) <= set(OURS.__all__)
    for name in ("profile", "record_function", "EventList", "FunctionEvent", "DeviceType",
                 "kineto_available", "emit_nvtx", "emit_itt"):  # fmt: skip
        assert hasattr(OLD[0], name) and hasattr(OLD[1], name)


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["profile"])
def test_methods_of_the_profile(name):
    assert public(getattr(THEIRS, name)) <= public(getattr(OURS, name))


def test_attributes_of_what_is_found():
    for library, prof in profiles().items():
        event, average = prof.events()[0], prof.key_averages()[0]
        if library == "torch":
            theirs = (
                vars(event).keys() | public(type(event)),
                vars(average).keys() | public(type(average)),
            )
        else:
            ours = set(dir(event)), set(dir(average))
    theirs = [{name for name in names if not name.startswith("_")} for names in theirs]
    internal = {"append_cpu_child", "append_kernel", "set_cpu_parent", "cuda_time_total",
                "self_cuda_time_total", "self_cuda_memory_usage", "fwd_thread", "trace_name",
                "extra_meta", "metadata_json", "is_hidden_event"}  # fmt: skip
    for mine, others in zip(ours, theirs, strict=True):
        missing = {n for n in others - internal if n not in mine}
        assert not missing - set(UNTOLD), missing


# What only kineto's own records can tell.
UNTOLD = (
    "activity_type", "device_resource_id", "event_metadata", "flow_id", "flow_start", "flow_type",
    "linked_correlation_id", "python_id", "python_module_id", "python_parent_id",
    "self_cpu_percent", "structured_input_shapes", "structured_input_strides", "total_cpu_percent",
    "total_device_percent",
)  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OURS.schedule, THEIRS.schedule),
        (OLD[0].EventList.table, OLD[1].EventList.table),
        (OLD[0].EventList.key_averages, OLD[1].EventList.key_averages),
        (OLD[0].EventList.export_stacks, OLD[1].EventList.export_stacks),
        (OURS.profile.key_averages, THEIRS.profile.key_averages),
        (OURS.profile.export_chrome_trace, THEIRS.profile.export_chrome_trace),
        (OURS.profile.export_stacks, THEIRS.profile.export_stacks),
        (OURS.profile.add_metadata, THEIRS.profile.add_metadata),
        (OURS.profile.add_metadata_json, THEIRS.profile.add_metadata_json),
        (OURS.record_function.__init__, THEIRS.record_function.__init__),
    ],
    ids=lambda f: f.__qualname__,
)
def test_signatures(ours, theirs):
    mine, others = parameters(ours), parameters(theirs)
    for name, (default, kind) in others.items():
        assert name in mine, name
        if name == "metric":  # ours has the one metric that there is
            continue
        assert mine[name] == (default, kind), name
    assert list(others) == [name for name in mine if name in others]


def test_signature_of_profile():
    assert set(parameters(THEIRS.profile.__init__)) <= set(parameters(OURS.profile.__init__))
    assert parameters(THEIRS.tensorboard_trace_handler) == parameters(
        OURS.tensorboard_trace_handler
    )


def test_schedules():
    cases = itertools.product((0, 2), (0, 1), (1, 3), (0, 2), (0, 3), (0, 1))
    for wait, warmup, active, repeat, skip_first, skip_first_wait in cases:
        options = {
            "wait": wait, "warmup": warmup, "active": active, "repeat": repeat,
            "skip_first": skip_first, "skip_first_wait": skip_first_wait,
        }  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, theirs = OURS.schedule(**options), THEIRS.schedule(**options)
        for step in range(30):
            assert ours(step).name == theirs(step).name, (options, step)


@pytest.mark.parametrize("bad", [{"active": 0}, {"wait": -1}, {"warmup": -1}, {"repeat": -1}])
def test_schedules_that_are_refused(bad):
    for library in (OURS, THEIRS):
        with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
            library.schedule(**{"wait": 1, "warmup": 1, "active": 1, **bad})


@pytest.mark.parametrize("steps", range(9))
def test_handlers_are_called_at_the_same_steps(steps):
    seen = {}
    for name, library in LIBRARIES.items():
        calls = seen[name] = []
        plan = library.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
        x = library.ones(3)

        def handler(prof, calls=calls):
            marks = [(e.name, e.trace_name) for e in prof.events() if "ProfilerStep" in e.name]
            calls.append((prof.step_num, sorted(set(marks))))

        with library.profiler.profile(schedule=plan, on_trace_ready=handler) as prof:
            for _ in range(steps):
                x.exp()
                prof.step()
        calls.append(prof.current_action.name)
    assert seen["flambeau"] == seen["torch"]


def profiles():
    found = {}
    for name, library in LIBRARIES.items():
        x = library.ones(16, 8, requires_grad=True)
        weight = library.ones(8, 4)

        def step(library=library, x=x, weight=weight):
            with library.profiler.record_function("forward"):
                loss = (x @ weight).relu().sum()
            loss.backward()

        step()
        with library.profiler.profile(
            activities=[library.profiler.ProfilerActivity.CPU], record_shapes=True, with_flops=True
        ) as prof:
            step()
        found[name] = prof
    return found


def test_events():
    told = {}
    for name, prof in profiles().items():
        rows = {row.key: row for row in prof.key_averages()}
        events = {event.name: event for event in prof.events()}
        forward = events["forward"]
        children = [child.name for child in forward.cpu_children]
        told[name] = (
            rows["aten::relu"].count,
            rows["forward"].count,
            [c for c in children if c in ("aten::matmul", "aten::relu", "aten::sum")],
            events["aten::relu"].input_shapes,
            events["aten::matmul"].input_shapes[:2],
            forward.is_user_annotation,
            {n for n in events if n in ("ReluBackward0", "SumBackward0")},
        )
    assert told["flambeau"] == told["torch"]


def test_flops_of_a_product():
    flops = {}
    for name, prof in profiles().items():
        products = [e for e in prof.events() if e.name in ("aten::mm", "aten::matmul") and e.flops]
        flops[name] = products[0].flops
    assert flops["flambeau"] == flops["torch"] == 2 * 16 * 8 * 4


def test_forward_and_backward_have_one_number():
    for prof in profiles().values():
        forward = next(e for e in prof.events() if e.name == "aten::relu" and e.sequence_nr >= 0)
        backward = next(e for e in prof.events() if e.name == "ReluBackward0")
        assert forward.sequence_nr == backward.sequence_nr


def test_tables_have_the_same_columns():
    titles = {}
    for name, prof in profiles().items():
        text = prof.key_averages(group_by_input_shape=True).table(
            sort_by="self_cpu_time_total", row_limit=2
        )
        titles[name] = [t for t in text.splitlines()[1].split("  ") if t.strip()]
        titles[name] = [t.strip() for t in titles[name]]
        assert text.rstrip().splitlines()[-1].startswith("Self CPU time total: ")
    kept = [title for title in titles["flambeau"] if title in titles["torch"]]
    assert kept == titles["torch"]


def test_traces_have_the_same_form(tmp_path):
    keys = {}
    for name, prof in profiles().items():
        path = tmp_path / f"{name}.json"
        prof.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
        (product,) = [
            e for e in trace["traceEvents"] if e.get("name") == "aten::matmul" and e["ph"] == "X"
        ]
        annotation = next(e for e in trace["traceEvents"] if e.get("name") == "forward")
        keys[name] = (set(product) - {"args"}, product["cat"], annotation["cat"])
        assert {"External id", "Input Dims", "Input type"} <= product["args"].keys()
        assert {"schemaVersion", "traceEvents", "displayTimeUnit"} <= trace.keys()
    assert keys["flambeau"] == keys["torch"]
