"""Numbers before the tensors that they multiply: the order of arguments of older programs."""

from __future__ import annotations

import warnings

import pytest

import flambeau as torch

A = torch.tensor([1.0, 2.0])
B = torch.tensor([3.0, -1.0])
M = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
BATCH = torch.stack([M, 2 * M])
FORMS = {
    "add": (lambda: torch.add(A, 2, B), lambda: torch.add(A, B, alpha=2)),
    "add_method": (lambda: A.add(2, B), lambda: A.add(B, alpha=2)),
    "add_": (lambda: A.clone().add_(0.5, B), lambda: A.clone().add_(B, alpha=0.5)),
    "add_named": (lambda: A.add(2, other=B), lambda: A.add(B, alpha=2)),
    "add_number": (lambda: torch.add(2, 3, B), lambda: torch.add(2, B, alpha=3)),
    "sub_": (lambda: A.clone().sub_(2, B), lambda: A.clone().sub_(B, alpha=2)),
    "tensor": (lambda: A.add(torch.tensor(2.0), B), lambda: A.add(B, alpha=2.0)),
    "out": (
        lambda: torch.add(A, 2, B, out=torch.empty(2)),
        lambda: torch.add(A, B, alpha=2, out=torch.empty(2)),
    ),
    "addcmul_": (
        lambda: A.clone().addcmul_(0.1, B, B),
        lambda: A.clone().addcmul_(B, B, value=0.1),
    ),
    "addcdiv_": (
        lambda: A.clone().addcdiv_(-0.1, A, B),
        lambda: A.clone().addcdiv_(A, B, value=-0.1),
    ),
    "addcdiv_named": (
        lambda: torch.addcdiv(A, 2, A, tensor2=B),
        lambda: torch.addcdiv(A, A, B, value=2),
    ),
    "addmm": (lambda: torch.addmm(2, M, 3, M, M), lambda: torch.addmm(M, M, M, beta=2, alpha=3)),
    "addmm_beta": (lambda: M.addmm(2, M, M), lambda: M.addmm(M, M, beta=2)),
    "addmv_": (
        lambda: A.clone().addmv_(2, 3, M, B),
        lambda: A.clone().addmv_(M, B, beta=2, alpha=3),
    ),
    "addr": (lambda: torch.addr(2, M, A, B), lambda: torch.addr(M, A, B, beta=2)),
    "addbmm": (
        lambda: M.addbmm(2, 3, BATCH, BATCH),
        lambda: M.addbmm(BATCH, BATCH, beta=2, alpha=3),
    ),
    "baddbmm_": (
        lambda: BATCH.clone().baddbmm_(2, BATCH, BATCH),
        lambda: BATCH.clone().baddbmm_(BATCH, BATCH, beta=2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_former_order_is_todays(form):
    former, present = FORMS[form]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = present()
        assert former().equal(expected)
        assert torch.compile(former)().equal(expected)


def test_gradients_and_samples():
    x = A.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.addcmul(A, 2, x, B).sum().backward()
        assert x.grad.equal(2 * B)
        mapped = torch.vmap(lambda row: row.add(2, row))(M)
        assert mapped.equal(3 * M)


def test_one_warning_per_process():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        A.add(2, B)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        A.clone().addcmul_(2, B, B)


@pytest.mark.parametrize(
    "call",
    [
        lambda: A.add(B, 2),
        lambda: A.clone().addcdiv_(A, B, 2),
        lambda: torch.div(A, 2, B),
        lambda: A.add(B, B),
        lambda: torch.addmm(M, M, M, 2),
        lambda: A.add(2, B, alpha=3),
    ],
)
def test_other_orders_are_refused(call):
    with pytest.raises(TypeError, match="hint"):
        call()
