"""Launches of templates: where operands and results are, and calls that follow from a `Launch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flambeau.compiler import targets
from flambeau.compiler.schedule.build import Memory
from flambeau.compiler.schedule.calls import Reads, RoutineCall
from flambeau.compiler.templates.interface import Interface, Template
from flambeau.ir.geometry import Shape
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import Size, mul


class Binding(NamedTuple):
    """Memory of an operand or a result: offset in bytes, strides in elements."""

    memory: Memory
    offset: Size
    strides: Shape


def operand(value: Node, number: int, reads: Reads) -> Binding:
    """An operand, as the node views it."""
    source = value.inputs[number]
    place = reads(source)
    steps, offset = value.attribute("views")[number]
    return Binding(place.memory, mul(offset + place.offset, ITEM_SIZE[source.dtype]), steps)


def results(values: Sequence[Node], names: Sequence[str], reads: Reads) -> dict[str, Binding]:
    """The results of a launch by name; unwanted ones get memory that nobody writes."""
    first = values[0]
    by_name = {dict(value.attributes).get("result", names[0]): value for value in values}
    bindings = {}
    for name in names:
        if name in by_name:
            place, size = reads(by_name[name]), ITEM_SIZE[by_name[name].dtype]
            bindings[name] = Binding(place.memory, mul(place.offset, size), place.strides)
        else:
            unused = node("s.unused", (), (("of", first), ("result", name)), "f32", (1,))
            bindings[name] = Binding(("temporary", unused), 0, ())
    return bindings


def strides(interface: Interface, bindings: Mapping[str, Binding]) -> dict[str, Shape]:
    """The groups of size arguments: the strides of the buffers of their names."""
    groups = [argument for argument in interface.sizes if argument.group is not None]
    return {a.name: bindings[a.name].strides or (0,) * a.width for a in groups}


def template_call(template: Template[Any], values: Sequence[Node], reads: Reads) -> RoutineCall:
    """The launch that a template declares for a node."""
    assert template.launch is not None, template.name
    launch = template.launch(values[0])
    interface = template.interface(launch.settings, targets.current())
    operands = [buffer.name for buffer in interface.buffers if buffer.access == "r"]
    written = [buffer.name for buffer in interface.buffers if buffer.access != "r"]
    bindings = {name: operand(values[0], i, reads) for i, name in enumerate(operands)}
    bindings |= results(values, written, reads)
    groups = strides(interface, bindings)
    call = RoutineCall(template.name, work=launch.work, chunks=launch.chunks)
    buffers = {name: (binding.memory, binding.offset) for name, binding in bindings.items()}
    call.bind(interface, {**launch.sizes, **groups}, buffers)
    call.kernel = interface.kernel(template.name, launch.settings)
    return call
