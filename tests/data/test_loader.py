"""The loader: order, streams, worker processes, their death, and what travels between them."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import flambeau as torch
from flambeau.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)


class Numbers(Dataset):
    def __init__(self, count=10):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3,), float(index))


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id if info else 0, 11, info.num_workers if info else 1))


def rows(loader):
    return [batch[:, 0].tolist() for batch in loader]


def test_order_is_that_of_pytorch():
    expected = [[6, 2, 0], [1, 8, 3], [5, 4, 7], [9]]
    for workers in (0, 2):
        torch.manual_seed(3)
        loader = DataLoader(torch.arange(10), batch_size=3, shuffle=True, num_workers=workers)
        assert [batch.tolist() for batch in loader] == expected
        assert abs(torch.rand(1).item() - 0.4716) < 1e-4


def test_worker_seeds_are_those_of_pytorch():
    class Seeds(Numbers):
        def __getitem__(self, index):
            info = get_worker_info()
            return info.id, info.seed, torch.rand(1).item()

    torch.manual_seed(3)
    found = [item[0] for item in DataLoader(Seeds(2), num_workers=2, collate_fn=list)]
    assert [item[:2] for item in found] == [(0, 937055941807507096), (1, 937055941807507097)]
    assert abs(found[0][2] - 0.2876076102256775) < 1e-9


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches(workers):
    loader = DataLoader(Numbers(), batch_size=4, num_workers=workers)
    assert rows(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    loader = DataLoader(Numbers(), batch_size=4, drop_last=True, num_workers=workers)
    assert rows(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2
    loader = DataLoader(Numbers(), batch_size=None, num_workers=workers)
    assert [row[0].item() for row in loader] == list(range(10))
    loader = DataLoader(Numbers(), batch_sampler=[[1, 5], [2]], num_workers=workers)
    assert rows(loader) == [[1, 5], [2]]


def test_streams():
    found = [b.tolist() for b in DataLoader(Stream(), batch_size=2, num_workers=3)]
    assert found == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8]]
    found = [b.tolist() for b in DataLoader(Stream(), batch_size=4, num_workers=3, drop_last=True)]
    assert found == [[0, 3, 6, 9], [1, 4, 7, 10]]


def test_persistent_workers_and_abandoned_passes():
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    first = iter(loader)
    next(first)
    pids = {worker.process.pid for worker in first._workers}
    for _ in range(3):
        assert rows(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {worker.process.pid for worker in loader._iterator._workers} == pids
    stream = DataLoader(Stream(), batch_size=4, num_workers=2, persistent_workers=True)
    assert [len(list(stream)) for _ in range(2)] == [4, 4]


def test_out_of_order():
    class Slow(Numbers):
        def __getitem__(self, index):
            time.sleep(0.5 if index == 0 else 0.0)
            return index

    found = [b.item() for b in DataLoader(Slow(6), num_workers=2, in_order=False)]
    assert sorted(found) == list(range(6)) and found[0] != 0


def test_tensors_travel_in_shared_memory_and_keep_their_form():
    numpy = pytest.importorskip("numpy")
    base = torch.arange(12.0).reshape(3, 4)

    class Mixed(Numbers):
        def __getitem__(self, index):
            large = torch.arange(1 << 20)
            return {"t": base.t(), "view": large[5:8], "n": numpy.arange(5), "s": "x" * 5000}

    [item] = DataLoader(Mixed(1), num_workers=1, batch_size=None, collate_fn=lambda x: x)
    assert item["t"].tolist() == base.t().tolist() and item["t"].is_shared()
    assert item["view"].tolist() == [5, 6, 7] and item["view"].untyped_storage().nbytes() == 24
    assert item["n"].tolist() == [0, 1, 2, 3, 4] and item["s"] == "x" * 5000
    item["n"][0] = 7


def test_errors_of_workers_are_raised_here():
    class Bad(Numbers):
        def __getitem__(self, index):
            raise KeyError(f"item {index}")

    with pytest.raises(KeyError, match="worker process 0") as caught:
        list(DataLoader(Bad(), num_workers=1))
    assert "Original Traceback" in str(caught.value) and "item 0" in str(caught.value)

    def broken(number):
        raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"):
        list(DataLoader(Numbers(), num_workers=1, worker_init_fn=broken))
    with pytest.raises(AttributeError, match="worker process"):
        list(DataLoader(Numbers(), num_workers=1, collate_fn=lambda x: lambda: x))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_reported(persistent):
    class Killed(Numbers):
        def __getitem__(self, index):
            if index == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    loader = DataLoader(Killed(), num_workers=2, persistent_workers=persistent)
    with pytest.raises(RuntimeError, match=r"worker \(pid\(s\) \d+\) exited unexpectedly"):
        list(loader)


def test_timeout():
    class Stuck(Numbers):
        def __getitem__(self, index):
            time.sleep(60)

    start = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out after 0.2"):
        list(DataLoader(Stuck(), num_workers=1, timeout=0.2))
    assert time.monotonic() - start < 5


def test_nothing_is_left_behind():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    iterator = iter(DataLoader(Numbers(), num_workers=2))
    pids = [worker.process.pid for worker in iterator._workers]
    next(iterator)
    del iterator
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_ctrl_c_ends_the_workers():
    script = """
        import time, os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may ignore it
        import flambeau as torch
        from flambeau.utils.data import DataLoader

        class Slow:
            def __len__(self): return 1000
            def __getitem__(self, index):
                time.sleep(0.05)
                return os.getpid()

        for number, batch in enumerate(DataLoader(Slow(), num_workers=2)):
            print(batch.item(), flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = {int(process.stdout.readline()) for _ in range(4)}
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"num_workers": -1}, "non-negative"),
        ({"timeout": -1}, "timeout"),
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"persistent_workers": True}, "persistent_workers"),
        ({"shuffle": True, "sampler": [1]}, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 3}, "batch_sampler"),
        ({"batch_size": None, "drop_last": True}, "drop_last"),
        ({"batch_size": 0}, "positive integer"),
        ({"num_workers": 1, "multiprocessing_context": "no"}, "valid start method"),
    ],
)
def test_options_that_exclude_each_other(options, text):
    with pytest.raises(ValueError, match=text):
        DataLoader(Numbers(), **options)


