"""The engine: what backward and grad compute, and what they refuse."""

import gc
import threading
import weakref

import pytest

import flambeau as torch
from flambeau import autograd


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64).requires_grad_()


def test_gradients_accumulate_in_leaves():
    x = leaf(1, 2, 3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8, 12]
    assert not x.grad.requires_grad


def test_first_gradient_is_not_shared_with_anyone():
    x, w = leaf(1, 2), leaf(3, 4)
    (x + w).sum().backward()
    x.grad.add_(1)
    assert x.grad.tolist() == [2, 2]
    assert w.grad.tolist() == [1, 1]
    given = torch.tensor([1.0, 1.0], dtype=torch.float64)
    z = leaf(1, 2)
    z.backward(given)
    z.grad.add_(1)
    assert given.tolist() == [1, 1]


def test_later_gradients_are_added_in_place():
    x = leaf(1, 2)
    (x * 2).sum().backward()
    first = x.grad
    (x * 2).sum().backward()
    assert x.grad is first
    assert first.tolist() == [4, 4]


def test_create_graph_keeps_history_in_grad():
    x = leaf(1, 2, 3)
    (x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad


def test_second_backward_needs_retain_graph():
    y = (leaf(1, 2) * leaf(3, 4)).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_graph_without_saved_tensors_can_be_reused():
    x = leaf(1, 2)
    y = (x + x).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: (x * x).backward(), "grad can be implicitly created only for scalar outputs"),
        (lambda x: (x * x).backward(torch.ones(2).double()), "Mismatch in shape: grad_output"),
        (lambda x: x.detach().sum().backward(), "element 0 of tensors does not require grad"),
        (lambda x: autograd.grad((x * x).sum(), [x, leaf(1)]), "Tensor at index 1 appears to not"),
        (lambda x: autograd.grad((x * x).sum(), [x.detach()]), "does not require grad"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(leaf(1, 2, 3))


def test_grad_of_unused_inputs():
    x, z = leaf(1, 2, 3), leaf(1)
    found = autograd.grad((x * x).sum(), [x, z], allow_unused=True)
    assert found[0].tolist() == [2, 4, 6]
    assert found[1] is None
    found = autograd.grad((x * x).sum(), [x, z], materialize_grads=True)
    assert found[1].tolist() == [0]


def test_grad_of_interior_tensors_and_of_itself():
    x = leaf(1, 2, 3)
    y = x * 2
    by_y, by_x = autograd.grad((y * y).sum(), [y, x])
    assert by_y.tolist() == [4, 8, 12]
    assert by_x.tolist() == [8, 16, 24]
    assert autograd.grad(x.sum(), x)[0].tolist() == [1, 1, 1]
    start = torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
    assert autograd.grad(x, x, start)[0].tolist() == [1, 3, 5]
    assert x.grad is None


def test_backward_to_given_inputs_only():
    x, w = leaf(1, 2), leaf(3, 4)
    (x * w).sum().backward(inputs=[x])
    assert x.grad.tolist() == [3, 4]
    assert w.grad is None
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    assert y.grad.tolist() == [4, 8]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        y.sum().backward(inputs=[])


def test_third_derivative():
    x = leaf(1, 2, 3)
    first = autograd.grad((x * x * x).sum(), x, create_graph=True)[0]
    second = autograd.grad(first.sum(), x, create_graph=True)[0]
    third = autograd.grad(second.sum(), x)[0]
    assert first.tolist() == [3, 12, 27]
    assert second.tolist() == [6, 12, 18]
    assert third.tolist() == [6, 6, 6]


def test_double_backward_through_a_saved_output():
    x = leaf(0.5, 1)
    first = autograd.grad(x.exp().sum(), x, create_graph=True)[0]
    second = autograd.grad(first.sum(), x)[0]
    assert second.tolist() == x.exp().tolist()


def test_broadcast_operands_get_summed_gradients():
    x, b = leaf(1, 2, 3), leaf(2)
    weight = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    ((x.unsqueeze(0) * b) * weight).sum().backward()
    assert x.grad.tolist() == [6, 6, 6]
    assert b.grad.tolist() == [18]


def test_several_roots_and_outputs():
    x = leaf(1, 2, 3)
    a, _, c = x.unbind()
    autograd.backward([a * 2, c * 5])
    assert x.grad.tolist() == [2, 0, 5]


def test_gradient_takes_the_leafs_dtype():
    x = torch.ones(2).requires_grad_()
    (x.double() * 2).sum().backward()
    assert x.grad.dtype == torch.float32


def test_names_and_edges():
    x = leaf(1, 2)
    y = x * 3
    node = y.grad_fn
    assert node.name() == "MulBackward0"
    assert repr(node).startswith("<MulBackward0 object at 0x")
    (below, index) = node.next_functions[0]
    assert below.name() == "torch::autograd::AccumulateGrad"
    assert below.variable is x
    assert index == 0
    node.metadata["mine"] = 1
    assert y.grad_fn.metadata == {"mine": 1}


def test_gradient_edges_as_roots_and_inputs():
    x = leaf(1, 2)
    y = x * 2
    edge = autograd.graph.get_gradient_edge(y)
    assert edge.output_nr == 0
    assert autograd.grad((y * y).sum(), edge)[0].tolist() == [4, 8]
    start = torch.tensor([1.0, 10.0], dtype=torch.float64)
    assert autograd.grad(edge, x, start)[0].tolist() == [2, 20]


def test_deep_graphs_neither_overflow_nor_leak():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert x.grad.tolist() == [1]
    del y
    y = x
    for _ in range(100_000):
        y = y.neg()
    del y


def test_graphs_are_freed_without_the_collector():
    gc.disable()
    try:
        y = (leaf(1, 2) * leaf(3, 4)).exp()
        tensor, node = weakref.ref(y), weakref.ref(y.grad_fn)
        del y
        assert tensor() is None
        assert node() is None
    finally:
        gc.enable()


def test_cycles_through_hooks_are_collected():
    x = leaf(1, 2)
    y = x * x
    y.register_hook(lambda grad, own=y: own)
    reference = weakref.ref(y)
    del y
    gc.collect()
    assert reference() is None


def test_threads_add_to_one_leaf():
    x = torch.ones(1000, dtype=torch.float64).requires_grad_()

    def run():
        for _ in range(20):
            (x * 2).sum().backward()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad.sum().item() == 2 * 1000 * 20 * 4


def test_threads_share_a_graph():
    x = torch.ones(1000, dtype=torch.float64).requires_grad_()
    y = (x.exp() * x).sum()
    expected = autograd.grad(y, x, retain_graph=True)[0].tolist()
    found = []

    def run():
        found.extend(autograd.grad(y, x, retain_graph=True)[0].tolist() for _ in range(10))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert all(values == expected for values in found)


def test_rms_norm_of_complex_numbers():
    torch.manual_seed(0)
    x = torch.randn(2, 3, dtype=torch.complex128, requires_grad=True)
    w = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: torch.nn.functional.rms_norm(x, (3,), w), (x, w))
