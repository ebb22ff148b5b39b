"""`torch._decomp`: operators in terms of simpler ones, for `make_fx` and compilers of graphs.

Tables are made from the definitions of the operators: an entry runs the one definition and writes
its program as calls. `core_aten_decompositions` writes core ATen, the other tables primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

import flambeau as torch
from flambeau.decompositions.tables import core_table, primitive_table
from flambeau.ir.failure import failure
from flambeau.runtime import missing

Value = Any  # an argument or a result of an operator

__all__ = [
    "core_aten_decompositions", "decomposition_table", "get_decompositions",
    "global_decomposition_table", "meta_table", "pre_autograd_decomposition_table",
    "register_decomposition", "remove_decompositions",
]  # fmt: skip

Table = MutableMapping[Value, Callable[..., Value]]

pre_autograd_decomposition_table: Table = {}
meta_table: Table = {}
_tables: dict[str, dict[str, Table]] = {}  # those that are public, once somebody reads them


def __getattr__(name: str) -> Value:
    """`decomposition_table` and `global_decomposition_table`, which list all operators."""
    if name == "global_decomposition_table":
        return _all_tables()
    if name == "decomposition_table":
        return _all_tables()["post_autograd"]
    missing.refuse(__name__, name)


def _all_tables() -> dict[str, Table]:
    if "global" not in _tables:
        tables: dict[str, Table] = {
            "post_autograd": primitive_table(),
            "pre_autograd": pre_autograd_decomposition_table,
            "meta": meta_table,
        }
        _tables.setdefault("global", tables)  # another thread may have been here meanwhile
    return _tables["global"]


def _table(kind: str, name: str) -> Table:
    tables = _all_tables()
    if kind not in tables:
        problem = f"no decompositions of type {kind!r}"
        raise failure(AssertionError, name, problem, f"one of {', '.join(tables)}")
    return tables[kind]


def _named(name: str) -> Value:
    """The operator of "aten::add.Tensor", "aten.add.Tensor" or "aten.add"."""
    space, _, path = name.replace("::", ".").partition(".")
    operator, _, overload = path.partition(".")
    packet = getattr(getattr(torch.ops, space), operator)
    return getattr(packet, overload) if overload else packet


def _overloads(op: Value) -> Iterator[Value]:
    """Overloads of what programs name an operator by; none of other objects."""
    if isinstance(op, str):
        op = _named(op)
    if callable(getattr(type(op), "overloads", None)):
        for name in op.overloads():
            yield getattr(op, name)
    elif hasattr(op, "overloadpacket"):
        yield op


def _operators(op: Value) -> list[Value]:
    overloads = list(_overloads(op))
    if not overloads:
        hint = "an overload, such as torch.ops.aten.add.Tensor"
        raise failure(AssertionError, "register_decomposition", f"{op!r} is no operator", hint)
    return overloads


def register_decomposition(
    aten_op: Value,
    registry: Table | None = None,
    *,
    type: str = "post_autograd",  # noqa: A002 - PyTorch's name
    unsafe: bool = False,
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """A decorator that registers a function as the decomposition of operators.

    Args:
        aten_op: an overload, all overloads of a name (`torch.ops.aten.add`), or a list of them.
        registry: the table; None: the global one of this type.
        type: "post_autograd", "pre_autograd" or "meta".
        unsafe: in PyTorch, whether the function is registered without a check of its signature.

    Returns:
        the decorator, which returns the function as it is.

    Raises:
        AssertionError: an unknown type, or what is registered for is no operator.

    Example:
        >>> from torch._decomp import register_decomposition
        >>> table = {}
        >>> @register_decomposition(torch.ops.aten.gelu.default, table)
        ... def fast_gelu(x, *, approximate="none"):
        ...     return x * torch.sigmoid(1.702 * x)
        >>> list(table)
        [<OpOverload(op='aten.gelu', overload='default')>]
    """
    table = _table(type, "register_decomposition") if registry is None else registry
    ops = aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        for op in ops:
            for overload in _operators(op):
                table[overload] = function
        return function

    return register


def get_decompositions(
    aten_ops: Sequence[Value],
    type: str = "post_autograd",  # noqa: A002 - PyTorch's name
) -> Table:
    """The decompositions of some operators, as a table for `make_fx`.

    Args:
        aten_ops: overloads, operators with all their overloads, or names ("aten::silu").
        type: of the global table: "post_autograd", "pre_autograd" or "meta".

    Returns:
        overload -> function; operators without an entry are left out.

    Raises:
        AssertionError: an unknown type.

    Example:
        >>> from torch._decomp import get_decompositions
        >>> table = get_decompositions([torch.ops.aten.silu])
        >>> sorted(map(str, table))
        ['aten.silu.default']
    """
    table = _table(type, "get_decompositions")
    overloads = [overload for op in aten_ops for overload in _overloads(op)]
    return {overload: table[overload] for overload in overloads if overload in table}


def remove_decompositions(decompositions: Table, aten_ops: Iterable[Value]) -> None:
    """Takes operators out of a table.

    Args:
        decompositions: the table, which is changed.
        aten_ops: as of `get_decompositions`.
    """
    for op in aten_ops:
        for overload in _overloads(op):
            decompositions.pop(overload, None)


def core_aten_decompositions() -> Table:
    """Decompositions that leave core ATen, the set of operators that exporters agree on.

    An operator with a primitive that no core operator computes (`lgamma`, `fft`) stays as it is.

    Returns:
        overload -> function, a table of the caller's own.

    Example:
        >>> from torch._decomp import core_aten_decompositions
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> module = make_fx(torch.nn.functional.silu, core_aten_decompositions())(torch.ones(3))
        >>> [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
        ['aten.sigmoid.default', 'aten.mul.Tensor']
    """
    return core_table()
