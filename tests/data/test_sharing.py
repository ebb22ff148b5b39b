"""Tensors, storages and modules between processes: both strategies, every start method."""

import gc
import glob
import os
import sys

import pytest

import flambeau as torch
from flambeau import multiprocessing
from flambeau.multiprocessing import reductions
from flambeau.utils.data import DataLoader

METHODS = ("fork", "spawn", "forkserver") if sys.platform == "linux" else ("spawn",)
STRATEGIES = ("file_descriptor", "file_system")


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy(request.param)
    yield request.param
    multiprocessing.set_sharing_strategy(before)
    gc.collect()
    assert not glob.glob(f"/dev/shm/torch_{os.getpid()}_*")


def _change(queue, results, event, argument, parameter, module):
    message = queue.get()
    message["x"][0] = 7.0
    with torch.no_grad():
        argument[1] = 8.0
        parameter[0] = 9.0
        module.weight[0, 0] = 3.0
    results.put({name: value for name, value in message.items() if name != "x"})
    facts = (argument.is_shared(), type(parameter).__name__, parameter.requires_grad)
    results.put((message["x"].sum(), facts))
    event.wait(60)


@pytest.mark.parametrize("method", METHODS)
def test_round_trips(method, strategy):
    """What is sent is shared, and both sides see writes; what is forked is a copy."""
    context = multiprocessing.get_context(method)
    queue, results, event = context.Queue(), context.Queue(), context.Event()
    base, argument, parameter = (
        torch.arange(6.0),
        torch.zeros(3),
        torch.nn.Parameter(torch.zeros(2)),
    )
    module = torch.nn.Linear(2, 2)
    message = {
        "x": base, "view": base[2:].view(2, 2).t(), "leaf": torch.ones(2, requires_grad=True),
        "half": torch.ones(2, dtype=torch.bfloat16), "sparse": torch.eye(3).to_sparse(),
        "conjugate": torch.full((2,), 1j).conj(), "storage": base.untyped_storage(),
        "typed": torch.arange(3)._typed_storage(), "empty": torch.empty(0, 3),
        "meta": torch.empty(2, 3, device="meta"), "module": torch.nn.Linear(2, 1).double(),
    }  # fmt: skip
    arguments = (queue, results, event, argument, parameter, module)
    process = context.Process(target=_change, args=arguments)
    process.start()
    queue.put(message)
    back, (total, facts) = results.get(timeout=60), results.get(timeout=60)
    sent = method != "fork"  # arguments of a forked process are not sent, but copied
    assert base.tolist() == [7, 1, 2, 3, 4, 5] and total.item() == 22 and base.is_shared()
    assert argument.tolist() == [0, 8.0 * sent, 0] and parameter.tolist() == [9.0 * sent, 0]
    assert (module.weight[0, 0].item() == 3.0) is sent
    assert facts == (sent, "Parameter", True)
    assert back["view"].tolist() == [[2, 4], [3, 5]] and back["view"].stride() == (1, 2)
    assert back["leaf"].requires_grad and back["leaf"].is_leaf
    assert back["half"].dtype == torch.bfloat16 and back["half"].tolist() == [1, 1]
    assert back["sparse"].is_sparse and torch.equal(back["sparse"].to_dense(), torch.eye(3))
    assert back["conjugate"].tolist() == [-1j, -1j]
    assert back["storage"].tolist() == base.untyped_storage().tolist()
    assert back["typed"].tolist() == [0, 1, 2] and back["empty"].shape == (0, 3)
    assert back["meta"].is_meta and back["meta"].shape == (2, 3)
    assert torch.equal(back["module"].weight, message["module"].weight)
    base[5] = -1.0  # what came back lies in the memory that was sent
    assert back["view"].tolist() == [[2, 4], [3, -1]]
    event.set()
    process.join(60)
    assert process.exitcode == 0


def test_sharing_moves_all_views(strategy):
    base = torch.arange(4.0)
    view, array = base[1:3], base.numpy()
    assert view.share_memory_() is view and base.is_shared() and base.untyped_storage().is_shared()
    base[1] = 5.0
    assert view.tolist() == [5, 2] and array.tolist() == [0, 1, 2, 3]  # memory that is not freed
    view.mul_(2)
    assert base.tolist() == [0, 10, 4, 3]
    storage = torch.UntypedStorage._new_shared(8)
    assert storage.is_shared() and storage.nbytes() == 8
    typed = torch.zeros(3)._typed_storage()
    assert typed.share_memory_() is typed and typed.is_shared()


def test_reductions_are_functions_of_pytorch(strategy):
    storage = torch.arange(3.0).untyped_storage()
    function, arguments = reductions.reduce_storage(storage)
    names = {"file_descriptor": "rebuild_storage_fd", "file_system": "rebuild_storage_filename"}
    assert function is getattr(reductions, names[strategy])
    if strategy == "file_system":
        assert os.path.exists(arguments[2])
        other = function(*arguments)
        storage[0] = 1
        assert other.tolist() == storage.tolist() and other.is_shared()
        del other
        assert os.path.exists(arguments[2])
        del storage
        gc.collect()
        assert not os.path.exists(arguments[2])
    function, arguments = reductions.reduce_storage(torch.UntypedStorage(0))
    assert function(*arguments).nbytes() == 0
    with pytest.raises(RuntimeError, match="Cannot pickle meta storage"):
        reductions.reduce_storage(torch.UntypedStorage(3, device="meta"))
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf"):
        reductions.reduce_tensor(torch.ones(2, requires_grad=True) * 2)
    with pytest.raises(ValueError, match="unknown sharing strategy"):
        multiprocessing.set_sharing_strategy("pipes")
    assert multiprocessing.get_all_sharing_strategies() == set(STRATEGIES)


def _scale(item):
    return item[0] * 2, item[1]


def _join(items):
    return torch.stack([x for x, _ in items]), torch.tensor([int(y) for _, y in items])


class Scaled(torch.utils.data.Dataset):
    """A dataset with tensors of its own, which every start method has to send."""

    def __init__(self):
        self.rows, self.labels = torch.arange(24.0).view(8, 3), torch.arange(8)

    def __len__(self):
        return 8

    def __getitem__(self, position):
        return _scale((self.rows[position], self.labels[position]))


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_every_start_method(method):
    """Batches of worker processes are those of this process."""
    options = dict(batch_size=3, collate_fn=_join)
    alone = list(DataLoader(Scaled(), **options))
    loader = DataLoader(Scaled(), num_workers=2, multiprocessing_context=method, **options)
    batches = list(loader)
    assert len(batches) == 3
    for ours, theirs in zip(batches, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
