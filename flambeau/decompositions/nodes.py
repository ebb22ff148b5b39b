"""The autograd nodes that `grad_fn` shows for a call: PyTorch's classes, and their inputs.

The tape has one node per call of a public operator. The native core calls this module once per Plan
for its Python view (`native/tape/node_view.cpp`). Where PyTorch composes an operator of others, the
composition is run on tensors without memory, and each inner operator that it calls is a node: the
last one is the call's own, those before it are made when `next_functions` is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import _core
from flambeau._core import Node
from flambeau.decompositions import names
from flambeau.ir.lock import importing, late
from flambeau.ops import aten

__all__ = ["InnerNode", "inner_nodes", "saved_places", "view_of"]

Tensor = Any
View = tuple[str, tuple[int | None, ...] | None, bool, tuple[int, ...]]


# ------------------------------------------------------------------------------ a call
class _Slot:
    """A tensor of a call."""

    def __init__(self, number: int, entry: _core.TensorArgument) -> None:
        self.number, self.entry = number, entry

    def hollow(self) -> Tensor:
        """A tensor of the same sizes, strides and dtype, without memory."""
        entry = self.entry
        dtypes = late("flambeau.language.dtypes")
        dtype = dtypes.object_of(entry.dtype)
        tensor = _core.tensor_empty_strided(entry.sizes, entry.strides, dtype, "meta")
        return tensor.requires_grad_() if entry.requires_grad else tensor


class _Call:
    """The call that a Plan was first made for."""

    def __init__(self, origin: Any) -> None:
        self.overload = origin.source.overload
        numbers = iter(range(1 << 30))
        self.values = [_value(entry, numbers) for entry in origin.call]
        self.schema = self.overload.schema.arguments
        self.arguments = [a.native() for a in self.schema]

    def operator(self, inplace: bool) -> Any:
        """The overload of the inner library that the call is one of."""
        name = aten.inner_name(self.overload)
        if inplace and not names.is_inplace(name):
            name += "_"
        return aten.overload_named(name, self.arguments, self.values)


def _value(entry: Any, numbers: Iterator[int]) -> Any:
    if isinstance(entry, list):
        return [_value(item, numbers) for item in entry]
    if type(entry) is _core.TensorArgument:
        return _Slot(next(numbers), entry)
    if type(entry) in (_core.ScalarArgument, _core.IntegerArgument):
        return entry.value
    return None if type(entry) is _core.GeneratorArgument else entry


# ------------------------------------------------------------------------------ compositions
class _Made:
    """A node of a composition.

    Attributes:
        inputs: a slot, a node with the number of its result, or None.
        saved: see `saved_places`.
        number: of the call in the composition.
    """

    def __init__(self, name: str, inputs: list[Any], saved: dict[str, Any], number: int) -> None:
        self.name, self.inputs, self.saved, self.number = name, inputs, saved, number


class _Composition:
    """The nodes of a composition, and which of them each result is of."""

    def __init__(self, call: _Call, compose: Any) -> None:
        with importing:
            from flambeau.utils import _python_dispatch as dispatch

        self.sources: dict[int, Any] = {}
        self.alive: list[Any] = []
        values = [self._operand(value) for value in call.values]
        named = {a.name: value for a, value in zip(call.arguments, values, strict=True)}
        with dispatch._only(_recorder(dispatch, self)), _core.enable_grad():
            results = compose(**named)
        flat = results if isinstance(results, (tuple, list)) else (results,)
        self.results = [self.sources.get(id(x)) for x in flat]

    def _operand(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._operand(item) for item in value]
        if not isinstance(value, _Slot):
            return value
        tensor = value.hollow()
        self.alive.append(tensor)
        if tensor.requires_grad:
            self.sources[id(tensor)] = value.number
        return tensor

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls an inner operator and notes it."""
        arguments, values = aten.bound(func, args, kwargs)
        operator, overload = func.overloadpacket.__name__, func._overloadname
        tensors = names.inputs_of(operator, overload, arguments, values)
        inputs = [self.sources.get(id(x)) for x in tensors]
        with _core.no_grad():
            result = func(*args, **kwargs)
        flat = result if isinstance(result, (tuple, list)) else (result,)
        self.alive += flat
        tracked = any(isinstance(x, _core.Tensor) and x.is_floating_point() for x in flat)
        tracked = tracked or any(isinstance(x, _core.Tensor) and x.is_complex() for x in flat)
        if tracked and _core.is_grad_enabled() and any(x is not None for x in inputs):
            places = _places(arguments, values, lambda x: self.sources.get(id(x)))
            node = _Made(names.class_name(operator, overload), inputs, places, len(self.alive))
            self.sources |= {id(x): (node, k) for k, x in enumerate(flat)}
        return result

    def plain(self) -> bool:
        """Whether the results are of nodes; some, as indices, may have no gradient."""
        first = bool(self.results) and isinstance(self.results[0], tuple)
        return first and not any(isinstance(x, int) for x in self.results)


