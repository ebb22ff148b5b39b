"""`cond`, `while_loop`, `scan`, `map`, `associative_scan`, and fake quantization."""

from __future__ import annotations

import pickle

import pytest

import flambeau as torch
from tests.core.control_flow_programs import PAIRS, X, derivatives, same

hops = torch._higher_order_ops


def test_cond_and_its_gradient():
    x = torch.arange(3.0, requires_grad=True)
    for pred, factor in ((torch.tensor(True), 2.0), (False, 3.0)):
        y = torch.cond(pred, lambda a: a * 2, lambda a: a * 3, (x,))
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), factor))
    compiled = torch.compile(
        lambda a: torch.cond(a.sum() > 1, lambda b: b.sin(), lambda b: b.cos(), (a,))
    )
    for value in (torch.zeros(2), torch.ones(2)):
        expected = value.sin() if value.sum() > 1 else value.cos()
        assert torch.equal(compiled(value), expected)


@pytest.mark.parametrize("pred", ["a", torch.ones(2) > 0, None])
def test_conditions_are_one_truth_value(pred):
    with pytest.raises(RuntimeError, match="Expected pred to be bool or"):
        torch.cond(pred, lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="callable"):
        torch.while_loop(1, 2, (3,))


def test_while_loop():
    last, x = torch.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2))
    )
    assert last == 3 and torch.equal(x, torch.full((2,), 8.0))


def test_scan_and_map():
    x = torch.arange(4.0)
    total, products = hops.scan(lambda c, v: (c + v, c * v), torch.zeros(()), x)
    assert total == 6 and torch.equal(products, torch.tensor([0.0, 0.0, 2.0, 9.0]))
    total, order = hops.scan(lambda c, v: (c * 2 + v, c), torch.zeros(()), x, reverse=True)
    assert total == 3 * 8 + 2 * 4 + 2 and order[-1] == 0
    rows = hops.map(lambda v, y: v + y, x, torch.ones(2))
    assert torch.equal(rows, x[:, None] + torch.ones(2))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(length, reverse):
    x = torch.randint(-5, 5, (2, length))
    sums = hops.associative_scan(lambda a, b: a + b, x, 1, reverse=reverse)
    expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
    assert torch.equal(sums, expected)
    first = hops.associative_scan(
        lambda a, b: {"last": b["last"], "least": torch.minimum(a["least"], b["least"])},
        {"last": x, "least": x}, 1, combine_mode="generic",
    )  # fmt: skip
    assert torch.equal(first["least"], x.cummin(1).values) and torch.equal(first["last"], x)


@pytest.mark.parametrize("name", PAIRS)
def test_derivatives_are_those_of_python(name):
    operator, plain = PAIRS[name]
    for x in (X, -X):
        expected = derivatives(plain, x)
        assert same(derivatives(operator, x), expected)
        for orders in (1, 2):
            compiled = torch.compile(operator, fullgraph=True)
            for _ in range(2):
                found = derivatives(compiled, x, orders)
                assert same(found, expected[: len(found)])


def test_outputs_of_a_scan_are_stacked_along_its_axis():
    x = torch.arange(6.0).reshape(2, 3)
    last, products = hops.scan(lambda c, v: (c + v, c * v), torch.zeros(2), x, dim=-1)
    assert torch.equal(last, x.sum(1))
    assert torch.equal(products, torch.tensor([[0.0, 0, 2], [0, 12, 35]]))


def test_a_generic_function_gets_slices():
    x = torch.randn(5, 3, 3, dtype=torch.float64)
    found = hops.associative_scan(lambda a, b: a @ b, x, 0, combine_mode="generic")
    expected = [x[0]]
    for row in x[1:]:
        expected.append(expected[-1] @ row)
    assert torch.allclose(found, torch.stack(expected))
    turned = hops.associative_scan(lambda a, b: a.flip(0).flip(0) + b, x, 1, combine_mode="generic")
    assert torch.allclose(turned, x.cumsum(1))


ops = torch.ops.higher_order


def test_operators_take_flat_sequences():
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(ops.cond(torch.tensor(False), lambda a: a + 1, lambda a: a, (x,)), x)
    last, powers = ops.while_loop(
        lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * b), (torch.tensor(0), x),
        (torch.full((3,), 2.0),),
    )  # fmt: skip
    assert last == 3 and torch.equal(powers, x * 8)
    carry, output = ops.scan(
        lambda c, v, k: [c + v * k, c * v], [torch.zeros(3)], [x], (torch.tensor(2.0),)
    )
    assert torch.equal(carry, x.sum(0) * 2) and torch.equal(output[1], x[0] * 2 * x[1])
    (sums,) = ops.associative_scan(lambda a, b: [a + b], [x], ())
    assert torch.equal(sums, x.cumsum(0))
    (rows,) = ops.map_impl(lambda a, b: (a * b,), [x], [torch.full((3,), 2.0)])
    assert torch.equal(rows, x * 2)
    assert torch.equal(ops.invoke_subgraph(lambda a: (a + 1,), "id", x)[0], x + 1)
    assert (ops.scan.name(), str(ops.map_impl)) == ("scan", "map_impl")
    assert pickle.loads(pickle.dumps(ops.cond)) is ops.cond
    assert not hasattr(ops, "absent")


