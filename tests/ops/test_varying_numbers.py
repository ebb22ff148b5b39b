"""Numbers that never repeat: calls that differ in one share their kernels.

Kernels are counted by a dry run, which compiles none.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler.dry_run import dry_run
from flambeau.ir import lock
from flambeau.language.samples import Sample
from flambeau.runtime import plan_cache_clear
from tests.ops.exercise import run
from tests.ops.table import TABLE, UNINITIALISED

F = torch.nn.functional
FLOATS = ("Scalar", "Scalar?", "float", "float?", "TensorOrScalar")
IMAGE, MATRIX, VECTOR = (2, 3, 20, 20), (30, 30), (70,)
SERIES: dict[str, tuple[tuple[int, ...], Callable[[Any, int], Any]]] = {
    "pad": (IMAGE, lambda x, i: F.pad(x, (i + 2, i + 3))),
    "pad_all": (IMAGE, lambda x, i: F.pad(x, (i + 2, i + 3, 2 * i + 20, 5))),
    "pad_crop": (VECTOR, lambda x, i: F.pad(x, (-i - 2, 3))),
    "pad_replicate": (MATRIX, lambda x, i: F.pad(x, (i + 2, 3), mode="replicate")),
    "pad_value": (MATRIX, lambda x, i: F.pad(x, (1, 2), value=0.3 + 0.11 * i)),
    "roll": (VECTOR, lambda x, i: x.roll(i + 2)),
    "roll_back": (VECTOR, lambda x, i: x.roll(-i - 2)),
    "norm": (MATRIX, lambda x, i: x.norm(2.3 + i * 0.17)),
    "cdist": (MATRIX, lambda x, i: torch.cdist(x, x, p=2.3 + 0.17 * i)),
    "layer_norm": (MATRIX, lambda x, i: F.layer_norm(x, (30,), eps=1e-5 * (i + 1))),
    "instance_norm": (IMAGE, lambda x, i: F.instance_norm(x, eps=1e-5 + i)),
    "rms_norm": (MATRIX, lambda x, i: F.rms_norm(x, (30,), eps=1e-5 * (i + 1))),
    "dropout": (MATRIX, lambda x, i: F.dropout(x, 0.01 * (i + 1))),
    "celu": (MATRIX, lambda x, i: F.celu(x, 2.3 + 0.1 * i)),
    "interpolate": (IMAGE, lambda x, i: F.interpolate(x, size=(i + 23, i + 27))),
    "interpolate_scale": (IMAGE, lambda x, i: F.interpolate(x, scale_factor=2.3 + 0.1 * i)),
    "bicubic": (IMAGE, lambda x, i: F.interpolate(x, size=(i + 23, i + 27), mode="bicubic")),
    "one_hot": (VECTOR, lambda x, i: F.one_hot(torch.arange(5), i + 17)),
    "einsum": (VECTOR, lambda x, i: torch.einsum("i,jk->k", x, x.new_ones(i + 3, i + 4))),
    "fft": (VECTOR, lambda x, i: torch.fft.rfft(x, n=80 + i).abs()),
    "window": (VECTOR, lambda x, i: torch.hann_window(i + 19)),
    "arange": (VECTOR, lambda x, i: torch.arange(0, i + 19, 0.37 + i * 0.01)),
    "diag": (VECTOR, lambda x, i: torch.diag(x, i + 2)),
    "tril": (MATRIX, lambda x, i: x.tril(-i - 2)),
    "ignore_index": (MATRIX, lambda x, i: F.cross_entropy(x, torch.arange(30), None, None, -i - 5)),
    "power": (MATRIX, lambda x, i: x.abs() ** (2.3 + 0.17 * i)),
    "quantile": (MATRIX, lambda x, i: x.quantile(0.01 * i + 0.013)),
}  # fmt: skip
CALLS = 50
# Kernels beyond those of the first two values. Sizes whose ratio is simple are read otherwise.
ALLOWED = {"interpolate": 9, "interpolate_scale": 6}


def kernels_of(calls: list[Callable[[], object]]) -> list[set[str]]:
    """The texts of the kernels that each call needs."""
    plan_cache_clear()  # a plan that another test left asks for no kernel
    found: list[set[str]] = [set() for _ in calls]
    for position, texts in dry_run(calls, lambda kernels: [k.text() for k in kernels]):
        found[position] = set(texts)
    return found


def later(found: list[set[str]]) -> set[str]:
    """Kernels beyond those of the first two calls."""
    return set[str]().union(*found[2:]) - found[0] - found[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="dry runs fork")
def test_fifty_values_share_their_kernels():
    def call(shape: tuple[int, ...], function: Callable[[Any, int], Any], number: int) -> None:
        x = torch.ones(shape, requires_grad=True)
        y = function(x, number)
        if y.requires_grad:
            torch.autograd.grad(y, x, torch.ones_like(y))

    calls = [
        lambda shape=shape, function=function, i=i: call(shape, function, i)
        for shape, function in SERIES.values()
        for i in range(CALLS)
    ]
    found = kernels_of(calls)
    counts = {}
    for number, name in enumerate(SERIES):
        mine = found[number * CALLS : (number + 1) * CALLS]
        assert mine[0], f"{name} needs no kernel: it failed"
        # Rows of few elements are kernels of another form; a few values have some.
        counts[name] = len(later(mine))
    assert {n: c for n, c in counts.items() if c > ALLOWED.get(n, 2)} == {}


def _varied() -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """Per argument of the op table that is a floating-point number, calls with five values."""
    for key, entry in TABLE.items():
        if key in UNINITIALISED or entry.mutating or entry.definition.options.host:
            continue
        for overload in entry.overloads:
            sample = next(iter(overload.options.samples()))
            for place, argument in enumerate(overload.schema.arguments):
                if argument.kind not in FLOATS:
                    continue
                value = _value(sample, place, argument)
                if isinstance(value, float):
                    yield (
                        f"{key}.{argument.name}",
                        [
                            lambda entry=entry, changed=changed: run(entry, changed, "f32")
                            for changed in _changed(sample, place, argument.name, value)
                        ],
                    )


def _value(sample: Sample, place: int, argument: Any) -> Any:
    given = sample.args[place] if place < len(sample.args) else sample.kwargs.get(argument.name)
    return argument.default if given is None else given


def _changed(sample: Sample, place: int, name: str, value: float) -> Iterator[Sample]:
    for step in range(1, 6):
        other = value * (1 + 0.03 * step) + 0.0113 * step
        if place < len(sample.args):
            yield Sample((*sample.args[:place], other, *sample.args[place + 1 :]), sample.kwargs)
        else:
            yield Sample(sample.args, {**sample.kwargs, name: other})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="dry runs fork")
def test_every_floating_point_argument_varies():
    named = list(_varied())
    found = kernels_of([call for _, calls in named for call in calls])
    needing = {
        name: texts
        for number, (name, calls) in enumerate(named)
        if (texts := later(found[number * 5 : number * 5 + len(calls)]))
    }
    assert len(named) > 60
    assert needing == {}


def test_values_that_never_repeat_leave_nothing_behind():
    """What stays once the plans are dropped: as many objects after twice as many values."""
    names = ("pad", "norm", "celu", "interpolate", "layer_norm", "dropout", "roll", "one_hot")
    x = {name: torch.ones(SERIES[name][0]) for name in names}

    def left_after(numbers: range) -> int:
        for name in names:
            for number in numbers:
                SERIES[name][1](x[name], number)
        plan_cache_clear()
        lock.sweep()
        gc.collect()
        return len(gc.get_objects()) + sum(map(len, lock._tables))

    left_after(range(2))
    before = left_after(range(2, 40))
    assert left_after(range(40, 78)) - before <= 38
