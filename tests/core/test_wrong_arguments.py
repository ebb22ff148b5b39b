"""Calls that PyTorch refuses: no tensors, no sizes, outputs that may not change."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import graph
from flambeau.func import functional_call

NO_TENSORS = [None, "a", 3, 1.5, True, [], (2, 3), object()]


@pytest.mark.parametrize("value", NO_TENSORS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", ["empty_like", "nonzero", "numel", "argwhere", "is_nonzero"])
def test_operators_in_python_want_tensors(name, value):
    """They raised AttributeError, of whatever the body asked first."""
    with pytest.raises(TypeError, match="Tensor, not"):
        getattr(torch, name)(value)


@pytest.mark.parametrize("size", [(), (1.5,), (True,), ("a",), (None,)])
def test_sizes_of_empty_are_integers(size):
    for function in (torch.empty, torch.ones(2).new_empty):
        with pytest.raises(TypeError, match="size"):
            function(*size)


def test_sizes_of_empty_that_are_taken():
    sizes = [((),), ([2],), (2, 1), (torch.tensor(2),), (np.int64(2),), (torch.Size([2, 0]),)]
    shapes = [tuple(torch.empty(*size).shape) for size in sizes]
    assert shapes == [(), (2,), (2, 1), (2,), (2,), (2, 0)]


def test_functions_without_operands():
    for arguments in ((), ("ij",)):
        with pytest.raises((TypeError, ValueError)):
            torch.einsum(*arguments)
    with pytest.raises(TypeError):
        torch.chain_matmul(3)
    with pytest.raises(TypeError):
        torch.range(3)
    assert torch.broadcast_tensors() == ()


@pytest.mark.parametrize("name", ["sort", "argsort", "msort"])
def test_complex_numbers_are_not_sorted(name):
    with pytest.raises(RuntimeError, match="does not support complex dtypes") as caught:
        getattr(torch, name)(torch.tensor([1j, 2]))
    assert caught.type is RuntimeError


def test_out_of_inference_mode():
    with torch.inference_mode():
        x = torch.ones(2)
        torch.add(x, 1, out=x)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        torch.add(x, 1, out=x)
    assert x.tolist() == [2.0, 2.0]


def test_hooks_of_tensors_without_gradients():
    with pytest.raises(AssertionError, match="Expected gradient function"):
        graph.register_multi_grad_hook([torch.ones(1)], print)


class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.ones(1)

    def forward(self, x):
        return x + self.shift + getattr(self, "more", 0)


def test_functional_call_replaces_any_tensor():
    """Also attributes, and ones that the module does not have: for the call."""
    net, x, two = Shifted(), torch.zeros(1), torch.tensor([2.0])
    assert functional_call(net, {"shift": two, "more": two}, (x,)).item() == 4.0
    assert net(x).item() == 1.0
    assert not hasattr(net, "more")
    with pytest.raises(RuntimeError, match="Unexpected key.*'more'"):
        functional_call(net, {"more": two}, (x,), strict=True)
    with pytest.raises(KeyError, match="empty"):
        functional_call(net, {"": two}, (x,))
    with pytest.raises(TypeError, match="is not an instance of torch.Tensor"):
        functional_call(net, {"forward": two}, (x,))
    with pytest.raises(ValueError, match="to be a dict"):
        functional_call(net, 3, (x,))
