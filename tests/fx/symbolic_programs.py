"""Programs whose sizes vary, for graphs with symbols; of any library with PyTorch's API."""

from __future__ import annotations

import math
import operator

from tests.fx.functional_programs import numbers


def _shapes(library):
    """Shapes from sizes: name: function of one matrix."""
    torch = library

    def rows(x):
        n, m = x.shape
        return x.reshape(n * m, 1).expand(n * m, m)

    def halves(x):
        n = x.shape[0] // 2
        return x[:n], x[n:]

    def grown(x):
        return torch.cat([x, torch.zeros(x.shape[0], 2)], 1)

    def middle(x):
        return x[1:-1, 1:]

    def scaled(x):
        return x / math.sqrt(4.0) * x.size(-1)

    def mean(x):
        return x.sum() / (x.shape[0] * x.shape[1])

    def positions(x):
        return x + torch.arange(x.shape[1])

    def larger(x):
        return torch.ones(torch.sym_max(x.shape[0], 2 * x.shape[1]))

    def smaller(x):
        return x[: torch.sym_min(x.shape[0], x.shape[1])]

    def floats(x):
        return x * torch.sym_float(x.shape[0])

    def remainder(x):
        return torch.zeros(x.shape[0] % 4 + 1, x.shape[1] - 1)

    def flat(x):
        return x.flatten() + x.numel()

    def folded(x):
        return x.view(-1, 2).sum(1)

    def sizes(x):
        return x.shape[0], x.shape[1] + 1, x.numel()

    def windows(x):
        return x.unfold(1, 2, 1).mean(-1)

    def padded(x):
        return torch.nn.functional.pad(x, (1, 2)).sum(0)

    def repeated(x):
        return x.repeat(2, x.shape[0])

    def triangle(x):
        n = x.shape[1]
        return torch.tril(torch.ones(n, n)) @ x.t()

    def new(x):
        return x.new_zeros(x.shape[1], x.shape[0]) + x.t()

    def full(x):
        return torch.full((x.shape[0],), 2.5), torch.full_like(x, 3)

    def empty(x):
        return torch.empty(x.shape[1], 2).fill_(1.0)

    def stacked(x):
        return torch.stack([x, x * 2]).permute(1, 0, 2).reshape(x.shape[0], -1)

    def strided(x):
        return x.as_strided((x.shape[0], 2), (x.stride(0), 1))

    def narrowed(x):
        return x.narrow(0, 1, x.shape[0] - 1)

    def split(x):
        first, second = x.split([2, x.shape[1] - 2], 1)
        return first.sum(), second.sum(1)

    def powers(x):
        return torch.zeros(x.shape[0] ** 2)

    def negative(x):
        return x[:, -x.shape[1] + 1 :]

    return {
        "rows": rows, "halves": halves, "grown": grown, "middle": middle, "scaled": scaled,
        "mean": mean, "positions": positions, "larger": larger, "smaller": smaller,
        "floats": floats, "remainder": remainder, "flat": flat, "folded": folded, "sizes": sizes,
        "windows": windows, "padded": padded, "repeated": repeated, "triangle": triangle,
        "new": new, "full": full, "empty": empty, "stacked": stacked, "strided": strided,
        "narrowed": narrowed, "split": split, "powers": powers, "negative": negative,
    }  # fmt: skip


