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


@pytest.mark.parametrize("compiled", [False, True])
def test_ctc_loss_has_first_derivatives_alone(compiled):
    def loss(x):
        lengths = torch.tensor([5]), torch.tensor([2])
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2]]), *lengths)

    call = torch.compile(loss) if compiled else loss
    torch.manual_seed(0)
    x = torch.randn(5, 1, 4, dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(loss(x), x)
    (grad,) = torch.autograd.grad(call(x), x, create_graph=True)
    assert grad.tolist() == plain.tolist()
    with pytest.raises(RuntimeError, match="derivative for .*Ctc.* is not implemented"):
        grad.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="derivative for .*Ctc.* is not implemented"):
        torch.autograd.grad(grad.sum(), x)
    with pytest.raises(RuntimeError, match="derivative for .*Ctc.* is not implemented"):
        gradgradcheck(loss, x)
