"""The promise about numbers for the rest of a model: any number of threads, the same bits."""

from __future__ import annotations

import pytest

import flambeau as torch

F = torch.nn.functional


def _image():
    return torch.randn(3, 12, 19, 23)


def _grads(function, *operands):
    """Result and gradients with respect to the floating operands."""
    leaves = [x.detach().requires_grad_() for x in operands if x.is_floating_point()]
    given = iter(leaves)
    result = function(*[next(given) if x.is_floating_point() else x for x in operands])
    weights = torch.linspace(-1, 1, result.numel()).reshape(result.shape)
    return [result, *torch.autograd.grad((result * weights).sum(), leaves)]


def _rows():
    index = torch.randint(0, 50, (4000,))
    return torch.randn(50, 64), index, torch.randn(4000, 64)


CASES = {
    "group_norm": lambda: _grads(
        lambda x, w, b: F.group_norm(x, 4, w, b), _image(), torch.randn(12), torch.randn(12)
    ),
    "index_add": lambda: _grads(lambda x, i, s: x.index_add(0, i, s), *_rows()),
    "index_add of a line": lambda: _grads(
        lambda x, s: x.index_add(0, torch.arange(200_000) % 77, s),
        torch.randn(1000),
        torch.randn(200_000),
    ),
    "index_put": lambda: _grads(lambda x, i, s: x.index_put((i,), s, True), *_rows()),
    "expanded scatter_add": lambda: _grads(
        lambda x, i, s: x.scatter_add(0, i.unsqueeze(1).expand(4000, 64), s), *_rows()
    ),
    "scatter_add": lambda: _grads(
        lambda x, s: x.scatter_add(1, torch.arange(400_000).reshape(100, 4000) * 7 % 31, s),
        torch.randn(100, 31),
        torch.randn(100, 4000),
    ),
    "embedding": lambda: _grads(lambda i, w: F.embedding(i, w), _rows()[1], torch.randn(50, 64)),
    "max_pool2d": lambda: _grads(lambda x: F.max_pool2d(x, 3, 2, 1), _image()),
    "avg_pool2d": lambda: _grads(lambda x: F.avg_pool2d(x, 3, 2, 1), _image()),
    "nearest": lambda: _grads(lambda x: F.interpolate(x, scale_factor=2), _image()),
    "hash_tensor": lambda: [torch.hash_tensor(torch.randn(300_001))],
    "hash_tensor of columns": lambda: [torch.hash_tensor(torch.randn(5000, 70), 0)],
    "amax": lambda: [
        torch.zeros(1000).scatter_reduce(0, torch.arange(99_999) % 998, torch.randn(99_999), "amax")
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_threads(name):
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            found.append(CASES[name]())
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))
