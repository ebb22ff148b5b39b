"""`ops.aten`: operators under the names of PyTorch's inner library, for programs that call them.

An operator whose only home is here says `where="ops.aten"`. All others are found by the name they
have in `torch`, `nn.functional` or as a method. What a dispatch mode is given is an `Overload`:
one object per overload and process, so that programs may look it up in a dictionary. Names and
signatures are those of PyTorch (`library/aten_schemas.py`), also of operators that are not there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from flambeau.core import install
from flambeau.core.install import hand_over, stands_in
from flambeau.ir.lock import late, loaded
from flambeau.language.definition import REGISTRY, OpDefinition

HOMES = ("ops.aten", "torch", "nn.functional", "linalg", "fft", "special")
# Operators for which a number counts as a tensor of no dimensions.
_WRAPPED_NUMBERS = frozenset({"add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_"})

# Names that Python looks up in modules.
_MODULE = frozenset("__path__ __wrapped__ __module__ __all__ __file__ __warningregistry__".split())

# Methods of tensors whose names are also those of other functions in `nn.functional`.
_METHODS = frozenset({"unfold"})

_TYPES = {
    "TensorOrScalar": "Tensor",
    "dtype": "ScalarType",
    "device": "Device",
    "generator": "Generator",
    "memory_format": "MemoryFormat",
    "layout": "Layout",
}
# Arguments of several types in our schemas, by name.
_OBJECTS = {"output_size": "SymInt[]", "output_mask": "bool[]", "numbers": "float[]"}


class Packet:
    """All overloads of an operator.

    Example:
        >>> torch.ops.aten.neg.default(torch.ones(2))
        tensor([-1., -1.])
    """

    namespace = "aten"

    def __init__(self, name: str, function: Any) -> None:
        self.__name__ = name
        self._qualified_op_name = f"{self.namespace}::{name}"
        self.__doc__ = getattr(function, "__doc__", None) or described(name)
        self._function = function
        self._known: dict[str, Overload] = {}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Calls the operator."""
        if stands_in(args):
            return hand_over(self, args, kwargs)
        return self._function(*args, **kwargs)

    def overloads(self) -> list[str]:
        """Names of the overloads, in PyTorch's order."""
        entries = _listed().entries(self.__name__) if self.namespace == "aten" else None
        return list(entries or self._signatures())

    def _signatures(self) -> dict[str, tuple[str, ...]]:
        return signatures(self.__name__)

    def __getattr__(self, overload: str) -> Overload:
        if overload.startswith("_"):  # also of a copy that has no name yet
            raise AttributeError(f"{type(self).__name__} has no overload {overload!r}")
        overload_object = self._known.get(overload)
        if overload_object is None:
            overload_object = self._known.setdefault(overload, self._overload(overload))
        return overload_object

    def _overload(self, name: str) -> Overload:
        return Overload(self, name)

    def __deepcopy__(self, memo: object) -> Packet:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return __getattr__, (self.__name__,)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"


