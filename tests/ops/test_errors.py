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
