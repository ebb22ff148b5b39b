"""Templates' launches as prebuilt variants and maps have the bits of the fused kernels."""

from __future__ import annotations

import copy

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler import pipeline, targets
from flambeau.compiler.baseline.lower import block_program
from flambeau.compiler.baseline.split import split
from flambeau.compiler.baseline.variants import is_variant
from flambeau.runtime import plan_cache_clear

functional = nn.functional


@pytest.fixture
def compared(monkeypatch):
    """A function that computes something by fused and by split launches, compares the bits, and
    returns the names of the launches that are left to a compiler, and how many epilogues there
    were."""

    def compare(function, *args):
        plan_cache_clear()
        torch.manual_seed(1)
        expected = bits(function(*copied(args)))
        plan_cache_clear()
        torch.manual_seed(1)
        names = []
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "STAGES", stages(names))
            found = bits(function(*copied(args)))
        plan_cache_clear()
        assert found == expected
        assert [name for name, prebuilt in names if not prebuilt] == []
        return sum(name.endswith(": epilogue") for name, _ in names)

    return compare


def stages(names):
    """The pipeline with split launches; their names are added, and whether no template's kernel
    has to be compiled."""

    def lower(state):
        stage.run(state)
        before = state.schedule.text()
        schedule = split(state.schedule)
        assert state.schedule.text() == before
        state.schedule = schedule
        for launch in schedule.launches:
            if launch.kernel is not None:
                template = launch.kernel.form == "template"
                prebuilt = not template or is_variant(launch.kernel, targets.current())
                names.append((launch.name, prebuilt))
                if launch.name.endswith((": epilogue", ": mask")):
                    assert block_program(launch.kernel)

    [stage] = [stage for stage in pipeline.STAGES if stage.name == "lower"]
    split_stage = stage._replace(run=lower)
    return tuple(split_stage if each is stage else each for each in pipeline.STAGES)


def copied(args):
    """Equal arguments in memory of their own, laid out alike."""
    return tuple(copy.deepcopy(arg) for arg in args)


def bits(values):
    """Shapes, dtypes and bytes of tensors."""
    listed = values if isinstance(values, (list, tuple)) else [values]
    return [(x.dtype, tuple(x.shape), data(x)) for x in listed]


def data(x):
    """The bytes of a tensor's elements in row-major order."""
    return x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def gradients(function, *args):
    """Results, and the gradients of all floating-point arguments."""
    leaves = [x.requires_grad_() for x in args if x.is_floating_point()]
    result = function(*args)
    return [result, *torch.autograd.grad(result.float().square().sum(), leaves)]


