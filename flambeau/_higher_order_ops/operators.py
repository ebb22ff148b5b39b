"""`torch.ops.higher_order`: operators whose arguments are functions of tensors.

Called plainly, an operator runs a loop or a branch of Python, on the tape and in compiled regions
as any code. While `make_fx` records, it becomes one node with a graph for each function. Functions
here take and return flat sequences; `torch.cond` and its relatives flatten.
"""

from __future__ import annotations

from collections.abc import Sequence

import flambeau as torch
from flambeau._higher_order_ops.flat import Function, Value
from flambeau._higher_order_ops.prefixes import prefixes
from flambeau.autograd.transforms.wrappers import Wrapper
from flambeau.ir.failure import failure
from flambeau.ir.lock import late, loaded
from flambeau.runtime import boundaries
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils import _python_dispatch
from flambeau.utils._pytree import tree_flatten, tree_unflatten

__all__ = [
    "associative_scan", "cond", "invoke_subgraph", "map_impl", "scan", "while_loop",
    "wrap_with_set_grad_enabled",
]  # fmt: skip


def recording() -> Value:
    """The mode of `make_fx`, or recorder, that makes nodes of this thread's operators; or None."""
    trace = loaded("flambeau.fx.experimental._operator_trace")
    stack = _python_dispatch._modes.stack
    if trace and stack and isinstance(stack[-1], trace.OperatorMode):
        return stack[-1]
    return boundaries.local.recorder


class HigherOrderOperator:
    """An operator that takes functions.

    Args:
        name: of the operator.
        run: computes it.

    Example:
        >>> torch.ops.higher_order.cond
        <HigherOrderOperator cond>
    """

    def __init__(self, name: str, run: Function) -> None:
        self.__name__ = self._name = name
        self.__module__ = "torch.ops.higher_order"
        self.run = run

    def name(self) -> str:
        """The operator's name."""
        return self._name

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<HigherOrderOperator {self._name}>"

    def __reduce__(self) -> tuple[Value, ...]:
        return by_name, (self._name,)

    def __call__(self, /, *args: Value, **kwargs: Value) -> Value:
        """Runs the operator, or records it."""
        recorder = recording()
        constant = self._name == "cond" and args and not isinstance(args[0], torch.Tensor)
        constant = constant and not is_symbolic(args[0])
        inlined = self._name == "wrap_with_set_grad_enabled"
        if recorder is None or constant or inlined:
            return self.run(*args, **kwargs)
        compiled = recorder is boundaries.local.recorder
        home = "_dynamo.higher_order" if compiled else "fx.experimental._control_flow"
        return late(f"flambeau.{home}").record(recorder, self, args, kwargs)


def by_name(name: str) -> HigherOrderOperator:
    """The operator of a name, which pickles refer to."""
    operator: HigherOrderOperator = globals()[name]
    return operator


# ------------------------------------------------------------------------------- conditions


