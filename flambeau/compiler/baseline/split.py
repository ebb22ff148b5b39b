"""Templates without a compiler: prebuilt kernels, and epilogues as launches of their own.

A kernel of a template is compiled for its epilogue. Where the compiler is not run, its launch
becomes two: the prebuilt variant (`baseline/variants.py`) stores the results, and a map computes
the epilogue from them. Results that are stored as they are anyway need no second launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flambeau.compiler import targets
from flambeau.compiler.baseline.variants import is_variant
from flambeau.compiler.schedule.build import CHUNK_ELEMENTS, COST_PER_NANOSECOND, Scalar
from flambeau.compiler.schedule.epilogue import cost_of
from flambeau.compiler.schedule.launch import Buffer, Launch, Schedule, with_lifetimes
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.attention import AttentionSettings
from flambeau.compiler.templates.convolution import ConvolutionSettings
from flambeau.compiler.templates.interface import Interface
from flambeau.ir import kernel as k
from flambeau.ir.kernel import Kernel, Pass
from flambeau.ir.node import ITEM_SIZE, Attributes, Node, node, topological
from flambeau.ir.size import (
    Size,
    affine_in,
    choose,
    floordiv,
    free_symbols,
    maximum,
    minimum,
    mul,
    prod,
    rename,
    substitute,
    symbol,
)

Arguments = dict[str, Any]  # size arguments by name: sizes, or tuples of them
Location = tuple[int, Size]  # number of a buffer, bytes to skip


def split(schedule: Schedule) -> Schedule:
    """The schedule with prebuilt kernels of templates in place of all others.

    A launch that no prebuilt kernel can replace stays as it is.
    """
    buffers = list(schedule.buffers)
    parts = [_launches(launch, buffers) for launch in schedule.launches]
    launches = [launch for part in parts for launch in part]
    origins = [number for number, part in enumerate(parts) for _ in part]
    return Schedule(launches, with_lifetimes(buffers, launches), schedule.written, origins)


def _launches(launch: Launch, buffers: list[Buffer]) -> list[Launch]:
    kernel = launch.kernel
    if kernel is None or kernel.form != "template" or is_variant(kernel, targets.current()):
        return [launch]
    family = _FAMILIES.get(kernel.template.partition("_")[0])
    if family is None:
        return [launch]
    added: list[Buffer] = list(buffers)
    replacements = family(_Call(launch, kernel), added)
    if not any(is_variant(x.kernel, targets.current()) for x in replacements if x.kernel):
        return [launch]
    buffers[:] = added
    return replacements


class _Call:
    """A launch of a template's kernel, read by its interface.

    Attributes:
        launch: the launch.
        kernel: its kernel.
        settings: of the kernel.
        interface: of the template, without the epilogue.
        arguments: the template's size arguments, by name.
        locations: of its buffers, by name.
        general: the settings of the prebuilt kernel.
    """

    def __init__(self, launch: Launch, kernel: Kernel) -> None:
        self.launch, self.kernel = launch, kernel
        self.template = TEMPLATES[kernel.template]
        self.settings: Any = self.template.settings.of(kernel)
        self.interface: Interface = self.template.of(kernel, targets.current())
        self.arguments: Arguments = self.interface.named(launch.sizes)
        names = [buffer.name for buffer in self.interface.buffers]
        self.locations = dict(zip(names, zip(launch.buffers, launch.offsets)))
        self.general: Any = self.template.general(self.settings)

    def variant(
        self,
        arguments: Arguments,
        locations: dict[str, Location] | None = None,
        result: Location | None = None,
        strides: Sequence[Size] = (),
    ) -> Launch:
        """The launch of the prebuilt kernel.

        Args:
            arguments: size arguments by name.
            locations: of buffers by name, if they are others.
            result: buffer of the results, where the template has none itself.
            strides: size arguments beyond those of the template.
        """
        interface = self.template.interface(self.general, targets.current())
        by_name = {**self.locations, **(locations or {})}
        located = [by_name[buffer.name] for buffer in interface.buffers]
        located += [] if result is None else [result]
        return replace(
            self.launch,
            kernel=self.template.variant(self.general, targets.current()),
            buffers=[buffer for buffer, _ in located],
            offsets=[offset for _, offset in located],
            sizes=[*interface.arguments(arguments), *strides],
            scalars=self.launch.scalars[: len(self.interface.scalars)],
        )


# ------------------------------------------------------------------------------- families


def _product(call: _Call, buffers: list[Buffer]) -> list[Launch]:
    """Coordinates are the batch, rows and columns."""
    missing = call.general.batch - call.settings.batch
    batch: tuple[Size, ...] = call.arguments.get("batch", ())
    if call.kernel.template == "product_pack":
        return [call.variant({**call.arguments, "batch": (1, 0) * missing + batch})]
    sizes: Arguments = {**call.arguments, "batch": (1, 0, 0) * missing + batch}
    height, width, swapped = sizes["height"], sizes["width"], sizes["swapped"]
    extents = (*batch[::3], choose(swapped, width, height), choose(swapped, height, width))
    store = _only_store(call)
    if store is not None:
        strides = [*(0,) * missing, *store.strides, store.start]
        result = call.launch.buffers[store.parameter], call.launch.offsets[store.parameter]
        return [call.variant(sizes, result=result, strides=strides)]
    temporary = _temporary(call, extents, buffers)
    strides = [*(0,) * missing, *_strides(extents)[:-1], 0]
    results = call.variant(sizes, result=(temporary, 0), strides=strides)
    return [results, _epilogue(call, temporary, extents)]


def _convolution(call: _Call, buffers: list[Buffer]) -> list[Launch]:
    """Coordinates are the sample, the channel and the place in it, or the place and the channel
    where channels are contiguous."""
    settings: ConvolutionSettings = call.settings
    sizes = call.arguments
    if not settings.fused:
        return [call.variant(sizes)]
    channels, space = mul(sizes["groups"], sizes["outer"]), sizes["y"]
    extents = (sizes["batch"], channels, prod(space))
    inside: tuple[Size, ...] = (mul(space[1], space[2]), space[2], 1)
    channel = prod(space)
    if settings.turned:
        extents = (sizes["batch"], prod(space), channels)
        inside, channel = tuple(mul(stride, channels) for stride in inside), 1
    temporary = _temporary(call, extents, buffers)
    strides = {"ys_batch": mul(channels, prod(space)), "ys_channel": channel, "ys": inside}
    results = call.variant({**sizes, **strides}, {"result": (temporary, 0)})
    return [results, _epilogue(call, temporary, extents)]


def _attention(call: _Call, buffers: list[Buffer]) -> list[Launch]:
    """Masks become numbers to add; where there is none, a size argument says so. Chunks are those
    of the general tiles, or of one vector of queries, which is a chunk in any tiles."""
    settings: AttentionSettings = call.settings
    if settings.tiles != call.general.tiles and settings.vectors != 1:
        return [call.launch]
    if not settings.mask:
        absent = {"masked": 0, "mask": (0, 0, 0, 0)}
        return [call.variant({**call.arguments, **absent}, {"mask": call.locations["query"]})]
    sizes = call.arguments
    heads = mul(sizes["heads"], sizes["groups"])
    shape = (sizes["batch"], heads, sizes["queries"], sizes["keys"])
    extents = tuple(1 if stride == 0 else n for n, stride in zip(shape, sizes["mask"]))
    dense = _strides(extents)
    strides = tuple(0 if stride == 0 else new for stride, new in zip(sizes["mask"], dense))
    buffers.append(_dense(call.general.mask, extents))
    temporary = len(buffers) - 1
    attention = call.variant({**sizes, "mask": strides}, {"mask": (temporary, 0)})
    return [_numbers_of_mask(call, temporary, extents), attention]


_FAMILIES: dict[str, Callable[[_Call, list[Buffer]], list[Launch]]] = {
    "product": _product,
    "convolution": _convolution,
    "attention": _attention,
}


# ------------------------------------------------------------------------------- results


class _Store(NamedTuple):
    """Where the results of a product are stored as they are: buffer, strides, elements to skip."""

    parameter: int
    strides: list[Size]
    start: Size


def _only_store(call: _Call) -> _Store | None:
    """The store of the results themselves, if there is nothing else to do, along columns."""
    axes, stores = [f"p{d}" for d in range(len(call.kernel.rows))], _stores(call.kernel)
    if len(stores) != 1:
        return None
    parameter, position, value = stores[0]
    affine = affine_in(position, (*axes, "r"))
    if not k.KEPT.matches(value) or affine is None or affine[0].get("r") != 1:
        return None
    bound = {f"n{i}": size for i, size in enumerate(call.launch.sizes)}
    strides = [substitute(affine[0].get(axis, 0), bound) for axis in axes]
    return _Store(parameter, strides, substitute(affine[1], bound))


def _stores(kernel: Kernel) -> tuple[k.Store, ...]:
    (statement,) = kernel.body
    assert isinstance(statement, Pass)
    return statement.stores


def _temporary(call: _Call, extents: Sequence[Size], buffers: list[Buffer]) -> int:
    """The number of a new buffer for the results."""
    buffers.append(_dense(call.settings.result, extents))
    return len(buffers) - 1


def _dense(dtype: str, extents: Sequence[Size]) -> Buffer:
    return Buffer("temporary", mul(prod(extents), ITEM_SIZE[dtype]))


def _strides(extents: Sequence[Size]) -> list[Size]:
    return [prod(extents[d + 1 :]) for d in range(len(extents))]


# ------------------------------------------------------------------------------- the epilogue


def _epilogue(call: _Call, temporary: int, extents: Sequence[Size]) -> Launch:
    """The map that computes a kernel's epilogue from stored results, which are dense."""
    launch, kernel, own = call.launch, call.kernel, len(call.interface.buffers)
    dtype: str = call.settings.result
    numbers = _numbers(kernel)
    names = {f"n{number}": f"n{i + len(extents)}" for i, number in enumerate(numbers)}
    moved = _Moved(k.load(0, _position(len(extents)), dtype), names, 1 - own)
    return _map(
        f"{launch.name}: epilogue",
        extents,
        [launch.sizes[number] for number in numbers],
        ((dtype, "r"), *kernel.parameters[own:]),
        [(temporary, 0), *zip(launch.buffers[own:], launch.offsets[own:])],
        moved.body(kernel),
        (kernel.scalars, launch.scalars),
    )


