"""Sparse tensors beside PyTorch: the same expressions, results, texts and exception types.

An expression is text that names `torch` and the operands of `OPERANDS`; it is evaluated in both
libraries. Sparse results must keep the same places, not only stand for the same matrix.
"""

from __future__ import annotations

import functools
import warnings

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of

OPERANDS = """
i = torch.tensor([[0, 1, 1], [2, 0, 2]])
v = torch.tensor([3.0, 4.0, 5.0])
s = torch.sparse_coo_tensor(i, v, (2, 3), is_coalesced=True)
u = torch.sparse_coo_tensor([[1, 0, 1], [1, 2, 1]], [1.0, 2.0, 4.0], (2, 3))
h = torch.sparse_coo_tensor([[1, 0, 1]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (3, 2))
z = torch.sparse_coo_tensor([[0, 1]], [1 + 2j, 3 - 1j], (3,))
n = torch.sparse_coo_tensor(i, torch.tensor([3, 4, 5]), (2, 3), is_coalesced=True)
b = torch.sparse_coo_tensor([[0, 0, 1], [1, 0, 1], [0, 2, 2]], v, (2, 2, 3))
c = s.to_sparse_csr()
k = s.to_sparse_csc()
cc = torch.sparse_csr_tensor([[0, 1, 3], [0, 2, 3]], [[2, 0, 2], [0, 1, 2]],
                             [[1.0, 2, 3], [4, 5, 6]], (2, 2, 3))
d = torch.arange(6.0).reshape(2, 3) - 2
e = torch.arange(6.0).reshape(3, 2) - 3
f = torch.tensor([[0.0, 0, 2, 3, 4, 5], [0, 0, 8, 9, 10, 11],
                  [1, 2, 0, 0, 3, 4], [5, 6, 0, 0, 7, 8]])
r = f.to_sparse_bsr((2, 2))
q = f.to_sparse_bsc((2, 3))
g = torch.arange(12.0).reshape(6, 2)
"""
RESULTS = """
r; q; r.to_dense(); q.to_dense(); r.values(); q.values(); r.crow_indices(); q.row_indices()
r.t(); q.t(); r.to_sparse(); q.to_sparse(); r.to_sparse_bsc((2, 2)); q.to_sparse_bsr((2, 3))
f.to_sparse().to_sparse_bsr(2); f.to_sparse_csr().to_sparse_bsc((1, 2)); r + r; r * 2; r.abs()
f.to_sparse(layout=torch.sparse_bsr, blocksize=(4, 3)); torch.zeros(2, 2).to_sparse_bsr((1, 2))
(r._nnz(), r.sparse_dim(), r.dense_dim(), str(r.layout), r.is_sparse, r.is_sparse_csr)
r @ g; r @ g[:, 0]; torch.addmm(torch.ones(4, 2), r, g, beta=2, alpha=3); r.sum(); r.double()
torch.nn.functional.linear(torch.ones(3, 6), r); f.reshape(2, 2, 6).to_sparse_bsr((1, 6))
f.reshape(2, 4, 3).to_sparse_bsr((2, 2), 1); r.clone(); r.transpose(0, 1); -r; r.to_sparse_bsr(2)
torch.sparse_bsr_tensor([0, 1, 2], [0, 1], torch.ones(2, 2, 3))
torch.sparse_bsc_tensor([0, 1, 2], [0, 1], torch.ones(2, 2, 3), (4, 6)).to_dense()
torch.sparse_compressed_tensor([0, 1], [1], [[[1, 2]]], (1, 4), layout=torch.sparse_bsr)
s; u; h; z; n; b; c; k; cc
s.to_dense(); u.to_dense(); h.to_dense(); z.to_dense(); n.to_dense(); b.to_dense()
c.to_dense(); k.to_dense(); cc.to_dense(); d.to_dense()
u.coalesce(); h.coalesce(); s.coalesce(); u.coalesce().indices(); u.coalesce().values()
u._indices(); u._values(); c.crow_indices(); c.col_indices(); k.ccol_indices(); k.row_indices()
c.values(); (s._nnz(), u._nnz(), c._nnz(), cc._nnz(), cc._nnz())
(s.is_coalesced(), u.is_coalesced(), s.is_sparse, c.is_sparse, s.is_sparse_csr, c.is_sparse_csr)
(str(s.layout), str(c.layout), str(k.layout), str(d.layout), s.stride(), s.is_contiguous())
(h.sparse_dim(), h.dense_dim(), c.sparse_dim(), c.dense_dim(), d.sparse_dim(), d.dense_dim())
(s.numel(), s.dim(), len(s), s.element_size(), str(s.device), s.requires_grad, s.is_leaf)
d.to_sparse(); d.to_sparse(1); d.to_sparse_csr(); d.to_sparse_csc(); d.to_sparse_coo()
d.to_sparse(layout=torch.sparse_csr); torch.zeros(2, 3).to_sparse(); torch.zeros(3, 0).to_sparse()
torch.tensor(3.0).to_sparse(); torch.tensor(3.0).to_sparse().to_dense(); cc.to_sparse()
torch.ones(2, 2, 3).to_sparse_csr(); torch.ones(2, 3, 2).to_sparse_csr(dense_dim=1)
s.to_sparse_csr(); s.to_sparse_csc(); k.to_sparse_csr(); c.to_sparse_csc(); k.to_sparse_coo()
u.to_sparse_csr(); c.to_sparse(); (c.to_sparse_csr() is c, s.to_sparse() is s, d.to_dense() is d)
d.sparse_mask(s); d.sparse_mask(c); s.sparse_mask(s); d.sparse_mask(u); u.sparse_mask(s)
torch.sparse_coo_tensor([[0, 1], [1, 0]], [1, 2]); torch.sparse_coo_tensor((2, 3))
torch.sparse_coo_tensor(i, v, (2, 3), dtype=torch.int64); torch.sparse_coo_tensor(i.int(), v)
torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0))
torch.sparse_coo_tensor(i, torch.ones(3, 2), (2, 3, 2)); torch.sparse_coo_tensor([[0, 0]], [1, 2])
torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [1.0, 2.0, 3.0])
torch.sparse_csc_tensor([0, 1, 1, 3], [0, 1, 0], v, (2, 3)); s.clone(); c.clone()
torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], torch.ones(3, 2), (2, 3, 2))
s + s; u + u; s * 2; 2 * s; s / 2; s * torch.tensor(2.0); -u; u * 3; n * 2; n * 1.5
d + s; d - s; d + u; d + c; c + d; c + c; c * 2; 2 * c; torch.add(s, s, alpha=3); s + n; n + n
torch.add(d, s, alpha=-2); s * s; s * d; d * s; s * d[:1]; s * d[:, :1]; c * c; c * d; n * d
s.mul(u.coalesce()); s ** 2; s ** 0.5; s.pow(3); s // 2; s.div(2, rounding_mode="floor")
s.floor_divide(2); s.abs(); u.abs(); c.abs(); u.relu(); s.sin(); c.sin(); s.sqrt();
u.square(); h.tanh()
s.log1p(); s.expm1(); s.sign(); s.neg(); s.ceil(); s.floor(); s.round(); s.trunc();
s.atan(); s.asinh()
s.erf(); s.sgn(); s.isnan(); s.isinf(); s.rad2deg(); s.nan_to_num(); n.sqrt(); n.sin(); s.frac()
z.abs(); z * 2; z + z; torch.relu(c); c.neg(); c.tan(); s.signbit(); s.isposinf()
s @ e; c @ e; k @ e; e @ s; e @ c; s @ s.t(); s @ torch.ones(3); torch.ones(2) @ s; u @ e
torch.mm(s, e); torch.mv(s, torch.ones(3)); torch.mv(c, torch.ones(3)); torch.sparse.mm(s, e)
torch.sparse.mm(s, s.t()); torch.sparse.mm(u, e); torch.sparse.mm(c, e, "mean")
torch.sparse.mm(c, e, "sum"); torch.sparse.mm(c, e, "amax"); torch.sparse.mm(c, e, "amin")
torch.addmm(torch.ones(2, 2), s, e); torch.addmm(torch.ones(2, 2), c, e, beta=2, alpha=3)
torch.sparse.addmm(torch.ones(2, 2), s, e, beta=0.5, alpha=2.0); torch.bmm(b, torch.ones(2, 3, 2))
torch.addmv(torch.ones(2), c, torch.ones(3)); torch.nn.functional.linear(d, s)
torch.nn.functional.linear(d, c); n @ e.long()
torch.smm(s, e); torch.hspmm(s, e); torch.sspaddmm(s, s, torch.ones(3, 3)).to_dense()
torch.sparse.sampled_addmm(c, torch.ones(2, 4), torch.ones(4, 3))
torch.sparse.sampled_addmm(c, torch.ones(2, 4), torch.ones(4, 3), beta=0.5, alpha=2.0)
torch.sparse.sum(s); torch.sparse.sum(s, 0); torch.sparse.sum(s, (0, 1)); torch.sparse.sum(h, 0)
torch.sparse.sum(h, 1); torch.sparse.sum(u, -1); torch.sparse.sum(n, 0, dtype=torch.float64)
s.sum(); c.sum(); s.sum(0); u.sum(1); c.sum(1, keepdim=True); torch.norm(s); s.norm(); n.sum()
torch.sparse.softmax(s, 0); torch.sparse.softmax(s, 1); torch.sparse.softmax(u, 1)
torch.sparse.softmax(h, 0); torch.sparse.softmax(h, 1); torch.sparse.log_softmax(s, 1)
torch.sparse.log_softmax(u, 0); torch.sparse.log_softmax(h, 0); torch.sparse.log_softmax(h, 1)
torch.sparse.softmax(s, 1, dtype=torch.float64); torch.sparse.softmax(b, 1)
torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, 1]), (3, 3)).to_dense()
torch.sparse.spdiags(torch.ones(2, 4), torch.tensor([-1, 2]), (3, 4), torch.sparse_csr)
s.t(); s.T; s.mT; c.t(); k.t(); s.transpose(0, 1); b.transpose(0, 2); b.permute(2, 0, 1); u.t()
s[0]; s[1]; s[-1]; s[0, 2]; s[:, 2]; s[..., 0]; s[None]; h[1]; h[0, 1]; h[:, 1]; u[1]; c[0]; c[1, 2]
s.select(0, 1); s.select(1, 2); cc[1]; s.unbind(); b[0]; b[1, 1]; list(s)
s.index_select(0, torch.tensor([1])); (c @ c.t()).to_dense(); h.unsqueeze(0)
h.index_select(1, torch.tensor([1, 0, 1]))
s.narrow_copy(0, 0, 1); s.narrow_copy(1, 1, 2); s.unsqueeze(0); s.unsqueeze(2); h.unsqueeze(-1)
torch.cat([s, s]); torch.cat([s, s], 1); torch.cat([h, h], 1).to_dense(); torch.stack([s, s])
torch.cat([u, u]); torch.hstack([s, s]); torch.vstack([s, s]); torch.zeros_like(s)
torch.empty_like(s); s.new_zeros(2); s.new_empty(3); c.new_zeros((2, 3))
cc.new_zeros((1, 2));
c.new_zeros((2, 1, 3)); torch.zeros_like(c); s.double(); c.double(); s.to(torch.float64)
s.bool(); s.int()
s.half(); s.detach(); s.any(); s.clone().add_(s); s.clone().mul_(2); s.clone().zero_()
s.clone().neg_(); s.clone().sqrt_(); d.clone().add_(s); d.clone().sub_(s); d.clone().mul_(s)
s.clone().copy_(u); s.clone().sub_(s); s.clone().div_(2); s.clone().mul_(s); c.clone().sin_()
torch.is_tensor(s); s.clone().sparse_resize_((4, 5), 2, 0);
s.clone().sparse_resize_and_clear_((4, 5), 2, 0); torch.mm(s, e, out=torch.empty(2, 2))
"""
# The same tensor, its elements kept in another order or coalesced already.
COALESCED_RESULTS = """
s + u; s - u; h * h; (u * s).to_dense(); s.index_select(1, torch.tensor([2, 2, 1]));
u + s.coalesce(); u * u
h.index_select(0, torch.tensor([1, 1, 0])); torch.sspaddmm(s, s, torch.ones(3, 3))
s.index_select(1, torch.tensor([2, 0]))
torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, 1]), (3, 3)); torch.cat([h, h], 1)
"""
ERRORS = """
torch.sparse_coo_tensor(i, v, (2,)); torch.sparse_coo_tensor(i, v[:2], (2, 3))
torch.sparse_coo_tensor(i[0], v, (2, 3)); torch.sparse_coo_tensor(-i, v)
torch.sparse_coo_tensor(i, v, (2, 2), check_invariants=True)
torch.sparse_coo_tensor(-i, v, (2, 3), check_invariants=True)
torch.sparse_coo_tensor(i, 3.0, (2, 3)); torch.sparse_coo_tensor(i, torch.ones(3, 2), (2, 3, 3))
torch.sparse_coo_tensor(i * 0, v, (2, 3), is_coalesced=True, check_invariants=True)
torch.sparse_csr_tensor([0, 1, 2], [2, 0, 2], v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor([1, 1, 3], [2, 0, 2], v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor([0, 1, 3], [2, 2, 0], v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor([0, 1, 3], [3, 0, 2], v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor([0, 1], [2, 0, 2], v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor([0, 1, 3], [2, 0], v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor([0, 3, 1], [2, 0, 2], v, (2, 3), check_invariants=True)
torch.sparse_compressed_tensor([0, 1, 3], [2, 0, 2], v, (2, 3))
torch.sparse_compressed_tensor([0, 1, 3], [2, 0, 2], v, (2, 3), layout=torch.sparse_coo)
u.indices(); u.values(); c.indices(); s.crow_indices(); s.col_indices();
c.row_indices(); d.indices()
d.coalesce(); c.coalesce(); c.is_coalesced(); d.crow_indices(); d.values(); d._nnz(); d._indices()
s + d; s + 1; 1 + s; s - d; s / d; s / s; s ** 0; s.exp(); s.cos(); s == s; s > 0; s[[0, 1]]; s[s]
s.view(3, 2); s.mean(); s.argmax(); s.cumsum(0); s.tolist(); s.numpy(); s.item(); bool(s)
s.data_ptr(); s.untyped_storage(); s.nbytes; c.stride(); s.copy_(d); d.copy_(s); s.softmax(1)
torch.sparse.sum(c); torch.sparse.sum(s, 5); torch.sparse.softmax(s, 5); torch.cat([s, d]); s[5]
s[0, 0, 0]; d.sparse_mask(d); d.sparse_mask(e.to_sparse()); s.to_sparse(1)
d.to_sparse(3); d.to_sparse(0); s.to_dense(torch.float64); torch.ones(3).to_sparse_csr()
torch.tensor([[1.0, 0], [1, 1]])[None].expand(2, 2, 2).tril().triu(1).to_sparse_csr(dense_dim=2)
torch.bmm(b, b); torch.mm(s, s); torch.sparse.mm(s, e.double()); torch.sparse.mm(s, d)
torch.sparse.mm(s, e, "amax"); torch.sparse.mm(c, e, "median"); torch.dot(s[0], s[0])
torch.sparse.sampled_addmm(s, torch.ones(2, 4), torch.ones(4, 3))
torch.sparse.sampled_addmm(c, torch.ones(2, 4), torch.ones(3, 3)); c.sum(1); c.sum((0, 1))
torch.clamp(s, 0); s.fill_(1.0); torch.ones_like(s); torch.rand_like(s); s.index_select(0, i[0] + 4)
"""
GRADIENTS = """
(torch.sparse.mm(S, E) * W).sum(); (S @ S.t()).to_dense().pow(2).sum(); (S.to_dense() * d).sum()
torch.sparse.sum(S); (torch.sparse.sum(S, 0).to_dense() * v).sum(); (S * S).to_dense().sum()
(torch.sparse.softmax(S, 1).to_dense() * d).sum(); (S.abs() * 2).to_dense().sum()
(torch.sparse.log_softmax(S, 0).to_dense() * d).sum(); (S * d).to_dense().sum()
torch.addmm(W, S, E, beta=2, alpha=3).pow(2).sum(); (torch.mv(S, v) ** 2).sum()
(d + S).pow(2).sum(); (S + S * 2).to_dense().pow(2).sum(); S.t().to_dense().pow(2).sum()
(S.coalesce().values() ** 2).sum(); torch.sparse.sum(S * 3)
"""


