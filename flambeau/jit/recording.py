"""The recorder of a trace: each operator that a function calls becomes a line of scripted code.

Sizes are integers that remember their line (`TracedInt`), so that a program which computes with
`x.size(0)` works for other sizes. Values that Python reads out of tensors become constants, with a
`TracerWarning`.
"""

from __future__ import annotations

import ast
import functools
import operator
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flambeau import _core
from flambeau.jit import markers, names
from flambeau.overrides import TorchFunctionMode

Tensor = _core.Tensor


_PACKAGE = str(Path(__file__).parents[1])


class TracerWarning(Warning):
    """Something in a traced function that the trace cannot follow."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Silences these warnings where the library's own code causes them."""
        warnings.filterwarnings("ignore", category=TracerWarning, module="flambeau.(?!jit)")


class TracedNumber:
    """The base of traced integers and floats: arithmetic that is recorded."""

    recorder: Recorder
    name: str


def _recorded(symbol: str, compute: Callable[[Any, Any], Any], swapped: bool) -> Any:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        plain = [value.real for value in (left, right)]
        value = compute(*[type(v).__mro__[-2](v) for v in plain])
        texts = [self.recorder.text(value) for value in (left, right)]
        return self.recorder.number(value, f"{texts[0]} {symbol} {texts[1]}")

    return method


def _negated(self: Any) -> Any:
    return self.recorder.number(-self.real, f"-{self.name}")


_ARITHMETIC = {
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "floordiv": ("//", operator.floordiv),
    "truediv": ("/", operator.truediv),
    "mod": ("%", operator.mod),
    "pow": ("**", operator.pow),
}


def _with_arithmetic(cls: type) -> type:
    for name, (symbol, compute) in _ARITHMETIC.items():
        setattr(cls, f"__{name}__", _recorded(symbol, compute, False))
        setattr(cls, f"__r{name}__", _recorded(symbol, compute, True))
    setattr(cls, "__neg__", _negated)  # noqa: B010 - mypy knows no such attribute
    return cls


@_with_arithmetic
class TracedInt(int, TracedNumber):
    """An integer that a trace computed from sizes."""


@_with_arithmetic
class TracedFloat(float, TracedNumber):
    """A float that a trace computed from sizes."""


class TracedSize(_core.Size):
    """A shape whose elements, slices and concatenations are traced."""

    elements: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.elements[index]
        return traced_size(chosen) if isinstance(index, slice) else chosen

    def __add__(self, other: Any) -> Any:
        return traced_size((*self.elements, *other))

    def __radd__(self, other: Any) -> Any:
        return traced_size((*other, *self.elements))

    def numel(self) -> Any:
        """The product of the sizes."""
        return functools.reduce(operator.mul, self.elements, 1)


def traced_size(elements: Iterable[Any]) -> TracedSize:
    """A shape of traced and plain integers."""
    held = tuple(elements)
    size = TracedSize(held)
    size.elements = held
    return size


_PLAIN_RESULT = frozenset(
    "dim ndimension is_floating_point is_complex is_contiguous stride element_size data_ptr "
    "storage_offset is_conj is_neg is_inference get_device type nelement storage untyped_storage "
    "is_signed is_same_size is_set_to register_hook requires_grad_ retain_grad __repr__ __str__ "
    "__format__ __hash__ __deepcopy__ __reduce_ex__ is_shared has_names".split()
)
_READS = {
    "__bool__": "boolean",
    "__int__": "integer",
    "__float__": "float",
    "__index__": "index",
    "__complex__": "complex number",
    "item": "number",
    "tolist": "list",
    "numpy": "NumPy array",
    "__array__": "NumPy array",
}


