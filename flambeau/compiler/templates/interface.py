"""The interface of a template's kernel: what the scheduler passes, and what its C text reads.

A template declares its settings, size arguments, buffers, scalars and scratch arrays once, as
objects of this module. The scheduler passes sizes and buffers by name (`schedule/calls.py`) and
computes the bytes of scratch with `Interface.scratch_bytes`; the printer declares C structs from
the same objects (`codegen/c/kernels/c_interface.py`).

This package knows `ir` and targets, and neither the scheduler nor a printer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Generic, NamedTuple, TypeVar

from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel, Setting
from flambeau.ir.node import ITEM_SIZE, Node
from flambeau.ir.size import Size, ceildiv, mul, substitute

C = TypeVar("C", bound="Settings")


@dataclass(frozen=True)
class Settings:
    """Compile-time choices of a template: subclasses are dataclasses whose fields are strings,
    numbers and truth values. A field that has its default is absent from the kernel's text."""

    @classmethod
    def of(cls: type[C], kernel: Kernel) -> C:
        """The settings of a kernel."""
        return cls(**dict(kernel.settings))

    def suits(self, target: Target) -> bool:
        """Whether the target has the instructions of a kernel of these settings."""
        del target
        return True

    def pairs(self) -> tuple[tuple[str, Setting], ...]:
        """As `Kernel.settings` has them."""
        values = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        return tuple(
            sorted((n, v) for n, v, default in values if default is MISSING or v != default)
        )


class Group(NamedTuple):
    """Size arguments that belong together, a struct in C: the strides of an operand.

    Attributes:
        name: of the struct.
        members: in order.
    """

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class SizeArgument:
    """A size argument, or a group of them.

    Attributes:
        name: in C a member of the kernel's sizes.
        group: the members; None: one number.
        count: groups in a row, an array in C; None: one.
    """

    name: str
    group: Group | None = None
    count: int | None = None

    @property
    def width(self) -> int:
        """How many numbers it is."""
        members = 1 if self.group is None else len(self.group.members)
        return members * (1 if self.count is None else self.count)


class Buffer(NamedTuple):
    """A buffer.

    Attributes:
        name: in C a member of the kernel's buffers.
        dtype: of its elements in memory.
        access: "r", "w" or "rw".
    """

    name: str
    dtype: str
    access: str


@dataclass(frozen=True)
class Array:
    """An array of a worker's scratch memory.

    Attributes:
        name: in C a member of the kernel's arrays.
        dtype: of its elements.
        count: of its elements; its symbols are size arguments. That of the last array may have
            symbols that the scheduler alone knows.
        alignment: in bytes, a power of two; 0: that of the elements.
    """

    name: str
    dtype: str
    count: Size
    alignment: int = 0


class Interface(NamedTuple):
    """The arguments of a template's kernel.

    Attributes:
        sizes: size arguments, in order. Those of an epilogue follow.
        buffers: in order. Those of an epilogue follow.
        scalars: name and dtype of run-time numbers, in order.
        scratch: arrays of a worker's scratch memory, in order.
        gap: elements between two arrays, and behind the last one: for tests.
    """

    sizes: tuple[SizeArgument, ...]
    buffers: tuple[Buffer, ...]
    scalars: tuple[tuple[str, str], ...] = ()
    scratch: tuple[Array, ...] = ()
    gap: int = 0

    @property
    def size_count(self) -> int:
        """Number of size arguments."""
        return sum(argument.width for argument in self.sizes)

    def named(self, arguments: Sequence[Size]) -> dict[str, Size | tuple[Size, ...]]:
        """The size arguments of a call by name, less those of an epilogue."""
        values: dict[str, Size | tuple[Size, ...]] = {}
        start = 0
        for argument in self.sizes:
            numbers = tuple(arguments[start : start + argument.width])
            single = argument.group is None and argument.count is None
            values[argument.name] = numbers[0] if single else numbers
            start += argument.width
        return values

    def arguments(self, values: Mapping[str, Size | Sequence[Size]]) -> list[Size]:
        """Size arguments in order.

        Args:
            values: by name; a sequence of a group.
        """
        check_names("size argument", [argument.name for argument in self.sizes], values)
        ordered: list[Size] = []
        for argument in self.sizes:
            value = values[argument.name]
            numbers = list(value) if isinstance(value, Sequence) else [value]
            if len(numbers) != argument.width:
                raise ValueError(
                    f"[template] {argument.name!r} has {argument.width} size arguments"
                )
            ordered += numbers
        return ordered

    def ends(self) -> list[Size]:
        """Per scratch array the byte where it ends, the gap behind it included."""
        total: Size = 0
        ends = []
        for array in self.scratch:
            if array.alignment:
                total = mul(ceildiv(total, array.alignment), array.alignment)
            total = total + mul(array.count + self.gap, ITEM_SIZE[array.dtype])
            ends.append(total)
        return ends

    def scratch_bytes(self, values: Mapping[str, Size | Sequence[Size]]) -> Size:
        """Bytes of scratch of a worker, given values of the symbols by name."""
        numbers = {n: v for n, v in values.items() if not isinstance(v, Sequence)}
        return substitute(self.ends()[-1], numbers) if self.scratch else 0

    def kernel(self, template: str, settings: Settings) -> Kernel:
        """The kernel of these settings, without an epilogue."""
        return Kernel(
            "template",
            tuple((buffer.dtype, buffer.access) for buffer in self.buffers),
            self.size_count,
            tuple(dtype for _, dtype in self.scalars),
            (),
            1,
            (),
            template=template,
            settings=settings.pairs(),
        )


