"""Signatures of primitives in `torch.ops.prims`, computed from their records.

A primitive takes its operands, then its constants by name; kinds of constants are those of the
record's samples. Where PyTorch has the primitive, the form is PyTorch's: its name and its
arguments (`sum(inp, dims)` instead of an axis).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau import prims
from flambeau.ir.dtypes import NAMES
from flambeau.ir.environment import next_sequence
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import promotion
from flambeau.language.definition import Dense
from flambeau.language.dtypes import name_of, object_of
from flambeau.prims.random import INTEGERS
from flambeau.prims.record import PRIMITIVES, Primitive, bind

Value = Any  # an argument or a result of an operator

__all__ = ["FORMS", "FURTHER", "Form"]

Call = tuple[tuple[Value, ...], dict[str, Value]]

# Constants that records have beside those of their samples.
_OPTIONAL = {
    "matmul": {"dtype": "dtype?"},
    "check_index": {"message": "str?", "error": "str?"},
}
_KINDS = {bool: "bool", int: "int", float: "float", str: "str"}
_DEFAULTS = {"bool": "False", "int": "0", "float": "0.0"}
# Leaves and marks of graphs, which are no calls; `full` is a number that is broadcast.
_NO_CALLS = frozenset({"with_derivative", "full", "size", "iota", "random"})


class Form(NamedTuple):
    """A primitive as an operator.

    Attributes:
        name: in `torch.ops.prims`.
        text: its schema, in the grammar of `language/schema.py`.
        build: (arguments in the schema's order) -> node.
        call: (node, operands) -> arguments of the call that computes the node.
        view: whether its result may share the operand's memory.
        pointwise: whether its elements depend on those at the same position alone.
    """

    name: str
    text: str
    build: Callable[..., Value]
    call: Callable[[Node, Sequence[Value]], Call]
    view: bool = False
    pointwise: bool = False


class _Facts(NamedTuple):
    """Operands and constants of a primitive, as its samples show them.

    Attributes:
        counts: how many operands there may be.
        constants: name -> (kind, whether a node always has it).
    """

    counts: tuple[int, ...]
    constants: dict[str, tuple[str, bool]]


@functools.cache
def _facts(name: str) -> _Facts:
    record = PRIMITIVES[name]
    samples = list(record.samples()) if record.samples is not None else []
    kinds: dict[str, str] = {}
    for _, constants in samples:
        for key, value in constants.items():
            kinds[key] = _kind(key, value)
    constants = {
        key: (kind, all(key in present for _, present in samples)) for key, kind in kinds.items()
    }
    constants |= {key: (kind, False) for key, kind in _OPTIONAL.get(name, {}).items()}
    return _Facts(tuple(sorted({len(operands) for operands, _ in samples})), constants)


def _kind(name: str, value: Value) -> str:
    if name == "dtype":
        return "dtype"
    return "int[]" if isinstance(value, tuple) else _KINDS[type(value)]


# Names of operands that PyTorch's primitives have.
_OPERANDS = {"where": ("pred", "a", "b")}


def _operands(name: str, count: int) -> str:
    plain = {1: ("self",), 2: ("self", "other")}.get(count, [f"x{k}" for k in range(count)])
    return ", ".join(f"Tensor {operand}" for operand in _OPERANDS.get(name, plain))


def _constant_text(name: str, kind: str, required: bool) -> str:
    if required:
        return f"{kind} {name}"
    return f"{kind.rstrip('?')}? {name}=None"


def _packed(name: str, constants: dict[str, Value]) -> dict[str, Value]:
    """Constants of a call as a node has them: dtypes by name, absent ones left out."""
    kinds = _facts(name).constants
    present = {key: value for key, value in constants.items() if value is not None}
    return {
        key: name_of(value)
        if kinds[key][0].startswith("dtype") and not isinstance(value, str)
        else tuple(value)
        if isinstance(value, list)
        else value
        for key, value in present.items()
    }


def _unpacked(node: Node) -> dict[str, Value]:
    """Constants of a node as a call has them."""
    return {
        key: object_of(value) if key == "dtype" and value in NAMES else _listed(value)
        for key, value in node.attributes
    }


def _listed(value: Value) -> Value:
    return list(value) if isinstance(value, tuple) else value


def _plain(record: Primitive) -> Form:
    """The form of a primitive that PyTorch has under this name, or has not at all."""
    name, facts = record.name, _facts(record.name)
    variable = len(facts.counts) > 1
    count = 1 if variable else facts.counts[0]
    names = list(facts.constants)
    parts = ["Tensor[] operands" if variable else _operands(name, count)]
    parts += ["*"] if names else []
    parts += [_constant_text(key, *facts.constants[key]) for key in names]

    def build(*values: Value) -> Node:
        operands = values[0] if variable else values[:count]
        constants = dict(zip(names, values[count:], strict=True))
        return bind(name, *operands, **_packed(name, constants))

    def call(node: Node, operands: Sequence[Value]) -> Call:
        return ((list(operands),) if variable else tuple(operands)), _unpacked(node)

    text = f"{name}({', '.join(part for part in parts if part)}) -> Tensor"
    return Form(name, text, build, call, record.view is not None, record.kind == "pointwise")


# ------------------------------------------------------------------------- PyTorch's signatures
_REDUCED = "(Tensor inp, int[]? dims, *, dtype? output_dtype=None) -> Tensor"


def _reduction(name: str, primitive: str) -> Form:
    def build(x: Node, dims: Value, output_dtype: Value) -> Node:
        axes = range(x.ndim) if dims is None else dims
        result = prims.reduce_dims(primitive, x, tuple(axes), False)
        return result if output_dtype is None else prims.cast(result, _dtype_name(output_dtype))

    def call(node: Node, operands: Sequence[Value]) -> Call:
        return (operands[0], [node.attribute("axis")]), {}

    return Form(name, name + _REDUCED, build, call)


def _dtype_name(dtype: Value) -> str:
    return dtype if isinstance(dtype, str) else name_of(dtype)


def _renamed(name: str, primitive: str) -> Form:
    form = _plain(PRIMITIVES[primitive])
    return form._replace(name=name, text=form.text.replace(primitive, name, 1))


def _constants_in_order(
    name: str, text: str, build: Callable[..., Value], names: str, view: bool = False
) -> Form:
    """A form whose arguments are the operand and some constants, by position."""

    def call(node: Node, operands: Sequence[Value]) -> Call:
        values = [_listed(node.attribute(each)) for each in names.split()]
        return (operands[0], *values), {}

    return Form(name, text, build, call, view)


def _convert() -> Form:
    def call(node: Node, operands: Sequence[Value]) -> Call:
        return (operands[0], object_of(node.dtype)), {}

    return Form(
        "convert_element_type",
        "convert_element_type(Tensor a, dtype dtype) -> Tensor",
        lambda a, dtype: prims.cast(a, _dtype_name(dtype)),
        call,
        pointwise=True,
    )


def _joined() -> Form:
    return Form(
        "cat",
        "cat(Tensor[] tensors, int dim) -> Tensor",
        lambda tensors, dim: prims.cat(tensors, dim),
        lambda node, operands: ((list(operands), node.attribute("dimension")), {}),
    )


# ------------------------------------------------------------------------- without a record's form
def _iota(
    length: Value, start: Value, step: Value, dtype: Value, device: Value, requires_grad: bool
) -> Node:
    _no_leaf("iota", requires_grad)
    count = prims.iota((length,), 0, "i64")
    steps = count if step == 1 else count * step
    return prims.cast(steps if start == 0 else steps + start, _dtype_name(dtype))


def _scalar(s: Value, dtype: Value, device: Value) -> Node:
    default = promotion.number_dtype(type(s))
    default = promotion.default_dtype() if default == "f64" else default
    return prims.full(s, (), default if dtype is None else _dtype_name(dtype))


def _random(
    parameters: Value, numbers: Value, distribution: str, shape: Value, dtype: Value, draws: Value,
    generator: Value,
) -> Node:  # fmt: skip
    further = {} if draws is None else {"draws": tuple(draws)}
    integers = distribution in INTEGERS
    constants = [
        prims.full(int(x) if integers else x, (), "i64" if integers else "f64") for x in numbers
    ]
    return bind(
        "random", *parameters, *constants, distribution=distribution, shape=tuple(shape),
        dtype=_dtype_name(dtype), generator=int(generator), sequence=next_sequence(), **further,
    )  # fmt: skip


def _in_order(a: Node, stride: Value) -> Dense:
    return Dense(a, sorted(range(a.ndim), key=lambda d: -stride[d]))


def _empty(shape: Value, strides: Value, dtype: Value, device: Value, requires_grad: bool) -> Dense:
    _no_leaf("empty_strided", requires_grad)
    return _in_order(prims.full(0, tuple(shape), _dtype_name(dtype)), strides)


def _no_leaf(name: str, requires_grad: bool) -> None:
    if requires_grad:
        problem = "a primitive makes no leaves of the autograd graph"
        raise failure(NotImplementedError, name, problem, "call requires_grad_() on the result")


def _no_call(node: Node, operands: Sequence[Value]) -> Call:
    raise NotImplementedError(
        f"[prims] {node.op} is no call by itself\nhint: decompositions write it where it is read"
    )


def _further() -> list[Form]:
    """Forms that no record has: leaves of graphs, and what an operator does with its results."""
    texts = {
        "iota(SymInt length, *, SymInt start, SymInt step, dtype dtype, device? device=None, "
        "bool requires_grad=False) -> Tensor": _iota,
        "scalar_tensor(Scalar s, *, dtype? dtype=None, device? device=None) -> Tensor": _scalar,
        "random(Tensor[] parameters, object numbers, *, str distribution, SymInt[] shape, "
        "dtype dtype, int[]? draws=None, generator? generator=None) -> Tensor": _random,
        "empty_strided(SymInt[] shape, int[] strides, *, dtype dtype, device? device=None, "
        "bool requires_grad=False) -> Tensor": _empty,
        "copy_to(Tensor! a, Tensor b) -> Tensor": lambda a, b: prims.cast(b, a.dtype),
        "copy_strided(Tensor a, int[] stride) -> Tensor": _in_order,
    }
    return [Form(text.partition("(")[0], text, build, _no_call) for text, build in texts.items()]


def _flat_elements(a: Node, size: Value, stride: Value, offset: int) -> Node:
    return prims.as_strided(a, tuple(size), tuple(stride), offset)


def _forms() -> dict[str, Form]:
    """Forms by primitive."""
    special = {
        "cast": _convert(),
        "broadcast": _constants_in_order(
            "broadcast_in_dim",
            "broadcast_in_dim(Tensor a, SymInt[] shape, int[] broadcast_dimensions) -> Tensor",
            lambda a, shape, dims: prims.broadcast(a, tuple(shape), tuple(dims)),
            "shape dimensions",
            view=True,
        ),
        "reshape": _constants_in_order(
            "reshape",
            "reshape(Tensor a, SymInt[] shape) -> Tensor",
            lambda a, shape: prims.reshape(a, tuple(shape)),
            "shape",
            view=True,
        ),
        "permute": _constants_in_order(
            "transpose",
            "transpose(Tensor a, int[] permutation) -> Tensor",
            lambda a, order: prims.permute(a, tuple(order)),
            "order",
            view=True,
        ),
        "flip": _constants_in_order(
            "rev",
            "rev(Tensor a, int[] dims) -> Tensor",
            lambda a, dims: prims.flip(a, tuple(dims)),
            "dimensions",
        ),
        "as_strided": _constants_in_order(
            "elements_at_strides",
            "elements_at_strides(Tensor a, SymInt[] size, SymInt[] stride, SymInt storage_offset) "
            "-> Tensor",
            _flat_elements,
            "shape strides offset",
        ),
        "cat": _joined(),
        "max": _reduction("amax", "max"),
        "min": _reduction("amin", "min"),
        "sum": _reduction("sum", "sum"),
        "prod": _reduction("prod", "prod"),
        "xor": _reduction("xor_sum", "xor"),
        "erfinv": _renamed("erf_inv", "erfinv"),
        "svd": _renamed("svd_part", "svd"),
        "shift_right": _renamed("shift_right_arithmetic", "shift_right"),
    }
    plain = {
        name: _plain(record)
        for name, record in PRIMITIVES.items()
        if name not in special and name not in _NO_CALLS
    }
    return plain | special


FORMS: dict[str, Form] = _forms()
FURTHER: dict[str, Form] = {form.name: form for form in _further()}
