"""Compilers of graphs that do nothing, or show them: for looking at what others get."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.fx import GraphModule
from flambeau.fx.experimental._operator_trace import Function, Value

__all__ = ["boxed_nop", "nop", "print_compile"]


def nop(fx_g: GraphModule, example_inputs: Sequence[Value]) -> Function:
    """The graph as it is: its operators run one by one."""
    return fx_g


def boxed_nop(fx_g: GraphModule, example_inputs: Sequence[Value]) -> Function:
    """The graph as a function of one list, which is emptied, so that inputs can be freed."""

    def run(args: list[Value]) -> Value:
        values = list(args)
        args.clear()
        return fx_g(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def print_compile(fx_g: GraphModule, example_inputs: Sequence[Value]) -> Function:
    """Prints the code of the graph, and returns it as it is."""
    print(fx_g.code)
    return fx_g
