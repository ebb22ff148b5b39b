"""The op table with kernels: `vmap` has the bits of a loop, `jvp` is the transpose of the gradient.

It needs no oracle, only time: hundreds of kernels that nothing else uses.
"""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.func import jvp, vmap
from tests.func.table import CHECKED, arguments_of, rebuilt, results
from tests.ops.inputs import same_bits
from tests.ops.table import seed

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated")
SAMPLES = 2
PARAMETRISED = frozenset(
    {"bernoulli", "poisson", "binomial", "_standard_gamma"}
)  # a draw for each sample
HALVES = frozenset({"half", "bfloat16", "chalf"})


def batch_of(x):
    """Three tensors like one: scaled floats, turned integers."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return torch.stack([x, x * 0.9, x * 0.8]).detach()
    if x.dtype is torch.bool:
        return torch.stack([x, ~x, x])
    return torch.stack([x, x.flip(list(range(x.dim()))) if x.dim() else x, x])


def loop(entry, args, kwargs, rows):
    """Results per sample; None where the op refuses such values."""
    try:
        found = []
        for row in rows:
            seed()
            found.append(results(entry.function(*rebuilt(args, row), **kwargs)))
        return [torch.stack(column) for column in zip(*found, strict=True)]
    except (RuntimeError, ValueError, IndexError):
        return None


def check_batch(entry, args, kwargs, tensors, dims):
    batches = [batch_of(t) for t in tensors]
    triples = list(zip(tensors, batches, dims, strict=True))
    # Each sample begins its memory, as operators that name places of it see it under vmap.
    rows = [[t if d is None else b[i].clone() for t, b, d in triples] for i in range(3)]
    expected = loop(entry, args, kwargs, rows)
    if expected is None:
        return
    given = [t if d is None else b if d == 0 else b.movedim(0, -1) for t, b, d in triples]
    seed()
    found = vmap(
        lambda *xs: results(entry.function(*rebuilt(args, xs), **kwargs)),
        tuple(dims),
        randomness="same",
    )(*given)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert same_bits(x, y)


@pytest.mark.parametrize("key", sorted(CHECKED.keys() - PARAMETRISED))
def test_batch_has_the_bits_of_a_loop(key):
    entry = CHECKED[key]
    for sample in entry.samples(SAMPLES):
        args, kwargs, tensors = arguments_of(sample, "f32")
        if not tensors:
            continue
        count = len(tensors)
        check_batch(entry, args, kwargs, tensors, [0] * count)
        check_batch(entry, args, kwargs, tensors, [t.dim() or 0 for t in tensors])
        if count > 1:
            check_batch(entry, args, kwargs, tensors, [0] + [None] * (count - 1))


def product(xs, ys):
    """The real inner product of lists of tensors; None counts as zero."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        if x is not None and y is not None:
            terms = torch.real(x.conj() * y) if x.dtype.is_complex else x * y
            total += float(terms.sum())
    return total


@pytest.mark.parametrize("key", sorted(CHECKED.keys() - HALVES))
def test_tangents_are_the_transpose(key):
    entry = CHECKED[key]
    for sample in entry.samples(SAMPLES):
        args, kwargs, tensors = arguments_of(sample, "f64")
        moving = [t for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex]
        if not moving or not entry.definition.options.differentiable:
            continue

        def function(*xs, tensors=tensors, args=args, kwargs=kwargs, moving=moving):
            rest = iter(xs)
            own = {id(t) for t in moving}
            full = [next(rest) if id(t) in own else t for t in tensors]
            seed()
            out = results(entry.function(*rebuilt(args, full), **kwargs))
            return [x for x in out if x.dtype.is_floating_point or x.dtype.is_complex]

        torch.manual_seed(1)
        directions = [torch.randn(x.shape, dtype=x.dtype) for x in moving]
        _, moved = jvp(function, tuple(moving), tuple(directions))
        leaves = [x.detach().clone().requires_grad_() for x in moving]
        outputs = function(*leaves)
        seeds = [torch.randn(y.shape, dtype=y.dtype) for y in outputs]
        live = [(y, u) for y, u in zip(outputs, seeds, strict=True) if y.requires_grad]
        grads = [None] * len(leaves)
        if live:
            grads = torch.autograd.grad(
                [y for y, _ in live], leaves, [u for _, u in live], allow_unused=True
            )
        left, right = product(seeds, moved), product(grads, directions)
        coarse = any(x.dtype in (torch.float32, torch.complex64) for x in (*moving, *outputs))
        if left == left or right == right:
            tolerance = 1e-5 if coarse else 1e-7
            assert abs(left - right) <= tolerance * max(1, abs(left), abs(right))
