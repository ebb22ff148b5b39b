"""`activation_memory_budget`: compiled functions save fewer activations, with eager mode's bits."""

from __future__ import annotations

import gc
import itertools
from functools import partial

import pytest

import flambeau as torch
from flambeau import nn, runtime
from flambeau._functorch import config
from flambeau._functorch.aot_autograd import aot_function
from flambeau._functorch.partitioners import min_cut_rematerialization_partition
from flambeau.derivation.memory_budget import exactly, greedily
from flambeau.nn import functional
from flambeau.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

ROWS, WIDTH = 256, 64
VALUE = ROWS * WIDTH * 4  # bytes of one activation
NAMES = {
    "estimator": "activation_memory_budget_runtime_estimator",
    "solver": "activation_memory_budget_solver",
}


@pytest.fixture(autouse=True)
def no_packed_weights():
    """Copies of weights would count as memory."""
    before = runtime.prepacked_limit()
    runtime.set_prepacked_limit(0)
    yield
    runtime.set_prepacked_limit(before)


def budget(fraction, **others):
    named = {NAMES[name]: value for name, value in others.items()}
    return config.patch(activation_memory_budget=fraction, **named)


def allocated():
    gc.collect()
    return runtime.memory_stats()["allocated_bytes.all.current"]


def layers():
    torch.manual_seed(3)
    return nn.ParameterList(torch.randn(WIDTH, WIDTH) / 8 for _ in range(5))


def network(weights, x):
    for weight in weights:
        x = functional.layer_norm(x, (WIDTH,))
        x = functional.gelu(x @ weight) + x
    return x.square().mean()


def held_and_gradients(function, weights, x):
    """Bytes between forward and backward, and all gradients, of the second call."""
    for _ in range(2):
        torch.manual_seed(7)
        for tensor in (*weights, x):
            tensor.grad = None
        before = allocated()
        loss = function(weights, x)
        held = allocated() - before
        loss.backward()
    return held, [loss.detach(), *(tensor.grad for tensor in (*weights, x))]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_fewer_bytes_and_equal_bits():
    weights, x = layers(), torch.randn(ROWS, WIDTH, requires_grad=True)
    _, expected = held_and_gradients(network, weights, x)
    held = {}
    for fraction in (1.0, 0.75, 0.5, 0.25, 0.0):
        with budget(fraction):
            held[fraction], found = held_and_gradients(torch.compile(network), weights, x)
            assert same(found, expected)
    slack = 4096  # the loss, and blocks of the allocator
    assert held[1.0] > 5 * VALUE
    for fraction in (0.75, 0.5, 0.25, 0.0):
        assert held[fraction] <= fraction * held[1.0] + slack
    assert held[0.0] < held[0.25] < held[0.5] < held[0.75] < held[1.0]


def test_one_function_follows_the_setting():
    weights, x = layers(), torch.randn(ROWS, WIDTH, requires_grad=True)
    compiled = torch.compile(network)
    first, expected = held_and_gradients(compiled, weights, x)
    with budget(0.0):
        least, found = held_and_gradients(compiled, weights, x)
    again, last = held_and_gradients(compiled, weights, x)
    assert least < VALUE < first == again
    assert same(found, expected) and same(last, expected)


@pytest.mark.parametrize("fraction", [0.5, 0.0])
def test_random_draws_are_not_drawn_again(fraction):
    def dropping(weights, x):
        for weight in weights:
            x = functional.dropout((x @ weight).tanh(), 0.3)
        return x.sum()

    weights, x = layers(), torch.randn(ROWS, WIDTH, requires_grad=True)
    most, expected = held_and_gradients(dropping, weights, x)
    state = torch.get_rng_state()
    with budget(fraction):
        held, found = held_and_gradients(torch.compile(dropping), weights, x)
    assert same(found, expected) and torch.equal(torch.get_rng_state(), state)
    masks = len(weights) * ROWS * WIDTH  # a byte for an element
    assert masks <= held < most


