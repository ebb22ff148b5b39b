"""Builds the arguments of a sample, the same for every library.

`arguments(sample, builder, dtype)` walks a `Sample` and lets the builder make each `TensorSpec`.
The numbers depend on the spec, its position in the call and the dtype's kind, never on the library,
so flambeau, NumPy and the oracle see equal values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy

import flambeau
from flambeau.ir import dtypes
from flambeau.language.samples import Sample, TensorSpec
from flambeau.ops.shape.convert import DTypeSpec

PUBLIC = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "c32": "complex32", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
IR_NAMES = {public: name for name, public in dtypes.PUBLIC.items()}
FLOATS = ("f16", "bf16", "f32", "f64")
INEXACT = (*FLOATS, "c64", "c128")

Builder = Callable[[TensorSpec, int, str], Any]


def _seed(spec: TensorSpec, position: int) -> int:
    return zlib.crc32(repr((spec.shape, spec.low, spec.high, position)).encode())


def values(spec: TensorSpec, position: int, dtype: str) -> numpy.ndarray:
    """The numbers of a spec as an array of its logical shape; half types come as float32."""
    dtype = spec.dtype or dtype
    public = "float32" if dtype in ("f16", "bf16") else PUBLIC[dtype]
    if spec.values is not None:
        given = numpy.array(spec.values).reshape(spec.shape)
        if dtype not in INEXACT and given.dtype.kind == "f":
            given = numpy.nan_to_num(given, posinf=9, neginf=-9)
        return given.astype(public)
    shape = list(spec.shape)
    if spec.layout == "expanded" and shape:
        shape[0] = 1
    generator = numpy.random.default_rng(_seed(spec, position))
    drawn = generator.uniform(spec.low, spec.high, shape)
    if dtype == "bool":
        drawn = drawn > (spec.low + spec.high) / 2
    elif dtype[0] in "iu":
        low = 0 if dtype == "u8" and spec.low < 0 else spec.low
        drawn = numpy.clip(numpy.floor(drawn), numpy.ceil(low), None)
    elif dtype[0] == "c":
        drawn = drawn + 1j * generator.uniform(spec.low, spec.high, shape)
    made = numpy.asarray(drawn).astype(public)
    return numpy.broadcast_to(made, spec.shape) if shape != list(spec.shape) else made


def _laid_out(library: Any, data: Any, spec: TensorSpec) -> Any:
    """The same values in the layout that the spec asks for."""
    if spec.layout == "transposed" and len(spec.shape) > 1:
        return data.transpose(-1, -2).contiguous().transpose(-1, -2)
    if spec.layout == "sliced" and spec.shape:
        return library.stack([data, data], -1).flatten(-2)[..., ::2]
    if spec.layout == "expanded" and spec.shape:
        return data[:1].contiguous().expand(*spec.shape)
    return data


def tensor_builder(library: Any, grad: bool = False) -> Builder:
    """A builder of tensors of `library` (flambeau or the oracle).

    Args:
        library: the module.
        grad: let operands of floating dtype require gradients, except where the spec says no.
    """

    def build(spec: TensorSpec, position: int, dtype: str) -> Any:
        dtype = spec.dtype or dtype
        array = numpy.ascontiguousarray(values(spec, position, dtype)).reshape(spec.shape)
        made = library.from_numpy(array.copy())
        if dtype in ("f16", "bf16"):
            made = made.to(getattr(library, PUBLIC[dtype]))
        made = _laid_out(library, made, spec)
        return made.requires_grad_() if grad and spec.grad and dtype in INEXACT else made

    return build


def array_builder(spec: TensorSpec, position: int, dtype: str) -> Any:
    """NumPy's arrays; half types are rounded, then float32."""
    array = values(spec, position, dtype)
    return array.astype("float16").astype("float32") if (spec.dtype or dtype) == "f16" else array


def _built(value: Any, build: Builder, dtype: str, counter: Iterator[int]) -> Any:
    if isinstance(value, TensorSpec):
        return build(value, next(counter), dtype)
    if isinstance(value, DTypeSpec):
        return getattr(flambeau, value.name)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_built(item, build, dtype, counter) for item in value)
    return value


def arguments(sample: Sample, build: Builder, dtype: str) -> tuple[list[Any], dict[str, Any]]:
    """(args, kwargs) of a sample with every `TensorSpec` built."""
    counter = iter(range(1 << 20))
    args = [_built(value, build, dtype, counter) for value in sample.args]
    kwargs = {name: _built(v, build, dtype, counter) for name, v in sample.kwargs.items()}
    return args, kwargs


def translated(value: Any, ours: Any, other: Any) -> Any:
    """A non-tensor argument in another library's terms: dtypes, devices, memory formats."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(translated(item, ours, other) for item in value)
    if isinstance(value, ours.dtype) or isinstance(value, (ours.memory_format, ours.layout)):
        return getattr(other, str(value).rpartition(".")[2])
    if isinstance(value, ours.device):
        return other.device(str(value))
    return value


def specs(sample: Sample) -> list[TensorSpec]:
    """All tensor specs of a sample, in order."""
    found: list[TensorSpec] = []

    def walk(value: Any) -> None:
        if isinstance(value, TensorSpec):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)

    walk(list(sample.args))
    walk(list(sample.kwargs.values()))
    return found


def leaves(result: Any) -> list[Any]:
    """The tensors (or other leaves) of a result, in order."""
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in leaves(item)]
    return [] if result is None else [result]


def array(tensor: Any) -> numpy.ndarray:
    """A tensor of either library, or a number, as an array; half types become single ones."""
    if not hasattr(tensor, "detach"):
        return numpy.asarray(tensor)
    tensor = tensor.detach()
    if str(tensor.dtype).endswith(("bfloat16", ".float16")):
        tensor = tensor.float()
    if str(tensor.dtype).endswith("complex32"):
        tensor = tensor.cfloat()
    if hasattr(tensor, "resolve_conj"):
        tensor = tensor.resolve_conj()
        tensor = tensor.resolve_neg() if hasattr(tensor, "resolve_neg") else tensor
    return tensor.numpy()


def same_bits(left: Any, right: Any) -> bool:
    """Whether two results are equal bit for bit, NaNs included (of any payload)."""
    a, b = leaves(left), leaves(right)
    if len(a) != len(b):
        return False
    return all(_equal(x, y) for x, y in zip(a, b))


def _equal(x: Any, y: Any) -> bool:
    if getattr(x, "dtype", None) != getattr(y, "dtype", None):
        return False
    first, second = array(x), array(y)
    if first.shape != second.shape or not numpy.array_equal(
        first, second, equal_nan=_inexact(first)
    ):
        return False
    # Equal numbers may still be zeros of different signs.
    return not _inexact(first) or numpy.array_equal(
        numpy.signbit(first.real)[first.real == 0], numpy.signbit(second.real)[second.real == 0]
    )


def _inexact(values: numpy.ndarray) -> bool:
    return values.dtype.kind in "fc"