def test_samplers():
    torch.manual_seed(3)
    assert list(RandomSampler(range(5), True, 8)) == [2, 3, 0, 1, 3, 1, 2, 2]
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert set(WeightedRandomSampler([0.0, 1.0, 0.0], 5)) == {1}
    generator = torch.Generator()
    generator.manual_seed(0)
    assert list(random_split(range(10), [3, 7], generator)[0].indices) == [4, 1, 7]
    assert [len(part) for part in random_split(range(10), [0.33, 0.33, 0.34])] == [4, 3, 3]


def test_datasets():
    pair = TensorDataset(torch.arange(3), torch.arange(3) * 2)
    assert [x.item() for x in pair[2]] == [2, 4]
    both = ConcatDataset([pair, pair])
    assert len(both) == 6 and both[-1][1].item() == 4 and both[3][0].item() == 0
    assert Subset(range(10), [7, 3])[1] == 3
    assert StackDataset(a=range(3), b=range(3))[1] == {"a": 1, "b": 1}
    assert list(ChainDataset([Stream(), Stream()]))[10:13] == [10, 0, 1]


def test_collate():
    numpy = pytest.importorskip("numpy")
    batch = default_collate([{"a": 1, "b": (1.0, "x")}, {"a": 2, "b": (2.0, "y")}])
    assert batch["a"].tolist() == [1, 2] and batch["b"][1] == ("x", "y")
    assert batch["b"][0].dtype == torch.float64
    assert default_collate([numpy.float32(1), numpy.float32(2)]).dtype == torch.float32
    assert default_collate([numpy.ones(2), numpy.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert default_collate([True, False]).dtype == torch.bool
    assert default_convert([numpy.ones(2), "x"])[0].tolist() == [1, 1]
    with pytest.raises(TypeError, match="must contain tensors"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1, 2], [3]])
