"""Masked tensors beside PyTorch: the same expressions, results, texts and exception types.

An expression is text that names `torch` and the operands of `OPERANDS`; it is evaluated in both
libraries. What Flambeau computes and PyTorch 2.13 refuses is not here, but in `tests/masked`, nor
what PyTorch gets wrong: functions of `torch.masked` that are given a masked tensor and count what
is masked out, `copy_` between different masks, and gradients that do not carry their tensor's mask.
"""

from __future__ import annotations

import copy
import functools
import pickle
import warnings

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of, plain

OPERANDS = """
F, MaskedTensor = torch.nn.functional, torch.masked.MaskedTensor
masked_tensor = torch.masked.masked_tensor
as_masked_tensor, is_masked_tensor = torch.masked.as_masked_tensor, torch.masked.is_masked_tensor
a = torch.arange(12.).view(3, 4)
m, b, u = a % 3 != 1, torch.arange(12.).view(3, 4).cos(), torch.arange(12.).view(3, 4).div(13)
x, y, z = masked_tensor(a, m), masked_tensor(b, m), masked_tensor(b, a % 2 == 0)
p, i, t = masked_tensor(u, m), masked_tensor(a.long(), m), masked_tensor(a > 4, m)
v = masked_tensor(torch.tensor([1., 2, 3]), torch.tensor([True, False, True]))
c = masked_tensor(torch.arange(24.).view(2, 3, 4), torch.arange(24).view(2, 3, 4) % 2 == 0)
n = masked_tensor(a, torch.zeros(3, 4).bool())
w = torch.tensor([1.5, float("nan"), 1e-5, 12345.678, -123456789., float("inf")])
w = masked_tensor(w, torch.tensor([True, True, True, False, True, True]))
s = masked_tensor(a.to_sparse(), a.to_sparse().bool())
r = masked_tensor(a.to_sparse_csr(), a.to_sparse_csr().to(torch.bool))
"""
UNARY = """
abs absolute acos arccos angle asin arcsin asinh arcsinh atan arctan atanh arctanh ceil
conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma log
log10 log1p log2 logit i0 isnan neg negative positive rad2deg reciprocal round rsqrt sigmoid sign
sgn signbit sin sinc sinh sqrt square tan tanh trunc nan_to_num isfinite
""".split()
UNARY_IN_PLACE = [f"{name}_" for name in UNARY
                  if name not in ("angle", "positive", "signbit", "isnan", "isfinite")]  # fmt: skip
