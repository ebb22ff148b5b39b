"""Same inputs, same bits (docs/design.md): skipped Python, control flow, compiled backwards.

Each program runs in eager mode on one thread. Its result and gradients must have the same bits when
it is compiled, at calls that skip their Python, with a compiled backward, on other numbers of
threads, and for one row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest

import flambeau as torch
import flambeau.nn as nn
from flambeau._dynamo.utils import maybe_enable_compiled_autograd
from flambeau._higher_order_ops import associative_scan, map, scan
from flambeau.utils.checkpoint import checkpoint
from tests.capture.conftest import compare
from tests.capture.frames import CALLS

F = nn.functional
ROWS, WIDTH, THREADS = 6, 16, (1, 2, 4)


class Square(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Its gradient."""
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Program(NamedTuple):
    """A program of a matrix and weights.

    Attributes:
        run: the function.
        by_rows: whether a row of the result depends on that row of the matrix alone.
        skips: whether its calls skip their Python once they are known.
    """

    run: Callable[[Any, Any], Any]
    by_rows: bool = True
    skips: bool = True


def attention(x: Any, w: Any) -> Any:
    """Each row is a sequence of four tokens."""
    q = (x @ w).view(x.shape[0], 1, 4, -1)
    return F.scaled_dot_product_attention(q, q.sin(), q.cos()).flatten(1)


def loop(x: Any, w: Any) -> Any:
    """A loop over data."""
    start = (torch.tensor(0), x)
    return torch.while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, (y @ w).tanh()), start)[1]


def carried(x: Any, w: Any) -> Any:
    """A recurrence along the columns."""
    last, every = scan(lambda h, c: ((h * 0.5 + c).sin(), h.cos() * c), x[:, 0], x.t() * w[0, 0])
    return every.t() + last[:, None]


PROGRAMS = {
    "layers": Program(lambda x, w: F.gelu(F.layer_norm(x @ w, (WIDTH,))).softmax(1) @ w.t()),
    "attention": Program(attention),
    "statistics": Program(lambda x, w: F.batch_norm((x @ w), None, None, training=True), False),
    "sums": Program(lambda x, w: (x @ w).exp().sum(1, keepdim=True).log() + x.var(1)[:, None]),
    "branch of Python": Program(lambda x, w: x @ w if w.shape[0] > 3 else x),
    "cond": Program(
        lambda x, w: torch.cond(x.sum() > 0, lambda a: (a @ w).sin(), lambda a: a.cos(), (x,)),
        by_rows=False, skips=False,
    ),
    "while_loop": Program(loop, skips=False),
    "scan": Program(carried, skips=False),
    "map": Program(lambda x, w: map(lambda row, v: (row @ v).tanh(), x, w), skips=False),
    "associative_scan": Program(
        lambda x, w: associative_scan(torch.mul, (x @ w).cos(), 1, combine_mode="generic"),
        skips=False,
    ),
    "checkpoint": Program(
        lambda x, w: checkpoint(lambda a: (a @ w).sin().exp(), x, use_reentrant=False), skips=False
    ),
    "function": Program(lambda x, w: Square.apply(x @ w).sin(), skips=False),
}  # fmt: skip
DIFFERENTIABLE_LOOPS = frozenset(PROGRAMS) - {"while_loop"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Starts on one thread; the number of threads is restored."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def inputs(dtype: Any) -> list[Any]:
    """A matrix and weights."""
    torch.manual_seed(0)
    return [torch.randn(ROWS, WIDTH).to(dtype), (torch.randn(WIDTH, WIDTH) / 4).to(dtype)]


def outcome(run: Callable[..., Any], values: list[Any], gradients: bool) -> list[Any]:
    """The result, and the gradients of the inputs for a gradient that differs by element."""
    leaves = [x.detach().clone().requires_grad_(gradients) for x in values]
    result = run(*leaves)
    if not gradients:
        return [result]
    weights = torch.linspace(-1, 1, WIDTH).to(result.dtype)
    (result * weights).sum().backward()
    return [result.detach(), *[x.grad for x in leaves]]


@pytest.mark.parametrize("gradients", [False, True], ids=["result", "gradients"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits(name: str, dtype: Any, gradients: bool) -> None:
    program, values = PROGRAMS[name], inputs(dtype)
    gradients = gradients and name in DIFFERENTIABLE_LOOPS
    expected = outcome(program.run, values, gradients)
    compiled = torch.compile(program.run)
    for backward_compiled in (False, True):
        block = maybe_enable_compiled_autograd(True) if backward_compiled else nullcontext()
        with block:
            for _ in range(CALLS + 2):
                compare(expected, outcome(compiled, values, gradients))
            for threads in THREADS:
                torch.set_num_threads(threads)
                compare(expected, outcome(program.run, values, gradients))
                compare(expected, outcome(compiled, values, gradients))
    assert compiled._hits > 0 or not program.skips, compiled._reason


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.by_rows])
def test_a_row_alone(name: str) -> None:
    run, (x, w) = PROGRAMS[name].run, inputs(torch.float32)
    compiled = torch.compile(run)
    for _ in range(CALLS):
        result = compiled(x, w)
        for row in range(ROWS):
            of_row = result[row].contiguous()
            compare(of_row, run(x[row : row + 1], w)[0].contiguous())
            compare(of_row, compiled(x[row : row + 1], w)[0].contiguous())