def _recorder(dispatch: Any, composition: _Composition) -> Any:
    class Recorder(dispatch.TorchDispatchMode):  # type: ignore[misc]
        _tracks = False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            return composition.record(func, args, kwargs or {})

    return Recorder()


def _composition(call: _Call, inplace: bool = False) -> _Composition | None:
    with importing:
        from flambeau.decompositions.composites import composite_of

    compose = composite_of(call.overload, inplace)
    if compose is None:
        return None
    suspended = _core.record_suspend()
    try:
        composition = _Composition(call, compose)
    except Exception:  # it looks at data, or is stricter: the call itself succeeded
        return None
    finally:
        _core.record_resume(suspended)
    return composition if composition.plain() else None


# ------------------------------------------------------------------------------ views of nodes
def view_of(origin: Any, targets: tuple[int, ...], inplace: bool) -> View:
    """How Python sees the nodes of a Plan.

    Args:
        origin: the call that the Plan is of, and its source.
        targets: the slots whose gradients the nodes give, in order.
        inplace: whether the call writes its operand.

    Returns:
        The class; per input the number of the node's own edge (or None), or None where inputs are
        nodes inside of the call; whether the results have several nodes; and the numbers of the
        edges in the order in which their targets are released.
    """
    if origin.source.overload is None:  # a gradient that is differentiated again
        order = tuple(range(len(targets)))
        return names.gradient_class(origin.source), order, False, order
    call = _Call(origin)
    composition = _composition(call, inplace)
    if composition is None:
        func = call.operator(inplace)
        operator = func.overloadpacket.__name__
        overload = func._overloadname
        inputs = names.inputs_of(operator, overload, call.arguments, call.values)
        slots = [x.number if isinstance(x, _Slot) else None for x in inputs]
        order = _order(slots, targets)
        values = {a.name: v for a, v in zip(call.arguments, call.values, strict=True)}
        return names.last_name(names.class_name(operator, overload), values), *_plain(order)
    root = composition.results[0][0]
    several = any(x is not None and x[0] is not root for x in composition.results)
    if several or not all(x is None or isinstance(x, int) for x in root.inputs):
        return root.name, None, several, _released(composition, targets)
    return root.name, *_plain(_order(root.inputs, targets))


def _plain(order: tuple[int | None, ...]) -> tuple[tuple[int | None, ...], bool, tuple[int, ...]]:
    """The end of a view without inner nodes: leaves are released in the order of inputs."""
    return order, False, tuple([k for k in order if k is not None])


def _released(composition: _Composition, targets: tuple[int, ...]) -> tuple[int, ...]:
    """Edges in the order in which a backward through the inner nodes releases them.

    An inner node runs when those that use it have run, the newest first; slots come before nodes.
    """
    waiting: dict[int, int] = {}
    roots = {id(x[0]): x[0] for x in composition.results if isinstance(x, tuple)}
    reached = list(roots.values())
    for one in reached:  # grows while it is walked
        for source in one.inputs:
            if isinstance(source, tuple):
                if id(source[0]) not in waiting:
                    reached.append(source[0])
                waiting[id(source[0])] = waiting.get(id(source[0]), 0) + 1
    ready = [one for one in roots.values() if id(one) not in waiting]
    slots: list[int] = []
    while ready:
        one = max(ready, key=lambda each: each.number)
        ready.remove(one)
        for source in one.inputs:
            if isinstance(source, int):
                slots.append(source)
            elif isinstance(source, tuple):
                waiting[id(source[0])] -= 1
                if not waiting[id(source[0])]:
                    ready.append(source[0])
    last = dict.fromkeys(reversed(slots))  # a slot that is used twice is released by its last use
    order = _order([slot for slot in reversed(last) if slot in targets], targets)
    return tuple([k for k in order if k is not None])


