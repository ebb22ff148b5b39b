"""`grad_fn` beside PyTorch's: classes of nodes and their inputs, down to the leaves."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
pytest.importorskip("scipy", reason="PyTorch's operator database needs it")

import flambeau  # noqa: E402
from tests.parity.entry_checks import Twin, entry_name, samples_of  # noqa: E402
from tests.parity.module_graphs import CASES, KNOWN, OTHERWISE, run  # noqa: E402
from tests.parity.operator_database import database  # noqa: E402
from tests.parity.translation import entry_function  # noqa: E402


def tree(node, depth=0):
    """A node with what it was made of: "AddmmBackward0(L, L, TBackward0(L))"."""
    if node is None:
        return "-"
    name = node.name().rpartition("::")[2]
    if name == "AccumulateGrad":
        return "L"
    if depth > 8:
        return name
    inputs = [tree(n, depth + 1) + f":{i}" * (i > 0) for n, i in node.next_functions]
    return f"{name}({', '.join(inputs)})"


def trees(value, library):
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in trees(item, library)]
    if isinstance(value, library.Tensor) and value.requires_grad:
        return [tree(value.grad_fn)]
    return []


@pytest.mark.parametrize("expression", list(CASES))
def test_modules(expression):
    def graph(library):
        library.manual_seed(0)
        operands = [library.randn(*shape).requires_grad_() for shape in CASES[expression]]
        return trees(run(expression, library, operands), library)

    if expression in KNOWN:
        assert graph(flambeau) != graph(torch), f"it is as in PyTorch now: {KNOWN[expression]}"
    else:
        assert graph(flambeau) == graph(torch)


def _differs(entry):
    """The graphs of an entry's first sample, where they differ."""
    for sample in samples_of(entry, torch.float32, 1, grad=True):
        twin = Twin(sample)
        result, expected, wrong = twin.run(entry.op, entry_function(entry))
        if wrong is None:
            mine, right = trees(result, flambeau), trees(expected, torch)
            if mine != right:
                return f"{entry_name(entry)}: {mine}, expected {right}"
    return None


def _swept(entry):
    name = entry_name(entry)
    supported = getattr(entry, "supported_backward_dtypes", None)
    if name.startswith(("_foreach", *OTHERWISE.split())) or supported is None:
        return False
    return torch.float32 in supported("cpu")


@pytest.mark.parametrize("part", range(4))
def test_operators(part):
    """PyTorch's operator database, but for `OTHERWISE`."""
    entries = [entry for entry in database() if _swept(entry)][part::4]
    assert not [wrong for entry in entries if (wrong := _differs(entry)) is not None]
