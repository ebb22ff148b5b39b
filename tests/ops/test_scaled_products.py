"""Products of float8 matrices: at most the rounding of their result from the exact ones."""

import pytest

import flambeau as torch
import flambeau.nn.functional as F

ONE = torch.ones(())


def exact(a, b, scale_a, scale_b, bias=0.0):
    return (a.to(torch.float64) @ b.to(torch.float64)) * scale_a.double() * scale_b.double() + bias


@pytest.mark.parametrize("out", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_close_to_the_exact_product(kind, out):
    torch.manual_seed(0)
    a = torch.randn(5, 40).to(getattr(torch, kind))
    b = torch.randn(7, 40).to(torch.float8_e4m3fn).t()
    target = getattr(torch, out)
    for scales in ((ONE * 0.5, ONE * 3), (torch.rand(5, 1), torch.rand(1, 7))):
        found = torch._scaled_mm(a, b, *scales, out_dtype=target)
        wanted = exact(a, b, *scales)
        assert found.dtype is target
        error = (found.double() - wanted).abs()
        bound = wanted.abs() * torch.finfo(target).eps + 1e-5 * wanted.abs().max()
        assert bool((error <= bound).all())


def test_bias_and_recipes():
    a, b = torch.ones(2, 8).to(torch.float8_e4m3fn), torch.ones(3, 8).to(torch.float8_e4m3fn).t()
    bias = torch.arange(3.0)
    found = torch._scaled_mm(a, b, ONE, ONE, bias=bias, out_dtype=torch.float32)
    assert found.tolist() == [[8.0, 9.0, 10.0]] * 2
    assert torch._scaled_mm(a, b, ONE, ONE).dtype is torch.float8_e4m3fn
    out = torch.empty(0)
    torch._scaled_mm(a, b, ONE, ONE, out_dtype=torch.float32, out=out)
    assert out.tolist() == [[8.0] * 3] * 2
    rows = F.ScalingType.RowWise
    scales = torch.tensor([[1.0], [2.0]]), torch.ones(1, 3)
    wide = F.scaled_mm(a, b, scales[0], rows, [scales[1]], [rows], output_dtype=torch.float32)
    assert wide.tolist() == [[8.0] * 3, [16.0] * 3]


def test_what_does_not_fit():
    a = torch.ones(2, 4).to(torch.float8_e4m3fn)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch._scaled_mm(a, a, ONE, ONE)
    with pytest.raises(RuntimeError, match="must be a matrix"):
        torch._scaled_mm(a[0], a, ONE, ONE)
    for scales in ((torch.ones(2), torch.ones(2)), (torch.ones(2, 1), ONE), (ONE.double(), ONE)):
        with pytest.raises(ValueError, match="Invalid scaling configuration"):
            torch._scaled_mm(a, a.t(), *scales)
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        torch._scaled_mm(a.float(), a.float().t(), ONE, ONE)
    with pytest.raises(NotImplementedError, match="blocks"):
        F.scaled_mm(a, a.t(), ONE, F.ScalingType.BlockWise1x16, ONE, F.ScalingType.TensorWise)