def namespace(library):
    return names_of(library, OPERANDS)


@functools.cache
def operands(library):
    """Those of `namespace`, for expressions that change none of them."""
    return namespace(library)


def parts_of(value):
    """What two sparse tensors must agree in, as plain data."""
    if "coo" in str(value.layout):
        index = (value._indices(),)
        kept = value._values()
    else:
        csr = str(value.layout) in ("torch.sparse_csr", "torch.sparse_bsr")
        index = (value.crow_indices() if csr else value.ccol_indices(),)
        index += (value.col_indices() if csr else value.row_indices(),)
        kept = value.values()
    return [part.tolist() for part in index], kept.detach()


def check_same(ours, theirs):
    if isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for one, two in zip(ours, theirs, strict=True):
            check_same(one, two)
        return
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert (str(ours.layout), tuple(ours.shape)) == (str(theirs.layout), tuple(theirs.shape))
    assert str(ours.dtype) == str(theirs.dtype)
    if theirs.layout != torch.strided:
        (index, ours), (expected, theirs) = parts_of(ours), parts_of(theirs)
        assert index == expected
    found = torch.tensor(ours.tolist(), dtype=theirs.dtype).reshape(theirs.shape)
    torch.testing.assert_close(found, theirs.detach(), equal_nan=True)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("expression", lines(RESULTS))
