"""`__torch_dispatch__`: modes below gradients, wrapper subclasses, what compiled functions do."""

from __future__ import annotations

import pickle

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau.utils import _pytree
from flambeau.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
)


class Names(TorchDispatchMode):
    def __init__(self):
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Held(torch.Tensor):
    """A wrapper around a tensor."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Held({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = _pytree.tree_map_only(cls, lambda x: x.held, (args, kwargs or {}))
        return _pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


def test_modes_see_the_backward():
    x = torch.ones(2, requires_grad=True)
    with Names() as mode:
        total = (x * 3).sum()
        forward = list(mode.seen)
        total.backward()
    assert forward == ["aten.mul.Tensor", "aten.sum.default"]
    assert len(mode.seen) > 2
    assert x.grad.tolist() == [3.0, 3.0]
    assert _get_current_dispatch_mode() is None


def test_gradients_are_those_without_a_mode():
    def total(x, w):
        return torch.softmax(torch.nn.functional.linear(x, w), -1).log().sum()

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    plain = torch.autograd.grad(total(x, w), (x, w))
    with Names():
        found = torch.autograd.grad(total(x, w), (x, w))
    for a, b in zip(plain, found, strict=True):
        torch.testing.assert_close(a, b)


def test_a_mode_may_change_what_is_computed():
    class Doubled(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * 2 if func is torch.ops.aten.add.Tensor else found

    with Doubled():
        assert (torch.ones(2) + 1).tolist() == [4.0, 4.0]
    assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]


def test_handlers_that_refuse():
    class Never(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="returned NotImplemented"), Never():
        torch.ones(2)
    with pytest.raises(RuntimeError, match="__torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(torch.Tensor, (2,))


def test_wrappers_have_no_memory_but_answer_for_it():
    x = Held(torch.ones(2, 3))
    assert str(x.device) == "cpu"
    assert x.is_cpu
    assert not x.is_meta
    assert not is_traceable_wrapper_subclass(x)
    with pytest.raises((RuntimeError, NotImplementedError)):
        x.tolist()
    assert (x + x).held.tolist() == [[2.0] * 3] * 2
    assert torch.cat([x, x]).held.shape == (4, 3)


def test_wrappers_are_pickled():
    x = Held(torch.arange(3.0))
    twin = pickle.loads(pickle.dumps(x))
    assert type(twin) is Held
    assert twin.held.tolist() == [0.0, 1.0, 2.0]
    assert (twin + 1).held.tolist() == [1.0, 2.0, 3.0]


def test_writes_to_tracked_wrappers():
    x = Held(torch.ones(2)).requires_grad_()
    y = (x * 2).add_(x)
    assert y.grad_fn.name() == "AddBackward0"
    y.sum().backward()
    assert x.grad.held.tolist() == [3.0, 3.0]
    with pytest.raises(NotImplementedError, match="no gradient under __torch_dispatch__"):
        (x * 2).atan2_(x).sum().backward()


def test_one_tracked_write_is_one_node():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    with Names() as mode:
        y = (x * 3).mul_(x)
        y.sum().backward()
    assert "aten.mul_.Tensor" in mode.seen
    assert x.grad.tolist() == [-6.0, 12.0]


def test_a_mode_sees_inner_operators():
    """The operators that PyTorch composes a layer of, forwards and backwards."""
    layer, x = torch.nn.Linear(3, 2), torch.ones(4, 3, requires_grad=True)
    target = torch.zeros(4).long()
    with Names() as mode:
        loss = torch.nn.functional.cross_entropy(torch.relu(layer(x)), target)
    forward = [name.split(".")[1] for name in mode.seen]
    chain = ["t", "addmm", "relu", "detach", "_log_softmax", "detach", "nll_loss_forward"]
    assert forward == chain
    with Names() as mode:
        loss.backward()
    backward = [name.split(".")[1] for name in mode.seen if "ones" not in name]
    data = ["nll_loss_backward", "detach", "_log_softmax_backward_data"]
    data += ["detach", "threshold_backward"]
    grads = ["t", "mm", "t", "mm", "t", "sum", "view", "detach", "detach", "t", "detach"]
    assert backward == [*data, *grads]


def test_a_mode_sees_what_users_ask_of_tensors():
    x = torch.ones(2, 3, requires_grad=True)
    with Names() as mode:
        y = torch.tensor([[1.0, 0.0, 2.0]] * 2)
        x.detach()
        y[0, 0].item()
        bool(y[0, 1])
        y.nonzero(as_tuple=True)
        y[y > 1] = torch.zeros(2)
        torch.equal(y, y)
        y.expand(1, 2, 3)
    inner = [name.split(".")[1] for name in mode.seen]
    read = ["select", "select", "_local_scalar_dense"]
    assert inner[:10] == ["lift_fresh", "detach", *read, *read, "nonzero", "unbind"]
    assert inner[-2:] == ["equal", "expand"]
    assert "index_put_" in inner


@pytest.mark.parametrize(
    ("function", "name", "node"),
    [
        (lambda x: F.relu6(x, inplace=True), "hardtanh_", "HardtanhBackward0"),
        (lambda x: F.selu_(x), "elu_", "EluBackward1"),
        (lambda x: F.elu_(x), "elu_", "EluBackward1"),
        (lambda x: F.leaky_relu_(x), "leaky_relu_", "LeakyReluBackward1"),
        (lambda x: F.hardswish(x, inplace=True), "hardswish_", "HardswishBackward0"),
        (lambda x: F.hardsigmoid(x, inplace=True), "hardsigmoid_", "HardsigmoidBackward0"),
        (lambda x: F.mish(x, inplace=True), "mish_", "MishBackward0"),
        (lambda x: F.rrelu_(x), "rrelu_with_noise_", "RreluWithNoiseBackward1"),
        (lambda x: F.dropout(x, inplace=True), "mul_", "MulBackward0"),
        (lambda x: F.alpha_dropout(x, 0.5, True, True), "add_", "AddBackward0"),
    ],
)
def test_functions_in_place_write_in_place(function, name, node):
    """No copy of the operand, PyTorch's operator under a mode, and its node of the graph."""
    x = torch.randn(5, requires_grad=True)
    y = x * 1
    address = y.data_ptr()
    assert function(y) is y
    assert y.grad_fn.name() == node
    assert y.data_ptr() == address
    (expected,) = torch.autograd.grad(y.sum(), x)
    if name not in ("mul_", "add_"):
        (found,) = torch.autograd.grad(function(x * 1).sum(), x)
        assert torch.equal(expected, found)
    with Names() as mode:
        function(torch.ones(5))
    assert [n.split(".")[1] for n in mode.seen][-1] == name
    assert "aten.copy_.default" not in mode.seen


