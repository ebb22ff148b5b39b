"""The operator table on the device "sim": results and gradients have the bits of the CPU.

A sample of the table, every third operator, with the operators of `ALWAYS`. Operands are copied to
the device; every tensor of a result must be there.
"""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from tests.ops.exercise import differentiable_outputs, is_tensor, starts
from tests.ops.inputs import arguments, leaves, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED, seed

STEP = 3
ALWAYS = frozenset(
    "add matmul conv2d sort gather index_put scatter_add cumsum linalg.inv dropout randn sum "
    "nn.functional.scaled_dot_product_attention layer_norm nn.functional.cross_entropy".split()
)
HERE = frozenset({"get_device"})  # its result is the device
KEYS = [
    key
    for number, key in enumerate(key for key in TABLE if key not in UNINITIALISED | HERE)
    if number % STEP == 0 or key in ALWAYS
]


def builder(device: str, grad: bool) -> Any:
    build = tensor_builder(flambeau, grad=grad)

    def placed(spec: Any, position: int, dtype: str) -> Any:
        tensor = build(spec, position, dtype)
        return tensor.detach().to(device).requires_grad_(tensor.requires_grad)

    return placed


def results(key: str, sample: Any, device: str) -> list[Any]:
    """What a call gives on a device, and the gradients of its operands."""
    entry = TABLE[key]
    args, kwargs = arguments(sample, builder(device, not entry.mutating), "f32")
    operands = [a for a in leaves([args, list(kwargs.values())]) if is_tensor(a)]
    operands = [a for a in operands if a.requires_grad]
    seed()
    with flambeau.device(device):
        result = entry.function(*args, **kwargs)
    outputs = differentiable_outputs(result)
    found = [r.detach() if is_tensor(r) else r for r in leaves(result)]
    if outputs and operands:
        first = [start.to(device) for start in starts(outputs)]
        found += flambeau.autograd.grad(outputs, operands, first, allow_unused=True)
    return found


def bits(tensor: Any) -> Any:
    return flambeau._core.tensor_bytes(tensor.resolve_conj().resolve_neg())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", KEYS)
def test_bits_of_the_cpu(key: str) -> None:
    for sample in TABLE[key].samples(1):
        expected, actual = results(key, sample, "cpu"), results(key, sample, "sim")
        assert len(expected) == len(actual)
        for a, b in zip(expected, actual, strict=True):
            assert is_tensor(a) == is_tensor(b)
            if is_tensor(a):
                assert b.device.type == "sim"
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert bits(a) == bits(b)
            elif not isinstance(a, flambeau.device):
                assert a == b or a != a


def test_the_sample_is_large() -> None:
    assert 200 <= len(KEYS) <= 320 and set(KEYS) >= ALWAYS & TABLE.keys()
    assert ALWAYS <= TABLE.keys(), ALWAYS - TABLE.keys()
