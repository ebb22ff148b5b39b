"""BSR and BSC: blocks hold what the dense matrix has, and gradients are those of the blocks."""

import io
import pickle

import pytest

import flambeau as torch

LAYOUTS = (torch.sparse_bsr, torch.sparse_bsc)


def matrix():
    x = torch.arange(24.0).reshape(4, 6)
    x[:2, :2] = 0
    x[2:, 2:4] = 0
    return x


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_way_there_and_back(layout):
    x = matrix()
    blocks = x.to_sparse(layout=layout, blocksize=(2, 3))
    assert torch.equal(blocks.to_dense(), x)
    assert torch.equal(blocks.to_sparse().to_dense(), x)
    assert torch.equal(blocks.t().to_dense(), x.t())
    assert blocks.t().t().layout is layout
    for other in LAYOUTS:
        for source in (blocks, x.to_sparse(), x.to_sparse_csr()):
            again = source.to_sparse(layout=other, blocksize=(2, 3))
            assert again.layout is other
            assert torch.equal(again.to_dense(), x)
    batch = torch.stack([x, x * 2]).to_sparse(layout=layout, blocksize=2)
    assert torch.equal(batch.to_dense(), torch.stack([x, x * 2]))
    file = io.BytesIO()
    torch.save(blocks, file)
    file.seek(0)
    for twin in (pickle.loads(pickle.dumps(blocks)), torch.load(file)):
        assert twin.layout is layout
        assert torch.equal(twin.to_dense(), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_and_gradients(layout):
    x, y = matrix(), torch.arange(12.0).reshape(6, 2).requires_grad_()
    blocks = x.to_sparse(layout=layout, blocksize=2).requires_grad_()
    found = blocks @ y
    assert torch.equal(found, x @ y)
    (found * found).sum().backward()
    plain, other = x.clone().requires_grad_(), y.detach().clone().requires_grad_()
    product = plain @ other
    (product * product).sum().backward()
    assert torch.equal(y.grad, other.grad)
    assert blocks.grad.layout is layout
    kept = plain.grad.sparse_mask(blocks.detach())
    assert torch.equal(blocks.grad.values(), kept.values())
    assert torch.equal((torch.ones(2, 4) @ blocks).detach(), torch.ones(2, 4) @ x)
    base = torch.addmm(torch.ones(4, 2), blocks, y, beta=2, alpha=3)
    assert torch.equal(base.detach(), torch.addmm(torch.ones(4, 2), x, y.detach(), beta=2, alpha=3))


def test_what_does_not_fit():
    x = matrix()
    with pytest.raises(RuntimeError, match="divisible by given blocksize"):
        x.to_sparse_bsr((3, 2))
    with pytest.raises(RuntimeError, match="divisible by given blocksize"):
        x.to_sparse().to_sparse_bsr((3, 2))
    with pytest.raises(RuntimeError, match="requires blocksize"):
        x.to_sparse(layout=torch.sparse_bsr)
    blocks = x.to_sparse_bsr(2)
    with pytest.raises(RuntimeError, match="blocksize changed"):
        blocks.to_sparse_bsr((1, 2))
    with pytest.raises(RuntimeError, match="expected SparseCsr"):
        blocks.to_sparse_csr()
    with pytest.raises(NotImplementedError, match="select"):
        blocks.select(0, 1)
    with pytest.raises(RuntimeError, match="dimensionality > sum"):
        torch.sparse_bsr_tensor([0, 1], [0], torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="divisible by the blocksize"):
        torch.sparse_bsr_tensor([0, 1], [0], torch.ones(1, 2, 2), (2, 3))
    with pytest.raises(RuntimeError, match="is not satisfied"):
        torch.sparse_bsr_tensor([0, 1], [1], torch.ones(1, 2, 2), (2, 2), check_invariants=True)
