"""Schemas as users of `torch.library` write, infer and read them: PyTorch's own text form.

It differs from the one of `language/schema.py` by spelling (`ScalarType`, `Device`, `Tensor(a!)`)
and by what it is for: there a signature of this package's operators, here one of a stranger's.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Any

from flambeau import _core

REQUIRED = object()
_BASE = {
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    _core.Tensor: "Tensor",
    _core.dtype: "ScalarType",
    _core.device: "Device",
}
_NUMBER = frozenset({int, float, bool})
_LISTS = frozenset({"Tensor", "Tensor?", "SymInt", "float", "bool", "Scalar"})
_OPTIONAL_LISTS = frozenset({"SymInt", "float", "bool"})
_RETURNS = frozenset({"Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar"})
# Kinds that the core checks; values of others are handed on as they are.
NATIVE_KINDS = {
    "Tensor": "Tensor",
    "Tensor?": "Tensor?",
    "Tensor[]": "Tensor[]",
    "Tensor?[]": "Tensor?[]",
}
_KINDS = frozenset(
    "Tensor int SymInt float bool str Scalar ScalarType Device Layout MemoryFormat "
    "Generator".split()
)
_ARGUMENT = re.compile(
    r"(?P<base>\w+)(?P<alias>\([^)]*\))?(?P<rest>(\?|\[\d*\])*)\s+(?P<name>\w+)(=(?P<default>.*))?$"
)
_RESULT = re.compile(
    r"(?P<base>\w+)(?P<alias>\([^)]*\))?(?P<rest>(\?|\[\d*\])*)(\s+(?P<name>\w+))?$"
)


@dataclass(frozen=True)
class AliasInfo:
    """The alias annotation of a tensor, such as `(a!)`.

    Attributes:
        before_set: the name of its memory.
        is_write: whether it is written.
    """

    before_set: frozenset[str]
    is_write: bool


@dataclass(frozen=True)
class Argument:
    """One argument or result of a schema.

    Attributes:
        name: empty for results without one.
        type: as it is written, `Tensor?[]`.
        default_value: None also where there is none.
        kwarg_only: follows `*`.
        alias_info: of `Tensor(a!)`, else None.
    """

    name: str
    type: str
    default_value: Any = None
    kwarg_only: bool = False
    alias_info: AliasInfo | None = None
    _default: str | None = None

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self._default is not None

    @property
    def is_tensor(self) -> bool:
        """Whether it may hold tensors."""
        return self.type.startswith("Tensor")

    @property
    def is_write(self) -> bool:
        """Whether the operator writes it."""
        return self.alias_info is not None and self.alias_info.is_write

    def __str__(self) -> str:
        kind = self.type
        if self.alias_info is not None:
            mark = "|".join(sorted(self.alias_info.before_set)) + "!" * self.alias_info.is_write
            kind = kind.replace("Tensor", f"Tensor({mark})", 1)
        text = f"{kind} {self.name}" if self.name else kind
        return text if self._default is None else f"{text}={self._default}"


@dataclass(frozen=True)
class FunctionSchema:
    """The signature of an operator.

    Attributes:
        name: "namespace::name".
        overload_name: empty for the default one.
        arguments, returns: in order.
    """

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    returns_tuple: bool = False

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written."""
        return any(a.is_write for a in self.arguments)

    @property
    def is_view(self) -> bool:
        """Whether a result shares memory with an argument without writing it."""
        return any(r.alias_info is not None and not r.is_write for r in self.returns)

    @property
    def is_functional(self) -> bool:
        """Whether it has results, writes nothing and hands no argument back."""
        return bool(self.returns) and not (self.is_mutable or self.is_view)

    def __str__(self) -> str:
        parts, seen = [], False
        for argument in self.arguments:
            if argument.kwarg_only and not seen:
                parts.append("*")
                seen = True
            parts.append(str(argument))
        full = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        results = ", ".join(map(str, self.returns))
        if len(self.returns) != 1:
            results = f"({results})"
        return f"{full}({', '.join(parts)}) -> {results}"

    __repr__ = __str__


# ------------------------------------------------------------------------------------ reading