class Overload:
    """One overload of an operator: what `__torch_dispatch__` is given, and may call.

    Attributes:
        namespace: "aten".
        overloadpacket: all overloads of its operator.

    Example:
        >>> torch.ops.aten.add.Tensor.name(), str(torch.ops.aten.add.Tensor)
        ('aten::add.Tensor', 'aten.add.Tensor')
    """

    namespace = "aten"

    def __init__(self, packet: Packet, name: str) -> None:
        self.overloadpacket = self._overloadpacket = packet
        self._opname, self._overloadname = packet.__name__, name
        self.__name__ = f"{packet.__name__}.{name}"
        self.__qualname__ = self.__name__
        self.__doc__ = packet.__doc__

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Calls the operator."""
        if stands_in(args):
            return hand_over(self, args, kwargs)
        written = targets(self, kwargs) if kwargs else None
        if written is not None:
            return into(written, self(*args, **kwargs))
        dispatch = loaded("flambeau.utils._python_dispatch")
        if dispatch is not None and dispatch._modes.stack:
            return dispatch._call_overload(self, args, kwargs)
        return self._function(*args, **kwargs)

    @property
    def _function(self) -> Any:
        """The operator that computes the overload."""
        function = self.overloadpacket._function
        several = getattr(function, "by_name", None)
        return function if several is None else several.get(self._overloadname, function)

    def __deepcopy__(self, memo: object) -> Overload:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (self.overloadpacket, self._overloadname)

    def name(self) -> str:
        """ "aten::add.Tensor"; "aten::neg" of a default overload."""
        plain = self._overloadname == "default"
        name = self.overloadpacket._qualified_op_name
        return name + ("" if plain else f".{self._overloadname}")

    @property
    def tags(self) -> list[Any]:
        """Properties of the operator: `torch.Tag.pointwise`, `torch.Tag.core` ..."""
        return list(late("flambeau.decompositions.tags").tags_of(self))

    @property
    def _schema(self) -> Any:
        """The signature: `name`, `overload_name`, `arguments`, `returns`."""
        entry = _listed().entry(self._opname, self._overloadname)
        if entry is not None and self.namespace == "aten":
            return _listed().read(entry)
        schemas = late("flambeau.library.schemas")  # which knows of operators, not vice versa
        texts = getattr(self.overloadpacket._function, "schemas", ("()",))
        texts = [t for t in texts if ("out_dtype" in t) == (self._overloadname == "dtype")] or texts
        text = max(texts, key=len)
        inside = upstream_types(text.partition("(")[2].partition(" -> ")[0])
        result = "Tensor"
        if "Tensor! " in inside:  # the only result is the argument that is written
            inside, result = inside.replace("Tensor! ", "Tensor(a!) "), "Tensor(a!)"
        return schemas.parse(f"{self.name()}({inside} -> {result}")

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"


def targets(
    func: Overload, kwargs: dict[str, object], native: bool = False
) -> tuple[object, ...] | None:
    """Takes tensors that a call writes from its arguments; None if the operator handles them.

    Args:
        func: what is called.
        kwargs: of the call; the tensors are removed.
        native: also if the operator takes `out=`.
    """
    entry = _listed().entry(func._opname, func._overloadname)
    if entry is None or not entry.is_out:
        return None
    arguments = _listed().read(entry).arguments
    names = [a.name for a in arguments if a.is_write and a.name in kwargs]
    handles = names == ["out"] and not (native or hasattr(func._function, "run"))
    if not names or handles:
        return None
    return tuple([kwargs.pop(name) for name in names])


def into(targets: Any, results: Any) -> Any:
    """Writes results into tensors, which are returned.

    Args:
        targets: in the order of the results; they get their sizes.
        results: of the operator.
    """
    values = results if isinstance(results, (tuple, list)) else (results,)
    for target, value in zip(targets, values, strict=True):
        if target.shape != value.shape:
            target.resize_(value.shape)
        target.copy_(value)
    return targets if len(targets) > 1 else targets[0]


def upstream_types(text: str) -> str:
    """Arguments of a schema with PyTorch's names of their types.

    Args:
        text: in the grammar of `language/schema.py`.
    """
    for ours, theirs in _TYPES.items():
        text = re.sub(rf"\b{ours}(\??) ", rf"{theirs}\1 ", text)
    return re.sub(r"\bobject (\w+)", lambda match: f"{_OBJECTS[match[1]]} {match[1]}", text)


def _listed() -> ModuleType:
    """The table of PyTorch's operators."""
    table: ModuleType = late("flambeau.library.aten_schemas")
    return table


def described(name: str) -> str:
    """The docstring of an operator whose function has none: its overloads as PyTorch has them.

    Args:
        name: of the operator.
    """
    schemas = "".join(f"\n    {each.text}" for each in _listed().entries(name).values())
    title = f"The inner operator `aten::{name}`, with PyTorch's signature"
    return f"{title}:\n{schemas}" if schemas else f"{title}."