SHAPES = [(1, 7, 5), (33, 300, 65), (200, 64, 3), (300, 2100, 40), (130, 40, 600)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
def test_linear_and_gelu(compared, dtype, rows, depth, columns):
    kind = getattr(torch, dtype)
    x, w = torch.randn(rows, depth, dtype=kind), torch.randn(columns, depth, dtype=kind)
    b = torch.randn(columns, dtype=kind)

    @torch.compile
    def function(x, w, b):
        return functional.gelu(functional.linear(x, w, b))

    assert compared(function, x, w, b) == 1


def test_gradients_of_linear(compared):
    x, w, b = torch.randn(40, 70), torch.randn(90, 70), torch.randn(90)
    step = torch.compile(lambda *args: gradients(lambda x, w, b: (x @ w.T + b).tanh(), *args))
    assert compared(step, x, w, b)


def test_residual_of_bfloat16(compared):
    kind = torch.bfloat16
    x, w = torch.randn(50, 96, dtype=kind), torch.randn(96, 96, dtype=kind)
    assert compared(torch.compile(lambda x, w: x + x @ w), x, w) == 1


def test_results_that_are_stored_as_they_are_need_no_epilogue(compared):
    a, b = torch.randn(30, 20), torch.randn(20, 50)
    assert compared(torch.mm, a, b) == 0
    assert compared(torch.bmm, a.expand(3, 30, 20), b.expand(3, 20, 50)) == 0
    assert compared(written_inside, torch.zeros(8, 30, 60), a, b) == 0


def written_inside(out, a, b):
    """A product that is written to a part of a tensor."""
    torch.mm(a, b, out=out[3, :, 5:55])
    return out


def test_batches(compared):
    a, b = torch.randn(3, 2, 4, 20, 30), torch.randn(3, 2, 4, 30, 10)
    c = torch.randn(4, 1, 3, 1, 10)

    @torch.compile
    def function(a, b, c):
        product = a.permute(2, 1, 0, 3, 4) @ b.permute(2, 1, 0, 3, 4)
        return (product + c).relu(), product.transpose(-1, -2) * 2

    assert compared(function, a, b, c)


def test_launches_without_a_variant_stay(monkeypatch):
    """Products with more batch dimensions than prebuilt kernels have, of which none are joined."""
    a, b = torch.randn(2, 3, 2, 3, 2, 4, 5), torch.randn(2, 3, 2, 3, 2, 5, 4)
    a = a.permute(4, 3, 2, 1, 0, 5, 6)
    expected, names = (a @ b) * 2, []
    plan_cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "STAGES", stages(names))
        result = torch.compile(lambda a, b: (a @ b) * 2)(a, b).clone()
    plan_cache_clear()
    assert torch.equal(result, expected)
    assert False in [prebuilt for _, prebuilt in names]
    assert not any(name.endswith(": epilogue") for name, _ in names)


def test_epilogues_of_transposed_results(compared):
    a, b, c = torch.randn(20, 30), torch.randn(30, 600), torch.randn(600, 20)
    assert compared(torch.compile(lambda a, b, c: (a @ b).T.contiguous() + c), a, b, c)
    compared(torch.compile(lambda a, b: ((b.T @ a.T).T.exp(), b.T @ a.T)), a, b)


def test_epilogues_in_place(compared):
    a, b = torch.randn(33, 40), torch.randn(40, 33)

    def added(c, a, b):
        c.addmm_(a, b, beta=0.5, alpha=3)
        return c

    def overwritten(a, b):
        a.copy_(((a @ b) @ a).sigmoid() - a)
        return a

    assert compared(added, torch.randn(33, 33), a, b)
    compared(torch.compile(added), torch.randn(33, 66)[:, ::2], a, b)
    assert compared(torch.compile(overwritten), a, b)


def test_numbers_of_calls(compared):
    a, b, c = torch.randn(20, 30), torch.randn(30, 40), torch.randn(20, 40)
    step = torch.compile(lambda a, b, c, p, q: torch.addmm(c, a, b, beta=p, alpha=q).exp())
    assert compared(step, a, b, c, 0.3, 1.7)


def test_gathered_epilogue(compared):
    a, b, table = torch.randn(20, 30), torch.randn(30, 40), torch.randn(9, 40)
    index = torch.arange(20) % 9

    @torch.compile
    def function(a, b, table, index):
        return a @ b + table[index]

    compared(function, a, b, table, index)


def test_integers_and_complex_numbers(compared):
    a, b = torch.randint(-9, 9, (40, 50)), torch.randint(-9, 9, (50, 30))
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        compared(torch.compile(lambda a, b: (a @ b).clamp(min=3)), a.to(kind), b.to(kind))
    x, y = torch.randn(20, 30, dtype=torch.complex64), torch.randn(30, 5, dtype=torch.complex64)
    compared(torch.compile(lambda x, y: (x @ y) * 2), x, y)
    compared(
        torch.compile(lambda x, y: (x @ y).mT.contiguous()),
        x.to(torch.complex128),
        y.to(torch.complex128),
    )


# ------------------------------------------------------------------------------- convolutions


