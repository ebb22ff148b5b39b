"""The kernels of attention: values against float64, and the promise about bits.

A row's bits depend on its own query, keys, values and mask only: not on other rows, heads, batches,
threads, strides, on what skips blocks, or on which of the kernels runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import runtime
from flambeau.language.definition import REGISTRY
from flambeau.nn.attention.bias import causal_lower_right, causal_upper_left

attention = F.scaled_dot_product_attention


def draw(*shape, seed=0, dtype="f4"):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def operands(batch, heads, kept, length, keys, size, width, dtype="f4"):
    shapes = (batch, heads, length, size), (batch, kept, keys, size), (batch, kept, keys, width)
    return [draw(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def reference(q, k, v, mask=None, offset=None, grad=None):
    """Result in float64, and with `grad` the gradients of q, k, v."""
    q, k, v = (x.astype("f8") for x in (q, k, v))
    kept, groups, scale = k.shape[1], q.shape[1] // max(k.shape[1], 1), max(q.shape[-1], 1) ** -0.5
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if offset is not None:
        last = np.arange(q.shape[2])[:, None] + offset
        scores = np.where(np.arange(k.shape[2]) <= last, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    sums = weights.sum(-1, keepdims=True)
    weights = weights / np.where(sums == 0, 1, sums)
    out = weights @ v
    if grad is None:
        return out
    grad = grad.astype("f8")
    change = grad @ v.swapaxes(-1, -2) - (grad * out).sum(-1, keepdims=True)
    by_scores = weights * change * scale

    def gathered(x):
        return x.reshape(x.shape[0], kept, groups, *x.shape[2:]).sum(2)

    by_key = gathered(by_scores.swapaxes(-1, -2) @ q)
    return out, by_scores @ k, by_key, gathered(weights.swapaxes(-1, -2) @ grad)


def both(arrays, mask=None, causal=False, dtype=None, grad=True, seed=None):
    """Result and gradients as arrays."""
    tensors = [torch.tensor(x).to(dtype or torch.float32) for x in arrays]
    tensors = [x.requires_grad_(grad) for x in tensors]
    q, k, v = tensors
    mask = None if mask is None else torch.tensor(mask)
    out = attention(q, k, v, mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    if not grad:
        return [out.float().numpy()]
    seed = draw(*out.shape, seed=9) if seed is None else seed
    found = torch.autograd.grad(out, tensors, torch.tensor(seed).to(out.dtype))
    return [x.detach().float().numpy() for x in (out, *found)]


def close(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def equal(a, b):
    a, b = (np.ascontiguousarray(x) for x in (a, b))
    assert a.shape == b.shape and (a.view("i4") == b.view("i4")).all()


LENGTHS = [(1, 1), (0, 5), (5, 0), (17, 5), (33, 131), (128, 128), (20, 1100), (3, 2100)]
SIZES = [(1, 1), (3, 5), (64, 64), (80, 20), (128, 72), (300, 7), (8, 0)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size, width", SIZES)
@pytest.mark.parametrize("length, keys", LENGTHS)
def test_values_and_gradients(length, keys, size, width, causal):
    arrays = operands(1, 2, 2, length, keys, size, width)
    grad = draw(1, 2, length, width, seed=9)
    expected = reference(*arrays, None, 0 if causal else None, grad)
    close(both(arrays, causal=causal), expected, 1e-5)


def masks(batch, heads, length, keys):
    generator = np.random.default_rng(3)
    yield generator.random((length, keys)) > 0.5
    yield generator.random((batch, 1, 1, keys)) > 0.3
    yield generator.random((batch, heads, length, keys)) > 0.98
    yield np.broadcast_to(np.arange(keys) > keys - 9, (length, keys)).copy()
    yield draw(length, keys)
    yield draw(1, heads, length, keys)
    yield np.where(generator.random((length, 1)) > 0.5, 0, -np.inf).astype("f4")


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("heads, kept, length, keys", [(4, 2, 37, 150), (4, 1, 3, 1050)])
def test_masks_and_groups(number, heads, kept, length, keys):
    arrays = operands(2, heads, kept, length, keys, 16, 16)
    mask = list(masks(2, heads, length, keys))[number]
    expected = reference(*arrays, mask, None, draw(2, heads, length, 16, seed=9))
    close(both(arrays, mask), expected, 1e-5)


def test_rows_that_see_nothing_are_zero():
    arrays = operands(1, 1, 1, 40, 40, 8, 8)
    seen = np.ones((40, 40), bool)
    seen[[0, 3, 39]] = False
    for mask in (seen, np.where(seen, 0, -np.inf).astype("f4")):
        for x in both(arrays, mask)[:2]:
            assert (x[0, 0, [0, 3, 39]] == 0).all() and np.isfinite(x).all()


def test_lower_right_causal():
    lower_right = REGISTRY["private._attention_with_sums"].native
    for length, keys in ((5, 9), (9, 5), (40, 300)):
        arrays = operands(1, 2, 2, length, keys, 8, 8)
        found, _ = lower_right(*(torch.tensor(x) for x in arrays), causal="lower")
        close([found.numpy()], [reference(*arrays, offset=keys - length)], 1e-5)


def test_causal_masks_as_objects():
    q, k, v = (torch.tensor(x) for x in operands(1, 4, 2, 5, 9, 8, 8))
    for make, offset in ((causal_upper_left, 0), (causal_lower_right, 4)):
        mask = torch.ones(5, 9, dtype=torch.bool).tril(offset)
        found = attention(q, k, v, make(5, 9), enable_gqa=True)
        equal(found.numpy(), attention(q, k, v, mask, enable_gqa=True).numpy())
        with pytest.raises(NotImplementedError, match="only scaled_dot_product_attention"):
            make(5, 9) + 1
        with pytest.raises(ValueError, match="causal=True"):
            attention(q, k, v, make(5, 9), is_causal=True, enable_gqa=True)
    with pytest.warns(UserWarning, match="more"):
        causal_lower_right(3, 2)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 4e-2), ("float16", 6e-3)])
def test_halves(dtype, tolerance):
    kind = getattr(torch, dtype)
    for length in (3, 70):
        drawn = *operands(1, 4, 2, length, 200, 40, 40), draw(1, 4, length, 40, seed=9)
        *arrays, grad = (torch.tensor(x).to(kind).float().numpy() for x in drawn)
        expected = reference(*arrays, None, 0, grad)
        close(both(arrays, causal=True, dtype=kind), expected, tolerance)


def test_float64():
    arrays = operands(1, 2, 2, 40, 150, 20, 20, dtype="f8")
    tensors = [torch.tensor(x).requires_grad_() for x in arrays]
    out = attention(*tensors, is_causal=True)
    grad = draw(*out.shape, seed=9, dtype="f8")
    found = torch.autograd.grad(out, tensors, torch.tensor(grad))
    close([x.detach().numpy() for x in (out, *found)], reference(*arrays, None, 0, grad), 1e-13)


def test_gradient_of_a_mask_and_of_gradients():
    def function(q, k, v, mask):
        return attention(q, k, v, mask)

    shapes = (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 2), (3, 5)
    tensors = [
        torch.tensor(draw(*shape, seed=i, dtype="f8")).requires_grad_()
        for i, shape in enumerate(shapes)
    ]
    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


# ------------------------------------------------------------------------------- bits

CASES = {
    "plain": dict(heads=2, kept=2, length=70, keys=300),
    "causal": dict(heads=2, kept=2, length=150, keys=150, causal=True),
    "groups": dict(heads=4, kept=2, length=45, keys=1200, causal=True),
    "decode": dict(heads=4, kept=2, length=1, keys=3000),
}


def case(name, size=40):
    given = dict(CASES[name])
    causal = given.pop("causal", False)
    return operands(2, size=size, width=size, **given), causal


@pytest.mark.parametrize("name", CASES)
def test_threads(name):
    arrays, causal = case(name)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(both(arrays, causal=causal))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other):
            equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_eager(name):
    arrays, causal = case(name)

    def step(q, k, v):
        gqa = q.shape[1] != k.shape[1]
        out = attention(q * 1.5, k, v, is_causal=causal, enable_gqa=gqa).transpose(1, 2)
        return out.contiguous().sin()

    compiled, eager = ([torch.tensor(x).requires_grad_() for x in arrays] for _ in range(2))
    results = []
    for function, tensors in ((torch.compile(step), compiled), (step, eager)):
        out = function(*tensors)
        out.backward(torch.tensor(draw(*out.shape, seed=9)))
        results.append([out, *(x.grad for x in tensors)])
    for a, b in zip(*results):
        equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("size", [3, 64, 300])
def test_a_row_a_head_a_batch_alone(size):
    q, k, v = operands(2, 3, 3, 90, 1500, size, size)
    [whole] = both([q, k, v], grad=False)
    for row in (0, 41, 89):
        [one] = both([q[:1, 1:2, row : row + 1], k[:1, 1:2], v[:1, 1:2]], grad=False)
        equal(one, whole[:1, 1:2, row : row + 1])
    seed = draw(2, 3, 90, size)
    some = both([q[:, 2:], k[:, 2:], v[:, 2:]], seed=seed[:, 2:])
    for a, b in zip(some, both([q, k, v], seed=seed)):
        equal(a, b[:, 2:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("groups, size", [(3, 80), (4, 128), (5, 40), (14, 64)])
def test_heads_that_share_keys_are_heads_alone(groups, size, dtype):
    arrays = operands(1, 2 * groups, 2, 1, 1300, size, size)
    q, k, v = (torch.tensor(x).to(getattr(torch, dtype)) for x in arrays)
    whole = attention(q, k, v, enable_gqa=True).float().numpy()
    for head in (0, groups - 1, groups, 2 * groups - 1):
        shared = slice(head // groups, head // groups + 1)
        one = attention(q[:, head : head + 1], k[:, shared], v[:, shared])
        equal(one.float().numpy(), whole[:, head : head + 1])


def test_causal_row_is_a_row_over_its_own_keys():
    q, k, v = operands(1, 1, 1, 1100, 1100, 16, 16)
    [whole] = both([q, k, v], causal=True, grad=False)
    for row in (0, 127, 128, 777, 1099):
        [one] = both([q[:, :, row : row + 1], k[:, :, : row + 1], v[:, :, : row + 1]], grad=False)
        equal(one, whole[:, :, row : row + 1])
        mask = np.arange(1100)[None] <= row
        [one] = both([q[:, :, row : row + 1], k, v], mask, grad=False)
        equal(one, whole[:, :, row : row + 1])


def test_masks_of_one_meaning_have_one_result():
    arrays = operands(1, 2, 2, 200, 200, 16, 16)
    seen = np.tril(np.ones((200, 200), bool))
    expected = both(arrays, causal=True)
    for mask in (seen, np.where(seen, 0, -np.inf).astype("f4")):
        for a, b in zip(both(arrays, mask), expected):
            equal(a, b)


def test_strides_change_nothing():
    arrays = operands(2, 4, 4, 50, 130, 24, 24)
    expected = both(arrays, causal=True)
    tensors = []
    for x in arrays:
        packed = torch.zeros(2, x.shape[2], 3, 4, 24)
        packed[:, :, 1] = torch.tensor(x).transpose(1, 2)
        tensors.append(packed[:, :, 1].transpose(1, 2))
    assert not tensors[0].is_contiguous()
    equal(attention(*tensors, is_causal=True).numpy(), expected[0])
    every_second = [torch.tensor(np.repeat(x, 2, axis=3))[..., ::2] for x in arrays]
    equal(attention(*every_second, is_causal=True).numpy(), expected[0])


def test_few_heads_are_split_by_queries_and_keys(monkeypatch):
    from flambeau.compiler.schedule import attention as scheduled

    arrays = operands(1, 2, 1, 150, 300, 24, 24)
    expected = both(arrays, causal=True)
    many = scheduled.machine.current()._replace(cores=16)
    monkeypatch.setattr(scheduled.machine, "current", lambda: many)
    more = [np.concatenate([x] * 1, 0) for x in arrays]
    tensors = [torch.tensor(x).requires_grad_() for x in more]
    step = torch.compile(lambda q, k, v: attention(q, k, v, is_causal=True, enable_gqa=True) + 0)
    out = step(*tensors)
    out.backward(torch.tensor(draw(*out.shape, seed=9)))
    for a, b in zip((out, *(x.grad for x in tensors)), expected):
        equal(a.detach().numpy(), b)


# ------------------------------------------------------------------------------- memory, errors


@pytest.mark.usefixtures("no_garbage")
def test_memory_is_linear():
    def peak(length):
        tensors = [torch.randn(1, 2, length, 32).requires_grad_() for _ in range(3)]
        attention(*tensors).sum().backward()
        for x in tensors:
            x.grad = None
        runtime.reset_peak_memory_stats()
        before = runtime.memory_stats()["allocated_bytes.all.current"]
        attention(*tensors).sum().backward()
        return runtime.memory_stats()["allocated_bytes.all.peak"] - before

    assert peak(2048) < 4.5 * peak(512)


def test_groups_of_keys_and_of_values():
    q, k, v = (torch.from_numpy(x) for x in operands(2, 4, 4, 5, 6, 8, 8)[:3])
    for keys, values in ((2, 4), (1, 2), (4, 1)):
        found = attention(q, k[:, :keys], v[:, :values], enable_gqa=True)
        same = [x[:, :n].repeat_interleave(4 // n, 1) for x, n in ((k, keys), (v, values))]
        equal(found.numpy(), attention(q, *same).numpy())


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda q: attention(q, q, q.double()), "one dtype"),
        (lambda q: attention(q, q, q, torch.ones(3, 4)), "does not fit|must match"),
        (lambda q: attention(q[..., :3], q, q), "do not fit"),
        (lambda q: attention(q[0, 0, 0], q, q), "2 dimensions"),
        (lambda q: attention(q.int(), q.int(), q.int()), "not defined"),
        (lambda q: attention(q, q, q, torch.ones(4, 4, dtype=torch.int32)), "attn_mask dtype"),
        (lambda q: attention(q, q[:, :2], q[:, :2]), "does not fit|must match"),
        (lambda q: attention(q, q[:, :2], q[:, :2], enable_gqa=True), "must divide"),
        (lambda q: attention(q[0], q[0], q[0], torch.ones(4, 4), is_causal=True), "is_causal"),
    ],
)
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(torch.zeros(1, 3, 4, 8))


def test_scale_and_infinite_scores():
    arrays = operands(1, 1, 1, 20, 20, 8, 8)
    q, k, v = (torch.tensor(x) for x in arrays)
    found = attention(q, k, v, scale=0.0)
    mean = np.broadcast_to(arrays[2].mean(2, keepdims=True), (1, 1, 20, 8))
    np.testing.assert_allclose(found.numpy(), mean, atol=1e-6)
    assert math.isfinite(float(attention(q * 1e15, k * 1e15, v).sum()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_not_seen_may_be_anything(dtype):
    """Garbage behind the end of a cache, NaN and infinities included, changes no bits."""
    q, k, v = (
        torch.tensor(x).to(getattr(torch, dtype)) for x in operands(1, 2, 2, 300, 300, 20, 20)
    )
    odd_k, odd_v = k.clone(), v.clone()
    odd_k[:, :, 200:], odd_v[:, :, 200:], odd_v[:, :, 210] = math.nan, math.nan, math.inf
    clean = attention(q, k, v, is_causal=True)[:, :, :200].float().numpy()
    equal(attention(q, odd_k, odd_v, is_causal=True)[:, :, :200].float().numpy(), clean)
    mask = torch.ones(300, 300, dtype=torch.bool)
    mask[:, 200:] = False
    clean = attention(q, k, v, mask).float().numpy()
    equal(attention(q, odd_k, odd_v, mask).float().numpy(), clean)
    few = attention(q[:, :, 5:7], odd_k, odd_v, mask[5:7]).float().numpy()
    equal(few, clean[:, :, 5:7])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("keys", [3, 8, 9, 200])
def test_few_queries_have_the_bits_of_many(keys, dtype):
    """Queries of a vector, of a panel, and of tiles."""
    q, k, v = (torch.from_numpy(x) for x in operands(2, 3, 3, 40, keys, 16, 24, dtype))
    mask = torch.from_numpy(draw(40, keys, seed=7, dtype=dtype))
    expected, masked = attention(q, k, v).numpy(), attention(q, k, v, mask).numpy()
    for rows in (1, 2, 5, 7, 8, 9, 15, 16, 17):
        few = q[:, :, 3 : 3 + rows]
        equal(attention(few, k, v).numpy(), expected[:, :, 3 : 3 + rows])
        equal(attention(few, k, v, mask[3 : 3 + rows]).numpy(), masked[:, :, 3 : 3 + rows])
