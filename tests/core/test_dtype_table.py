"""The table of element types, and the numbers of the small ones against their bit fields."""

import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import _core
from flambeau.ir import dtypes
from tools import dtype_header

UNSIGNED = ("uint16", "uint32", "uint64")
# exponent bits, mantissa bits, bias, and which codes are infinite or no numbers
FORMATS = {
    "float8_e4m3fn": (4, 3, 7, (), (0x7F, 0xFF)),
    "float8_e5m2": (5, 2, 15, (0x7C, 0xFC), (0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF)),
    "float8_e4m3fnuz": (4, 3, 8, (), (0x80,)),
    "float8_e5m2fnuz": (5, 2, 16, (), (0x80,)),
}


def test_native_table_is_printed_from_this_one():
    assert dtype_header.HEADER.read_text() == dtype_header.text(), "python -m tools.dtype_header"
    for number, row in enumerate(dtypes.ROWS):
        dtype = getattr(_core, row.public)
        assert (dtype.number, dtype.name, dtype.itemsize) == (number, row.public, row.size)
        assert dtype.is_signed == row.signed and dtype.abbr == row.abbreviation
        assert dtype.is_floating_point == (row.kind == "float")
        assert dtype.is_complex == (row.kind == "complex")


def number_of(code, exponent, mantissa, bias, infinities, invalid):
    """The number of a code, from its fields."""
    if code in invalid:
        return math.nan
    sign = -1.0 if code >> 7 else 1.0
    if code in infinities:
        return sign * math.inf
    field, rest = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
    if field == 0:
        return sign * rest * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + rest / 2**mantissa) * 2.0 ** (field - bias)


def codes(name):
    return torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))


def same(found, expected):
    assert np.array_equal(np.asarray(found), np.asarray(expected), equal_nan=True)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_of_float8(name):
    expected = [number_of(code, *FORMATS[name]) for code in range(256)]
    x = codes(name)
    same(x.tolist(), expected)  # natively, one at a time
    same(x.float().numpy(), expected)  # by a kernel
    back = x.float().to(x.dtype)
    keeps = np.array([not math.isnan(v) for v in expected])
    assert (back.view(torch.uint8).numpy() == np.arange(256))[keeps].all()
    assert back.float().isnan().numpy().tolist() == (~keeps).tolist()
    assert (torch.tensor(x.tolist(), dtype=x.dtype).view(torch.uint8).numpy() == np.arange(256))[
        keeps
    ].all()
    assert [math.isnan(v) for v in expected] == x.isnan().tolist()
    assert [dtypes.minifloat_value(c, row_name(name)) for c in range(256)] == pytest.approx(
        expected, nan_ok=True, rel=0, abs=0
    )


def row_name(name):
    return next(row.name for row in dtypes.ROWS if row.public == name)


@pytest.mark.parametrize("name", FORMATS)
def test_float8_rounds_to_the_nearest_ties_to_even(name):
    numbers = np.array([number_of(code, *FORMATS[name]) for code in range(128)])
    numbers = numbers[np.isfinite(numbers)]
    middle = (numbers[1:] + numbers[:-1]) / 2
    even = np.where(np.arange(len(middle)) % 2 == 0, numbers[:-1], numbers[1:])
    lower = np.nextafter(middle.astype(np.float32), np.float32(0))
    upper = np.nextafter(middle.astype(np.float32), np.float32(np.inf))
    values = np.concatenate([middle, lower, upper, -middle]).astype(np.float32)
    expected = np.concatenate([even, numbers[:-1], numbers[1:], -even])
    same(torch.from_numpy(values).to(getattr(torch, name)).float().numpy(), expected)
    for value, wanted in zip(values[::7].tolist(), expected[::7].tolist()):
        assert torch.tensor(value, dtype=getattr(torch, name)).item() == wanted
        code = dtypes.minifloat_code(value, row_name(name))
        assert dtypes.minifloat_value(code, row_name(name)) == wanted


def test_what_is_too_large_for_float8():
    large = torch.tensor([1e9, -1e9, math.inf])
    assert large.to(torch.float8_e4m3fn).tolist() == [448.0, -448.0, 448.0]
    assert large.to(torch.float8_e5m2).tolist() == [math.inf, -math.inf, math.inf]
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz"):
        assert large.to(getattr(torch, name)).isnan().all()


def test_every_code_of_float8_e8m0fnu():
    expected = [2.0 ** (code - 127) for code in range(255)] + [math.nan]
    x = codes("float8_e8m0fnu")
    same(x.tolist(), expected)
    same(x.float().numpy(), expected)
    assert x.float().to(x.dtype).view(torch.uint8).tolist() == list(range(256))
    rounded = torch.tensor([3.0, 2.9, -4.0, 0.0, math.inf]).to(x.dtype).view(torch.uint8)
    assert rounded.tolist() == [129, 128, 129, 0, 255]


