"""Incomplete gamma functions in every region of their arguments, against 40 digits of mpmath."""

import numpy as np
import pytest

import flambeau as torch

# a, x, P(a, x), Q(a, x): each of the two from an integral of its own
VALUES = [
    (1e-300, 0.5, 1.0, 5.597735947761608e-301),
    (1e-09, 1e-05, 0.9999999890642802, 1.093571974107117e-08),
    (1e-07, 1.0, 0.9999999780616043, 2.193839568430238e-08),
    (0.3, 1e-30, 1.1142425085473028e-09, 0.9999999988857575),
    (0.01, 0.9, 0.9973736567479489, 0.0026263432520511505),
    (0.5, 0.5, 0.6826894921370859, 0.3173105078629141),
    (1.4, 1.05, 0.4863236619181701, 0.5136763380818299),
    (1.6, 1.05, 0.4113956480053592, 0.5886043519946408),
    (0.25, 3.0, 0.9949891040512917, 0.005010895948708308),
    (2.5, 2.4, 0.559227031913337, 0.440772968086663),
    (2.5, 2.6, 0.6080371084003663, 0.39196289159963377),
    (7.0, 30.0, 0.9999998826805799, 1.1731942002346961e-07),
    (9.9, 9.8, 0.5296475947709902, 0.4703524052290098),
    (9.9, 0.01, 5.4729391268191975e-27, 1.0),
    (9.99, 700.0, 1.0, 1.0639311448134766e-284),
    (10.0, 9.0, 0.4125917556680586, 0.5874082443319414),
    (10.0, 21.0, 0.9972344189315013, 0.00276558106849871),
    (12.0, 5.9, 0.017931470586752336, 0.9820685294132476),
    (35.0, 40.0, 0.8061244611189268, 0.1938755388810732),
    (35.0, 12.0, 5.234991083553649e-08, 0.9999999476500891),
    (120.0, 119.0, 0.475645506734843, 0.5243544932651569),
    (150.0, 290.0, 1.0, 4.7987165409197835e-20),
    (700.0, 350.5, 9.498069458732444e-61, 1.0),
    (3000.0, 3100.0, 0.9649999863009536, 0.03500001369904636),
    (10000.0, 9700.0, 0.001234175584468492, 0.9987658244155315),
    (100000000.0, 100010000.0, 0.8413447464717988, 0.15865525352820117),
    (1000000000000000.0, 1000000000000000.0, 0.5000000042052208, 0.4999999957947791),
]
COLUMNS = np.array(VALUES).T


@pytest.mark.parametrize("name,column", [("gammainc", 2), ("gammaincc", 3)])
def test_float64(name, column):
    a, x = map(torch.from_numpy, COLUMNS[:2])
    found = getattr(torch.special, name)(a, x).numpy()
    error = np.abs(found / COLUMNS[column] - 1)
    limit = 2e-14 - 1e-15 * np.log(COLUMNS[column])  # what exponentials of large numbers lose
    assert (error <= limit).all(), list(zip(VALUES, error))


@pytest.mark.parametrize("name,upper", [("gammainc", False), ("gammaincc", True)])
def test_float32(name, upper):
    """One rounding, of what float64 gives for the same operands."""
    pairs = COLUMNS[:2].astype("float32")
    found = getattr(torch.special, name)(*map(torch.from_numpy, pairs)).numpy()
    wide = getattr(torch.special, name)(*map(torch.from_numpy, pairs.astype("float64"))).numpy()
    np.testing.assert_array_equal(found, wide.astype("float32"))


def test_limits():
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([0.0, 0.0, 2.0, 2.0, inf, inf, -1.0, 1.0, nan, 5e-324], dtype=torch.float64)
    x = torch.tensor([0.0, 3.0, 0.0, inf, 2.0, inf, 1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    p, q = torch.special.gammainc(a, x).tolist(), torch.special.gammaincc(a, x).tolist()
    expected = [nan, 1.0, 0.0, 1.0, 0.0, nan, nan, nan, nan, 1.0]
    np.testing.assert_array_equal(p, expected)
    np.testing.assert_array_equal(q, [1 - value for value in expected])


def test_both_in_one_kernel():
    """The two share their text."""

    def both(a, x):
        return torch.special.gammainc(a, x) + torch.special.gammaincc(a, x)

    a, x = map(torch.from_numpy, COLUMNS[:2])
    np.testing.assert_array_equal(torch.compile(both)(a, x).numpy(), both(a, x).numpy())


def test_derivatives():
    """By both operands, against differences of the function."""
    a = torch.tensor([0.7, 3.0, 8.0, 30.0, 90.0], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.5, 4.0, 6.0, 31.0, 70.0], dtype=torch.float64, requires_grad=True)
    for function in (torch.special.gammainc, torch.special.gammaincc):
        assert torch.autograd.gradcheck(function, (a, x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_draws_in_half_precision_are_refused(dtype):
    """As in PyTorch: the draws are of float32 and float64."""
    with pytest.raises(NotImplementedError, match="standard_gamma is not implemented"):
        torch._standard_gamma(torch.ones(3, dtype=dtype))
