"""Schema strings: the one place that states an operator's arguments, defaults and results.

    "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"
    "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"

An annotated function states one, too: `annotated_schema` derives the text from its header. The
annotations are read as text when the operator is first called, never evaluated. `Tensor | None`,
`Sequence[SymInt]`, `Tensor | Scalar`, `bool`, `int`, `float`, `str` and `Any` (the kind "object")
mean what they say; the other names are defined here. A header's `*` and its defaults are the
schema's. What a kind means at a call is the native core's and `dispatch`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from flambeau.ir.failure import failure
from flambeau.ir.node import Node

_Written = TypeVar("_Written")

Tensor: TypeAlias = Node
Scalar: TypeAlias = Any  # a number: a node where `runtime` names the argument
SymInt: TypeAlias = Any  # an integer that may be a symbol of the traced program
DType: TypeAlias = Any
Device: TypeAlias = Any
Generator: TypeAlias = Any
MemoryFormat: TypeAlias = Any
Mutable = Annotated[_Written, "mutable"]  # a tensor, or a list of them, that is written in place

KINDS = frozenset(
    "Tensor Tensor? Tensor[] Tensor?[] Scalar Scalar? TensorOrScalar TensorOrScalar? "
    "SymInt SymInt? SymInt[] SymInt[]? int int? int[] int[]? float float? float[]? bool bool? "
    "bool[] "
    "str str? dtype dtype? device device? generator? memory_format memory_format? layout? "
    "object".split()
)
REQUIRED = object()  # default of an argument that has none


class Argument(NamedTuple):
    """One parameter of an operator.

    Attributes:
        name: as in PyTorch.
        kind: one of `KINDS`.
        default: `REQUIRED` when it must be given.
        keyword_only: stands after `*`.
        runtime: a number that travels to the kernel instead of being part of the key.
        mutated: a tensor written in place (`Tensor!`).
    """

    name: str
    kind: str
    default: Any
    keyword_only: bool
    runtime: bool
    mutated: bool

    @property
    def is_tensor(self) -> bool:
        """True for kinds that may hold tensors."""
        return self.kind.startswith("Tensor")

    def native(self, mutated: bool = False, fits: bool = False) -> ArgumentSpec:
        """The parameter of a native op.

        Args:
            mutated: whether it is written although the schema does not say so.
            fits: see `ArgumentSpec`.
        """
        default = () if self.default is REQUIRED else (self.default,)
        return ArgumentSpec(
            self.name,
            self.kind,
            default,
            self.keyword_only,
            self.runtime,
            mutated or self.mutated,
            fits,
        )


class ArgumentSpec(NamedTuple):
    """One parameter of a native op, which reads the fields by name.

    Attributes:
        name, kind, keyword_only, runtime, mutated: as of an `Argument`.
        default: (value,); () when it must be given.
        fits: a number that the result's dtype must be able to hold.
    """

    name: str
    kind: str
    default: tuple[Any, ...] = ()
    keyword_only: bool = False
    runtime: bool = False
    mutated: bool = False
    fits: bool = False


class Schema(NamedTuple):
    """A parsed signature.

    Attributes:
        name: public name of the operator.
        arguments: in order.
        returns: names of the results; empty strings when unnamed.
        returns_kind: "single", "tuple", "list", "nothing" or "named" (a struct sequence).
    """

    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    returns_kind: str


def schema_name(text: str) -> str:
    """The operator's name: what stands before the parenthesis, without the overload's name."""
    return text.partition("(")[0].partition(".")[0].strip()


def returns_single(text: str, body: Callable[..., Any]) -> bool:
    """Whether a schema, or the body's annotations, state one result, neither a list nor a tuple."""
    if not text:
        return not body.__annotations__.get("return", "").startswith(("tuple[", "list[", "None"))
    results = text.rpartition("->")[2].strip()
    return results != "Tensor[]" and not results.startswith("(")


# Kinds that annotations spell otherwise.
_ANNOTATED = {
    "Any": "object",
    "Sequence[Any]": "object",
    "DType": "dtype",
    "Device": "device",
    "Generator": "generator",
    "MemoryFormat": "memory_format",
    "Tensor | Scalar": "TensorOrScalar",
    "Tensor | tuple[Tensor, ...]": "Tensor",  # an argument decides
}


def _annotated_kind(annotation: str) -> str:
    if annotation.startswith("Callable["):  # perhaps None, too
        return "object"
    if annotation.startswith("Mutable["):
        return _annotated_kind(annotation[8:-1]) + "!"
    if annotation.endswith(" | None"):
        return _annotated_kind(annotation[:-7]) + "?"
    if annotation.startswith(("Sequence[", "list[")) and annotation not in _ANNOTATED:
        return _annotated_kind(annotation.partition("[")[2][:-1]) + "[]"
    return _ANNOTATED.get(annotation, annotation)


