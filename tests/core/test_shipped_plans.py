"""The file of the package's plans: what is written is read back, by name, for each target."""

from __future__ import annotations

import marshal
import os
import zlib

import pytest

from flambeau.compiler import machine, shipped, stored, targets
from flambeau.ir.plan import BlockProgram, Buffer, Execution, Launch, Number, PlanSpec, packed
from tools import dictionaries, ship_plans


def content(name: str, kernels: tuple[bytes, ...] = ()) -> bytes:
    spec = PlanSpec(name, 0, 0, (), 0)
    return stored.written([stored.StoredPlan([], spec, 0, contents=kernels)])


def name_of(found: tuple[bytes, bool] | None) -> tuple[str, list[bytes]]:
    assert found is not None
    [plan] = stored._read(found[0], "package")
    return plan.spec.name, [shipped.content(number) for number in plan.contents]


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "plans"
    monkeypatch.setattr(shipped, "FILE", str(path))
    monkeypatch.setattr(shipped, "package_stamp", lambda: "these sources")
    return path


def test_plans_are_found_by_name_for_the_present_target(file, monkeypatch):
    """More than one group of plans and of kernels; equal kernels are stored once."""
    many = range(5 * ship_plans.GROUPS[0])
    every = {f"plan {n}": content(f"every {n}", (b"shared", b"kernel %d" % n)) for n in many}
    here, there = targets.current().name, "another target"
    single = {
        here: {"both": content("both, here", (b"shared",)), "one": content("one", (b"own",))},
        there: {"both": content("both, there"), "other": content("other")},
    }
    ship_plans.write(file, every, single)
    for n in many:
        kernels = [b"shared", b"kernel %d" % n]
        assert name_of(shipped.find(f"plan {n}")) == (f"every {n}", kernels)
    assert name_of(shipped.find("both")) == ("both, here", [b"shared"])
    assert name_of(shipped.find("one")) == ("one", [b"own"])
    assert shipped.find("other") is None and shipped.find("no plan") is None
    shelf = shipped._shelf(str(file))
    assert shelf is not None
    counts = zip((len(many) + 4, 0, len(many) + 2), ship_plans.GROUPS)
    groups = [-(-count // size) for count, size in counts]
    assert [len(section.bounds) - 1 for section in shelf[0].sections] == groups
    assert groups[0] > 1 < groups[2]
    found = shipped.find("both")
    assert found is not None and found[1]
    monkeypatch.setattr(machine, "current", lambda: (0,))
    found, every_machine = shipped.find("both"), shipped.find("plan 1")
    assert found is not None and not found[1]
    assert every_machine is not None and every_machine[1]


def test_a_name_is_found_at_its_place_only():
    """The end of a digest with the begin of the next one is none."""
    first, second = (bytes(range(start, start + shipped.NAME)) for start in (0, 100))
    numbers = b"".join(n.to_bytes(shipped.NUMBER, "little") for n in (70_000, 3, 9))
    across = (first + second)[5 : 5 + shipped.NAME]
    names = first + second + across, numbers
    assert [shipped._number(names, digest) for digest in (first, second, across)] == [70_000, 3, 9]
    names = first + second, numbers
    assert (
        shipped._number(names, across) is None
        and shipped._number(names, b"\xff" * shipped.NAME) is None
    )


@pytest.mark.parametrize("damage", ["", "short", "header", "sources"])
def test_a_file_of_others_counts_as_absent(file, damage):
    ship_plans.write(file, {"plan": content("plan")}, {})
    written = file.read_bytes()
    if damage == "short":
        file.write_bytes(written[:20])
    elif damage == "header":  # of another version of the package
        head = marshal.dumps(("sources", (), {}))
        file.write_bytes(len(head).to_bytes(shipped.LENGTH, "little") + head)
    elif damage == "sources":
        digest = shipped.sources_digest().encode()
        file.write_bytes(written.replace(digest, digest[::-1]))
    assert (shipped.find("plan") is None) == bool(damage)
    assert shipped.sources_of(file) != shipped.sources_digest() or damage == ""


def test_digests_of_kernels_are_read_back(file):
    """Plans have their numbers in the file; those of one digest share it."""
    places = [(0, "bundle", "symbol", "ab" * 16), (0, "", "", "cd" * 16)]
    spec = PlanSpec("plan", 0, 0, (), 0)
    plans = [stored.StoredPlan([], spec, 0, kernels=kernels) for kernels in (places, places[1:])]
    ship_plans.write(file, {"plan": stored.written(plans)}, {})
    found = shipped.find("plan")
    assert found is not None
    assert [list(plan.kernels) for plan in stored._read(found[0], "package")] == [
        places,
        places[1:],
    ]


@pytest.mark.parametrize("largest", [1, 127, 128, 2**15, 2**31 - 1, 2**31, 2**70])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_numbers_of_every_width_are_read_back(largest, count):
    numbers = [largest, -largest, 0, 3, largest - 1][:count]
    program = [(0, number, 1) for number in numbers]
    launch = Launch("name", 0, None, numbers, numbers, numbers, (), 1, 2, traffic=numbers)
    execution = Execution(program, [Buffer("input", 0)], [launch], [0])
    spec = PlanSpec("plan", 1, 1, (), 0, program=program)
    content = stored.written([stored.StoredPlan([1], spec, 2, "mark", execution)])
    [plan] = stored._read(content, "cache")
    assert plan.spec.program == program and plan.execution.program == program
    [read] = plan.execution.launches
    for name in ("buffers", "offsets", "sizes", "traffic"):
        assert list(getattr(read, name)) == numbers
    assert stored.written([plan]) == content


def test_an_execution_after_a_baseline_is_unpacked_when_it_is_needed():
    program = [(0, number, 1) for number in range(3)]
    execution = Execution(program, (), ())
    spec = PlanSpec("plan", 0, 0, (), 0)
    written = stored.written([stored.StoredPlan([], spec, 0, "", execution, (), execution)])
    [plan] = stored._read(written, "package")
    assert not isinstance(plan.execution, Execution) and plan.baseline.program == program
    assert stored._loaded(plan, plan.execution).program == program
    assert stored.written([plan]) == written


def test_block_programs_and_equal_parts_are_stored_once(file):
    """An execution is the changes to its baseline, which tell -0.0 from 0.0 and 1 from 1.0."""
    program = BlockProgram(("add f32,f32>f32",), bytes(range(200)) * 5)
    scalars = [Number("constant", value, True) for value in (0.0, 1.0, float("nan"))]
    launch = Launch("name", None, None, (0, 1), scalars=scalars, program=program)
    baseline = Execution([(0, 1, 2)], [Buffer("input", 0)], [launch, launch._replace(name="b")])
    changed = [Number("constant", value, True) for value in (-0.0, 1, float("nan"))]
    kernels = [launch._replace(kernel=0, program=None)]
    kernels.append(kernels[0]._replace(scalars=changed))
    executions = [
        baseline._replace(launches=kernels),
        baseline._replace(launches=kernels[:1], buffers=()),
        baseline._replace(launches=kernels, written=(3,)),
    ]
    kernels_of = [(0, "", "", "ab" * 16)]
    spec = PlanSpec("plan", 0, 0, (), 0)
    plans = [
        stored.StoredPlan([], spec, 0, "", packed(each), kernels_of, baseline, (b"kernel",))
        for each in executions
    ]
    ship_plans.write(file, {"one": stored.written(plans[:2]), "two": stored.written(plans[2:])}, {})
    read = []
    for name in ("one", "two"):
        found = shipped.find(name)
        assert found is not None and program.words not in found[0]
        read += stored._read(found[0], "package")
    for plan, expected in zip(read, plans, strict=True):
        assert repr(plan.execution) == repr(expected.execution)
        assert repr(packed(plan.baseline)) == repr(packed(baseline))
        assert plan.kernels == kernels_of and plan.origin == "package"
    shelf = shipped._shelf(str(file))
    assert shelf is not None and shelf[0].sections[2].first - shelf[0].sections[1].first == 1


def test_a_dictionary_has_what_texts_share():
    shared = bytes(os.urandom(4000))
    texts = [shared[k % 7 * 100 :] + os.urandom(600) for k in range(1000)]
    dictionary, compressed = dictionaries.compress(texts)
    assert 0 < len(dictionary) <= dictionaries.SIZE
    for text, each in zip(texts, compressed, strict=True):
        assert zlib.decompressobj(zdict=dictionary).decompress(each) == text
    assert sum(map(len, compressed)) < sum(map(len, texts)) / 3
    assert dictionaries.compress(texts) == (dictionary, compressed)
    few, [alone] = dictionaries.compress([b"text"])
    assert few == b"" and zlib.decompress(alone) == b"text"
