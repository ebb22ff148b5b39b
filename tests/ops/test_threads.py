"""One thread or several, alone or in a larger batch: the same bits (DESIGN § 4)."""

from __future__ import annotations

import pytest

import flambeau as torch
from tests.ops.inputs import same_bits

F = torch.nn.functional


def rand(*shape, seed=1, dtype=None):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


# Large enough for several chunks of work per thread.
LARGE = {
    "add": lambda: rand(301, 1031) + rand(1031, seed=2),
    "exp": lambda: rand(301, 1031).exp(),
    "gelu": lambda: F.gelu(rand(301, 1031)),
    "where": lambda: torch.where(rand(301, 1031) > 0, rand(301, 1031, seed=2), 0.0),
    "sum all": lambda: rand(700, 1031).sum(),
    "sum rows": lambda: rand(301, 1031).sum(1),
    "sum columns": lambda: rand(1031, 301).sum(0),
    "sum middle": lambda: rand(31, 257, 65).sum(1),
    "sum half": lambda: rand(301, 1031).bfloat16().sum(),
    "mean double": lambda: rand(301, 1031, dtype=torch.float64).mean(),
    "prod": lambda: (rand(301, 1031) * 0.01 + 1).prod(1),
    "var": lambda: rand(301, 1031).var(),
    "norm": lambda: rand(301, 1031).norm(),
    "logsumexp": lambda: rand(301, 1031).logsumexp(1),
    "amax": lambda: rand(301, 1031).amax(0),
    "argmax": lambda: rand(301, 1031).argmax(),
    "cumsum": lambda: rand(301, 1031).cumsum(1),
    "softmax": lambda: F.softmax(rand(301, 1031), 1),
    "log_softmax columns": lambda: F.log_softmax(rand(301, 1031), 0),
    "layer_norm": lambda: F.layer_norm(rand(301, 1031), (1031,)),
    "group_norm": lambda: F.group_norm(rand(8, 32, 65, 9), 4),
    "batch_norm": lambda: F.batch_norm(rand(64, 33, 65), None, None, training=True),
    "matmul": lambda: rand(130, 700) @ rand(700, 257, seed=2),
    "matmul deep": lambda: rand(7, 9000) @ rand(9000, 11, seed=2),
    "matmul vector": lambda: rand(1031, 701) @ rand(701, seed=2),
    "matmul double": lambda: rand(130, 300, dtype=torch.float64)
    @ rand(300, 65, seed=2, dtype=torch.float64),
    "matmul bfloat16": lambda: rand(130, 700).bfloat16() @ rand(700, 65, seed=2).bfloat16(),
    "bmm": lambda: torch.bmm(rand(9, 65, 130), rand(9, 130, 33, seed=2)),
    "linear": lambda: F.linear(rand(130, 300), rand(257, 300, seed=2), rand(257, seed=3)),
    "conv2d": lambda: F.conv2d(rand(4, 8, 33, 35), rand(16, 8, 3, 3, seed=2), padding=1),
    "max_pool2d": lambda: F.max_pool2d(rand(8, 16, 65, 33), 3, 2),
    "attention": lambda: F.scaled_dot_product_attention(
        rand(2, 4, 130, 32), rand(2, 4, 130, 32, seed=2), rand(2, 4, 130, 32, seed=3)
    ),
    "embedding": lambda: F.embedding(torch.arange(5000) % 701, rand(701, 65)),
    "index_add": lambda: torch.zeros(701, 65).index_add(
        0, torch.arange(5000) % 701, rand(5000, 65)
    ),
    "sort": lambda: rand(301, 1031).sort(1),
    "cross_entropy": lambda: F.cross_entropy(rand(301, 1031), torch.arange(301)),
    "randn": lambda: rand(301, 1031),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_thread_counts(name):
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(LARGE[name]())
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


def test_backward_with_threads():
    def gradients():
        x = rand(130, 300).requires_grad_()
        weight = rand(257, 300, seed=2).requires_grad_()
        F.gelu(F.layer_norm(F.linear(x, weight), (257,))).pow(2).mean().backward()
        return [x.grad, weight.grad]

    torch.set_num_threads(1)
    one = gradients()
    torch.set_num_threads(2)
    assert same_bits(one, gradients())


WEIGHT, BIAS = rand(65, 300, seed=2), rand(65, seed=3)
ROWS = {
    "linear": lambda x: F.linear(x, WEIGHT, BIAS),
    "matmul": lambda x: x @ WEIGHT.T,
    "linear bfloat16": lambda x: F.linear(x.bfloat16(), WEIGHT.bfloat16()),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (300,)),
    "rms_norm": lambda x: F.rms_norm(x, (300,)),
    "sum": lambda x: x.sum(-1),
    "var": lambda x: x.var(-1),
    "norm": lambda x: x.norm(dim=-1),
    "cumsum": lambda x: x.cumsum(-1),
    "gelu": lambda x: F.gelu(x),
    "sort": lambda x: x.sort(-1).values,
}


@pytest.mark.parametrize("name", ROWS)
def test_row_alone_and_in_batches(name):
    """A row's result does not depend on the rows beside it."""
    x = rand(67, 300)
    whole = ROWS[name](x)
    for first, last in ((0, 1), (5, 6), (3, 36), (1, 67)):
        assert same_bits(ROWS[name](x[first:last]), whole[first:last]), (first, last)
