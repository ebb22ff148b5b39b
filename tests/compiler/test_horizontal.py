"""Horizontal fusion: small independent kernels become one in tuned programs, and change no bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.compiler import targets
from flambeau.compiler.schedule import horizontal
from flambeau.compiler.targets.description import Fused
from flambeau.runtime import settings

MODE = "max-autotune"
THREADS = (1, 2, 3)
Tensors = Sequence[torch.Tensor]


@pytest.fixture(autouse=True)
def costly(monkeypatch: pytest.MonkeyPatch) -> Iterator[targets.Target]:
    """Plans every test anew, on one thread, for a target whose launches cost much."""
    target = copy.copy(targets.current())
    target.fused = Fused(work=2000, map_work=2000)
    monkeypatch.setattr(targets, "current", lambda: target)
    torch.compiler.reset()
    yield target
    torch.set_num_threads(1)


def bits(value: Any) -> Any:
    """The bytes of all tensors of a result."""
    if isinstance(value, torch.Tensor):
        return _core.tensor_bytes(value.contiguous())
    return [bits(each) for each in value]


def kernels(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[int, int]:
    """Launches of a program as it is by default, and of the tuned one; checks that bits are equal,
    of results and of what is written, on several numbers of threads."""
    counts = []
    for mode in (None, MODE):
        torch.compiler.reset()
        compiled = torch.compile(lambda *args: function(*args), mode=mode)
        counts.append(torch.compiler.explain(compiled, *copies(tensors)).kernels)
        expected = results(function, tensors)
        for threads in THREADS:
            torch.set_num_threads(threads)
            assert results(compiled, tensors) == expected
    return counts[0], counts[1]


def copies(tensors: Tensors) -> list[torch.Tensor]:
    return [x.clone() for x in tensors]


def results(function: Callable[..., Any], tensors: Tensors) -> Any:
    """The bits that a function returns, and those that it leaves in its arguments."""
    arguments = copies(tensors)
    returned = function(*arguments)
    return bits([] if returned is None else returned), bits(arguments)


def stage(function: Callable[..., Any], *tensors: torch.Tensor) -> str:
    """The text of the stage that fuses, of the tuned program."""
    compiled = torch.compile(lambda *args: function(*args), mode=MODE)
    texts = {name: text for name, _, text in torch.compiler.stages(compiled, *tensors)}
    return texts["cluster"]


def normal(count: int, *shape: int) -> list[torch.Tensor]:
    torch.manual_seed(count)
    return [torch.randn(*shape) for _ in range(count)]


# ------------------------------------------------------------------------------- what is fused


def test_one_step_on_several_tensors_is_one_kernel() -> None:
    assert kernels(lambda *xs: [x * 2 + x.sin() for x in xs], *normal(7, 5, 9)) == (7, 1)


def test_writes_in_place_are_one_kernel() -> None:
    def step(*xs: torch.Tensor) -> None:
        for x in xs:
            x.mul_(0.9).add_(0.5)

    assert kernels(step, *normal(6, 33)) == (6, 1)


def test_foreach_operators_are_one_kernel() -> None:
    def step(*xs: torch.Tensor) -> None:
        half = len(xs) // 2
        torch._foreach_add_(list(xs[:half]), list(xs[half:]), alpha=0.25)

    assert kernels(step, *normal(16, 12)) == (8, 1)


@pytest.mark.parametrize(
    "reduction",
    [
        lambda x: x.sum(1),
        lambda x: x.sum(0),
        lambda x: torch.softmax(x, -1),
        lambda x: torch.softmax(x, 0),
        lambda x: x.amax(1) - x.argmin(1),
        lambda x: torch.nn.functional.layer_norm(x, (37,)),
    ],
)
def test_reductions_of_one_shape_are_one_kernel(reduction: Callable[..., Any]) -> None:
    assert kernels(lambda *xs: [reduction(x) for x in xs], *normal(3, 6, 37)) == (3, 1)


def test_a_step_of_adam_is_fewer_kernels() -> None:
    def trained(compiler: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(16)) for _ in range(8)]
        optimizer = torch.optim.Adam(parameters, lr=0.1)
        for parameter in parameters:
            parameter.grad = torch.randn(16)
        step = compiler(optimizer.step)
        for _ in range(3):
            step()
        return parameters

    expected = bits(trained(lambda step: step))
    assert bits(trained(lambda step: torch.compile(lambda: step(), mode=MODE))) == expected
    optimizer = torch.optim.Adam([torch.nn.Parameter(x) for x in normal(8, 16)], lr=0.1)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones(16)
    optimizer.step()
    counts = []
    for mode in (None, MODE):
        torch.compiler.reset()
        compiled = torch.compile(lambda: optimizer.step(), mode=mode)
        counts.append(torch.compiler.explain(compiled).kernels)
    assert counts[1] <= counts[0] - 6


def test_reports_say_what_is_fused() -> None:
    tensors = normal(5, 8)

    def step(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [x.exp() for x in xs]

    assert "5 in one" in stage(step, *tensors)
    compiled = torch.compile(step, mode=MODE)
    report = torch.compiler.explain(compiled, *tensors)
    assert [launch.name for launch in report.launches] == ["stream: 5 in one, exp"]


def test_the_option_of_pytorch_fuses() -> None:
    options = {"combo_kernels": True}
    compiled = torch.compile(lambda *xs: [x.sum(1) for x in xs], options=options)
    tensors = normal(3, 5, 4)
    assert torch.compiler.explain(compiled, *tensors).kernels == 1
    assert bits(compiled(*tensors)) == bits([x.sum(1) for x in tensors])


def test_targets_fuse_small_reductions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that were measured."""
    monkeypatch.undo()
    assert kernels(lambda *xs: [x.sum(1) for x in xs], *normal(4, 8, 16)) == (4, 1)
    assert kernels(lambda *xs: [x * 2 for x in xs], *normal(4, 8, 16)) == (4, 4)