def truth(name: str, value: Value) -> bool:
    """A condition as Python's truth value; a tensor's is read.

    Args:
        name: the operator's, for errors.
        value: a bool, a number, or a tensor of one element.

    Raises:
        RuntimeError: it is something else.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            problem = f"Expected pred to be bool or single-element tensor, but got {value}."
            raise failure(RuntimeError, name, problem, ".any() or .all()")
        return bool(value) if isinstance(value, Wrapper) else bool(value.item())
    if not isinstance(value, (bool, int, float)) and not is_symbolic(value):
        problem = f"Expected pred to be bool or tensor, but got {value}."
        raise failure(RuntimeError, name, problem, "a comparison")
    return bool(value)


def _differs(pred: Value) -> bool:
    """Whether a condition is that of many samples, which `vmap` maps over."""
    while isinstance(pred, Wrapper):
        if pred.level.extent is not None:
            return True
        pred = pred.value
    return False


def _selected(pred: Value, first: Value, second: Value) -> Value:
    """Per sample the result of the branch that it takes; both were computed."""
    leaves, spec = tree_flatten(first)
    others, other = tree_flatten(second)
    if spec != other:
        problem = f"true_fn returns {spec}, false_fn {other}"
        raise failure(RuntimeError, "cond", problem, "return equal containers from both")
    selected = [torch.where(pred, x, y) for x, y in zip(leaves, others, strict=True)]
    return tree_unflatten(selected, spec)


def _cond(
    pred: Value, true_fn: Function, false_fn: Function, operands: Sequence[Value] = ()
) -> Value:
    if _differs(pred) and pred.numel() == 1:
        return _selected(pred.reshape(()), true_fn(*operands), false_fn(*operands))
    return (true_fn if truth("cond", pred) else false_fn)(*operands)


def _while_loop(
    cond_fn: Function, body_fn: Function, carried_inputs: Sequence[Value],
    additional_inputs: Sequence[Value] = (),
) -> tuple[Value, ...]:  # fmt: skip
    values = tuple(carried_inputs)
    while truth("while_loop", cond_fn(*values, *additional_inputs)):
        following = tuple(body_fn(*values, *additional_inputs))
        require_equal("while_loop", "carried_inputs", values, following)
        values = following
    return values


# ------------------------------------------------------------------------------- iterations


def _scan(
    combine_fn: Function, init: Sequence[Value], xs: Sequence[Value],
    additional_inputs: Sequence[Value] = (), order: Sequence[int] | None = None, dim: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    carry, columns = list(init), []
    steps = range(len(xs[0])) if order is None else order
    for index in steps:
        slices = [x.select(dim, index) for x in xs]
        results = list(combine_fn(*carry, *slices, *additional_inputs))
        require_equal("scan", "init", carry, results[: len(carry)])
        carry, outputs = results[: len(carry)], results[len(carry) :]
        columns.append(outputs)
    if order is not None and len(order) > 1 and order[0] > order[-1]:
        columns.reverse()
    return (*carry, *(torch.stack(column, dim) for column in zip(*columns, strict=True)))


def _map(f: Function, xs: Sequence[Value], args: Sequence[Value] = ()) -> tuple[Value, ...]:
    rows = [tuple(f(*(x[index] for x in xs), *args)) for index in range(len(xs[0]))]
    for row in rows:
        if not all(isinstance(each, torch.Tensor) for each in row):
            problem = f"the function returns {[type(each).__name__ for each in row]}"
            raise uncaptured("map", problem, "return tensors, in containers if there are several")
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def _associative_scan(
    combine_fn: Function, xs: Sequence[Value], additional_inputs: Sequence[Value] = ()
) -> list[Value]:
    count = len(xs)

    def combine(left: list[Value], right: list[Value]) -> list[Value]:
        axes = (*(0 for _ in range(2 * count)), *(None for _ in additional_inputs))
        mapped = torch.vmap(lambda *slices: tuple(combine_fn(*slices)), in_dims=axes)
        return list(mapped(*left, *right, *additional_inputs))

    return prefixes(combine, list(xs))


def _invoke_subgraph(subgraph: Function, identifier: str | None, *operands: Value) -> Value:
    return late("flambeau.capture.recording").as_one_stream(subgraph, operands, {})


# ------------------------------------------------------------------------------- checks


def uncaptured(name: str, problem: str, hint: str) -> Exception:
    """An error about a function that was passed to an operator, of the class PyTorch raises."""
    kind = late("flambeau._dynamo.exc").UncapturedHigherOrderOpError
    error: Exception = failure(kind, name, problem, hint)
    return error


def _metadata(value: Value) -> tuple[Value, ...]:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape)
    return (type(value).__name__,)


def require_equal(name: str, what: str, before: Sequence[Value], after: Sequence[Value]) -> None:
    """Raises unless two sequences hold tensors of equal shapes and dtypes.

    Args:
        name: the operator's, for errors.
        what: the argument that has the first sequence.
        before, after: tensors and numbers.

    Raises:
        UncapturedHigherOrderOpError: they differ.
    """
    first, second = ([_metadata(value) for value in values] for values in (before, after))
    if first != second:
        problem = (
            f"Expected the function's results and {what} to have same metadata but found "
            f"{second} and {first}"
        )
        raise uncaptured(name, problem, f"make {what} like the results, or convert these")


def _wrap_with_set_grad_enabled(enabled: bool, wrapped: Function, *operands: Value) -> Value:
    """The function's results, with gradients enabled or not."""
    with torch.set_grad_enabled(enabled):
        return wrapped(*operands)


cond = HigherOrderOperator("cond", _cond)
while_loop = HigherOrderOperator("while_loop", _while_loop)
scan = HigherOrderOperator("scan", _scan)
map_impl = HigherOrderOperator("map_impl", _map)
associative_scan = HigherOrderOperator("associative_scan", _associative_scan)
invoke_subgraph = HigherOrderOperator("invoke_subgraph", _invoke_subgraph)
wrap_with_set_grad_enabled = HigherOrderOperator(
    "wrap_with_set_grad_enabled", _wrap_with_set_grad_enabled
)
