"""`linear_cross_entropy`: values, gradients, memory, and the promise about bits."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, runtime

SAMPLES, WIDTH, CLASSES = 37, 24, 331


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def data(rest, soft, bias, weighted):
    target = np.random.default_rng(1).integers(0, CLASSES, (SAMPLES, *rest))
    target[3] = -100
    probabilities = np.exp(draw(SAMPLES, CLASSES, *rest, seed=4))
    return {
        "input": draw(SAMPLES, WIDTH),
        "linear_weight": draw(CLASSES, *rest, WIDTH, seed=1) / 3,
        "target": probabilities / probabilities.sum(1, keepdims=True) if soft else target,
        "linear_bias": draw(CLASSES, *rest, seed=2) if bias else None,
        "weight": np.abs(draw(CLASSES, seed=3)) + 0.1 if weighted else None,
    }


def tensors(arrays, dtype, names=("input", "linear_weight", "linear_bias")):
    found = {}
    for name, x in arrays.items():
        if x is None:
            continue
        found[name] = torch.tensor(x)
        if x.dtype.kind == "f":
            found[name] = found[name].to(dtype).requires_grad_(name in names)
    return found


def unfused(input, linear_weight, target, linear_bias=None, **more):
    """The definition."""
    rows = linear_weight.reshape(-1, WIDTH)
    shift = None if linear_bias is None else linear_bias.reshape(-1)
    logits = F.linear(input, rows, shift)
    shape = (*input.shape[:-1], *linear_weight.shape[:-1])
    return F.cross_entropy(logits.reshape(shape), target, **more)


def with_gradients(function, arguments, **more):
    loss = function(**arguments, **more)
    wanted = [x for x in arguments.values() if x.requires_grad]
    return [loss, *torch.autograd.grad((loss * loss).sum(), wanted)]


CASES = [
    ((), False, True, False, 0.1, "mean"),
    ((), True, False, True, 0.0, "none"),
    ((3,), False, False, True, 0.1, "sum"),
    ((3,), True, True, False, 0.1, "mean"),
]


@pytest.mark.parametrize("rest, soft, bias, weighted, smoothing, reduction", CASES)
def test_is_its_definition(rest, soft, bias, weighted, smoothing, reduction):
    arguments = tensors(data(rest, soft, bias, weighted), torch.float64)
    more = {"reduction": reduction, "label_smoothing": smoothing}
    found = with_gradients(F.linear_cross_entropy, arguments, **more)
    expected = with_gradients(unfused, arguments, **more)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_one_sample_none_and_ignored():
    arrays = data((), False, False, False)
    full = tensors(arrays, torch.float32)
    x, matrix, target = full["input"], full["linear_weight"], full["target"]
    every = F.linear_cross_entropy(x, matrix, target, reduction="none")
    one = F.linear_cross_entropy(x[5], matrix, target[5], reduction="none")
    assert one.shape == () and float(one) == float(every[5]) and float(every[3]) == 0
    with pytest.raises(IndexError, match="-100"):
        F.linear_cross_entropy(x, matrix, target, ignore_index=int(target[5]))
    empty = F.linear_cross_entropy(x[:0], matrix, target[:0], reduction="sum")
    assert float(empty) == 0


def test_derivatives_of_derivatives():
    x, matrix, bias = (torch.tensor(draw(*s)).requires_grad_() for s in ((3, 4), (5, 4), (5,)))
    target = torch.tensor([0, 4, 2])

    def function(*given):
        return F.linear_cross_entropy(*given[:2], target, linear_bias=given[2])

    assert torch.autograd.gradcheck(function, (x, matrix, bias))
    assert torch.autograd.gradgradcheck(function, (x, matrix, bias))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_and_threads(dtype):
    arguments = tensors(data((), False, True, True), getattr(torch, dtype))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(with_gradients(F.linear_cross_entropy, arguments))
    finally:
        torch.set_num_threads(before)
    found.append(with_gradients(torch.compile(F.linear_cross_entropy), arguments))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert (a.detach().float().numpy() == b.detach().float().numpy()).all()


def test_logits_are_not_stored():
    samples, classes = 256, 20_000
    x = torch.randn(samples, 16).requires_grad_()
    matrix = torch.randn(classes, 16).requires_grad_()
    target = torch.randint(0, classes, (samples,))

    def step():
        return torch.autograd.grad(F.linear_cross_entropy(x, matrix, target), (x, matrix))

    step()
    runtime.reset_peak_memory_stats()
    before = runtime.memory_stats()["allocated_bytes.all.current"]
    step()
    peak = runtime.memory_stats()["allocated_bytes.all.peak"] - before
    assert peak < samples * classes  # a quarter of the logits


def test_module():
    torch.manual_seed(0)
    loss = nn.LinearCrossEntropyLoss(WIDTH, 11, out_features=(2, 3), bias=True)
    assert {name: tuple(x.shape) for name, x in loss.state_dict().items()} == {
        "linear.weight": (66, WIDTH),
        "linear.bias": (66,),
    }
    assert "num_classes=11, out_features=(2, 3), bias=True, reduction=mean" in repr(loss)
    x, target = torch.randn(5, WIDTH), torch.randint(0, 11, (5, 2, 3))
    logits = loss.linear(x).reshape(5, 11, 2, 3)
    expected = F.cross_entropy(logits, target)
    assert torch.allclose(loss(x, target), expected)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    same = nn.LinearCrossEntropyLoss(WIDTH, 11, options=options)
    assert same(x, torch.zeros(5, dtype=torch.int64)).shape == ()


def test_errors():
    x, matrix, target = torch.zeros(3, 4), torch.zeros(5, 4), torch.zeros(3, dtype=torch.int64)
    call = F.linear_cross_entropy
    cases = [
        (lambda: call(torch.zeros(1, 3, 4), matrix, target), "dimensionality 1 or 2"),
        (lambda: call(x, matrix[0], target), "at least 2"),
        (lambda: call(x[:, :3], matrix, target), "in_features"),
        (lambda: call(x, matrix, target, linear_bias=torch.zeros(4)), "linear_bias shape"),
        (lambda: call(x[0], torch.zeros(5, 2, 4), target), "batched input"),
        (lambda: call(x, matrix, torch.zeros(3, 5), ignore_index=1), "ignore_index"),
        (lambda: call(x, matrix, target[:2]), "does not fit"),
        (lambda: call(x, matrix.double(), target), "one dtype"),
        (lambda: call(x, matrix, target, label_smoothing=2.0), "label_smoothing"),
    ]
    for wrong, message in cases:
        with pytest.raises(RuntimeError, match=message):
            wrong()
    for options in ({"acc_policy": "x"}, {"chunking_method": "x"}, {"batch_chunk_size": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            nn.LinearCrossEntropyOptions(**options)