def test_results(expression):
    check_same(eval(expression, operands(flambeau)), eval(expression, operands(torch)))


@pytest.mark.parametrize("expression", lines(COALESCED_RESULTS))
def test_coalesced_results(expression):
    ours, theirs = (eval(expression, operands(library)) for library in (flambeau, torch))
    assert str(ours.layout) == str(theirs.layout)
    if theirs.layout != torch.strided:
        ours, theirs = ours.coalesce(), theirs.coalesce()
    check_same(ours, theirs)


@pytest.mark.parametrize("name", "s u h z n b c k cc".split())
def test_texts(name):
    ours, theirs = operands(flambeau)[name], operands(torch)[name]
    assert repr(ours) == repr(theirs)
    for wide in ("ours * 0", "ours.double()"):
        assert repr(eval(wide)) == repr(eval(wide.replace("ours", "theirs")))


@pytest.mark.parametrize("expression", lines(ERRORS))
def test_errors(expression):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever PyTorch raises
        eval(expression, operands(torch))
    with pytest.raises(theirs.type):
        eval(expression, operands(flambeau))


@pytest.mark.parametrize("kind", ["leaf", "dense"])
@pytest.mark.parametrize("expression", lines(GRADIENTS))
def test_gradients(expression, kind):
    found = []
    for library in (flambeau, torch):
        names = namespace(library)
        leaf = {"leaf": names["s"], "dense": names["d"].clone()}[kind]
        leaf.requires_grad_()
        made = {"leaf": "s", "dense": "leaf.to_sparse()"}[kind]
        names |= {"leaf": leaf, "E": names["e"].requires_grad_()}
        names["S"] = eval(made, names)
        names["W"] = library.full((2, 2), 0.5, requires_grad=True)
        eval(expression, names).backward()
        # Here, gradients are those of what is kept; PyTorch's depend on the operator.
        kept = leaf.detach().to_dense() != 0
        others = (names["E"].grad, names["W"].grad)
        found.append([leaf.grad.to_dense() * kept, *others])
    check_same(*found)