def _annotated_results(annotation: str, names: str) -> str:
    if annotation == "None":
        return "()"
    if names:
        return "(" + ", ".join(f"Tensor {name}" for name in names.split()) + ")"
    if annotation == "tuple[Tensor, ...]":
        return "(Tensor...)"
    if annotation.startswith("tuple["):
        return f"({annotation[6:-1]})"
    return _annotated_kind(annotation)


def annotated_schema(body: Callable[..., Any], name: str, results: str = "") -> str:
    """The schema that a function's header states: parameters, annotations and defaults.

    Args:
        body: a function of a module whose annotations are strings (`from __future__`).
        name: of the operator.
        results: space-separated names of the results, if they have names.

    Raises:
        ValueError: a parameter, or the result, has no annotation.
    """
    code, annotations = body.__code__, body.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if not annotations.keys() >= {*names, "return"}:
        raise ValueError(f"[schema] {name}'s body lacks annotations\nhint: annotate its header")
    values = body.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(values) :], values, strict=False))
    defaults |= body.__kwdefaults__ or {}
    parts = [
        f"{_annotated_kind(annotations[key])} {key}"
        + (f"={defaults[key]!r}" if key in defaults else "")
        for key in names
    ]
    if code.co_kwonlyargcount:
        parts.insert(code.co_argcount, "*")
    if code.co_flags & 0x04:  # inspect.CO_VARARGS, without that module
        key = code.co_varnames[len(names)]
        parts.insert(code.co_argcount, _annotated_kind(f"Sequence[{annotations[key]}]") + f" {key}")
    return f"{name}({', '.join(parts)}) -> {_annotated_results(annotations['return'], results)}"


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _parse_argument(text: str, keyword_only: bool, runtime: frozenset[str]) -> Argument:
    declaration, _, default_text = text.partition("=")
    kind, _, name = declaration.strip().rpartition(" ")
    mutated = kind.endswith("!")
    kind = kind.rstrip("!").replace("Tensor|Scalar", "TensorOrScalar")
    if kind not in KINDS:
        problem = f"unknown kind {kind!r} in {text!r}"
        raise failure(ValueError, "schema", problem, f"one of {sorted(KINDS)}")
    default = _literal(default_text.strip()) if default_text else REQUIRED
    return Argument(name, kind, default, keyword_only, name in runtime, mutated)


_COMMON_LITERALS = {"None": None, "True": True, "False": False, "0": 0, "1": 1, "-1": -1}


def _literal(text: str) -> Any:
    if text in _COMMON_LITERALS:
        return _COMMON_LITERALS[text]
    from ast import literal_eval  # costs a millisecond to import

    return literal_eval(text)


def _parse_returns(text: str) -> tuple[tuple[str, ...], str]:
    if text == "()":
        return (), "nothing"
    if text == "Tensor[]":
        return ("",), "list"
    if not text.startswith("("):
        return ("",), "single"
    names = tuple(part.split(" ")[1] if " " in part else "" for part in _split(text[1:-1]))
    return names, "named" if all(names) else "tuple"


def parse_schema(text: str, runtime: str = "") -> Schema:
    """Parses one schema string.

    Args:
        text: see the module docstring. `Tensor!` marks a mutated argument.
        runtime: space-separated names of run-time scalars.

    Raises:
        ValueError: the text does not follow the grammar.
    """
    head, _, results = text.rpartition("->")
    name, opening, inside = head.strip().partition("(")
    if not (name and opening and inside.endswith(")") and results.strip()):
        raise failure(ValueError, "schema", f"cannot read {text!r}", "name(arguments) -> results")
    runtime_names = frozenset(runtime.split())
    arguments, keyword_only = [], False
    for part in _split(inside[:-1]):
        if part == "*":
            keyword_only = True
            continue
        arguments.append(_parse_argument(part, keyword_only, runtime_names))
    returns, kind = _parse_returns(results.strip())
    return Schema(name.partition(".")[0], tuple(arguments), returns, kind)


def print_schema(schema: Schema) -> str:
    """The canonical text of a schema."""
    parts, seen_keyword = [], False
    for argument in schema.arguments:
        if argument.keyword_only and not seen_keyword:
            parts.append("*")
            seen_keyword = True
        default = "" if argument.default is REQUIRED else f"={argument.default!r}"
        parts.append(f"{argument.kind}{'!' * argument.mutated} {argument.name}{default}")
    results = {"single": "Tensor", "list": "Tensor[]", "nothing": "()"}.get(
        schema.returns_kind,
        "(" + ", ".join(f"Tensor {n}".strip() for n in schema.returns) + ")",
    )
    return f"{schema.name}({', '.join(parts)}) -> {results}"