def test_statistics_that_the_forward_writes():
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
    )
    x, results = torch.randn(4, 3, 12, 12), []
    first = {name: value.clone() for name, value in model.state_dict().items()}
    for fraction in (None, 1.0, 0.4, 0.0):
        model.load_state_dict(first)
        with budget(1.0 if fraction is None else fraction):
            function = model if fraction is None else torch.compile(model)
            for _ in range(3):
                model.zero_grad()
                function(x).square().sum().backward()
        results.append([*(p.grad for p in model.parameters()), *model.buffers()])
        results[-1] = [each.clone() for each in results[-1]]
    assert all(same(each, results[0]) for each in results[1:])


def test_attention_and_other_sizes():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    for fraction in (0.5, 0.0):
        with budget(fraction):
            compiled = torch.compile(layer)
            for length in (9, 13, 9):
                x = torch.randn(2, length, 32, requires_grad=True)
                for function in (layer, compiled):
                    function(x).square().mean().backward()
                expected = torch.autograd.grad(layer(x).square().mean(), [x, *layer.parameters()])
                found = torch.autograd.grad(compiled(x).square().mean(), [x, *layer.parameters()])
                assert same(found, expected)


def test_gradients_of_gradients():
    weights, x = layers(), torch.randn(8, WIDTH, requires_grad=True)

    def twice(function):
        (first,) = torch.autograd.grad(function(weights, x), x, create_graph=True)
        return [first, *torch.autograd.grad(first.square().sum(), [x, *weights])]

    with budget(0.0):
        assert same(twice(torch.compile(network)), twice(network))


def test_a_budget_of_one_region():
    def region(weights, x, fraction):
        with torch.autograd.graph.region_activation_memory_budget(fraction):
            return network(weights, x)

    weights, x = layers(), torch.randn(ROWS, WIDTH, requires_grad=True)
    most, expected = held_and_gradients(torch.compile(network), weights, x)
    compiled = torch.compile(region)
    for _ in range(2):
        for fraction in (0.0, 0.5):
            held, found = held_and_gradients(partial(compiled, fraction=fraction), weights, x)
            assert same(found, expected) and held <= fraction * most + 4096
    assert held > VALUE

    def mixed(weights, x):
        return region(weights, x, 0.5) + region(weights, x, 0.25)

    with pytest.raises(RuntimeError, match="conflicting budgets"):
        torch.compile(mixed)(weights, x)


@pytest.mark.parametrize("setting", ["activation_memory_budget", *NAMES.values()])
def test_wrong_values(setting):
    present = getattr(config, setting)
    wrong = 1.5 if setting == "activation_memory_budget" else "best"
    with pytest.raises(RuntimeError, match=setting):
        setattr(config, setting, wrong)
    with pytest.raises(RuntimeError, match=setting), config.patch({setting: wrong}):
        pass
    assert getattr(config, setting) == present


def test_functions_in_place_of_names():
    for name in NAMES:
        with pytest.raises(NotImplementedError, match=NAMES[name]):
            setattr(config, NAMES[name], lambda *_: [])
    with pytest.raises(NotImplementedError, match="solver"):
        config.activation_memory_budget_solver = "dynamic_memory_budget_dp"


# ------------------------------------------------------------------------------- graphs


def saved_bytes(fraction, **others):
    """Bytes of what the forward graph gives the backward beside inputs; the gradients."""
    modules = []

    def compiler(module, inputs):
        modules.append(module)
        return module

    weights, x = layers(), torch.linspace(-1, 1, ROWS * WIDTH).view(ROWS, WIDTH)
    x.requires_grad_()
    partition = min_cut_rematerialization_partition
    with budget(fraction, **others):
        function = aot_function(network, compiler, partition_fn=partition)
        gradients = torch.autograd.grad(function(list(weights), x), [x, *weights])
    expected = torch.autograd.grad(network(weights, x), [x, *weights])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(gradients, expected, strict=True))
    _, *saved = modules[0].graph.output_node().args[0]
    values = [n.meta["val"] for n in saved if n.op != "placeholder"]
    return sum(v.numel() * v.element_size() for v in values), gradients