OPTIMIZERS = """
SGD([w], lr=0.1); SGD([w], lr=0.1, momentum=0.9); SGD([w], lr=0.1, momentum=0.9, nesterov=True)
SGD([w], lr=0.1, momentum=0.5, dampening=0.2, maximize=True); Adagrad([w], lr=0.5)
Adagrad([w], lr=0.5, lr_decay=0.3, initial_accumulator_value=0.1, maximize=True)
SparseAdam([w], lr=0.1); SparseAdam([w], lr=0.1, betas=(0.5, 0.8), eps=1e-3, maximize=True)
"""


@pytest.mark.parametrize("text", lines(OPTIMIZERS))
def test_training_of_tables(text):
    """Rows that are looked up twice, or not at all, over several steps."""
    tables = []
    for library in (flambeau, torch):
        w = library.arange(12.0).reshape(6, 2).div(6).requires_grad_()
        optimizer = eval(text, vars(library.optim) | {"w": w})
        for rows in ([0, 3, 3], [3, 5, 1], [5, 5, 0]):
            optimizer.zero_grad()
            found = library.nn.functional.embedding(
                library.tensor(rows), w, padding_idx=1, sparse=True
            )
            (found**2).sum().backward()
            assert w.grad.is_sparse
            optimizer.step()
        tables.append(w.detach())
    check_same(*tables)


