"""Images lie in memory as PyTorch's do: channels last where they came so.

Random draws fill memory in its order, so a layout also decides which elements dropout keeps.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

CALLS = [
    "max_pool2d(x, 2)",
    "max_pool2d(x, 2, return_indices=True)[1]",
    "avg_pool2d(x, 2)",
    "lp_pool2d(x, 2.0, 2)",
    "adaptive_avg_pool2d(x, (3, 5))",
    "adaptive_max_pool2d(x, (3, 4))",
    "interpolate(x, scale_factor=2)",
    "interpolate(x, scale_factor=2, mode='bilinear')",
    "group_norm(x, 2, x[0, :, 0, 0])",
    "batch_norm(x, x[0, :, 0, 0], x[1, :, 0, 0])",
    "batch_norm(x, None, None, training=True)",
    "rms_norm(x, (10,), x[0, 0, 0])",
    "normalize(x)",
    "local_response_norm(x, 3)",
    "pad(x, (1, 1, 2, 1))",
    "pad(x, (1, 1, 2, 1), mode='reflect')",
    "pad(x, (1, 1, 2, 1), mode='replicate')",
    "pad(x, (1, 1, 2, 1), mode='circular')",
    "pixel_unshuffle(x, 2)",
    "pixel_shuffle(x, 2)",
    "channel_shuffle(x, 2)",
    "glu(x, 1)",
    "logsigmoid(x)",
]
METHODS = ["masked_fill(x > 0.5, 0.0)", "roll(1, 2)", "roll(3)", "diff(dim=2)"]


@pytest.mark.parametrize("call", [f"f.{c}" for c in CALLS] + [f"x.{m}" for m in METHODS])
@pytest.mark.parametrize("form", ["plain", "last", "swapped"])
def test_strides_values_and_draws(call, form):
    x = torch.rand(2, 8, 6, 10, generator=torch.Generator().manual_seed(0))

    def both(x, f):
        value = eval(call)
        return value, f.dropout(value.float())

    results = []
    for package, image in ((torch, x), (flambeau, flambeau.from_numpy(x.numpy()))):
        if form == "last":
            image = image.contiguous(memory_format=package.channels_last)
        elif form == "swapped":
            image = image.transpose(2, 3).contiguous().transpose(2, 3)
        package.manual_seed(1)
        results.append(both(image, package.nn.functional))
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(torch.from_numpy(ours.numpy()), theirs)
    if form == "last":
        flambeau.manual_seed(1)
        again = flambeau.compile(both)(image, flambeau.nn.functional)
        for compiled, ours in zip(again, results[1], strict=True):
            assert compiled.stride() == ours.stride() and bool((compiled == ours).all())


@pytest.mark.parametrize(
    "call", ["adaptive_avg_pool3d(x, 2)", "group_norm(x, 2)", "lp_pool3d(x, 2.0, 2)"]
)
def test_strides_of_volumes(call):
    x = torch.rand(2, 4, 2, 6, 8)
    results = []
    for package, image in ((torch, x), (flambeau, flambeau.from_numpy(x.numpy()))):
        image = image.contiguous(memory_format=package.channels_last_3d)
        results.append(eval(f"f.{call}", {"f": package.nn.functional, "x": image}))
    assert results[1].stride() == results[0].stride()


ONEDNN_BFLOAT16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
ONEDNN_HALVES = torch.ops.mkldnn._is_mkldnn_fp16_supported()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("count", [2, 3])
def test_strides_of_convolutions(dtype, count):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 4, *(4, 6, 5)[:count], generator=generator)
    weight = torch.rand(4, 4, *(3, 2, 3)[:count], generator=generator)
    results = []
    for package, image, w in (
        (torch, x, weight),
        (flambeau, flambeau.from_numpy(x.numpy()), flambeau.from_numpy(weight.numpy())),
    ):
        last = package.channels_last if count == 2 else package.channels_last_3d
        image = image.to(getattr(package, dtype)).contiguous(memory_format=last)
        w = w.to(image.dtype)
        f = package.nn.functional
        calls = [getattr(f, f"conv{form}{count}d") for form in ("", "_transpose")]
        outputs = [call(image, w) for call in calls]
        if package is torch and dtype == "float16" and count == 3 and ONEDNN_HALVES:
            outputs = [y.contiguous() for y in outputs]  # as on processors without such kernels
        if package is torch and dtype == "bfloat16" and count == 3 and not ONEDNN_BFLOAT16:
            outputs = [y.contiguous(memory_format=last) for y in outputs]  # as where there are some
        results.append([y.stride() for y in outputs])
    assert results[1] == results[0]
