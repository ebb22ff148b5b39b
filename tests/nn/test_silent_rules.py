"""Rules that are easy to get silently wrong: copies, hooks, padding, names, beside PyTorch's."""

from __future__ import annotations

import copy
import warnings

import pytest

import flambeau as torch
from flambeau import nn


def test_copies_of_parameters_drop_gradients_and_attributes() -> None:
    p = nn.Parameter(torch.ones(2))
    p.grad, p.tag = torch.ones(2), 1
    twin = copy.deepcopy(p)
    assert twin.grad is None and not hasattr(twin, "tag") and twin.requires_grad
    tensor = torch.ones(2, requires_grad=True)
    tensor.grad = torch.ones(2)
    assert copy.deepcopy(tensor).grad is not None


def test_step_hooks_see_the_optimizer_among_the_arguments() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    seen: list[tuple] = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append((args, kwargs)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append((args, kwargs)))
    optimizer.step()
    assert seen == [((optimizer,), {})] * 2


def test_groups_of_an_optimizer_are_apart() -> None:
    parameters = [{"params": [nn.Parameter(torch.ones(1))]} for _ in range(2)]
    assert "\n\nParameter Group 1\n" in repr(torch.optim.SGD(parameters, lr=0.1))


def test_padded_positions_are_zeros_in_evaluation() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False, False, True], [False, True, True]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = encoder(x, src_key_padding_mask=padding)
        assert torch.equal((out == 0).all(-1), padding)
        assert not (encoder(x, src_key_padding_mask=padding.flip(1)) == 0).all(-1).any()
        masked = encoder(x, mask=torch.zeros(3, 3), src_key_padding_mask=padding)
        assert not (masked == 0).all(-1).any()
    assert not (encoder(x, src_key_padding_mask=padding) == 0).all(-1).any()


def test_backward_hooks_without_gradients_of_inputs_warn() -> None:
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda module, inputs, outputs: None)
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        layer(torch.ones(1, 2)).sum().backward()


def test_names_of_nodes() -> None:
    x = torch.ones(3, requires_grad=True)
    assert (x * 2).grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"
    y = x * 1
    y[0] = 2
    assert y.grad_fn.name() == "torch::autograd::CopySlices" and "=<CopySlices>" in repr(y)
    (g,) = torch.autograd.grad((x**2).sum(), x, create_graph=True)
    assert type(g.grad_fn).__name__ == "MulBackward0"
    assert type(torch.fft.rfft(x).grad_fn).__name__ == "FftR2CBackward0"
    assert "_saved_tensors" not in dir(y.exp().grad_fn)


def test_hooks_and_hashes_of_tensors() -> None:
    x = torch.ones(1, requires_grad=True)
    assert x._backward_hooks is None and hash(x) == id(x)
    x.register_hook(print)
    assert list(x._backward_hooks.values()) == [print]


def test_arguments_that_were_refused_or_accepted() -> None:
    x = torch.ones(2)
    assert x.expand(3, 2, implicit=False).shape == (3, 2)
    assert x.clone().copy_(other=x + 1).tolist() == [2.0, 2.0]
    assert torch.view_copy(x, dtype=torch.int32).tolist() == [1065353216] * 2
    for call in (lambda: torch.set_grad_enabled("x"), lambda: x.sum(dim="x")):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(RuntimeError, match="accelerator"):
        x.to(5)
    with pytest.raises(AttributeError):
        nn.Parameter(3)
    (zeros,) = torch.autograd.grad(
        x.requires_grad_().sum(), torch.ones(1, requires_grad=True),
        allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    assert not zeros.requires_grad