def _order(slots: Sequence[int | None], targets: tuple[int, ...]) -> tuple[int | None, ...]:
    """Numbers of edges by input; edges that belong to no input come last."""
    edges = {slot: k for k, slot in enumerate(targets)}
    order = [edges.get(slot) if slot is not None else None for slot in slots]
    missing = [k for k in range(len(targets)) if k not in order]
    return (*order, *missing)


class InnerNode(Node):  # type: ignore[misc]
    """A node of an operator inside of a composition: to be looked at.

    The composition is one node of the tape, so gradients between its parts do not exist.
    """

    _pairs: tuple[tuple[Any, int], ...] = ()

    def name(self) -> str:
        """The name of its class."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Its inputs."""
        return self._pairs

    def register_hook(self, fn: Any) -> Any:
        """Raises NotImplementedError: the gradients that a hook would see are not made."""
        raise _no_hooks(self)

    def register_prehook(self, fn: Any) -> Any:
        """Raises NotImplementedError: the gradients that a hook would see are not made."""
        raise _no_hooks(self)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"


def _no_hooks(node: InnerNode) -> NotImplementedError:
    return NotImplementedError(
        f"[{node.name()}] an operator that is part of another one has no hooks\n"
        "hint: hooks of the tensors, or of the grad_fn of the operator's result"
    )


_classes: dict[str, type[InnerNode]] = {}


def _named(name: str, sequence: int) -> InnerNode:
    kind = _classes.get(name)
    if kind is None:
        kind = _classes.setdefault(name, type(name, (InnerNode,), {"__module__": "builtins"}))
    node = kind()
    node._set_sequence_nr(sequence)
    return node


def inner_nodes(
    origin: Any, node: Node, raw: tuple[tuple[Any, int], ...], targets: tuple[int, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The nodes inside of a composition.

    Args:
        origin: of its Plan.
        node: of the tape.
        raw: what its edges lead to.
        targets: the slots of these.

    Returns:
        `next_functions` of the node, and the node of each result.
    """
    composition = _composition(_Call(origin))
    assert composition is not None
    edges = dict(zip(targets, raw, strict=True))
    root = composition.results[0][0]
    shown: dict[int, Any] = {id(root): node}
    sequence = node._sequence_nr()

    def pairs(one: _Made) -> tuple[Any, ...]:
        return tuple([pair(x) for x in one.inputs])

    def pair(source: Any) -> Any:
        if source is None:
            return None, 0
        if isinstance(source, int):
            return edges.get(source, (None, 0))
        return of(source[0]), source[1]

    def of(one: _Made) -> Any:
        node = shown.get(id(one))
        if node is None:
            node = shown[id(one)] = _named(one.name, sequence)
            node._pairs = pairs(one)
        return node

    return pairs(root), tuple([node if x is None else of(x[0]) for x in composition.results])


# ------------------------------------------------------------------------------ saved values
def saved_places(origin: Any) -> dict[str, tuple[str, Any]]:
    """Attributes `_saved_*` of the nodes of a Plan.

    Args:
        origin: the call that the Plan is of, and its source.

    Returns:
        By name ("input", slot), ("output", number) or ("value", itself).
    """
    if origin.source.overload is None:
        return {}
    call = _Call(origin)
    composition = _composition(call)
    if composition is not None:
        return dict(composition.results[0][0].saved)
    places = _places(call.arguments, call.values, lambda x: x.number)
    results = call.overload.schema.returns
    for number in range(len(results)):
        places["_saved_result" + str(number) * (len(results) > 1)] = "output", number
    return places


def _places(
    arguments: Sequence[Any], values: Sequence[Any], slot_of: Callable[[Any], Any]
) -> dict[str, Any]:
    places: dict[str, Any] = {}
    for (name, *_), value in zip(arguments, values, strict=True):
        if isinstance(value, (_Slot, _core.Tensor)):
            shape = value.entry.sizes if isinstance(value, _Slot) else value.shape
            places[f"_saved_{name}_sym_sizes"] = "value", tuple(shape)
            slot = slot_of(value)
            if isinstance(slot, int):
                places[f"_saved_{name}"] = "input", slot
        elif not isinstance(value, list) or all(isinstance(x, int) for x in value):
            places[f"_saved_{name}"] = "value", value
    return places
