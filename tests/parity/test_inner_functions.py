"""Functions of `torch` with inner signatures beside PyTorch: recurrent layers, sizes, old names."""

from __future__ import annotations

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of, plain

OPERANDS = """
def filled(*sizes):
    count = 1
    for n in sizes:
        count *= n
    return torch.arange(count).double().mul(0.7).add(0.3).sin().reshape(sizes)

def flat(gates, layers, directions, biases=True, width=3, hidden=2, projected=0):
    found = []
    for i in range(layers * directions):
        state = projected or hidden
        inner = width if i < directions else state * directions
        found += [filled(gates * hidden, inner), filled(gates * hidden, state) * 0.5]
        if biases:
            found += [filled(gates * hidden), -filled(gates * hidden)]
        if projected:
            found += [filled(projected, hidden)]
    return found

x, s, t = filled(5, 4, 3), filled(2, 4, 2), filled(4, 4, 2)
data, sizes = filled(7, 3), torch.tensor([4, 2, 1])
"""
CALLS = """
torch.lstm(x, (s, -s), flat(4, 2, 1), True, 2, 0.0, False, False, False)
torch.lstm(x, [t, -t], flat(4, 2, 2, False), False, 2, 0.0, True, True, False)
torch.lstm(x, (s[:, :, :1], s), flat(4, 2, 1, projected=1), True, 2, 0.0, False, False, False)
torch.lstm(data, sizes, (s, -s), flat(4, 2, 1), True, 2, 0.0, False, False)
torch.gru(x.transpose(0, 1), s, flat(3, 2, 1), True, 2, 0.0, False, False, True)
torch.gru(data, sizes, t, flat(3, 2, 2, False), False, 2, 0.0, False, True)
torch.rnn_tanh(x, s, flat(1, 2, 1), True, 2, 0.0, False, False, False)
torch.rnn_relu(data, sizes, t, flat(1, 2, 2), True, 2, 0.0, False, True)
torch.lstm_cell(x[0], (s[0], s[1]), *flat(4, 1, 1)); torch.gru_cell(x[0], s[0], *flat(3, 1, 1))
torch.rnn_tanh_cell(x[0], s[0], *flat(1, 1, 1, False)); torch.rnn_relu_cell(x[0], s[0], *flat(1, 1, 1))
torch.sym_max(1, 2); torch.sym_max(3, 2.0); torch.sym_min(True, 2); torch.sym_min(3.0, 2)
torch.sym_not(True); torch.sym_not(0); torch.sym_int(-2.7); torch.sym_float(2); torch.sym_sqrt(2)
torch.sym_sum([1, 2]); torch.sym_sum(1, 2, 3); torch.sym_sum([]); torch.sym_ite(False, 1, 2)
torch.get_device(x); torch.is_distributed(x); x.is_distributed()
torch.detach_(x * 2); torch.as_strided_(x.clone(), (2, 2), (1, 3)); torch.detach_copy(x)
x.is_xla; x.is_ipu; x.is_mtia; x.is_vulkan; x.is_maia; x.volatile
torch.has_lapack; torch.has_spectral; x.long().apply_(lambda v: v + 0.7)
x.clone().apply_(lambda v: v * 2 + 1); (x > 0).apply_(lambda v: not v)
x.half().apply_(lambda v: v / 3); x[0].t().to(torch.complex64).apply_(lambda v: v * 1j)
x.clone().map_(x[0, 0], lambda a, b: a - b); s.clone().map2_(s, s[0], lambda a, b, c: a * b + c)
torch.nn.functional.adaptive_max_pool1d_with_indices(x, 2)
torch.nn.functional.adaptive_max_pool2d_with_indices(x, (2, 1))
torch.nn.functional.adaptive_max_pool3d_with_indices(x[None], 2)
torch.spmm(x[0].to_sparse(), x[0].t()); torch.dsmm(x[0].to_sparse(), x[0].t())
torch.spmm(x[0], x[0].t()); torch.hsmm(x[0].to_sparse(), x[0].t()).coalesce().values()
x[0].to_sparse().smm(x[0].t()).to_dense()
filled(4, 4).to_sparse().sspaddmm(x[0].to_sparse(), x[0].t()).to_dense()
s.resize(4, 4); s.resize_as(filled(16))
torch.slice_inverse(x[1:3], torch.empty(5, 4, 3), 0, 1, 3); x[1:3].slice_inverse(x)
torch.native_norm(s.to_sparse()); torch.native_norm(s.to_sparse(), 1, [0, 1, 2], False, None)
torch.crow_indices_copy(x[0].to_sparse_csr()); torch.col_indices_copy(x[0].to_sparse_csr())
torch.ccol_indices_copy(x[0].to_sparse_csc()); torch.row_indices_copy(x[0].to_sparse_csc())
torch.values_copy(x[0].to_sparse_csr())
torch.saddmm(filled(4, 4).to_sparse(), x[0].to_sparse(), x[0].t()).to_dense()
x.to_sparse().resize_as_sparse_(filled(6, 4, 3).to_sparse()).to_dense()
"""  # noqa: E501 - a call a line
REFUSED = """
torch.eig(x); torch.symeig(x); torch.lstsq(x, x); torch.lstsq(x); torch.solve(x, x)
torch.matrix_rank(x); torch.sym_max(x, 1); torch.sym_ite(1, 1, 2); torch.sym_ite(True, 1, 2.0)
torch.sym_sqrt(-1); torch.detach_(x.requires_grad_()[0])
torch.lstm(x, (s, -s), flat(4, 1, 1), True, 2, 0.0, False, False, False); torch.gru(x, s)
x.apply_(3); x.clone().apply_(lambda v: "a"); x.requires_grad_().apply_(float); x.resize(7)
torch.slice_inverse(x[0].clone(), x); torch.native_norm(x); torch.values_copy(x)
torch.native_norm(x.to_sparse(), 2, [0], False, None); torch.resize_as_sparse_(x, x)
torch.native_norm(x.to_sparse(), 2, [], True, None); torch.crow_indices_copy(x)
torch.x.to_sparse().resize_as_sparse_(s.to_sparse()); torch.set_anomaly_enabled(1)
torch.from_file("/nowhere/at/all", True, 2); torch.from_file("/nowhere/at/all", size=2)
x.map_(x.float(), max); s[0].map_(s, max); s.map2_(s, s.float(), max); x[0].smm(x[0].t())
"""


def same(ours, theirs):
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if not isinstance(theirs, torch.Tensor):
        return type(ours) is type(theirs) and ours == theirs
    torch.testing.assert_close(plain(ours), theirs.detach(), check_stride=False)
    return ours.stride() == theirs.stride() and ours.requires_grad == theirs.requires_grad


@pytest.mark.parametrize("call", lines(CALLS.replace("; torch", "\ntorch")))
def test_same_result(call):
    ours, theirs = (eval(call, names_of(m, OPERANDS)) for m in (flambeau, torch))
    assert same(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("call", lines(REFUSED))
def test_same_exception(call):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - the type is compared
        eval(call, names_of(torch, OPERANDS))
    with pytest.raises(theirs.type):
        eval(call, names_of(flambeau, OPERANDS))


def test_gradients_of_a_layer():
    found = []
    for m in (flambeau, torch):
        names = names_of(m, OPERANDS)
        params = [p.requires_grad_() for p in names["flat"](4, 2, 1)]
        state = (names["s"], -names["s"])
        result = m.lstm(names["x"], state, params, True, 2, 0.0, True, False, False)
        (result[0] * names["filled"](5, 4, 2)).sum().backward()
        found.append([p.grad for p in params])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(plain(ours), theirs)