def test_conditions_that_differ_between_samples():
    def f(x):
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))

    batch = torch.stack([X, -X, X * 2])
    assert torch.equal(torch.vmap(f)(batch), torch.stack([f(x) for x in batch]))
    total = torch.func.grad(lambda x: f(x).sum())
    assert torch.equal(torch.vmap(total)(batch), torch.stack([total(x) for x in batch]))
    shared = torch.vmap(lambda x: torch.cond(X.sum() > 0, torch.sin, torch.cos, (x,)))
    assert torch.equal(shared(batch), batch.sin() if X.sum() > 0 else batch.cos())


HALF = torch.zeros(2)
Uncaptured = torch._dynamo.exc.UncapturedHigherOrderOpError
FAILURES = {
    "operands of cond": (lambda: torch.cond(True, torch.sin, torch.cos, X), RuntimeError,
                         "Expect operands to be a tuple of possibly nested"),
    "numbers for cond": (lambda: torch.cond(True, torch.sin, torch.cos, (3,)), RuntimeError,
                         "only consists of tensor leaves"),
    "a tensor for while_loop": (lambda: torch.while_loop(bool, abs, X), RuntimeError,
                                "Expect carried_inputs to be a tuple"),
    "shapes of while_loop": (lambda: torch.while_loop(lambda x: True, lambda x: x[0], (X,)),
                             Uncaptured, "carried_inputs to have same metadata"),
    "no function for scan": (lambda: hops.scan(3, HALF, X), RuntimeError, "must be a callable"),
    "reverse": (lambda: hops.scan(abs, HALF, X, reverse=1), RuntimeError, "must be a bool"),
    "no carry": (lambda: hops.scan(abs, [], X), RuntimeError, "requires init leaves"),
    "no xs": (lambda: hops.scan(abs, HALF, []), RuntimeError, "at least 1 xs leaf"),
    "numbers as xs": (lambda: hops.scan(abs, HALF, 3), RuntimeError, "only consist of tensors"),
    "axis": (lambda: hops.scan(min, HALF, X, dim=5), IndexError, "Dimension out of range"),
    "empty": (lambda: hops.scan(min, HALF, X[:0]), RuntimeError, "scan dimension > 0"),
    "one result": (lambda: hops.scan(lambda c, v: c, HALF, X), Uncaptured, "next_carry, y"),
    "carry": (lambda: hops.scan(lambda c, v: (v, v), HALF, X), Uncaptured, "same metadata"),
    "map of numbers": (lambda: hops.map(abs, 3), RuntimeError, "xs can only consist of tensors"),
    "map of nothing": (lambda: hops.map(abs, X[:0]), RuntimeError, "cannot be 0"),
    "lengths": (lambda: hops.map(abs, (X, HALF)), RuntimeError, "must be consistent"),
    "results of map": (lambda: hops.map(lambda v: 3, X), Uncaptured, "returns"),
    "no function": (lambda: hops.associative_scan(3, X, 0), ValueError, "must be a callable"),
    "mode": (lambda: hops.associative_scan(abs, X, 0, combine_mode="a"), ValueError, "generic"),
    "differing lengths": (lambda: hops.associative_scan(abs, (X, HALF), 0), ValueError, "lengths"),
    "another dtype": (lambda: hops.associative_scan(lambda a, b: (a + b).long(), X, 0),
                      Uncaptured, "same metadata"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_errors(name):
    call, kind, text = FAILURES[name]
    with pytest.raises(kind, match=text):
        call()


def test_fake_quantization():
    x = (torch.randn(100) * 3).requires_grad_()
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
    whole = torch.round(x * (1 / torch.tensor(0.1))) + 3
    assert torch.equal(y, (whole.clamp(0, 15) - 3) * torch.tensor(0.1))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, ((whole >= 0) & (whole <= 15)).float())
    w = torch.randn(3, 5)
    scale, zero = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2], dtype=torch.int32)
    rows = torch.fake_quantize_per_channel_affine(w, scale, zero, 0, 0, 15)
    for row, s, z, whole_row in zip(w, scale, zero, rows, strict=True):
        assert torch.equal(torch.fake_quantize_per_tensor_affine(row, s, z, 0, 15), whole_row)
    with pytest.raises(RuntimeError, match="zero_point"):
        torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)
    with pytest.raises(RuntimeError, match="Zero-point must be Int32"):
        torch.fake_quantize_per_channel_affine(w, scale, zero.long(), 0, 0, 15)
    with pytest.raises(NotImplementedError):
        torch.fake_quantize_per_tensor_affine(x.detach().int(), 0.1, 0, 0, 255)
