"""Values at which definitions are easily written differently: NaN, infinities, zeros of either
sign, the least integer, kinks, empty tensors. Dtype, shape and every element equal PyTorch's."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402
from tests.parity.comparison import flattened  # noqa: E402
from tests.parity.expressions import lines, names_of, plain  # noqa: E402

OPERANDS = """
from math import inf, nan
F = torch.nn.functional
x = torch.tensor([nan, inf, -inf, -0.0, 0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0])
h = x.half()
least = torch.tensor([-2**63, 1, 2, 6])
small = torch.tensor([1, 2, 4, 0])

def gradient(function, *values):
    leaves = [v.detach().clone().requires_grad_() for v in values]
    result = function(*leaves)
    return torch.autograd.grad(result, leaves, torch.ones_like(result))
"""
VALUES = """
torch.linspace(-3.3, 4.7, 33); torch.linspace(0, 0.1, 12); torch.linspace(5.5, -0.3, 257)
torch.linspace(-3.3, 4.7, 333, dtype=torch.double); torch.linspace(1 - 2j, 0.3j, 77)
torch.linspace(torch.tensor(1j), 2, 9, dtype=torch.cdouble); torch.linspace(1e-17, 1, 99).double()
torch.linspace(-3.3, 4.7, 33, dtype=torch.half); torch.linspace(0, 0.1, 12, dtype=torch.bfloat16)
F.threshold(x, 1.0, 9.0); F.threshold(x, nan, 9.0); F.threshold(h, -1.0, 9.0)
F.softshrink(x); F.softshrink(x, 0.0); F.hardshrink(x); F.hardshrink(x, 0.0)
F.hardshrink(x, -0.5); F.hardshrink(x, nan); F.hardshrink(h); F.softshrink(h)
F.elu(x); F.elu(x, 0.5); F.selu(x); F.celu(x); F.celu(x, 0.5)
torch.div(h, h[1:3, None], rounding_mode="floor"); h[:, None] // h[5:]
torch.gcd(least, small); torch.gcd(small, least)
torch.ldexp(x.double(), torch.tensor([[200], [-300], [2000], [-1074]]))
torch.ldexp(x * 2.0**-140, torch.tensor(150)); torch.ldexp(h, torch.tensor(-20))
F.kl_div(x[3:7], x[3:7], reduction="none"); F.kl_div(x[5:], x[:7], reduction="none")
torch.softmax(x[1:5], 0); torch.softmax(x[2:4], 0); torch.softmax(x[:, None], 1); x.log_softmax(0)
torch.softmax(torch.stack([x, x]), 0); F.log_softmax(h[1:4], 0); F.softmin(x[2:5], 0)
F.cross_entropy(torch.stack([x[1:6], x[5:10]]), torch.tensor([1, 2]))
torch.all(x[3:], ()); torch.any(x[3:5], (), keepdim=True); torch.any(x[4], ()); x.amax(None)
torch.amin(x[3:].reshape(3, 3), None, keepdim=True)
torch.nextafter(x[4:], x[4:].double() + 1); torch.nextafter(h[3:], x[3:] * 2)
torch.nextafter(torch.arange(3), x[4:7]); torch.nextafter(x[4:], torch.tensor(1.0).double())
torch.unravel_index(torch.tensor([1, 7], dtype=torch.uint8), (4, 5))
torch.ldexp(h, x[5:6]); torch.ldexp(x, x[5:].double()[:, None]); torch.ldexp(least, small)
"""
MIXED = """
torch.tensor(1j) + x[3:].double(); torch.tensor(1j, dtype=torch.complex128) * x[5:]
torch.tensor(1j) + h[5:].bfloat16(); x[5:] - torch.tensor(1j, dtype=torch.complex128)
torch.where(x > 0, x, torch.tensor(1j, dtype=torch.complex128))[4:]
torch.stack([x[5] + torch.tensor(2j, dtype=torch.complex128), x[6] * 1j])
F.margin_ranking_loss(x[3:6], x[6:9], small[:3])
F.margin_ranking_loss(x[3:5], h[5:7], x[5:7].double())
F.margin_ranking_loss(small, small.flip(0), small, 0.5, reduction="none")
F.soft_margin_loss(x[3:7], small)
F.margin_ranking_loss(h[3:7], x[3:7], x[3:7], reduction="none"); F.soft_margin_loss(h[3:7], x[4:8])
F.soft_margin_loss(x[3:7].double(), x[4:8]); F.soft_margin_loss(x[3:7], x[4:8].double())
F.binary_cross_entropy_with_logits(x[1:9], x[4:].double()); F.kl_div(x[3:8], x[4:9].double())
F.kl_div(h[3:8], x[4:9].abs()); F.multilabel_soft_margin_loss(x[3:6], x[6:9].double())
F.multilabel_soft_margin_loss(x[3:6], torch.tensor([1, 0, 1]))
torch.trapezoid(x[3:6], x[6:9].double()); torch.cumulative_trapezoid(x[3:6], small[:3])
torch.cumulative_trapezoid(small, small.double()); torch.trapezoid(h[3:6], x[6:9])
torch.diff(x[3:6], prepend=x[6:8].double()); torch.diff(small, append=h[4:6]); torch.diff(h[3:])
F.triplet_margin_loss(x[3:5, None], x[5:7, None].double(), x[7:9, None])
torch.einsum("i,j->ij", x[3:6], x[6:9].double()); torch.einsum("i,i->i", small, x[3:7].half())
torch.einsum("i,j,j->ij", x[3:5], x[6:9], x[3:6].double())
F.poisson_nll_loss(x[3:6], x[6:9].abs().double()); F.poisson_nll_loss(h[3:6], x[6:9].abs())
F.poisson_nll_loss(x[3:7], small, full=True); F.poisson_nll_loss(small, small, full=True)
F.cross_entropy(x[3:7], x[4:8].double()); F.cross_entropy(x[3:7].double(), x[4:8], x[5:9])
F.cross_entropy(x[3:7], x[4:8], x[5:9].double(), label_smoothing=0.1)
"""
GRADIENTS = """
gradient(F.elu, x); gradient(lambda x: F.elu(x, 0.5), x); gradient(F.selu, x); gradient(F.celu, x)
gradient(lambda x: F.celu(x, 0.5), x); gradient(F.relu6, x); gradient(F.softshrink, x)
gradient(F.hardshrink, x); gradient(F.relu, x); gradient(torch.logit, x[4:])
gradient(lambda x: torch.logit(x, 0.1), x[1:])
gradient(torch.xlogy, x[5:6].double(), x[3:4].double())
gradient(lambda a: F.margin_ranking_loss(a, a.detach(), a.detach() * 0 + 1), x[3:])
gradient(lambda a: F.hinge_embedding_loss(a, torch.tensor([-1.0, 1.0, 0.0]), 0.5), x[5:8] * 0 + 0.5)
gradient(lambda a: F.cosine_embedding_loss(a, a.flip(1), -torch.ones(1)), x[4:6].reshape(1, 2))
gradient(lambda a: F.triplet_margin_loss(a, a.detach(), a.detach() + 1, 1.0, 1.0, 0.0), x[4:6])
gradient(F.softplus, x[3:] * 40); gradient(F.softplus, x[1:]); gradient(F.softplus, h * 100)
gradient(lambda x: F.softplus(x, 3.0, 10.0), x[3:] * 1e30)
gradient(lambda x: F.threshold(x, 1.0, 9.0), x)
gradient(torch.clamp, x, x[5]); gradient(lambda a, b: a.clamp(max=b), x, x[7]); x.clamp(x[6], 2.0)
gradient(torch.clamp_min, h, h[3]); gradient(torch.clamp, h, h[6], h[7]); x.clamp(-1.0, x[9].int())
gradient(lambda a, b: a.clone().clamp_(b), x, x[5]); gradient(torch.clip, x[3:], x[5], x[9])
gradient(torch.quantile, x[3:], x[5]); gradient(torch.nanquantile, x[3:], x[4])
"""

ROUNDED_BY_STEPS = """
F.hinge_embedding_loss(r * 9, s, 8.3961636, reduction="none")
F.soft_margin_loss(r, s, reduction="none")
F.binary_cross_entropy_with_logits(r * 3, u, reduction="none")
F.binary_cross_entropy_with_logits(r * 3, u, u.flip(0), reduction="none")
F.binary_cross_entropy_with_logits(r * 3, u, reduction="none", pos_weight=u.flip(0))
torch.linalg.vecdot(r.view(-1, 9), u.view(-1, 9))
torch.segment_reduce(r, "sum", lengths=parts, initial=1)
torch.segment_reduce(r, "mean", lengths=parts)
torch.segment_reduce(r, "prod", lengths=parts)
torch.segment_reduce(u, "max", offsets=parts.cumsum(0))
"""


def _same(mine, theirs):
    """NaN equals NaN, zeros have signs; functions may differ by a few ulp."""
    torch.testing.assert_close(mine, theirs, equal_nan=True, check_stride=False)
    if theirs.is_floating_point():
        zero = theirs == 0
        assert torch.equal(mine.signbit()[zero], theirs.signbit()[zero]), (mine, theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", lines(VALUES + MIXED + GRADIENTS))
def test_special_values(expression):
    theirs = eval(expression, names_of(torch, OPERANDS))
    ours = eval(expression, names_of(flambeau, OPERANDS))
    for mine, wanted in zip(flattened(ours), flattened(theirs), strict=True):
        if isinstance(wanted, torch.Tensor):
            _same(plain(mine), wanted.detach())
        else:
            assert mine == wanted or (math.isnan(mine) and math.isnan(wanted))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("expression", lines(ROUNDED_BY_STEPS))
def test_half_types_round_where_pytorch_rounds(expression, dtype):
    """Composites of several kernels there: each one's result is rounded, and that shows."""
    drawn = torch.randn(3, 900, generator=torch.Generator().manual_seed(0))
    results = []
    for lib in (flambeau, torch):
        r, s, u = (lib.tensor(row.tolist()).to(getattr(lib, dtype)) for row in drawn)
        known = {"r": r, "s": s.sign(), "u": u.sigmoid(), "parts": lib.tensor([7, 3, 90, 800])}
        results.append(eval(expression, names_of(lib, OPERANDS) | known))
    assert torch.equal(plain(results[0]), results[1])
