"""Finished plans of streams, kept on disk: a new process that records a known stream skips tracing,
simplification, scheduling and printing.

A plan's key is a digest of everything that decides about it: the programs of the recorded ops, how
they are wired, the geometry of the external tensors, the target, the C compiler, and the package's
own sources. The value names its kernels by their own keys; where one of them was evicted the stream
is compiled as if nothing had been stored.
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau.compiler import cache, codegen, debug, targets, toolchain
from flambeau.compiler.cache import blake2b
from flambeau.ir.node import Graph
from flambeau.runtime import settings


@dataclass
class StoredPlan:
    """What a plan consists of, in terms that another process understands.

    Attributes:
        hints: values of the symbols when it was traced.
        bytes_moved: see `stream.bytes_moved`.
        spec: the plan's description without its graph and its compile function.
        registers: of the metadata program.
        execution: what it compiles to, kernels by number.
        kernels: keys of the kernels, each under every level's name for it.
    """

    hints: list[int]
    bytes_moved: int
    spec: dict[str, Any]
    registers: int
    execution: dict[str, Any]
    kernels: list[tuple[str, ...]]


def key_of(externals: Sequence[Any], records: Sequence[Any], live: Sequence[Any]) -> str | None:
    """The digest under which a stream's plan is kept; None where nothing may be."""
    if settings.get("VERIFY") or codegen.collecting() or debug.observed():
        return None
    digest = blake2b(_environment_digest(), digest_size=16)
    numbers: dict[str, int] = {}
    wiring = []
    for plan, *rest in records:
        found = _fingerprint(plan.graph)
        if found is None:
            return None
        wiring.append((numbers.setdefault(found, len(numbers)), rest))
    digest.update(repr((list(numbers), wiring, externals, live)).encode())
    return str(digest.hexdigest())


def load(key: str) -> StoredPlan | None:
    """The plan under a key, if this machine still has it."""
    content = cache.get_blob(key)
    if content is None:
        return None
    try:
        return StoredPlan(*marshal.loads(content))
    except (ValueError, TypeError, EOFError):
        return None


def save(key: str, plan: StoredPlan) -> None:
    """Keeps a plan. What cannot be written down (a device object, say) is not kept."""
    try:
        content = marshal.dumps(tuple(vars(plan).values()))
    except ValueError:
        return
    cache.put_blob(key, content)


def execution_of(plan: StoredPlan) -> dict[str, Any] | None:
    """The execution with the addresses of this process; None if a kernel is gone."""
    handles = codegen.load_keys(plan.kernels)
    if handles is None:
        return None
    launches = [
        launch | {"kernel": handles[launch["kernel"]].address}
        if launch["kernel"] is not None
        else launch
        for launch in plan.execution["launches"]
    ]
    kept = [handle.keepalive for handle in handles]
    return plan.execution | {"launches": launches, "keepalive": kept}


def _fingerprint(graph: Graph) -> str | None:
    """Digest of a graph's text; None if it holds values without a stable text."""
    if "fingerprint" not in graph.notes:
        text = _text(graph)
        stable = " at 0x" not in text
        graph.notes["fingerprint"] = (
            blake2b(text.encode(), digest_size=16).hexdigest() if stable else None
        )
    found: str | None = graph.notes["fingerprint"]
    return found


def _text(graph: Graph) -> str:
    numbers: dict[Any, int] = {None: -1}
    lines = [repr((graph.symbols, graph.visible, graph.guards, graph.generators, graph.name))]
    for value in (*graph.nodes(), *graph.inputs, *graph.scalars):
        if value is not None and value not in numbers:
            operands = [numbers[i] for i in value.inputs]
            numbers[value] = len(numbers)
            lines.append(f"{value.op}{operands}{value.attributes}{value.dtype}{value.shape}")
    slots = [numbers[value] for value in (*graph.inputs, *graph.scalars)]
    outputs = [(numbers[o.node], o.strides, o.target, o.alias, o.offset) for o in graph.outputs]
    return "\n".join([*lines, repr((slots, outputs))])


@functools.cache
def _package_stamp() -> str:
    """Names, sizes and times of the package's files: cheaper than reading them."""
    package = Path(__file__).resolve().parent.parent
    found = []
    for folder, _, names in os.walk(package):
        if not folder.endswith("__pycache__"):
            for name in names:
                if name.endswith((".py", ".so")):
                    state = os.stat(os.path.join(folder, name))
                    found.append((folder, name, state.st_size, state.st_mtime_ns))
    return repr(sorted(found))


def _environment_digest() -> bytes:
    target = targets.current()
    parts = [_package_stamp(), sys.version, target.name, repr(target.all_flags)]
    return "\n".join([*parts, toolchain.find().identity]).encode()


__all__ = ["StoredPlan", "execution_of", "key_of", "load", "save"]