def block(layer, channels, pool=None):
    """A convolution, batch norm and relu."""
    dimensions = layer.weight.ndim - 2
    norm = getattr(nn, f"BatchNorm{dimensions}d")(channels)
    return nn.Sequential(layer, norm, nn.ReLU(), *([] if pool is None else [pool]))


CONVOLUTIONS = {
    "plain": (lambda: block(nn.Conv2d(5, 12, 3, padding=1), 12), (2, 5, 9, 11)),
    "strided": (lambda: block(nn.Conv2d(6, 20, 5, stride=2, groups=2), 20), (3, 6, 17, 12)),
    "winograd": (lambda: block(nn.Conv2d(32, 48, 3, padding=1), 48), (2, 32, 13, 10)),
    "depthwise": (lambda: block(nn.Conv2d(8, 8, 3, padding=1, groups=8), 8), (2, 8, 12, 20)),
    "points": (lambda: block(nn.Conv2d(16, 24, 1), 24), (2, 16, 7, 9)),
    "one": (lambda: block(nn.Conv1d(4, 9, 7, dilation=2), 9), (2, 4, 60)),
    "three": (lambda: block(nn.Conv3d(3, 6, 3, padding=1), 6), (2, 3, 5, 6, 7)),
    "pooled": (lambda: block(nn.Conv2d(3, 8, 3, padding=1), 8, nn.MaxPool2d(2)), (2, 3, 8, 10)),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(6, 5, 3, stride=2), nn.ReLU()), (2, 6, 7, 9)
    ),
}  # fmt: skip


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(compared, name, channels_last):
    make, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    if channels_last and x.ndim == 4:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    with torch.no_grad():
        count = compared(torch.compile(lambda x: model(x)), x)
    assert count == (name != "transposed")


def test_convolution_of_bfloat16(compared):
    x, w = torch.randn(2, 6, 9, 9).bfloat16(), torch.randn(8, 6, 3, 3).bfloat16()
    compared(torch.compile(lambda x, w: functional.conv2d(x, w, padding=1).relu()), x, w)


@pytest.mark.parametrize("name", ["plain", "winograd", "depthwise", "transposed"])
def test_training_step_of_convolutions(compared, name):
    make, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape)

    def step(x):
        result = model(x)
        return [result, *torch.autograd.grad(result.square().sum(), list(model.parameters()))]

    compared(torch.compile(step), x)


# ------------------------------------------------------------------------------- attention


MASKS = {
    "mask": lambda rows, kind: torch.randn(rows, 70) > 0,
    "bias": lambda rows, kind: torch.randn(2, 1, rows, 70, dtype=kind),
    "bias of float32": lambda rows, kind: torch.randn(rows, 140)[:, ::2],
    "few with mask": lambda rows, kind: torch.randn(3, 1, 70) > 0,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ["plain", "causal", "dropout", "few", *MASKS])
def test_attention(compared, dtype, case):
    kind = getattr(torch, dtype)
    rows = 2 if "few" in case else 70
    q, k, v = (torch.randn(2, 3, n, 16, dtype=kind) for n in (rows, 70, 70))
    options = {"causal": {"is_causal": True}, "dropout": {"dropout_p": 0.3}}.get(case, {})
    if case in MASKS:
        options = {"attn_mask": MASKS[case](rows, kind)}

    def attend(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, **options) * 2

    with torch.no_grad():
        compared(torch.compile(attend), q, k, v)
    compared(torch.compile(lambda *args: gradients(attend, *args)), q, k, v)


# ------------------------------------------------------------------------------- models


def test_training_step_of_a_transformer(compared):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    head = nn.Linear(32, 11)
    parameters = [*layer.parameters(), *head.parameters()]

    def step(x):
        loss = functional.cross_entropy(head(layer(x)).view(-1, 11), torch.arange(24) % 11)
        return [loss, *torch.autograd.grad(loss, parameters)]

    assert compared(torch.compile(step), torch.randn(2, 12, 32))
