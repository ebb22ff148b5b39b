"""A scripted function's parameters and result: binding of a call and its check."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau import _core
from flambeau.jit import script_types
from flambeau.jit.script_types import Mismatch, Tensor, spelling

_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class Argument:
    """One parameter with its type and default value."""

    name: str
    type: Any
    inferred: bool
    default: Any
    keyword_only: bool = False

    def __str__(self) -> str:
        default = "" if self.default is _EMPTY else f"={self.default}"
        return f"{spelling(self.type)} {self.name}{default}"


@dataclass(frozen=True)
class Schema:
    """`f(Tensor x, int y=2) -> Tensor`."""

    name: str
    arguments: tuple[Argument, ...]
    returns: Any = _EMPTY

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.arguments))
        result = "Tensor" if self.returns is _EMPTY else spelling(self.returns)
        return f"{self.name}({shown}) -> {result}"

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The values of all parameters, converted. Raises RuntimeError as PyTorch does."""
        if len(args) > len(self.arguments):
            raise RuntimeError(
                f"{self.name}() expected at most {len(self.arguments)} argument(s) but received "
                f"{len(args)} argument(s). Declaration: {self}"
            )
        values = []
        for position, argument in enumerate(self.arguments):
            if position < len(args):
                values.append(self._converted(args[position], argument, position))
            elif argument.name in kwargs:
                values.append(self._converted(kwargs[argument.name], argument, position))
            elif argument.default is not _EMPTY:
                values.append(argument.default)
            else:
                raise RuntimeError(
                    f"{self.name}() is missing value for argument '{argument.name}'. "
                    f"Declaration: {self}"
                )
        self._refuse_unknown(args, kwargs)
        return values

    def _refuse_unknown(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = [argument.name for argument in self.arguments]
        for name in kwargs:
            if name not in names or names.index(name) < len(args):
                raise RuntimeError(
                    f"Unknown keyword argument '{name}' for operator '{self.name}'. Schema: {self}"
                )

    def _converted(self, value: Any, argument: Argument, position: int) -> Any:
        try:
            return script_types.convert(value, argument.type)
        except Mismatch:
            pass
        shown = "Tensor (inferred)" if argument.inferred else spelling(argument.type)
        why = (
            f"Inferred '{argument.name}' to be of type 'Tensor' because it was not annotated with "
            "an explicit type.\n"
            if argument.inferred
            else ""
        )
        raise RuntimeError(
            f"{self.name}() Expected a value of type '{shown}' for argument '{argument.name}' but "
            f"instead found type '{type(value).__name__}'.\n{why}Position: {position}\n"
            f"Value: {value!r}\nDeclaration: {self}"
        )

    def result(self, value: Any) -> Any:
        """A returned value, checked against its annotation."""
        if self.returns is _EMPTY:
            return value
        try:
            return script_types.convert(value, self.returns)
        except Mismatch:
            raise RuntimeError(
                f"Return value was annotated as having type {spelling(self.returns)} but is "
                f"actually of type {type(value).__name__}"
            ) from None


_TYPE_COMMENT = re.compile(r"#\s*type:\s*\((?P<arguments>.*)\)\s*->\s*(?P<returns>[^#\n]+)")


def _comment_types(
    function: Callable[..., Any], names: list[str], scope: dict[str, Any]
) -> dict[str, Any]:
    """The types of a comment `# type: (Tensor, int) -> Tensor` under the first line."""
    try:
        text = inspect.getsource(function)
    except OSError:
        return {}
    comment = _TYPE_COMMENT.search(text)
    if comment is None:
        return {}
    scope = {**vars(typing), "Tensor": Tensor, **scope}
    try:
        arguments = eval(f"({comment['arguments']},)", scope)  # noqa: S307 - the user's own source
        returns = eval(comment["returns"].strip(), scope)  # noqa: S307
    except (NameError, SyntaxError, TypeError):
        return {}
    own = [name for name in names if name != "self"]
    return {**dict(zip(own, arguments, strict=False)), "return": returns}


def annotations_of(function: Callable[..., Any], scope: dict[str, Any]) -> dict[str, Any]:
    """Types by parameter name and "return"; from annotations, else from a type comment."""
    if not getattr(function, "__annotations__", None):
        return _comment_types(function, list(inspect.signature(function).parameters), scope)
    scope = {**vars(typing), "Tensor": Tensor, **scope}
    return {name: _evaluated(kind, scope) for name, kind in function.__annotations__.items()}


def _evaluated(kind: Any, scope: dict[str, Any]) -> Any:
    if isinstance(kind, str):
        try:
            return eval(kind, dict(scope))  # noqa: S307 - the user's own annotation
        except NameError as error:
            raise RuntimeError(f"Unknown type name '{error.name}' in {kind!r}") from None
    return kind


def schema_of(
    name: str, function: Callable[..., Any], scope: dict[str, Any], method: bool
) -> Schema:
    """The schema of a Python function; of a method without its first parameter."""
    kinds = annotations_of(function, scope)
    arguments: list[Argument] = []
    for parameter in list(inspect.signature(function).parameters.values())[method:]:
        inferred = parameter.name not in kinds
        arguments.append(
            Argument(
                parameter.name,
                kinds.get(parameter.name, Tensor),
                inferred,
                parameter.default,
                parameter.kind is inspect.Parameter.KEYWORD_ONLY,
            )
        )
    return Schema(name, tuple(arguments), kinds.get("return", _EMPTY))


def schema_of_tree(tree: ast.FunctionDef, run: Callable[..., Any], program: Any) -> Schema:
    """The schema of scripted code, from its annotations."""
    scope: dict[str, Any] = {**program.globals, "int": int, "float": float, "bool": bool}
    scope.update(str=str, complex=complex, Device=_core.device, Generator=_core.Generator)
    own = [argument for argument in tree.args.args if argument.arg != "self"]
    values = getattr(run, "__defaults__", None) or ()
    defaults = [*[_EMPTY] * (len(own) - len(values)), *values]
    arguments = [
        Argument(
            argument.arg,
            Tensor if argument.annotation is None else _type_of(argument.annotation, scope),
            argument.annotation is None,
            default,
        )
        for argument, default in zip(own, defaults, strict=True)
    ]
    returns = _EMPTY if tree.returns is None else _type_of(tree.returns, scope)
    return Schema(tree.name, tuple(arguments), returns)


def _type_of(node: ast.expr, scope: dict[str, Any]) -> Any:
    """The type that an annotation of scripted code spells; Any where it is unknown."""
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.Name):
        return scope.get(node.id, Any)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kinds = tuple(_type_of(element, scope) for element in inner)
        generic = {"List": list, "Dict": dict, "Tuple": tuple}.get(node.value.id)
        if generic is not None:
            return generic[kinds]  # type: ignore[index]
        if node.value.id in ("Optional", "Union"):
            kinds += (type(None),) if node.value.id == "Optional" else ()
            return typing.Union[kinds]  # noqa: UP007
    return Any
