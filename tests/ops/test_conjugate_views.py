"""Conjugates, adjoints and imaginary parts of conjugates are views, as in PyTorch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

View = Callable[[torch.Tensor], torch.Tensor]
VIEWS: dict[str, tuple[View, View]] = {
    "conj": (lambda x: x.conj(), lambda x: x.conj_physical()),
    "mH": (lambda x: x.mH, lambda x: x.conj_physical().mT),
    "H": (lambda x: x.H, lambda x: x.conj_physical().T),
    "row": (lambda x: x.conj()[0], lambda x: x.conj_physical()[0]),
    "slice": (lambda x: x.conj()[:, ::2], lambda x: x.conj_physical()[:, ::2]),
    "imag": (lambda x: x.conj().imag, lambda x: x.conj_physical().imag),
    "real": (lambda x: x.conj().real, lambda x: x.conj_physical().real),
    "twice": (lambda x: x.conj().conj(), lambda x: x.clone()),
    "negative": (lambda x: x._neg_view().conj(), lambda x: -x.conj_physical()),
}


def matrix(dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.tensor([[1 + 2j, 3 - 1j], [0.5j, -2 + 1j]], dtype=dtype)


@pytest.mark.parametrize("name", VIEWS)
def test_values_and_memory(name: str):
    view, physical = VIEWS[name]
    x = matrix()
    y, expected = view(x), physical(x)
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert y.tolist() == expected.tolist()
    assert torch.equal(y, expected)
    assert torch.equal(y.clone(), expected)
    assert torch.equal(y + 1, expected + 1)
    assert torch.equal(y.reshape(-1), expected.reshape(-1))
    assert torch.equal(torch.stack([y, y]), torch.stack([expected, expected]))
    assert torch.equal(torch.asarray(y, copy=True), expected)
    assert repr(y) == repr(expected)
    resolved = y.resolve_conj().resolve_neg()
    assert not resolved.is_conj()
    assert not resolved.is_neg()
    assert torch.equal(resolved, expected)
    for duplicate in (copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert torch.equal(duplicate, expected)


@pytest.mark.parametrize("name", VIEWS)
def test_writes_reach_the_base(name: str):
    view, physical = VIEWS[name]
    for write in (
        lambda y: y.mul_(3),
        lambda y: y.add_(1),
        lambda y: y.zero_(),
        lambda y: y.copy_(torch.full_like(y, 5)),
        lambda y: y.__setitem__(0, 7),
        lambda y: y.masked_fill_(y.abs() > 1, 4),
        lambda y: torch.mul(y, 2, out=y),
    ):
        x = matrix()
        y, version = view(x), x._version
        expected = physical(x)
        result = write(y)
        write(expected)
        assert result is None or result is y
        assert x._version == version + 1
        assert torch.equal(y, expected)
        assert torch.equal(physical(x), expected)


def test_flags():
    x = matrix()
    assert x.conj().is_conj()
    assert x.mH.is_conj()
    assert torch.is_conj(x.conj())
    assert not x.conj().conj().is_conj()
    assert x.conj().imag.is_neg()
    assert not x.conj().real.is_neg()
    assert not x._neg_view().conj().imag.is_neg()
    assert not x.conj().clone().is_conj()
    assert x.conj().detach().is_conj()
    assert x.conj().contiguous().is_conj()
    assert not x.conj().is_set_to(x)
    assert x.conj()._base is x
    real = torch.ones(2)
    assert real.conj() is real
    assert torch._neg_view(real).tolist() == [-1.0, -1.0]


def test_what_reads_memory_is_refused(tmp_path: Any):
    x = matrix()
    with pytest.raises(RuntimeError, match="conjugate bit"):
        x.conj().numpy()
    with pytest.raises(RuntimeError, match="negative bit"):
        x.conj().imag.numpy()
    assert x.conj().numpy(force=True).tolist() == x.conj().tolist()
    with pytest.raises(BufferError):
        x.conj().__dlpack__()
    with pytest.raises(RuntimeError, match="unresolved conj"):
        torch.view_as_real(x.conj())
    with pytest.raises(RuntimeError, match="unresolved conj"):
        x.conj().view(torch.float32)
    torch.save(x.conj(), tmp_path / "file")
    assert torch.equal(torch.load(tmp_path / "file"), x.conj())


@pytest.mark.parametrize("name", ["conj", "mH", "imag", "real", "negative"])
def test_gradients(name: str):
    view, physical = VIEWS[name]

    def squares(take: View) -> torch.Tensor:
        x = matrix(torch.complex128).requires_grad_()
        (take(x) * take(x.clone())).abs().sum().backward()
        return x.grad

    assert torch.allclose(squares(view), squares(physical))
    x = matrix(torch.complex128).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: view(z) * view(z), (x,))
    assert torch.autograd.gradgradcheck(lambda z: view(z) * view(z), (x,))


def test_gradients_of_writes():
    def gradient(conjugate: View) -> torch.Tensor:
        x = matrix(torch.complex128).requires_grad_()
        z = x * 1
        y = z.conj()
        y.mul_(2 + 1j)  # through the view
        z.mul_(1j)  # through the base: the view has a new history
        (conjugate(y) * z).abs().sum().backward()
        return x.grad

    assert torch.allclose(gradient(lambda y: y), gradient(lambda y: y.conj().conj_physical()))
    x = matrix(torch.complex128).requires_grad_()

    def written(z: torch.Tensor) -> torch.Tensor:
        z = z * 1
        y = z.conj()
        y[0] = y[1] * (1 + 2j)
        return z * y

    assert torch.autograd.gradcheck(written, (x,))


def _program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.conj()
    product = x @ y.mT
    y.mul_(2j)
    return product, x + y, y.imag * 3, y[0], x.mH @ x


def test_compiled_equals_eager():
    expected = _program(matrix())
    results = torch.compile(_program)(matrix())
    for result, value in zip(results, expected, strict=True):
        assert torch.equal(result, value)

    def products(x: torch.Tensor) -> torch.Tensor:
        return (x.conj() @ x.conj().mT).imag.sum() + (x.mH * x).real.sum()

    def gradient(function: Any) -> torch.Tensor:
        x = matrix().requires_grad_()
        function(x).backward()
        return x.grad

    assert torch.equal(gradient(torch.compile(products)), gradient(products))


def test_samples_of_a_batch():
    x = matrix()
    norms = torch.func.vmap(lambda row: (row.conj() * row).real.sum())(x)
    assert torch.equal(norms, torch.stack([(r.conj() * r).real.sum() for r in x]))
    _, tangent = torch.func.jvp(lambda z: z.conj() * z, (x,), (x,))
    assert torch.allclose(tangent, 2 * x.conj() * x)


def test_a_write_to_a_view_without_a_base_has_a_gradient():
    y, w = matrix().conj().detach(), matrix().requires_grad_()
    y.add_(w).mul_(1j)
    assert y.is_conj()
    assert y.requires_grad
    y.backward(matrix())
    assert torch.equal(w.grad, matrix() * -1j)


class Labelled(torch.Tensor):
    """A class of users, which shares memory as plain tensors do."""


def test_subclasses_and_meta_tensors():
    """Their conjugates are views with the bit, too."""
    x = torch.tensor([[1 + 2j, 3 - 1j], [2j, 1]])
    view = x.as_subclass(Labelled).conj()
    assert view.is_conj() and type(view) is Labelled and type(view + 1) is Labelled
    assert (view @ view).tolist() == (x.conj().resolve_conj() @ x.conj().resolve_conj()).tolist()
    view.mul_(2)
    assert x[0].tolist() == [2 + 4j, 6 - 2j]
    leaf = x.as_subclass(Labelled).requires_grad_()
    (leaf.conj() * leaf).real.sum().backward()
    assert leaf.grad.tolist() == (2 * x).tolist()
    empty = x.to("meta").conj()
    assert empty.is_conj() and empty._is_view() and empty[0].is_conj()
    assert not (empty + 1).is_conj() and (empty @ empty).shape == (2, 2)
    assert empty.imag.is_neg() and not empty.resolve_conj().is_conj()
