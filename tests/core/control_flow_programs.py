"""Operators that take functions, each beside the loop or branch of Python that it stands for."""

from __future__ import annotations

import flambeau as torch
from flambeau.utils.checkpoint import checkpoint

hops = torch._higher_order_ops
torch.manual_seed(0)
W = torch.randn(8)
X = torch.randn(4, 8)


def scan(x):
    """Two results: the last carry and an output per row."""
    return hops.scan(lambda c, v: (c + v * c.sin(), c * v), W, x)


def scan_in_python(x):
    carry, outputs = W, []
    for row in range(len(x)):
        v = x.select(0, row)
        carry, output = carry + v * carry.sin(), carry * v
        outputs.append(output)
    return carry, torch.stack(outputs)


def scan_from_the_end(x):
    return hops.scan(lambda c, v: ({"c": c["c"] * v}, [c["c"], v * 2]), {"c": W[:4]}, x, dim=1,
                     reverse=True)[1]  # fmt: skip


def scan_from_the_end_in_python(x):
    carry, outputs = W[:4], []
    for column in reversed(range(x.shape[1])):
        v = x.select(1, column)
        carry, output = carry * v, (carry, v * 2)
        outputs.insert(0, output)
    return [torch.stack(each, 1) for each in zip(*outputs, strict=True)]


def mapped(x):
    return hops.map(lambda v, y: {"a": v.sin() * y, "b": v + 1}, x, W)["a"]


def mapped_in_python(x):
    return torch.stack([x[row].sin() * W for row in range(len(x))])


def branch(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin() + 1, lambda a: a.cos() * 2, (x,))


def branch_in_python(x):
    return x.sin() + 1 if x.sum() > 0 else x.cos() * 2


def nested(x):
    return torch.cond(
        x.sum() > 0,
        lambda a: torch.cond(a[0, 0] > 0, lambda b: b * x, lambda b: b.exp(), (a * 2,)),
        lambda a: a.cos() * W,
        (x,),
    )


def nested_in_python(x):
    if x.sum() > 0:
        y = x * 2
        return y * x if x[0, 0] > 0 else y.exp()
    return x.cos() * W


def recomputed(x):
    def segment(a):
        return checkpoint(lambda b: (b.sin() * b).exp(), a, use_reentrant=False)

    return torch.cond(x.sum() > 0, segment, lambda a: a.cos() * 2, (x,))


def recomputed_in_python(x):
    return (x.sin() * x).exp() if x.sum() > 0 else x.cos() * 2


def loop(x):
    start = (torch.tensor(0), {"x": x})
    return torch.while_loop(
        lambda i, d: i < 3, lambda i, d: (i + 1, {"x": d["x"] * d["x"].sin()}), start
    )[1]["x"]


def loop_in_python(x):
    for _ in range(3):
        x = x * x.sin()
    return x


def prefixes(x):
    return hops.associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


def prefixes_in_python(x):  # the operator's order: pairs first
    pairs = x[:3:2] * x[1::2]
    odd = torch.stack([pairs[:1], pairs[:1] * pairs[1::2]], 1).reshape(2, -1)
    even = torch.cat([x[:1], odd[:-1] * x[2::2]])
    return torch.stack([even[:2], odd], 1).reshape(4, -1)


PAIRS = {
    "scan": (scan, scan_in_python),
    "scan from the end": (scan_from_the_end, scan_from_the_end_in_python),
    "map": (mapped, mapped_in_python),
    "cond": (branch, branch_in_python),
    "nested": (nested, nested_in_python),
    "checkpoint": (recomputed, recomputed_in_python),
    "while_loop": (loop, loop_in_python),
    "associative_scan": (prefixes, prefixes_in_python),
}


def derivatives(function, x, orders=2):
    """Results, the gradient of their sines' sum, and that of its square."""
    x = x.clone().requires_grad_()
    results = function(x)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    loss = sum(y.sin().sum() for y in results)
    for order in range(orders):
        (gradient,) = torch.autograd.grad(loss, x, create_graph=order + 1 < orders)
        results.append(gradient)
        loss = (gradient**2).sum()
    return [result.detach() for result in results]


def same(first, second):
    """Whether two lists of tensors have equal bits."""
    return len(first) == len(second) and all(map(torch.equal, first, second))
