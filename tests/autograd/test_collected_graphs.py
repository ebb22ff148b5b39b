"""Graphs that only the cyclic collector frees, while their leaves live on."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
import flambeau as torch
leaf = torch.ones(3, requires_grad=True)
found = []

def graph():
    holder = []  # older than the graph, so that the collector clears it first
    y = (leaf * 2).sum()
    y.holder = holder
    ended = torch.Generator()  # no object of the collector's: its end runs Python in the middle
    holder += [y, ended]
    return weakref.ref(ended, lambda _: found.append((leaf * 3).sum()))

watch = graph()
gc.collect()
found[0].backward()
print(leaf.grad.tolist())
"""


def test_an_accumulator_is_taken_up_while_its_graph_is_collected():
    """The collector clears dead objects one by one, and some of them run Python when they end.

    That Python may differentiate by a leaf of the dead graph: it met the leaf's accumulator, which
    was cleared a moment later; the next backward crashed. In a process of its own, therefore.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.strip() == "[3.0, 3.0, 3.0]", (done.returncode, done.stderr)