BINARY = """
add atan2 arctan2 div divide floor_divide fmod logaddexp logaddexp2 mul multiply nextafter remainder
sub subtract true_divide eq ne le ge greater greater_equal gt less_equal lt less maximum minimum
fmax fmin not_equal
""".split()
BINARY_IN_PLACE = """
add_ atan2_ arctan2_ div_ divide_ floor_divide_ fmod_ mul_ multiply_ nextafter_ remainder_ sub_
subtract_ true_divide_ eq_ ne_ le_ ge_ greater_ greater_equal_ gt_ less_equal_ lt_ less_ not_equal_
""".split()
BITWISE = "and or xor left_shift right_shift".split()
CALLS = [
    *(f"torch.{name}(p)" for name in UNARY if hasattr(torch, name)),
    *(f"p.{name}()" for name in UNARY),
    *(f"p.clone().{name}()" for name in UNARY_IN_PLACE),
    *(f"torch.{name}(x, y)" for name in BINARY),
    *(f"x.clone().{name}(y)" for name in BINARY_IN_PLACE),
    *(f"torch.bitwise_{name}(i, i)" for name in BITWISE),
    *(f"i.clone().bitwise_{name}_(i)" for name in BITWISE),
]
RESULTS = """
x; y; p; i; t; v; c; n; s; r; x[0, 0]; x[0, 1]; w
masked_tensor(torch.tensor([1, 2, 30000000000]), torch.tensor([True, False, True])); str(x); f"{t}"
x.get_data(); x.get_mask(); x.to_tensor(-1); x.to_tensor(float("nan")); i.to_tensor(1.5)
t.to_tensor(3); masked_tensor(a, m, requires_grad=True); masked_tensor(a, m, True).is_leaf
as_masked_tensor(a, m); MaskedTensor(a, m); masked_tensor(data=a, mask=m); is_masked_tensor(x)
is_masked_tensor(a); is_masked_tensor(3); masked_tensor(a.half(), m); masked_tensor(a.double(), m)
masked_tensor(a.to(torch.int16), m); masked_tensor(a.to(torch.int8), m)
(x.shape, x.size(0), x.ndim)
(str(x.dtype), str(x.layout), str(s.layout), str(r.layout), x.numel(), x.dim(), len(x), x.stride())
(x.is_contiguous(), x.is_sparse, s.is_sparse, s.is_sparse_coo(), r.is_sparse_csr(), x.is_nested)
(x.requires_grad, x.is_leaf, x.grad, x.grad_fn, x.nbytes, x.element_size(), x.is_floating_point())
as_masked_tensor(a.clone().requires_grad_(), m).is_leaf; x in [x]; copy.copy(x); copy.deepcopy(x)
masked_tensor(torch.nn.Parameter(a), m).requires_grad; pickle.loads(pickle.dumps(x)); v[0].item()
float(v[0]); int(v[0]); bool(v[0]); x.clone(); x.detach(); x.data; x.contiguous()
x.to(torch.float64); x.double(); x.long(); x.half(); x.bool(); x.int(); x.cpu(); x.to("cpu")
x.to(a.double()); x.type(torch.float64); x.type_as(a.long()); x.type(); torch.ones_like(x)
t.bitwise_not(); ~t; i.bitwise_not(); x.pow(2); x ** 2; x.clone().pow_(2); torch.float_power(x, 2)
x.clamp(1, 5); torch.clip(x, min=2); x.clone().clamp_(0, 1); x.clone().clip_(1, 5); torch.isreal(x)
x.real; x.conj(); +x; -x; abs(x); x + x; x - y; x * y; x / y; x // y; x % y; x == y; x != 1; x > y
x < 1; x >= y; x <= 2; x + 1; 1 + x; x * 2; 2 * x; x - 3; x / 2; 1 / x; x // 2; x % 2; x + i; t & t
t | t; t ^ t; x + a; a + x; x * torch.ones(4); x + torch.tensor(2.); x + torch.ones(3, 1)
torch.ones(4) * x; torch.maximum(x, a); torch.max(x, y); torch.min(x, y); torch.isclose(x, y)
x.clone().add_(1); x.clone().mul_(a); x.clone().copy_(y); x.clone().copy_(a); torch.where(m, x, y)
torch.where(m, x, a); torch.where(m, x, 0.); torch.where(m, a, x)
torch.where(m, x, masked_tensor(b, ~m)); x.softmax(0); torch.softmax(x, 1); F.softmax(x, -1)
F.softmin(x, 1); torch.softmax(x, 0, dtype=torch.float64); n.softmax(0); x.sum(); x.sum(0)
x.sum(1, keepdim=True); x.sum((0, 1)); x.sum(dim=-1); torch.sum(x, [0]); i.sum(); t.sum(); i.sum(0)
x.sum(0, True, dtype=torch.float64); x.mean(); x.mean(0); x.mean(1, True); x.amax()
x.mean(dim=0, keepdim=True, dtype=torch.float64); x.amax(0); x.amax(dim=(0, 1)); x.amax(0, True)
i.amax(); x.amin(); x.amin(1); i.amin(0); x.argmax(); x.argmax(0); i.argmax(0); x.argmin()
x.argmin(1, keepdim=True); x.prod(); x.prod(0); x.prod(dim=1, keepdim=True); i.prod(1); x.all()
x.prod(0, dtype=torch.float64); x.all(0); t.all(); t.all(0); t.all(dim=1, keepdim=True); x.var()
x.std(); x.var(0); x.std(1, keepdim=True); c.sum((0, 1)); c.sum((0, 2), keepdim=True)
c.mean((0, 1)); c.amax((0, 1)); c.prod(1); c.var((0, 1)); n.sum(); n.mean(); n.amax(0); n.argmax(0)
n.prod(0); n.std(); n.amax(0).get_data(); n.prod(0).get_data(); n.all(0); x.sum(0).get_mask()
x.sum().get_mask(); x[0]; x[:, 1]; x[m]; x[0:2]; x[None]; x[..., 0]; x[torch.tensor([0, 1])]
x[[0, 1]]; x[:, None]; x[torch.tensor([True, False, True])]; x.select(0, 1)
torch.narrow(x, 1, 0, 2); x.view(4, 3); x.t(); x.reshape(4, 3); x.reshape_as(a.t()); x.view_as(a)
x.transpose(0, 1); x.swapaxes(0, 1); x.mT; x.swapdims(0, 1); x.adjoint(); x.expand(2, 3, 4)
x.expand(-1, -1); x.expand_as(c); x.unsqueeze(0); x.broadcast_to((2, 3, 4))
torch.broadcast_tensors(x, x); x.flatten(); c.flatten(1); x.ravel(); x.unflatten(0, (3, 1))
x.split(1); torch.split(x, 2, 1); x.chunk(2); x.tensor_split(2); x.hsplit(2); x.vsplit(3)
c.dsplit(2); x.unfold(0, 2, 1); torch.atleast_1d(x); torch.atleast_2d(v); torch.atleast_3d(x)
torch.cat([x, x]); torch.cat([x, y], 1); torch.stack([x, y]); torch.hstack([x, x])
torch.vstack([x, x]); torch.dstack([x, x]); torch.column_stack([x, x]); torch.meshgrid(v, v)
torch.meshgrid(v, v, indexing="xy"); F.unfold(c[None], (2, 2)); x.to_dense(); s.to_dense()
r.to_dense(); x.to_sparse(); x.to_sparse_coo(); x.to_sparse_csr(); s.to_sparse_csr(); s.sin()
s.cos(); s.abs(); r.cos(); s + s; s * s; r + r; r / r; s * 2; s.sum(); s.mean(); r.sum()
s.transpose(0, 1); s.t(); s[0]; s.clone(); s.detach(); s.double(); s.to_dense().get_mask()
masked_tensor(a.to_sparse(), (a > 5).to_sparse()); x.to_sparse_coo().get_data().to_dense()
x.to_sparse_csr().get_mask().values()
"""
ERRORS = """
masked_tensor(a, m[0]); masked_tensor(a, m[:2]); masked_tensor(a, m.float()); masked_tensor([1.], m)
masked_tensor(a, [True]); masked_tensor(a.to(torch.complex64), m); masked_tensor(a.bfloat16(), m)
masked_tensor(a.to(torch.uint8), m); masked_tensor(x, m); masked_tensor(a, x); MaskedTensor(a)
masked_tensor(a.to_sparse(), m); as_masked_tensor(a, m, True); masked_tensor(a)
masked_tensor(i.get_data(), m, requires_grad=True); x.to_tensor(); x.to_tensor("a")
x.is_masked_tensor; x + z; x.add_(z); torch.maximum(x, z); x == z; x + masked_tensor(a[:1], m[:1])
s * x; x & x; torch.pow(x, y); torch.mul(x, y, out=a); torch.sin(x, out=a); torch.logical_and(x, y)
torch.hypot(x, y); torch.copysign(x, y); torch.gcd(i, i); torch.heaviside(x, y); torch.xlogy(x, y)
torch.lerp(x, y, 0.5); torch.ldexp(x, i); x.logical_not(); x.isinf(); x.clamp_min(2); x.polygamma(1)
x.mvlgamma(1); torch.isposinf(x); torch.special.i0e(x); torch.special.entr(x); x.hardshrink()
F.relu(x); F.gelu(x); F.silu(x); F.elu(x); F.hardtanh(x); F.leaky_relu(x); F.softplus(x)
F.dropout(x); F.layer_norm(x, (4,)); F.linear(x, a); torch.bmm(c, c); x @ x.t(); x @ a.t()
torch.mm(x, x.t()); x.any(); t.any(0); x.max(); x.min(0); x.median(); x.cumsum(0); x.cumprod(0)
x.logsumexp(0); x.nansum(); x.count_nonzero(); x.sort(); x.argsort(); x.topk(1); x.aminmax()
x.unique(); x.nonzero(); x.logcumsumexp(0); x.sum(5); x.mean(5); x.amax(5); i.mean()
x.gather(1, torch.tensor([[0]])); x.masked_fill(m, 0.); x.as_strided((2,), (1,))
x.view(torch.int32); x.take(torch.tensor([1])); x.tril(); x.triu(); x.diag(); x.rot90()
torch.block_diag(x, x); x.index_put_((torch.tensor([0]),), torch.tensor(1.)); x.fill_(3.); x.zero_()
x.__setitem__(0, 1.); x[x > 1]; torch.cat([x, a]); torch.stack([x, a]); x.item(); x[0, 1].item()
float(x); bool(x); float(x[0, 1]); x.tolist(); x.numpy(); x.__array__(); x.values(); x._nnz()
x.to_sparse_csc(); torch.zeros_like(x); torch.empty_like(x); x.new_empty(2);
torch.empty_like(x, dtype=torch.float64); torch.full_like(x, 2.); torch.rand_like(x); x.new_zeros(2)
x.new_ones(2); x.new_full((2,), 1.); x.imag; x.backward(); x.sin().backward()
masked_tensor(a, m, True).sin().backward(); masked_tensor(a, m, True).add_(1)
masked_tensor(a, m, True).sin().backward(masked_tensor(a, ~m))
"""
GRADIENTS = """
g.sum(); g.sum(0).sum(); g.mean(); g.mean(0).sum(); g.amax(); g.amax(0).sum(); g.amin(1).sum()
g.prod(); g.prod(0).sum(); g.std(); g.var(); (g * h).sum(); (g / h).sum(); (g * 2).sum()
(g + h).sum(); (g - d).sum(); (g ** 2).sum(); g.sin().sum(); g.sqrt().sum(); g.exp().mean()
g.log().sum(); g.abs().sum(); g.to_tensor(0).sum(); g.to_tensor(0).sin().sum()
g.exp().to_tensor(0.).sum(); g.get_data().sin().sum(); g.view(4, 3).sin().sum(); g[0].sum()
g.t().sin().sum(); g.select(0, 1).sum(); g.transpose(0, 1).sum(); g.expand(2, 3, 4).sum()
g.softmax(0).sin().sum(); g.reshape(4, 3).sum(); g.clone().sum(); g.double().sum()
torch.cat([g, h]).sum(); g.sum(1, keepdim=True).sum(); g.unfold(0, 2, 1).sum(); g.flatten().sum()
e.sum(); e.sin().sum(); e.to_tensor(0).sin().sum(); (e * h).sum(); e.amax(0).sum(); e[0].sum()
e.get_data().sum(); e.mean(); torch.where(m, g, h).sum()
"""


