"""Calls that must fail do, with PyTorch's exception type and a message in the fixed form."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.language.definition import REGISTRY
from tests.ops.inputs import arguments, tensor_builder


def _failing():
    seen = set()
    for key, definition in REGISTRY.items():
        for overload in definition.overloads:
            make = overload.options.errors
            if make is not None and id(make) not in seen:
                seen.add(id(make))
                for number, error in enumerate(make()):
                    yield pytest.param(definition, error, id=f"{key}-{number}")


@pytest.mark.parametrize(("definition", "error"), list(_failing()))
def test_error(definition, error):
    args, kwargs = arguments(error.sample, tensor_builder(flambeau), "f32")
    with pytest.raises(error.error) as caught:
        definition.native(*args, **kwargs)
    message = str(caught.value)
    assert error.fragment in message
    assert message.startswith("["), f"no operator in front: {message}"
    assert "\nhint: " in message, f"no hint: {message}"


def test_an_unknown_reduction_is_refused_before_the_operands():
    x = flambeau.ones(2, 3)
    with pytest.raises(ValueError, match="abc is not a valid value for reduction"):
        flambeau.nn.functional.multilabel_margin_loss(x, x, reduction="abc")
