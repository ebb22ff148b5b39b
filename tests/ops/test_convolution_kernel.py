"""Convolutions and their gradients: values against float64, and the same bits in every way."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.prims.convolution import _reference
from tests.ops.inputs import same_bits

F = torch.nn.functional

# x, weight, arguments; transposed where the name says so.
CASES = {
    "1d": ((2, 5, 23), (7, 5, 3), {"padding": 1}),
    "1d wide": ((1, 3, 700), (4, 3, 300), {"padding": 7, "stride": 3}),
    "one": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "points": ((2, 37, 9, 11), (41, 37, 1, 1), {}),
    "points strided": ((2, 19, 9, 11), (33, 19, 1, 1), {"stride": 2}),
    "3x3": ((2, 67, 15, 13), (31, 67, 3, 3), {"padding": 1}),
    "squares": ((2, 33, 15, 13), (37, 33, 3, 3), {"padding": 1}),
    "squares deep": ((3, 141, 7, 8), (32, 141, 3, 3), {"padding": (0, 2)}),
    "squares wide": ((2, 32, 5, 71), (35, 32, 3, 3), {"padding": (3, 1)}),
    "3x3 strided": ((3, 17, 15, 14), (19, 17, 3, 3), {"padding": 1, "stride": 2}),
    "7x7": ((2, 3, 33, 35), (10, 3, 7, 7), {"padding": 3, "stride": 2}),
    "many places": ((3, 5, 65, 67), (6, 5, 3, 3), {"padding": 1}),
    "strides": ((2, 4, 17, 19), (6, 4, 2, 3), {"stride": (3, 4), "padding": (1, 0)}),
    "dilated": ((2, 4, 17, 19), (6, 4, 3, 3), {"dilation": (2, 3), "padding": (2, 3)}),
    "groups": ((2, 12, 11, 9), (18, 4, 3, 3), {"groups": 3, "padding": 1}),
    "kernel beyond image": ((2, 3, 2, 3), (5, 3, 5, 7), {"padding": (2, 3)}),
    "all padding": ((1, 2, 1, 1), (3, 2, 3, 3), {"padding": 2, "stride": 2}),
    "3d": ((2, 3, 6, 5, 7), (5, 3, 3, 2, 3), {"padding": (1, 0, 1), "stride": (2, 1, 1)}),
    "depthwise": ((2, 19, 13, 17), (19, 1, 3, 3), {"groups": 19, "padding": 1}),
    "depthwise large": ((2, 3, 71, 90), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    "depthwise strided": ((2, 7, 71, 45), (7, 1, 3, 3), {"groups": 7, "padding": 1, "stride": 2}),
    "depthwise narrow": ((2, 5, 7, 8), (5, 1, 3, 3), {"groups": 5, "padding": 1}),
    "depthwise even": (
        (2, 5, 20, 14), (5, 1, 3, 3), {"groups": 5, "padding": (2, 0), "stride": 2},
    ),
    "depthwise unpadded": ((2, 7, 21, 35), (7, 1, 3, 3), {"groups": 7}),
    "depthwise multiplied": ((2, 5, 13, 17), (15, 1, 3, 2), {"groups": 5, "padding": (0, 1)}),
    "depthwise 5x5": ((2, 5, 40, 17), (5, 1, 5, 5), {"groups": 5, "padding": 2, "stride": 3}),
    "depthwise 1d": ((2, 6, 130), (6, 1, 4), {"groups": 6, "padding": 3, "dilation": 2}),
    "depthwise 3d": ((1, 4, 5, 6, 7), (4, 1, 3, 3, 3), {"groups": 4, "padding": 1}),
    "depthwise many taps": ((1, 3, 400), (3, 1, 300), {"groups": 3, "padding": 5}),
    "transposed": ((2, 13, 7, 9), (13, 6, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed pairs": ((2, 8, 6, 5), (8, 5, 2, 2), {"stride": 2}),
    "transposed groups": ((1, 6, 5, 7), (6, 2, 3, 4), {"groups": 3, "stride": (3, 2)}),
    "transposed depthwise": ((2, 5, 9, 8), (5, 1, 3, 3), {"groups": 5, "stride": 2}),
    "transposed gaps": ((1, 3, 4, 5), (3, 4, 2, 2), {"stride": 5, "dilation": 3}),
    "transposed 1d": ((2, 3, 11), (3, 4, 5), {"stride": 2, "padding": 3}),
    "transposed 3d": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"stride": 2, "padding": 1}),
    "no samples": ((0, 3, 8, 9), (4, 3, 3, 3), {"padding": 1}),
}  # fmt: skip


def rand(*shape, seed=0, dtype=torch.float32):
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(numbers).to(dtype)


def function(name, arguments):
    ndim = len(CASES[name][0]) - 2
    prefix = "conv_transpose" if name.startswith("transposed") else "conv"
    called = getattr(F, f"{prefix}{ndim}d")
    return lambda x, weight, bias=None: called(x, weight, bias, **arguments)


def operands(name, dtype=torch.float32):
    shape, weight, arguments = CASES[name]
    return function(name, arguments), rand(*shape, dtype=dtype), rand(*weight, seed=1, dtype=dtype)


def everything(call, x, weight):
    """The result and both gradients."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = call(x, weight)
    start = rand(*y.shape, seed=2, dtype=y.dtype)
    return [y.detach(), *torch.autograd.grad(y, (x, weight), start)]


