"""`torch.jit.annotations`: types that signatures of scripted code use."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from typing import Any, Dict, List, Tuple, Union  # noqa: UP035 - PyTorch has these names here

from flambeau.jit.native_types import (
    AnyType,
    ComplexType,
    DictType,
    FloatType,
    IntType,
    ListType,
    StringType,
    TensorType,
    TupleType,
    from_annotation,
)
from flambeau.jit.script_types import Tensor, optional_of
from flambeau.nn import Module

__all__ = [
    "Any",
    "AnyType",
    "ComplexType",
    "DictType",
    "FloatType",
    "IntType",
    "ListType",
    "StringType",
    "TensorType",
    "TupleType",
    "ann_to_type",
    "check_fn",
    "get_param_names",
    "get_signature",
    "get_type_line",
    "is_dict",
    "is_list",
    "is_tuple",
    "is_union",
    "parse_type_line",
    "split_type_line",
    "try_ann_to_type",
    "try_real_annotations",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Dict",
    "List",
    "Module",
    "Tuple",
    "is_optional",
]


class _BroadcastingList:
    """`BroadcastingList2[int]`: one value, or a list of as many."""

    def __getitem__(self, element: Any) -> Any:
        return Union[element, List[element]]  # noqa: UP006, UP007


BroadcastingList1 = _BroadcastingList()
BroadcastingList2 = _BroadcastingList()
BroadcastingList3 = _BroadcastingList()


def is_optional(ann: Any) -> bool:
    """Whether a type is `Optional[...]`.

    Example:
        >>> torch.jit.annotations.is_optional(int | None)
        True
    """
    return optional_of(ann) is not None


def _origin(ann: Any) -> Any:
    return typing.get_origin(ann)


def is_list(ann: Any) -> bool:
    """Whether a type is a list.

    Raises:
        RuntimeError: a list of nothing said.
    """
    if ann is typing.List:  # noqa: UP006
        raise RuntimeError("Attempted to use List without a contained type.\nhint: List[int]")
    return _origin(ann) is list


def is_dict(ann: Any) -> bool:
    """Whether a type is a dict.

    Raises:
        RuntimeError: a dict of nothing said.
    """
    if ann is typing.Dict:  # noqa: UP006
        raise RuntimeError("Attempted to use Dict without contained types.\nhint: Dict[str, int]")
    return _origin(ann) is dict


def is_tuple(ann: Any) -> bool:
    """Whether a type is a tuple.

    Raises:
        RuntimeError: a tuple of nothing said.
    """
    if ann is typing.Tuple:  # noqa: UP006
        raise RuntimeError("Attempted to use Tuple without a contained type.\nhint: Tuple[int]")
    return _origin(ann) is tuple


def is_union(ann: Any) -> bool:
    """Whether a type is a union."""
    return _origin(ann) in (Union, types.UnionType)


def try_ann_to_type(ann: Any, loc: Any, rcb: Any = None) -> Any:
    """TorchScript's type of an annotation, or None.

    Args:
        ann: the annotation; None is a tensor.
        loc, rcb: its position and a resolver of names; not needed.
    """
    return TensorType.get() if ann is None else from_annotation(ann)


def ann_to_type(ann: Any, loc: Any, rcb: Any = None) -> Any:
    """TorchScript's type of an annotation.

    Raises:
        ValueError: it has none.
    """
    kind = try_ann_to_type(ann, loc, rcb)
    if kind is None:
        raise ValueError(f"Unknown type annotation: '{ann}'\nhint: int, List[Tensor] ...")
    return kind


def get_param_names(fn: Any, n_args: int) -> list[str]:
    """Names of a function's parameters; numbers for those of a function without a signature."""
    try:
        return list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return [str(number) for number in range(n_args)]


def check_fn(fn: Any, loc: Any) -> None:
    """Returns: the frontend checks the source of functions when they are scripted."""


def get_type_line(source: str) -> str | None:
    """The type comment of a source text, or None."""
    match = re.search(r"#\s*type:\s*(?!ignore).*", source)
    return match.group(0).strip() if match else None


def split_type_line(type_line: str) -> tuple[str, str]:
    """The parts of such a comment before and behind the arrow.

    Raises:
        RuntimeError: it has no arrow.

    Example:
        >>> torch.jit.annotations.split_type_line("# type: (int, str) -> int")
        ('(int, str)', 'int')
    """
    before, arrow, after = type_line.partition("->")
    if not arrow:
        raise RuntimeError("Syntax error in type annotation (couldn't find `->`)\nhint: (x) -> y")
    return before.partition("type:")[2].strip(), after.strip()


def parse_type_line(type_line: str, rcb: Any, loc: Any) -> tuple[list[Any], Any]:
    """The types of a comment: of the parameters, and of the result.

    Raises:
        RuntimeError: a name that is no type.
    """
    parts = split_type_line(type_line)
    scope = {"Tensor": Tensor, **{n: getattr(typing, n) for n in _SPELLED}}
    kinds = []
    for text in parts:
        tree = ast.parse(text, mode="eval").body
        for node in ast.walk(tree):
            resolvable = getattr(node, "id", None) in scope or getattr(node, "id", None) in _PLAIN
            if isinstance(node, ast.Name) and not resolvable:
                raise RuntimeError(f"Unknown type name '{node.id}' in {text!r}\nhint: int, Tensor")
            if not isinstance(node, _TYPE_NODES):
                raise RuntimeError(f"Failed to parse the type annotation {text!r}\nhint: (int)")
        kinds.append(eval(text, {"__builtins__": _PLAIN}, scope))  # noqa: S307 - names and brackets
    arguments = kinds[0] if isinstance(kinds[0], tuple) else (kinds[0],)
    return [ann_to_type(kind, loc) for kind in arguments], ann_to_type(kinds[1], loc)


_SPELLED = ("List", "Dict", "Tuple", "Optional", "Union", "Any")
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "complex": complex, "None": None}
_TYPE_NODES = (ast.Name, ast.Subscript, ast.Tuple, ast.Load, ast.Constant)


def try_real_annotations(fn: Any, loc: Any) -> Any:
    """The types of a function's annotations, or None where it has none."""
    try:
        signature = inspect.signature(fn, eval_str=True)
    except (TypeError, ValueError, NameError):
        return None
    parameters = signature.parameters.values()
    kinds = [p.annotation for p in parameters] + [signature.return_annotation]
    if all(kind is signature.empty for kind in kinds):
        return None
    converted = [ann_to_type(None if kind is signature.empty else kind, loc) for kind in kinds]
    return converted[:-1], converted[-1]


def get_signature(fn: Any, rcb: Any, loc: Any, is_method: bool) -> Any:
    """The types of a function's parameters and result, or None if it declares none."""
    real = try_real_annotations(fn, loc)
    if real is not None:
        return (real[0][1:], real[1]) if is_method else real
    try:
        line = get_type_line(inspect.getsource(fn))
    except (OSError, TypeError):
        return None
    return None if line is None else parse_type_line(line, rcb, loc)
