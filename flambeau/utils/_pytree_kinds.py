"""Kinds of containers that `_pytree` knows: how each is taken apart, built and named in texts."""

from __future__ import annotations

import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from flambeau._core import Size
from flambeau.ir.failure import failure
from flambeau.ir.modules import module_of

Context = Any
PyTree = Any
DumpableContext = Any
FlattenFn = Callable[[Any], tuple[list[Any], Any]]
UnflattenFn = Callable[[Iterable[Any], Any], Any]
ToDumpableContextFn = Callable[[Any], Any]
FromDumpableContextFn = Callable[[Any], Any]
FlattenWithKeysFn = Callable[[Any], tuple[list[tuple[Any, Any]], Any]]
IsLeaf = Callable[[Any], bool]

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1
NO_SERIALIZED_TYPE_NAME_FOUND = "NO_SERIALIZED_TYPE_NAME_FOUND"


# -------------------------------------------------------------------------------------------------
# Keys: how an item is reached in its container


class _Key:
    """One step of a path."""

    __slots__ = ()
    __match_args__: tuple[str, ...]

    def _value(self) -> Any:
        return getattr(self, self.__match_args__[0])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._value() == other._value()  # type: ignore

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._value()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__match_args__[0]}={self._value()!r})"

    def __str__(self) -> str:
        return f"[{self._value()!r}]"

    def get(self, parent: Any) -> Any:
        """The item in its container."""
        return parent[self._value()]


class SequenceKey(_Key):
    """An item by position."""

    __slots__ = __match_args__ = ("idx",)

    def __init__(self, idx: int) -> None:
        self.idx = idx


class MappingKey(_Key):
    """An item by key."""

    __slots__ = __match_args__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key


class GetAttrKey(_Key):
    """An attribute."""

    __slots__ = __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, parent: Any) -> Any:
        """The attribute of its owner."""
        return getattr(parent, self.name)


KeyEntry = _Key
KeyPath = tuple[_Key, ...]


def keystr(kp: KeyPath) -> str:
    """A path as Python would write it.

    Example:
        >>> keystr((MappingKey("a"), SequenceKey(0)))
        "['a'][0]"
    """
    return "".join(str(key) for key in kp)


def key_get(obj: Any, kp: KeyPath) -> Any:
    """Returns the value at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# -------------------------------------------------------------------------------------------------
# Kinds of containers


class NodeDef(NamedTuple):
    """How containers of a type are taken apart and built."""

    type: Any
    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: FlattenWithKeysFn | None


class _Serial(NamedTuple):
    name: str
    to_dumpable: ToDumpableContextFn | None
    from_dumpable: FromDumpableContextFn | None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: dict[Any, _Serial] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, Any] = {}
CONSTANT_NODES: set[type] = set()
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return d, None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Any]:
    return list(d), None


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(position), value) for position, value in enumerate(d)], None


_tuple_flatten_with_keys = _list_flatten_with_keys


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


_ordereddict_flatten = _odict_flatten = _dict_flatten
_ordereddict_flatten_with_keys = _dict_flatten_with_keys


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return OrderedDict(zip(context, values, strict=True))


_odict_unflatten = _ordereddict_unflatten


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return _dict_flatten_with_keys(d)[0], [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _deque_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return _list_flatten_with_keys(d)[0], d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> Any:
    return deque(values, maxlen=context)


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(GetAttrKey(name), getattr(d, name)) for name in d._fields], type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _defaultdict_serialize(context: Any) -> Any:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _defaultdict_deserialize(dumpable: Any) -> Any:
    module, name = dumpable["default_factory_module"], dumpable["default_factory_name"]
    factory = importlib.import_module(module)
    for part in name.split("."):
        factory = getattr(factory, part)
    return [factory, dumpable["dict_context"]]


def _namedtuple_serialize(context: Any) -> str:
    serial = SUPPORTED_SERIALIZED_TYPES.get(context)
    if serial is None:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {context} because it has no "
            "serialized_type_name\nhint: call _register_namedtuple"
        )
    return serial.name


def _namedtuple_deserialize(dumpable: str) -> Any:
    if dumpable not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(
            f"Can't deserialize TreeSpec of namedtuple {dumpable!r}: no class has that "
            "serialized_type_name\nhint: call _register_namedtuple"
        )
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[dumpable]


def _enter_type(cls: Any, name: str | None, to_dumpable: Any, from_dumpable: Any) -> None:
    SUPPORTED_SERIALIZED_TYPES[cls] = _Serial(
        NO_SERIALIZED_TYPE_NAME_FOUND if name is None else name, to_dumpable, from_dumpable
    )
    if name is not None:
        SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: ToDumpableContextFn | None = None,
    from_dumpable_context: FromDumpableContextFn | None = None,
    flatten_with_keys_fn: FlattenWithKeysFn | None = None,
) -> None:
    """Makes `cls` a container.

    Args:
        cls: the class.
        flatten_fn: object -> (items, context).
        unflatten_fn: (items, context) -> object.
        serialized_type_name: of the class, where forms are written as text.
        to_dumpable_context, from_dumpable_context: context to what JSON can hold, and back.
        flatten_with_keys_fn: object -> (pairs of key and item, context).

    Raises:
        ValueError: the type is registered already; one of the two functions of contexts is missing.
    """
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        problem = "both to_dumpable_context and from_dumpable_context must be None or registered "
        problem += f"for {cls}"
        raise failure(ValueError, "pytree", problem, "pass both")
    if cls in SUPPORTED_NODES:
        problem = f"{cls} is already registered as pytree node"
        raise failure(ValueError, "pytree", problem, "register it once")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    _enter_type(cls, serialized_type_name, to_dumpable_context, from_dumpable_context)


_private_register_pytree_node = register_pytree_node


def _register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    to_str_fn: Any = None,
    maybe_from_str_fn: Any = None,
    **options: Any,
) -> None:
    """The former name of `register_pytree_node`; the two functions of text are not called."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _deregister_pytree_node(cls: type) -> None:
    """Takes a registered class back."""
    del SUPPORTED_NODES[cls]
    SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(SUPPORTED_SERIALIZED_TYPES.pop(cls).name, None)
    CONSTANT_NODES.discard(cls)


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Names a class of named tuples in texts of forms."""
    _enter_type(cls, serialized_type_name, None, None)


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Makes a dataclass a container of its fields; fields that are None count as absent.

    Args:
        cls: the class.
        field_names: fields that hold items; all when None.
        drop_field_names: fields left out: they have defaults.
        serialized_type_name: of the class, where forms are written as text.

    Raises:
        ValueError: names that are not the class's fields.
    """
    import dataclasses

    initialised = {f.name for f in dataclasses.fields(cls) if f.init} if (
        dataclasses.is_dataclass(cls)
    ) else set(field_names or ())  # fmt: skip
    dropped = set(drop_field_names or ())
    names = field_names
    if names is None:
        if not dataclasses.is_dataclass(cls):
            raise ValueError("field_names must be specified with a list of field names")
        names = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in dropped]
    if {*names, *dropped} != initialised:
        problem = f"fields of {cls} are {sorted(initialised)}, not {sorted({*names, *dropped})}"
        raise failure(ValueError, "pytree", problem, "name those left out in drop_field_names")

    def parts(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        present = [name for name in names if getattr(value, name) is not None]
        absent = [name for name in names if getattr(value, name) is None]
        return [(GetAttrKey(name), getattr(value, name)) for name in present], [present, absent]

    def flatten(value: Any) -> tuple[list[Any], Any]:
        pairs, context = parts(value)
        return [item for _, item in pairs], context

    def unflatten(values: Iterable[Any], context: Any) -> Any:
        fields = dict(zip(context[0], values, strict=True))
        return cls(**fields, **dict.fromkeys(context[1]))

    register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=parts,
    )