def spread(value, count):
    return (value,) * count if isinstance(value, int) else value


def expected(name, x, weight, y):
    """The result and both gradients in float64, position by position of the kernel."""
    arguments, count = CASES[name][2], x.ndim - 2
    geometry = {
        "stride": spread(arguments.get("stride", 1), count),
        "low": spread(arguments.get("padding", 0), count),
        "dilation": spread(arguments.get("dilation", 1), count),
        "groups": arguments.get("groups", 1),
    }
    start = rand(*y.shape, seed=2, dtype=y.dtype).double().numpy()
    x, weight = x.double().numpy(), weight.double().numpy()
    forward, back = "convolution", "convolution_input"
    if name.startswith("transposed"):
        forward, back = back, forward
        pair = (x, start)
    else:
        pair = (start, x)

    def run(which, operands, size):
        return _reference(which, list(operands), {**geometry, "size": size})

    return [
        run(forward, (x, weight), y.shape[2:]),
        run(back, (start, weight), x.shape[2:]),
        run("convolution_weight", pair, weight.shape[2:]),
    ]


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-13)):
        call, x, weight = operands(name, dtype)
        found = everything(call, x, weight)
        for got, wanted in zip(found, expected(name, x, weight, found[0]), strict=True):
            assert tuple(got.shape) == wanted.shape
            scale = max(1.0, np.abs(wanted).max(initial=0.0))
            np.testing.assert_allclose(got.double().numpy(), wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", CASES)
def test_compiled_has_the_same_bits(name):
    call, x, weight = operands(name)
    eager = everything(call, x, weight)
    compiled = everything(torch.compile(lambda *a: call(*a) * 1.0), x, weight)
    for a, b in zip(eager, compiled, strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("name", CASES)
def test_threads_have_the_same_bits(name):
    call, x, weight = operands(name)
    results = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        results.append(everything(call, x, weight))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert same_bits(a, b)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[0][0] > 1])
def test_a_sample_alone_has_the_same_bits(name):
    call, x, weight = operands(name)
    whole, last = call(x, weight), call(x[-1:], weight)
    assert same_bits(whole[-1:], last)
    start = rand(*whole.shape, seed=2)

    def gradient(x, start):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(call(x, weight), x, start)[0]

    assert same_bits(gradient(x, start)[-1:], gradient(x[-1:], start[-1:]))


