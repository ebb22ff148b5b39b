"""Signatures of functions and modules, and arguments in their normal form."""

from __future__ import annotations

import inspect
import numbers
import re
import types
import typing
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import flambeau as torch
from flambeau import _core
from flambeau.fx import _function_names, _python_functions
from flambeau.fx._compatibility import compatibility

if TYPE_CHECKING:
    from flambeau.fx.node import Argument

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]

_KINDS: dict[str, Any] = {
    "Tensor": torch.Tensor, "Scalar": numbers.Number, "int": int, "SymInt": int, "float": float,
    "bool": bool, "str": str, "dtype": int, "layout": int, "memory_format": int, "complex": complex,
    "device": torch.device, "generator": torch.Generator,
}  # fmt: skip

_DIMENSIONS = re.compile(r"(\d)d$")


@compatibility(is_backward_compatible=False)
class ArgsKwargsPair(NamedTuple):
    """Arguments by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _kind_types(kind: str) -> list[Any]:
    """The Python types of a schema's type; several where overloads stand in one."""
    if kind.endswith("?"):
        return [typing.Optional[each] for each in _kind_types(kind[:-1])]  # noqa: UP045
    if kind.endswith("[]"):
        return [typing.List[each] for each in _kind_types(kind[:-2])]  # noqa: UP006
    if kind == "TensorOrScalar":
        return [torch.Tensor, numbers.Number]
    return [_KINDS.get(kind, Any)]


def _default(function: Any, kind: str, value: Any) -> Any:
    """A default as PyTorch's signature has it: lists of sizes have the layer's length."""
    match = _DIMENSIONS.search(getattr(function, "__name__", ""))
    if match and kind.startswith(("int[]", "SymInt[]")) and isinstance(value, int):
        return [value] * int(match[1])
    return value


def _signatures(function: Any, overload: tuple[Any, ...]) -> list[inspect.Signature]:
    """The signatures of one overload: one for each type of its first ambiguous argument."""
    variants: list[list[inspect.Parameter]] = [[]]
    for position, (name, kind, default, keyword_only, *_) in enumerate(overload[0]):
        shown = "input" if name == "self" and position == 0 else name
        how = inspect.Parameter.KEYWORD_ONLY if keyword_only else (
            inspect.Parameter.POSITIONAL_OR_KEYWORD
        )  # fmt: skip
        value = _default(function, kind, default[0]) if default else inspect.Parameter.empty
        variants = [
            [*before, inspect.Parameter(shown, how, default=value, annotation=each)]
            for before in variants
            for each in _kind_types(kind)
        ]
    return [inspect.Signature(v, return_annotation=torch.Tensor) for v in variants]


def _overload_signatures(op: Any) -> list[inspect.Signature]:
    """Signatures whose parameters Python accepts, the fullest of each kind."""
    table: dict[tuple[Any, ...], inspect.Signature] = {}
    for overload in op.overloads:
        try:
            candidates = _signatures(op, overload)
        except ValueError:  # a default in front of a parameter without one
            continue
        for signature in candidates:
            parameters = [p for p in signature.parameters.values() if p.kind != p.KEYWORD_ONLY]
            if parameters and parameters[0].annotation is numbers.Number:
                continue
            key = tuple(str(parameter.annotation) for parameter in parameters)
            before = table.get(key)
            if before is None or len(before.parameters) < len(signature.parameters):
                table[key] = signature
    return list(table.values())


