"""Block programs print, read back to equal programs, and say where they are malformed."""

from __future__ import annotations

import contextlib
import gc
import re

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.compiler import debug
from flambeau.compiler.baseline import text
from flambeau.compiler.baseline.program import CODES, FORMS, pack, unpack
from flambeau.compiler.verify import VERIFIERS
from flambeau.runtime import settings
from tests.ops.exercise import run, with_gradients
from tests.ops.table import TABLE, UNINITIALISED
from tests.sanitize.changed_programs import cases, changes

NTH = 25  # of the op table
DTYPES = ("f32", "bf16", "f64", "i32")


def programs_of(call):
    """The block programs, by words, of all plans that a call makes."""
    programs = []

    def watcher(report):
        if report.stage == "assemble":
            programs.extend(each.program for each in report.state.execution.launches)

    with settings.override(TIER="baseline"), debug.watch(watcher):
        _core.plan_cache_clear()
        call()
    _core.plan_cache_clear()
    return {program.words: program for program in programs if program is not None}


def table_calls():
    """All that every NTH entry of the op table does, in several dtypes and backward."""
    for number, (key, entry) in enumerate(sorted(TABLE.items())):
        if number % NTH or entry.mutating or key in UNINITIALISED:
            continue
        for sample in entry.samples(1):
            for dtype in DTYPES:
                yield lambda e=entry, s=sample, d=dtype: run(e, s, d)
            yield lambda e=entry, s=sample: with_gradients(e, s, "f64")


def test_programs_read_back():
    """Of random graphs, which have every form."""
    programs = [case.program for case in cases(range(60))]
    for program in programs:
        printed = text.text(program)
        assert text.parse(printed) == program, printed
        assert pack(unpack(program)) == program
    assert len(programs) > 150
    assert {unpack(program).form for program in programs} == set(FORMS)


def test_programs_of_the_op_table_read_back():
    programs = {}
    for call in table_calls():
        with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):  # no such dtype
            programs |= programs_of(call)
    assert len(programs) > 60
    for program in programs.values():
        printed = text.text(program)
        assert text.parse(printed) == program, printed
        text.verify(program)


def test_every_code_reads_back():
    def calls():
        x = torch.arange(2000.0).reshape(2, 1000)
        torch.softmax(x, -1)
        x.mul(2.5).add_(x, alpha=3)
        torch.nn.functional.layer_norm(x, (1000,)).cumsum(0).sum(0)
        index = torch.tensor([1, 0])
        x[index] + x[:, index].t().contiguous().sum()
        x[index] = x * 2
        x.roll(3, 1).reshape(1000, 2).argmax(1)
        torch.nn.functional.pad(x[:, :-1], (1, 2))
        x.repeat(2, 3)

    programs = programs_of(calls).values()
    codes = set()
    for program in programs:
        printed = text.text(program)
        assert text.parse(printed) == program, printed
        codes |= {code for code in CODES if re.search(rf"\b{code}\b", printed)}
    assert codes >= set(CODES) - {"give", "add_index"}


EXP = """\
program map spans: 3 sizes, 0 scalars
s0 = 0
s1 = 1
per row:
s2 = n1 * p0
rows [n0] inner n1 reduce s1 chunks 8192 64 64
buffer b0: 4 bytes
buffer b1: 4 bytes written
registers: v0 4, v1 4
prologue:
    v1 = constant 3f800000 00000000 00000000 00000000
statement 0:
    body:
        v0 = load[sw] b0 at s2 s*n1 w*s1 direct : gather 4 | - | transpose 4
        v0 = call[sw] v0 stored : exp f32>f32
        store[sw] v0 to b1 at s2 s*n1 w*s1 : scatter 4
"""


def test_a_text_is_a_program():
    program = text.parse(EXP)
    assert text.text(program) == EXP
    assert program.functions == ("gather 4", "transpose 4", "exp f32>f32", "scatter 4")


