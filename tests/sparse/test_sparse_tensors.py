"""Sparse tensors against their dense meaning: conversions, gradients, files, in-place, refusals.

What PyTorch does beside is in tests/parity/test_sparse.py; here is what must hold by itself.
"""

import copy
import io
import pickle

import pytest

import flambeau as torch

LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def dense():
    return torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 5.0]])


def twice():
    """Three elements at two places."""
    return torch.sparse_coo_tensor([[1, 0, 1], [1, 2, 1]], [1.0, 2.0, 4.0], (2, 3))


def same(a, b):
    assert a.shape == b.shape
    assert a.dtype is b.dtype
    assert bool((a == b).all())


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_conversions_keep_every_element(source, target):
    x = dense()
    converted = x.to_sparse(layout=source).to_sparse(layout=target)
    assert converted.layout is target
    assert converted._nnz() == 5
    same(converted.to_dense(), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_is_a_tensor(layout):
    s = dense().to_sparse(layout=layout)
    assert isinstance(s, torch.Tensor)
    assert torch.is_tensor(s)
    assert s.shape == (3, 4)
    assert s.numel() == 12
    assert s.device.type == "cpu"
    assert s in [s]
    assert {s: 1}[s] == 1
    assert not s.is_contiguous()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_are_those_of_the_dense_tensors(layout):
    x, y = dense(), torch.arange(8.0).reshape(4, 2)
    s = x.to_sparse(layout=layout)
    same(s @ y, x @ y)
    same(y.t() @ s.t(), y.t() @ x.t())
    same(s @ y[:, 0], x @ y[:, 0])
    same((s @ s.t()).to_dense(), x @ x.t())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_those_of_the_kept_elements(layout):
    x, y = dense(), torch.arange(8.0).reshape(4, 2)
    s = x.to_sparse(layout=layout).requires_grad_()
    w = x.clone().requires_grad_()
    (s @ y).pow(2).sum().backward()
    (w @ y).pow(2).sum().backward()
    assert s.grad.layout is layout
    same(s.grad.to_dense(), w.grad * (x != 0))
    (again,) = torch.autograd.grad((s @ y).pow(2).sum(), s)
    same(again.to_dense(), s.grad.to_dense())
    (s @ y).pow(2).sum().backward()
    same(s.grad.to_dense(), 2 * again.to_dense())
    s.grad = None
    assert s.grad is None


def test_second_derivatives():
    s = dense().to_sparse().requires_grad_()
    y = torch.arange(8.0).reshape(4, 2)
    (first,) = torch.autograd.grad((s @ y).pow(3).sum(), s, create_graph=True)
    (second,) = torch.autograd.grad(torch.sparse.sum(first), s)
    w = dense().requires_grad_()
    kept = dense() != 0
    (expected,) = torch.autograd.grad((w @ y).pow(3).sum(), w, create_graph=True)
    (expected,) = torch.autograd.grad((expected * kept).sum(), w)
    same(second.to_dense(), expected * kept)


def test_gradients_of_interior_tensors():
    v = torch.tensor([1.0, 2.0], requires_grad=True)
    s = torch.sparse_coo_tensor([[0, 2]], v, (3,))
    assert s.requires_grad
    assert not s.is_leaf
    s.retain_grad()
    seen = []
    s.register_hook(seen.append)
    (s.to_dense() * torch.tensor([3.0, 4.0, 5.0])).sum().backward()
    assert v.grad.tolist() == [3.0, 5.0]
    same(s.grad.to_dense(), torch.tensor([3.0, 0.0, 5.0]))
    assert seen[0].layout is torch.sparse_coo
    t = torch.sparse_coo_tensor([[0, 2]], v, (3,)) * 2
    t.backward(torch.ones(3).sparse_mask(t))
    assert v.grad.tolist() == [5.0, 7.0]


def test_a_sparse_gradient_of_a_dense_leaf_stays_sparse():
    table = torch.zeros(5, 2, requires_grad=True)
    rows = torch.nn.functional.embedding(torch.tensor([[3, 3], [1, 0]]), table, 0, sparse=True)
    rows.sum().backward()
    assert table.grad.is_sparse
    assert table.grad._indices().tolist() == [[3, 3, 1]]
    table.sum().backward()  # a dense one joins it
    assert table.grad.tolist() == [[1, 1], [2, 2], [1, 1], [3, 3], [1, 1]]
    rows = torch.nn.functional.embedding(torch.tensor([4]), table, sparse=True)
    rows.sum().backward()  # and the other way around
    assert table.grad[4].tolist() == [2, 2]
    table.grad = None
    looked = torch.nn.functional.embedding(torch.tensor([2]), table * 3, sparse=True)
    looked.sum().backward()  # through an operator, it is a dense one
    assert table.grad[2].tolist() == [3, 3]


def test_what_is_kept_twice_is_one_sum():
    u = twice()
    assert not u.is_coalesced()
    c = u.coalesce()
    assert c.is_coalesced()
    assert c.coalesce() is c
    assert c.indices().tolist() == [[0, 1], [2, 1]]
    assert c.values().tolist() == [2.0, 5.0]
    same(u.to_dense(), c.to_dense())
    same(u.square().to_dense(), u.to_dense().square())
    flags = torch.sparse_coo_tensor([[0, 0, 1]], [True, False, False], (3,))
    assert flags.coalesce().values().tolist() == [True, False]
    assert flags.to_dense().tolist() == [True, False, False]


def test_sums_are_in_the_kept_order():
    """Bits do not depend on threads, and coalescing adds as `to_dense` does."""
    places = torch.arange(3000) % 7
    values = torch.randn(3000)
    s = torch.sparse_coo_tensor(places.unsqueeze(0), values, (7,))
    expected = torch.zeros(7).index_add(0, places, values)
    same(s.to_dense(), expected)
    same(s.coalesce().values(), expected)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        same(s.coalesce().values(), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pickles_copies_and_files(layout):
    s = dense().to_sparse(layout=layout).requires_grad_()
    file = io.BytesIO()
    torch.save({"s": [s, 3]}, file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), torch.load(file)["s"][0]):
        assert again.layout is layout
        assert again.requires_grad
        assert repr(again) == repr(s)
        assert again.values() is not s.values()


def test_a_file_cannot_bring_indices_out_of_range():
    s = torch.sparse_coo_tensor([[7]], [1.0], (3,))
    file = io.BytesIO()
    torch.save(s, file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="inconsistent with indices"):
        torch.load(file)


def test_in_place_operators_change_the_tensor_itself():
    s = twice()
    alias = s
    s.add_(s).mul_(3).neg_()
    assert alias is s
    same(s.to_dense(), twice().to_dense() * -6)
    s.zero_()
    assert s._nnz() == 0
    s.sparse_resize_((4, 5), 2, 0)
    assert s.shape == (4, 5)
    leaf = twice().requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.mul_(2)
    with torch.no_grad():
        leaf.mul_(2)
    assert leaf.requires_grad
    assert leaf.is_leaf
    assert leaf._values().tolist() == [2.0, 4.0, 8.0]


def test_a_dense_tensor_is_written_only_where_something_is_kept():
    x = torch.ones(2, 3)
    version, memory = x._version, x.data_ptr()
    x.add_(twice(), alpha=2)
    assert x._version > version
    assert x.data_ptr() == memory
    same(x, 1 + 2 * twice().to_dense())


def test_as_parameter_buffer_and_copy():
    s = twice()
    p = torch.nn.Parameter(s)
    assert p.requires_grad
    assert p.layout is torch.sparse_coo
    (p @ torch.ones(3, 1)).sum().backward()
    assert p.grad.layout is torch.sparse_coo
    module = torch.nn.Module()
    module.register_buffer("places", s)
    module.double()
    assert module.places.dtype is torch.float64
    assert module.load_state_dict(module.state_dict()).missing_keys == []
    with pytest.warns(UserWarning, match="copy construct"):
        again = torch.tensor(s)
    same(again.to_dense(), s.to_dense())
    assert torch.as_tensor(s) is s
    with pytest.raises(TypeError):
        s.as_subclass(torch.Tensor)


def test_invariants():
    checks = torch.sparse.check_sparse_tensor_invariants
    assert not checks.is_enabled()
    wrong = ([[0, 5]], [1.0, 2.0], (3,))
    torch.sparse_coo_tensor(*wrong)
    with checks():
        assert checks.is_enabled()
        with pytest.raises(RuntimeError, match="size is 3 but found index 5"):
            torch.sparse_coo_tensor(*wrong)
        with checks(False):
            torch.sparse_coo_tensor(*wrong)
        torch.sparse_coo_tensor(*wrong, check_invariants=False)
    assert not checks.is_enabled()
    with pytest.raises(RuntimeError):
        checks()(torch.sparse_coo_tensor)(*wrong)
    with pytest.raises(IndexError):  # what reads a wrong index finds it
        torch.sparse_coo_tensor(*wrong).to_dense()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.exp(), NotImplementedError),
        (lambda s: torch.linalg.inv(s), NotImplementedError),
        (lambda s: s.float() > 1, NotImplementedError),
        (lambda s: s.numpy(), TypeError),
        (lambda s: float(s), RuntimeError),
        (lambda s: s.tolist(), RuntimeError),
        (lambda s: s.storage(), NotImplementedError),
        (lambda s: s[::2], NotImplementedError),
        (lambda s: s[9], IndexError),
        (lambda s: type(s)(), TypeError),
        (lambda s: s + 1, RuntimeError),
        (lambda s: s.to_sparse(layout=torch.sparse_bsr), RuntimeError),
        (lambda s: torch.zeros(2, 3).copy_(s), RuntimeError),
    ],
)
def test_what_is_not_supported_says_so(call, error):
    with pytest.raises(error, match=r"\nhint: "):
        call(twice())


