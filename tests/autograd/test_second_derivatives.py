"""Operations whose backward reads saved intermediate values must be differentiable twice."""

import pytest

import flambeau as torch
from flambeau.autograd import gradgradcheck

FUNCTIONS = {
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(0) * x,
    "std": lambda x: x.std() * x,
    "var": lambda x: x.var() * x,
    "norm": lambda x: x.norm() * x,
    "mean": lambda x: x.mean() * x * x,
    "maximum": lambda x: x.max() * x * x,
    "tanh": lambda x: x.tanh(),
    "in place": lambda x: (x * x).mul_(x.exp()),
    "in place, own value": lambda x: (x * 1).mul_(x),
    "matmul": lambda x: (x.unsqueeze(0) @ x.unsqueeze(1)).reshape(()) * x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_finite_differences(name):
    x = torch.tensor([0.3, 1.2, -0.7], dtype=torch.float64).requires_grad_()
    assert gradgradcheck(FUNCTIONS[name], x)
