"""First and second derivatives agree with finite differences in double precision.

Instead of whole Jacobians, derivatives along random directions are compared: for random u and v,
u . J v by central differences against (u J) . v by backward. A wrong entry anywhere shows.
"""

from __future__ import annotations

import numpy
import pytest

import flambeau
from tests.ops.exercise import GRADIENT_SAMPLES, differentiable_outputs, size
from tests.ops.inputs import INEXACT, arguments, array, tensor_builder, values
from tests.ops.table import TABLE, UNINITIALISED, seed

STEP = 1e-5
DOUBLE = (flambeau.float64, flambeau.complex128)
# Gradients that are not the derivative of the values, as in PyTorch.
OTHER_GRADIENT = {
    "nn.functional.embedding": "the row of padding_idx gets none",
    "normal": "draws are constants",
    **dict.fromkeys(
        ("ctc_loss", "nn.functional.ctc_loss", "private._ctc_total"),
        "PyTorch's: with respect to what log_softmax was applied to",
    ),
    **dict.fromkeys(
        ("private._batch_norm", "native_layer_norm"),
        "the statistics are results without gradients",
    ),
}
# The result is -inf where the mask is False; the check is of the others, as in PyTorch.
INFINITE_OUTSIDE_MASK = frozenset({"masked.log_softmax"})
LIMIT = 4096  # elements of the largest operand
RANDOM = numpy.random.default_rng(7)

KEYS = [
    key
    for key, entry in TABLE.items()
    if not entry.mutating and key not in UNINITIALISED and key not in OTHER_GRADIENT
    and any(o.options.differentiable for o in entry.overloads)
]  # fmt: skip


class Function:
    """An operator on one sample as a function of the operands that require gradients."""

    def __init__(self, entry, sample):
        self.entry, self.sample = entry, sample
        self.points = []

        def record(spec, position, dtype):
            dtype = spec.dtype or dtype
            if spec.grad and dtype in INEXACT:
                self.points.append(numpy.array(values(spec, position, dtype)))
            return None

        arguments(sample, record, "f64")

    def __call__(self, points):
        """(operands, outputs) at these points."""
        remaining, build = iter(points), tensor_builder(flambeau)
        operands = []

        def make(spec, position, dtype):
            if not (spec.grad and (spec.dtype or dtype) in INEXACT):
                return build(spec, position, dtype)
            made = flambeau.from_numpy(numpy.ascontiguousarray(next(remaining)).copy())
            operands.append(made.reshape(spec.shape).requires_grad_())
            return operands[-1]

        args, kwargs = arguments(self.sample, make, "f64")
        seed()
        result = self.entry.function(*args, **kwargs)
        if self.entry.key in INFINITE_OUTSIDE_MASK and kwargs.get("mask") is not None:
            result = flambeau.where(kwargs["mask"], result, result.new_zeros(()))
        outputs = differentiable_outputs(result)
        return operands, [o for o in outputs if o.dtype in DOUBLE]


def directions(shapes, dtypes=None):
    """Random arrays; complex ones for complex dtypes."""
    made = [RANDOM.uniform(-1, 1, shape) for shape in shapes]
    for i, dtype in enumerate(dtypes or ()):
        if dtype == flambeau.complex128:
            made[i] = made[i] + 1j * RANDOM.uniform(-1, 1, shapes[i])
    return made


def product(left, right):
    """The real scalar product of two lists of arrays; what is absent counts as zeros."""
    pairs = [(a, b) for a, b in zip(left, right) if a is not None and b is not None]
    return sum(float((numpy.conj(a) * b).real.sum()) for a, b in pairs)


def moved(points, along, step):
    return [p + step * v for p, v in zip(points, along)]


def tensors(arrays):
    return [flambeau.from_numpy(numpy.array(a)) for a in arrays]


def arrays(found):
    return [None if g is None else array(g) for g in found]


def real(function):
    """Whether all points are real and small enough to check."""
    return function.points and all(p.dtype == numpy.float64 for p in function.points)


def close(numeric, analytic, scale):
    return abs(numeric - analytic) <= 1e-5 * (1 + abs(numeric) + scale)


def first_derivative(function):
    operands, outputs = function(function.points)
    if not outputs:
        return False
    u = directions([o.shape for o in outputs], [o.dtype for o in outputs])
    v = directions([p.shape for p in function.points])
    found = arrays(flambeau.autograd.grad(outputs, operands, tensors(u), allow_unused=True))
    sides = []
    for step in (STEP, -STEP):
        sides.append(arrays(function(moved(function.points, v, step))[1]))
    numeric = product(u, [(a - b) / (2 * STEP) for a, b in zip(*sides)])
    analytic = product(found, v)
    assert close(numeric, analytic, 0), f"{analytic} != {numeric}: {function.sample}"
    return True


def second_derivative(function):
    operands, outputs = function(function.points)
    if not outputs:
        return False
    u = tensors(directions([o.shape for o in outputs], [o.dtype for o in outputs]))
    v = directions([p.shape for p in function.points])

    def gradients(points):
        operands, outputs = function(points)
        found = flambeau.autograd.grad(outputs, operands, u, create_graph=True, allow_unused=True)
        return operands, found

    operands, found = gradients(function.points)
    again = [g for g in found if g is not None and g.requires_grad]
    w = directions([p.shape for p in function.points])
    starts = [t for t, g in zip(tensors(w), found) if g is not None and g.requires_grad]
    back = [None] * len(operands)
    if again:
        back = arrays(flambeau.autograd.grad(again, operands, starts, allow_unused=True))
    sides = [arrays(gradients(moved(function.points, v, s))[1]) for s in (STEP, -STEP)]
    changes = [None if a is None else (a - b) / (2 * STEP) for a, b in zip(*sides)]
    numeric, analytic = product(changes, w), product(back, v)
    assert close(numeric, analytic, 0), f"{analytic} != {numeric}: {function.sample}"
    return True


def checked(key, check):
    """Runs a check on the samples of an entry that are real and small; skips where none is."""
    entry = TABLE[key]
    ran = False
    for sample in entry.samples(GRADIENT_SAMPLES):
        function = Function(entry, sample)
        if real(function) and size(sample) <= LIMIT:
            ran = check(function) or ran
    if not ran:
        pytest.skip("nothing differentiable in the samples")


@pytest.mark.parametrize("key", KEYS)
def test_gradient(key):
    checked(key, first_derivative)


@pytest.mark.parametrize("key", KEYS)
def test_double_gradient(key):
    checked(key, second_derivative)
