"""Names of `torch` for what tensors keep: files behind tensors, parts of sparse ones, switches."""

import pytest

import flambeau as torch
from flambeau.sparse.copies import native_norm


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "numbers")


def test_a_shared_file_takes_what_is_written(path):
    x = torch.from_file(path, shared=True, size=3, dtype=torch.int32)
    x.copy_(torch.tensor([1, 2, 3]))
    assert torch.from_file(path, size=3, dtype=torch.int32).tolist() == [1, 2, 3]
    assert torch.from_file(path, True, 5, dtype=torch.int32).tolist() == [1, 2, 3, 0, 0]


def test_a_private_file_stays_as_it_is(path):
    torch.from_file(path, shared=True, size=2).fill_(1)
    torch.from_file(path, False, 2).fill_(7)
    assert torch.from_file(path, size=2).tolist() == [1, 1]
    assert torch.from_file(path, size=2, requires_grad=True).requires_grad


def test_files_that_do_not_fit(path):
    with pytest.raises(RuntimeError, match="unable to open"):
        torch.from_file(path, size=3)
    torch.from_file(path, shared=True, size=2)
    with pytest.raises(RuntimeError, match="smaller than the required"):
        torch.from_file(path, size=3)
    with pytest.raises(RuntimeError, match="strided"):
        torch.from_file(path, size=2, device="meta")
    assert torch.from_file(path).shape == (0,)


def test_copies_of_what_is_kept():
    rows = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
    columns = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csc()
    assert torch.crow_indices_copy(rows).tolist() == [0, 1, 2]
    assert torch.col_indices_copy(rows).tolist() == [1, 0]
    assert torch.ccol_indices_copy(columns).tolist() == [0, 1, 2]
    assert torch.row_indices_copy(columns).tolist() == [1, 0]
    values = torch.values_copy(rows)
    assert values.data_ptr() != rows.values().data_ptr()
    out = torch.empty(0)
    assert torch.values_copy(rows, out=out) is out
    assert out.tolist() == [2, 3]
    assert torch.indices_copy(columns.to_dense().to_sparse()).tolist() == [[0, 1], [1, 0]]


def test_gradient_of_copied_values():
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True)
    (torch.values_copy(x.to_sparse_csr()) * torch.tensor([5.0, 7.0])).sum().backward()
    assert x.grad.to_dense().tolist() == [[0, 5], [7, 0]]


def test_sparse_sizes_of_another_tensor():
    x = torch.ones(2, 2).to_sparse()
    assert x.resize_as_sparse_(torch.ones(3, 2).to_sparse()) is x
    assert x.shape == (3, 2)
    with pytest.raises(RuntimeError, match="shrinking"):
        torch.resize_as_sparse_(x, torch.ones(1, 2).to_sparse())
    with pytest.raises(NotImplementedError):
        torch.resize_as_sparse_(torch.ones(2), x)


def test_native_norm_is_of_all_elements():
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]]).to_sparse()
    assert native_norm(x, 2, [0, 1], False, torch.float64).dtype == torch.float64
    with pytest.raises(RuntimeError, match="full reductions"):
        native_norm(x, 2, [0])
    with pytest.raises(RuntimeError, match="keepdim"):
        native_norm(x, 2, [], True)
    with pytest.raises(NotImplementedError):
        native_norm(x.to_dense())


def test_saddmm():
    s = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    found = torch.saddmm(s, s, torch.ones(2, 2), beta=2, alpha=3).to_dense()
    assert found.tolist() == [[6, 10], [0, 0]]


def test_anomaly_switches():
    torch.set_anomaly_enabled(True, False)
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, False)
    torch.set_anomaly_enabled(False)
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (False, True)
    with pytest.raises(TypeError):
        torch.set_anomaly_enabled(1)


def test_a_capsule_comes_back():
    x = torch.ones(2)
    assert torch.from_dlpack(torch.to_dlpack(x)).data_ptr() == x.data_ptr()


def test_slice_inverse_is_a_view():
    x = torch.arange(15.0).reshape(5, 3)
    y = torch.slice_inverse(x[1:3], torch.empty(5, 3), 0, 1, 3)
    y[0, 0] = 7
    assert x[0, 0] == 7


def test_modules_of_names():
    assert torch.functional.einsum is torch.einsum
    assert torch.types.Number == (int | float | bool)
    assert isinstance(torch.ones(1).untyped_storage(), torch.types.Storage)
    assert (torch.cpu.current_device(), torch.cpu.device_count()) == ("cpu", 1)
    mine = torch.cpu.Stream()
    before = torch.cpu.current_stream()
    with torch.cpu.stream(mine):
        assert torch.cpu.current_stream() is mine
    assert torch.cpu.current_stream() is before
    assert torch.cpu.Event().query()
    torch.cpu.synchronize()
