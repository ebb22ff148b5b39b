"""Hooks of tensors and nodes, saved tensor hooks, anomaly mode."""

import math
import warnings

import pytest

import flambeau as torch
from flambeau import autograd
from flambeau.autograd import graph


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64).requires_grad_()


def test_tensor_hooks_run_in_order_and_may_replace():
    x = leaf(1, 2)
    y = x * 2
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    assert seen == [[1, 1], [20, 20], [20, 20]]
    assert x.grad.tolist() == [40, 40]


def test_order_of_all_kinds():
    y = leaf(1.0) * 2
    log = []
    y.register_hook(lambda g: log.append("tensor 1"))
    y.grad_fn.register_prehook(lambda g: log.append("node before"))
    y.retain_grad()
    y.register_hook(lambda g: (log.append("tensor 2"), g * 2)[1])
    y.grad_fn.register_hook(lambda inputs, outputs: log.append("node after"))
    (y * 1).sum().backward()
    assert log == ["tensor 1", "tensor 2", "node before", "node after"]
    assert y.grad.tolist() == [2]


@pytest.mark.parametrize(
    ("layer", "shape", "order"),
    [
        (torch.nn.Linear(2, 2), (3, 2), ["bias", "x", "weight"]),
        (torch.nn.Linear(2, 2), (3, 1, 2), ["bias", "weight", "x"]),
        (torch.nn.RMSNorm(2), (3, 2), ["weight", "x"]),
        (torch.nn.LayerNorm(2), (3, 2), ["x", "weight", "bias"]),
        (torch.nn.Conv1d(2, 2, 1), (1, 2, 3), ["x", "weight", "bias"]),
    ],
)
@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_leaves_of_a_layer_in_the_order_of_its_inner_operators(layer, shape, order, kind):
    """PyTorch's order: `linear` is `addmm` of a transposed weight, which comes later."""
    x, seen = torch.ones(shape, requires_grad=True), []
    leaves = {**dict(layer.named_parameters()), "x": x}
    handles = [
        getattr(p, kind)(lambda _, name=name: seen.append(name)) for name, p in leaves.items()
    ]
    layer(x).sum().backward()
    for handle in handles:
        handle.remove()
    assert seen == order


def test_node_hooks_see_and_replace_tuples():
    x = leaf(1, 2)
    y = x * 2
    seen = []
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 2,))
    y.grad_fn.register_hook(
        lambda inputs, outputs: seen.append((inputs[0].tolist(), outputs[0].tolist()))
    )
    handle = y.grad_fn.register_hook(
        lambda inputs, outputs: tuple(g if g is None else g * 3 for g in inputs)
    )
    y.sum().backward()
    assert y.grad_fn.next_functions[1] == (None, 0)  # the number
    assert seen == [([4, 4], [2, 2])]
    assert x.grad.tolist() == [12, 12]
    handle.remove()


@pytest.mark.parametrize(
    ("hook", "error", "message"),
    [
        (lambda g: 3, TypeError, "hook returned 'int'"),
        (lambda g: g.sum(), RuntimeError, "has changed the size of value"),
        (lambda g: g.float(), RuntimeError, "has changed the type of value"),
    ],
)
def test_bad_hook_results(hook, error, message):
    x = leaf(1, 2)
    x.register_hook(hook)
    with pytest.raises(error, match=message):
        x.sum().backward()


def test_hooks_need_a_gradient():
    plain = torch.tensor([1.0])
    with pytest.raises(RuntimeError, match="cannot register a hook"):
        plain.register_hook(print)
    with pytest.raises(RuntimeError, match="can't retain_grad"):
        plain.retain_grad()


def test_errors_in_hooks_are_passed_on_and_leave_the_engine_usable():
    x = leaf(1, 2)
    y = x * 2

    def fail(grad):
        raise ValueError("mine")

    handle = y.register_hook(fail)
    with pytest.raises(ValueError, match="mine"):
        y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert torch.is_grad_enabled()