def test_an_overload_that_is_named_is_the_one_that_is_seen():
    with Names() as mode:
        torch.ops.aten.add.Scalar(torch.ones(2), 1)
        torch.ones(2) + 1
    assert mode.seen[1::2] == ["aten.add.Scalar", "aten.add.Tensor"]


def test_views_of_a_mode_may_be_written():
    x = torch.ones(2, 3, requires_grad=True)
    with Names():
        y = x * 2
        y[0].mul_(3)
        y.sum().backward()
    assert x.grad.tolist() == [[6.0] * 3, [2.0] * 3]


def test_modes_and_wrappers_in_a_compiled_function():
    @torch.compile
    def scaled(x):
        return torch.relu(x) * 3

    plain = torch.tensor([-1.0, 2.0])
    wanted = scaled(plain).tolist()
    assert scaled(Held(plain)).held.tolist() == wanted
    with Names() as mode:
        assert scaled(plain).tolist() == wanted
    assert mode.seen == ["aten.relu.default", "aten.mul.Tensor"]


@pytest.mark.parametrize(
    ("make", "operators"),
    [
        (lambda p: torch.optim.SGD(p, 0.3), ["add_"]),
        (lambda p: torch.optim.SGD(p, 0.3, 0.9), ["mul_", "add_", "add_"]),
        (
            lambda p: torch.optim.SGD(p, 0.3, 0.9, 0.0, 0.1, True, maximize=True),
            ["neg", "add", "mul_", "add_", "add", "add_"],
        ),
        (
            lambda p: torch.optim.Adagrad(p, 0.3, weight_decay=0.1),
            ["add_", "_local_scalar_dense", "add", "addcmul_", "sqrt", "add_", "addcdiv_"],
        ),
        (
            lambda p: torch.optim.AdamW(p, 0.3),
            ["add_", "_local_scalar_dense", "mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div"]
            + ["add_", "addcdiv_"],
        ),
        (
            lambda p: torch.optim.RMSprop(p, 0.3),
            ["add_", "_local_scalar_dense", "mul_", "addcmul_", "sqrt", "add_", "addcdiv_"],
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mode_sees_the_parts_of_an_optimizer_step(make, operators, dtype):
    """PyTorch's operators; of SGD and Adagrad the same bits as without the mode."""
    results = []
    for seen in (False, True):
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(50, dtype=dtype))
        optimizer = make([p])
        for _ in range(4):
            p.grad = torch.randn(50, dtype=dtype)
            if not seen:
                optimizer.step()
                continue
            with Names() as mode:
                optimizer.step()
        results.append(p.detach().clone())
    assert [name.split(".")[1] for name in mode.seen] == operators
    if isinstance(optimizer, (torch.optim.SGD, torch.optim.Adagrad)):
        assert torch.equal(*results)
    else:
        torch.testing.assert_close(*results)
