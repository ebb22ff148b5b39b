"""Every register, slot and position of a plan is checked before anything runs by it."""

from __future__ import annotations

import marshal
import random
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.ir.plan import (
    BackwardSpec,
    Bound,
    Buffer,
    Check,
    Execution,
    Launch,
    Number,
    Output,
    Packing,
    PlanSpec,
    Source,
    packed,
    unpacked_execution,
    unpacked_spec,
)
from flambeau.ir.plan_grammar import PlanError, print_plan, verify_plan

HUGE = 2**31 - 1
KERNEL = 1  # an address: nothing here is ever launched
SPEC = PlanSpec(
    name="plan",
    symbols=6,
    tensors=2,
    numbers=1,
    generators=1,
    program=[(0, 4, 0), (3, 0, 6)],
    guards=[7],
    outputs=[
        Output("new", -1, "f32", [0], [1], nbytes=7),
        Output("alias", 0, "f32", [0], [1], 2),
        Output("input", 1),
    ],
    visible=1,
    detached=[1],
    mutated=[0],
    backward=BackwardSpec(
        name="PlanBackward",
        op="Plan",
        signature=(2, (), 0),
        targets=[0],
        edges=2,
        arguments=[
            Source("output", 0),
            Source("grad", 0),
            Source("held", 0),
            Source("register", 7),
            Source("scalar", 0),
            Source("input", 0),
        ],
    ),
    checks=[Check(0, 3, True, 2, 0), Check(-1, 64, False, 2, 0)],
    bounds=[Bound(0, 3, -1), Bound(0, -1, 1)],
)
EXECUTION = Execution(
    program=[(0, 8, 0)],
    buffers=[
        Buffer("input", 0),
        Buffer("output", 0),
        Buffer("temporary", nbytes=8, first=0, last=1),
        Buffer("generator", 0),
        Buffer("error", error="value", message="{value}"),
    ],
    launches=[
        Launch("packs", KERNEL, None, [0, 2], [8, -1], [0], chunks=8, packing=Packing(0, 1, 8, 7)),
        Launch(
            "kernel", KERNEL, None, [2, 1, 3, 4], [8, -1, -1, -1], [0, 1],
            [Number("argument", 0, False), Number("constant", 2.5, True)],
            chunks=8, work=8, scratch=8, flops=8, elements=8, traffic=[4, 1] * 4,
        ),
    ],
    written=[0],
)  # fmt: skip


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    step, *remaining = path
    if isinstance(step, str):
        return value._replace(**{step: _replaced(getattr(value, step), tuple(remaining), new)})
    changed = [_replaced(v, tuple(remaining), new) if i == step else v for i, v in enumerate(value)]
    return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)


def _plan(spec: PlanSpec, execution: Execution = EXECUTION) -> Any:
    return _core.Plan(spec, compile=lambda: execution, backward=len)


def _refused(spec: PlanSpec, execution: Execution = EXECUTION) -> None:
    with pytest.raises(ValueError, match=r"^\[Plan\] "):
        _plan(spec, execution).prepare()
    with pytest.raises(PlanError, match=r"(?m)^> "):
        verify_plan(spec, execution)


def test_plan_that_is_right() -> None:
    plan = _plan(SPEC)
    assert plan.execution is None
    plan.prepare()
    assert plan.launches == ("packs", "kernel")
    assert (plan.spec, plan.execution) == (SPEC, EXECUTION)
    verify_plan(SPEC, EXECUTION)


TEXT = """\
plan plan: 6 symbols, 2 tensors, 1 numbers, 1 generators
r6 = 4
r7 = r0 * r6
guard r7
output 0: new f32 [r0] [r1] nbytes r7
output 1: alias 0 f32 [r0] [r1] offset r2 hidden
output 2: input 1 hidden
mutated [0]
detached [1]
returns single
check (0, 3, True, 2, 0)
check (-1, 64, False, 2, 0)
bound (0, 3, -1, -1, -1)
bound (0, -1, 1, -1, -1)
backward PlanBackward: Plan to [0] of 2
  from output 0
  from grad 0
  from held 0
  from register 7
  from scalar 0
  from input 0
execution:
r8 = 8
buffer 0: input 0
buffer 1: output 0
buffer 2: temporary r8 in launches 0 to 1
buffer 3: generator 0
buffer 4: error value '{value}'
launch 0: kernel 'packs' buffers [0, 2] offsets [r8, -] sizes [r0] chunks r8 packs 0 to 1
launch 1: kernel 'kernel' buffers [2, 1, 3, 4] offsets [r8, -, -, -] sizes [r0, r1] scalars \
[argument 0, constant 2.5 as float] chunks r8 work r8 scratch r8 flops r8 elements r8
written [0]
"""


def test_text_of_a_plan() -> None:
    plan = _plan(SPEC)
    assert plan.text() == TEXT.partition("execution:")[0]
    plan.prepare()
    assert plan.text() == print_plan(SPEC, EXECUTION) == TEXT


def test_packed_plans_are_read_back() -> None:
    spec = unpacked_spec(marshal.loads(marshal.dumps(packed(SPEC))))
    execution = unpacked_execution(marshal.loads(marshal.dumps(packed(EXECUTION))))
    assert print_plan(spec, execution) == TEXT
    assert packed(spec) == packed(SPEC)
    assert packed(execution) == packed(EXECUTION)
    _plan(spec, execution).prepare()