# ------------------------------------------------------------------------------- what is not


def test_by_default_nothing_is_fused() -> None:
    report = torch.compiler.explain(lambda *xs: [x.exp() for x in xs], *normal(5, 8))
    assert report.kernels == 5


def test_on_processors_launches_of_pointwise_kernels_cost_less() -> None:
    """`python -m bench.compiled_launches` measures that."""
    limits = [target.fused for target in targets.TARGETS.values()]
    assert all(limit.map_work == 0 < limit.work for limit in limits)


def test_other_shapes_are_apart() -> None:
    tensors = [*normal(2, 8), *normal(3, 9)]
    assert kernels(lambda *xs: [x.exp() for x in xs], *tensors) == (5, 2)


def test_much_work_is_apart() -> None:
    target = targets.current()
    size = target.fused.map_work * 16  # two operations and memory: half a nanosecond each, or so
    tensors = normal(3, size)
    assert kernels(lambda *xs: [x * 2 for x in xs], *tensors) == (3, 3)
    assert horizontal.WORK in stage(lambda *xs: [x * 2 for x in xs], *tensors)


def test_a_kernel_has_so_many_buffers() -> None:
    limit = targets.current().fused.buffers
    tensors = normal(limit + 2, 4)

    def step(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [x + 1 for x in xs]

    assert kernels(step, *tensors) == (limit + 2, 3)  # each tensor has a result
    assert horizontal.BUFFERS in stage(step, *tensors)


def test_what_depends_on_another_is_apart() -> None:
    """The second reads what the first gives, at other points; the third is written after it."""

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        turned = (x + 1).flip(0).cumsum(0)
        x.mul_(turned + y)
        y.mul_(x.flip(0))
        return turned

    before, after = kernels(step, *normal(2, 16))
    assert 1 < after <= before


# ------------------------------------------------------------------------------- bits


def _program(seed: int) -> Callable[..., Any]:
    """A random program over tensors of two shapes: results, writes and reductions."""

    def program(*tensors: torch.Tensor) -> list[torch.Tensor]:
        draw = random.Random(seed)
        values, returned = list(tensors), []
        for _ in range(24):
            number = draw.randrange(len(values))
            x = values[number]
            others = [other for other in values if other.shape == x.shape]
            match draw.randrange(5):
                case 0:
                    x.mul_(draw.choice((0.5, 1.25))).add_(draw.choice(others))
                case 1:
                    values.append((x * draw.choice(others)).tanh())
                case 2:
                    returned.append(x.sum(draw.randrange(2)))
                case 3:
                    values.append(x.flip(draw.randrange(2)) - 1)
                case 4:
                    returned.append(torch.softmax(x, draw.randrange(2)))
        return returned + values[len(tensors) :]

    return program


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_have_the_same_bits(seed: int) -> None:
    tensors = [*normal(4, 6, 5), *normal(3, 3, 40)]
    before, after = kernels(_program(seed), *tensors)
    assert after <= before


@pytest.mark.parametrize("seed", range(4))
def test_block_programs_have_the_same_bits(seed: int) -> None:
    """The baseline tier runs what is fused."""
    with settings.override(TIER="baseline"):
        before, after = kernels(_program(seed), *normal(4, 6, 5), *normal(3, 3, 40))
        assert after <= before
        assert kernels(lambda *xs: [x * 2 for x in xs], *normal(4, 9)) == (4, 1)


def test_other_sizes_use_the_program() -> None:
    """A program that was tuned for small tensors holds for large ones."""
    compiled = torch.compile(lambda *xs: [x * x + 1 for x in xs], mode=MODE)
    for size in (4, 5, 30_000):
        tensors = normal(4, size)
        assert bits(compiled(*tensors)) == bits([x * x + 1 for x in tensors])


def test_an_index_out_of_range_raises() -> None:
    def rows(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [torch.gather(x, 0, index) for x, index in zip(xs[::2], xs[1::2], strict=True)]

    good, bad = torch.tensor([2, 0, -1]), torch.tensor([1, 9, 0])
    tables = normal(2, 3)
    compiled = torch.compile(rows, mode=MODE)
    assert bits(compiled(tables[0], good.abs(), tables[1], good.abs())) == bits(
        rows(tables[0], good.abs(), tables[1], good.abs())
    )
    with pytest.raises((IndexError, RuntimeError), match="index 9"):
        compiled(tables[0], good.abs(), tables[1], bad)
