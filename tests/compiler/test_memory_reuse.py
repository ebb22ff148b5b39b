"""Memory of intermediate values: results take over that of operands that die; bytes are counted."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.capture import stream
from flambeau.compiler.schedule.reuse import overwritable
from flambeau.ir import kernel as k
from flambeau.ir.size import symbol

SIDE = 32
SIZE = SIDE * SIDE * 4  # bytes of a value
ROOM = SIZE // 4  # for scalars, rows and alignment


def memory_of(function: Any, *arguments: Any) -> tuple[int, int]:
    """Bytes that hold the intermediate values of a call, and those alive at once."""
    torch.compiler.reset()
    with stream.watching() as reports, torch.no_grad():
        assert torch.equal(torch.compile(function)(*arguments), function(*arguments))
    (report,) = reports
    held, alive = report.plan.memory
    return int(held), int(alive)


def data(count: int) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(SIDE, SIDE) for _ in range(count)]


def pointwise(x: Any, y: Any) -> Any:
    """A product, and a kernel that cannot be its epilogue: it reads a sum of the product's, too."""
    z = x @ y
    return ((z - z.sum()) * 2) @ y


def softmax(x: Any, y: Any) -> Any:
    return (x @ y).softmax(-1) @ y


def centred(x: Any, y: Any) -> Any:
    """Rows are read twice before they are written."""
    z = x @ y
    z = z - z.mean(1, keepdim=True)
    return (z / z.square().sum(1, keepdim=True)) @ y


@pytest.mark.parametrize("function", [pointwise, softmax, centred])
def test_a_result_takes_the_memory_of_an_operand_that_dies(function: Any) -> None:
    held, alive = memory_of(function, *data(2))
    assert held == alive < SIZE + ROOM


def shifted(x: Any, y: Any) -> Any:
    """Elements are read at other places than they are written."""
    z = x @ y
    return (z - z.sum() + z.flip(0)) @ y


def read_later(x: Any, y: Any) -> Any:
    z = x @ y
    return (z - z.sum()) @ z


def narrower(x: Any, y: Any) -> Any:
    """Elements of another type are not stored over the ones that are read."""
    z = x @ y
    return (z - z.sum()).to(torch.float64) @ y.double()


@pytest.mark.parametrize("function", [shifted, read_later, narrower])
def test_operands_that_are_read_otherwise_stay(function: Any) -> None:
    held, alive = memory_of(function, *data(2))
    assert held == alive >= 2 * SIZE


def test_values_of_one_size_at_some_sizes_only() -> None:
    """Memory is shared where both values are equally large: sizes decide about a broadcast."""

    def function(x: Any, y: Any, shift: Any) -> Any:
        z = x @ y
        return ((z - z.sum()) + shift).sum(0) * z.sum()

    x, y, shift = data(3)
    compiled = torch.compile(function)
    with torch.no_grad():
        for rows in (SIDE, 1, 7, SIDE):
            arguments = x[:rows], y, shift[:rows]
            assert torch.equal(compiled(*arguments), function(*arguments))


def test_long_chains_run_in_the_memory_of_two_values() -> None:
    def function(x: Any, y: Any) -> Any:
        for _ in range(12):
            x = (x @ y).softmax(-1)
            x = x / x.sum()
        return x.sum()

    held, alive = memory_of(function, *data(2))
    assert held == alive < 2 * SIZE + ROOM


def test_gradients_have_the_bits_of_eager_mode() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.GELU()) for _ in range(6)),
        torch.nn.LayerNorm(SIDE), torch.nn.Softmax(-1),
    )  # fmt: skip
    (x,) = data(1)
    compiled = torch.compile(lambda x: model(x).square().sum())
    parameters = list(model.parameters())
    for _ in range(3):
        actual = torch.autograd.grad(compiled(x), parameters)
        expected = torch.autograd.grad(model(x).square().sum(), parameters)
        assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_explain_shows_the_memory() -> None:
    report = torch.compiler.explain(softmax, *data(2))
    assert report.bytes_held == report.bytes_alive >= SIZE
    assert f"{report.bytes_held} bytes of memory hold intermediate values" in str(report)


# ------------------------------------------------------------------------------- kernels

P, R, N = symbol("p0"), symbol("r"), symbol("n0")
HERE = N * P + R


def kernel(body: tuple[k.Statement, ...], form: str = "map", result: str = "f32") -> k.Kernel:
    return k.Kernel(
        form=form, parameters=(("f32", "r"), (result, "w")), size_count=2, scalars=(), rows=(N,),
        inner=N, body=body,
    )  # fmt: skip


LOAD = k.load(0, HERE, "f32")
SHIFTED = k.load(0, HERE + 1, "f32")


@pytest.mark.parametrize(
    ("body", "form", "result", "pairs"),
    [
        ((k.Pass(((1, HERE, LOAD),)),), "map", "f32", [(0, 1)]),
        ((k.Pass(((1, HERE, SHIFTED),)),), "map", "f32", []),
        ((k.Pass(((1, HERE, LOAD), (1, HERE + 1, LOAD))),), "map", "f32", []),  # written twice
        ((k.Pass(((1, HERE, LOAD),)),), "map", "i32", []),
        ((k.Pass(((1, HERE, LOAD),)),), "column", "f32", []),
        ((k.Pass(((1, HERE, LOAD),), (("a0", "sum", LOAD),)),), "row", "f32", [(0, 1)]),
        # read again after it was written
        (
            (k.Pass(((1, HERE, LOAD),)), k.Pass((), (("a0", "sum", LOAD),))),
            "row", "f32", [],
        ),
    ],
)  # fmt: skip
def test_pairs_of_parameters(body: Any, form: str, result: str, pairs: Any) -> None:
    assert list(overwritable(kernel(body, form, result))) == pairs