@pytest.mark.parametrize(
    "line",
    [
        "give[sw] v0 to b1 at v1 : give 4",
        "v0 = take[sw] b0 at v1 mask v2 else v3 : takeif 2 | decode bf16",
        "v0 = load[s] b0 s*n1 offset v4 mask v2 else v3 direct shared : gatherif 4",
        "v0 = add_index[s] v1 plus v2 times s3",
        "v0 = index at n0 s*n1 w*p0 plus v1 times s2 : index",
        "v0 = integer[w] v1 floordiv v2",
        "v0 = check[w] v1 below s2 to b1 dimension -1 strict 1 : check",
        "v0 = scan[sw] - v1 in t2 : scan sum f32",
        "v0 = call[sw] v1 - v2 2=7",
        "v0 = constant ffffffff 80000000 7fffffff 00000001",
        "v0 = expand[9] v1 along 17 4=3 : splat 4",
        "retain[sw] v0 to m3 : - | encode f16",
    ],
)
def test_lines_read_back(line):
    """Malformed ones, too: the verifier quotes them."""
    source = f"{EXP}        {line}\n"
    assert text.text(text.parse(source)) == source


def test_what_is_no_program_is_refused():
    for line in ("v0 = jump[w] v1", "buffer b0: four bytes", "v0 = call[w] w1 : exp f32>f32"):
        with pytest.raises(ValueError, match=r"\[block program\] no line of a program"):
            text.parse(EXP + line)


def test_plans_show_programs():
    plans = []

    def call():
        x = torch.ones(3, 4)
        x.exp()
        plans.extend(p for p in gc.get_objects() if type(p) is _core.Plan and p.name == "exp")

    programs_of(call)
    printed = plans[-1].text()
    assert "launch 0: program 'exp: exp' buffers [0, 1] sizes" in printed
    assert "\n            v0 = call[sw] v0 stored : exp f32>f32\n" in printed
    [launch] = plans[-1].execution.launches
    below = [line[4:] for line in printed.splitlines() if line.startswith("    ")]
    assert "\n".join(below) + "\n" == text.text(launch.program)


# ------------------------------------------------------------------------------- verifier


def changed(old, new):
    return text.parse(EXP.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "quoted"),
    [
        ("call[sw] v0", "call[sw] v1", ">         v0 = call[sw] v1 stored : exp f32>f32"),
        ("exp f32>f32", "exp f64>f64", ">         v0 = call[sw] v0 stored : exp f64>f64"),
        ("to b1", "to b0", ">         store[sw] v0 to b0 at s2 s*n1 w*s1 : scatter 4"),
        ("v0 to b1", "v7 to b1", ">         v0 = call[sw] v0 stored : exp f32>f32"),
        ("s0 = 0", "s0 = n0 + p0", "> s0 = n0 + p0"),
        ("v0 4, v1 4", "v0 4, v1 3", "> program map spans: 3 sizes, 0 scalars"),
        ("statement 0:", "statement 0 once:", "> statement 0 once:"),
    ],
)
def test_the_verifier_quotes_the_place(old, new, quoted):
    text.verify(text.parse(EXP))
    with pytest.raises(text.BlockError) as caught:
        text.verify(changed(old, new))
    message = str(caught.value)
    assert message.startswith("[Plan] block program: ") and "\nhint: " in message
    assert quoted in message.splitlines(), message


def test_the_verifier_agrees_with_the_core():
    """What the core refuses has a quotation, or damaged words; what it accepts prints."""
    refused = 0
    for case in cases([3, 8]):
        for program, _, _ in list(changes(case.program))[::23]:
            try:
                fault = _core.block_program_fault(program)
            except NotImplementedError:
                continue
            if fault is None:
                assert text.parse(text.text(program)) is not None
                continue
            refused += 1
            with pytest.raises(text.BlockError):
                text.verify(program)
    assert refused > 50


def test_the_pipeline_verifies_programs():
    class State:
        kernels = {"kernel": None}
        programs = {"kernel": changed("call[sw] v0", "call[sw] v1")}

    with pytest.raises(text.BlockError):
        VERIFIERS["compile"](State())


def test_words_that_end_early():
    program = text.parse(EXP)
    with pytest.raises(text.BlockError, match="its words are damaged"):
        text.verify(program._replace(words=program.words[:-8]))
