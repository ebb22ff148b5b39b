"""Tensors between processes, checkpointed computation, nested structures."""

import time
from collections import namedtuple

import pytest

import flambeau as torch
from flambeau import multiprocessing
from flambeau.utils import _pytree, dlpack
from flambeau.utils.checkpoint import checkpoint


def _double(queue, results):
    tensor = queue.get()
    results.put(tensor * 2)
    time.sleep(1)  # until the parent has taken the memory


def test_queues_send_tensors():
    context = multiprocessing.get_context("fork")
    queue, results = context.Queue(), context.Queue()
    process = context.Process(target=_double, args=(queue, results))
    process.start()
    queue.put(torch.arange(1000.0))
    found = results.get(timeout=20)
    process.join()
    assert found.is_shared() and found[999].item() == 1998.0


def _work(number, tensor):
    if number == 1:
        raise ValueError("in process one")
    tensor[0] = 5.0


def test_spawned_processes_report_errors():
    shared = torch.zeros(2).share_memory_()
    with pytest.raises(multiprocessing.ProcessRaisedException, match="in process one") as caught:
        multiprocessing.start_processes(_work, (shared,), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1
    multiprocessing.start_processes(_work, (shared,), nprocs=1, start_method="fork")
    assert shared.tolist() == [5.0, 0.0]


def test_checkpoint_gives_the_same_gradients_and_random_numbers():
    weight = torch.randn(4, 4, requires_grad=True)

    def block(x, scale=1.0):
        noise = torch.rand(3, 4)
        return {"y": (x @ weight).tanh() * noise * scale, "n": 3}

    def gradients(run):
        x = torch.ones(3, 4, requires_grad=True)
        torch.manual_seed(0)
        result = run(x)
        after = torch.rand(1).item()
        result["y"].sum().backward()
        found = (x.grad.tolist(), weight.grad.tolist(), result["n"], after)
        weight.grad = None
        return found

    plain = gradients(lambda x: block(x, scale=2.0))
    assert plain == gradients(lambda x: checkpoint(block, x, scale=2.0, use_reentrant=False))


def test_trees():
    Pair = namedtuple("Pair", "a b")
    tree = {"x": [1, (2, Pair(3, None))], "y": {}}
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, None] and spec.num_leaves == 4
    assert _pytree.tree_unflatten(leaves, spec) == tree
    assert _pytree.tree_map(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert _pytree.tree_map_only(int, str, [1, "b", 2.0]) == ["1", "b", 2.0]
    with pytest.raises(ValueError, match="differ"):
        _pytree.tree_map(lambda x, y: x, [1], [1, 2])


def test_dlpack():
    x = torch.arange(3)
    y = dlpack.from_dlpack(dlpack.to_dlpack(x))
    y[0] = 9
    assert x[0].item() == 9