def test_unsigned_integers():
    for name in UNSIGNED:
        dtype = getattr(torch, name)
        top = torch.iinfo(dtype).max
        assert top == 2 ** torch.iinfo(dtype).bits - 1 and torch.iinfo(dtype).min == 0
        x = torch.tensor([1, top, 0], dtype=dtype)
        assert x.tolist() == [1, top, 0] and x.numpy().dtype == np.dtype(name)
        assert (x * x).tolist() == [1, 1, 0]
        assert (x ^ x).tolist() == [0, 0, 0] and (x == x).all()
        assert x.sort(descending=True).values.tolist() == [top, 1, 0]
        assert x.unique().tolist() == [0, 1, top]
        assert x[[2, 1]].tolist() == [0, top]
        assert torch.from_numpy(x.numpy()).dtype == dtype
        assert torch.from_dlpack(x).tolist() == x.tolist()
        with pytest.raises(NotImplementedError, match="not defined for"):
            x + x
        with pytest.raises(RuntimeError, match="Promotion for uint16, uint32, uint64"):
            x * torch.tensor([1, 2, 3])
        assert (x + 0.5).dtype == torch.float32


def test_float_to_unsigned():
    x = torch.tensor([-1.0, 70000.0, 3e9, 1.8e19])
    assert x.to(torch.uint16).tolist()[:2] == [65535, 4464]
    assert x.to(torch.uint32).tolist()[:3] == [2**32 - 1, 70000, 3000000000]
    assert x.to(torch.uint64).tolist() == [2**64 - 1, 70000, 3000000000, int(x[3].item())]
    assert torch.tensor([2**64 - 1], dtype=torch.uint64).double().item() == 2.0**64


def test_promotion():
    def promoted(a, b):
        return str(torch.promote_types(getattr(torch, a), getattr(torch, b)))[6:]

    assert promoted("uint16", "bfloat16") == "bfloat16"
    assert promoted("complex32", "float16") == "complex32"
    assert promoted("complex32", "bfloat16") == "complex64"
    assert promoted("complex32", "float64") == "complex128"
    for a, b in (("uint16", "int8"), ("uint16", "uint32"), ("float8_e5m2", "float32")):
        with pytest.raises(RuntimeError, match="Promotion for"):
            promoted(a, b)
        assert not torch.can_cast(torch.float32, torch.int8)
    assert torch.result_type(torch.ones(1, dtype=torch.float8_e5m2), 2.5) == torch.float8_e5m2


def test_complex32():
    x = torch.tensor([1 + 2j, 3 - 1j]).chalf()
    assert x.dtype == torch.complex32 and x.real.dtype == torch.float16
    assert (x + x).tolist() == [2 + 4j, 6 - 2j] and (x * x).tolist() == [-3 + 4j, 8 - 6j]
    assert torch.view_as_complex(torch.view_as_real(x)).tolist() == x.tolist()
    assert x.abs().dtype == torch.float16 and x.imag.tolist() == [2.0, -1.0]
    assert (torch.ones(1, dtype=torch.float16) + 1j).dtype == torch.complex32
    assert repr(x) == "tensor([1.+2.j, 3.-1.j], dtype=torch.complex32)"


def test_moves_keep_every_bit():
    for name in (*FORMATS, "float4_e2m1fn_x2"):
        x = codes(name)
        bits = torch.cat([x.clone(), x.flip(0), x[::2], x.reshape(2, 128).t().reshape(-1)])
        y = torch.arange(256, dtype=torch.uint8)
        expected = torch.cat([y, y.flip(0), y[::2], y.reshape(2, 128).t().reshape(-1)])
        assert (bits.view(torch.uint8) == expected).all()
    with pytest.raises(NotImplementedError):
        codes("float8_e4m3fn") + codes("float8_e4m3fn")


def test_views_as_other_types():
    x = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    for dtype in (torch.uint8, torch.int16, torch.int64, torch.float64, torch.complex64):
        found = x.view(dtype)
        assert found.data_ptr() == x.data_ptr() and found.shape == (4, 24 // dtype.itemsize)
        assert (found.view(torch.int32) == x).all()
        # Read by a kernel that sees the words before: the arithmetic of the view.
        fused = torch.func.vmap(lambda row, dtype=dtype: row.view(dtype))(x)
        assert (fused.view(torch.int32) == x).all()
    with pytest.raises(RuntimeError, match=r"stride\(-1\) must be 1"):
        x.t().view(torch.int64)
    with pytest.raises(RuntimeError, match=r"size\(-1\) must be divisible by 2"):
        x[:, :5].view(torch.int64)
    with pytest.raises(RuntimeError, match=r"storage_offset\(\) must be divisible by 2"):
        x[:, 1:5].view(torch.int64)


def test_limits():
    assert repr(torch.finfo(torch.float8_e4m3fn)) == (
        "finfo(resolution=1, min=-448, max=448, eps=0.125, smallest_normal=0.015625, "
        "tiny=0.015625, dtype=float8_e4m3fn)"
    )
    assert torch.finfo(torch.float8_e8m0fnu).min == 2.0**-127
    assert torch.finfo(torch.complex32).dtype == "float16"
