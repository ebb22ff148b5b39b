"""Nested tensors beside PyTorch: the same expressions, results, texts and exception types.

An expression is text that names `torch` and the operands of `OPERANDS`; it is evaluated in both
libraries. What Flambeau computes and PyTorch 2.13 refuses is not here, but in `tests/nested`, nor
what PyTorch gets wrong: the gradient of a softmax over the ragged dimension, sums over one that is
not dimension 1, reductions of everything that count what lies in holes, padding to the sum of
lengths where `max_seqlen` is not known, a layer norm over the ragged dimension that leaves weight
and bias out, and negative indices of the ragged dimension, which write to the sample before.
"""

from __future__ import annotations

import functools
import re
import warnings

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of, plain

OPERANDS = """
made = torch.nested.nested_tensor_from_jagged
F, jagged = torch.nn.functional, torch.jagged
a, b = torch.arange(8.0).view(2, 4).sin(), torch.arange(20.0).view(5, 4).cos()
n = torch.nested.nested_tensor([a, b], layout=jagged)
k = torch.nested.nested_tensor([a, b])
v, o = torch.arange(24.0).view(6, 4) / 7, torch.tensor([0, 1, 4, 6])
f = torch.nested.nested_tensor_from_jagged(v, o)
h = torch.nested.nested_tensor_from_jagged(v, o, torch.tensor([1, 2, 1]))
g = torch.nested.nested_tensor_from_jagged(torch.arange(48.0).view(2, 6, 4).sin(), o, jagged_dim=2)
j = torch.nested.nested_tensor([torch.arange(3.0), torch.arange(4.0) - 2], layout=jagged)
i = torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([0])], layout=jagged)
x = torch.arange(24.0).view(2, 4, 3)
w, c = torch.arange(12.0).view(3, 4).sin(), torch.ones(3)
m = torch.arange(24.0).view(2, 4, 3).cos()
l = torch.nested.nested_tensor([a, b], layout=jagged, requires_grad=True)
q = torch.nested.nested_tensor_from_jagged(torch.arange(96.0).view(6, 2, 8).sin(), o)
q = q.transpose(1, 2)
"""
RESULTS = """
n; k; f; h; g; i; l; q; n.values(); n.offsets(); n.lengths(); h.lengths(); h.offsets(); n.unbind()
k.unbind(); h.unbind(); g.unbind(); q.unbind(); (n.dim(), n.numel(), len(n), n.size(0), n.size(2))
(str(n.layout), str(k.layout), n.is_nested, k.is_nested, a.is_nested, n.is_contiguous(), n.ndim)
(h.is_contiguous(), q.is_contiguous(), g.is_contiguous(), k.is_contiguous(), k.dim(), k.numel())
(k.size(0), k.size(2), n.shape[1] == (n * 2).shape[1], n.shape[1] == f.shape[1], n.is_leaf)
(l.requires_grad, l.is_leaf, str(n.dtype), n.element_size(), n._ragged_idx, g._ragged_idx)
n.size() == (n + 1).size(); n._max_seqlen; n._min_seqlen; k._nested_tensor_size(); n.stride()[1:]
torch.nested.nested_tensor([[1, 2], [3]]); torch.nested.nested_tensor([a, b], dtype=torch.float64)
torch.nested.nested_tensor([a, b[:, :2]]); torch.nested.nested_tensor([a, b[:2, :3]], layout=jagged)
torch.nested.as_nested_tensor([a, b], layout=jagged); torch.nested.as_nested_tensor(x)
torch.nested.as_nested_tensor(x, layout=jagged)
torch.nested.nested_tensor_from_jagged(v, lengths=torch.tensor([4, 0, 2]))
torch.nested.narrow(x, 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=jagged)
torch.nested.narrow(x, 1, 0, torch.tensor([2, 3]), layout=jagged)
torch.nested.masked_select(x, x > 5); torch.nested.masked_select(x[:, :, 0], x[:, :, 0] > 1)
n.to_padded_tensor(0.0); k.to_padded_tensor(-1.0); k.to_padded_tensor(0.0, (2, 6, 5)); n + 1; 1 - n
n * n; n / 2; -n; n ** 2; 2 ** n; abs(n); n.sin(); n.exp(); n.sigmoid(); n.relu(); F.gelu(n)
F.silu(n); F.leaky_relu(n); n.tanh(); n.clamp(0, 0.5); n.abs().sqrt(); n.log1p(); n == n; n > 0
n <= 0.5; (n > 0) & (n < 1); ~(n > 0); torch.where(n > 0, n, 0.0); n.isnan()
n.masked_fill(n > 0, 3.0); torch.maximum(n, 2 * n); torch.lerp(n, 2 * n, 0.3); n.half(); n.double()
n.to(torch.float64); n.bool(); n.long(); n.float(); n.clone(); n.detach(); torch.zeros_like(n)
torch.ones_like(n); torch.full_like(n, 2.0); n.contiguous(); q.contiguous(); n + torch.ones(4)
torch.ones(4) * n; n * torch.ones(2, 1, 4); n + torch.ones(1, 1, 4); n + torch.ones(2, 1, 1)
n + torch.arange(40.0).view(2, 5, 4); k + k; k * 2; k - k; k / k; k * k; -k; k > 0; F.relu(k)
F.gelu(k); n.clone().add_(1); n.clone().mul_(n); n.clone().zero_(); n.clone().fill_(2.0)
n.clone().copy_(2 * n); k.clone().fill_(2.0); k.clone().copy_(k); k.masked_fill(k > 0, 0.0); n.sum()
n.mean(); n.max(); n.min(); n.sum(1); n.sum(2); n.sum(-1); n.sum((0, 1)); n.sum((0, 1, 2))
n.sum(1, keepdim=True); n.mean(1); n.sum(2, keepdim=True); n.mean(-1); n.mean((0, 1)); n.amax(1)
n.amin(1); n.amax(-1); n.prod(1); n.any(1); n.all(2); n.argmax(1); n.argmin(1); f.sum(1); f.mean(1)
f.amax(1); g.sum(1); n.softmax(-1); n.softmax(1); f.softmax(1); torch.softmax(n, 2)
n.log_softmax(-1); k.softmax(-1); n.sum(1).softmax(-1); k.sum(-1, keepdim=True); g.sum(-1); f.any()
f.all(); h.sum(2); F.linear(n, w); F.linear(n, w, c); F.linear(k, w, c); n @ w.t(); n.matmul(w.t())
torch.matmul(f, w.t()); torch.bmm(n, x[:, :, :2]); torch.matmul(n, x); n.transpose(1, 2) @ n
k @ k.transpose(1, 2); torch.bmm(k, k.transpose(1, 2)); F.layer_norm(n, (4,))
F.layer_norm(n, (4,), torch.ones(4) * 2, torch.ones(4)); F.rms_norm(n, (4,))
F.layer_norm(k, (4,), torch.ones(4) * 2, torch.ones(4)); F.embedding(i, w); F.dropout(n, 0.0)
n.transpose(1, 2); n.transpose(-1, -2); n.mT; n.permute(0, 2, 1); g.transpose(1, 2)
q.transpose(1, 2); n.unsqueeze(1); n.unsqueeze(-1); n.unsqueeze(-1).squeeze(-1); g.unsqueeze(2)
n.view(2, -1, 2, 2); n.reshape(2, -1, 2, 2); n.view(2, n.shape[1], 4, 1); n.unflatten(-1, [2, 2])
n.reshape(2, -1, 4); n.unflatten(-1, [2, 2]).flatten(2, 3); n.unflatten(-1, [2, 2]).flatten(-2)
n.expand(2, -1, 4); n.unsqueeze(-1).expand(2, -1, 4, 3); n.select(0, 1); n.select(2, 1); n[0]; n[1]
n[-1]; n[0, 1]; n.chunk(2, -1); n.chunk(2); n.split(3, -1); n.split([1, 3], -1); n.unbind(0)
k.unbind(0); torch.cat([n, n], -1); torch.cat([n, 2 * n], 2); torch.stack([n, n], -1)
torch.cat([k, k]); k.chunk(2, -1); k.transpose(1, 2); k.unsqueeze(1); k.unsqueeze(-1).squeeze(-1)
k.reshape(2, -1, 2, 2); k.view(2, -1, 4, 1); F.scaled_dot_product_attention(q, q, q)
F.scaled_dot_product_attention(q, 2 * q, q, scale=0.3); F.scaled_dot_product_attention(k, k, k)
torch.nn.LayerNorm(4)(n); torch.nn.RMSNorm(4)(n); torch.nn.Softmax(-1)(n); torch.nn.Dropout(0.0)(n)
torch.nn.GELU()(k); torch.nn.Flatten(3)(n.unsqueeze(-1).unsqueeze(-1))
torch.nested.to_padded_tensor(n, 2.0); j.masked_select(j > 0); torch.masked_select(j, j < 1)
j.masked_select(j > 100); F.layer_norm(n, (n.shape[1], 4)); F.layer_norm(f, (f.shape[1], 4))
n.index_put((torch.tensor([0, 1]), torch.tensor([1, 4]), torch.tensor([2, 3])), c[:2] * 9)
n.clone().index_put_((torch.tensor([0, 1]), torch.tensor([1, 4])), torch.tensor(9.0))
n.index_put((torch.tensor([0, 0]), torch.tensor([1, 1])), torch.ones(2, 4), accumulate=True)
n.index_put((torch.tensor([0]),), torch.tensor(1.0)); f.index_put((o[1:2],), torch.ones(4))
h.index_put((torch.tensor([0, 2, 1]), torch.tensor([0, 0, 0])), torch.ones(3, 4))
n.split_with_sizes([1, 3], -1); torch.split(n, split_size_or_sections=2, dim=2)
torch.special.bessel_j0(n); torch.special.zeta(n.abs() + 2, torch.ones(4))
"""
ERRORS = """
made(torch.ones(4), torch.tensor([0, 1, 5])).unbind()
made(torch.ones(4), torch.tensor([0, 3, 1])).unbind()
made(torch.ones(4), torch.tensor([0, -1, 4])).unbind()
made(torch.ones(4), torch.tensor([-1, 1, 4])).unbind()
made(torch.ones(4), lengths=torch.tensor([5, -1])).unbind()
made(torch.ones(4), torch.tensor([0, 1, 5])).to_padded_tensor(0.0)
made(torch.ones(4), torch.tensor([0, 3, 1])).to_padded_tensor(0.0)
made(torch.ones(4), torch.tensor([0, 4]), torch.tensor([5])).unbind()
made(torch.ones(4), torch.tensor([0, 2, 4]), torch.tensor([1]))
made(torch.ones(4), torch.tensor([0, 2, 4]), torch.tensor([[1, 1]]))
made(torch.ones(4), torch.tensor([[0, 4]]))
made(torch.ones(4), torch.tensor(4))
made(torch.ones(4), [0, 4])
made(torch.ones(4), torch.tensor([0, 4]), [4])
made(torch.ones(4), torch.tensor([0, 4]), None, 0)
made(torch.ones(4), torch.tensor([0, 4]), None, 2)
made(torch.ones(4), torch.tensor([0, 4]), None, 1, -5, 4)
torch.nested.narrow(torch.ones(4), 1, 0, 1, layout=torch.jagged)
torch.nested.narrow(torch.ones(0, 4), 1, 0, 1, layout=torch.jagged)
torch.nested.nested_tensor(3); torch.nested.nested_tensor(a); torch.nested.nested_tensor([a, b[0]])
torch.nested.nested_tensor([], layout=jagged); torch.nested.nested_tensor([c.sum()], layout=jagged)
torch.nested.nested_tensor([a, b.double()], layout=jagged)
torch.nested.nested_tensor([a, b[0]], layout=jagged)
torch.nested.nested_tensor([a, b[:, :2]], layout=jagged)
torch.nested.nested_tensor([a], layout=torch.sparse_coo); torch.nested.as_nested_tensor(3)
torch.nested.nested_tensor_from_jagged(v); torch.nested.nested_tensor_from_jagged(3, o)
torch.nested.narrow(x, 2, 0, 1, layout=jagged); torch.nested.narrow(x, 1, 0, torch.tensor([1, 2]))
torch.nested.narrow(x, 1, 0, 1, layout=torch.sparse_coo); torch.nested.masked_select(n, n > 0)
k.size(); k.shape; k.size(1); k.stride(); n.numpy(); n.tolist(); bool(n); n.item(); n + f
n * torch.ones(2, 4); n + torch.ones(2, 3, 4); n + torch.ones(3, 1, 4); n + k; n.sum(0)
n.sum((1, 2)); n.sum((0, 2)); n.mean(0); n.softmax(0); n.unsqueeze(0); n.squeeze(1); n.flatten(1, 2)
n.flatten(); n.select(1, 0); n.T; n.transpose(0, 1); n.permute(1, 0, 2); n[:, 0]; n[:, 0:1]
n.view(3, -1, 4); n.view(2, 4, -1, 2); n.unbind(1); n @ n.transpose(1, 2); torch.cat([n, f], -1)
torch.stack([n, n]); n.cumsum(1); n.roll(1); n.index_select(0, o); n.repeat(1, 1, 2); n.nonzero()
F.mse_loss(n, n); F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(3, 3)); n.numpy()
F.layer_norm(n, (5,)); n.sum(7); n.size(7); n.chunk(2, 1); F.pad(n, (1, 1)); torch.triu(n)
torch.nested.to_padded_tensor(a, 0.0); n.expand(3, -1, 4); n.copy_(f); n.masked_select(n > 0)
h.masked_select(h > 0); g.masked_select(g > 0); q.masked_select(q > 0); k.masked_select(k > 0)
j.masked_select(n > 0); j.masked_select(torch.ones(2, 1).bool()); j.masked_select(j)
n.index_put((torch.tensor([0, 1]), torch.tensor([1, 7])), torch.tensor(1.0))
n.index_put((torch.tensor([5]), torch.tensor([0])), torch.ones(4))
n.index_put((torch.tensor([0, 1]), None, torch.tensor([1, 2])), torch.tensor(1.0))
n.clone().index_put_((n > 0,), torch.tensor(1.0)); F.rms_norm(n, (n.shape[1], 4))
F.layer_norm(h, (h.shape[1], 4)); F.layer_norm(f, (n.shape[1], 4)); F.layer_norm(n, (5, 4))
"""
GRADIENTS = """
(N * N).sum(); N.softmax(-1).pow(2).sum(); F.linear(N, W).pow(3).sum()
F.layer_norm(N, (4,)).pow(3).sum(); (N @ W.t()).pow(3).sum(); N.to_padded_tensor(0.0).pow(2).sum()
(N * W[:1]).pow(2).sum(); (N * M).pow(2).sum(); N.amax(1).sum(); N[1].pow(2).sum()
torch.bmm(N, W.t().expand(2, 4, 3)).pow(2).sum(); (N.transpose(1, 2) @ N).pow(2).sum()
N.values().pow(2).sum(); torch.cat([N, N * 2], -1).pow(2).sum(); N.chunk(2, -1)[0].pow(2).sum()
F.scaled_dot_product_attention(*[N.unflatten(-1, [1, 4]).transpose(1, 2)] * 3).pow(2).sum()
"""
MODULES = ("encoder(k)", "attention(k, k, k)", "attention(k, k, k, need_weights=False)",
           "attention(k, k, k, average_attn_weights=False)")  # fmt: skip


