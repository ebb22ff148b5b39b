"""Sizes of inputs that may vary: `Dim`, and the forms in which programs say which do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau as torch
from flambeau._dynamo.exc import UserError
from flambeau.utils import _pytree as pytree

__all__ = ["AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims", "int_oo",
           "refine_dynamic_shapes_from_suggested_fixes"]  # fmt: skip

Value = Any  # an input, or what is said of one


class _Infinity(float):
    """The upper end of a range without one."""

    def __repr__(self) -> str:
        return "int_oo" if self > 0 else "-int_oo"

    def __neg__(self) -> _Infinity:
        return _Infinity(-float(self))


int_oo = _Infinity("inf")
_LINEAR = "(Only increasing linear operations with integer coefficients are supported.)"


@dataclass(frozen=True)
class _DimHint:
    """A statement about a size without a name: `Dim.AUTO`, `Dim.DYNAMIC`, `Dim.STATIC`.

    Attributes:
        kind: AUTO: varies if the program allows it; DYNAMIC: varies, or export fails; STATIC.
        min, max: the range.
    """

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:  # noqa: A002
        """The same with a range."""
        if min is not None and (min < 0 or (max is not None and max < min)):
            raise AssertionError(f"Expected 0 <= min <= max, got min={min}, max={max}")
        return _DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        limits = [f"{k}={v}" for k, v in (("min", self.min), ("max", self.max)) if v is not None]
        return f"DimHint({', '.join([self.kind, *limits])})"


class Dim:
    """A size that varies in a range. Sizes of one `Dim` are equal.

    Linear functions such as `2 * d + 1` are sizes that depend on another one.

    Args:
        name: an identifier, for messages.
        min, max: the range.

    Raises:
        AssertionError: no identifier, or an empty range.

    Example:
        >>> batch = torch.export.Dim("batch", max=64)
        >>> batch, 2 * batch + 1
        (Dim('batch', min=0, max=64), 2*batch + 1)
    """

    AUTO = _DimHint("AUTO")
    DYNAMIC = _DimHint("DYNAMIC")
    STATIC = _DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:  # noqa: A002
        least, most = 0 if min is None else min, int_oo if max is None else max
        if most < least:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min: int = least
        self.max: int | float = most
        self.root, self.factor, self.offset = self, 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        derived = object.__new__(_DerivedDim)
        derived.root, derived.factor, derived.offset = self.root, factor, offset
        derived.__name__ = _linear(self.root.__name__, factor, offset)
        return derived

    def __add__(self, other: int) -> Dim:
        if type(other) is not int:
            raise NotImplementedError(
                f"Attempted to add {other} to {self.__name__}, where an integer was expected. "
                + _LINEAR
            )
        return self._derived(self.factor, self.offset + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        if type(other) is not int:
            raise NotImplementedError(
                f"Attempted to subtract {other} from {self.__name__}, where an integer was "
                f"expected. {_LINEAR}"
            )
        return self._derived(self.factor, self.offset - other)

    def __rsub__(self, other: int) -> Dim:
        raise NotImplementedError(f"Attempted to negate {self.__name__}. {_LINEAR}")

    def __mul__(self, other: int) -> Dim:
        if type(other) is not int or other <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer "
                f"was expected. {_LINEAR}"
            )
        return self._derived(self.factor * other, self.offset * other)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return readable(self.__name__, self.min, self.max)


class _DerivedDim(Dim):
    """A linear function of a `Dim`.

    Attributes:
        root: the `Dim`.
        factor, offset: of the function.
    """

    @property
    def min(self) -> int:  # type: ignore[override]
        """The least value."""
        least = self.factor * self.root.min + self.offset
        if least < 0:
            raise AssertionError(
                f"Expected derived min value of {self.__name__} to be >= 0. Please specify an "
                f"appropriate min value for {self.root.__name__} (currently {self.root.min})."
            )
        return least

    @property
    def max(self) -> int | float:  # type: ignore[override]
        """The greatest value."""
        most = self.root.max
        return int_oo if most == int_oo else self.factor * most + self.offset

    def __repr__(self) -> str:
        return self.__name__


def _linear(name: str, factor: int, offset: int) -> str:
    text = name if factor == 1 else f"{factor}*{name}"
    return text if not offset else f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"


def readable(name: str, least: int | float, most: int | float) -> str:
    """The call that makes a `Dim`.

    Args:
        name: its name.
        least, most: its range.
    """
    limits = [f"min={least}"] * (least != 2) + [f"max={most}"] * (most != int_oo)
    return f"Dim({', '.join([repr(name), *limits])})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:  # noqa: A002
    """Several `Dim` of one range.

    Example:
        >>> torch.export.dims("batch", "length", min=2)
        (Dim('batch'), Dim('length'))
    """
    return tuple([Dim(name, min=min, max=max) for name in names])


class Constraint:
    """In PyTorch: a relation between sizes, which programs do not make themselves."""


class ShapesCollection(dict[int, Value]):
    """Sizes of inputs by tensor: for inputs in deep containers.

    Example:
        >>> x = torch.ones(4, 3)
        >>> shapes = torch.export.ShapesCollection()
        >>> shapes[x] = {0: torch.export.Dim("batch")}
        >>> program = torch.export.export(nn.Linear(3, 2), (x,), dynamic_shapes=shapes)
        >>> program.module()(torch.ones(7, 3)).shape
        torch.Size([7, 2])
    """

    def __setitem__(self, t: Value, shape: Value) -> None:
        if not isinstance(t, torch.Tensor | int | float):
            raise AssertionError(f"Cannot assign shape to non-tensor type {type(t)}")
        if id(t) in self and super().__getitem__(id(t)) != shape:
            raise AssertionError(f"Shapes assigned to input do not match: {shape}")
        super().__setitem__(id(t), shape)

    def __getitem__(self, t: Value) -> Value:
        if id(t) not in self:
            super().__setitem__(id(t), {})
        return super().__getitem__(id(t))

    def dynamic_shapes(self, m: Value, args: Value, kwargs: Value = None) -> Value:
        """Sizes in the structure of the arguments.

        Args:
            m: the module.
            args, kwargs: its arguments.
        """
        inputs = combined(m, args, kwargs)
        missing = set(self) - {id(x) for x in pytree.tree_leaves(inputs)}
        if missing:
            raise ValueError(
                f"{len(missing)} of the shapes are of tensors that are not among the inputs"
            )
        return pytree.tree_map(lambda x: self.get(id(x)), inputs)


class AdditionalInputs:
    """Further examples of inputs: the sizes vary that differ among them.

    Example:
        >>> inputs = torch.export.AdditionalInputs()
        >>> inputs.add((torch.ones(7, 3),))
        >>> inputs.dynamic_shapes(nn.Linear(3, 2), (torch.ones(4, 3),))
        {'input': (DimHint(DYNAMIC), None)}
    """

    def __init__(self) -> None:
        self._examples: list[tuple[Value, Value]] = []

    def add(self, args: tuple[Value, ...], kwargs: dict[str, Value] | None = None) -> None:
        """Adds an example.

        Args:
            args, kwargs: arguments of the module.
        """
        if not isinstance(args, tuple):
            raise AssertionError(f"Representation of args must be a tuple, got {type(args)}")
        self._examples.append((args, kwargs))

    def dynamic_shapes(self, m: Value, args: Value, kwargs: Value = None) -> Value:
        """Sizes in the structure of the arguments.

        Args:
            m: the module.
            args, kwargs: its arguments.
        """
        inputs = combined(m, args, kwargs)
        leaves, spec = pytree.tree_flatten(inputs)
        rows = [leaves]
        for more_args, more_kwargs in self._examples:
            others, other = pytree.tree_flatten(combined(m, more_args, more_kwargs))
            if other != spec:
                raise ValueError("the arguments of an additional example have another structure")
            rows.append(others)
        return pytree.tree_unflatten([_varying(column) for column in zip(*rows, strict=True)], spec)

    def verify(self, ep: Value) -> None:
        """Runs a program on the examples: raises where one does not fit.

        Args:
            ep: the exported program.
        """
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **(kwargs or {}))


def _varying(column: Sequence[Value]) -> Value:
    first = column[0]
    if isinstance(first, torch.Tensor):
        if len({x.ndim for x in column}) > 1:
            raise ValueError("the tensors of an input differ in their number of dimensions")
        shapes = zip(*[x.shape for x in column], strict=True)
        return tuple([Dim.DYNAMIC if len(set(sizes)) > 1 else None for sizes in shapes])
    if type(first) is int and len(set(column)) > 1:
        return Dim.DYNAMIC
    if any(x != first for x in column):
        raise ValueError(f"the values {column} of an input differ, and cannot vary")
    return None


# ------------------------------------------------------------------------------ structure


def combined(module: Value, args: Sequence[Value], kwargs: Mapping[str, Value] | None) -> Value:
    """Arguments by the names of the parameters.

    Args:
        module: the module, or a function.
        args, kwargs: arguments.
    """
    forward = module.forward if isinstance(module, torch.nn.Module) else module
    bound: dict[str, Value] = inspect.signature(forward).bind(*args, **(kwargs or {})).arguments
    return bound


Leaf = tuple[str, Value, Value]  # source, value, what is said of it


def leaves_of(inputs: Mapping[str, Value], shapes: Value) -> Iterator[Leaf]:
    """The leaves of arguments, with their sources and what is said of their sizes.

    Args:
        inputs: of `combined`.
        shapes: None, or said of each argument by name or in order.

    Raises:
        UserError: another structure than the arguments have.
    """
    names = list(inputs)
    if isinstance(shapes, Mapping) and not isinstance(shapes, ShapesCollection):
        if set(shapes) != set(names):
            raise UserError(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg "
                f"names {names} of `inputs`, but here they are {list(shapes)}. Alternatively, you "
                "could also ignore arg names entirely and specify `dynamic_shapes` as a list/tuple "
                "matching `inputs`."
            )
        shapes = [shapes[name] for name in names]
    elif shapes is not None:
        shapes = list(shapes)
        _check_length(len(names), len(shapes), "`inputs`", "`dynamic_shapes`")
    for number, (name, value) in enumerate(inputs.items()):
        said = None if shapes is None else shapes[number]
        yield from _walk(value, said, f"L[{name!r}]", f"[{name!r}]")


def _check_length(inputs: int, shapes: int, one: str, other: str) -> None:
    if inputs != shapes:
        raise UserError(
            "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
            f"{one} has {inputs} elements, but {other} has {shapes} elements"
        )


def _walk(value: Value, said: Value, source: str, path: str) -> Iterator[Leaf]:
    children, spec = pytree.tree_flatten(value, is_leaf=lambda x: x is not value)
    if len(children) == 1 and children[0] is value:
        yield source, value, _of_leaf(value, said, path)
        return
    keys = [path for path, _ in pytree.tree_flatten_with_path(value, lambda x: x is not value)[0]]
    if said is None:
        said = [None] * len(children)
    elif isinstance(said, Mapping):
        _check_length(len(children), len(said), f"`inputs{path}`", f"`dynamic_shapes{path}`")
        said = list(said.values()) if not isinstance(value, Mapping) else [said[k] for k in value]
    elif not isinstance(said, list | tuple):
        raise UserError(
            f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
            f"`inputs{path}` is a {type(value)}, but `dynamic_shapes{path}` is a {type(said)}"
        )
    _check_length(len(children), len(said), f"`inputs{path}`", f"`dynamic_shapes{path}`")
    for child, key, each in zip(children, keys, said, strict=True):
        text = pytree.keystr(key)
        yield from _walk(child, each, source + text, path + text)


def _of_leaf(value: Value, said: Value, path: str) -> Value:
    if not isinstance(value, torch.Tensor):
        return said
    if said is None:
        return {}
    if isinstance(said, list | tuple):
        if len(said) != value.ndim:
            raise UserError(
                f"Expected dynamic shape spec {said} specified at `dynamic_shapes{path}` to have "
                f"the same length as the actual tensor shape {value.shape} (expected {value.ndim}, "
                f"but got {len(said)} instead)"
            )
        said = dict(enumerate(said))
    if not isinstance(said, Mapping):
        raise UserError(
            f"Unexpected input tensor shape {said} specified at `dynamic_shapes{path}` (expected "
            "either a list/tuple of dimensions, or a dict mapping indices to dimensions, where "
            "each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC)"
        )
    for index, dim in said.items():
        if not (dim is None or isinstance(dim, int | Dim | _DimHint)):
            raise UserError(
                f"Unexpected dimension mapped to index {index} in input tensor shape {said} "
                f"specified at `dynamic_shapes{path}` (expected None, an int, a Dim, Dim.AUTO, "
                f"Dim.STATIC, or Dim.DYNAMIC, but got {dim} instead)"
            )
        if not -value.ndim <= index < value.ndim:
            raise IndexError(f"dimension {index} of `dynamic_shapes{path}` is out of range")
    return {index % value.ndim: dim for index, dim in said.items()}


# ------------------------------------------------------------------------------ suggested fixes
_RANGE = re.compile(r"Dim\('(\w+)'(?:, min=(\d+))?(?:, max=(\d+|oo))?\)")
_FUNCTION = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?: ([+-]) (\d+))?")


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Value) -> Value:
    """Sizes that vary, changed as a message of `export` suggests.

    Args:
        msg: of the error.
        dynamic_shapes: as `export` got them.

    Returns:
        The same structure with other `Dim` objects, or numbers.

    Example:
        >>> n = torch.export.Dim("n")
        >>> from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes
        >>> refine_dynamic_shapes_from_suggested_fixes(
        ...     "Suggested fixes:\\n  n = Dim('n', min=4)", ({0: n},)
        ... )
        ({0: Dim('n', min=4)},)
    """
    lines = msg.partition("Suggested fixes:")[2].strip().splitlines()
    pairs = [line.strip().split(" = ", 1) for line in lines if " = " in line]
    fixes = {pair[0]: pair[1] for pair in pairs}
    dims: dict[str, Value] = {}

    def named(name: str) -> Value:
        if name not in dims:
            dims[name] = _fixed(name, fixes.get(name), named)
        return dims[name]

    def refined(value: Value) -> Value:
        if not isinstance(value, Dim) or value.root.__name__ not in fixes:
            return value
        return value.factor * named(value.root.__name__) + value.offset

    def plain(value: Value) -> Value:
        result = refined(value)
        same = isinstance(result, Dim) and (result.factor, result.offset) == (1, 0)
        return result.root if same else result

    return pytree.tree_map(plain, dynamic_shapes)


def _fixed(name: str, text: str | None, named: Callable[[str], Value]) -> Value:
    """The size that a suggestion says."""
    if text is None:
        return Dim(name)
    if text.isdigit():
        return int(text)
    limits = _RANGE.fullmatch(text)
    if limits is not None:
        least, most = limits[2], limits[3]
        return Dim(
            limits[1], min=None if least is None else int(least),
            max=None if most in (None, "oo") else int(most),
        )  # fmt: skip
    function = _FUNCTION.fullmatch(text)
    if function is None:
        raise UserError(f"{text!r} is no size\nhint: pass the message of the error as it is")
    offset = int(function[4] or 0) * (-1 if function[3] == "-" else 1)
    return int(function[1] or 1) * named(function[2]) + offset