def namespace(library):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return names_of(library, OPERANDS) | {"copy": copy, "pickle": pickle}


@functools.cache
def operands(library):
    """Those of `namespace`, for expressions that change none of them."""
    return namespace(library)


def evaluate(library, text, names=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, names or operands(library))


def check_same(ours, theirs):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, two in zip(ours, theirs, strict=True):
            check_same(one, two)
        return
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert (str(ours.dtype), tuple(ours.shape)) == (str(theirs.dtype), tuple(theirs.shape))
    assert flambeau.masked.is_masked_tensor(ours) == torch.masked.is_masked_tensor(theirs)
    if not torch.masked.is_masked_tensor(theirs):
        torch.testing.assert_close(plain(ours), theirs.detach(), equal_nan=True)
        return
    assert (str(ours.layout), ours.requires_grad) == (str(theirs.layout), theirs.requires_grad)
    data, mask = shown(theirs)
    torch.testing.assert_close(plain(shown(ours)[1]), mask)
    torch.testing.assert_close(plain(shown(ours)[0]), data, equal_nan=True)


def shown(value):
    """What is there, with zeros for the rest, and the mask: dense."""
    mask = value.get_mask().to_dense()
    data = value.get_data().detach().to_dense()
    return data.masked_fill(~mask, 0), mask


