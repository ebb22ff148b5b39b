"""Recurrent layers in training: their own backward pass, differentiated again, on any threads."""

from __future__ import annotations

import gc

import pytest

import flambeau as torch
from flambeau.nn.utils.stateless import functional_call

KINDS = {
    "LSTM": lambda: torch.nn.LSTM(3, 5, 2, bidirectional=True, dtype=torch.float64),
    "GRU": lambda: torch.nn.GRU(3, 5, bidirectional=True, bias=False, dtype=torch.float64),
    "RNN": lambda: torch.nn.RNN(3, 5, dtype=torch.float64),
    "RNN relu": lambda: torch.nn.RNN(3, 5, nonlinearity="relu", dtype=torch.float64),
}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_numerically(kind):
    torch.manual_seed(0)
    layer = KINDS[kind]()
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *values):
        return functional_call(layer, dict(zip(names, values)), (x,))[0]

    parameters = [p.detach().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(run, (x, *parameters))


@pytest.mark.parametrize("kind", KINDS)
def test_own_backward_is_the_differentiable_one(kind):
    torch.manual_seed(0)
    layer = KINDS[kind]()
    x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    leaves = [x, *layer.parameters()]
    loss = layer(x)[0].square().sum()
    own = torch.autograd.grad(loss, leaves, retain_graph=True)
    again = torch.autograd.grad(loss, leaves, create_graph=True)
    for a, b in zip(own, again):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    total = sum(g.square().sum() for g in again)
    assert all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(total, leaves))


@pytest.mark.parametrize("kind", ("LSTM", "GRU", "RNN"))
def test_bits_over_threads_and_compiled(kind):
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(24, 40, batch_first=True)
    x = torch.randn(8, 11, 24)

    def step(x):
        return torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))

    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(step(x))
    finally:
        torch.set_num_threads(before)
    found.append(torch.compile(step)(x))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))
    with torch.no_grad():
        untracked = layer(x)[0]
    assert torch.equal(untracked, layer(x)[0])


@pytest.mark.parametrize("kind", ("LSTM", "GRU", "RNN"))
def test_bits_of_a_sequence_are_those_of_its_steps_and_of_one_row(kind):
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(24, 40)
    cell = getattr(torch.nn, kind + "Cell")(24, 40)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x = torch.randn(9, 7, 24)
    with torch.no_grad():
        whole = layer(x)[0]
        state = None
        for step, expected in zip(x, whole):
            state = cell(step, state)
            assert torch.equal(state[0] if kind == "LSTM" else state, expected)
        alone = torch.cat([layer(x[:, i : i + 1])[0] for i in range(7)], 1)
    assert torch.equal(alone, whole)


@pytest.mark.parametrize("kind", ("LSTM", "GRU", "RNN"))
def test_nothing_waits_for_garbage_collection(kind):
    layer = getattr(torch.nn, kind)(3, 5)

    def nodes():
        names = ("StackBackward0", "MkldnnRnnLayerBackward0")
        return sum(type(item).__name__ in names for item in gc.get_objects())

    gc.collect()
    before = nodes()
    gc.disable()
    try:
        result = layer(torch.ones(4, 2, 3))
        assert nodes() > before
        del result
        assert nodes() == before
    finally:
        gc.enable()
