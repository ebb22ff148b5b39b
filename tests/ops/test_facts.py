"""Facts that definitions state about operators hold for their samples; facts not stated do not.

Sparse, nested and masked tensors choose their operators by these facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.language.definition import REGISTRY, Overload
from flambeau.language.samples import TensorSpec
from tests.ops.inputs import arguments, leaves, same_bits, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED, Entry, seed

# Zero-preserving for the limits of the samples only: others move zero.
OF_LIMITS = frozenset({"nn.functional.hardtanh", "clamp", "clamp_max", "clamp_min"})
OF_MEMORY = frozenset({"zeros_like", "zero_"})  # of no element at all


def _tensors(overload: Overload) -> int:
    return sum(argument.is_tensor for argument in overload.schema.arguments)


UNARY = [
    entry for entry in TABLE.values()
    if _tensors(entry.overloads[0]) == 1 and entry.definition.options.is_pointwise
    and not entry.random and entry.key not in OF_MEMORY
]  # fmt: skip
ZERO_PRESERVING = [entry for entry in UNARY if entry.definition.options.preserves_zeros]
OTHERS = [e for e in UNARY if not e.definition.options.preserves_zeros and e.key not in OF_LIMITS]


def _names(entries: list[Entry]) -> list[str]:
    return [entry.key for entry in entries]


def _calls(entry: Entry, dtype: str = "f32") -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The calls of the samples whose first argument is a tensor."""
    for sample in entry.overloads[0].options.samples():
        if sample.args and isinstance(sample.args[0], TensorSpec) and sample.args[0].shape != ():
            yield arguments(sample, tensor_builder(torch), sample.args[0].dtype or dtype)


def _all_zero(result: Any) -> bool:
    return all(bool((leaf == 0).all()) for leaf in leaves(result))


@pytest.mark.parametrize("entry", ZERO_PRESERVING, ids=_names(ZERO_PRESERVING))
def test_zeros_stay_zeros(entry: Entry) -> None:
    calls = list(_calls(entry))
    assert calls
    for (first, *others), options in calls:
        assert _all_zero(entry.function(torch.zeros_like(first), *others, **options))


@pytest.mark.parametrize("entry", OTHERS, ids=_names(OTHERS))
def test_zeros_of_the_others_move(entry: Entry) -> None:
    results = [
        entry.function(torch.zeros_like(first), *others, **options)
        for (first, *others), options in _calls(entry)
    ]
    assert not results or not all(map(_all_zero, results)), "hint: zero_preserving=True"


def _additive(entry: Entry) -> bool:
    """Whether f(a + b) is f(a) + f(b) for the samples, up to rounding."""
    for (first, *others), options in _calls(entry):
        second = (first.flip(0) * 0.75).to(first.dtype)
        parts = [leaves(entry.function(x, *others, **options)) for x in (first, second)]
        whole = leaves(entry.function(first + second, *others, **options))
        for one, two, both in zip(*parts, whole, strict=True):
            if one.dtype is torch.bool or not torch.allclose(one + two, both, rtol=1e-5, atol=1e-6):
                return False
    return True


LINEAR = [entry for entry in UNARY if entry.definition.options.linear]
# Linear where samples look, as conversions are that keep a fraction: not for every dtype.
CONVERSIONS = frozenset({"half", "float", "double", "cfloat", "cdouble", "chalf", "bfloat16"})
NOT_LINEAR = [e for e in UNARY if not e.definition.options.linear and e.key not in CONVERSIONS]


@pytest.mark.parametrize("entry", LINEAR, ids=_names(LINEAR))
def test_sums_stay_sums(entry: Entry) -> None:
    assert _additive(entry)


@pytest.mark.parametrize("entry", NOT_LINEAR, ids=_names(NOT_LINEAR))
def test_sums_of_the_others_do_not(entry: Entry) -> None:
    if next(_calls(entry), None) is not None:
        assert not _additive(entry), "hint: linear=True"


POINTWISE = [
    entry for entry in TABLE.values()
    if entry.definition.options.is_pointwise
    and not entry.random and entry.key not in UNINITIALISED
]  # fmt: skip


@pytest.mark.parametrize("entry", POINTWISE, ids=_names(POINTWISE))
def test_elements_do_not_see_each_other(entry: Entry) -> None:
    """With every operand reversed along its last dimension the result is reversed, bit for bit."""

    def reversed_(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim():
            return value.flip(-1).clone()
        return value

    for sample in entry.samples(4):
        args, options = arguments(sample, tensor_builder(torch), "f32")
        seed()
        forward = entry.function(*map(reversed_, args), **options)
        seed()
        backward = entry.function(*args, **options)
        assert same_bits(leaves(forward), [x.flip(-1) if x.dim() else x for x in leaves(backward)])


def test_facts_are_about_something() -> None:
    assert len(ZERO_PRESERVING) > 50 and len(OTHERS) > 20 and len(LINEAR) == 6
    assert {"sort", "argsort", "msort"}.isdisjoint(_names(POINTWISE)) and len(POINTWISE) > 150


def test_pointwise_follows_from_the_layout() -> None:
    """An operator of another layout says so itself; one that follows says where it is not."""
    stated = {k: d.options for k, d in REGISTRY.items() if d.options.pointwise is not None}
    assert stated
    superfluous = [k for k, o in stated.items() if o.pointwise is (o.layout == "follow")]
    assert not superfluous, f"hint: leave pointwise= away: {superfluous}"
