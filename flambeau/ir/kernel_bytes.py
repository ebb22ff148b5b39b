"""Kernels as bytes, for other processes: a worker that compiles them, plans on disk.

Nodes are written as a table, each after its operands, because `pickle` alone would recurse once per
node of a chain. What is read back has the same `text()`. Reading bytes runs what they name, so they
may only come from this user's own processes and files (`compiler/trust.py`).
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from flambeau.ir.kernel import Kernel
from flambeau.ir.node import Node, node, topological

FIELDS = (
    "form", "parameters", "size_count", "scalars", "rows", "inner", "body", "reduce", "tiled",
    "template", "settings",
)  # fmt: skip


class _Pickler(pickle.Pickler):
    """Writes nodes as their numbers."""

    def __init__(self, file: io.BytesIO, numbers: dict[Node, int]) -> None:
        super().__init__(file, protocol=5)
        self.numbers = numbers

    def persistent_id(self, value: Any) -> int | None:
        """The number of a node; None for all else."""
        return self.numbers[value] if type(value) is Node else None


class _Unpickler(pickle.Unpickler):
    """Reads numbers as nodes."""

    nodes: list[Node]

    def persistent_load(self, number: int) -> Node:
        """The node of a number."""
        return self.nodes[number]


def dumps(kernel: Kernel) -> bytes:
    """A kernel as bytes that `loads` reads."""
    numbers: dict[Node, int] = {}
    rows: list[tuple[Any, ...]] = []
    for value in topological(kernel.roots()):
        operands = tuple(numbers[operand] for operand in value.inputs)
        numbers[value] = len(rows)
        rows.append((value.op, operands, value.attributes, value.dtype, value.shape))
    file = io.BytesIO()
    pickle.dump(rows, file, protocol=5)
    _Pickler(file, numbers).dump(tuple(getattr(kernel, name) for name in FIELDS))
    return file.getvalue()


def loads(content: bytes) -> Kernel:
    """The kernel of bytes that `dumps` wrote."""
    file = io.BytesIO(content)
    nodes: list[Node] = []
    for op, operands, attributes, dtype, shape in pickle.load(file):
        nodes.append(node(op, [nodes[i] for i in operands], attributes, dtype, shape))
    reader = _Unpickler(file)
    reader.nodes = nodes
    return Kernel(*reader.load())
