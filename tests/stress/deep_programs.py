"""Random programs of equal layers, eager and compiled: results and gradients have the same bits.

    python -m tests.stress.deep_programs 0 200     seeds 0 to 199

A program repeats a random block, with connections between layers that make equal layers differ in
what they read: skips over several layers, shared weights, sums and lists of all layers' results,
numbers of their own, branches beside each other, writes to buffers, updates of parameters. Programs
of many layers are planned as ones of few (`flambeau/compiler/equal_layers.py`).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.compiler import equal_layers

F = torch.nn.functional
WIDTH, ROWS = 8, 4
Block = Callable[[Any, list[Any], int, "Deep"], Any]


def _linear(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return F.linear(x, deep.weight(layer), deep.bias(layer))


def _norm(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return F.layer_norm(x, (WIDTH,), deep.bias(layer))


def _skip(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return x + past[-min(deep.reach, len(past))] if past else x


def _gate(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return x * past[-1].sigmoid() if past else x.sigmoid()


def _first(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return x + past[0] * 0.5 if past else x


def _number(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return x * (1.0 + 0.25 * layer)


def _attend(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return (x @ x.t()).softmax(1) @ x


def _collect(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    deep.total = x.sum() if deep.total is None else deep.total + x.sum()
    return x


def _list(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    deep.results.append(x.mean(0))
    return x


def _count(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    deep.buffers[layer].mul_(0.9).add_(x.detach().mean(), alpha=0.1)
    return x + deep.buffers[layer]


def _parts(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    a, b = x.chunk(2, 1)
    return torch.cat([b, a.tanh()], 1)


def _drop(x: Any, past: list[Any], layer: int, deep: Deep) -> Any:
    return F.dropout(x, 0.25)


BLOCKS: list[Block] = [
    _linear, _linear, _norm, _skip, _gate, _first, _number, _attend, _collect, _list, _count,
    _parts, _drop,
]  # fmt: skip


class Deep:
    """A random program with its state.

    Args:
        seed: of the program; two of one seed have equal programs and state.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.layers = rng.randint(6, 24)
        self.reach = rng.randint(1, 4)
        self.shared = rng.choice([0, 0, 0, 1, 2, 3])  # every so many layers have one weight
        self.parallel = rng.random() < 0.25  # layers read the input, and results are added
        self.block = [rng.choice(BLOCKS) for _ in range(rng.randint(2, 6))]
        self.changed = rng.randrange(self.layers) if rng.random() < 0.3 else -1  # reads as relu
        self.optimizer = rng.choice([None, "SGD", "AdamW"])
        torch.manual_seed(seed)
        self.weights = [self._leaf(WIDTH, WIDTH) for _ in range(self.layers)]
        self.biases = [self._leaf(WIDTH) for _ in range(self.layers)]
        self.buffers = [torch.zeros(()) for _ in range(self.layers)]
        self.x = torch.randn(ROWS, WIDTH)
        self.total: Any = None
        self.results: list[Any] = []

    @staticmethod
    def _leaf(*shape: int) -> Any:
        return (torch.randn(*shape) / 4).requires_grad_()

    def weight(self, layer: int) -> Any:
        """The weight of a layer."""
        return self.weights[layer % self.shared if self.shared else layer]

    def bias(self, layer: int) -> Any:
        """The bias of a layer."""
        return self.biases[layer]

    def run(self, x: Any) -> Any:
        """The results, the first of which is a loss."""
        self.total, self.results = None, []
        past: list[Any] = []
        start = x = x + self.biases[0]
        for layer in range(self.layers):
            before = x = start if self.parallel else x
            for step in self.block:
                x = step(x, past, layer, self)
            if layer == self.changed:
                x = x.relu()
            past.append(before if len(past) % 2 else x)
            if self.parallel:
                self._add(x.square().mean() / (layer + 1))
        loss = x.square().mean()
        return loss if self.total is None else loss + self.total, list(self.results), x

    def _add(self, value: Any) -> None:
        self.total = value if self.total is None else self.total + value


def outcomes(seed: int, compiled: bool, gradients: bool, whole: bool) -> list[Any]:
    """Everything that three calls leave.

    Args:
        seed: of the program.
        compiled: whether it is compiled.
        gradients: whether there is a backward.
        whole: whether that, and updates of parameters, are part of the compiled function.
    """
    deep = Deep(seed)
    parameters = [*deep.weights, *deep.biases]
    optimizer = None
    if gradients and deep.optimizer:
        optimizer = getattr(torch.optim, deep.optimizer)(parameters, lr=0.01)

    def update(loss: Any) -> None:
        loss.backward()
        if optimizer is not None:
            optimizer.step()

    def step(x: Any) -> Any:
        results = deep.run(x)
        if gradients and whole:
            update(results[0])
        return results

    call = torch.compile(step) if compiled else step
    outcome: list[Any] = []
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = None
        with torch.set_grad_enabled(gradients):
            loss, results, last = call(deep.x)
            if gradients and not whole:
                update(loss)
        outcome += [x.detach().clone() for x in (loss, *results, last)]
        outcome += [x.grad.clone() for x in parameters if x.grad is not None]
        outcome += [x.detach().clone() for x in (*parameters, *deep.buffers)]
    return outcome


def difference(seed: int) -> str | None:
    """Where a program differs compiled; None: nowhere."""
    for gradients, whole in ((False, False), (True, False), (True, True)):
        expected, found = (outcomes(seed, c, gradients, whole) for c in (False, True))
        wrong = [
            number
            for number, (a, b) in enumerate(zip(expected, found, strict=True))
            if not torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
        ]
        if wrong:
            kind = "a whole step" if whole else "gradients" if gradients else "results"
            names = [step.__name__ for step in Deep(seed).block]
            return f"seed {seed}, {kind}: {len(wrong)} of {len(expected)} differ; {names}"
    return None


def main() -> None:
    """Runs the seeds of the command line."""
    first, last = (int(word) for word in sys.argv[1:3])
    torch.set_num_threads(1)
    equal_layers.WORTH = 0  # programs of few layers are shortened, too
    differing = 0
    for seed in range(first, last):
        text = difference(seed)
        if text is not None:
            differing += 1
            print(text, flush=True)
    print(f"{differing} of {last - first} programs differ")


if __name__ == "__main__":
    main()