LAYOUTS = {
    "sliced": lambda t: torch.stack([t, t], -1).flatten(-2)[..., ::2],
    "turned": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "channels last": lambda t: t.movedim(1, -1).contiguous().movedim(-1, 1),
    "cut": lambda t: F.pad(t, [1] * (2 * (t.ndim - 2)))[(..., *[slice(1, -1)] * (t.ndim - 2))],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name",
    ["3x3", "squares", "3x3 strided", "points", "groups", "1d", "3d", "depthwise", "transposed"],
)
def test_layouts_have_the_same_bits(name, layout):
    call, x, weight = operands(name)
    change = LAYOUTS[layout]
    plain = everything(call, x, weight)
    for a, b in zip(plain, everything(lambda *t: call(*map(change, t)), x, weight), strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("size", [(1, 1), (3, 2)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_channels_side_by_side_in_tiles_of_any_height(dtype, size):
    """Tiles of float64 have more rows than a vector has lanes."""
    x, weight = rand(2, 5, *size, dtype=dtype), rand(43, 5, 1, 1, seed=1, dtype=dtype)
    bias = rand(43, seed=2, dtype=dtype)
    sums = F.conv2d(x, weight)
    turned = x.contiguous(memory_format=torch.channels_last)
    assert same_bits(F.conv2d(turned, weight), sums)
    added = sums + bias.reshape(-1, 1, 1)
    assert same_bits(F.conv2d(x, weight, bias), added)
    assert same_bits(F.conv2d(turned, weight, bias), added)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_slices_have_the_bits_of_images(stride):
    """Where there are slices a band is copied; without, windows are read from the image itself."""
    for padding, height, width in ((1, 7, 8), (1, 13, 35), (2, 6, 13), (0, 9, 34)):
        x, weight = rand(2, 3, height, width), rand(3, 1, 3, 3, seed=1)
        flat = everything(
            lambda x, w, p=padding: F.conv2d(x, w, stride=stride, padding=p, groups=3), x, weight
        )
        spread = {"stride": (1, stride, stride), "padding": (0, padding, padding), "groups": 3}

        def slices(x, weight, spread=spread):
            y = F.conv3d(x.transpose(0, 1)[None], weight[:, :, None], **spread)
            return y[0].transpose(0, 1)

        for a, b in zip(flat, everything(slices, x, weight), strict=True):
            assert same_bits(a, b)


HALVES = ["3x3", "squares", "points", "depthwise", "transposed", "1d"]


@pytest.mark.parametrize("name", HALVES)
def test_float16_is_computed_in_float32(name):
    call, x, weight = operands(name, torch.float16)
    wide = call(x.float(), weight.float())
    assert same_bits(call(x, weight), wide.half())


@pytest.mark.parametrize("name", HALVES)
def test_bfloat16_accumulates_in_float32_and_is_rounded_once(name):
    """No further from the exact sum than its rounding and that of float32 sums allow."""
    call, x, weight = operands(name, torch.bfloat16)
    start = rand(*call(x, weight).shape, seed=2, dtype=torch.bfloat16)

    def sums(change):
        leaves = [change(t).detach().requires_grad_() for t in (x, weight)]
        y = call(*leaves)
        return [y.detach(), *torch.autograd.grad(y, leaves, change(start))]

    ways = sums(lambda t: t), sums(torch.Tensor.double), sums(lambda t: t.double().abs())
    for got, exact, size in zip(*ways, strict=True):
        bound = exact.abs() * 2.0**-8 + size * 2.0**-19
        assert bool(((got.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("name", ["points strided", "transposed", "3d"])
def test_bfloat16_has_the_same_bits_in_every_way(name):
    call, x, weight = operands(name, torch.bfloat16)
    plain = everything(call, x, weight)
    layout = LAYOUTS["channels last"]
    for a, b in zip(plain, everything(call, layout(x), layout(weight)), strict=True):
        assert same_bits(a, b)
    assert same_bits(torch.compile(call)(x, weight), plain[0])
    assert same_bits(call(x[:1], weight)[0], plain[0][0])
    assert same_bits(call(x[0], weight), plain[0][0])


def test_bias_is_added_to_the_rounded_sum():
    call, x, weight = operands("3x3")
    bias = rand(weight.shape[0], seed=3)
    separate = call(x, weight) + bias.reshape(1, -1, 1, 1)
    assert same_bits(call(x, weight, bias), separate)
    assert same_bits(torch.compile(call)(x, weight, bias), separate)


@pytest.mark.parametrize("name", ["1d", "groups", "transposed groups", "depthwise 1d", "strides"])
def test_second_derivatives(name):
    shape, weight, arguments = CASES[name]
    small = (*shape[:2], *[min(n, 6) for n in shape[2:]])
    call = function(name, arguments)
    x, w = rand(*small, dtype=torch.float64), rand(*weight, seed=1, dtype=torch.float64)
    x.requires_grad_(), w.requires_grad_()
    assert torch.autograd.gradcheck(call, (x, w))
    assert torch.autograd.gradgradcheck(call, (x, w))


def test_not_a_number_stays_where_it_is():
    x = torch.zeros(1, 4, 20, 40)
    x[0, 1, 7, 9] = float("inf")
    depthwise = F.conv2d(x, torch.ones(4, 1, 3, 3), padding=1, groups=4)
    assert int(depthwise.isfinite().logical_not().sum()) == 9
    for channels in (4, 32):
        full = F.conv2d(x.repeat(1, channels // 4, 1, 1), torch.ones(32, channels, 3, 3), padding=1)
        assert int(full.isfinite().logical_not().sum()) == 9 * 32
    weight = torch.ones(4, 1, 3, 3, requires_grad=True)
    F.conv2d(x[..., 2:, 2:], weight, groups=4).sum().backward()
    assert int(weight.grad.isfinite().logical_not().sum()) == 9


@pytest.mark.parametrize("transposed", [False, True])
def test_infinite_elements_and_large_ones(transposed):
    """Winograd's sums and differences are not seen in results: as if each was a plain sum."""
    convolve = F.conv_transpose2d if transposed else F.conv2d
    x, weight = rand(2, 32, 9, 11), rand(32, 32, 3, 3, seed=1)
    weight = weight.abs() + 0.1
    x[0, 3, 4, 5], x[1, 7, 0, 10] = float("inf"), float("-inf")
    x[1, 2, 8, 0] = 3.2e38  # overflows where it is added to itself, not where it is halved
    tiny = torch.where(weight == weight, 0.25, 0.0)
    for taps in (weight, tiny):
        result = convolve(x, taps, padding=1)
        assert not result.isnan().any()
        assert int((result == float("inf")).sum()) >= 9 * 32
        assert int((result == float("-inf")).sum()) == 4 * 32
        assert torch.equal(result[1:], convolve(x[1:], taps, padding=1))
    near = convolve(x, tiny, padding=1)[1, :, 7:, :2]
    assert near.isfinite().all() and (near > 7e37).all()


def test_sizes_that_change_share_a_plan():
    compiled = torch.compile(lambda x, w: F.conv2d(x, w, padding=1, stride=2))
    weight = rand(6, 5, 3, 3, seed=1)
    for height, width in ((9, 11), (10, 7), (33, 40), (2, 3)):
        x = rand(2, 5, height, width)
        assert same_bits(compiled(x, weight), F.conv2d(x, weight, padding=1, stride=2))


IMPOSSIBLE = {
    "stride": ((2, 4, 8, 8), (6, 4, 3, 3), {"stride": 0}),
    "strides": ((2, 4, 8, 8), (6, 4, 3, 3), {"stride": (1, 2, 3)}),
    "padding": ((2, 4, 8, 8), (6, 4, 3, 3), {"padding": -1}),
    "padding's name": ((2, 4, 8, 8), (6, 4, 3, 3), {"padding": "full"}),
    "same": ((2, 4, 8, 8), (6, 4, 3, 3), {"padding": "same", "stride": 2}),
    "dilation": ((2, 4, 8, 8), (6, 4, 3, 3), {"dilation": 0}),
    "wide dilation": ((2, 4, 8, 8), (6, 4, 3, 3), {"dilation": 2**62}),
    "large padding": ((2, 4, 8, 8), (6, 4, 3, 3), {"padding": 2**62}),
    "groups": ((2, 4, 8, 8), (6, 4, 3, 3), {"groups": 0}),
    "channels": ((2, 5, 8, 8), (6, 4, 3, 3), {}),
    "dimensions": ((4, 8), (6, 4, 3, 3), {}),
    "kernel": ((2, 4, 2, 2), (6, 4, 3, 3), {}),
    "empty kernel": ((2, 4, 8, 8), (6, 4, 0, 3), {}),
    "no output": ((2, 4, 8, 8), (0, 4, 3, 3), {}),
    "empty image": ((2, 4, 0, 8), (6, 4, 3, 3), {"padding": 2}),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_is_impossible_is_a_runtime_error(name):
    x, weight, arguments = IMPOSSIBLE[name]
    with pytest.raises(RuntimeError, match=r"^\[.*\] .*\nhint: "):
        F.conv2d(rand(*x), rand(*weight), **arguments)


def test_operands_have_one_dtype():
    x, weight = rand(1, 2, 5, 5), rand(3, 2, 3, 3)
    for other in (torch.float16, torch.bfloat16, torch.float64):
        for pair in ((x.to(other), weight), (x, weight.to(other))):
            with pytest.raises(RuntimeError, match="should be the same"):
                F.conv2d(*pair)


def test_sizes_of_one_row_of_integers_fit_64_bits():
    """A product that has one row at most: conditions on its extent are folded to constants."""
    x = torch.arange(10).reshape(1, 1, 1, 1, 10)
    found = F.conv3d(x, torch.ones(1, 1, 1, 1, 4, dtype=torch.int64))
    assert found.flatten().tolist() == [6, 10, 14, 18, 22, 26, 30]
