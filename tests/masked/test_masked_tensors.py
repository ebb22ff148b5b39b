"""Masked tensors mean the elements their mask is True for, and nothing else."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings

import pytest

import flambeau as torch
from flambeau.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

pytestmark = pytest.mark.filterwarnings("ignore:.*MaskedTensor:UserWarning")


def data():
    return torch.arange(12.0).view(3, 4).sub(2.5)


def mask():
    return torch.arange(12).view(3, 4) % 3 != 1


def poisoned(**options):
    """What is masked out is NaN: it must not be seen anywhere."""
    return masked_tensor(torch.where(mask(), data(), math.nan), mask(), **options)


# ------------------------------------------------------------------------------ what they are
def test_data_and_mask_are_copies():
    kept, places = data(), mask()
    x = masked_tensor(kept, places)
    kept.zero_()
    places.fill_(False)
    assert torch.equal(x.get_data(), data()) and torch.equal(x.get_mask(), mask())
    assert is_masked_tensor(x) and not is_masked_tensor(kept) and isinstance(x, torch.Tensor)
    assert (x.shape, x.dtype, x.stride(), x.is_contiguous()) == (
        (3, 4),
        torch.float32,
        (4, 1),
        True,
    )
    assert torch.equal(x.to_tensor(7), torch.where(mask(), data(), 7.0))
    assert MaskedTensor(data(), mask(), True).requires_grad


def test_what_makes_no_masked_tensor():
    for kept, places, error in (
        (data(), mask().float(), TypeError), (data().bfloat16(), mask(), TypeError),
        (data(), mask()[0], ValueError), (data(), mask()[:2], ValueError),
        (data().to_sparse(), mask(), TypeError), ([1.0], mask(), TypeError),
        (masked_tensor(data(), mask()), mask(), TypeError),
    ):  # fmt: skip
        for make in (masked_tensor, as_masked_tensor, MaskedTensor):
            with pytest.raises(error, match="masked_tensor"):
                make(kept, places)


@pytest.mark.filterwarnings("default")
def test_warnings_name_the_line_of_the_user():
    for make in (masked_tensor, MaskedTensor, as_masked_tensor):
        with pytest.warns(UserWarning, match="prototype stage") as found:
            x = make(data(), mask())
        assert found[0].filename == __file__
    with pytest.warns(UserWarning, match="requires_grad"):
        masked_tensor(data().requires_grad_(), mask())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x + x).sum()


def test_printing_of_empty_ones():
    x = masked_tensor(torch.zeros(2, 0), torch.zeros(2, 0).bool())
    assert repr(x) == "MaskedTensor(\n  [\n    [],\n    []\n  ]\n)"


def test_numbers():
    x = masked_tensor(torch.tensor([3.0, 4.0]), torch.tensor([True, False]))
    assert (x[0].item(), float(x.sum()), int(x.sum()), bool(x[0] == 3)) == (3.0, 3.0, 3, True)
    for call, error in (
        (lambda: x[1].item(), ValueError), (lambda: float(x), ValueError),
        (x.item, RuntimeError), (lambda: bool(x), RuntimeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()


def test_copies_and_files():
    for x in (poisoned(requires_grad=True), poisoned().to_sparse_csr(), poisoned().to_sparse_coo()):
        buffer = io.BytesIO()
        torch.save({"x": x}, buffer)
        buffer.seek(0)
        copies = (
            copy.copy(x),
            copy.deepcopy(x),
            pickle.loads(pickle.dumps(x)),
            torch.load(buffer)["x"],
        )
        for y in copies:
            assert (repr(y), y.layout, y.requires_grad) == (repr(x), x.layout, x.requires_grad)


# ------------------------------------------------------------------------------ operators
def test_masked_elements_take_no_part():
    x, kept = poisoned(), data()[mask()]
    for name in ("sum", "mean", "prod", "amax", "amin", "norm", "std"):
        found, expected = getattr(x, name)(), getattr(kept, name)()
        torch.testing.assert_close(found.to_tensor(0), expected)
    rows = torch.stack([data()[i][mask()[i]].sum() for i in range(3)])
    assert torch.equal(x.sum(1).to_tensor(0), rows)
    assert torch.equal((x * x + 1).sum(1).get_mask(), torch.ones(3).bool())
    soft = x.softmax(1).to_tensor(0)
    torch.testing.assert_close(soft.sum(1), torch.ones(3))
    assert torch.equal(x.all(1).to_tensor(False), torch.ones(3).bool())


def test_nothing_left_is_masked_out():
    x = masked_tensor(torch.ones(2, 2), torch.tensor([[True, False], [False, False]]))
    for found in (x.sum(1), x.mean(1), x.amax(1), x.norm(dim=1), x.all(1), x.argmin(1)):
        assert found.get_mask().tolist() == [True, False]
    assert x.sum(0, keepdim=True).get_mask().tolist() == [[True, False]]
    assert masked_tensor(torch.ones(()), torch.tensor(False)).sum().get_mask().item() is False


def test_norms():
    x = masked_tensor(torch.tensor([3.0, 9.0, -4.0]), torch.tensor([True, False, True]))
    assert (x.norm().item(), x.norm(1).item(), x.norm(math.inf).item()) == (5.0, 7.0, 4.0)
    assert torch.linalg.vector_norm(x).item() == 5.0 and x.norm(-math.inf).item() == 3.0
    with pytest.raises(NotImplementedError):
        x.norm("nuc")


def test_options_of_operators():
    x, y = masked_tensor(data(), mask()), masked_tensor(data().cos(), mask())
    pairs = (
        (torch.add(x, y, alpha=2), data().add(data().cos(), alpha=2)),
        (torch.div(x, y, rounding_mode="floor"), data().div(data().cos(), rounding_mode="floor")),
        (x.div(2, rounding_mode="trunc"), data().div(2, rounding_mode="trunc")),
        (x.round(decimals=1), data().round(decimals=1)), (2 - x, 2 - data()), (2**x, 2 ** data()),
        (torch.clamp(input=x, max=2), data().clamp(max=2)), (x.T.T, data()),
        (torch.max(x, y), torch.max(data(), data().cos())),
    )  # fmt: skip
    for found, expected in pairs:
        assert torch.equal(found.to_tensor(0), torch.where(mask(), expected, 0))
    assert x.sum(0, dtype=torch.float64).dtype is torch.float64
    assert torch.equal(x.sum(axis=0).to_tensor(0), x.sum(0).to_tensor(0))
    torch.testing.assert_close(
        x.var(unbiased=False).item(), data()[mask()].var(unbiased=False).item()
    )


def test_masks_have_to_agree():
    x = masked_tensor(data(), mask())
    same = masked_tensor(data(), mask())
    other = masked_tensor(data(), ~mask())
    assert torch.equal((x + same).get_mask(), mask())
    for call in (lambda: x + other, lambda: x.mul_(other), lambda: x.copy_(other),
                 lambda: x * x.to_sparse(), lambda: x[x > 0]):  # fmt: skip
        with pytest.raises(ValueError):
            call()


def test_dense_operands_take_the_mask_on():
    x = masked_tensor(data(), mask())
    for dense in (torch.ones(3, 4), torch.ones(4), torch.tensor(2.0), torch.ones(2, 3, 4)):
        found = x * dense
        assert torch.equal(found.get_data(), data() * dense)
        assert torch.equal(found.get_mask(), mask().expand(found.shape))
        assert torch.equal((dense * x).get_data(), found.get_data())


def test_in_place_and_copies_of_parts():
    x = masked_tensor(data(), mask())
    row = x[0]
    assert x.add_(1) is x and torch.equal(x.get_data(), data() + 1)
    assert torch.equal(row.get_data(), data()[0])
    x.mul_(x).sqrt_().eq_(0)
    assert x.dtype is torch.float32
    s = masked_tensor(data(), mask()).to_sparse()
    s.abs_().add_(s)
    assert torch.equal(s.to_tensor(0), torch.where(mask(), 2 * data().abs(), 0))


def test_where_chooses_masks_too():
    x, y = masked_tensor(data(), mask()), masked_tensor(data() * 2, ~mask())
    chosen = torch.where(mask(), x, y)
    assert chosen.get_mask().all()
    assert torch.equal(chosen.get_data(), torch.where(mask(), data(), data() * 2))
    assert torch.equal(torch.where(mask(), 0.0, x).get_mask(), mask())
    with pytest.raises(TypeError, match="condition"):
        torch.where(x > 0, x, y)


def test_rows_can_be_looped_over():
    x = masked_tensor(data(), mask())
    assert [float(row.sum()) for row in x] == x.sum(1).get_data().tolist()


def test_kron_and_windows():
    x = masked_tensor(data(), mask())
    assert torch.equal(torch.kron(x, x).get_mask(), torch.kron(mask().int(), mask().int()).bool())
    image = masked_tensor(data()[None, None], mask()[None, None])
    found = torch.nn.functional.unfold(image, (2, 2))
    expected = torch.nn.functional.unfold(mask().float()[None, None], (2, 2)).bool()
    assert torch.equal(found.get_mask(), expected)


def test_what_masked_tensors_do_not_have():
    x = masked_tensor(data(), mask())
    calls = (
        lambda: x.cumsum(0), lambda: x @ x.T, lambda: torch.relu(x), lambda: x.max(),
        lambda: torch.sort(x), lambda: torch.cat([x, data()]), lambda: data().add_(x),
        lambda: torch.zeros_like(x), lambda: x.pow(x), lambda: x.values(), lambda: x.fill_(1.0),
        lambda: x.__setitem__(0, 1.0), lambda: x.view(torch.int32),
        lambda: x.as_strided((2,), (1,)),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError):
            call()
    for call in (x.numpy, x.tolist, x.untyped_storage, x.data_ptr):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(ValueError, match="out="):
        torch.sin(x, out=data())


# ------------------------------------------------------------------------------ layouts
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_data(layout):
    x = poisoned()
    s = x.to_sparse(layout=layout)
    assert s.layout is layout and s.get_data().layout is layout is s.get_mask().layout
    assert (s.is_sparse_coo(), s.is_sparse_csr()) == (
        layout is torch.sparse_coo, layout is torch.sparse_csr
    )  # fmt: skip
    for function in (
        lambda t: t, torch.cos, lambda t: t * t + 1, lambda t: t > 0, lambda t: t.t(),
        lambda t: t[0], lambda t: t.sum(), lambda t: t.mean(0), lambda t: t.double(),
        lambda t: t.clone().to_dense(), lambda t: t.to_sparse_csr(),
    ):  # fmt: skip
        found, expected = function(s), function(x)
        assert torch.equal(found.to_tensor(0), expected.to_tensor(0))
        assert torch.equal(found.to_dense().get_mask(), expected.to_dense().get_mask())
    with pytest.raises(TypeError, match="layout"):
        x.to_sparse(layout=torch.sparse_csc)


def test_data_are_kept_where_the_mask_is():
    kept = torch.ones(2, 3).to_sparse()
    places = torch.tensor([[True, False, True], [False, False, True]]).to_sparse()
    x = masked_tensor(kept, places)
    assert torch.equal(x.get_data().indices(), places.coalesce().indices())
    assert x.sum().item() == 3.0


# ------------------------------------------------------------------------------ gradients
def test_gradients_are_masked_and_never_nan():
    x = poisoned(requires_grad=True)
    (x * x).sum().backward()
    assert isinstance(x.grad, MaskedTensor) and x.is_leaf
    assert torch.equal(x.grad.get_mask(), mask())
    assert torch.equal(x.grad.get_data(), torch.where(mask(), 2 * data(), 0))
    dense = data().requires_grad_()
    places = mask() & (data() > 0)
    factor = torch.arange(4.0).add(1).requires_grad_()
    (as_masked_tensor(dense, places).sqrt() * factor).sum().backward()
    expected = torch.where(places, (torch.arange(4.0) + 1) / 2 / data().abs().sqrt(), 0)
    torch.testing.assert_close(dense.grad, expected)
    roots = torch.where(places, data().abs().sqrt(), 0)
    torch.testing.assert_close(factor.grad, roots.sum(0))


def test_gradients_of_gradients_and_hooks():
    x = poisoned(requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second.to_tensor(0), torch.where(mask(), 6 * data(), 0))
    x.register_hook(lambda g: g * 2)
    x.sum().backward()
    assert torch.equal(x.grad.to_tensor(0), torch.where(mask(), 2.0, 0.0))


def test_seeds_of_a_backward():
    x = poisoned(requires_grad=True)
    for seed in (torch.ones(3, 4), masked_tensor(torch.ones(3, 4), mask())):
        x.grad = None
        (x * 3).backward(seed)
        assert torch.equal(x.grad.to_tensor(0), torch.where(mask(), 3.0, 0.0))
    with pytest.raises(ValueError, match="match"):
        (x * 3).backward(masked_tensor(torch.ones(3, 4), ~mask()))
    with pytest.raises(RuntimeError, match="shape"):
        (x * 3).backward(torch.ones(4))


def test_gradients_of_sparse_data():
    x = poisoned().to_sparse_coo().detach()
    s = masked_tensor(x.get_data(), x.get_mask(), requires_grad=True)
    (s.sin() * 2).sum().backward()
    assert s.grad.layout is torch.sparse_coo
    torch.testing.assert_close(s.grad.to_tensor(0), torch.where(mask(), 2 * data().cos(), 0))


# ------------------------------------------------------------------------------ compiled
def test_compiled_functions_have_eager_bits():
    def forward(one, two):
        x, y = as_masked_tensor(one, mask()), as_masked_tensor(two, mask())
        return (x * y).sin().sum(0).to_tensor(0), (x - y).softmax(1).amax(1).to_tensor(0)

    results = []
    for function in (forward, torch.compile(forward)):
        one, two = data().requires_grad_(), data().cos().requires_grad_()
        found = function(one, two)
        (found[0].sum() + found[1].sum()).backward()
        results.append((*found, one.grad, two.grad))
    for eager, compiled in zip(*results, strict=True):
        assert torch.equal(eager, compiled)