def namespace(library):
    return names_of(library, OPERANDS)


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
    assert (ours.is_nested, str(ours.layout)) == (theirs.is_nested, str(theirs.layout))
    assert str(ours.dtype) == str(theirs.dtype)
    if not theirs.is_nested:
        assert tuple(ours.shape) == tuple(theirs.shape)
        torch.testing.assert_close(plain(ours), theirs.detach(), equal_nan=True)
        return
    assert ours.dim() == theirs.dim()
    if theirs.layout == torch.jagged:
        assert ours.is_contiguous() == theirs.is_contiguous()
        assert ours._ragged_idx == theirs._ragged_idx
        assert ours.offsets().tolist() == theirs.offsets().tolist()
        assert re.sub(r"j\d+", "j", repr(ours.shape)) == re.sub(r"j\d+", "j", repr(theirs.shape))
    check_same(ours.detach().unbind(), theirs.detach().unbind())


@pytest.mark.parametrize("text", lines(RESULTS))
def test_results(text):
    theirs = evaluate(torch, text)
    check_same(evaluate(flambeau, text), theirs)


@pytest.mark.parametrize("text", ["n", "k", "h", "g", "l", "i", "k.double()", "k > 0"])
def test_texts(text):
    ours, theirs = (re.sub(r"j\d+", "j", repr(evaluate(x, text))) for x in (flambeau, torch))
    assert ours == theirs