REGISTERS: list[tuple[Any, ...]] = [
    ("program", 1, 1),
    ("program", 1, 2),
    ("guards", 0),
    ("outputs", 0, "sizes", 0),
    ("outputs", 0, "strides", 0),
    ("outputs", 0, "nbytes"),
    ("outputs", 1, "offset"),
    ("outputs", 1, "slot"),
    ("outputs", 2, "slot"),
    ("visible",),
    ("detached", 0),
    ("mutated", 0),
    ("backward", "targets", 0),
    *[("backward", "arguments", number, "position") for number in range(6)],
    ("checks", 0, "slot"),
    ("checks", 0, "size"),
    ("checks", 0, "value"),
    ("checks", 1, "size"),
    ("bounds", 0, "output"),
    ("bounds", 0, "size"),
    ("bounds", 1, "slot"),
]


@pytest.mark.parametrize("path", [*REGISTERS, ("symbols",), ("tensors",)], ids=str)
def test_number_of_a_plan_below_its_range(path: tuple[Any, ...]) -> None:
    _refused(_replaced(SPEC, path, -2))


@pytest.mark.parametrize("path", REGISTERS, ids=str)
def test_number_of_a_plan_above_its_range(path: tuple[Any, ...]) -> None:
    _refused(_replaced(SPEC, path, HUGE))


EXECUTION_REGISTERS: list[tuple[Any, ...]] = [
    ("buffers", 0, "position"),
    ("buffers", 1, "position"),
    ("buffers", 2, "nbytes"),
    ("buffers", 2, "first"),
    ("buffers", 2, "last"),
    ("buffers", 3, "position"),
    ("launches", 1, "buffers", 1),
    ("launches", 1, "offsets", 0),
    ("launches", 1, "sizes", 0),
    ("launches", 1, "scalars", 0, "value"),
    ("launches", 1, "chunks"),
    ("launches", 1, "work"),
    ("launches", 1, "scratch"),
    ("launches", 1, "flops"),
    ("launches", 1, "elements"),
    ("written", 0),
]


@pytest.mark.parametrize("wrong", [-2, HUGE])
@pytest.mark.parametrize("path", EXECUTION_REGISTERS, ids=str)
def test_number_of_an_execution_outside_its_range(path: tuple[Any, ...], wrong: int) -> None:
    _refused(SPEC, _replaced(EXECUTION, path, wrong))


def _sharing(shares: int, **changes: Any) -> Execution:
    owner = Buffer("temporary", nbytes=8, first=0, last=1)
    second = Buffer("temporary", nbytes=8, first=1, last=1, shares=shares)._replace(**changes)
    return EXECUTION._replace(buffers=[*EXECUTION.buffers, owner, second])


def test_temporaries_that_share_memory() -> None:
    _plan(SPEC, _sharing(5)).prepare()
    verify_plan(SPEC, _sharing(5))
    assert "in launches 1 to 1 in the memory of buffer 5" in print_plan(SPEC, _sharing(5))
    for wrong in (0, 6, 7, -2, HUGE):  # an input, itself, none
        _refused(SPEC, _sharing(wrong))
    _refused(SPEC, _sharing(5, first=0))  # a chain of these might not end


def test_a_call_with_other_slots_is_refused() -> None:
    from flambeau.language.schema import ArgumentSpec

    spec = PlanSpec("two", 3, 2, [], 0, returns="nothing")
    op = _core.Op("two", [((ArgumentSpec("x", "Tensor"),), lambda call: _core.Plan(spec), ())])
    with pytest.raises(RuntimeError, match="takes 2 tensors"):
        op(torch.ones(3))


# ------------------------------------------------------------------------------- mutants


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the numbers of a record are."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [path]
    steps: Any = enumerate(value) if isinstance(value, (list, tuple)) else ()
    if hasattr(value, "_fields"):
        steps = value._asdict().items()
    return [found for step, item in steps for found in _paths(item, (*path, step))]


def _mutant(value: Any, paths: list[tuple[Any, ...]], draw: random.Random) -> Any:
    near = [-2, -1, 0, 1, 2, 3, 5, 17, 64, HUGE, -HUGE, 2**31, 2**62, -(2**62)]
    for path in draw.sample(paths, draw.randint(1, 3)):
        value = _replaced(value, path, draw.choice(near))
    return value


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_plans_never_crash(seed: int) -> None:
    """Numbers of a plan change at random: it is refused, or runs in a dry run."""
    draw = random.Random(seed)
    specs, executions = _paths(SPEC), _paths(EXECUTION._replace(launches=[]))
    executions += [("launches", *path) for path in _paths(EXECUTION.launches)]
    executions = [path for path in executions if path[-1] != "kernel"]
    x, y = torch.ones(4), torch.ones(4)
    refused = 0
    before = _core.set_dry_run(True)
    try:
        for _ in range(400):
            spec = _mutant(SPEC, specs, draw) if draw.random() < 0.7 else SPEC
            execution = _mutant(EXECUTION, executions, draw)
            refused += not _runs(spec, execution, x, y)
    finally:
        _core.set_dry_run(before)
    assert 0 < refused < 400


def _runs(spec: PlanSpec, execution: Execution, x: Any, y: Any) -> bool:
    from flambeau.language.schema import ArgumentSpec

    def build(call: Any) -> Any:
        return _plan(spec, execution)

    arguments = (
        ArgumentSpec("x", "Tensor", mutated=False),
        ArgumentSpec("y", "Tensor"),
        ArgumentSpec("number", "Scalar", runtime=True),
        ArgumentSpec("generator", "generator?", (None,)),
    )
    try:
        with torch.no_grad():
            _core.Op("mutant", [(arguments, build, ("storage",))])(x, y, 2)
    except (ValueError, RuntimeError, OverflowError, MemoryError):
        return False
    return True
