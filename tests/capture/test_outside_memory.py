"""Compiled regions read and write memory that others reach when eager mode does."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import _core, nn

SIZE = 6
LARGE = 70_000  # elements of which a backward reads the original at once
Read = Callable[[int], float]
Write = Callable[[int, float], None]


def _accessors(view: Any) -> tuple[Read, Write]:
    def write(place: int, value: float) -> None:
        view[place] = value

    return lambda place: float(view[place]), write


def _numbers() -> Any:
    return np.linspace(1, 6, SIZE, dtype=np.float32)


def _from_numpy() -> tuple[Any, Any]:
    array = _numbers()
    return torch.from_numpy(array), array


def _numpy() -> tuple[Any, Any]:
    tensor = torch.tensor(_numbers())
    return tensor, tensor.numpy()


def _from_dlpack() -> tuple[Any, Any]:
    array = _numbers()
    return torch.from_dlpack(array), array


def _to_dlpack() -> tuple[Any, Any]:
    tensor = torch.tensor(_numbers())
    return tensor, torch.from_dlpack(tensor).numpy()


def _frombuffer() -> tuple[Any, Any]:
    buffer = bytearray(_numbers().tobytes())
    return torch.frombuffer(buffer, dtype=torch.float32), memoryview(buffer).cast("f")


def _data_ptr() -> tuple[Any, Any]:
    tensor = torch.tensor(_numbers())
    pointer = ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_float))
    return tensor, pointer


def _storage() -> tuple[Any, Any]:
    tensor = torch.tensor(_numbers())
    return tensor, memoryview(tensor.untyped_storage()).cast("B").cast("f")


def _typed_storage() -> tuple[Any, Any]:
    tensor = torch.tensor(_numbers())  # its .data: an item that is set counts as a write
    storage = torch.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype)
    return tensor.data, storage


def _shared_memory() -> tuple[Any, Any]:
    tensor = torch.tensor(_numbers()).share_memory_()
    other = torch.empty(0).set_(tensor.untyped_storage(), 0, (SIZE,), (1,))
    return tensor, other.numpy()


KINDS = [
    _from_numpy,
    _numpy,
    _from_dlpack,
    _to_dlpack,
    _frombuffer,
    _data_ptr,
    _storage,
    _typed_storage,
    _shared_memory,
]

OPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x * y,
    lambda x, y: x + y.sin(),
    lambda x, y: (x - y).exp(),
    lambda x, y: x[1:].sum() * y,
    lambda x, y: x.flip(0).maximum(y),
    lambda x, y: torch.where(x > y, x, y * 0.5),
]
WRITES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x.add_(1),
    lambda x, y: x.mul_(0.5).add_(y),
    lambda x, y: x.copy_(y),
    lambda x, y: x[2:4].fill_(3),
]


class Program:
    """One random interleaving of recorded ops and what others do with their memory."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.kinds = [self.draw.choice(KINDS) for _ in range(3)]
        self.early = [self.draw.random() < 0.5 for _ in self.kinds]
        self.weight = self.draw.choice([None, "data_ptr", "numpy", "dlpack", "storage"])
        self.steps = [(self.draw.randrange(8), self.draw.randrange(1 << 20)) for _ in range(12)]

    def run(self, wrap: Callable[[Any], Any]) -> tuple[list[Any], list[float]]:
        """Tensors that are left at the end, and everything that others read."""
        given = [make() if early else None for make, early in zip(self.kinds, self.early)]
        weight = nn.Parameter(torch.linspace(-1, 1, SIZE))
        reached = _of_parameter(weight) if self.weight else {}
        seen: list[float] = []

        def body(weight: Any) -> list[Any]:
            pairs = [pair or make() for pair, make in zip(given, self.kinds, strict=True)]
            values = [tensor for tensor, _ in pairs]
            others = [_accessors(view) for _, view in pairs]
            others += [reached[self.weight]] if self.weight else []
            results = [values[0] * weight]
            for kind, number in self.steps:
                self.step(kind, number, values, others, results, weight, seen)
            results[-1].sum().backward()
            return [*results, *values, weight.grad]

        found = wrap(body)(weight)
        return found, seen

    def step(
        self,
        kind: int,
        number: int,
        values: list[Any],
        others: list[tuple[Read, Write]],
        results: list[Any],
        weight: Any,
        seen: list[float],
    ) -> None:
        draw = random.Random(number)
        which, place = draw.randrange(len(values)), draw.randrange(SIZE)
        read, write = others[draw.randrange(len(others))]
        if kind in (0, 1):
            write(place, float(draw.randrange(1, 5)))
        elif kind == 2:
            seen.append(read(place))
        elif kind == 3:
            target = values[which].data if number % 32 else values[which]  # .data: not counted
            with torch.no_grad():
                draw.choice(WRITES)(target, results[-1].detach())
        elif kind == 4 and number % 2:
            (results[-1] * values[which]).sum().backward(retain_graph=True)
            gradient = weight.grad.numpy()
            seen.append(float(gradient[place]))
            gradient[place] = 2.0
        else:
            results.append(draw.choice(OPS)(values[which] * weight, results[-1]))