def _operators(library):
    """Operators: name: function of two matrices of one shape."""
    torch, functional = library, library.nn.functional

    def pointwise(x, y):
        return (x + y).sin() * y.relu() - x / (y + 3)

    def product(x, y):
        return x @ y.t()

    def attention(x, y):
        scores = (x @ y.t()) / math.sqrt(4)
        return scores.softmax(-1) @ y

    def reductions(x, y):
        return x.sum(0), y.mean(1, keepdim=True), x.amax(), y.argmax(1)

    def norm(x, y):
        return functional.layer_norm(x, (4,)) + functional.gelu(y)

    def joined(x, y):
        return torch.cat([x, y], 0), torch.stack([x, y], 1)

    def broadcast(x, y):
        return x.unsqueeze(1) + y.unsqueeze(0)

    def batches(x, y):
        return torch.bmm(x.unsqueeze(1), y.unsqueeze(2)).squeeze(-1)

    def in_place(x, y):
        z = x.clone()
        z.add_(y).mul_(2)
        z[0] = 0.0
        return z

    def sorted_values(x, y):
        values, places = x.sort(1)
        return values + y, places

    def gathered(x, y):
        return torch.gather(x, 1, y.sort(1).indices)

    def looked_up(x, y):
        return functional.embedding(torch.tensor([0, 2, 1]), x) + y[:3]

    def gradient(x, y):
        w = y.detach().requires_grad_()
        loss = (x * w).tanh().sum()
        return library.autograd.grad(loss, w)

    def gradient_of_mean(x, y):
        w = y.detach().requires_grad_()
        return library.autograd.grad((x @ w.t()).relu().mean(), w)

    def loss(x, y):
        return functional.mse_loss(x, y), functional.cross_entropy(x, y.argmax(1))

    def casts(x, y):
        return x.to(torch.float64) + y.double(), x > y

    def scans(x, y):
        return x.cumsum(0), torch.where(x > 0, x, y), x.clamp(-0.5, 0.5)

    def flips(x, y):
        return x.flip(0), y.roll(1, 0), x.tril(), y.diagonal()

    return {
        "pointwise": pointwise, "product": product, "attention": attention,
        "reductions": reductions, "norm": norm, "joined": joined, "broadcast": broadcast,
        "batches": batches, "in place": in_place, "sorted": sorted_values, "gathered": gathered,
        "looked up": looked_up, "gradient": gradient, "gradient of mean": gradient_of_mean,
        "loss": loss, "casts": casts, "scans": scans, "flips": flips,
    }  # fmt: skip


def _branches(library):
    """Branches on sizes: name: function of one matrix."""

    def compared(x):
        return x * 2 if x.shape[0] > 2 else x

    def even(x):
        if x.shape[1] % 2 == 0:
            return x.reshape(x.shape[0], 2, -1)
        return x

    def equal(x):
        return x.t() if x.shape[0] == x.shape[1] else x

    def loop(x):
        total = x[0]
        for row in range(1, x.shape[0]):
            total = total + x[row]
        return total

    def conditions(x):
        if x.shape[0] > 1 and x.shape[1] < 100:
            return x + 1
        return x

    return {
        "compared": compared, "even": even, "equal": equal, "loop": loop, "conditions": conditions,
    }  # fmt: skip


def _data(library):
    """Sizes and numbers that data decide: name: function of one matrix."""
    torch = library

    def nonzero(x):
        return (x > 0).nonzero()

    def selected(x):
        return x[x > 0] * 2

    def masked(x):
        return torch.masked_select(x, x > 0.5)

    def count(x):
        places = (x > 0).nonzero()
        return torch.zeros(places.shape[0])

    def item(x):
        n = (x > 0).sum().item()
        torch._check(n >= 0)
        return torch.zeros(n) + 1

    def number(x):
        return x * x.sum().item()

    def sliced(x):
        n = (x[:, 0] > 0).sum().item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        return torch.ones(n, x.shape[1])

    def unique(x):
        return torch.unique((x * 3).floor()) + 1

    return {
        "unique": unique, "nonzero": nonzero, "selected": selected, "masked": masked,
        "count": count, "item": item, "number": number, "sliced": sliced,
    }  # fmt: skip


def _numbers(library):
    """Functions of a matrix and an integer."""
    torch = library
    return {
        "integer": lambda x, n: x.sum() * n,
        "size": lambda x, n: torch.zeros(n, x.shape[0]),
        "both": lambda x, n: operator.add(x.repeat(n, 1), n),
    }


def programs(library, rows=5, columns=4):
    """name: (function, arguments)"""
    x, y = numbers(library, rows, columns), numbers(library, rows, columns, start=5)
    alone = _shapes(library) | _branches(library)
    cases = {name: (function, (x,)) for name, function in alone.items()}
    cases |= {f"data: {name}": (function, (x,)) for name, function in _data(library).items()}
    cases |= {f"two: {name}": (function, (x, y)) for name, function in _operators(library).items()}
    numbered = _numbers(library)
    return cases | {f"number: {name}": (f, (x, rows + 2)) for name, f in numbered.items()}


# Other sizes for which graphs of programs hold, where these are not all.
OTHER_SIZES = {
    "loop": ((5, 9),), "folded": ((6, 8), (3, 4)), "even": ((6, 8), (3, 4)),
    "two: norm": ((6, 4), (9, 4)), "remainder": ((7, 6), (9, 5)), "halves": ((7, 6), (4, 9)),
    "two: flips": ((7, 6), (12, 3)), "split": ((7, 6), (4, 9)),
}  # fmt: skip
