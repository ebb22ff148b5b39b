"""Programs whose sizes vary from call to call, for Flambeau and for PyTorch.

Each is a function of the library, and gives the function that is compiled, the arguments of the
calls in order, and options of `torch.compile`.
"""

from __future__ import annotations

from typing import Any


def matrix(torch: Any, *shape: int) -> Any:
    """Numbers that differ."""
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count) * 0.37 - 1).sin().reshape(shape)


def rows(torch: Any, sizes: Any, columns: int = 3) -> list[Any]:
    """Arguments: one matrix per call."""
    return [(matrix(torch, n, columns),) for n in sizes]


def reading(x: Any) -> Any:
    """Arithmetic on sizes, of an input and of a result."""
    y = x.view(x.shape[0] * 3, -1) * x.shape[0]
    return y.reshape(x.size(0), 3)[: y.shape[0] // 4] / x.numel()


def branching(x: Any) -> Any:
    """Another program for large inputs."""
    return x.sin() if x.shape[0] > 5 else x.cos()


def looping(x: Any) -> Any:
    """A program for each size."""
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def marked(torch: Any, name: str, sizes: Any, calls: Any = slice(None)) -> list[Any]:
    """Arguments whose first size is marked, in all calls or in some."""
    arguments = rows(torch, sizes)
    for (x,) in arguments[calls]:
        getattr(torch._dynamo, name)(x, 0)
    return arguments


class Layer:
    """A module of the library."""

    def __new__(cls, torch: Any) -> Any:
        """Returns the module."""
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def images(torch: Any) -> Any:
    """A module of pictures, in training."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip


def attention(torch: Any) -> Any:
    """Heads of a batch of sequences."""

    def f(x: Any) -> Any:
        batch, length, width = x.shape
        heads = x.view(batch, length, 2, width // 2).transpose(1, 2)
        y = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return y.transpose(1, 2).contiguous().view(batch, length, width) + x

    return f


def programs(torch: Any) -> dict[str, tuple[Any, list[Any], dict[str, Any]]]:
    """The programs."""
    four = (4, 5, 6, 7)
    sin = torch.sin
    pairs = [(5, 5), (6, 6), (6, 7), (8, 8), (9, 4)]
    return {
        "default": (sin, rows(torch, four), {}),
        "dynamic": (sin, rows(torch, four), {"dynamic": True}),
        "static": (sin, rows(torch, four), {"dynamic": False}),
        "first again": (sin, rows(torch, (4, 5, 4, 6, 5)), {}),
        "one": (sin, rows(torch, (2, 5, 2, 7, 1, 1)), {}),
        "one, dynamic": (sin, rows(torch, (2, 5, 2, 7, 1, 0)), {"dynamic": True}),
        "reads": (reading, rows(torch, four), {}),
        "reads, dynamic": (reading, rows(torch, four), {"dynamic": True}),
        "branch": (branching, rows(torch, four), {"dynamic": True}),
        "branch, default": (branching, rows(torch, (4, 5, 6, 7, 3)), {}),
        "loop": (looping, rows(torch, (2, 3, 2, 4)), {"dynamic": True}),
        "marked": (sin, marked(torch, "mark_dynamic", four), {}),
        "maybe marked": (sin, marked(torch, "maybe_mark_dynamic", four), {}),
        "first marked": (sin, marked(torch, "mark_dynamic", four, slice(1)), {}),
        "second marked": (sin, marked(torch, "mark_dynamic", four, slice(1, 2)), {}),
        "first maybe marked": (sin, marked(torch, "maybe_mark_dynamic", four, slice(1)), {}),
        "second maybe marked": (sin, marked(torch, "maybe_mark_dynamic", four, slice(1, 2)), {}),
        "second marked static": (sin, marked(torch, "mark_static", four, slice(1, 2)), {}),
        "marked static": (sin, marked(torch, "mark_static", four), {}),
        "marked static, dynamic": (sin, marked(torch, "mark_static", four), {"dynamic": True}),
        "columns": (sin, [(matrix(torch, 4, n),) for n in four], {}),
        "both": (sin, [(matrix(torch, n, n + 1),) for n in four], {}),
        "rank": (sin, [(matrix(torch, *s),) for s in ((4,), (4, 5), (6, 7), (8,))], {}),
        "integer": (lambda x, n: x * n, [(matrix(torch, 3), n) for n in four], {}),
        "integer, dynamic": (
            lambda x, n: x.sum() + n, [(matrix(torch, 3), n) for n in four], {"dynamic": True},
        ),
        "two": (
            lambda x, y: (x.sin(), y.cos()),
            [(matrix(torch, a), matrix(torch, b)) for a, b in pairs], {"dynamic": True},
        ),
        "two together": (
            lambda x, y: x + y, [(matrix(torch, n), matrix(torch, n)) for n in four],
            {"dynamic": True},
        ),
        "two together, default": (
            lambda x, y: x + y, [(matrix(torch, n), matrix(torch, n)) for n in four], {},
        ),
        "dtype": (
            sin, [(matrix(torch, n).to(d),) for n, d in
                  ((4, torch.float32), (5, torch.float64), (6, torch.float32))], {},
        ),
        "made": (lambda x: torch.zeros(x.shape[0] + 1) + 1, rows(torch, four), {"dynamic": True}),
        "joined": (lambda x: torch.cat([x, x[1:]]).mean(0), rows(torch, four), {}),
        "module": (Layer(torch), rows(torch, four), {}),
        "module, dynamic": (Layer(torch), rows(torch, four), {"dynamic": True}),
        "transposed": (sin, [(matrix(torch, n, 3).t(),) for n in four], {}),
        "in place": (lambda x: x.add_(1).mul_(x.shape[0]), rows(torch, four), {}),
        "matrix product": (lambda x: x @ x.T, rows(torch, four), {}),
        "chunks": (lambda x: x.chunk(2)[1] * 2, rows(torch, (4, 6, 8, 10)), {"dynamic": True}),
        "images": (
            images(torch), [(matrix(torch, n, 3, n + 6, n + 6),) for n in (2, 4, 5, 6)], {},
        ),
        "attention": (attention(torch), [(matrix(torch, n, n + 3, 8),) for n in four], {}),
        "softmax": (lambda x: x.reshape(-1).softmax(0) * x.shape[0], rows(torch, four), {}),
    }  # fmt: skip
