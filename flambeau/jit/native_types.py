"""TorchScript's types as objects: `torch.ListType(torch.IntType.get())` prints as `List[int]`."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.ir.failure import failure
from flambeau.jit import script_types


class Type:
    """A type of TorchScript.

    Attributes:
        annotation_str: the type as code writes it.
    """

    _name = ""
    _inner: tuple[Any, ...] = ()

    @property
    def annotation_str(self) -> str:
        """The type as code writes it."""
        return self._name

    def kind(self) -> str:
        """The name of the type's class."""
        return type(self).__name__

    def str(self) -> str:
        """The type as code writes it."""
        return self.annotation_str

    def containedTypes(self) -> list[Any]:  # noqa: N802 - PyTorch's name
        """The types inside this one."""
        return list(self._inner)

    def is_interface_type(self) -> bool:
        """Whether it is an interface."""
        return isinstance(self, InterfaceType)

    def isSubtypeOf(self, other: Any) -> bool:  # noqa: N802 - PyTorch's name
        """Whether each value of this type is one of another.

        Example:
            >>> torch.IntType.get().isSubtypeOf(torch.AnyType.get())
            True
        """
        if self == other or isinstance(other, AnyType):
            return True
        if isinstance(self, UnionType):
            return all(part.isSubtypeOf(other) for part in self._inner)
        if isinstance(other, UnionType):
            return any(self.isSubtypeOf(part) for part in other._inner)
        if isinstance(other, NumberType):
            return isinstance(self, (IntType, FloatType, ComplexType))
        if isinstance(self, TupleType) and isinstance(other, TupleType):
            pairs = zip(self._inner, other._inner, strict=False)
            return len(self._inner) == len(other._inner) and all(a.isSubtypeOf(b) for a, b in pairs)
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.annotation_str == other.annotation_str

    def __hash__(self) -> int:
        return hash(self.annotation_str)

    def __repr__(self) -> typing.Any:
        return self.annotation_str


_single: dict[type, Type] = {}


class _Single(Type):
    """A type without parts; `get()` returns its one object."""

    @classmethod
    def get(cls) -> Any:
        """The type's object."""
        return _single.setdefault(cls, cls())


def _plain(kind: str, name: str) -> Any:
    return type(kind, (_Single,), {"_name": name, "__doc__": f"The type `{name}`.",
                                   "__module__": __name__})  # fmt: skip


AnyType = _plain("AnyType", "Any")
BoolType = _plain("BoolType", "bool")
ComplexType = _plain("ComplexType", "complex")
DeviceObjType = _plain("DeviceObjType", "Device")
FloatType = _plain("FloatType", "float")
IntType = _plain("IntType", "int")
NoneType = _plain("NoneType", "NoneType")
NumberType = _plain("NumberType", "number")
PyObjectType = _plain("PyObjectType", "PyObject")
StreamObjType = _plain("StreamObjType", "Stream")
StringType = _plain("StringType", "str")
SymBoolType = _plain("SymBoolType", "bool")
SymIntType = _plain("SymIntType", "int")
TensorType = _plain("TensorType", "Tensor")
TensorType.getInferred = TensorType.get


def _checked(owner: str, *parts: Any) -> tuple[Any, ...]:
    for part in parts:
        if not isinstance(part, Type):
            problem = f"incompatible constructor arguments: {part!r}"
            raise failure(TypeError, owner, problem, "a type, such as torch.IntType.get()")
    return parts


class _Wrapping(Type):
    """A type around one other."""

    def __init__(self, a: Any) -> None:
        self._inner = _checked(type(self).__name__, a)

    def getElementType(self) -> Any:  # noqa: N802 - PyTorch's name
        """The type inside."""
        return self._inner[0]

    @property
    def annotation_str(self) -> str:
        """The type as code writes it."""
        return f"{type(self).__name__.removesuffix('Type')}[{self._inner[0].annotation_str}]"


class ListType(_Wrapping):
    """The type of lists.

    Example:
        >>> torch.ListType(torch.IntType.get())
        List[int]
    """

    @staticmethod
    def ofInts() -> Any:  # noqa: N802 - PyTorch's name
        """`List[int]`."""
        return ListType(IntType.get())

    @staticmethod
    def ofTensors() -> Any:  # noqa: N802
        """`List[Tensor]`."""
        return ListType(TensorType.get())

    @staticmethod
    def ofFloats() -> Any:  # noqa: N802
        """`List[float]`."""
        return ListType(FloatType.get())

    @staticmethod
    def ofBools() -> Any:  # noqa: N802
        """`List[bool]`."""
        return ListType(BoolType.get())

    @staticmethod
    def ofStrings() -> Any:  # noqa: N802
        """`List[str]`."""
        return ListType(StringType.get())


class FutureType(_Wrapping):
    """The type of futures."""


class AwaitType(_Wrapping):
    """The type of values that are computed when they are first needed."""


class RRefType(_Wrapping):
    """The type of references to values of other processes."""


class UnionType(Type):
    """The type of values of several types.

    Args:
        a: the types.
    """

    def __init__(self, a: Sequence[Any]) -> None:
        parts = {part.annotation_str: part for part in _checked("UnionType", *a)}
        self._inner = tuple(parts[name] for name in sorted(parts))

    @property
    def annotation_str(self) -> str:
        """The type as code writes it."""
        return f"Union[{', '.join(part.annotation_str for part in self._inner)}]"