def test_graphs_save_fewer_bytes():
    found = {fraction: saved_bytes(fraction) for fraction in (1.0, 0.5, 0.2, 0.0)}
    most = found[1.0][0]
    assert most > 5 * VALUE and found[0.0][0] == 0
    assert all(0 < found[fraction][0] <= fraction * most for fraction in (0.5, 0.2))
    assert all(same(gradients, found[1.0][1]) for _, gradients in found.values())


@pytest.mark.parametrize("estimator", ["flops", "profile", "testing"])
@pytest.mark.parametrize("solver", ["dp", "greedy", "ilp", "dp_knapsack_sliding_hirschberg"])
def test_ways_to_choose(estimator, solver):
    most, expected = saved_bytes(1.0)
    held, found = saved_bytes(0.5, estimator=estimator, solver=solver)
    assert held <= most / 2 and same(found, expected)


def test_a_budget_of_one_graph():
    modules = []

    def partition(module, inputs, **options):
        next(iter(module.graph.nodes)).meta["memory_budget"] = 0.0
        return min_cut_rematerialization_partition(module, inputs, **options)

    def compiler(module, inputs):
        modules.append(module)
        return module

    weights, x = layers(), torch.randn(ROWS, WIDTH, requires_grad=True)
    aot_function(network, compiler, partition_fn=partition)(list(weights), x).backward()
    _, *saved = modules[0].graph.output_node().args[0]
    assert all(node.op == "placeholder" for node in saved)


# ------------------------------------------------------------------------------- knapsack


def test_knapsack_against_all_subsets():
    torch.manual_seed(0)
    for _ in range(20):
        sizes = torch.randint(1, 40, (9,)).tolist()
        values = torch.rand(9).tolist()
        room = sum(sizes) // 3
        subsets = [
            each
            for count in range(10)
            for each in itertools.combinations(range(9), count)
            if sum(sizes[k] for k in each) <= room
        ]
        best = max(sum(values[k] for k in each) for each in subsets)
        for solver in (exactly, greedily):
            chosen = solver(sizes, values, room)
            assert tuple(chosen) in subsets
            value = sum(values[k] for k in chosen)
            assert value == pytest.approx(best) if solver is exactly else value <= best + 1e-9


def test_a_large_knapsack():
    sizes = [1000 + 7 * (k * k % 1013) for k in range(200)]
    values = [float(k * 31 % 97 + 1) for k in range(200)]
    chosen = exactly(sizes, values, 300_000)
    assert 290_000 < sum(sizes[k] for k in chosen) <= 300_000
    by_density = greedily(sizes, values, 300_000)
    assert sum(values[k] for k in chosen) >= sum(values[k] for k in by_density) * 0.99


# ------------------------------------------------------------------------------- checkpoints


def test_policies_of_checkpoints_hold_in_compiled_code():
    """What a policy saves is saved, the rest is computed again."""
    weights, x = layers(), torch.randn(ROWS, WIDTH, requires_grad=True)
    stored = [torch.ops.aten.mm.default]

    def policy(context, operator, *args, **kwargs):
        chosen = operator in stored
        return CheckpointPolicy.MUST_SAVE if chosen else CheckpointPolicy.MUST_RECOMPUTE

    def block(weights, x):
        def inner(x):
            return network(weights, x)

        contexts = {"context_fn": lambda: create_selective_checkpoint_contexts(policy)}
        return checkpoint(inner, x, use_reentrant=False, **contexts)

    _, expected = held_and_gradients(network, weights, x)
    held, found = held_and_gradients(torch.compile(block), weights, x)
    assert same(found, expected)
    assert held == pytest.approx(len(weights) * VALUE, rel=0.1)
    stored.clear()
    held, found = held_and_gradients(torch.compile(block), weights, x)
    assert same(found, expected) and held < VALUE
