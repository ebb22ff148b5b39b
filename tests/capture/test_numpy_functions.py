"""NumPy's functions on tensors: eager, compiled, with gradients; what has no translation."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounter
from flambeau._numpy import arrays, ndarray
from tests.capture.numpy_programs import UNTRANSLATED, operands, programs

PROGRAMS = programs()
ROUNDED = {"half": 2e-3, "short integers": 2e-3}


def leaves(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def tensors():
    return [torch.tensor(x) for x in operands()]


def wrapped(function):
    return torch.compiler.wrap_numpy(lambda *args: function(np, *args))


def agree(result, expected, tolerance=1e-12):
    for one, two in zip(leaves(result), leaves(expected), strict=True):
        array, expected_array = np.asarray(one), np.asarray(two)
        assert array.shape == expected_array.shape and array.dtype == expected_array.dtype
        np.testing.assert_allclose(array, expected_array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_numpy_s(name, monkeypatch):
    def refuse(function, args, kwargs):
        raise AssertionError(f"{function} has no translation")

    monkeypatch.setattr(arrays, "as_numpy", refuse)
    with np.errstate(all="ignore"):
        expected = PROGRAMS[name](np, *operands())
    agree(wrapped(PROGRAMS[name])(*tensors()), expected, ROUNDED.get(name, 1e-12))


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_bits_are_those_of_the_translation(name):
    function = wrapped(PROGRAMS[name])
    expected = leaves(function(*tensors()))
    counter = CompileCounter()
    for backend in ("inductor", counter):
        results = leaves(torch.compile(function, backend=backend)(*tensors()))
        for one, two in zip(results, expected, strict=True):
            assert one.dtype == two.dtype
            assert torch.equal(one.nan_to_num(), two.nan_to_num())


@pytest.mark.parametrize("name", UNTRANSLATED)
def test_other_functions_run_as_numpy(name):
    expected = UNTRANSLATED[name](np, *operands())
    function = wrapped(UNTRANSLATED[name])
    agree(function(*tensors()), expected)
    agree(torch.compile(function)(*tensors()), expected)


def test_gradients():
    def energy(np, a, b):
        return np.sum(np.square(np.tanh(a @ b.T)) / (1 + np.abs(a).max()), axis=0).mean()

    a, b = [torch.tensor(x, requires_grad=True) for x in operands()[:2]]
    function = torch.compiler.wrap_numpy(lambda a, b: energy(np, a, b))
    expected = torch.autograd.grad(function(a, b), (a, b))
    results = torch.autograd.grad(torch.compile(function, fullgraph=True)(a, b), (a, b))
    assert all(map(torch.equal, results, expected))
    step = 1e-6 * np.eye(12)[5].reshape(4, 3)
    arrays_ = operands()[:2]
    slope = energy(np, arrays_[0] + step, arrays_[1]) - energy(np, arrays_[0] - step, arrays_[1])
    assert abs(float(expected[0].flatten()[5]) - slope / 2e-6) < 1e-6


def test_arrays_as_arguments_of_compiled_functions():
    def f(a, b, scale=2.0):
        assert isinstance(a, np.ndarray)
        a += 1
        return {"sum": np.sum(a * b, axis=1) * scale, "same": a, "count": len(b)}

    for compiled in (torch.compile(f), torch.compile(f, backend=CompileCounter())):
        (a, b), (c, d) = [copy.deepcopy(operands()[:2]) for _ in range(2)]
        for _ in range(8):
            result, expected = compiled(a, b, scale=3.0), f(c, d, scale=3.0)
            assert type(result["sum"]) is np.ndarray and result["same"] is a
            np.testing.assert_allclose(result["sum"], expected["sum"], rtol=1e-12)
            np.testing.assert_array_equal(a, c)
            assert result["count"] == 4


def test_the_graph_has_the_functions():
    targets = []

    def backend(module, inputs):
        targets.extend(n.target for n in module.graph.nodes if "call" in n.op)
        return module.forward

    compiled = torch.compile(lambda x: np.sin(x).sum(), backend=backend)
    compiled(np.ones(3, dtype=np.float32))
    assert targets[0] is torch.sin and "sum" in targets


def test_arrays_that_stay_numpy_s():
    compiled = torch.compile(lambda a: a + 1)
    dates = np.array(["2024-01-01"], dtype="datetime64[D]")
    assert compiled(dates).dtype == dates.dtype
    assert compiled(np.arange(4.0)[::-1]).tolist() == [4, 3, 2, 1]
    fixed = np.ones(2)
    fixed.flags.writeable = False
    assert compiled(fixed).tolist() == [2, 2]
    with torch._dynamo.config.patch(trace_numpy=False):
        assert compiled(np.ones(2)).tolist() == [2, 2]


def test_errors_are_numpy_s():
    a = ndarray(torch.ones(2, 3))
    with pytest.raises(ValueError, match="size not equal to one"):
        np.squeeze(a, 0)
    with pytest.raises(TypeError, match="unsized"):
        len(ndarray(torch.tensor(1.0)))
    with pytest.raises(TypeError, match="same_kind"):
        b = ndarray(torch.ones(2, dtype=torch.int64))
        b += 0.5
    with pytest.raises(np.exceptions.AxisError):
        np.sum(a, axis=4)
    with pytest.raises(TypeError):
        np.subtract(a > 0, a > 0)


def test_an_array_looks_like_numpy_s():
    a, plain = (
        ndarray(torch.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=np.float32).reshape(2, 3),
    )
    assert repr(a) == repr(plain) and str(a) == str(plain) and f"{a.sum():.2f}" == "15.00"
    assert (a.shape, a.ndim, a.size, a.strides) == (plain.shape, 2, 6, plain.strides)
    assert a.dtype == plain.dtype and np.asarray(a).tolist() == plain.tolist()
    assert np.result_type(a, np.int64) == np.float64 and np.shape(a) == (2, 3)
    assert 3.0 in a and a.flags.c_contiguous and list(range(10))[np.argmax(a)] == 5
    with pytest.raises(AttributeError):
        a.no_such_attribute  # noqa: B018