@pytest.mark.parametrize("options", ["lr=0.1", "lr=0.1, lr_decay=0.2, weight_decay=0.1, eps=0.1"])
def test_adagrad_of_dense_gradients(options):
    weights = []
    for library in (flambeau, torch):
        w = library.arange(4.0, requires_grad=True)
        optimizer = eval(f"Adagrad([w], {options})", vars(library.optim) | {"w": w})
        for _ in range(3):
            optimizer.zero_grad()
            (w**2).sum().backward()
            optimizer.step()
        weights.append(w.detach())
    check_same(*weights)


@pytest.mark.parametrize("text", ["Adam([w])", "AdamW([w])", "SGD([w], weight_decay=0.1)",
                                  "Adagrad([w], weight_decay=0.1)"])  # fmt: skip
def test_optimizers_that_refuse_sparse_gradients(text):
    for library in (flambeau, torch):
        w = library.ones(3, 2, requires_grad=True)
        library.nn.functional.embedding(library.tensor([1]), w, sparse=True).sum().backward()
        with pytest.raises(RuntimeError):
            eval(text, vars(library.optim) | {"w": w}).step()


BAGS = """
mode="sum"; mode="mean", padding_idx=1; mode="sum", per_sample_weights=shares; mode="mean"
mode="sum", padding_idx=-2, per_sample_weights=shares; mode="mean", include_last_offset=True
"""