def _numbers_of_mask(call: _Call, temporary: int, extents: Sequence[Size]) -> Launch:
    """The map that makes a mask numbers to add to scores, if attention computes anything."""
    kind, dtype = call.general.mask, call.settings.mask
    strides = [symbol(f"n{len(extents) + d}") for d in range(len(extents))]
    position: Size = 0
    for axis, stride in zip(_axes(len(extents)), strides):
        position = position + mul(symbol(axis), stride)
    mask = k.load(0, position, dtype)
    if dtype == "bool":
        hidden = k.const(-math.inf, kind)
        value = node("where", (mask, k.const(0.0, kind), hidden), (), kind)
    else:
        value = mask if dtype == kind else node("cast", (mask,), (("dtype", kind),), kind)
    launch = _map(
        f"{call.launch.name}: mask",
        extents,
        call.arguments["mask"],
        ((dtype, "r"), (kind, "w")),
        [call.locations["mask"], (temporary, 0)],
        (Pass(((1, _position(len(extents)), value),)),),
        ((), []),
    )
    launch.chunks = mul(launch.chunks, minimum(1, call.launch.chunks))
    return launch


def _axes(count: int) -> list[str]:
    return [*(f"p{d}" for d in range(count - 1)), "r"]


def _position(count: int) -> Size:
    """An element of a dense array whose extents are the first size arguments."""
    shape = [symbol(f"n{d}", minimum=1) for d in range(count)]
    position: Size = 0
    for axis, stride in zip(_axes(count), _strides(shape)):
        position = position + mul(symbol(axis), stride)
    return position


