"""`linspace` in float64 and complex dtypes: every value has one rounding, from both ends."""

from fractions import Fraction

import pytest

import flambeau as torch

BOUNDS = [
    (-3.3, 4.7),
    (0.0, 0.1),
    (5.5, -0.3),
    (1e10, 1e-3),
    (-7.0, -7.1),
    (0.1, 3e200),
    (-1e-17, 1.0),
]


def rounded_once(start: float, end: float, steps: int) -> list[float]:
    """`start + i * step` in the first half and `end - i * step` in the second, exact, rounded."""
    step = Fraction((end - start) / (steps - 1))
    near = [float(Fraction(start) + i * step) for i in range(steps // 2)]
    far = [float(Fraction(end) - i * step) for i in range(steps - steps // 2)]
    return near + far[::-1]


@pytest.mark.parametrize("steps", [2, 3, 17, 100, 1001])
@pytest.mark.parametrize(("start", "end"), BOUNDS)
def test_float64_is_rounded_once(start, end, steps):
    values = torch.linspace(start, end, steps, dtype=torch.float64)
    assert values.tolist() == rounded_once(start, end, steps)
    tensors = torch.tensor(start, dtype=torch.float64), torch.tensor(end, dtype=torch.float64)
    compiled = torch.compile(lambda a, b: torch.linspace(a, b, steps, dtype=torch.float64))
    assert torch.equal(compiled(*tensors), values)


def test_signs_of_zero_and_values_that_are_not_finite():
    values = torch.linspace(-0.0, -1.0, 3, dtype=torch.float64)
    assert torch.signbit(values).all()
    inf = float("inf")
    values = torch.linspace(0.0, inf, 4, dtype=torch.float64)
    assert str(values.tolist()) == "[nan, inf, nan, nan]"


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_bounds_are_two_real_sequences(dtype):
    start, end, real = 0.3 - 2j, 4.7 + 0.1j, dtype.to_real()
    values = torch.linspace(start, end, 33, dtype=dtype)
    assert torch.equal(values.real, torch.linspace(0.3, 4.7, 33, dtype=real))
    assert torch.equal(values.imag, torch.linspace(-2.0, 0.1, 33, dtype=real))
    tensors = torch.linspace(torch.tensor(start, dtype=dtype), torch.tensor(end), 33, dtype=dtype)
    assert torch.allclose(tensors, values)
    powers = torch.logspace(start, end, 5, 2.0, dtype=dtype)
    assert torch.allclose(powers, 2.0 ** torch.linspace(start, end, 5, dtype=dtype))


def test_dtypes_of_complex_bounds():
    assert torch.linspace(0, 1j, 4).dtype == torch.complex64
    assert torch.logspace(torch.tensor(1j), 1, 4).dtype == torch.complex64
    for function in (torch.linspace, torch.logspace):
        with pytest.raises(RuntimeError, match=r"can't be safely cast to passed dtype"):
            function(0, 1j, 4, dtype=torch.float32)


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm"])
def test_out_dtype_is_for_other_devices(name):
    """PyTorch has these overloads for CUDA alone."""
    sizes = ((2, 2, 3), (2, 3, 2)) if "bm" in name else ((2, 3), (3, 2))
    operands = [torch.ones(2, 2)] * name.startswith(("addmm", "baddbmm"))
    operands += [torch.ones(size) for size in sizes]
    function = getattr(torch, name)
    for out, kind in (({}, "dtype"), ({"out": torch.empty(0)}, "dtype_out")):
        with pytest.raises(NotImplementedError, match=rf"aten::{name}\.{kind}' .*torch.float64"):
            function(*operands, out_dtype=torch.float64, **out)
    with pytest.raises(NotImplementedError):
        function(*operands, torch.float32)
    assert "out_dtype" not in str(getattr(torch.ops.aten, name).default._schema)
