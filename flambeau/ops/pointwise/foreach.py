"""The foreach family: an operator over lists of tensors, one call for all of them.

Each is the operator itself, called for one tensor after the other in a native loop
(`core.tensors.call_each`): nothing is computed here, and tensors of one kind share a plan.
`_foreach_add_` and its kind write into the tensors of the first list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.core.tensors import Tensor, call_each
from flambeau.ir.failure import failure
from flambeau.language.definition import REGISTRY, op
from flambeau.language.schema import DType, Mutable, Scalar
from flambeau.ops.linear import matrix  # noqa: F401 - defines the operators
from flambeau.ops.pointwise import activation, binary, elementary, pointwise, powers  # noqa: F401 - defines the operators
from flambeau.ops.reduction import extremes, linalg_norms  # noqa: F401 - defines the operators
from flambeau.ops.shape import convert  # noqa: F401 - defines the operators

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 "
    "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
# Operators of two operands, and how the second one is called.
_BINARY = {
    "add": "other", "sub": "other", "mul": "other", "div": "other", "clamp_min": "other",
    "clamp_max": "other", "minimum": "other", "maximum": "other", "pow": "exponent",
}  # fmt: skip
_LIMITS = {"minimum": "clamp_max", "maximum": "clamp_min"}  # what they are for a number
Tensors = Sequence[Any]


def _operator(name: str, inplace: bool) -> Callable[..., list[Any]]:
    """A function that applies the operator to every row of columns.

    Columns that are lists have a value for each tensor, other values are the same for all.
    """

    def call(*columns: Any, **options: Any) -> list[Any]:
        tensors = columns[0]
        names, values = tuple(options), tuple(options.values())
        written = getattr(Tensor, name + "_", None) if inplace else None
        function = REGISTRY[name].native if written is None else written
        results = call_each(function, len(tensors), (*columns, *values), names)
        if inplace and written is None:
            return call_each(Tensor.copy_, len(tensors), (tensors, results), ())
        return results

    return call


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _all_tensors(values: Sequence[Any]) -> bool:
    """Whether each is a tensor, or stands for one; lists of 10,000 have few types."""
    kinds = set(map(type, values))
    return all(issubclass(kind, Tensor) for kind in kinds) or all(map(_is_tensor, values))


def _checked(name: str, tensors: Any) -> list[Any]:
    """The first list; there must be something in it.

    Raises:
        RuntimeError: it is empty.
        TypeError: it is no list of tensors.
    """
    if not isinstance(tensors, (list, tuple)) or not _all_tensors(tensors):
        raise failure(TypeError, name, f"{name}(): argument 'self' must be tuple of Tensors", "[x]")
    if not tensors:
        problem = "Tensor list must have at least one tensor."
        raise failure(RuntimeError, name, problem, "leave the call out")
    return list(tensors)


def _spread(name: str, value: Any, count: int, what: str = "Tensor") -> list[Any]:
    """One value for each tensor: a list of them, or the same for all."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        kinds = "Tensor lists" if _all_tensors(value) else "Tensor list and scalar list"
        problem = f"{kinds} must have the same number of elements, got {count} and {len(value)}"
        raise failure(RuntimeError, name, problem, f"one {what} per tensor")
    return list(value)


def _each(method: str, *columns: Any, **options: Any) -> list[Any]:
    """A method of every tensor of the first column."""
    names, values = tuple(options), tuple(options.values())
    function = getattr(Tensor, method)
    return call_each(function, len(columns[0]), (*columns, *values), names)


def _publish(name: str, inplace: bool, signature: str, body: Any) -> None:
    mark, result = ("!", "Tensor[]") if inplace else ("", "(Tensor...)")
    full = f"_foreach_{name}" + "_" * inplace
    body.__doc__ = f"`{name}` of every tensor of a list{', in place' if inplace else ''}."
    body.__name__ = body.__qualname__ = full
    text = f"{full}(Tensor[]{mark} self{signature}) -> {result}"
    op(text, where="torch", host=True)(body)


def _define_unary(name: str, inplace: bool) -> None:
    call, full = _operator(name, inplace), f"_foreach_{name}" + "_" * inplace

    def body(self: Tensors) -> Any:
        results = call(_checked(full, self))
        return list(self) if inplace else tuple(results)

    _publish(name, inplace, "", body)


def _define_binary(name: str, operand: str, inplace: bool) -> None:
    call, full = _operator(name, inplace), f"_foreach_{name}" + "_" * inplace
    limit = _operator(_LIMITS[name], inplace) if name in _LIMITS else call

    def body(self: Any, *operands: Any, alpha: Any = 1, **named: Any) -> Any:
        value = _second(full, operand, operands, named)
        if name == "pow" and not isinstance(self, (list, tuple)) and not inplace:
            exponents = _checked(full, value)
            return tuple(call([self] * len(exponents), exponents))
        tensors = _checked(full, self)
        extra = {"alpha": alpha} if name in ("add", "sub") and alpha != 1 else {}
        others = _spread(full, value, len(tensors))
        function = call if _all_tensors(others) else limit
        results = function(tensors, others, **extra)
        return list(self) if inplace else tuple(results)

    signature = f", object {operand}, *, Scalar alpha=1"
    _publish(name, inplace, signature, body)


