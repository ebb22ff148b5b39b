"""Grouped products against loops over the groups, their gradients, and groups that are empty."""

import pytest

import flambeau as torch
from flambeau.nn.functional import grouped_mm

BOUNDS = [(0, 2), (2, 2), (2, 7)]


@pytest.fixture
def ends():
    return torch.tensor([end for _, end in BOUNDS], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_dtype(ends, dtype):
    torch.manual_seed(0)
    rows, batch = torch.randn(9, 5).to(dtype), torch.randn(3, 5, 4).to(dtype)
    found = grouped_mm(rows, batch, offs=ends)
    for g, (i, j) in enumerate(BOUNDS):
        assert torch.equal(found[i:j], rows[i:j] @ batch[g])
    assert not found[7:].any()


def test_every_form(ends):
    torch.manual_seed(0)
    rows, batch = torch.randn(9, 5).bfloat16(), torch.randn(3, 5, 4).bfloat16()
    found = grouped_mm(batch.mT, rows.mT, offs=ends)
    for g, (i, j) in enumerate(BOUNDS):
        assert torch.equal(found[:, i:j], batch[g].mT @ rows.mT[:, i:j])
    found = grouped_mm(rows.mT, rows, offs=ends)
    for g, (i, j) in enumerate(BOUNDS):
        assert torch.equal(found[g], rows.mT[:, i:j] @ rows[i:j])
    assert torch.equal(grouped_mm(batch.mT, batch), batch.mT @ batch)


def test_gradients_and_compiled(ends):
    torch.manual_seed(0)
    rows, batch = (torch.randn(*s, requires_grad=True) for s in ((9, 5), (3, 5, 4)))
    found = grouped_mm(rows, batch, offs=ends)
    by_hand = torch.cat([rows[i:j] @ batch[g] for g, (i, j) in enumerate(BOUNDS)])
    weight = torch.randn(9, 4)
    ours = torch.autograd.grad((found * weight).sum(), (rows, batch))
    theirs = torch.autograd.grad((by_hand * weight[:7]).sum(), (rows, batch))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
    compiled = torch.compile(lambda a, b, e: grouped_mm(a * 2, b, offs=e))
    assert torch.equal(compiled(rows, batch, ends), grouped_mm(rows * 2, batch, offs=ends))


@pytest.mark.parametrize("wrong", [[2, 1, 7], [-1, 2, 7], [2, 5, 10]])
def test_offsets_that_cut_nothing(wrong):
    offsets = torch.tensor(wrong, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="increase"):
        grouped_mm(torch.ones(9, 5), torch.ones(3, 5, 4), offs=offsets)


def test_scaled_groups_are_refused():
    recipe = torch.nn.functional.ScalingType.TensorWise
    a, one = torch.ones(1, 16, 16).to(torch.float8_e4m3fn), torch.ones(1)
    with pytest.raises(NotImplementedError, match="hint: scaled_mm"):
        torch.nn.functional.scaled_grouped_mm(a, a, one, recipe, one, recipe)
