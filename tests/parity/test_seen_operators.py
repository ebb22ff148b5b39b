"""Operators that a dispatch mode sees beside PyTorch's, forwards and backwards; counted operations.

What is bookkeeping in one of the libraries is left out of both lists: PyTorch keeps gradients that
others have, too, by operators that a mode sees. Results that are saved and gradients that are kept
are detached in both.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")

import torch.utils._python_dispatch  # noqa: E402, F811
import torch.utils.flop_counter  # noqa: E402

import flambeau  # noqa: E402
import flambeau.utils._python_dispatch  # noqa: E402
import flambeau.utils.flop_counter  # noqa: E402
from tests.parity.module_graphs import CASES, SEEN_OTHERWISE, run, split  # noqa: E402

BOOKKEEPING = {"aten.new_empty_strided.default"}


def shortened(names):
    """The names without bookkeeping: a kept copy of a gradient is an empty tensor and a copy."""
    pairs = zip([None, *names], names, strict=False)
    kept = "aten.new_empty_strided.default"
    copies = [f"{b}" for a, b in pairs if not (a == kept and b == "aten.copy_.default")]
    return [name for name in copies if name not in BOOKKEEPING]


def comparable(expression, names):
    """What is compared: gradients of attention have the leaves' layout here, and are detached."""
    loose = "scaled_dot_product" in expression
    return [n for n in names if not (loose and n == "aten.detach.default")]


def log_of(library):
    class Log(library.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    return Log()


def prepared(expression, library):
    library.manual_seed(0)
    return [library.randn(*shape).requires_grad_() for shape in CASES[expression]]


def results(value, library):
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in results(item, library)]
    return [value] if isinstance(value, library.Tensor) and value.requires_grad else []


def seen(expression, library):
    """Operators forwards, and backwards from ones."""
    operands = prepared(expression, library)
    layer, call = split(expression)
    made = run(layer, library, [])
    named = operands if made is None else [*operands, *[None] * (3 - len(operands)), made]
    with log_of(library) as forward:
        value = run(call, library, named)
    outputs = results(value, library)
    ones = [library.ones_like(x) for x in outputs]
    with log_of(library) as backward:
        library.autograd.backward(outputs, ones)
    return tuple(comparable(expression, shortened(log.seen)) for log in (forward, backward))


@pytest.mark.parametrize("expression", list(CASES))
def test_operators(expression):
    ours, theirs = seen(expression, flambeau), seen(expression, torch)
    if expression in SEEN_OTHERWISE:
        assert ours != theirs, f"it is as in PyTorch now: {SEEN_OTHERWISE[expression]}"
    else:
        assert ours == theirs


COUNTED = [name for name in CASES if any(word in name for word in ("nn.", "mm", "matmul", "@"))]


@pytest.mark.parametrize("expression", COUNTED)
def test_counted_operations(expression):
    def counts(library):
        operands = prepared(expression, library)
        with library.utils.flop_counter.FlopCounterMode(display=False) as counter:
            outputs = results(run(expression, library, operands), library)
            library.autograd.backward(outputs, [library.ones_like(x) for x in outputs])
        found = counter.get_flop_counts().get("Global", {})
        return {str(packet): count for packet, count in found.items()}

    if "LSTM(" in expression:
        return  # one operator of oneDNN, which counts nothing
    assert counts(flambeau) == counts(torch)
