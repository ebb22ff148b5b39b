"""The smallest set of things any build or back end must do; runs in seconds, reads in minutes."""

from __future__ import annotations

import math

import pytest

import flambeau as torch

nn, F = torch.nn, torch.nn.functional


def test_arithmetic():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert (x * 2 + 1).tolist() == [3.0, 5.0, 7.0]
    assert (1 / x).sum().item() == pytest.approx(1 + 1 / 2 + 1 / 3)
    assert x.exp().log().tolist() == pytest.approx([1.0, 2.0, 3.0])


def test_creation_and_printing():
    assert torch.arange(3).tolist() == [0, 1, 2]
    assert torch.zeros(2, 3).shape == (2, 3)
    assert repr(torch.ones(2)) == "tensor([1., 1.])"


def test_promotion():
    assert (torch.ones(2, dtype=torch.int64) + 0.5).dtype == torch.float32
    assert (torch.ones(2, dtype=torch.bfloat16) + torch.ones(2)).dtype == torch.float32
    assert (torch.ones(2, dtype=torch.int64) / 2).dtype == torch.float32


def test_broadcast_and_views():
    x = torch.arange(6.0).reshape(2, 3)
    assert (x + torch.tensor([10.0, 20.0, 30.0])).tolist() == [[10, 21, 32], [13, 24, 35]]
    x.T[0, 1] = 9.0  # writes through the view
    assert x[1, 0].item() == 9.0
    assert x[:, 1:].tolist() == [[1, 2], [4, 5]]


def test_indexing():
    x = torch.arange(5.0)
    assert x[torch.tensor([0, 3])].tolist() == [0, 3]
    assert x[x > 2].tolist() == [3, 4]
    x[x > 2] = 0
    assert x.tolist() == [0, 1, 2, 0, 0]


def test_reductions():
    x = torch.tensor([[1.0, 5.0], [4.0, 2.0]])
    assert x.sum().item() == 12 and x.mean(0).tolist() == [2.5, 3.5]
    assert x.max(1).indices.tolist() == [1, 0]
    assert x.argmax().item() == 1


def test_matmul():
    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
    assert (a @ b).tolist() == [[20, 23, 26, 29], [56, 68, 80, 92]]


def test_softmax():
    rows = F.softmax(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), -1)
    assert rows[1].tolist() == [0.5, 0.5]
    assert rows[0, 1].item() == pytest.approx(1 / (1 + math.exp(-1)), rel=1e-6)


def test_empty_and_zero_dim():
    assert torch.zeros(0, 3).sum().item() == 0
    assert (torch.tensor(2.0) * torch.tensor(3.0)).shape == ()


def test_backward():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x**3).sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]


def test_double_backward():
    x = torch.tensor(2.0, requires_grad=True)
    (first,) = torch.autograd.grad(x**3, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert (first.item(), second.item()) == (12.0, 12.0)


def test_no_grad():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_inplace_is_checked():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError):
        y.sum().backward()


def test_random_numbers_follow_the_seed():
    torch.manual_seed(7)
    first = torch.randn(5)
    torch.manual_seed(7)
    assert torch.equal(first, torch.randn(5))


def test_error_names_the_operator():
    with pytest.raises(RuntimeError, match=r"(?s)^\[matmul\].*hint: "):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_training():
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_compiled_equals_eager():
    def f(x, w):
        return F.gelu(F.layer_norm(x @ w, (8,))).sum(-1)

    x, w = torch.randn(5, 4), torch.randn(4, 8)
    compiled = torch.compile(f)
    assert torch.equal(f(x, w), compiled(x, w))
    assert torch.equal(f(x, w), compiled(x, w))


def test_compiled_training_step_equals_eager():
    def losses(wrap):
        torch.manual_seed(1)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        x = torch.randn(6, 4)

        def step():
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        return [run().item() for _ in range(4)]

    assert losses(torch.compile) == losses(lambda f: f)


def test_control_flow_in_compiled_function():
    @torch.compile
    def f(x):
        return x * 2 if x.sum() > 0 else x - 1

    assert f(torch.ones(2)).tolist() == [2.0, 2.0]
    assert f(-torch.ones(2)).tolist() == [-2.0, -2.0]
