"""The parts of a call of an operator that takes functions, for those who record it as a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flambeau as torch
from flambeau._higher_order_ops.flat import Function, Value
from flambeau._higher_order_ops.operators import require_equal, truth, uncaptured
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils._pytree import tree_leaves, tree_map

__all__ = ["Arrangement", "Like", "arranged"]


class Like(NamedTuple):
    """A result of an operator: a new tensor.

    Attributes:
        shape: its sizes.
        tensor: has its dtype and device.
    """

    shape: tuple[int, ...]
    tensor: Value


class Arrangement(NamedTuple):
    """A call, taken apart.

    Attributes:
        functions: among the arguments.
        operands: of each function.
        leading: arguments in front of the functions.
        template: gives those behind them, for the further tensors that the functions read.
        results: gives a `Like` for each result, for the list of what the functions returned;
            checks these.
    """

    functions: tuple[Function, ...]
    operands: list[Value]
    leading: tuple[Value, ...]
    template: Callable[[Sequence[Value]], tuple[Value, ...]]
    results: Callable[[Sequence[Value]], Value]


Slices = Callable[[Sequence[Value]], list[Value]]


def _like(value: Value) -> Value:
    return tree_map(lambda x: Like(tuple(x.shape), x), value)


def _stacked(values: Sequence[Value], length: int) -> tuple[Like, ...]:
    return tuple(Like((length, *x.shape), x) for x in values)


def _cond(
    first: Slices, pred: Value, true_fn: Function, false_fn: Function,
    operands: Sequence[Value] = (),
) -> Arrangement:  # fmt: skip
    if not isinstance(pred, torch.Tensor) and not is_symbolic(pred):
        pred = torch.tensor(truth("cond", pred))

    def results(returned: Sequence[Value]) -> Value:
        _require_equal_branches(*returned)
        return _like(returned[0])

    return Arrangement(
        (true_fn, false_fn),
        list(operands),
        (pred,),
        lambda lifted: ((*operands, *lifted),),
        results,
    )


def _require_equal_branches(first: Value, second: Value) -> None:
    leaves = [tree_leaves(results) for results in (first, second)]
    for each in (*leaves[0], *leaves[1]):
        if not isinstance(each, torch.Tensor):
            problem = f"a branch returns a {type(each).__name__}"
            raise uncaptured("cond", problem, "return tensors: torch.tensor(value)")
    facts = [[(x.dtype, tuple(x.shape)) for x in results] for results in leaves]
    if facts[0] != facts[1]:
        problem = f"true_fn returns {facts[0]}, false_fn {facts[1]}"
        hint = "return equally many tensors of equal dtypes and shapes from both"
        raise failure(RuntimeError, "cond", problem, hint)


def _while_loop(
    first: Slices, cond_fn: Function, body_fn: Function, carried: Sequence[Value],
    additional: Sequence[Value] = (),
) -> Arrangement:  # fmt: skip
    carried = tuple(carried)
    if not all(isinstance(x, torch.Tensor) for x in carried):
        problem = f"a number is carried while a graph is recorded: {carried}"
        raise failure(NotImplementedError, "while_loop", problem, "carry torch.tensor(number)")

    def results(returned: Sequence[Value]) -> Value:
        require_equal("while_loop", "carried_inputs", carried, returned[1])
        return _like(carried)

    return Arrangement(
        (cond_fn, body_fn), [*carried, *additional], (),
        lambda lifted: (carried, (*additional, *lifted)), results,
    )  # fmt: skip


def _scan(
    first: Slices, combine_fn: Function, init: Sequence[Value], xs: Sequence[Value],
    additional: Sequence[Value] = (),
) -> Arrangement:  # fmt: skip
    init, xs, count = list(init), list(xs), len(init)

    def results(returned: Sequence[Value]) -> Value:
        carry, outputs = returned[0][:count], returned[0][count:]
        require_equal("scan", "init", init, carry)
        return (*_like(tuple(init)), *_stacked(outputs, xs[0].shape[0]))

    return Arrangement(
        (combine_fn,), [*init, *first(xs), *additional], (),
        lambda lifted: (init, xs, (*additional, *lifted)), results,
    )  # fmt: skip


def _map(
    first: Slices, f: Function, xs: Sequence[Value], args: Sequence[Value] = ()
) -> Arrangement:
    xs = list(xs)
    return Arrangement(
        (f,), [*first(xs), *args], (), lambda lifted: (xs, [*args, *lifted]),
        lambda returned: _stacked(returned[0], xs[0].shape[0]),
    )  # fmt: skip


def _associative_scan(
    first: Slices, combine_fn: Function, xs: Sequence[Value], additional: Sequence[Value] = ()
) -> Arrangement:
    xs = list(xs)
    return Arrangement(
        (combine_fn,), [*first(xs), *first(xs), *additional], (),
        lambda lifted: (xs, (*additional, *lifted)), lambda returned: _like(tuple(xs)),
    )  # fmt: skip


def _invoke_subgraph(
    first: Slices, subgraph: Function, identifier: str | None, *operands: Value
) -> Arrangement:
    return Arrangement(
        (subgraph,), list(operands), (), lambda lifted: (identifier, *operands, *lifted),
        lambda returned: _like(returned[0]),
    )  # fmt: skip


_ARRANGEMENTS: dict[str, Callable[..., Arrangement]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative_scan,
    "invoke_subgraph": _invoke_subgraph,
}


def arranged(name: str, first: Slices, args: Value, kwargs: Value) -> Arrangement:
    """Takes a call apart.

    Args:
        name: the operator's.
        first: gives the first slices of tensors, without recording that.
        args, kwargs: its arguments.
    """
    return _ARRANGEMENTS[name](first, *args, **kwargs)