def _second(full: str, operand: str, operands: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The second operand under any of the names that PyTorch's signatures give it."""
    if len(operands) == 1 and not named:
        return operands[0]
    names = (operand, "scalar", "scalars", "tensor", "exponent")
    if not operands and len(named) == 1 and next(iter(named)) in names:
        return next(iter(named.values()))
    raise TypeError(f"[{full}] expected one operand beside the list\nhint: {full}(tensors, other)")


def _define_product(name: str, inplace: bool) -> None:
    call, full = _operator(name, inplace), f"_foreach_{name}" + "_" * inplace

    def body(
        self: Tensors, tensor1: Tensors, tensor2: Tensors, value: Any = 1, *, scalars: Any = None
    ) -> Any:
        tensors = _checked(full, self)
        weights = value if scalars is None else scalars
        if _is_tensor(weights):
            if weights.ndim != 1 or len(weights) != len(tensors):
                problem = "Expected packed scalar Tensor to be of dimension 1 with "
                problem += f"{len(tensors)} elements"
                raise failure(RuntimeError, full, problem, "one weight per tensor")
            weights = weights.tolist()
        parts = [_spread(full, part, len(tensors)) for part in (tensor1, tensor2, weights)]
        results = call(tensors, *parts[:2], value=parts[2])
        return list(self) if inplace else tuple(results)

    _publish(name, inplace, ", Tensor[] tensor1, Tensor[] tensor2, object value=1", body)


def _define_lerp(inplace: bool) -> None:
    call, full = _operator("lerp", inplace), "_foreach_lerp" + "_" * inplace

    def body(
        self: Tensors, tensors1: Tensors, weight: Any = None, *, weights: Any = None,
        scalars: Any = None,
    ) -> Any:  # fmt: skip
        stated = next((w for w in (weight, weights, scalars) if w is not None), None)
        tensors = _checked(full, self)
        ends, shares = (_spread(full, part, len(tensors)) for part in (tensors1, stated))
        results = call(tensors, ends, shares)
        return list(self) if inplace else tuple(results)

    _publish("lerp", inplace, ", Tensor[] tensors1, object weight", body)


for _inplace in (False, True):
    for _name in _UNARY:
        _define_unary(_name, _inplace)
    for _name, _operand in _BINARY.items():
        _define_binary(_name, _operand, _inplace)
    for _name in ("addcmul", "addcdiv"):
        _define_product(_name, _inplace)
    _define_lerp(_inplace)


@op(name="_foreach_zero_", where="torch", host=True)
def foreach_zero(self: Mutable[Sequence[Tensor]]) -> list[Tensor]:
    """Writes 0 to every element of every tensor of a list."""
    return _each("zero_", _checked("_foreach_zero_", self))


@op(name="_foreach_clone", where="torch", host=True)
def foreach_clone(self: Sequence[Tensor], *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of every tensor of a list."""
    tensors = _checked("_foreach_clone", self)
    kind = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(_each("clone", tensors, **kind))


@op(name="_foreach_copy_", where="torch", host=True)
def foreach_copy(
    self: Mutable[Sequence[Tensor]], src: Sequence[Tensor], non_blocking: bool = False
) -> list[Tensor]:
    """Copies each tensor of `src` into its partner."""
    tensors = _checked("_foreach_copy_", self)
    others = _spread("_foreach_copy_", src, len(tensors))
    return _each("copy_", tensors, others)


@op(name="_foreach_max", where="torch", host=True)
def foreach_max(self: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The greatest element of each tensor of a list."""
    return tuple(_each("max", _checked("_foreach_max", self)))


@op(name="_foreach_mm", where="torch", host=True)
def foreach_mm(self: Sequence[Tensor], mat2: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The matrix product of each pair of two lists."""
    tensors = _checked("_foreach_mm", self)
    others = _spread("_foreach_mm", mat2, len(tensors))
    return tuple(_each("mm", tensors, others))


@op(name="_foreach_norm", where="torch", host=True)
def foreach_norm(
    self: Sequence[Tensor], ord: Scalar = 2, dtype: DType | None = None
) -> tuple[Tensor, ...]:
    """The norm of each tensor of a list, of all its elements."""
    tensors = _checked("_foreach_norm", self)
    norm = REGISTRY["linalg.vector_norm"].native
    return tuple(call_each(norm, len(tensors), (tensors, ord, dtype), ("dtype",)))