class Recorder(TorchFunctionMode):
    """Records the operators that run inside its `with` block."""

    def __init__(self, constants: Callable[[Any], str]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # ids stay unique while these live
        self._count = 0
        self._constants = constants

    def bind(self, value: Any, text: str) -> None:
        """Sets the text that represents a tensor."""
        self._names[id(value)] = text
        self._held.append(value)

    def number(self, value: Any, text: str) -> Any:
        """A traced number, computed by a line."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        traced: Any = (TracedInt if isinstance(value, int) else TracedFloat)(value)
        traced.recorder, traced.name = self, self._new("n")
        self.lines.append(f"{traced.name} = {text}")
        return traced

    def _new(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def text(self, value: Any) -> str:
        """The expression for an argument."""
        if isinstance(value, Tensor):
            return self._names.get(id(value)) or self._constant(value)
        if isinstance(value, TracedNumber):
            return value.name
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        if isinstance(value, (list, _core.Size)):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(self.text(item) + ', ' for item in value)})"
        if isinstance(value, Mapping):
            pairs = (f"{key!r}: {self.text(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        if names.is_constant(value):
            return ast.unparse(names.constant(value))
        raise RuntimeError(
            f"[jit.trace] a traced function passes a {type(value).__name__} to an operator\n"
            "hint: traces hold tensors, numbers, strings, dtypes, devices and lists of these"
        )

    def _constant(self, value: Any) -> str:
        if value.requires_grad:
            raise RuntimeError(
                "Cannot insert a Tensor that requires grad as a constant. Consider making it a "
                f"parameter or input, or detaching the gradient\nTensor:\n{value}"
            )
        self.bind(value, self._constants(value))
        return self._names[id(value)]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func, args)
        if name in ("size", "numel", "nelement"):
            return self._size(name, func(*args, **kwargs), args, kwargs)
        if name in _READS:
            self._warn(f"Converting a tensor to a Python {_READS[name]}", args)
            return func(*args, **kwargs)
        if name in _PLAIN_RESULT:
            return func(*args, **kwargs)
        if name == "__len__":
            self._warn("Using len to get tensor shape", args)
            return func(*args, **kwargs)
        if name == "__iter__":
            self._warn("Iterating over a tensor", args)
            return iter(self.__torch_function__(Tensor.unbind, types, args))
        return self._call(func, args, kwargs)

    def _warn(self, what: str, args: tuple[Any, ...]) -> None:
        if args and id(args[0]) not in self._names:
            return
        level, frame = 1, sys._getframe(0)
        while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
            level, frame = level + 1, frame.f_back
        warnings.warn(
            f"{what} might cause the trace to be incorrect. We can't record the data flow of "
            "Python values, so this value will be treated as a constant in the future. This means "
            "that the trace might not generalize to other inputs!",
            TracerWarning,
            stacklevel=level,
        )

    def _attribute(self, func: Any, args: tuple[Any, ...]) -> Any:
        attribute = func.__self__.__name__
        value = func(*args)
        if attribute == "shape":
            return self._size("size", value, args, {})
        if not isinstance(value, Tensor) or attribute in ("data", "grad"):
            if isinstance(value, Tensor) and attribute == "data":
                return self._call(Tensor.detach, args, {})
            return value
        self._assign(value, f"{self.text(args[0])}.{attribute}")
        return value

    def _size(self, name: str, value: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        owner = self.text(args[0])
        if name in ("numel", "nelement"):
            return self.number(value, f"{owner}.numel()")
        if isinstance(value, tuple):
            return traced_size(
                self.number(size, f"{owner}.size({i})") for i, size in enumerate(value)
            )
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        return self.number(value, f"{owner}.size({self.text(dim)})")

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        text = self._call_text(func, args, kwargs)
        result = func(*args, **kwargs)
        if func is Tensor.__setitem__:
            self.lines.append(text)
        elif result is not None:
            self._assign(result, text)
        return result

    def _call_text(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        if func is Tensor.__setitem__:
            return f"{self.text(args[0])}[{self.text(args[1])}] = {self.text(args[2])}"
        if func is Tensor.__getitem__:
            return f"{self.text(args[0])}[{self.text(args[1])}]"
        name = names.public_name(func)
        if name is None:
            raise RuntimeError(f"[jit.trace] {func} has no public name to record")
        texts = [self.text(arg) for arg in args]
        texts += [f"{key}={self.text(value)}" for key, value in kwargs.items()]
        if name.startswith("torch.Tensor.") and args and isinstance(args[0], Tensor):
            return f"{texts[0]}.{name.rpartition('.')[2]}({', '.join(texts[1:])})"
        return f"{name}({', '.join(texts)})"

    def _assign(self, result: Any, text: str) -> None:
        """Adds a line that computes a result; an operator in place returns a known tensor."""
        if isinstance(result, Tensor) and id(result) in self._names:
            self.lines.append(text)
            return
        if not _holds_tensor(result):
            self.lines.append(text)
            return
        name = self._new("x")
        self.lines.append(f"{name} = {text}")
        self._bind_parts(result, name)

    def _bind_parts(self, result: Any, text: str) -> None:
        if isinstance(result, Tensor):
            self.bind(result, text)
        elif isinstance(result, (tuple, list)):
            for index, item in enumerate(result):
                self._bind_parts(item, f"{text}[{index}]")

    def call_scripted(self, text: str, call: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        """Records a call of scripted code as one line, so that its control flow stays."""
        texts = [self.text(arg) for arg in args]
        texts += [f"{key}={self.text(value)}" for key, value in kwargs.items()]
        modes = _core.set_function_modes_enabled(False)
        try:
            with markers.tracing(None):
                result = call()
        finally:
            _core.set_function_modes_enabled(modes)
        name = self._new("x")  # scripted code may return an argument itself
        self.lines.append(f"{name} = {text}({', '.join(texts)})")
        self._bind_parts(result, name)
        return result

    def name_of(self, value: Any) -> str | None:
        """The text that represents a tensor or module, or None."""
        return self._names.get(id(value))

    def returned(self, result: Any, strict: bool) -> str:
        """The expression of what a function returns."""
        if isinstance(result, (Tensor, TracedNumber)):
            return self.text(result)
        if isinstance(result, Mapping) or isinstance(result, list):
            self._require_not_strict(result, strict)
        if isinstance(result, Mapping):
            entries = [(key, item) for key, item in result.items() if item is not None]
            pairs = [f"{key!r}: {self.returned(item, strict)}" for key, item in entries]
            return "{" + ", ".join(pairs) + "}"
        if isinstance(result, (tuple, list)):
            parts = [self.returned(item, strict) for item in result]
            return f"[{', '.join(parts)}]" if isinstance(result, list) else _tuple_text(parts)
        raise RuntimeError(
            "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from "
            "traced functions"
        )

    def _require_not_strict(self, result: Any, strict: bool) -> None:
        kind = "list" if isinstance(result, list) else "dict"
        if strict:
            raise RuntimeError(
                f"Encountering a {kind} at the output of the tracer might cause the trace to be "
                "incorrect, this is only valid if the container structure does not change based on "
                "the module's inputs. Consider using a constant container instead (e.g. for `list`,"
                " use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely"
                " need this and know the side effects, pass strict=False to trace() to allow this "
                "behavior."
            )


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_holds_tensor, value))
    return isinstance(value, Tensor)


def _tuple_text(parts: list[str]) -> str:
    return f"({''.join(part + ', ' for part in parts)})"


def live_lines(lines: Iterable[str], result: str) -> list[str]:
    """The lines that a result or an effect needs."""
    needed = _loaded(ast.parse(result, mode="eval"))
    live = []
    for line in reversed(list(lines)):
        statement = ast.parse(line).body[0]
        if isinstance(statement, ast.Assign) and isinstance(
            statement.targets[0], (ast.Name, ast.Tuple)
        ):
            targets = {n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name)}
            if not targets & needed and not _has_effect(statement.value):
                continue
        needed |= _loaded(statement)
        live.append(line)
    return live[::-1]


def _loaded(node: ast.AST) -> set[str]:
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    }


def _has_effect(value: ast.expr) -> bool:
    """Whether a call writes an operand or draws random numbers."""
    if not isinstance(value, ast.Call):
        return False
    called = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    drawn = called.startswith(("rand", "bernoulli", "multinomial", "normal", "dropout", "poisson"))
    return (
        drawn
        or (called.endswith("_") and not called.endswith("__"))
        or any(keyword.arg == "out" for keyword in value.keywords)
    )
