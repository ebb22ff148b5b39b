"""Runs compiled kernels through ctypes, and says in NumPy what reductions and scans mean."""

from __future__ import annotations

import ctypes

import numpy as np

from flambeau.compiler import codegen
from flambeau.ir import kernel as K
from flambeau.ir import size as S
from flambeau.ir.node import node
from flambeau.runtime import settings

R, KK, P0, P1 = (S.symbol(name) for name in ("r", "k", "p0", "p1"))
N0, N1, N2, N3, N4 = (S.symbol(f"n{i}") for i in range(5))

NUMPY = {
    "bool": np.uint8, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "f16": np.uint16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
    "c64": np.uint64, "c128": np.complex128, "error": np.int64,
}  # fmt: skip

_FUNCTION = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 3, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_void_p
)


def op(name, *inputs, dtype=None, **constants):
    """A pointwise node."""
    return node(name, inputs, tuple(sorted(constants.items())), dtype or inputs[0].dtype)


def const(value, dtype="f32"):
    return K.const(value, dtype)


def chunks_of(kernel, sizes):
    return S.evaluate(K.chunk_count(kernel, list(sizes)), {})


def run(kernel, arrays, sizes, scalars=(), target=None, splits=None):
    """Calls a compiled kernel; `splits` are the bounds between calls over ranges of chunks."""
    with settings.override(**({"TARGET": target} if target else {})):
        (handle,) = codegen.build([kernel])
    function = _FUNCTION(handle.address)
    buffers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
    numbers = (ctypes.c_longlong * max(1, len(sizes)))(*sizes)
    packed = np.zeros(max(1, len(scalars)), np.float64)
    for i, value in enumerate(scalars):
        if isinstance(value, float):
            packed[i] = value
        else:
            packed.view(np.int64)[i] = value
    scratch = np.zeros(S.evaluate(K.scratch_bytes(kernel, list(sizes)), {}) + 128, np.uint8)
    aligned = scratch.ctypes.data + -scratch.ctypes.data % 64
    count = chunks_of(kernel, sizes)
    bounds = [0, *(splits or []), count]
    for begin, end in zip(bounds, bounds[1:]):
        function(
            ctypes.addressof(buffers), ctypes.addressof(numbers), packed.ctypes.data, begin, end,
            aligned,
        )  # fmt: skip


# ------------------------------------------------------------------------------- half types


def to_bfloat16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).astype(np.uint16)


def from_bfloat16(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def decode(memory, dtype):
    if dtype == "bool":
        return memory != 0
    if dtype == "bf16":
        return from_bfloat16(memory)
    if dtype == "f16":
        return memory.view(np.float16).astype(np.float32)
    return memory


def encode(values, dtype):
    if dtype == "bool":
        return values.astype(np.uint8)
    if dtype == "bf16":
        return to_bfloat16(values)
    if dtype == "f16":
        with np.errstate(all="ignore"):
            return np.asarray(values, np.float32).astype(np.float16).view(np.uint16)
    return values


# ------------------------------------------------------------------------------- reductions

_COMBINE = {
    "sum": (np.add, 0), "prod": (np.multiply, 1), "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf), "any": (np.logical_or, False), "all": (np.logical_and, True),
    "xor": (np.bitwise_xor, 0),
}  # fmt: skip


def reduce_canonical(operation, values):
    """Reduces the last axis in the canonical order of docs/design.md § 3."""
    values = np.asarray(values)
    if operation.startswith("arg"):
        if values.shape[-1] == 0:
            return np.zeros(values.shape[:-1], np.int64)
        return getattr(np, operation)(values, axis=-1)  # NumPy: first index, NaN wins
    function, start = _COMBINE[operation]
    if values.dtype.kind in "iu" and operation in ("max", "min"):
        info = np.iinfo(values.dtype)
        start = info.min if operation == "max" else info.max
    steps = 16  # of a lane in a chunk
    while True:
        length = values.shape[-1]
        blocks = max(1, -(-length // 4096))
        padded = np.full((*values.shape[:-1], blocks * 4096), start, values.dtype)
        padded[..., :length] = values
        padded = padded.reshape(*values.shape[:-1], blocks, 128, 32)
        lanes = np.full((*padded.shape[:-2], 32), start, values.dtype)
        with np.errstate(all="ignore"):
            for chunk in range(0, 128, steps):
                part = np.full(lanes.shape, start, values.dtype)
                for step in range(chunk, chunk + steps):
                    part = function(part, padded[..., step, :])
                lanes = function(lanes, part)
            half = 16
            while half:
                lanes = function(lanes[..., :half], lanes[..., half : 2 * half])
                half //= 2
        values = lanes[..., 0]
        if blocks == 1:
            return values[..., 0]
        steps = 128  # of blocks' results


def scan(operation, values):
    """Running reduction along the last axis."""
    if operation in ("sum", "prod"):
        return (np.cumsum if operation == "sum" else np.cumprod)(values, -1, values.dtype)
    result = np.empty(values.shape, np.int64 if operation.startswith("arg") else values.dtype)
    order = np.greater_equal if operation.endswith("max") else np.less_equal
    best, at = values[..., 0].copy(), np.zeros(values.shape[:-1], np.int64)
    for k in range(values.shape[-1]):
        x = values[..., k]
        wins = order(x, best) | (x != x)
        best, at = np.where(wins, x, best), np.where(wins, k, at)
        result[..., k] = at if operation.startswith("arg") else best
    return result
