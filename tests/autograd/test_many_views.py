"""Gradients of operations with more results than the usual call has arguments."""

import pytest

import flambeau as torch


@pytest.mark.parametrize("count", [46, 47, 48, 49, 200])
def test_gradient_through_many_pieces(count):
    x = torch.randn(count, 3, requires_grad=True)
    scales = [float(i) for i in range(count)]
    total = sum((piece * s).sum() for piece, s in zip(x.unbind(0), scales))
    [unbound] = torch.autograd.grad(total, x)
    [split] = torch.autograd.grad(torch.stack([p * s for p, s in zip(x.split(1), scales)]).sum(), x)
    wanted = torch.tensor(scales).unsqueeze(1).expand(count, 3)
    assert torch.equal(unbound, wanted) and torch.equal(split, wanted)


def test_a_long_sequence_trains():
    layer = torch.nn.LSTM(3, 4)
    layer(torch.randn(64, 2, 3))[0].sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in layer.parameters())


def test_results_of_operands_without_gradient() -> None:
    """What does not depend on an operand that requires a gradient has no history."""
    a, b = torch.ones(2, 1, requires_grad=True), torch.ones(1, 3)
    v, w = torch.ones(2, requires_grad=True), torch.ones(3)
    matrix = torch.eye(2, requires_grad=True)
    factors = torch.linalg.lu_factor(matrix)
    results = {
        "broadcast_tensors": torch.broadcast_tensors(a, b),
        "meshgrid": torch.meshgrid(v, w, indexing="xy"),
        "lu": torch.linalg.lu(matrix)[::-1],
        "lu_unpack": torch.lu_unpack(*factors)[::-1],
        "compiled": torch.compile(torch.broadcast_tensors)(a, b),
    }
    for name, parts in results.items():
        assert parts[0].requires_grad and not parts[-1].requires_grad, name
        assert parts[-1].grad_fn is None
    first, second = torch.broadcast_tensors(a, b)
    (first * second).sum().backward()
    assert a.grad.tolist() == [[3.0], [3.0]] and b.grad is None
    means = torch.native_group_norm(torch.ones(2, 2), v, torch.ones(2), 2, 2, 1, 1, 1e-5)
    assert all(x.requires_grad for x in means)  # one node, as in PyTorch
