"""Operators that torchvision's and torchaudio's compiled libraries have, beside plain loops."""

from __future__ import annotations

import importlib
import math

import pytest

import flambeau as torch


@pytest.fixture(scope="module")
def vision():
    importlib.import_module("flambeau.library.foreign.torchvision_operators")
    return torch.ops.torchvision


@pytest.fixture(scope="module")
def audio():
    importlib.import_module("flambeau.library.foreign.torchaudio_operators")
    return torch.ops.torchaudio


def boxes(count, size=10.0):
    corner = torch.rand(count, 2) * size
    return torch.cat([corner, corner + torch.rand(count, 2) * size], 1)


def overlap(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union


@pytest.mark.parametrize("count", [0, 1, 60])
def test_nms(vision, count):
    torch.manual_seed(count)
    dets, scores = boxes(count), torch.rand(count)
    stay = []
    for index in scores.argsort(descending=True).tolist():
        if all(overlap(dets[index].tolist(), dets[other].tolist()) <= 0.3 for other in stay):
            stay.append(index)
    assert vision.nms(dets, scores, 0.3).tolist() == stay


def test_nms_checks_its_boxes(vision):
    with pytest.raises(RuntimeError, match="boxes should have 4 elements"):
        vision.nms(torch.rand(2, 5), torch.rand(2), 0.5)


def bilinear(image, y, x):
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    low, left = min(int(y), height - 1), min(int(x), width - 1)
    below, right = min(low + 1, height - 1), min(left + 1, width - 1)
    v, u = y - low, x - left
    top = image[low, left] * (1 - u) + image[low, right] * u
    return float(top * (1 - v) + (image[below, left] * (1 - u) + image[below, right] * u) * v)


@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align(vision, ratio):
    torch.manual_seed(0)
    image = torch.rand(1, 1, 7, 9)
    roi = [0.0, 1.5, 0.5, 8.0, 11.0]
    result = vision.roi_align(image, torch.tensor([roi]), 0.8, 2, 2, ratio, True)[0, 0]
    left, top, right, bottom = (value * 0.8 - 0.5 for value in roi[1:])
    high, wide = (bottom - top) / 2, (right - left) / 2
    rows, columns = (ratio, ratio) if ratio > 0 else (math.ceil(high), math.ceil(wide))
    for p in range(2):
        for q in range(2):
            samples = [
                bilinear(
                    image[0, 0],
                    top + high * (p + (i + 0.5) / rows),
                    left + wide * (q + (j + 0.5) / columns),
                )
                for i in range(rows)
                for j in range(columns)
            ]
            assert abs(float(result[p, q]) - sum(samples) / len(samples)) < 1e-6


def test_gradient_of_roi_align_is_its_transpose(vision):
    torch.manual_seed(0)
    image, cotangent = torch.rand(2, 3, 6, 5), torch.rand(4, 3, 2, 3)
    rois = torch.cat([torch.tensor([[0.0], [1.0], [0.0], [1.0]]), boxes(4, 4.0)], 1)
    result = vision.roi_align(image, rois, 1.0, 2, 3, 2, False)
    back = vision._roi_align_backward(cotangent, rois, 1.0, 2, 3, 2, 3, 6, 5, 2, False)
    torch.testing.assert_close((result * cotangent).sum(), (image * back).sum())


def test_roi_pool(vision):
    image = torch.arange(36.0).view(1, 1, 6, 6)
    rois = torch.tensor([[0.0, 1, 1, 4, 4], [0.0, 20, 20, 30, 30]])
    values, index = vision.roi_pool(image, rois, 1.0, 2, 2)
    assert values[0, 0].tolist() == [[14.0, 16.0], [26.0, 28.0]]
    assert index[0, 0].tolist() == [[14, 16], [26, 28]] and index.dtype == torch.int32
    assert values[1].eq(0).all() and index[1].eq(-1).all()
    back = vision._roi_pool_backward(torch.ones(2, 1, 2, 2), rois, index, 1.0, 2, 2, 1, 1, 6, 6)
    assert back.flatten().nonzero().flatten().tolist() == [14, 16, 26, 28]


def test_position_sensitive_pooling_reads_one_channel_per_bin(vision):
    image = torch.arange(8.0)[:, None, None].expand(8, 6, 6)[None].contiguous()
    rois = torch.tensor([[0.0, 1, 1, 5, 5]])
    for values, channel in (
        vision.ps_roi_pool(image, rois, 1.0, 2, 2),
        vision.ps_roi_align(image, rois, 1.0, 2, 2, 2),
    ):
        assert values.flatten().tolist() == channel.flatten().tolist() == list(range(8))
    with pytest.raises(RuntimeError, match="multiple of pooling"):
        vision.ps_roi_pool(image[:, :7], rois, 1.0, 2, 2)


def test_deformable_convolution_without_moves_is_a_convolution(vision):
    torch.manual_seed(0)
    image, weight, bias = torch.rand(2, 4, 7, 6), torch.rand(6, 2, 3, 2), torch.rand(6)
    options = (2, 1, 1, 2, 1, 2)  # strides, paddings, dilations
    expected = torch.nn.functional.conv2d(image, weight, bias, (2, 1), (1, 2), (1, 2), 2)
    moves = torch.zeros(2, 2 * 2 * 6, *expected.shape[2:])
    mask = torch.full((2, 2 * 6, *expected.shape[2:]), 0.5)
    options = (2, 1, 1, 2, 1, 2, 2, 2)
    for use_mask, factor in ((False, 1.0), (True, 0.5)):
        result = vision.deform_conv2d(image, weight, moves, mask, bias, *options, use_mask)
        plain = (expected - bias[:, None, None]) * factor + bias[:, None, None]
        torch.testing.assert_close(result, plain)


def test_deformable_convolution_follows_whole_moves(vision):
    image, weight = torch.rand(1, 1, 5, 5), torch.ones(1, 1, 1, 1)
    moves = torch.ones(1, 2, 5, 5)
    empty = torch.zeros(1, 0, 5, 5)
    options = (1, 1, 0, 0, 1, 1, 1, 1, False)
    result = vision.deform_conv2d(image, weight, moves, empty, torch.zeros(1), *options)
    assert torch.equal(result[..., :4, :4], image[..., 1:, 1:]) and result[..., 4, :].eq(0).all()


def test_recursive_filter(audio):
    signal, coefficients = torch.rand(1, 1, 6), torch.tensor([[0.25, -0.5, 1.0]])
    output = torch.zeros(1, 1, 8)
    audio._lfilter_core_loop(signal, coefficients, output)
    before = [0.0, 0.0]
    for value in signal.flatten().tolist():
        before.append(value + 0.5 * before[-1] - 0.25 * before[-2])
    torch.testing.assert_close(output.flatten(), torch.tensor(before))


def test_forced_alignment_spells_the_targets(audio):
    torch.manual_seed(0)
    scores = torch.rand(1, 9, 4).log_softmax(-1)
    labels, lengths = torch.tensor([[1, 1, 3]]), (torch.tensor([9]), torch.tensor([3]))
    path = audio.forced_align(scores, labels, *lengths, 0)[0][0].tolist()
    merged = [a for a, b in zip(path, [0, *path], strict=False) if a != b and a]
    assert merged == [1, 1, 3]
    with pytest.raises(RuntimeError, match="too long"):
        audio.forced_align(scores[:, :3], labels, torch.tensor([3]), torch.tensor([3]), 0)


def test_transducer_with_one_label_sums_its_paths(audio):
    torch.manual_seed(0)
    scores = torch.rand(1, 2, 2, 3).log_softmax(-1)
    lengths = torch.tensor([2]), torch.tensor([1])
    cost, gradient = audio.rnnt_loss_forward(scores, torch.tensor([[1]]), *lengths, 0, -1.0, False)
    s = scores[0]
    first = s[0, 0, 1] + s[0, 1, 0] + s[1, 1, 0]
    second = s[0, 0, 0] + s[1, 0, 1] + s[1, 1, 0]
    torch.testing.assert_close(cost[0], -torch.logaddexp(first, second))
    assert gradient.shape == scores.shape


def test_load_library(tmp_path, vision):
    with pytest.raises(OSError, match="Could not load this library"):
        torch.ops.load_library(tmp_path / "other.so")
    library = tmp_path / "torchvision" / "_C.so"
    torch.ops.load_library(library)
    assert str(library) in torch.ops.loaded_libraries
    assert vision._cuda_version() == -1


def test_casts_of_autocast_by_dispatch_key():
    library = torch.library.Library("autocast_by_key", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x.clone(), "CompositeExplicitAutograd")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def cast(x):
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return torch.ops.autocast_by_key.same(x.double())

    library.impl("same", cast, "AutocastCPU")
    library.impl("same", cast, "AutocastCUDA")
    assert torch.ops.autocast_by_key.same(torch.ones(1)).dtype == torch.float32
    with torch.autocast("cpu"):
        assert torch.ops.autocast_by_key.same(torch.ones(1)).dtype == torch.float64
