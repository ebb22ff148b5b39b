"""Dropout in attention: the draws are those of its definition, memory is linear, bits are kept."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import runtime

attention = F.scaled_dot_product_attention


def operands(batch, heads, kept, length, keys, size, dtype=torch.float32):
    torch.manual_seed(1)
    shapes = (batch, heads, length, size), *((batch, kept, keys, size),) * 2
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def definition(q, k, v, mask=None, p=0.0, causal=False):
    """All of its matrices, in float64; the draws are those of `dropout`."""
    batch, heads, length, keys = *q.shape[:3], k.shape[2]
    factors = F.dropout(torch.ones(batch, heads, length, keys, dtype=torch.float64), p)
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    wide = [x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v)]
    scores = q @ wide[0].transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(length, keys, dtype=torch.bool).triu(1), -1e300)
    if mask is not None:
        scores = scores + mask
    out = scores.softmax(3) * factors @ wide[1]
    return out, (q, k, v)


def step(q, k, v, mask=None, p=0.3, causal=False):
    out = attention(q, k, v, mask, p, causal, enable_gqa=q.shape[1] != k.shape[1])
    grad = torch.sin(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape)
    wanted = (q, k, v) if mask is None else (q, k, v, mask)
    return [out, *torch.autograd.grad(out, wanted, grad.to(out.dtype))]


CASES = {
    "plain": dict(batch=2, heads=3, kept=3, length=70, keys=45, size=16),
    "causal": dict(batch=1, heads=2, kept=2, length=200, keys=200, size=16, causal=True),
    "groups": dict(batch=2, heads=4, kept=2, length=33, keys=130, size=16),
    "many queries": dict(batch=1, heads=1, kept=1, length=600, keys=200, size=16),
    "one query": dict(batch=1, heads=2, kept=2, length=1, keys=1100, size=16),
}


def case(name, **changed):
    given = CASES[name] | changed
    causal = given.pop("causal", False)
    return operands(**given), causal


@pytest.mark.parametrize("name", CASES)
def test_values_gradients_and_the_stream(name):
    tensors, causal = case(name)
    mask = torch.randn(70, 45).requires_grad_() if name == "plain" else None
    found, after = [], []
    for both in (True, False):
        torch.manual_seed(5)
        torch.rand(3)  # then pairs of words begin at odd places
        if both:
            found.append(step(*tensors, mask, causal=causal))
        else:
            out, wanted = definition(*tensors, mask, 0.3, causal)
            grad = torch.sin(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape)
            wanted = wanted if mask is None else (*wanted, mask)
            found.append([out, *torch.autograd.grad(out, wanted, grad)])
        after.append(torch.rand(2).numpy())
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=1e-5)
    assert (after[0] == after[1]).all()


@pytest.mark.parametrize("name", ["causal", "many queries"])
def test_bits_of_threads_and_of_compiled_programs(name):
    tensors, causal = case(name)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            torch.manual_seed(5)
            found.append(step(*tensors, causal=causal))
    finally:
        torch.set_num_threads(before)
    torch.manual_seed(5)
    found.append(torch.compile(step)(*tensors, causal=causal))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-13), ("bfloat16", 4e-2)])
def test_other_dtypes(dtype, tolerance):
    tensors, _ = case("plain", dtype=getattr(torch, dtype))
    torch.manual_seed(5)
    found = attention(*tensors, dropout_p=0.3)
    torch.manual_seed(5)
    expected = definition(*tensors, p=0.3)[0]
    np.testing.assert_allclose(
        found.detach().double().numpy(), expected.detach().numpy(), rtol=0, atol=tolerance
    )


def test_samples_of_vmap_draw_one_after_the_other():
    q, k, v = (x.detach() for x in operands(2, 3, 3, 70, 45, 16))
    torch.manual_seed(5)
    expected = attention(q, k, v, dropout_p=0.3)
    torch.manual_seed(5)
    each = torch.vmap(lambda *x: attention(*x, dropout_p=0.3), randomness="different")
    assert torch.equal(each(q, k, v), expected)
    same = torch.vmap(lambda *x: attention(*x, dropout_p=0.3), randomness="same")
    torch.manual_seed(5)
    assert torch.equal(same(q, k, v)[0], expected[0])


def test_all_or_none_are_dropped():
    q, k, v = operands(1, 1, 1, 5, 9, 8)
    assert (attention(q, k, v, dropout_p=1.0) == 0).all()
    assert torch.equal(attention(q, k, v, dropout_p=0.0), attention(q, k, v))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        attention(q, k, v, dropout_p=1.5)


@pytest.mark.usefixtures("no_garbage")
def test_memory_is_linear():
    """Of results, gradients and what is kept for them; and of the kernels' own memory."""

    def peak(length):
        tensors = operands(1, 2, 2, length, length, 16)
        for _ in range(2):  # the second time nothing is compiled any more
            runtime.reset_peak_memory_stats()
            before = runtime.memory_stats()["allocated_bytes.all.current"]
            attention(*tensors, dropout_p=0.2).sum().backward()
            for x in tensors:
                x.grad = None
        return runtime.memory_stats()["allocated_bytes.all.peak"] - before

    few, many, more = (peak(length) for length in (512, 1024, 2048))
    assert many < 2.2 * few and more < 2.2 * many