@pytest.mark.parametrize("text", [*lines(RESULTS), *CALLS])
def test_results(text):
    theirs = evaluate(torch, text)
    check_same(evaluate(flambeau, text), theirs)


@pytest.mark.parametrize(
    "text", [*"xitvcnsrw", "x / y", "x[0, 0]", "x[0, 1]", "c.prod(1)", "t.half()"]
)
def test_texts(text):
    assert repr(evaluate(flambeau, text)) == repr(evaluate(torch, text))


@pytest.mark.parametrize("text", lines(ERRORS))
def test_errors(text):
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever PyTorch raises
        evaluate(torch, text, namespace(torch))
    with pytest.raises(expected.type):
        evaluate(flambeau, text, namespace(flambeau))


def gradients(library, text):
    """Gradients of two masked leaves and a dense one, where the mask of the leaves is True."""
    names = namespace(library)
    leaves = {
        "g": evaluate(library, "masked_tensor(a / 7 + .1, m, requires_grad=True)", names),
        "h": evaluate(library, "masked_tensor(b + 2, m, requires_grad=True)", names),
        "d": (names["a"] / 5).requires_grad_(),
    }
    names |= leaves
    names["e"] = evaluate(library, "as_masked_tensor(d, m)", names)
    evaluate(library, text, names).backward()
    found = []
    for leaf in leaves.values():
        grad = leaf.grad
        if grad is not None and hasattr(grad, "get_mask"):
            grad = grad.to_tensor(0)
        found.append(None if grad is None else plain(grad * names["m"]))
    return found


@pytest.mark.filterwarnings("ignore:.*MaskedTensor:UserWarning")
@pytest.mark.parametrize("text", lines(GRADIENTS))
def test_gradients(text):
    for one, two in zip(gradients(flambeau, text), gradients(torch, text), strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two)


def test_warnings():
    for text in ("masked_tensor(a, m)", "MaskedTensor(a, m)", "as_masked_tensor(a, m)",
                 "masked_tensor(a.clone().requires_grad_(), m)"):  # fmt: skip
        found = []
        for library in (flambeau, torch):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                eval(text, operands(library))
            found.append([w.category for w in caught])
        assert found[0] == found[1]