def _map(
    name: str,
    extents: Sequence[Size],
    others: Sequence[Size],
    parameters: tuple[tuple[str, str], ...],
    locations: Sequence[Location],
    body: tuple[Pass, ...],
    scalars: tuple[tuple[str, ...], list[Scalar]],
) -> Launch:
    """The launch of a map.

    Args:
        name: for people.
        extents: of its axes, the first size arguments.
        others: size arguments behind them.
        parameters: dtype and access of each buffer.
        locations: of the buffers.
        body: its one statement.
        scalars: dtypes, and arguments, of run-time numbers.
    """
    per_chunk = maximum(1, floordiv(CHUNK_ELEMENTS, maximum(1, extents[-1])))
    sizes = [*extents, *others, per_chunk]
    shape = [symbol(f"n{d}", minimum=1) for d in range(len(extents))]
    dtypes, arguments = scalars
    kernel = Kernel("map", parameters, len(sizes), dtypes, tuple(shape[:-1]), shape[-1], body)
    elements = prod(extents)
    bytes_of = [0 if dtype == "error" else ITEM_SIZE[dtype] for dtype, _ in parameters]
    return Launch(
        kernel=kernel,
        routine=None,
        name=name,
        buffers=[buffer for buffer, _ in locations],
        offsets=[offset for _, offset in locations],
        sizes=sizes,
        scalars=list(arguments),
        chunks=k.chunk_count(kernel, sizes),
        work=floordiv(mul(elements, cost_of(body) + 1), COST_PER_NANOSECOND),
        elements=elements,
        traffic=bytes_of,
    )