@pytest.mark.parametrize("options", lines(BAGS))
@pytest.mark.parametrize("even", [True, False])
def test_sparse_gradients_of_bags(options, even):
    seen = []
    for library in (flambeau, torch):
        w = (library.arange(8.0).reshape(4, 2) / 5).requires_grad_()
        shares = library.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        rows, offsets = library.tensor([1, 1, 2, 3]), library.tensor([0, 1, 1, 4])
        if even:
            rows, offsets = rows.reshape(2, 2), None
            options = options.replace(", include_last_offset=True", "")
        given = shares.reshape(rows.shape)
        found = eval(
            f"F(rows, w, offsets, sparse=True, {options})",
            {"F": library.nn.functional.embedding_bag, "w": w, "rows": rows, "shares": given,
             "offsets": offsets},
        )  # fmt: skip
        (found**2).sum().backward()
        gradient = w.grad.coalesce()
        seen.append((found.detach(), gradient.indices(), gradient.values(), shares.grad))
    check_same(*seen)


@pytest.mark.parametrize("options", ["max_norm=1.5", "max_norm=2.0, norm_type=1.0, sparse=True",
                                     "scale_grad_by_freq=True, padding_idx=2"])  # fmt: skip
def test_options_of_look_ups(options):
    seen = []
    for library in (flambeau, torch):
        w = (library.arange(12.0).reshape(6, 2) / 5).requires_grad_()
        rows = library.tensor([[0, 3, 3], [2, 5, 3]])
        found = eval(f"F(rows, w, {options})", {"F": library.nn.functional.embedding, "w": w,
                                                 "rows": rows})  # fmt: skip
        (found**2).sum().backward()
        seen.append((found.detach(), w.detach(), w.grad.to_dense()))
    check_same(*seen)
