"""Operators of TorchScript's interpreter under `torch.ops.aten`: Python's own, on Python's values.

Operators on values of other kinds (remote references, futures) raise NotImplementedError.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch

__all__ = ["TABLE"]

Value = Any


def _method(name: str) -> Callable[..., Value]:
    """The method of this name of the first argument."""

    def call(self: Value, *args: Value) -> Value:
        return getattr(self, name)(*args)

    return call


def _within(name: str) -> Callable[..., Value]:
    """A search in a part of a text, where an end of -1 is the last place."""

    def call(self: str, part: Value, start: int = 0, end: int = -1) -> Value:
        if not isinstance(self, str):
            return getattr(self, name)(part)
        return getattr(self, name)(part, start, len(self) if end == -1 else end)

    return call


def _listing(name: str) -> Callable[[Value], list[Value]]:
    def call(self: Value) -> list[Value]:
        return list(getattr(self, name)())

    return call


def _values(self: Value) -> Value:
    """The values of a dictionary, or of a sparse tensor."""
    return self.values() if isinstance(self, torch.Tensor) else list(self.values())


def _set_item(container: Value, index: Value, value: Value) -> Value:
    container[index] = value
    return container if isinstance(container, list) else None


def _set_data(self: Value, new_data: Value) -> None:
    self.data = new_data


def _ncf_unsqueeze(self: Value, ndim: int) -> Value:
    """A vector as dimension 1 of `ndim` ones: channels of (N, C, ...)."""
    return self.reshape(tuple([-1 if d == 1 else 1 for d in range(ndim)]))


def _ncf_view(self: Value, input_shape: list[int], normalized_ndim: int) -> Value:
    """Statistics in the leading sizes of what was normalized, and ones."""
    lead = len(input_shape) - normalized_ndim
    return self.reshape((*input_shape[:lead], *(1,) * normalized_ndim))


def _capability() -> str:
    return str(torch.backends.cpu.get_cpu_capability())


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, stacklevel=stacklevel)


def _append(self: list[Value], element: Value) -> list[Value]:
    self.append(element)
    return self


def _unwrap(optional: Value) -> Value:
    if optional is None:
        raise RuntimeError("[aten._unwrap_optional] the value is None\nhint: test it before")
    return optional


def _generator(device: Value = "cpu", seed: int | None = None) -> Value:
    generator = torch.Generator(device or "cpu")
    return generator if seed is None else generator.manual_seed(seed)


def _replace(self: str, old: str, new: str, most: int = -1) -> str:
    return self.replace(old, new, most)


def _rsplit(self: str, separator: str = " ", most: int = -1) -> list[str]:
    return self.rsplit(separator, most)


_METHODS = """capitalize center expandtabs isalnum isalpha isdecimal isdigit isidentifier islower
    isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition rjust rpartition
    rstrip splitlines strip swapcase title upper zfill clear extend get insert pop popitem remove
    reverse setdefault update format""".split()

TABLE: dict[str, Callable[..., Value]] = {
    "Bool": bool, "Complex": complex, "ComplexImplicit": complex, "Float": float,
    "FloatImplicit": float, "Int": int, "IntImplicit": int, "ScalarImplicit": lambda a: a.item(),
    "Generator": _generator, "Size": torch.Size, "Delete": operator.delitem,
    "__contains__": operator.contains, "__derive_index": lambda i, start, step: start + i * step,
    "__getitem__": operator.getitem, "__is__": operator.is_, "__isnot__": operator.is_not,
    "__not__": operator.not_, "__range_length": lambda lo, hi, step: len(range(lo, hi, step)),
    "__round_to_zero_floordiv": lambda a, b: int(a / b), "_set_item": _set_item,
    "_unwrap_optional": _unwrap, "_get_cpu_capability": _capability,
    "_get_tracing_state": lambda: None, "_ncf_unsqueeze": _ncf_unsqueeze, "_ncf_view": _ncf_view,
    "append": _append, "bin": bin,
    "chr": chr, "degrees": math.degrees, "device": torch.device, "dict": dict, "divmod": divmod,
    "fabs": math.fabs, "factorial": math.factorial, "floordiv": operator.floordiv,
    "gamma": math.gamma, "has_torch_function": lambda *a: torch.overrides.has_torch_function(a),
    "hash": hash, "hex": hex, "is_scripting": lambda: False, "items": _listing("items"),
    "keys": _listing("keys"), "len": len, "list": list, "mathremainder": math.remainder,
    "modf": math.modf, "oct": oct, "ord": ord, "percentFormat": lambda self, *a: self % a,
    "radians": math.radians, "replace": _replace, "rsplit": _rsplit, "set_data": _set_data,
    "sorted": sorted, "str": str, "values": _values, "warn": _warn,
}  # fmt: skip
TABLE |= {name: _method(name) for name in _METHODS}
TABLE |= {name: _within(name) for name in "count endswith find rfind rindex startswith".split()}
