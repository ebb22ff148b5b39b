"""`assert_close`: compares tensors, numbers and nested structures, and says where they differ."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau as torch
from flambeau.core.devices import has_data

__all__ = ["assert_close"]

# Default (rtol, atol) by dtype; integers and booleans must be equal.
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip
_NUMBERS = (bool, int, float, complex)
Message = str | Callable[[str], str] | None


@dataclass(frozen=True)
class _Options:
    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool
    msg: Message

    def tolerances(self, *dtypes: str) -> tuple[float, float]:
        """Given ones, or the largest defaults of the dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        defaults = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(r for r, _ in defaults), max(a for _, a in defaults)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _fail(options: _Options, text: str, path: tuple[Any, ...]) -> AssertionError:
    if path:
        text += f"\n\nThe failure occurred for item {''.join(f'[{p!r}]' for p in path)}"
    if options.msg is not None:
        text = options.msg(text) if callable(options.msg) else options.msg
    return AssertionError(text)


def _attributes(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    checks = [("shape", True), ("layout", options.check_layout), ("dtype", options.check_dtype)]
    checks.insert(1, ("device", options.check_device))
    for name, checked in checks:
        a, b = getattr(actual, name), getattr(expected, name)
        if checked and a != b:
            text = f"The values for attribute '{name}' do not match: {a} != {b}."
            raise _fail(options, text, path)
    if options.check_stride and actual.stride() != expected.stride():
        text = (
            "The values for attribute 'stride()' do not match: "
            f"{actual.stride()} != {expected.stride()}."
        )
        raise _fail(options, text, path)


def _common(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Both in one dtype that holds their differences."""
    if actual.dtype != expected.dtype:
        wide = torch.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(wide), expected.to(wide)
    return actual.detach(), expected.detach()


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    place = []
    for size in reversed(shape):
        place.append(flat % size)
        flat //= size
    return tuple(reversed(place))


def _differences(actual: Any, expected: Any) -> tuple[Any, Any]:
    """|actual - expected| and that over |expected|."""
    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        actual, expected = actual.to(torch.int64), expected.to(torch.int64)
    absolute = (actual - expected).abs()
    return absolute, absolute / expected.abs()


def _largest(kind: str, values: Any, bad: Any, shape: Any, limit: float, exact: bool) -> str:
    shown = torch.where(bad, values, torch.zeros_like(values)).reshape(-1)
    place = int(shown.argmax())
    value = shown[place].item()
    allowed = "" if exact else f" (up to {limit} allowed)"
    where = f" at index {_index(place, shape)}" if len(shape) else ""
    return f"Greatest {kind} difference: {value}{where}{allowed}"


def _sparse_tensors(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    """Sparse tensors: the same indices, close values; of other layouts (unchecked): as dense."""
    if actual.layout is not expected.layout:
        _tensors(actual.to_dense(), expected.to_dense(), options, path)
        return
    if actual.layout is torch.sparse_coo:
        actual, expected = actual.coalesce(), expected.coalesce()
    if actual._nnz() != expected._nnz():
        text = (
            f"The number of specified values in sparse {str(actual.layout)[13:].upper()} tensors "
            f"does not match: {actual._nnz()} != {expected._nnz()}"
        )
        raise _fail(options, text, path)
    names = {
        torch.sparse_coo: ("indices",),
        torch.sparse_csr: ("crow_indices", "col_indices"),
        torch.sparse_csc: ("ccol_indices", "row_indices"),
    }[actual.layout]
    for name in names:
        one, other = getattr(actual, name)(), getattr(expected, name)()
        if not bool((one == other).all()):
            raise _fail(options, f"Sparse tensors keep other places: {name} differ.", path)
    _tensors(actual.values(), expected.values(), options, path)


def _nested_tensors(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    """Nested tensors: close samples."""
    if not (actual.is_nested and expected.is_nested):
        raise _fail(options, "Only one of the tensors is nested.", path)
    if options.check_layout and actual.layout is not expected.layout:
        text = f"The values for attribute 'layout' do not match: {actual.layout} != "
        raise _fail(options, text + str(expected.layout), path)
    one, other = actual.unbind(), expected.unbind()
    if len(one) != len(other):
        text = f"The number of samples does not match: {len(one)} != {len(other)}"
        raise _fail(options, text, path)
    for place, (a, b) in enumerate(zip(one, other, strict=True)):
        _tensors(a, b, options, (*path, place))


def _tensors(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    if actual.is_nested or expected.is_nested:
        _nested_tensors(actual, expected, options, path)
        return
    _attributes(actual, expected, options, path)
    if not has_data(actual) or not has_data(expected):
        return
    if actual.layout is not torch.strided or expected.layout is not torch.strided:
        _sparse_tensors(actual, expected, options, path)
        return
    rtol, atol = options.tolerances(_name(actual.dtype), _name(expected.dtype))
    a, b = _common(actual, expected)
    close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if bool(close.all()):
        return
    exact = rtol == 0 and atol == 0
    adjective = "equal" if exact else "close"
    absolute, relative = _differences(a, b)
    if a.dim() == 0:
        allowed = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
        text = (
            f"Scalars are not {adjective}!\n\nExpected {b.item()} but got {a.item()}.\n"
            f"Absolute difference: {absolute.item()}{allowed[0]}\n"
            f"Relative difference: {relative.item()}{allowed[1]}"
        )
        raise _fail(options, text, path)
    bad = ~close
    count, total = int(bad.sum()), a.numel()
    text = (
        f"Tensor-likes are not {adjective}!\n\nMismatched elements: {count} / {total} "
        f"({count / total:.1%})\n"
        + _largest("absolute", absolute, bad, tuple(a.shape), atol, exact)
        + "\n"
        + _largest("relative", relative, bad, tuple(a.shape), rtol, exact)
    )
    raise _fail(options, text, path)


def _numbers(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    if isinstance(actual, bool) and isinstance(expected, bool):
        if actual is not expected:
            raise _fail(options, f"Booleans mismatch: {actual} is not {expected}", path)
        return
    if options.check_dtype and type(actual) is not type(expected):
        text = f"The (d)types do not match: {type(actual)} != {type(expected)}."
        raise _fail(options, text, path)
    dtypes = {int: "int64", float: "float64", complex: "complex128", bool: "bool"}
    kinds = [dtypes[next(k for k in dtypes if isinstance(v, k))] for v in (actual, expected)]
    rtol, atol = options.tolerances(*kinds)
    difference = abs(actual - expected)
    equal = actual == expected
    nan = options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)
    limit = atol + rtol * abs(expected)
    if equal or nan or (cmath.isfinite(difference) and difference <= limit):
        return
    exact = rtol == 0 and atol == 0
    relative = difference / abs(expected) if expected else float("inf")
    allowed = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    text = (
        f"Scalars are not {'equal' if exact else 'close'}!\n\n"
        f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{allowed[0]}\n"
        f"Relative difference: {relative}{allowed[1]}"
    )
    raise _fail(options, text, path)


def _as_tensor(value: Any) -> Any:
    """NumPy arrays as tensors."""
    if type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        return torch.as_tensor(value)
    return value


def _mappings(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    missing = [key for key in expected if key not in actual]
    extra = [key for key in actual if key not in expected]
    if missing or extra:
        text = "The keys of the mappings do not match:"
        if missing:
            text += f"\nMissing keys in the actual mapping: {sorted(missing, key=str)}"
        if extra:
            text += f"\nAdditional keys in the actual mapping: {sorted(extra, key=str)}"
        raise _fail(options, text, path)
    for key in expected:
        _compare(actual[key], expected[key], options, (*path, key))


def _compare(actual: Any, expected: Any, options: _Options, path: tuple[Any, ...]) -> None:
    actual, expected = _as_tensor(actual), _as_tensor(expected)
    both = (actual, expected)
    if all(isinstance(v, Mapping) for v in both):
        _mappings(actual, expected, options, path)
    elif all(isinstance(v, torch.Tensor) for v in both):
        if not options.allow_subclasses and type(actual) is not type(expected):
            _unsupported(actual, expected)
        _tensors(actual, expected, options, path)
    elif all(isinstance(v, _NUMBERS) for v in both):
        _numbers(actual, expected, options, path)
    elif actual is None or expected is None:
        if actual is not expected:
            raise _fail(options, f"None mismatch: {actual} is not {expected}", path)
    elif all(isinstance(v, Sequence) and not isinstance(v, (str, bytes)) for v in both):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise _fail(options, text, path)
        for position, (a, b) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, b, options, (*path, position))
    else:
        _unsupported(actual, expected)


def _unsupported(actual: Any, expected: Any) -> None:
    raise TypeError(
        "[assert_close] No comparison pair was able to handle inputs of type "
        f"{type(actual)} and {type(expected)}.\nhint: tensors, numbers, and structures of them"
    )


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raises unless |actual - expected| <= atol + rtol |expected| everywhere.

    Tensors, NumPy arrays, numbers, None, and sequences and mappings of them.

    Args:
        allow_subclasses: types may differ if both are tensors.
        rtol, atol: both or none; by dtype when None (0 for integers).
        equal_nan: NaN equals NaN.
        check_device, check_dtype, check_layout, check_stride: attributes that must be equal.
        msg: replaces the message, or a function of it.

    Raises:
        AssertionError: they are not close.
        ValueError: only one of rtol and atol.
        TypeError: values that cannot be compared.

    Example:
        >>> assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            "[assert_close] Both 'rtol' and 'atol' must be either specified or omitted, but got no "
            f"{'rtol' if rtol is None else 'atol'}.\nhint: give both"
        )
    options = _Options(
        allow_subclasses,
        rtol,
        atol,
        equal_nan,
        check_device,
        check_dtype,
        check_layout,
        check_stride,
        msg,
    )
    _compare(actual, expected, options, ())