def test_compiled_functions_take_sparse_tensors():
    s = dense().to_sparse_csr()
    y = torch.arange(8.0).reshape(4, 2)

    @torch.compile
    def double(a, b):
        return (a @ b).relu() * 2

    same(double(s, y), (dense() @ y).relu() * 2)
    same(double(s, y), (dense() @ y).relu() * 2)


def test_batches_of_compressed_matrices():
    x = torch.stack([dense(), dense().flip(0)])
    for layout in (torch.sparse_csr, torch.sparse_csc):
        s = x.to_sparse(layout=layout)
        assert s.values().shape == (2, 5)
        same(s.to_dense(), x)
        same(s[1].to_dense(), x[1])
        same(s.transpose(1, 2).to_dense(), x.transpose(1, 2))
    with pytest.raises(RuntimeError, match="same number"):
        torch.stack([dense(), torch.zeros(3, 4)]).to_sparse_csr()


def test_closeness():
    s = twice()
    torch.testing.assert_close(s, s.coalesce())
    with pytest.raises(AssertionError, match="number of specified values"):
        torch.testing.assert_close(s, torch.zeros(2, 3).to_sparse())
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(s, s * 2)
    with pytest.raises(AssertionError, match="layout"):
        torch.testing.assert_close(s, s.to_dense())


def test_dense_tensors_have_the_methods():
    x = dense()
    assert (x.sparse_dim(), x.dense_dim(), x.is_sparse, x.is_sparse_csr) == (0, 2, False, False)
    assert x.to_dense() is x
    assert x.layout is torch.strided
    assert x.sparse_mask(x.to_sparse()).values().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
