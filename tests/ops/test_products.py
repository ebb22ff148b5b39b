"""Matrix products against NumPy in float64, the promise about their bits, and what is fused."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.compiler import targets

np = pytest.importorskip("numpy")

DTYPES = {
    "float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 2e-2, "complex64": 1e-5,
    "complex128": 1e-13, "uint8": 0, "int8": 0, "int16": 0, "int32": 0, "int64": 0,
}  # fmt: skip
SHAPES = [
    (1, 1, 1, 1), (2, 3, 4, 5), (1, 1, 70, 300), (1, 15, 33, 257), (3, 14, 32, 16),
    (1, 150, 300, 520), (2, 29, 65, 0), (1, 0, 3, 4), (1, 64, 1, 64), (1, 300, 7, 33),
]  # fmt: skip


def random(dtype, shape, seed=0):
    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    if not (kind.is_floating_point or kind.is_complex):
        return torch.randint(0 if dtype == "uint8" else -5, 6, shape).to(kind)
    return torch.randn(*shape, dtype=kind if kind.is_complex else torch.float64).to(kind)


def bits(x):
    """A tensor's elements, comparable with ==, NaN and zeros of both signs included."""
    x = x.detach().contiguous()
    return (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).numpy().tobytes()


def layouts(x):
    """The same values with other strides."""
    yield x
    yield x.transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = torch.zeros(*x.shape[:-2], 2 * x.shape[-2], 3 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2, ::3] = x
    yield wide[..., ::2, ::3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values(dtype, shape):
    batch, m, n, k = shape
    a, b = random(dtype, (batch, m, k)), random(dtype, (batch, k, n), 1)
    got = torch.bmm(a, b)
    wide = torch.complex128 if a.dtype.is_complex else torch.float64
    expected = a.to(wide).numpy() @ b.to(wide).numpy()
    if DTYPES[dtype]:
        tolerance = DTYPES[dtype]
        scale = tolerance * (k + 1) ** 0.5
        np.testing.assert_allclose(got.to(wide).numpy(), expected, rtol=tolerance, atol=scale)
    else:
        np.testing.assert_array_equal(got.numpy(), expected.astype(np.int64).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int32"])
@pytest.mark.parametrize(
    "shape",
    [
        (33, 600, 70), (2, 300, 90), (90, 300, 3), (150, 530, 290), (30, 4500, 40),
        (8, 64, 50), (9, 130, 64), (20, 130, 40), (70, 8, 50), (64, 2, 16),
    ],
)  # fmt: skip
def test_strides_do_not_change_bits(dtype, shape):
    m, k, n = shape
    a, b = random(dtype, (2, m, k)), random(dtype, (2, k, n), 1)
    expected = bits(a @ b)
    for left in layouts(a):
        for right in layouts(b):
            assert bits(left @ right) == expected
    out = torch.empty(2, n, m, dtype=a.dtype).transpose(1, 2)
    assert bits(torch.bmm(a, b, out=out)) == expected


@pytest.mark.parametrize("depth", [700, 4500])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_one_row_equals_the_row_in_a_batch(dtype, depth):
    a, b = random(dtype, (300, depth)), random(dtype, (depth, 290), 1)
    whole = a @ b
    pair = torch.cat([b, b], 1)
    for right in (b, b.t().contiguous().t(), pair.t().contiguous().t()[:, :290], pair[:, 290:]):
        for rows in (1, 2, 3, 4, 5, 13, 15, 141):
            assert bits(a[:rows] @ right) == bits(whole[:rows])
        for columns in (1, 3, 23, 31, 33, 257):
            assert bits(a @ right[:, :columns]) == bits(whole[:, :columns])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_do_not_change_bits(dtype):
    before = torch.get_num_threads()
    a, b, c = random(dtype, (400, 1300)), random(dtype, (1300, 400), 1), random(dtype, (400,), 2)
    try:
        found = set()
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.add(bits(torch.addmm(c, a, b)))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def in_order(parts):
    """The sum of float32 numbers, one after the other."""
    total = parts[0]
    for part in parts[1:]:
        total = np.float32(total + part)
    return total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_order_of_the_sum(dtype):
    """Chunks of 128, each a chain of fused multiply-adds, added by segments of 2048; of bfloat16
    the odd element of a pair comes first."""
    k = 5003
    a, b = random(dtype, (1, k)), random(dtype, (k, 1), 1)
    x, y = a.float().numpy()[0], b.float().numpy()[:, 0]
    parts = [np.float32(0)] * -(-k // 128)
    order = list(range(k))
    if dtype == "bfloat16":
        order = [i ^ 1 if i ^ 1 < k else i for i in order]
    for i in order:  # a product of two float32 values is exact in float64
        total = np.longdouble(x[i]) * np.longdouble(y[i]) + np.longdouble(parts[i // 128])
        parts[i // 128] = np.float32(total)
    segments = [in_order(parts[i : i + 16]) for i in range(0, len(parts), 16)]
    expected = in_order(segments)
    got = (a @ b)[0, 0]
    assert got.item() == torch.tensor(float(expected)).to(got.dtype).item()


# ------------------------------------------------------------------------------------ epilogues


def launches(function, *arguments):
    """Launches of the compiled function, without the packing of operands."""
    text = dict((name, text) for name, _, text in torch.compiler.stages(function, *arguments))
    lines = [line for line in text["lower"].splitlines() if line.startswith("launch")]
    return [line for line in lines if "matmul_pack" not in line]


def attention_like(q, mask):
    heads = q.transpose(1, 2)
    return (heads @ heads.transpose(-1, -2)) * 0.5 + mask


FUSED = {
    "bias": lambda x, w, r: F.linear(x, w, r[0]),
    "relu": lambda x, w, r: F.relu(F.linear(x, w, r[0])),
    "gelu residual": lambda x, w, r: F.gelu(F.linear(x, w, r[0])) + r,
    "two results": lambda x, w, r: (F.linear(x, w) * 0.5, F.linear(x, w) + r),
    "turned": lambda x, w, r: torch.tanh((x @ w.t()).t()),
    "column": lambda x, w, r: torch.sigmoid(F.linear(x, w[:1])),
    "another dtype": lambda x, w, r: (x @ w.t()).to(torch.float64),
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("rows", [1, 37, 300])
def test_pointwise_users_are_fused(name, rows):
    x, w, r = random("float32", (rows, 50)), random("float32", (70, 50), 1), None
    r = random("float32", (rows, 70), 2)
    function = FUSED[name]
    eager, compiled = function(x, w, r), torch.compile(function)(x, w, r)
    if not isinstance(eager, tuple):
        eager, compiled = (eager,), (compiled,)
    assert [bits(e) for e in eager] == [bits(c) for c in compiled]
    assert len(launches(function, x, w, r)) == 1


def test_heads_need_no_copies():
    q, mask = random("float32", (2, 9, 4, 8)), random("float32", (2, 4, 9, 9), 1)
    assert bits(attention_like(q, mask)) == bits(torch.compile(attention_like)(q, mask))
    assert len(launches(attention_like, q, mask)) == 1


def test_two_layers_are_two_launches():
    def layers(x, w, v, r):
        return F.linear(F.silu(F.linear(x, w, r[0])), v)

    x, w, v = random("float32", (30, 50)), random("float32", (70, 50)), random("float32", (20, 70))
    r = random("float32", (30, 70))
    assert bits(layers(x, w, v, r)) == bits(torch.compile(layers)(x, w, v, r))
    assert len(launches(layers, x, w, v, r)) == 2


def test_in_place():
    a, b, c = random("float32", (40, 30)), random("float32", (30, 40)), random("float32", (40, 40))
    expected = bits(torch.addmm(c, a, b))
    assert bits(c.clone().addmm_(a, b)) == expected
    square = bits(torch.addmm(c, c, c))
    itself = c.clone()
    assert bits(itself.addmm_(itself, itself)) == square
    product = bits(c @ c)
    itself = c.clone()
    assert bits(torch.mm(itself, itself, out=itself)) == product


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_with_products_of_halves_round_once(dtype):
    """The product lies between two halves; with the summand it is one."""
    large = {"bfloat16": 256.0, "float16": 2048.0}[dtype]
    kind = getattr(torch, dtype)
    one = torch.ones(1, dtype=kind)
    left, right = torch.tensor([[large, 1.0]], dtype=kind), torch.ones(2, 1, dtype=kind)
    assert torch.addmm(one, left, right).item() == large + 2
    assert torch.addmm(one, left, right, beta=3, alpha=-1).item() == 2 - large
    assert torch.addmv(one, left, right[:, 0]).item() == large + 2
    assert torch.baddbmm(one, left[None], right[None]).item() == large + 2
    assert torch.addbmm(one, left.T[:, None], right[:, None]).item() == large + 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_layers_read_their_operands_as_they_are(dtype):
    """No float32 copies of operands, forward or backward; one rounding after the bias."""
    x, w = random(dtype, (37, 50)).requires_grad_(), random(dtype, (70, 50), 1).requires_grad_()
    bias = random(dtype, (70,), 2).requires_grad_()
    exact = x.float() @ w.float().t() + bias.float()
    result = F.linear(x, w, bias)
    assert (result.float() - exact).abs().max() <= exact.abs().max() * 2.0**-8
    compiled = torch.compile(F.linear)(x, w, bias)
    assert bits(result) == bits(compiled)
    assert len(launches(F.linear, x.detach(), w.detach(), bias.detach())) == 1
    given = random(dtype, (37, 70), 3)
    pairs = [torch.autograd.grad(y, [x, w, bias], given) for y in (result, compiled)]
    assert [bits(g) for g in pairs[0]] == [bits(g) for g in pairs[1]]
    wanted = (given.float() @ w.float()).to(x.dtype)
    assert (pairs[0][0].float() - wanted.float()).abs().max() <= wanted.float().abs().max() * 0.01


BYTES = [
    (3, 4, 5), (1, 300, 33), (300, 500, 200), (2, 0, 3), (4, 2100, 130), (33, 1300, 70),
    (70, 257, 2), (1, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("shape", BYTES)
def test_bytes_are_summed_exactly(kind, shape):
    m, k, n = shape
    low, high = (-128, 128) if kind == "int8" else (0, 256)
    a = torch.randint(low, high, (m, k)).to(getattr(torch, kind))
    b = torch.randint(-128, 128, (k, n)).to(torch.int8)
    a[:1], b[:, :1] = high - 1, -128  # the largest products
    expected = a.numpy().astype(np.int32) @ b.numpy().astype(np.int32)
    for left in layouts(a):
        for right in layouts(b):
            got = torch._int_mm(left, right)
            assert got.dtype == torch.int32
            np.testing.assert_array_equal(got.numpy(), expected)
    out = torch.empty(n, m, dtype=torch.int32).t()
    np.testing.assert_array_equal(torch._int_mm(a, b, out=out).numpy(), expected)
    if kind == "int8":  # only the lowest byte counts
        for right in layouts(b):
            np.testing.assert_array_equal(torch.mm(a, right).numpy(), expected.astype(np.int8))


PROGRAM = """
import hashlib
import flambeau as torch
torch.manual_seed(0)
for name in ("float32", "bfloat16", "float16", "int8"):
    dtype, found = getattr(torch, name), []
    for m, k, n in ((33, 2300, 70), (3, 300, 90)):
        if name == "int8":
            a, b = (torch.randint(-128, 128, s).to(dtype) for s in ((m, k), (n, k)))
            found += [torch._int_mm(a, b.t()), torch._int_mm(a, b.t().contiguous())]
        else:
            a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
            found += [(a @ b.t()).float(), (a @ b.t().contiguous()).float()]
    print(name, hashlib.sha256(b"".join(x.numpy().tobytes() for x in found)).hexdigest())
"""


@pytest.mark.skipif(targets.detect() != "avx512", reason="needs a machine that runs both")
def test_instruction_sets_do_not_change_bits():
    """Neither do VDPBF16PS and VPDPBUSD: AVX2 has neither of them."""

    def printed(target):
        compiled = {"FLAMBEAU_COMPILER": "wait", "FLAMBEAU_TIER": "compiled"}
        environment = {**os.environ, **compiled, "FLAMBEAU_TARGET": target}
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert printed("avx2") == printed("avx512")