def _numbers(kernel: Kernel) -> list[int]:
    """The size arguments that an epilogue reads."""
    sizes: list[Size] = [position for _, position, _ in _stores(kernel)]
    for value in topological(kernel.roots()):
        sizes += [value.attribute(name, 0) for name in _SIZES]
    used = {name for size in sizes for name in free_symbols(size) if name[0] == "n"}
    return sorted(int(name[1:]) for name in used)


_SIZES = ("index", "expression", "size")  # attributes that are size expressions


class _Moved:
    """An epilogue as the body of a map.

    Args:
        result: takes the place of the template's result.
        names: new names of size arguments.
        shift: added to the numbers of parameters.
    """

    def __init__(self, result: Node, names: dict[str, str], shift: int) -> None:
        self.result, self.names, self.shift = result, names, shift

    def body(self, kernel: Kernel) -> tuple[Pass, ...]:
        """The one statement of the map."""
        values: dict[Node, Node] = {}
        for value in topological(kernel.roots()):
            inputs = tuple([values[i] for i in value.inputs])
            values[value] = self._value(value, inputs)
        stores = tuple(
            (parameter + self.shift, rename(position, self.names), values[value])
            for parameter, position, value in _stores(kernel)
        )
        return (Pass(stores),)

    def _value(self, value: Node, inputs: tuple[Node, ...]) -> Node:
        if k.KEPT.matches(value):
            return self.result
        return node(value.op, inputs, self._attributes(value), value.dtype, value.shape)

    def _attributes(self, value: Node) -> Attributes:
        if not (k.LOAD.matches(value) or k.INDEX.matches(value) or k.CHECK_INDEX.matches(value)):
            return value.attributes
        attributes: dict[str, Any] = dict(value.attributes)
        for name in _SIZES:
            if name in attributes:
                attributes[name] = rename(attributes[name], self.names)
        if "parameter" in attributes:
            attributes["parameter"] += self.shift
        return tuple(attributes.items())


__all__ = ["split"]