@pytest.mark.parametrize("text", lines(ERRORS))
def test_errors(text):
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever PyTorch raises
        evaluate(torch, text)
    with pytest.raises(expected.type):
        evaluate(flambeau, text, namespace(flambeau))


@pytest.mark.parametrize("text", lines(GRADIENTS))
def test_gradients(text):
    found = []
    for library in (flambeau, torch):
        names = namespace(library)
        leaves = [names[name].clone().requires_grad_() for name in "abw"]
        names["N"] = library.nested.as_nested_tensor(leaves[:2], layout=library.jagged)
        names["W"], names["M"] = leaves[2], library.ones(2, 1, 4)
        evaluate(library, text, names).backward()
        found.append([None if leaf.grad is None else plain(leaf.grad) for leaf in leaves])
    for one, two in zip(*found, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two)


def modules(library):
    nn = library.nn
    names = namespace(library)
    names["attention"] = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    names["encoder"] = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    for name in ("attention", "encoder"):
        for parameter in names[name].parameters():
            count = parameter.numel()
            with library.no_grad():
                parameter.copy_(library.arange(float(count)).mul(1.7).sin().view(parameter.shape))
    return names


@pytest.mark.parametrize("name", ["key_padding_mask", "attn_mask"])
@pytest.mark.parametrize("operand", ["k", "n"])
def test_masks_of_modules(name, operand):
    for library in (flambeau, torch):
        names = modules(library) | {"mask": library.zeros(5, 5).bool()}
        with pytest.raises(AssertionError, match="MultiheadAttention"), library.no_grad():
            evaluate(library, f"attention({operand}, {operand}, {operand}, {name}=mask)", names)


@pytest.mark.parametrize("text", MODULES)
def test_modules(text):
    found = []
    for library in (flambeau, torch):
        with library.no_grad():
            found.append(evaluate(library, text, modules(library)))
    check_same(*found)
