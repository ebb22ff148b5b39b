"""Operands that share memory with the target: refused where PyTorch refuses them, else taken.

Known differences, which are no part of the lists: memory that repeats (an expanded `out=`) is
refused here wherever the result would depend on the order of writes; `addmv_` and `baddbmm_` of
expanded targets, and `index_put_` of them, likewise. Index results of `sort` and `kthvalue`, and
the indices of `take_along_dim`, may not share memory here.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

CALLS = """
t.addr(x[0], x[1:4], x[2:5], out=square(1))
t.addr(x[1:4], v, v, out=square(0))
t.addr(square(1), v, v, out=square(0))
t.addr(square(0), v, v, out=square(0))
t.addr(square(9), x[1:4], v, out=square(0))
t.addr(square(9), v, x[1:4], out=square(0))
t.addr(square(9), x[1:2], x[1:2], out=x[0:1].view(1, 1))
t.addr(square(9), v, v, beta=0, out=square(8))
t.addr(x[1:4], x[1:4], v, out=square(0))
square(0).addr_(x[1:4], v)
square(0).addr_(v, x[1:4])
t.addmv(x[1:2], ones, v, out=x[0:3])
t.addmv(x[1], ones, v, out=x[0:3])
t.addmv(x[1:4], ones, v, out=x[0:3])
t.addmv(x[9:12], ones, x[1:4], out=x[0:3])
t.addmv(x[9:12], square(1), v, out=x[0:3])
t.addmm(x[1:4].view(1, 3), ones, ones, out=square(0))
t.addmm(x[1:4].view(3, 1), ones, ones, out=square(0))
t.addmm(x[1:4], ones, ones, out=square(0))
t.addmm(square(1), ones, ones, out=square(0))
t.addbmm(square(1), ones[None], ones[None], out=square(0))
t.addbmm(x[1:4], ones[None], ones[None], out=square(0))
t.baddbmm(square(1), ones[None], ones[None], out=square(0)[None])
t.baddbmm(square(1)[None], ones[None], ones[None], out=square(0)[None])
square(0).addbmm_(square(1)[None], ones[None])
square(0).addbmm_(square(0)[None], ones[None])
square(0).addmm_(square(1), ones)
square(0).addmm_(square(0), ones)
square(0).addmm_(ones, square(1))
x[:3].addmv_(square(1), v)
x[:3].addmv_(ones, x[1:4])
square(0)[None].baddbmm_(square(1)[None], ones[None])
x[0:1].expand(3, 3).addmm_(ones, ones)
x[0:1].expand(3, 3).addbmm_(ones[None], ones[None])
x[0:1].expand(3, 3).addr_(v, v)
t.ldexp(x[1:4], v, out=x[:3])
t.ldexp(v, x[1:4], out=x[:3])
x[:3].ldexp_(x[1:4])
t.take_along_dim(x[1:4], n[:3], 0, out=x[:3])
t.take_along_dim(x[1:4], n[:3], out=x[:3])
t.take_along_dim(square(1), whole(0)*0, 0, out=square(0))
t.take_along_dim(square(1), n[:3].view(1, 3), 0, out=x[:3].view(1, 3))
t.take_along_dim(n[:3], n[1:4]*0, 0, out=n[:3])
t.gather(x[1:4], 0, n[:3], out=x[:3])
t.diff(x[1:4], out=x[:2])
t.diff(x[1:4], out=x[1:3])
t.diff(x[1:6], n=2, out=x[:3])
t.diff(x[1:4], n=0, out=x[:3])
t.diff(v, prepend=x[1:3], out=x[:4])
t.diff(v, append=x[1:3], out=x[:4])
t.nonzero(n[1:4], out=n[:3].view(3, 1))
t.nonzero(n[1:4], out=n[1:4].view(3, 1))
t.nonzero(square(1), out=n[:18].view(9, 2))
t.multinomial(x[1:4], 3, out=n[:3])
t.multinomial(x[1:4], 2, out=n[0:1].expand(2))
L.matrix_power(square(1), 1, out=square(0))
L.matrix_power(square(0), 1, out=square(0))
L.matrix_power(square(1), 0, out=square(0))
L.matrix_power(square(1), 2, out=square(0))
L.matrix_power(square(1), 3, out=square(0))
L.matrix_power(square(1)+ones, -1, out=square(0))
t.matrix_power(square(1), 1, out=square(0))
L.multi_dot([square(1), ones], out=square(0))
t.chain_matmul(square(1), out=square(0))
t.max(square(1), 0, out=(x[:3], n[:3]))
t.max(whole(1), 0, out=(n[20:23], n[:3]))
t.min(whole(1), 0, out=(n[20:23], n[:3]))
t.max(whole(1), 0, out=(n[:3], n[:3]))
t.topk(x[1:6], 2, out=(x[:2], n[:2]))
t.topk(n[1:6], 2, out=(n[10:12], n[:2]))
t.mode(square(1), 0, out=(x[:3], n[:3]))
t.mode(whole(1), 0, out=(n[20:23], n[:3]))
t.kthvalue(square(1), 2, 0, out=(x[:3], n[:3]))
t.median(square(1), 0, out=(x[:3], n[:3]))
t.nanmedian(square(1), 0, out=(x[:3], n[:3]))
t.sort(x[1:4], out=(x[:3], n[:3]))
t.cummax(x[1:4], 0, out=(x[:3], n[:3]))
t.cummax(n[1:4], 0, out=(n[20:23], n[:3]))
t.aminmax(square(1), dim=0, out=(x[:3], x[20:23]))
t.aminmax(square(1), dim=0, out=(x[20:23], x[:3]))
t.aminmax(square(1), out=(x[0], x[3]))
t.argmax(whole(1), 0, out=n[:3])
t.argsort(n[1:4], out=n[:3])
t.msort(x[1:4], out=x[:3])
t.amax(square(1), 0, out=x[:3])
t.sum(square(1), 0, out=x[:3])
t.searchsorted(n[1:4], n[:3], out=n[2:5])
t.bucketize(n[:3], n[1:4], out=n[2:5])
t.inner(x[1], x[2:5], out=x[1:4])
t.inner(x[2:5], x[1], out=x[1:4])
t.inner(x[2:5], x[2:5], out=x[3])
t.inner(square(1), square(1), out=square(0))
t.linalg.lu_solve(ones, t.tensor([1, 2, 3], dtype=t.int32), square(1), out=square(0))
t.lu_solve(square(1), ones, t.tensor([1, 2, 3], dtype=t.int32), out=square(0))
t.triangular_solve(square(1), ones, out=(square(0), square(20)))
t.triangular_solve(ones, square(1), out=(square(0), square(20)))
t.triangular_solve(ones, square(1), out=(square(20), square(0)))
t.cholesky_solve(square(1), ones, out=square(0))
L.solve(ones+t.eye(3), square(1), out=square(0))
L.inv(square(1)+ones, out=square(0))
L.solve(square(1)+t.eye(3), ones, out=square(0))
t.cholesky_inverse(square(1), out=square(0))
t.cumsum(x[1:4], 0, out=x[:3])
t.logcumsumexp(x[1:4], 0, out=x[:3])
t.cumprod(x[1:4], 0, out=x[:3])
t.tril(square(1), out=square(0))
t.diag(x[1:4], out=square(0))
t.renorm(square(1), 2, 0, 1., out=square(0))
t.cross(x[1:4], v, out=x[:3])
t.kron(x[1:4], v, out=x[:9])
t.outer(x[1:4], v, out=square(0))
t.dot(x[1:4], v, out=x[1])
t.mv(square(1), v, out=x[:3])
t.mm(square(1), ones, out=square(0))
t.index_select(x[1:6], 0, n[:3], out=x[:3])
t.masked_select(x[1:4], x[1:4]>0, out=x[:3])
t.take(x[1:6], n[:3], out=x[:3])
t.split_with_sizes_copy(x[1:7], [3, 3], out=[x[:3], x[10:13]])
t.split_copy(x[1:7], 3, out=[x[:3], x[10:13]])
t.frobenius_norm(square(1), (0, ), out=x[:3])
t.nuclear_norm(square(1), out=x[2])
t.norm(square(1), 2, 0, out=x[:3])
t.full((3, ), 2., out=x[0:1].expand(3))
t.oness(3, out=x[0:1].expand(3))
t.zeros(3, out=x[0:1].expand(3))
t.empty(3, out=x[0:1].expand(3))
t.arange(3., out=x[0:1].expand(3))
t.linspace(0, 1, 3, out=x[0:1].expand(3))
t.randn(3, out=x[0:1].expand(3))
t.randint(3, (3, ), out=n[0:1].expand(3))
t.normal(v, v, out=x[0:1].expand(3))
t.cat([x[:2], x[2:3]], out=x[9:10].expand(3))
t.stack([x[:3], x[:3]], out=x[9:10].expand(2, 3))
t.index_select(x, 0, n[:3], out=x[9:10].expand(3))
t.gather(x, 0, n[:3], out=x[9:10].expand(3))
t.where(x[:3]>0, x[:3], x[:3], out=x[9:10].expand(3))
t.matmul(ones, ones, out=x[9:10].expand(3, 3))
t.bernoulli(v, out=x[9:10].expand(3))
x[9:10].expand(3).masked_scatter_(v>0, v)
x[9:10].expand(3).scatter_(0, n[:2], 3.)
x[9:10].expand(3).index_add_(0, n[:2], v[:2])
x[9:10].expand(3).index_copy_(0, n[:2], v[:2])
x[9:10].expand(3).copy_(v)
x[9:10].expand(3).bernoulli_()
x[9:10].expand(3).clamp_(0, 1)
x[9:10].expand(3).relu_()
x[9:10].expand(3).put_(n[:2], v[:2])
x[9:10].expand(3).__setitem__(0, 3.)
x[9:10].expand(3).__setitem__(slice(None), v)
t.nn.functional.relu(x[9:10].expand(3), inplace=True)
t.nn.functional.dropout(x[9:10].expand(3), .5, True, True)
"""
# Of expanded tensors those elements are written that change.
FILLS = """
x[9:10].expand(3).masked_fill_(v > 0, 3.)
x[9:10].expand(3).masked_fill_(n[:3] > 1, 3.)
x[:3].expand(2, 3).masked_fill_(square(0)[:2] > .1, 3.)
x[9:10].expand(3).index_fill_(0, n[:2], 3.)
x[:3].expand(2, 3).index_fill_(1, n[:2], 3.)
x[9:10].expand(3, 3).tril_()
x[1:4, None].expand(3, 3).triu_()
x[9:10].expand(3, 3).fill_diagonal_(2.)
x[9:10].expand(3).__setitem__(x[9:10].expand(3) > 0, 3.)
t.nn.functional.threshold_(x[:3].expand(2, 3), .05, 3.)
t.full((3,), 2., out=x[0:1].expand(3))
t.ones(2, 3, out=x[:3].expand(2, 3))
t.zeros(3, out=x[1:2].expand(3))
t.empty(3, out=x[0:1].expand(3))
"""


def lines(text):
    return [line for line in text.split("\n") if line]


def run(t, call):
    """The exception's type, or None; and the memory afterwards."""
    x, n = t.arange(30.0) / 30, t.arange(30)
    names = {
        "t": t, "x": x, "n": n, "L": t.linalg, "ones": t.ones(3, 3), "v": t.ones(3),
        "square": lambda start: x[start : start + 9].view(3, 3),
        "whole": lambda start: n[start : start + 9].view(3, 3),
    }  # fmt: skip
    try:
        eval(call, names)
    except Exception as error:
        return type(error).__name__, x.tolist()
    return None, x.tolist()


@pytest.mark.filterwarnings("ignore")
def test_refused_or_taken():
    outcomes = [(call, *(run(t, call)[0] for t in (torch, flambeau))) for call in lines(CALLS)]
    assert not [entry for entry in outcomes if entry[1] != entry[2]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", lines(FILLS))
def test_values(call):
    theirs, ours = run(torch, call), run(flambeau, call)
    assert theirs[0] is None
    assert ours == theirs