class Absent:
    """The function of an operator that PyTorch has, and this library does not compute."""

    schemas = ()

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = f"`{name}` of PyTorch's inner library: raises NotImplementedError."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises.

        Raises:
            NotImplementedError: always.
        """
        raise _listed().absent(self.__name__)

    bind = __call__


_packets: dict[str, Packet] = {}
_of_ops: dict[int, Packet] = {}  # of operators that have no name here; they live for ever


def _sym_size(self: Any, dim: int | None = None) -> Any:
    """The sizes of a tensor, or one of them."""
    return list(self.shape) if dim is None else self.size(dim)


def _sym_stride(self: Any, dim: int | None = None) -> Any:
    """The strides of a tensor, or one of them."""
    return list(self.stride()) if dim is None else self.stride(dim)


_GEOMETRY: dict[str, Callable[..., Any]] = {
    "sym_size": _sym_size, "sym_stride": _sym_stride, "sym_numel": lambda self: int(self.numel()),
    "sym_storage_offset": lambda self: self.storage_offset(),
}  # fmt: skip


def __getattr__(name: str) -> Packet:
    """The operator of this name.

    Raises:
        AttributeError: there is none.
    """
    packet = _packets.get(name)
    if packet is not None:
        return packet
    function = _GEOMETRY.get(name) or late("flambeau.decompositions.inner").TABLE.get(name)
    if name in _METHODS:
        function = REGISTRY[name].native
    for home in HOMES:
        function = function or install.namespace(home).get(name.removeprefix(f"{home}_"))
    if function is None and name in REGISTRY and "method" in REGISTRY[name].options.where:
        function = REGISTRY[name].native
    if function is None and name in install.INPLACE:
        function = install.INPLACE[name]
    if (function is None or name.startswith("__")) and name not in _MODULE:
        function = _of_table(name)
    if function is None or name in _MODULE:
        raise AttributeError(f"module 'flambeau.ops.aten' has no attribute {name!r}")
    return _packets.setdefault(name, Packet(name, function))


def _of_table(name: str) -> Any:
    """Computes an operator that the public namespaces do not have; None if there is none."""
    if not _listed().is_listed(name):
        return None
    function = late("flambeau.decompositions.listed").operators().get(name)
    return function or late("flambeau.library.script_operators").TABLE.get(name) or Absent(name)


def __dir__() -> list[str]:
    """Names of all operators."""
    return list(_listed().names())


def is_absent(packet: Packet) -> bool:
    """Whether an operator of this name exists in PyTorch alone.

    Args:
        packet: of an operator.
    """
    return isinstance(packet._function, Absent)


def is_named(packet: Packet) -> bool:
    """Whether a packet is what the inner library has under its name.

    Args:
        packet: of an operator.
    """
    return _packets.get(packet.__name__) is packet


@functools.cache
def signatures(name: str) -> dict[str, tuple[str, ...]]:
    """Overloads of an operator by name: their arguments, `#` behind those that are numbers."""
    from flambeau.ops.legacy.aten_overloads import TABLE

    for overloads, names in TABLE.items():
        if name in names.split():
            pairs = [part.strip().rstrip(")").split("(") for part in overloads.split("|")]
            return {kind: tuple(inside.replace(" ", "").split(",")) for kind, inside in pairs}
    if name.endswith("_") and not name.startswith("_"):
        return signatures(name[:-1])
    entries = _listed().entries(name)
    if not entries or "default" in entries:
        return {"default": ()}
    return dict(_listed().signatures(name)) or {"default": ()}


def inner_name(overload: OpDefinition) -> str:
    """The name that PyTorch's inner library has for an operator of ours.

    Args:
        overload: its definition.
    """
    home = overload.options.where[0]
    if home in ("linalg", "fft", "special") and "torch" not in overload.options.where:
        return f"{home}_{overload.name}"
    return str(overload.name)


def overload_of(op: Any, arguments: Sequence[Any], values: Sequence[object]) -> Overload:
    """The overload that a call means.

    Args:
        op: the native op.
        arguments: of its schema, as the core has them.
        values: in their order.
    """
    chosen = getattr(op, "overload", None)  # of an operator that the table lists
    return getattr(_packet_of(op), chosen) if chosen else _chosen(_packet_of(op), arguments, values)


def overload_named(name: str, arguments: Sequence[Any], values: Sequence[object]) -> Overload:
    """The overload that a call of an operator of this name means.

    Args:
        name: in the inner library; it need not exist here.
        arguments: of its schema, as the core has them.
        values: in their order.
    """
    try:
        packet = __getattr__(name)
    except AttributeError:
        packet = Packet(name, None)
    return _chosen(packet, arguments, values)


def _chosen(packet: Packet, arguments: Sequence[Any], values: Sequence[object]) -> Overload:
    schemas = packet._signatures()
    symbolic = loaded("flambeau.runtime.symbolic")
    numbers = (bool, int, float, complex, *(symbolic.TYPES if symbolic else ()))
    flags = {
        a.name: isinstance(value, numbers) and "Scalar" in a.kind
        for a, value in zip(arguments, values, strict=True)
        if not (a.default and _is_default(value, a.default[0]))
    }
    loose = packet.__name__ in _WRAPPED_NUMBERS
    fitting = [
        name for name, keys in schemas.items() if _fits(flags, keys, loose) and len(schemas) > 1
    ]
    chosen = min(fitting, key=lambda name: len(schemas[name]), default=next(iter(schemas)))
    overload: Overload = getattr(packet, chosen)
    return overload


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def bound(
    func: Overload, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The `ArgumentSpec` of each argument of a call, and its value.

    Args:
        func: what is called.
        args, kwargs: of the call.
    """
    function = func.overloadpacket._function
    symbolic = late("flambeau.runtime.symbolic")
    number, values, _ = function.bind(symbolic.lowered(args), symbolic.lowered(kwargs))
    return function.overloads[number][0], [symbolic.raised(x) for x in values]


def _fits(is_number: dict[str, bool], entries: Sequence[str], loose: bool) -> bool:
    """Whether an overload takes these arguments; the values say which of them are numbers."""
    numbers = {entry.rstrip("#"): entry.endswith("#") for entry in entries}
    if not all(key in numbers for key in is_number):
        return False
    return all(loose or numbers[key] == number for key, number in is_number.items())


def definition_of(op: object) -> OpDefinition | None:
    """The definition of an operator, or None."""
    return install.DEFINITIONS.get(id(op))


def _packet_of(op: Any) -> Packet:
    definition = definition_of(op)
    if definition is not None and definition.options.where == ("ops.prims",):
        primitive: Packet = late("flambeau.decompositions.primitive_operators").packet(
            definition.name
        )
        return primitive
    name = op.__name__.rpartition(".")[2] if definition is None else inner_name(definition)
    try:
        entry = __getattr__(name)
    except AttributeError:
        entry = None
    if entry is not None and (entry._function is op or getattr(entry._function, "shared", False)):
        return entry
    cached = _of_ops.get(id(op))
    if cached is None or cached._function is not op:
        cached = _of_ops[id(op)] = Packet(name, op)
    return cached