def parse(text: str) -> FunctionSchema:
    """Reads `namespace::name.overload(arguments) -> results`.

    Raises:
        RuntimeError: the text does not follow the grammar.
    """
    head, arrow, results = text.rpartition("->")
    name, opening, inside = head.strip().partition("(")
    if not (arrow and opening and inside.endswith(")")):
        raise _unreadable(text)
    full, _, overload = name.strip().partition(".")
    arguments, keyword_only = [], False
    for part in split(inside[:-1]):
        if part == "*":
            keyword_only = True
        else:
            arguments.append(_argument(part, keyword_only, text))
    results = results.strip()
    many = results.startswith("(")
    returned = split(results[1:-1]) if many else [results]
    outputs = tuple(_result(part, text) for part in returned)
    return FunctionSchema(full, overload, tuple(arguments), outputs, many)


def _unreadable(text: str) -> RuntimeError:
    return RuntimeError(
        f"[library] cannot read the schema {text!r}\n"
        "hint: (Tensor x, int n=1, *, float eps=1e-5) -> Tensor"
    )


def split(text: str) -> list[str]:
    """The parts of a text between commas outside brackets and quotes.

    Args:
        text: of arguments.
    """
    parts, depth, quote, start = [], 0, "", 0
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[place - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
        else:
            depth += (char in "([") - (char in ")]")
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _kind(match: re.Match[str], text: str) -> tuple[str, AliasInfo | None]:
    base, alias = match["base"], match["alias"]
    if base not in _KINDS:
        raise RuntimeError(
            f"[library] unknown type specifier {base!r} in the schema {text!r}\n"
            f"hint: one of {', '.join(sorted(_KINDS))}"
        )
    info = None
    if alias:
        mark = alias[1:-1].partition("->")[0].strip()
        info = AliasInfo(frozenset(mark.rstrip("!").split("|")), mark.endswith("!"))
    return base + match["rest"], info


def _argument(part: str, keyword_only: bool, text: str) -> Argument:
    match = _ARGUMENT.match(part)
    if match is None:
        raise _unreadable(text)
    kind, info = _kind(match, text)
    if match["default"] is None:
        return Argument(match["name"], kind, None, keyword_only, info)
    value, shown = _default(match["default"].strip(), kind)
    return Argument(match["name"], kind, value, keyword_only, info, shown)


def _result(part: str, text: str) -> Argument:
    match = _RESULT.match(part)
    if match is None:
        raise _unreadable(text)
    kind, info = _kind(match, text)
    return Argument(match["name"] or "", kind, None, False, info)


def _default(written: str, kind: str) -> tuple[Any, str]:
    """The default's value, and its text in PyTorch's spelling."""
    base = re.split(r"[?\[]", kind)[0]
    if written == "None":
        return None, "None"
    if base == "ScalarType":
        from flambeau import float32

        value: Any = getattr(__import__("flambeau"), written.rpartition(".")[2], float32)
        return value, written
    if base == "Device":
        name = written.strip("\"'")
        return _core.device(name), f'"{name}"'
    if written in ("True", "False"):
        return written == "True", written
    from ast import literal_eval

    try:
        value = literal_eval(written)
    except (ValueError, SyntaxError):
        return written, written  # a name, as `contiguous_format`
    if base == "float" and isinstance(value, int):
        value = float(value)
    return value, _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}." if value.is_integer() and abs(value) < 1e16 else f"{value:.17g}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)


