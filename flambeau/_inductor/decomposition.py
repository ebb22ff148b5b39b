"""`torch._inductor.decomposition`: which operators graphs of passes have in terms of others.

Graphs are of core ATen, as PyTorch's, and have eager mode's bits: an operator of core ATen
(`_softmax`, `gelu`) is one node, where PyTorch's compiler writes its formula. What a program
registers here holds for the graphs that passes get and for traces of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from flambeau import _decomp
from flambeau.fx.experimental._operator_trace import Value
from flambeau.runtime import missing

__all__ = [  # noqa: F822 - of `__getattr__`
    "decompositions", "register_decomposition", "select_decomp_table",
]  # fmt: skip

Table = MutableMapping[Value, Callable[..., Value]]

# Operators that PyTorch's compiler leaves as they are, too.
_LEFT = """baddbmm clamp_max clamp_min embedding_dense_backward glu index_add select_scatter
slice_scatter split squeeze sum unbind _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward""".split()

_tables: dict[str, Table] = {}  # the one that is public, once somebody reads it


def __getattr__(name: str) -> Value:
    """`decompositions`, which lists all operators."""
    if name == "decompositions":
        return select_decomp_table()
    missing.refuse(__name__, name)


def register_decomposition(
    ops: Value,
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """A decorator that registers a function as the decomposition of operators.

    Args:
        ops: an overload, all overloads of a name (`torch.ops.aten.silu`), or a list of them.
    """
    return _decomp.register_decomposition(ops, select_decomp_table())


def select_decomp_table() -> Table:
    """The table that graphs are traced with."""
    if "public" not in _tables:
        table = _decomp.core_aten_decompositions()
        _decomp.remove_decompositions(table, [f"aten::{name}" for name in _LEFT])
        _tables.setdefault("public", table)  # another thread may have been here meanwhile
    return _tables["public"]