@compatibility(is_backward_compatible=False)
def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of a function of torch: one for each overload.

    Args:
        op: the function.
        return_schemas: whether the text of the schemas is returned as well.

    Returns:
        list: of `inspect.Signature`; None if the function is none of torch's operators.

    Example:
        >>> from torch.fx.operator_schemas import get_signature_for_torch_op
        >>> [list(each.parameters) for each in get_signature_for_torch_op(torch.relu)]
        [['input']]
    """
    if isinstance(op, _core.Op) and not _is_recorded_in_python(op):
        signatures = _overload_signatures(op)
        return (signatures, list(op.schemas)) if return_schemas else signatures
    schema = getattr(op, "_schema", None)
    if schema is not None and hasattr(schema, "arguments"):
        signature = _schema_signature(schema)
        return ([signature], [schema]) if return_schemas else [signature]
    return (None, None) if return_schemas else None


def _is_recorded_in_python(op: Any) -> bool:
    return _function_names.public_name(op) in _python_functions.forms()


def _schema_signature(schema: Any) -> inspect.Signature:
    parameters = []
    for argument in schema.arguments:
        name = "input" if argument.name == "self" else argument.name
        only = getattr(argument, "kwarg_only", False)
        how = inspect.Parameter.KEYWORD_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        has_default = getattr(argument, "has_default_value", lambda: False)()
        value = argument.default_value if has_default else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, how, default=value, annotation=Any))
    return inspect.Signature(parameters)


@compatibility(is_backward_compatible=False)
def check_for_mutable_operation(
    target: Callable[..., Any], args: tuple[Argument, ...], kwargs: dict[str, Argument]
) -> None:
    """Refuses functions that write their first argument.

    Args:
        target: the function.
        args: its arguments.
        kwargs: likewise, by name.

    Raises:
        RuntimeError: it is one.
    """
    if not isinstance(target, _core.Op):
        return
    name = target.__name__
    if name.endswith("_") and not name.endswith("__"):
        schema = f"aten::{name}(Tensor(a!) self) -> Tensor(a!)"
        raise RuntimeError(
            f"Tried to trace mutable operation {schema}. FX only supports functional code, so "
            "operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
        )


@compatibility(is_backward_compatible=False)
def create_type_hint(x: object) -> object:
    """The type of a list or tuple of types; other values as they are.

    Args:
        x: a type, or a list or tuple of types.
    """
    if not isinstance(x, (list, tuple)):
        return x
    kind = list if isinstance(x, list) else tuple

    def of(element: Any) -> Any:
        return list[element] if kind is list else tuple[element, ...]  # type: ignore[valid-type]

    if not x:
        return of(Any)
    if not all(isinstance(each, type) or hasattr(each, "__origin__") for each in x):
        warnings.warn(
            f"We were not able to successfully create type hint from the type {x}", stacklevel=2
        )
        return x
    base = x[0]
    for each in x[1:]:
        if each == base or issubclass(each, base):
            continue
        if not issubclass(base, each):
            return of(Any)
        base = each
    return of(base)


@compatibility(is_backward_compatible=False)
def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether a value of a type may be passed for a parameter.

    Args:
        signature_type: the parameter's annotation.
        argument_type: the value's type.
    """
    origin = getattr(signature_type, "__origin__", signature_type)
    if signature_type is argument_type:
        return True
    if origin in (typing.Union, types.UnionType) and signature_type != argument_type:
        return any(type_matches(each, argument_type) for each in signature_type.__args__)
    if signature_type in (typing.List[int], list[int]) and argument_type is int:  # noqa: UP006
        return True
    if origin is list:
        element = signature_type.__args__[0] if hasattr(signature_type, "__args__") else Any
        if getattr(argument_type, "__origin__", None) in (list, tuple):
            inner = [each for each in argument_type.__args__ if each is not ...]
            return all(type_matches(element, each) for each in inner)
        if isinstance(element, type) and isinstance(argument_type, type):
            return issubclass(argument_type, element)
        return False
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    if isinstance(argument_type, type) and isinstance(signature_type, type):
        return issubclass(argument_type, signature_type)
    return False