class ConstantNode(NamedTuple):
    """The context of a constant: its value."""

    value: Any


def register_constant(cls: type) -> None:
    """Makes objects of a class part of the form: containers without items.

    Raises:
        TypeError: the class compares by identity, or has no hash.
    """
    if cls.__eq__ is object.__eq__ or cls.__hash__ is None:
        problem = "register_constant(cls) expects `cls` to have a non-default `__eq__` and a "
        problem += f"`__hash__`, got {cls}"
        raise failure(TypeError, "pytree", problem, "a frozen dataclass has both")

    def flatten(value: Any) -> tuple[list[Any], Any]:
        return [], ConstantNode(value)

    register_pytree_node(
        cls, flatten, lambda values, context: context.value, flatten_with_keys_fn=flatten
    )
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether a class was passed to `register_constant`."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


for _cls, _name, _stem in (
    (tuple, "builtins.tuple", "tuple"),
    (list, "builtins.list", "list"),
    (dict, "builtins.dict", "dict"),
    (namedtuple, "collections.namedtuple", "namedtuple"),
    (OrderedDict, "collections.OrderedDict", "ordereddict"),
    (defaultdict, "collections.defaultdict", "defaultdict"),
    (deque, "collections.deque", "deque"),
):
    _three = [globals()[f"_{_stem}_{part}"] for part in ("flatten", "unflatten")]
    register_pytree_node(
        _cls,  # type: ignore[arg-type]
        *_three,
        serialized_type_name=_name,
        to_dumpable_context=globals().get(f"_{_stem}_serialize"),
        from_dumpable_context=globals().get(f"_{_stem}_deserialize"),
        flatten_with_keys_fn=globals()[f"_{_stem}_flatten_with_keys"],
    )

BUILTIN_TYPES = frozenset(SUPPORTED_NODES)

register_pytree_node(
    Size,
    _tuple_flatten,
    _tuple_unflatten,
    serialized_type_name="torch.Size",
    flatten_with_keys_fn=_tuple_flatten_with_keys,
)


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is one of named tuples."""
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(fields, tuple)
        and all(isinstance(name, str) for name in fields)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is one of results with named fields."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "n_fields", None), int)
        and isinstance(getattr(cls, "n_sequence_fields", None), int)
    )


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is a result with named fields."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether an object is a result with named fields, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _fields_definition(cls: Any) -> NodeDef:
    """How results with named fields are taken apart."""
    return NodeDef(
        cls, _tuple_flatten, lambda values, _: cls(tuple(values)), _list_flatten_with_keys
    )


def _get_node_type(tree: Any) -> Any:
    """The key of a container's kind in `SUPPORTED_NODES`; its class where it is no container."""
    kind = type(tree)
    if kind in SUPPORTED_NODES or not isinstance(tree, tuple):
        return kind
    if hasattr(kind, "_fields"):
        return namedtuple
    if module_of(kind) == "flambeau.return_types":
        SUPPORTED_NODES[kind] = _fields_definition(kind)
    return kind