class OptionalType(UnionType):
    """The type of a value or None."""

    def __init__(self, a: Any) -> None:
        (part,) = _checked("OptionalType", a)
        inner = part.getElementType() if isinstance(part, OptionalType) else part
        self._inner = (inner, NoneType.get())

    @staticmethod
    def ofTensor() -> Any:  # noqa: N802
        """`Optional[Tensor]`."""
        return OptionalType(TensorType.get())

    def getElementType(self) -> Any:  # noqa: N802
        """The type of values that are not None."""
        return self._inner[0]

    @property
    def annotation_str(self) -> str:
        """The type as code writes it."""
        return f"Optional[{self._inner[0].annotation_str}]"


class DictType(Type):
    """The type of dicts.

    Args:
        a: of the keys.
        b: of the values.
    """

    def __init__(self, a: Any, b: Any) -> None:
        self._inner = _checked("DictType", a, b)

    def getKeyType(self) -> Any:  # noqa: N802
        """The type of the keys."""
        return self._inner[0]

    def getValueType(self) -> Any:  # noqa: N802
        """The type of the values."""
        return self._inner[1]

    @property
    def annotation_str(self) -> str:
        """The type as code writes it."""
        return f"Dict[{self._inner[0].annotation_str}, {self._inner[1].annotation_str}]"


class TupleType(Type):
    """The type of tuples.

    Args:
        a: the types of the elements.
    """

    def __init__(self, a: Sequence[Any]) -> None:
        self._inner = _checked("TupleType", *a)

    def elements(self) -> list[Any]:
        """The types of the elements."""
        return list(self._inner)

    @property
    def annotation_str(self) -> str:
        """The type as code writes it."""
        inner = ", ".join(part.annotation_str for part in self._inner)
        return f"Tuple[{inner or '()'}]"


class ClassType(Type):
    """A class of scripted code, by its qualified name."""

    def __init__(self, qualified_name: str) -> None:
        self._name = qualified_name

    def qualified_name(self) -> str:
        """The class's name with its module."""
        return self._name

    def name(self) -> str:
        """The class's name."""
        return self._name.rpartition(".")[2]


class InterfaceType(ClassType):
    """An interface of scripted code."""


class EnumType(ClassType):
    """An enumeration of scripted code.

    Args:
        qualified_name: its name.
        value_type: the type of its values.
        names_values: names and values.
    """

    def __init__(self, qualified_name: str, value_type: Any, names_values: Sequence[Any]) -> None:
        super().__init__(qualified_name)
        self._inner = _checked("EnumType", value_type)


class InferredType:
    """A type, or the reason why there is none.

    Args:
        value: either.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def success(self) -> bool:
        """Whether there is a type."""
        return isinstance(self._value, Type)

    def type(self) -> Any:
        """The type.

        Raises:
            RuntimeError: there is none.
        """
        if not self.success():
            raise failure(RuntimeError, "InferredType", f"{self._value}", "ask success() first")
        return self._value

    def reason(self) -> str:
        """Why there is none."""
        return str(self._value)


def unify_type_list(types: Sequence[Any]) -> Any:
    """The one type of several.

    Raises:
        RuntimeError: they differ.
    """
    first = types[0]
    for number, kind in enumerate(types):
        if kind == first:
            continue
        if first.isSubtypeOf(kind):
            first = kind
        elif not kind.isSubtypeOf(first):
            raise RuntimeError(
                f"Could not unify type list since element {number} of type {kind} did not match "
                f"the types before it ({first})"
            )
    return first


_PLAIN: dict[Any, Callable[[], Any]] = {
    bool: BoolType.get, complex: ComplexType.get, float: FloatType.get, int: IntType.get,
    str: StringType.get, None: NoneType.get, type(None): NoneType.get, Any: AnyType.get,
    script_types.Tensor: TensorType.get,
}  # fmt: skip


def from_annotation(kind: Any) -> Any:
    """The type of an annotation, or None where TorchScript has none.

    Args:
        kind: `int`, `List[Tensor]`, a class ...

    Example:
        >>> torch.jit.annotations.try_ann_to_type(dict[str, int], None)
        Dict[str, int]
    """
    try:
        native_type = _PLAIN.get(kind)
    except TypeError:  # not hashable: no annotation
        return None
    if native_type is not None:
        return native_type()
    inner = script_types.optional_of(kind)
    if inner is not None:
        return _around(OptionalType, (inner,))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return _around(ListType, arguments)
    if origin is dict:
        return _around(DictType, arguments)
    if origin is tuple:
        return _around(lambda *parts: TupleType(parts), [a for a in arguments if a != ()])
    if script_types._union_arguments(kind) is not None:
        return _around(lambda *parts: UnionType(parts), arguments)
    spelled = script_types.spelling(kind) if isinstance(kind, type) else ""
    named = {"Device": DeviceObjType, "Stream": StreamObjType, "Tensor": TensorType}.get(spelled)
    if named is not None:
        return named.get()
    if spelled in ("int", "str"):  # dtypes, layouts, names
        return (IntType if spelled == "int" else StringType).get()
    return ClassType(spelled) if spelled.startswith("__torch__.") else None


def _around(make: Callable[..., Any], parts: Sequence[Any]) -> Any:
    inner = [from_annotation(part) for part in parts]
    return None if None in inner else make(*inner)
