"""Truth values in the place of numbers: what eager mode computes with True, compiled code does.

A call keeps numbers apart as integers and floats alone; that one is a truth value is known from the
graph of the call. Written as another dtype it would be wrong, and beyond the memory of its target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.derivation.replay import replay
from flambeau.ir.node import Graph, GraphOutput
from flambeau.language.samples import Sample
from flambeau.prims import scalar_node
from tests.ops.inputs import arguments, leaves, same_bits, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED, seed

NUMBERS = ("Scalar", "Scalar?", "float", "float?", "TensorOrScalar")


def _mask() -> Any:
    mask = torch.ones(6, dtype=torch.bool)
    mask[1] = False
    return mask


def _filled_view() -> Any:
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1:, ::2].fill_(False)
    return mask


def _written_through() -> Any:
    clusters = torch.zeros(6, dtype=torch.int64)
    clusters[_mask()] = torch.arange(5)
    return clusters


PROGRAMS: dict[str, Callable[[], Any]] = {
    "item": _mask,
    "view": _filled_view,
    "selected": lambda: torch.arange(6.0)[_mask()],
    "places": lambda: _mask().nonzero(),
    "counted": lambda: int(_mask().sum()),
    "written": _written_through,
    "index_fill": lambda: _mask().index_fill_(0, torch.tensor([0, 3]), False),
    "masked_fill": lambda: _mask().masked_fill_(torch.arange(6) > 3, False),
    "integers": lambda: torch.zeros(4, dtype=torch.int32).fill_(True),
    "floats": lambda: torch.zeros(4).index_fill_(0, torch.tensor([2]), True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    compiled = torch.compile(PROGRAMS[name])
    for _ in range(2):
        assert same_bits([compiled()], [PROGRAMS[name]()])


def _changed(sample: Sample, place: int, name: str, value: Any) -> Sample:
    if place < len(sample.args):
        return Sample((*sample.args[:place], value, *sample.args[place + 1 :]), sample.kwargs)
    return Sample(sample.args, {**sample.kwargs, name: value})


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("number", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16])
def test_gradients(dtype: Any, number: bool) -> None:
    def gradient(function: Callable[[Any], Any]) -> Any:
        x = torch.arange(1, 4).to(dtype).requires_grad_()
        y = function(x)
        y.backward(torch.full_like(y, 2))
        return x.grad

    for function in (lambda x: x * number, lambda x: x + x * number, lambda x: x**number):
        expected = gradient(function)
        assert same_bits([gradient(torch.compile(function))], [expected])
    x = torch.arange(1, 4).to(dtype)
    assert torch.equal(gradient(lambda x: x * number), torch.full_like(x, 2 * number))


def _found(key: str, sample: Sample, dtype: str, through: Callable[[Any], Any]) -> Any:
    """The results and the operands after a call; the type of what it raised."""

    def function(*args: Any, **kwargs: Any) -> list[Any]:
        own = [_copied(a) for a in args]
        return leaves([TABLE[key].function(*own, **kwargs), own])

    args, kwargs = arguments(sample, tensor_builder(torch), dtype)
    seed()
    try:
        return [_copied(leaf) for leaf in through(function)(*args, **kwargs)]
    except Exception as error:
        return type(error)


def _calls() -> Iterator[tuple[str, int, str]]:
    for key, entry in TABLE.items():
        if key in UNINITIALISED or entry.definition.options.host:
            continue
        for number, overload in enumerate(entry.overloads):
            sampled = next(iter(overload.options.samples()), None) is not None
            if sampled and any(a.kind in NUMBERS for a in overload.schema.arguments):
                yield key, number, f"{key}.{number}"


@pytest.mark.parametrize(("key", "number"), [pytest.param(k, n, id=i) for k, n, i in _calls()])
def test_operators(key: str, number: int) -> None:
    overload = TABLE[key].overloads[number]
    sample = next(iter(overload.options.samples()))
    for place, argument in enumerate(overload.schema.arguments):
        if argument.kind not in NUMBERS:
            continue
        called = _changed(sample, place, argument.name, True)
        for dtype in ("bool", "i64"):
            eager = _found(key, called, dtype, lambda function: function)
            compiled = _found(key, called, dtype, torch.compile)
            if isinstance(eager, type) or isinstance(compiled, type):
                assert eager is compiled
            else:
                assert same_bits(compiled, eager), (argument.name, dtype)


def test_a_program_is_not_built_again_on_a_number_of_another_dtype() -> None:
    leaf = scalar_node(0, "bool")
    graph = Graph((), (), (leaf,), (GraphOutput(leaf),), 1, name="truth")
    assert replay(graph, (), (scalar_node(0, "bool"),)) == [leaf]
    [kept_as_integer] = replay(graph, (), (scalar_node(0, "i64"),))
    assert kept_as_integer is not None and kept_as_integer.dtype == "bool"
    with pytest.raises(ValueError, match="number 0 is f64, the program was traced on bool"):
        replay(graph, (), (scalar_node(0, "f64"),))
