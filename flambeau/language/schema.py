"""Schema strings: the one place that states an operator's arguments, defaults and results.

    "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"
    "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"

Knows the text form only; what a kind means at a call is the native core's and `dispatch`'s matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


def returns_single(text: str) -> bool:
    """Whether a schema states one result, neither a list nor a tuple."""
    results = text.rpartition("->")[2].strip()
    return results != "Tensor[]" and not results.startswith("(")


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
        raise ValueError(
            f"[schema] unknown kind {kind!r} in {text!r}\nhint: one of {sorted(KINDS)}"
        )
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
        raise ValueError(f"[schema] cannot read {text!r}\nhint: name(arguments) -> results")
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
