"""Custom functions of autograd, hooks and checkpoints in a dry run.

Their nodes are on the tape of the dry run, and the core calls the machine in place of the code of
users: `backward` and hooks are interpreted as all Python is.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from flambeau import _core
from flambeau._core import Node
from flambeau.capture.frame.evidence import Unexplained
from flambeau.capture.frame.generators import Opaque

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine
    from flambeau.capture.frame.values import Operand

READS = vars(Node)["__getattribute__"]  # is the plain one for contexts of functions
SHOWN = (vars(Node)["_saved_tensors"],)  # by fresh nodes


class Serial(Opaque, int):
    """The number of a hook, which is another one in each call."""


def number(machine: Machine) -> Serial:
    """`hook_number`: nothing but the hook's dict and its handle have it."""
    return machine.fresh(Serial(_core.hook_number()))


def begin(machine: Machine, context: object, args: tuple[Operand, ...]) -> Operand:
    """`function_begin`, of a context of the dry run."""
    machine.writable(context)
    return machine.native(_core.function_begin, context, args)


def finish(
    machine: Machine, context: object, args: Operand, outputs: Operand, *values: Operand
) -> Operand:
    """`function_finish`, of a context of the dry run."""
    machine.writable(context)
    return machine.native(_core.function_finish, context, args, outputs, *values)


def zeros(machine: Machine, node: object, index: int) -> Operand:
    """`node_zeros`"""
    machine.writable(node)
    return machine.native(_core.node_zeros, node, index)


def hooks(machine: Machine, tensor: object) -> Operand:
    """`tensor_hooks`, of a result of the dry run."""
    if not _core.record_pending(tensor):
        raise Unexplained("it adds a hook to a tensor from outside")
    return machine.fresh(machine.native(_core.tensor_hooks, tensor))


def backward(machine: Machine, *args: Operand) -> Operand:
    """`run_backward`: the engine runs on the tape of the dry run."""
    machine.touch(args)
    result = machine.native(_core.run_backward, *args)
    machine.sweep()
    return result


def call(machine: Machine, function: Operand, values: tuple[Operand, ...] | None) -> Operand:
    """Calls code of users for the core, with its arguments; None: hooks are read."""
    if values is None:
        return _read(machine, function)
    if isinstance(function, Node):
        function = machine.getattr(function, "apply")
    return machine.call(function, values, {})


def push_hooks(machine: Machine, pack: object, unpack: object) -> None:
    """`push_saved_hooks`; the core drops what a dry run leaves."""
    machine.native(_core.push_saved_hooks, pack, unpack)


def is_referenced(machine: Machine, reference: object) -> bool:
    """`is_referenced`: the caller may also store what nobody needs."""
    machine.writable(reference)
    return True


def backward_key(machine: Machine) -> Serial | None:
    """`backward_key`: another one in each call."""
    key = _core.backward_key()
    return None if key is None else machine.fresh(Serial(key))


def queue_callback(machine: Machine, function: object) -> None:
    """`queue_callback`"""
    machine.native(_core.queue_callback, function)


class RandomState(Opaque):
    """The state of the default generator, by the draws of the stream before it."""

    def __init__(self) -> None:
        self.draws = _core.record_draws()


def get_state(machine: Machine) -> RandomState:
    """The generator's state, of which nothing may be read."""
    return machine.fresh(RandomState())


def set_state(machine: Machine, state: object) -> None:
    """The generator goes on from a state, which must be the one that it is in."""
    if type(state) is not RandomState or state.draws != _core.record_draws():
        raise Unexplained("it sets the state of a generator")


def _read(machine: Machine, table: OrderedDict[int, object]) -> None:
    """The hooks of a tensor are read, in order."""
    if machine.is_fresh(table):
        return
    if len(table) > 1:
        raise Unexplained("a tensor has several hooks")  # whose order has no version
    machine.evidence.items(table)