class Launch(NamedTuple, Generic[C]):
    """The launch of a template whose kernel computes a node alone.

    Attributes:
        settings: of the kernel.
        sizes: size arguments by name, but for the groups of strides, which have buffers' names.
        chunks: number of chunks.
        work: estimated nanoseconds.
    """

    settings: C
    sizes: Mapping[str, Size]
    chunks: Size
    work: Size


class Template(NamedTuple, Generic[C]):
    """A template.

    Attributes:
        name: `Kernel.template`.
        settings: their class.
        interface: of some settings on a target.
        samples: settings that together reach all of its text: the lint compiles them.
        launch: of a node whose operands are the buffers that are read, in order, and whose results
            are the other ones; None: the scheduler has a function of its own.
        names: what the file `kernels/<name>.c.in` is filled in with; None: a printer of its own,
            `c_template_<family>`, prints the kernel.
        body: of a kernel of samples without one, kernels with bodies; None: it is complete.
        general: the settings of the prebuilt kernel that computes, without an epilogue, what one of
            these settings does.
        stored: of a kernel without a body, the one that stores its results; None: it is complete.
    """

    name: str
    settings: type[C]
    interface: Callable[[C, Target], Interface]
    samples: Callable[[], Iterable[C]]
    launch: Callable[[Node], Launch[C]] | None = None
    names: Callable[[C, Target], Mapping[str, str | int]] | None = None
    body: Callable[[Kernel], Iterable[Kernel]] | None = None
    general: Callable[[C], C] = lambda settings: settings
    stored: Callable[[Kernel], Kernel] | None = None

    def variant(self, settings: C, target: Target) -> Kernel:
        """The kernel of these settings that stores its results as they are."""
        kernel = self.interface(settings, target).kernel(self.name, settings)
        return kernel if self.stored is None else self.stored(kernel)

    def variants(self, target: Target) -> Iterator[Kernel]:
        """The prebuilt kernels of a target: what all settings of the samples come down to."""
        for settings in dict.fromkeys(map(self.general, self.samples())):
            if settings.suits(target):
                yield self.variant(settings, target)

    def kernels(self, target: Target) -> Iterator[Kernel]:
        """The kernels of the samples that suit a target."""
        for settings in self.samples():
            if settings.suits(target):
                kernel = self.interface(settings, target).kernel(self.name, settings)
                yield from [kernel] if self.body is None else self.body(kernel)

    def of(self, kernel: Kernel, target: Target) -> Interface:
        """The interface of a kernel of this template."""
        return self.interface(self.settings.of(kernel), target)


def check_names(kind: str, declared: Iterable[str], passed: Iterable[str]) -> None:
    """Raises `ValueError` unless the names that are passed are those that are declared."""
    missing, unknown = set(declared) - set(passed), set(passed) - set(declared)
    if missing or unknown:
        raise ValueError(f"[template] {kind}: no {sorted(missing)}, unknown {sorted(unknown)}")


__all__ = [
    "Array", "Buffer", "Group", "Interface", "Launch", "Settings", "SizeArgument", "Template",
    "check_names",
]  # fmt: skip
