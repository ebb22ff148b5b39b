"""Every primitive over a batch, and with tangents: as a loop says, and as differences say.

Run by the interpreter, so that no kernel is compiled: what the compiler makes of these programs is
what it makes of any other.
"""

from itertools import product

import numpy as np
import pytest

from flambeau import prims
from flambeau.derivation.batching import batch
from flambeau.derivation.forward import push_forward
from flambeau.prims import PRIMITIVES
from flambeau.prims.common import DIFFERENTIABLE
from tests.prims.graph_interpreter import run_nodes
from tests.prims.test_primitives import CASES, SMOOTH, sample

BATCH = (1.0, 0.9, 1.2)
PARAMETERS = ("random",)  # numbers of a distribution are the same for every sample


def samples_of(array):
    """Three samples like a sample: scaled floats, the same numbers otherwise."""
    if array.dtype.kind in "fc":
        return np.stack([array * factor for factor in BATCH])
    return np.stack([array] * len(BATCH))


def choices(count):
    """Which operands are batched: every choice of up to three, else one alone or one not."""
    for flags in product((True, False), repeat=count):
        if any(flags) and (count <= 3 or sum(flags) in (1, count - 1, count)):
            yield flags


BATCHED = [
    pytest.param(*c.values, flags, id=f"{c.id}-{''.join('01'[f] for f in flags)}")
    for c in CASES
    if c.values[0] not in PARAMETERS
    and (PRIMITIVES[c.values[0]].kind != "pointwise" or c.values[1] == 0)  # one rule for all
    for flags in choices(len(sample(*c.values)[1]))
]


@pytest.mark.parametrize("name, k, flags", BATCHED)
def test_batch_is_a_loop(name, k, flags):
    out, nodes, arrays = sample(name, k)
    many = [samples_of(a) if flag else a for a, flag in zip(arrays, flags)]
    given, values = {}, {}
    for i, (x, a, flag) in enumerate(zip(nodes, many, flags)):
        if flag:
            given[x] = prims.input_node(100 + i, x.dtype, a.shape, (0,) * a.ndim)
        values[given.get(x, x)] = a
    [(found, flag)] = batch([out], given, len(BATCH), "error")
    assert flag
    [value] = run_nodes([found], values)
    singles = [
        run_nodes([out], {x: a[s] if f else a for x, a, f in zip(nodes, many, flags)})[0]
        for s in range(len(BATCH))
    ]
    np.testing.assert_allclose(value, np.stack(singles), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("randomness, shape", [("different", (3, 2, 3)), ("same", (2, 3))])
def test_draws(randomness, shape):
    out, _, _ = sample("random", 0)
    [(found, flag)] = batch([out], {}, 3, randomness)
    assert found.shape == shape and flag == (randomness == "different")
    with pytest.raises(RuntimeError, match="randomness error mode"):
        batch([out], {}, 3, "error")


@pytest.mark.parametrize("name, k", SMOOTH)
def test_tangent_is_the_difference(name, k):
    out, nodes, arrays = sample(name, k)
    generator = np.random.default_rng(k)
    tangents, moved = {}, {}
    given = dict(zip(nodes, arrays))
    for i, (x, a) in enumerate(zip(nodes, arrays)):
        if x.dtype in DIFFERENTIABLE:
            t = prims.input_node(100 + i, x.dtype, a.shape, (0,) * a.ndim)
            tangents[x] = t
            moved[x] = generator.uniform(-1, 1, a.shape)
            if x.dtype == "c128":
                moved[x] = moved[x] + 1j * generator.uniform(-1, 1, a.shape)
            given[t] = moved[x]
    [tangent] = push_forward([out], tangents)
    step = 1e-6
    sides = [
        run_nodes([out], {x: a + sign * step * moved.get(x, 0) if x in moved else a
                          for x, a in zip(nodes, arrays)})[0]
        for sign in (1, -1)
    ]  # fmt: skip
    expected = (sides[0] - sides[1]) / (2 * step)
    value = np.zeros_like(expected) if tangent is None else run_nodes([tangent], given)[0]
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)


def test_every_primitive_has_a_rule():
    assert {c.values[0] for c in BATCHED} | set(PARAMETERS) >= {
        name
        for name, record in PRIMITIVES.items()
        if record.kind != "create" and name != "custom_op"  # batched before it is recorded
    }
