"""`CodeGen`: the Python source of a graph, and its conversions of inputs and outputs."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import flambeau as torch
from flambeau.fx._names import _custom_builtins, _is_from_torch, _Namespace
from flambeau.fx.node import Node, _get_qualified_name, _type_repr, dtype_abbrs, map_arg

if TYPE_CHECKING:
    pass

TransformCodeFunc = Callable[[list[str]], list[str]]

reflectable_magic_methods = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}",
    "truediv": "{} / {}", "div": "{} / {}", "mod": "{} % {}", "pow": "{} ** {}",
    "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}",
    "xor": "{} ^ {}", "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip

magic_methods = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}",
    "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}", **reflectable_magic_methods,
}  # fmt: skip

inplace_methods = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}",
    "imod": "{} %= {}", "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}",
    "ipow": "{} **= {}", "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip

_color_codes = {
    "yellow": "\033[33m", "cyan": "\033[36m", "green": "\033[32m", "blue": "\033[34m",
    "red": "\033[31m", "dim": "\033[2m", "dim_blue": "\033[2m\033[34m",
    "dim_green": "\033[2m\033[32m", "reset": "\033[0m",
}  # fmt: skip

_origin_type_map = {
    list: typing.List, dict: typing.Dict, set: typing.Set,  # noqa: UP006
    frozenset: typing.FrozenSet, tuple: typing.Tuple,  # noqa: UP006
}  # fmt: skip


def _identity(x: str) -> str:
    return x


def _make_color_fn(code: str) -> Callable[[str], str]:
    def f(s: str) -> str:
        return f"{_color_codes[code]}{s}{_color_codes['reset']}"

    return f


_color_fns = {name: _make_color_fn(name) for name in _color_codes if name != "reset"}


@dataclasses.dataclass
class PythonCode:
    """Generated source.

    Attributes:
        src: the text of the function.
        globals: the names that it uses, with their values.
    """

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


class _PyTreeInfo(NamedTuple):
    """The original inputs and output of a graph whose containers were flattened."""

    orig_args: list[str]
    in_spec: Any
    out_spec: Any


@dataclasses.dataclass(frozen=True)
class _ParsedStackTrace:
    """The innermost line of a stack trace."""

    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        """The comment above the nodes of that line."""
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


_TRACE_LINE = re.compile(r'^File "(.+)", line (\d+), in (.+)$')


def _parse_stack_trace(
    stack_trace: str, filter_fn: Callable[[str, str, str], bool] | None = None
) -> _ParsedStackTrace | None:
    """The innermost line of a trace that a filter lets through."""
    lines = stack_trace.strip().split("\n")
    for index in range(len(lines) - 2, -1, -1):
        match = _TRACE_LINE.match(lines[index].strip())
        if match is None:
            continue
        file, number, name = match.groups()
        code = lines[index + 1].strip()
        if filter_fn is None or filter_fn(file, name, code):
            return _ParsedStackTrace(file, number, name, code)
    return None


def _format_target(base: str, target: str) -> str:
    """The expression of a dotted attribute: `self.a.b`, `getattr(self.a, "0")`."""
    text = base
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


class _Writer:
    """Writes the lines of one graph."""

    def __init__(
        self,
        root: str,
        namespace: _Namespace,
        verbose: bool,
        include_stride: bool,
        include_device: bool,
        colored: bool,
        record_func: bool,
        additional_meta: list[str] | None,
    ) -> None:
        self.root, self.namespace = root, namespace
        self.verbose, self.record_func = verbose, record_func
        self.include_stride, self.include_device = include_stride, include_device
        self.additional_meta = additional_meta or []
        colors: dict[str, Callable[[str], str]] = dict.fromkeys(_color_fns, _identity)
        self.colors = _color_fns if colored else colors
        self.free_vars: list[str] = []
        self.body: list[str] = []
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.annotation = [""]
        self.deletions: dict[Node, list[Node]] = {}
        self.before_stack: str | None = None

        for name, builtin in _custom_builtins.items():
            self.globals[namespace.create_name(name, builtin.obj)] = builtin.obj

    # ------------------------------------------------------------------------ names
    def add_global(self, hint: str, value: Any) -> str:
        """The name under which the code reads an object."""
        if _is_from_torch(value) and value != torch.device:
            return _get_qualified_name(value)
        name = self.namespace.create_name(hint, value)
        if name in self.globals:
            if self.globals[name] != value:
                raise AssertionError(f"global name {name} already assigned to {self.globals[name]}")
            return name
        self.globals[name] = value
        return name

    def type_text(self, kind: Any) -> str:
        """The expression of a type; empty for the type of None's class and `()`."""
        if kind == ():
            return "()"
        typename = _type_repr(kind)
        if isinstance(kind, types.UnionType) and "|" in typename:
            return "|".join(self.type_text(part) for part in kind.__args__)
        origin = getattr(kind, "__origin__", None)
        if origin is None:
            return self.add_global(typename, kind)
        origin = _origin_type_map.get(origin, origin) if not isinstance(
            kind, types.GenericAlias
        ) else origin  # fmt: skip
        head = self.add_global(_type_repr(origin), origin)
        parts = getattr(kind, "__args__", None)
        if not parts:
            return head
        return f"{head}[{','.join(map(self.type_text, parts))}]"

    def value_text(self, value: Any) -> str:
        """The expression of an argument."""
        if isinstance(value, Node):
            return repr(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            name = self.add_global(_get_qualified_name(type(value)), type(value))
            return f"{name}{self.value_text(tuple(value))}"
        if isinstance(value, enum.Enum):
            kind = type(value)
            return f"{self.add_global(kind.__name__, kind)}.{value.name}"
        if type(value) is torch.Tensor:
            dtype = str(value.dtype).replace("torch.", "")
            return f"torch.Tensor(size={list(value.shape)}, dtype={dtype})"
        if isinstance(value, tuple):
            inner = ", ".join(map(self.value_text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value_text, value))}]"
        if isinstance(value, dict):
            pairs = (f"{key!r}: {self.value_text(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, slice):
            parts = map(self.value_text, (value.start, value.stop, value.step))
            return f"slice({', '.join(parts)})"
        if isinstance(value, types.BuiltinFunctionType | types.FunctionType) or _is_operator(value):
            return self.add_global(_get_qualified_name(value), value)
        return self.colors["blue"](repr(value))

    def arguments_text(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The expression between the parentheses of a call."""
        values = [self.value_text(value) for value in args]
        return ", ".join(
            [*values, *(f"{key} = {self.value_text(value)}" for key, value in kwargs.items())]
        )

    # ------------------------------------------------------------------------ statements
    def plan_deletions(self, nodes: Sequence[Node]) -> None:
        """Finds after which statement each value is needed no more."""
        last: dict[Node, Node] = {}

        def use(node: Node, user: Node) -> Node:
            if node not in last:
                last[node] = user
                self.deletions.setdefault(user, []).append(node)
            return node

        for user in reversed(nodes):
            map_arg(user.args, lambda node, user=user: use(node, user))
            map_arg(user.kwargs, lambda node, user=user: use(node, user))

    def delete_unused(self, user: Node) -> None:
        """Ends a statement: forgets the values that nothing reads behind it."""
        if user.op == "placeholder":
            return
        if user.op == "output":
            self.body.append("\n")
            return
        values = self.deletions.get(user, [])
        if not user.users:
            values = [*values, user]
        if values:
            text = " = ".join([repr(value) for value in values] + ["None"])
            self.body.append(f";  {self.colors['dim'](text)}\n")
        else:
            self.body.append("\n")

    def place_comment(self, node: Node) -> None:
        """The source line that a node comes from, if it is another than before."""
        if node.op in ("placeholder", "output"):
            return
        trace = node.stack_trace
        if trace:
            if trace == self.before_stack:
                return
            self.before_stack = trace
            parsed = _parse_stack_trace(trace)
            text = parsed.get_summary_str() if parsed else ""
            self.body.append("\n" + self.colors["dim"](f"# {text}") + "\n")
        elif self.before_stack != "":
            self.before_stack = ""
            text = "# No stacktrace found for following nodes"
            self.body.append(self.colors["dim"](text) + "\n")

    def meta_comment(self, node: Node) -> None:
        """The chosen entries of `meta`."""
        pairs = [f"{key}: {node.meta[key]}" for key in self.additional_meta if key in node.meta]
        if pairs:
            self.body.append(self.colors["dim"](f"# {', '.join(pairs)}") + "\n")

    def tensor_text(self, node: Node) -> str:
        """Shape and dtype as an annotation."""
        value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
        if isinstance(value, torch.Tensor) or type(value).__name__ == "TensorMetadata":
            return f': "{self._describe(value)}"'
        if isinstance(value, (int, float, bool)):
            return f': "{_sym_name(value)}"'
        return ""

    def _describe(self, value: Any) -> str:
        sizes = ", ".join(map(str, value.shape))
        text = dtype_abbrs.get(value.dtype, str(value.dtype))
        text += f"[{sizes}]"
        if self.include_stride:
            strides = value.stride if not callable(value.stride) else value.stride()
            text += f"[{', '.join(map(str, strides))}]" if callable(value.stride) else ""
        if self.include_device and hasattr(value, "device"):
            text += f"{value.device}"
        return text

    def emit(self, node: Node) -> None:
        """Adds the statement of a node."""
        kind = "" if node.type is None else f" : {self.type_text(node.type)}"
        if self.verbose and node.op != "output":
            kind = self.tensor_text(node) or kind
        name = repr(node)
        writer = getattr(self, f"_emit_{node.op}", None)
        if writer is None:
            raise NotImplementedError(f"node: {node.op} {node.target}")
        writer(node, name, kind)

    def _emit_placeholder(self, node: Node, name: str, kind: str) -> None:
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected node.target to be str, got {type(node.target)}")
        default = f" = {self.value_text(node.args[0])}" if node.args else ""
        self.free_vars.append(f"{node.target}{kind}{default}")
        raw = node.target.replace("*", "")
        if raw != name:
            self.body.append(f"{name} = {raw}\n")

    def _emit_call_method(self, node: Node, name: str, kind: str) -> None:
        target = _format_target(self.value_text(node.args[0]), str(node.target))
        call = self.arguments_text(node.args[1:], node.kwargs)
        self.body.append(f"{name}{kind} = {target}({call})")

    def _emit_call_function(self, node: Node, name: str, kind: str) -> None:
        target: Any = node.target
        own, args = getattr(target, "__name__", ""), node.args
        if getattr(target, "__module__", None) == "_operator" and not node.kwargs:
            if own in magic_methods:
                text = magic_methods[own].format(*map(self.value_text, args))
                self.body.append(f"{name}{kind} = {text}")
                return
            if own in inplace_methods:
                text = inplace_methods[own].format(*map(self.value_text, args))
                self.body.append(f"{text};  {name}{kind} = {self.value_text(args[0])}")
                return
        qualified = _get_qualified_name(target)
        shown = self.add_global(qualified, target)
        reads = shown == "getattr" and len(args) == 2 and not node.kwargs
        if reads and isinstance(args[1], str) and args[1].isidentifier():
            text = _format_target(self.value_text(args[0]), args[1])
            self.body.append(f"{name}{kind} = {text}")
            return
        self.body.append(f"{name}{kind} = {shown}({self.arguments_text(args, node.kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(shown)

    def _emit_call_module(self, node: Node, name: str, kind: str) -> None:
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected node.target to be str, got {type(node.target)}")
        call = self.arguments_text(node.args, node.kwargs)
        self.body.append(f"{name}{kind} = {_format_target(self.root, node.target)}({call})")

    def _emit_get_attr(self, node: Node, name: str, kind: str) -> None:
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected node.target to be str, got {type(node.target)}")
        self.body.append(f"{name}{kind} = {_format_target(self.root, node.target)}")

    def _emit_output(self, node: Node, name: str, kind: str) -> None:
        if node.type is not None:
            self.annotation[0] = f" -> {self.type_text(node.type)}"
        self.body.append(self.output_text(node))

    output_text: Callable[[Node], str]


def _is_operator(value: Any) -> bool:
    return isinstance(value, type(torch.relu)) or hasattr(value, "_overloadname")


def _sym_name(value: Any) -> str:
    return "Sym(" + str(value) + ")"


def _call(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a method of a subclass, which may have an older signature without the options."""
    parameters = inspect.signature(method).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names = {parameter.name for parameter in parameters}
        options = {name: value for name, value in options.items() if name in names}
    return method(*args, **options)


class CodeGen:
    """Turns a graph into the source of a function. Subclasses change its head and its results."""

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name: str = "forward"

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The head of the function, and its statements before the first node.

        Args:
            free_vars: its parameters, as text.
            maybe_return_annotation: "" or " -> type".
            expanded_def: whether each parameter has a line of its own.
        """
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        parameters = self._format_multiline_args(free_vars) if expanded_def else None
        text = ", ".join(free_vars) if parameters is None else parameters
        return f"def {self._func_name}({text}){maybe_return_annotation}:"

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The return statement.

        Args:
            output_args: the argument of the output node.
            descs: comments beside the results.
            repr_fn: text of a value.
        """
        write = repr_fn or repr
        if descs is not None and isinstance(output_args, (list, tuple)):
            return "return " + self._format_multiline_container(output_args, descs, "", write)
        return f"return {write(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, from the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The result of a call, from the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the generated code uses beyond those of its nodes, with values."""
        return []

    def _format_multiline_args(self, args: list[str]) -> str:
        return "".join(f"\n    {arg}," for arg in args) + "\n"

    def _format_multiline_container(
        self,
        items: Sequence[object],
        descs: Sequence[str] | None = None,
        prefix: str = "",
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        write = repr_fn or repr
        start, end = ("[", "]") if isinstance(items, list) else ("(", ")")
        notes = [f"  # {note}" for note in descs] if descs else [""] * len(items)
        lines = [f"    {write(item)},{note}\n" for item, note in zip(items, notes, strict=True)]
        return f"{prefix}{start}\n{''.join(lines)}{end}"

    def _gen_python_code(
        self,
        nodes: Any,
        root_module: str,
        namespace: _Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The whole source."""
        writer = _Writer(
            root_module, namespace, verbose, include_stride, include_device, colored, record_func,
            additional_meta,
        )  # fmt: skip
        writer.output_text = lambda node: self._call_output(node, writer)
        ordered = list(nodes)
        writer.plan_deletions(ordered)
        marks: list[tuple[int, int]] = []
        for position, node in enumerate(ordered):
            if verbose:
                writer.place_comment(node)
                writer.meta_comment(node)
            marks.append((len(writer.body), position))
            writer.emit(node)
            writer.delete_unused(node)
        return self._assemble(writer, marks, expanded_def)

    def _call_output(self, node: Node, writer: _Writer) -> str:
        text: str = _call(self.generate_output, node.args[0], repr_fn=writer.value_text)
        return text

    def _assemble(
        self, writer: _Writer, marks: list[tuple[int, int]], expanded_def: bool
    ) -> PythonCode:
        body = writer.body
        for name, value in self.additional_globals():
            writer.add_global(name, value)
        if not marks:
            body.append("pass\n")
        lines_before = [0]
        for text in body:
            lines_before.append(lines_before[-1] + text.count("\n"))
        numbers: dict[int, int | None] = {}
        for index, position in marks:
            numbers[lines_before[index] + 1] = position
        code = body if self._body_transformer is None else self._body_transformer(list(body))
        wraps = "\n".join(
            f'torch.fx._symbolic_trace.wrap("{name}")' for name in writer.wrapped
        )  # fmt: skip
        head = _call(
            self.gen_fn_def, writer.free_vars, writer.annotation[0], expanded_def=expanded_def
        )
        text = "".join(code)
        inner = "\n".join("    " + line for line in text.split("\n"))
        prologue = f"{wraps}\n\n{head}"
        start = prologue.count("\n") + 1
        source = f"\n{prologue}\n{inner}"
        if marks:
            numbers[lines_before[-1] + 1] = marks[-1][1]
        return PythonCode(source, writer.globals, _lineno_map=numbers, _prologue_start=start + 1)
