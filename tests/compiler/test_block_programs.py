"""Block programs have the bits of compiled kernels; malformed ones are refused."""

from __future__ import annotations

from array import array

import pytest

import flambeau as torch
from flambeau.runtime import settings
from tests.compiler.block_harness import Launcher, bits, on_tier, words_of
from tests.ops.exercise import relaid, run, with_gradients
from tests.ops.table import TABLE, UNINITIALISED
from tests.sanitize.changed_programs import REFUSED, cases, changes
from tests.stress import random_programs

NTH = 12  # of the op table
OTHERS = ("f64", "f16", "bf16", "i64", "bool")
SIZES = (0, 1, 2, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192, 8193)
functional = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of what random programs do


# ------------------------------------------------------------------------------- bits


def table_calls():
    """Calls of every NTH operator: in float32 and one other dtype, in other layouts, backward."""
    for number, (key, entry) in enumerate(sorted(TABLE.items())):
        if number % NTH or entry.mutating or key in UNINITIALISED:
            continue
        other = OTHERS[number // NTH % len(OTHERS)]
        for sample in entry.samples(1):
            for dtype in ("f32", other):
                yield key, lambda e=entry, s=sample, d=dtype: run(e, s, d)
            yield key, lambda e=entry, s=sample: with_gradients(e, s, "f64")
            for layout in ("transposed", "sliced", "expanded"):
                moved = relaid(sample, layout)
                yield key, lambda e=entry, s=moved: run(e, s, "f32")


def test_the_op_table():
    names, calls = zip(*table_calls(), strict=True)
    compiled, interpreted = on_tier("compiled", calls), on_tier("baseline", calls)
    different = {name for name, a, b in zip(names, compiled, interpreted, strict=True) if a != b}
    assert len(set(names)) > 40 and not different


def along_memory(n, dtype):
    """One statement after the other over vectors of n elements, and their reductions."""
    x = (torch.arange(n, dtype=torch.float32) * 0.37).sin().to(dtype)
    results = [x * 2 + 1, x.exp() - x, x[::2].neg(), torch.flip(x, (0,)), x > 0.5]
    results += [torch.where(x > 0, x, -x), x.sum(), x.cumsum(0), x.softmax(0)]
    if n:
        results += [x.max(), x.argmax(), x.expand(3, n) + 1, x[torch.arange(n - 1, -1, -1)]]
    y = x.clone()
    y.mul_(3).add_(x)
    y[: n // 2] += 1
    return [*results, y]


def across_memory(n, dtype):
    """Rows and columns of n elements, transposed, and changed in place."""
    results = []
    for shape in ((3, n), (n, 3)):
        x = (torch.arange(3 * n, dtype=torch.float32) * 0.11).cos().to(dtype).reshape(shape)
        for y in (x, x.t(), x[:, :2], x[1:]):
            results += [y.sum(0), y.sum(1), y.cumsum(0), y.softmax(1), y.contiguous(), y + y[:1]]
            results += [y.mean(0, keepdim=True) * y, functional.layer_norm(y, y.shape[1:])]
        if n:
            results += [x.argmin(0), x.max(1).values, functional.pad(x, (1, 2, 0, 1))]
        z = x.clone().t()
        z.add_(1).div_(2)
        results.append(z)
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("function", [along_memory, across_memory])
def test_sizes_at_the_edges_of_blocks(function, threads, dtype):
    torch.set_num_threads(threads)
    calls = [lambda n=n: function(n, dtype) for n in SIZES]
    compiled, interpreted = on_tier("compiled", calls), on_tier("baseline", calls)
    for n, a, b in zip(SIZES, compiled, interpreted, strict=True):
        assert not isinstance(a, str), a
        assert a == b, n


def test_quotients_of_negative_positions_are_rounded_down():
    """A reversed matrix is read from its end: positions fall below zero before a start is added."""

    def windows(x):
        last_first = x.t().flatten().flip(0)
        return functional.avg_pool1d(last_first[None], 3, 3)

    def calls():
        found = []
        for shape in ((4, 10), (7, 3), (1, 9), (40, 60)):
            x = (torch.arange(shape[0] * shape[1], dtype=torch.float32) * 0.37).sin()
            found.append(torch.compile(windows)(x.reshape(shape)))
        return found

    assert on_tier("compiled", [calls]) == on_tier("baseline", [calls])


def test_rows_whose_last_block_is_shorter():
    """What varies along rows alone is expanded for blocks of 64 and of 16 columns."""

    def calls():
        found = []
        for rows, columns in ((80, 80), (200, 200), (70, 130), (17, 65)):
            x = (torch.arange(2 * rows * columns, dtype=torch.float32) * 0.37).sin()
            x = x.reshape(2, rows, columns).mT
            found += [x.tril(), x.triu(1).mT.contiguous(), x * x.mT.sum(-2)[..., None]]
            found += [torch.where(x > x[:, :, :1], x, x[:, :1])]
        return found

    assert on_tier("compiled", [calls]) == on_tier("baseline", [calls])


def test_a_large_matrix_on_two_threads():
    def calls():
        x = (torch.arange(700 * 900, dtype=torch.float32) * 0.01).sin().reshape(700, 900)
        return [x.sum(0), x.sum(1), x.sum(), x.t().contiguous(), x.softmax(0), x.cumsum(0), x * x]

    torch.set_num_threads(2)
    assert on_tier("compiled", [calls]) == on_tier("baseline", [calls])


@pytest.mark.parametrize("first", range(0, 150, 15))
def test_random_programs(first):
    """A program's kernels are fused, so that they differ from those of its operators. Where the
    bits of both do, the compiled tier's fused kernels decide."""
    ran = 0
    for seed in range(first, first + 15):
        with settings.override(TIER="baseline"):
            try:
                program = random_programs.of_seed(seed)
            except IndexError:  # of a rule: `unbind` of nothing
                continue
            expected = fused_bits(program, program)
            found = fused_bits(program, torch.compile(program.__call__))
        if found != expected:
            with settings.override(TIER="compiled"):
                expected = fused_bits(program, torch.compile(program.__call__))
        assert found == expected, f"seed {seed}\n{random_programs.shown(program)}"
        ran += bool(program.steps)
    assert ran > 5


def fused_bits(program, call):
    return bits(random_programs._with_gradients(program, call))


# ------------------------------------------------------------------------------- malformed programs


def test_one_word_is_another():
    """Programs that are refused; what the others do is `tests/sanitize/changed_programs.py`."""
    refused = accepted = 0
    for number, case in enumerate(cases([3, 5, 8])):
        tensors = [torch.zeros(2, dtype=torch.uint8) for _ in case.dtypes]
        for program, _, _ in list(changes(case.program))[number % 7 :: 7]:
            try:
                Launcher(program, case.sizes, 0)(*tensors)
                accepted += 1
            except REFUSED as error:
                assert str(error).startswith("[")
                refused += 1
    assert refused > 500 and accepted > 100


@pytest.fixture
def case():
    """A program that gathers, calls, reduces and stores; its launch."""
    return next(c for c in cases(range(40)) if any("reducerows" in f for f in c.program.functions))


def launched(case, program, sizes=None, tensors=None):
    count = len(case.dtypes) if tensors is None else tensors
    launcher = Launcher(program, case.sizes if sizes is None else sizes, 0)
    launcher(*[torch.zeros(2, dtype=torch.uint8) for _ in range(count)])


def test_the_words_end_where_the_program_does(case):
    launched(case, case.program)
    words = words_of(case.program)
    for length in range(len(words)):
        with pytest.raises(ValueError, match="block program"):
            launched(case, case.program._replace(words=words[:length].tobytes()))
    longer = array("i", [*words, 0]).tobytes()
    with pytest.raises(ValueError, match="block program: length"):
        launched(case, case.program._replace(words=longer))


def test_functions_of_other_widths_are_refused(case):
    """The registers are those of float32."""
    names = case.program.functions
    wide = tuple(name.replace("f32", "f64") for name in names)
    assert wide != names
    with pytest.raises(ValueError, match="block program: instruction"):
        launched(case, case.program._replace(functions=wide))
    with pytest.raises(NotImplementedError, match="no block function is called 'sum f7'"):
        launched(case, case.program._replace(functions=("sum f7", *names[1:])))


def test_a_launch_gives_what_its_program_takes(case):
    with pytest.raises(ValueError, match="arguments of a block program"):
        launched(case, case.program, sizes=case.sizes[:-1])
    with pytest.raises(ValueError, match="arguments of a block program"):
        launched(case, case.program, tensors=len(case.dtypes) + 1)


NANS_OF_CONSTANTS = {
    "mean of nothing": lambda: torch.zeros(0, dtype=torch.float64).mean(),
    "rows of nothing": lambda: torch.zeros(3, 0).std(1),
    "zero by zero": lambda: torch.zeros(3) / torch.zeros(3),
    "complex": lambda: torch.full((3,), 0j) / torch.full((3,), 0j),
    "and one": lambda: torch.zeros(0).mean() + torch.ones(3),
    "infinities": lambda: torch.full((3,), torch.inf) - torch.full((3,), torch.inf),
}


@pytest.mark.parametrize("name", NANS_OF_CONSTANTS)
def test_nans_of_constants_have_one_sign(name):
    """C's compiler would compute 0 / 0 as another NaN than the processor does."""
    call = NANS_OF_CONSTANTS[name]
    compiled, baseline = (on_tier(t, [call, torch.compile(call)]) for t in ("compiled", "baseline"))
    assert compiled == baseline
    assert compiled[0] == compiled[1]