# ------------------------------------------------------------------------------------ inferring


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema that a function's annotations state, as text.

    Args:
        prototype_function: every parameter and the result are annotated, with `Tensor`, `int`,
            `float`, `bool`, `str`, `dtype`, `device`, numbers, lists and optionals of them.
        mutates_args: names of the tensors that it writes; "unknown": all of them.
        op_name: put in front, if given.
        tags: accepted.

    Raises:
        ValueError: an annotation is missing or has no counterpart in schemas.

    Example:
        >>> def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor: ...
        >>> torch.library.infer_schema(scaled, mutates_args=())
        '(Tensor x, float by=2.0) -> Tensor'
    """
    try:
        signature = inspect.signature(prototype_function, eval_str=True)
    except NameError:
        signature = inspect.signature(prototype_function)

    def refuse(what: str) -> ValueError:
        return ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    seen: set[str] = set()
    parts, starred = [], False
    for number, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        elif parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise refuse("We do not support positional-only args, varargs, or varkwargs.")
        seen.add(name)
        mark = f"(a{number}!)" if mutates_args == "unknown" or name in mutates_args else ""
        parts.append(_parameter(parameter, mark, mutates_args == "unknown", refuse))
    if mutates_args != "unknown":
        unknown = set(mutates_args) - seen
        if unknown:
            raise refuse(
                f"{unknown} in mutates_args were not found in the custom op's signature. "
                "mutates_args should contain the names of all args that the custom op mutates, or "
                "just the string 'unknown' if you don't know."
            )
    results = _results(signature.return_annotation, refuse)
    return f"{op_name or ''}({', '.join(parts)}) -> {results}"


Refuse = Callable[[str], ValueError]


def _parameter(parameter: inspect.Parameter, mark: str, unknown: bool, refuse: Refuse) -> str:
    name, annotation = parameter.name, parameter.annotation
    if annotation is parameter.empty:
        raise refuse(f"Parameter {name} must have a type annotation.")
    kind = kind_of(annotation)
    if kind is None:
        if typing.get_origin(annotation) is tuple:
            raise refuse(
                f"Parameter {name} has unsupported type {annotation}. We do not support Tuple "
                "inputs in schema. As a workaround, please try to use List instead. For example, "
                "list[...]."
            )
        raise refuse(
            f"Parameter {name} has unsupported type {annotation}. The valid types are: Tensor, "
            "int, float, bool, str, dtype, device, numbers, lists and optionals of them."
        )
    if mark:
        if kind.startswith("Tensor"):
            kind = kind.replace("Tensor", "Tensor" + mark, 1)
        elif not unknown:
            raise refuse(
                f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors "
                "can be mutated"
            )
    default = parameter.default
    if default is parameter.empty:
        return f"{kind} {name}"
    return f"{kind} {name}={_written(name, default, refuse)}"


def _written(name: str, default: Any, refuse: Refuse) -> str:
    if default is None or isinstance(default, (int, float, bool)):
        return str(default)
    if isinstance(default, (str, _core.device)):
        return f'"{default}"'
    if isinstance(default, _core.dtype):
        return str(default).rpartition(".")[2]
    raise refuse(
        f"Parameter {name} has an unsupported default value type {type(default)}. Please file an "
        "issue on GitHub so we can prioritize this."
    )


def _results(annotation: Any, refuse: Refuse) -> str:
    if annotation is inspect.Signature.empty:
        raise refuse("No return type annotation was provided. Please add one.")
    if annotation is None or annotation is type(None):
        return "()"
    many = typing.get_origin(annotation) is tuple
    kinds = []
    for entry in typing.get_args(annotation) if many else (annotation,):
        kind = kind_of(entry)
        if kind not in _RETURNS:
            raise refuse(
                f"Return has unsupported type {entry}. The valid types are: "
                f"{', '.join(sorted(_RETURNS))}."
            )
        kinds.append(kind)
    return f"({', '.join(kinds)})" if many else str(kinds[0])


def kind_of(annotation: Any) -> str | None:
    """The schema's word for an annotation; None if there is none."""
    if isinstance(annotation, str):  # an annotation whose names were not found
        annotation = {"torch.Tensor": _core.Tensor, "Tensor": _core.Tensor}.get(annotation)
    if isinstance(annotation, type) and annotation in _BASE:
        return _BASE[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        alternatives = {x for x in inner if x is not type(None)}
        mark = "?" if len(alternatives) < len(inner) else ""
        if alternatives == _NUMBER:
            return "Scalar" + mark
        if len(alternatives) != 1 or not mark:
            return None
        kind = kind_of(alternatives.pop())
        if kind is None or kind.endswith("?"):
            return None
        return kind + "?" if not kind.endswith("[]") or kind[:-2] in _OPTIONAL_LISTS else None
    if isinstance(origin, type) and issubclass(origin, typing.Sequence) and origin is not tuple:
        kind = kind_of(inner[0]) if inner else None
        return f"{kind}[]" if kind in _LISTS else None
    return None