@compatibility(is_backward_compatible=False)
def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call in the form of the function's signature, defaults included.

    Args:
        target: the function.
        args: positional arguments.
        kwargs: arguments by name.
        arg_types: their types, which choose an overload.
        kwarg_types: likewise, by name.
        normalize_to_only_use_kwargs: whether all are passed by name.

    Returns:
        ArgsKwargsPair: None if the signature is not known.

    Raises:
        RuntimeError: several overloads fit.

    Example:
        >>> from torch.fx.operator_schemas import normalize_function
        >>> normalize_function(torch.flatten, (0, 1)).kwargs
        {'end_dim': -1}
    """
    kwargs = kwargs or {}
    form = _python_functions.forms().get(_function_names.public_name(target) or "")
    if form is not None and not form.positional[0].startswith("*"):
        return _bind(_form_signature(form), args, kwargs, normalize_to_only_use_kwargs)
    if isinstance(target, types.FunctionType) and form is None:
        signature = inspect.signature(inspect.unwrap(target))
        return _bind(signature, args, kwargs, normalize_to_only_use_kwargs)
    signatures = get_signature_for_torch_op(target)
    if not signatures:
        return None
    fitting = [each for each in signatures if _fits(each, args, kwargs)]
    if len(fitting) > 1 and (arg_types is not None or kwarg_types is not None):
        fitting = [each for each in fitting if _types_fit(each, arg_types or (), kwarg_types or {})]
    if len(fitting) == 1:
        return _bind(fitting[0], args, kwargs, normalize_to_only_use_kwargs)
    if not fitting:
        return None
    if arg_types is not None or kwarg_types is not None:
        return _bind(fitting[0], args, kwargs, normalize_to_only_use_kwargs)
    shown = "\n".join(str(each) for each in fitting)
    raise RuntimeError(
        f"Tried to normalize arguments to {_function_names.public_name(target) or target} but the "
        "schema match was ambiguous! Please provide argument types to the normalize_arguments() "
        f"call. Available schemas:\n{shown}"
    )


def _normalize_function_or_error(*args: Any, **kwargs: Any) -> ArgsKwargsPair:
    """`normalize_function`, which raises where it returns None."""
    pair = normalize_function(*args, **kwargs)
    if pair is None:
        raise RuntimeError(f"Failed to normalize function {args[0] if args else kwargs}")
    return pair


def _form_signature(form: _python_functions.Form) -> inspect.Signature:
    how = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, how) for name in form.positional]
    parameters += [inspect.Parameter(n, how, default=form.named[n]) for n in form.order
                   if n in form.named]  # fmt: skip
    return inspect.Signature(parameters)


def _fits(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _types_fit(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return all(
        type_matches(signature.parameters[name].annotation, value)
        for name, value in bound.arguments.items()
    )


def _bind(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], only_named: bool
) -> ArgsKwargsPair | None:
    """Required arguments by position, the others by name."""
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    values, named = [], {}
    for position, (name, parameter) in enumerate(signature.parameters.items()):
        value = bound.arguments[name]
        by_position = position < len(args) or (
            parameter.default is parameter.empty and parameter.kind != parameter.KEYWORD_ONLY
            and name not in kwargs
        )  # fmt: skip
        if by_position and not only_named and parameter.kind != parameter.KEYWORD_ONLY:
            values.append(value)
        else:
            named[name] = value
    return ArgsKwargsPair(tuple(values), named)


@compatibility(is_backward_compatible=False)
def normalize_module(
    root: torch.nn.Module,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of a submodule in the form of its `forward`.

    Args:
        root: the module.
        target: the submodule's dotted name.
        args: positional arguments.
        kwargs: arguments by name.
        normalize_to_only_use_kwargs: whether all are passed by name.

    Returns:
        ArgsKwargsPair: None if the submodule is none of `torch.nn`.

    Raises:
        RuntimeError: there is no such submodule.
    """
    try:
        submodule = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from error
    if getattr(torch.nn, type(submodule).__name__, None) is not type(submodule):
        return None
    signature = inspect.signature(inspect.unwrap(submodule.forward))
    return _bind(signature, args, kwargs or {}, normalize_to_only_use_kwargs)
