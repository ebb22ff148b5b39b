"""Python signatures of operators, from their schemas: what `inspect.signature` and `help` show.

Type stubs (`tools/type_stubs.py`) are written from the same signatures, one per overload.
"""

from __future__ import annotations

import inspect
import keyword
from typing import Any

from flambeau.core.install import INPLACE
from flambeau.language.definition import REGISTRY, OpDefinition, Overload
from flambeau.language.schema import REQUIRED, Argument

# Annotations of kinds of arguments; names with an underscore are those of the stubs.
TYPES = {
    "Tensor": "Tensor", "Tensor[]": "Sequence[Tensor]", "Tensor?[]": "Sequence[Tensor | None]",
    "Scalar": "Number", "TensorOrScalar": "Tensor | Number", "SymInt": "int", "int": "int",
    "SymInt[]": "int | Sequence[int]", "int[]": "int | Sequence[int]", "float": "float",
    "float[]": "Sequence[float]", "bool": "bool", "bool[]": "Sequence[bool]", "str": "str",
    "dtype": "dtype", "device": "device | str | int", "generator": "Generator",
    "memory_format": "memory_format", "layout": "layout", "object": "Any",
}  # fmt: skip
_EMPTY = inspect.Parameter.empty
_EITHER, _BY_NAME, _MANY = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
)


def annotation(kind: str) -> str:
    """The annotation of a kind of argument."""
    optional = kind.endswith("?")
    text = TYPES[kind.removesuffix("?")]
    return f"{text} | None" if optional and text != "Any" else text


def _parameter(argument: Argument, first: bool) -> inspect.Parameter:
    name = "input" if first and argument.name == "self" else argument.name
    name = name + "_" if keyword.iskeyword(name) else name
    default = _EMPTY if argument.default is REQUIRED else argument.default
    way = _BY_NAME if argument.keyword_only else _EITHER
    return inspect.Parameter(name, way, default=default, annotation=annotation(argument.kind))


def returned(overload: Overload) -> str:
    """The annotation of an overload's result."""
    schema = overload.schema
    stated = inspect.get_annotations(overload.body).get("return") if overload.options.host else None
    if isinstance(stated, str) and stated not in ("Any", "tuple[Any, ...]"):
        return stated
    if schema.returns_kind == "single":
        return "Any" if overload.options.host and stated == "tuple[Any, ...]" else "Tensor"
    if schema.returns_kind == "nothing":
        return "None"
    if schema.returns_kind == "list" or _many(overload):
        return "tuple[Tensor, ...]"
    return f"tuple[{', '.join(['Tensor'] * len(schema.returns))}]"


def _many(overload: Overload) -> bool:
    return overload.text.rpartition("->")[2].strip() == "(Tensor...)"


def _host_parameters(overload: Overload) -> list[inspect.Parameter]:
    """Parameters of a function in Python, with the kinds that its schema states."""
    try:
        stated = inspect.signature(overload.body).parameters.values()
    except ValueError:  # a native function
        return [_parameter(a, i == 0) for i, a in enumerate(overload.schema.arguments)]
    parameters: list[inspect.Parameter] = []
    kinds = {argument.name: argument.kind for argument in overload.schema.arguments}
    for parameter in stated:
        kind = kinds.get(parameter.name)
        if kind is not None and parameter.kind is not _MANY:
            parameter = parameter.replace(annotation=annotation(kind))
        name = "input" if parameter.name == "self" and not parameters else parameter.name
        parameters.append(parameter.replace(name=name))
    return parameters


def _with_out(parameters: list[inspect.Parameter], result: str) -> list[inspect.Parameter]:
    kind = "Tensor" if result == "Tensor" else "Sequence[Tensor]"
    out = inspect.Parameter("out", _BY_NAME, default=None, annotation=f"{kind} | None")
    return [*parameters, out]


def _signature(overload: Overload, variant: str) -> inspect.Signature:
    result = returned(overload)
    if overload.options.host:
        parameters = _host_parameters(overload)
    else:
        arguments = overload.schema.arguments
        parameters = [_parameter(a, i == 0) for i, a in enumerate(arguments)]
    names = {parameter.name for parameter in parameters}
    if overload in _leaves(overload.name) and "requires_grad" not in names:
        leaf = inspect.Parameter("requires_grad", _BY_NAME, default=False, annotation="bool")
        parameters = [*parameters, leaf]
    if variant == "functional" and overload.options.out and "out" not in names:
        last = parameters[-1:] and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        parameters = parameters if last else _with_out(parameters, result)
    return inspect.Signature(parameters, return_annotation=result)


def _leaves(name: str) -> list[Overload]:
    """The overloads of an operator that make leaves: the core adds `requires_grad` to them."""
    definition = REGISTRY.get(name)
    schemas = getattr(definition.native, "schemas", ()) if definition else ()
    if definition is None or not any("bool requires_grad)" in text for text in schemas):
        return []
    return [o for o in definition.overloads if any(a.kind == "layout?" for a in o.schema.arguments)]


def _covers(wide: inspect.Signature, narrow: inspect.Signature) -> bool:
    """Whether every call of one signature is one of another, which has more arguments."""
    if wide.return_annotation != narrow.return_annotation:
        return False
    ours, theirs = dict(wide.parameters), dict(narrow.parameters)
    for name, parameter in theirs.items():
        same = ours.pop(name, None)
        if same is None or same.annotation != parameter.annotation:
            return False
        if same.default is _EMPTY and parameter.default is not _EMPTY:
            return False
    return all(p.default is not _EMPTY and p.kind is _BY_NAME for p in ours.values())


def overload_signatures(
    definition: OpDefinition, variant: str = "functional"
) -> list[inspect.Signature]:
    """Signatures of a definition's overloads, without those that another one covers.

    Args:
        variant: "functional" or "inplace".
    """
    chosen = [o for o in definition.overloads if variant == "functional" or o.options.inplace]
    signatures: list[inspect.Signature] = []
    for overload in chosen:
        signature = _signature(overload, variant)
        if any(_covers(other, signature) for other in signatures):
            continue
        signatures = [s for s in signatures if not _covers(signature, s)]
        signatures.append(signature)
    return signatures


def signature_of(op: Any) -> inspect.Signature | None:
    """The signature of a native operator: that of its overload with the most arguments.

    Example:
        >>> import inspect
        >>> list(inspect.signature(torch.add).parameters)
        ['input', 'other', 'alpha', 'out']
    """
    variant = "inplace" if INPLACE.get(op.__name__) is op else "functional"
    definition = None
    for each in REGISTRY.values():
        native = INPLACE.get(f"{each.name}_") if variant == "inplace" else each.native
        if native is op and (variant == "functional" or _has_inplace(each)):
            definition = each
    if definition is None:
        return None
    signatures = overload_signatures(definition, variant)
    tensors = [s for s in signatures if _begins_with_tensor(s)] or signatures
    return max(tensors, key=lambda s: len(s.parameters))


def _has_inplace(definition: OpDefinition) -> bool:
    return any(overload.options.inplace for overload in definition.overloads)


def _begins_with_tensor(signature: inspect.Signature) -> bool:
    first = next(iter(signature.parameters.values()), None)
    return first is not None and str(first.annotation).startswith(("Tensor", "Sequence"))
