"""Distributed samplers, loaders that continue, rules of batches, module names of PyTorch."""

import warnings

import pytest

import flambeau as torch
from flambeau.utils.data import DataLoader, DistributedSampler, dataloader, default_collate
from flambeau.utils.data._utils.collate import default_collate_fn_map
from flambeau.utils.data.stateful import StatefulDataLoader


def test_order_of_each_process():
    sampler = DistributedSampler(range(10), num_replicas=3, rank=1)
    sampler.set_epoch(2)
    assert (list(sampler), len(sampler), sampler.total_size) == ([7, 6, 4, 8], 4, 12)
    dropped = DistributedSampler(range(10), num_replicas=3, rank=1, shuffle=False, drop_last=True)
    assert list(dropped) == [1, 4, 7]
    assert list(DistributedSampler(range(1), num_replicas=4, rank=3)) == [0]
    with pytest.raises(ValueError, match="Invalid rank 3"):
        DistributedSampler(range(10), num_replicas=3, rank=3)
    with pytest.raises((RuntimeError, ValueError)):
        DistributedSampler(range(10))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [0, 2, 4])
def test_loader_continues(workers, steps):
    def loader():
        return StatefulDataLoader(range(8), batch_size=2, shuffle=True, num_workers=workers)

    torch.manual_seed(5)
    first = loader()
    batches = iter(first)
    for _ in range(steps):
        next(batches)
    state = first.state_dict()
    rest = [batch.tolist() for batch in batches]
    torch.manual_seed(77)
    second = loader()
    second.load_state_dict(state)
    assert [batch.tolist() for batch in second] == rest
    assert len(list(second)) == 4


def test_rules_of_a_program():
    class Item:
        pass

    default_collate_fn_map[Item] = lambda batch, *, collate_fn_map: len(batch)
    try:
        assert default_collate([{"x": Item()}, {"x": Item()}]) == {"x": 2}
    finally:
        del default_collate_fn_map[Item]
    with pytest.raises(TypeError, match="batch must contain"):
        default_collate([Item()])


def test_module_names():
    assert dataloader.DataLoader is DataLoader
    loader = DataLoader(range(3))
    assert isinstance(iter(loader), dataloader._BaseDataLoaderIter)
    assert loader._dataset_kind == torch.utils.data._DatasetKind.Map
    fetcher = dataloader._DatasetKind.create_fetcher(0, [1, 2], True, list, False)
    assert fetcher.fetch([1]) == [2]


def test_too_many_workers_warn():
    with pytest.warns(UserWarning, match="worker processes in total"):
        loader = DataLoader(range(3), num_workers=4096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="4096"):
            loader.check_worker_number_rationality()