@pytest.mark.parametrize(("seed", "size"), [(seed, SIZE) for seed in range(30)]
                         + [(seed, LARGE) for seed in range(30, 50)])  # fmt: skip
def test_random_interleavings(seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SIZE", size)
    program = Program(seed)
    try:
        expected, seen = program.run(lambda f: f)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as found_error:
            program.run(torch.compile)
        assert str(found_error.value) == str(error)
        return
    found, found_seen = program.run(torch.compile)
    assert found_seen == seen
    for a, b in zip(expected, found, strict=True):
        assert _bits(a) == _bits(b)


def _bits(tensor: Any) -> bytes:
    array = tensor.detach().numpy()
    return bytes(np.where(np.isnan(array), np.float32(np.nan), array).tobytes())  # of any sign


def test_later_backward_reads_what_is_there_then() -> None:
    """Saved inputs are read by backward, values computed from them were read by forward."""

    def run(wrap: Callable[[Any], Any]) -> tuple[Any, str]:
        array = _numbers()
        weight = nn.Parameter(torch.linspace(-1, 1, SIZE))
        result = wrap(lambda x, w: (x * w).sin() * x)(torch.from_numpy(array), weight)
        array[:] = 5
        name = result.grad_fn.name()
        result.sum().backward()
        return weight.grad, name

    expected, _ = run(lambda f: f)
    for _ in range(2):
        found, name = run(torch.compile)
        assert torch.equal(found, expected)
        assert name == "CompiledFunctionBackward"  # it is still differentiated ahead of time


@pytest.mark.parametrize("write", [False, True])
def test_backward_in_the_region_reads_large_memory_at_once(write: bool) -> None:
    """One copy of the refilled buffer for the forward, none for the backward.

    A product would pack its operands, into buffers as large on some processors.
    """
    array = np.arange(1 << 17, dtype=np.float32).reshape(256, 512) / (1 << 17)
    x = torch.from_numpy(array)
    weight = nn.Parameter(torch.linspace(-1, 1, 512))

    def step(x: Any) -> Any:
        weight.grad = None
        loss = (x * weight).sum()
        if write:
            array[:] = 1.0
        loss.backward()
        if write:
            array[:] = 2.0
        return loss.detach()

    saved = array.copy()
    loss, expected = step(x), weight.grad
    compiled = torch.compile(step, fullgraph=True)  # the flush is no graph break
    for _ in range(2):
        array[:] = saved
        begin = _core.memory_stats()["allocated_bytes.all.allocated"]
        assert torch.equal(compiled(x), loss)
        copies = (_core.memory_stats()["allocated_bytes.all.allocated"] - begin) // array.nbytes
        assert torch.equal(weight.grad, expected)
    assert copies == 1
    report = torch.compiler.explain(step, x)
    reasons = [flush.reason for flush in report.flushes]
    assert reasons == ["memory that others may write to is read"]


def test_a_view_taken_before_the_region() -> None:
    tensor = torch.zeros(3)
    view = tensor.numpy()
    seen: list[float] = []

    @torch.compile
    def f(x: Any) -> Any:
        before = x * 2
        view[0] = 7
        x.add_(1)
        seen.append(float(view[0]))
        return before, x[0] * 1

    before, first = f(tensor)
    assert before.tolist() == [0, 0, 0]
    assert first.item() == 8
    assert seen == [8.0]


def test_memory_that_is_given_back_is_recorded_again() -> None:
    tensor = torch.zeros(3)
    compiled = lambda x: x.add_(1).mul_(2)  # noqa: E731
    view = tensor.numpy()
    assert torch.compiler.explain(compiled, tensor).graph_break_count == 2
    del view
    assert torch.compiler.explain(compiled, tensor).graph_break_count == 0


def test_an_array_that_nobody_else_has_is_no_outside() -> None:
    array = _numbers()
    alone = torch.from_numpy(array * 1)
    shared = torch.from_numpy(array)
    step = lambda x: x.add_(1).mul_(2)  # noqa: E731
    assert torch.compiler.explain(step, alone).graph_break_count == 0
    assert torch.compiler.explain(step, shared).graph_break_count == 2


def test_addresses_of_parameters_cost_no_copies() -> None:
    """Models compare addresses to find tied weights: compiled calls read theirs in place."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x = torch.ones(2, 64)
    explain = torch.compiler.explain
    before = explain(model, x)
    assert before.graph_break_count == 0  # nobody else reaches them
    allocated = _allocated(model, x)
    for parameter in [*model.parameters(), *model.state_dict().values()]:
        parameter.data_ptr()
        parameter.untyped_storage().data_ptr()
    weight = 64 * 64 * 4
    assert explain(model, x).bytes_moved < before.bytes_moved + weight
    assert _allocated(model, x) < allocated + weight


def _allocated(model: Any, x: Any) -> int:
    compiled = torch.compile(model, fullgraph=True)
    compiled(x)
    begin = _core.memory_stats()["allocated_bytes.all.allocated"]
    compiled(x)
    return int(_core.memory_stats()["allocated_bytes.all.allocated"] - begin)


def _of_parameter(parameter: Any) -> dict[str, tuple[Read, Write]]:
    """Whoever reaches a parameter's memory, by the way that was taken."""
    pointer = ctypes.cast(parameter.data_ptr(), ctypes.POINTER(ctypes.c_float))
    detached = parameter.detach()
    return {
        "data_ptr": _accessors(pointer),
        "numpy": _accessors(detached.numpy()),
        "dlpack": _accessors(torch.from_dlpack(detached).numpy()),
        "storage": _accessors(memoryview(detached.untyped_storage()).cast("B").cast("f")),
    }


@pytest.mark.parametrize("way", ["data_ptr", "numpy", "dlpack", "storage"])
@pytest.mark.parametrize("depth", [1, 2])
def test_parameters_that_others_reach(way: str, depth: int) -> None:
    """Their writes are seen by what is called after them, forward and backward."""

    def run(wrap: Callable[[Any], Any]) -> list[bytes]:
        weight = nn.Parameter(torch.linspace(-1, 1, SIZE))
        _, write = _of_parameter(weight)[way]

        def step(x: Any) -> Any:
            before = x * weight
            write(0, 3.0)
            after = (weight * x).sin() * weight
            write(1, 4.0)
            (before + after).sum().backward()
            write(2, 5.0)
            return before, after, weight * 1

        wrapped = wrap(step)
        x = torch.linspace(1, 2, SIZE, requires_grad=True)
        results = [wrapped(x) for _ in range(depth)][-1]
        return [_bits(t) for t in (*results, weight, weight.grad, x.grad)]

    assert run(torch.compile) == run(lambda f: f)


def test_an_optimizer_writes_at_its_end() -> None:
    """Parameters whose addresses are known are updated by one stream, not by one each."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.data_ptr()
    seen: list[float] = []

    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        seen.append(ctypes.c_float.from_address(address).value)

    x, weight = torch.ones(2, 4), model[0].weight
    address = weight.data_ptr()
    reasons = [flush.reason for flush in torch.compiler.explain(step, x).flushes]
    assert reasons.count("memory that is shared with the outside") == 1
    assert seen == [weight[0, 0].item()]