def test_retained_gradients_follow_in_place_writes():
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    assert y.retains_grad
    y.mul_(3)
    (y * 2).sum().backward()
    assert y.grad.tolist() == [2, 2]
    assert x.grad.tolist() == [12, 12]


def test_post_accumulate_hooks():
    x = leaf(1, 2)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 2).sum().backward()
    assert seen == [[2, 2]]
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_captured_gradients_pass_tensor_hooks():
    y = leaf(1, 2) * 2
    y.register_hook(lambda g: g * 5)
    assert autograd.grad(y.sum(), y)[0].tolist() == [5, 5]


def test_multi_grad_hooks():
    x = leaf(1, 2)
    a, b = x * 2, x * 3
    seen, first = [], []
    graph.register_multi_grad_hook([a, b], lambda gs: seen.append([g.tolist() for g in gs]))
    graph.register_multi_grad_hook([a, b], lambda g: first.append(g.tolist()), mode="any")
    (a.sum() + b.sum() * 2).backward()
    assert seen == [[[1, 1], [2, 2]]]
    assert len(first) == 1


def test_callbacks_after_backward():
    x = leaf(1, 2)
    log = []
    queue = autograd.Variable._execution_engine.queue_callback
    x.register_hook(lambda g: queue(lambda: log.append(x.grad.tolist())))
    x.sum().backward()
    assert log == [[1, 1]]
    with pytest.raises(RuntimeError, match="during backward pass"):
        queue(print)


def test_saved_tensor_hooks():
    x = leaf(1, 2)
    log = []

    def pack(tensor):
        log.append("pack")
        return tensor.tolist()

    def unpack(values):
        log.append("unpack")
        return torch.tensor(values, dtype=torch.float64)

    with graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).sum()
    y.backward()
    assert log == ["pack", "pack", "unpack", "unpack"]
    assert x.grad.tolist() == [2, 4]


def test_saved_tensor_hooks_and_double_backward():
    x = leaf(0.0, 1.0)
    with graph.save_on_cpu():
        y = x.exp() * x
    first = autograd.grad(y.sum(), x, create_graph=True)[0]
    second = autograd.grad(first.sum(), x)[0]
    expected = (x.exp() * (x + 2)).tolist()
    assert second.tolist() == pytest.approx(expected)


def test_saved_tensor_hooks_refuse():
    x = leaf(1, 2)
    with (
        pytest.raises(RuntimeError, match="modifying its input"),
        graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t),
    ):
        x * 1.0 * x
    with graph.saved_tensors_hooks(lambda t: 3, lambda t: t):
        y = (x * x).sum()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        y.backward()
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass


def test_mutation_of_saved_tensors_can_be_allowed():
    x = leaf(1, 2)
    with graph.allow_mutation_on_saved_tensors():
        y = x * 2
        z = y * y
        y.add_(1)
    z.sum().backward()
    assert x.grad.tolist() == [8, 16]


def test_anomaly_mode_names_the_line():
    x = leaf(-1.0, 2.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with (
            pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan values in its 0th"),
            autograd.detect_anomaly(),
        ):
            y = x.sqrt().sum()  # the culprit
            y.backward()
    assert any("# the culprit" in str(w.message) for w in caught)
    assert not autograd.anomaly.is_anomaly_enabled()


def test_anomaly_mode_names_the_line_of_functions_of_the_user():
    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.nan

    x = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning) as caught, autograd.detect_anomaly():
        y = Wrong.apply(x)  # the line
        with pytest.raises(RuntimeError, match="'WrongBackward' returned nan values"):
            y.sum().backward()
    assert "y = Wrong.apply(x)  # the line" in str(caught[-1].message)
    y = Wrong.apply(x)
    assert not y.grad_fn.metadata


def test_anomaly_mode_on_exceptions():
    class Fails(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("mine")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="mine"), autograd.set_detect_anomaly(True):
            Fails.apply(leaf(1, 2)).sum().backward()
    assert any("Error detected in FailsBackward" in str(w.message) for w in caught)
