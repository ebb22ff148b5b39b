"""`config.freezing`: weights are constants of calls under `no_grad`; changes are noticed."""

from __future__ import annotations

import gc
import weakref

import pytest

import flambeau as torch
from flambeau import nn, runtime
from flambeau._inductor import config
from flambeau.capture import stream
from flambeau.nn import functional

OPTIONS = {"options": {"freezing": True}}


class Adapted(nn.Module):
    """A linear layer whose weight is a sum of a frozen part and a product of small matrices."""

    def __init__(self, width=16, rank=2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.down = nn.Parameter(torch.randn(rank, width))
        self.up = nn.Parameter(torch.randn(width, rank))
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, x):
        return functional.linear(x, self.weight + (self.up @ self.down) * self.scale).relu()


def convolutions():
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4, affine=False),
    )  # fmt: skip
    with torch.no_grad():
        for norm in model:
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2.0)
                if norm.affine:
                    norm.weight.normal_()
                    norm.bias.normal_()
    return model.eval()


def constants_of(function, *args):
    """The result of a call, and the constants and graphs of the programs that it compiles."""
    torch.compiler.reset()
    with stream.watching() as reports, torch.no_grad():
        result = function(*args)
    return result, [report.plan.constants for report in reports], [r.graph for r in reports]


def test_constant_values_are_computed_once():
    torch.manual_seed(0)
    model, x = Adapted(), torch.randn(5, 16)
    compiled = torch.compile(model, **OPTIONS)
    with torch.no_grad():
        expected = model(x)
    found, [constants], [graph] = constants_of(compiled, x)
    assert torch.equal(found, expected)
    products = [node for node in graph.nodes() if node.op == "matmul"]
    assert len(products) == 1  # the other one is in the constant part
    with torch.no_grad():
        for rows in (5, 9, 5, 9, 5):
            y = torch.randn(rows, 16)
            assert torch.equal(compiled(y), model(y))
    assert constants.runs == 1
    assert [value.shape for value in constants.values[0]] == [(16, 16)]


def test_changed_weights_are_noticed():
    torch.manual_seed(1)
    model, x = Adapted(), torch.randn(5, 16)
    compiled = torch.compile(model, **OPTIONS)

    def same():
        with torch.no_grad():
            return all(torch.equal(compiled(x), model(x)) for _ in range(4))

    assert same()
    with torch.no_grad():
        model.up.add_(1.0)
    assert same()
    model.scale.fill_(2.0)
    assert same()
    model.weight.data = torch.randn(16, 16)
    assert same()
    model.down = nn.Parameter(torch.randn(2, 16))
    assert same()
    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
    assert same()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    assert same()


def test_values_of_former_weights_are_dropped():
    model, x = Adapted(), torch.randn(5, 16)
    compiled = torch.compile(model, **OPTIONS)
    _, [constants], _ = constants_of(compiled, x)
    with torch.no_grad():
        for step in range(1, 4):
            model.up.add_(1.0)
            assert torch.equal(compiled(x), model(x))
            assert len(constants.values) == 1 and constants.runs == step + 1


def test_memory_that_others_may_write():
    numpy = pytest.importorskip("numpy")
    model, x = Adapted(), torch.randn(5, 16)
    array = numpy.ones((16, 16), dtype="float32")
    model.weight = nn.Parameter(torch.from_numpy(array))
    compiled = torch.compile(model, **OPTIONS)
    with torch.no_grad():
        for step in range(4):
            array[:] = step
            assert torch.equal(compiled(x), model(x))
        view = model.up.detach().numpy()
        for step in range(4):
            view[:] = step
            assert torch.equal(compiled(x), model(x))


def test_models_that_share_a_program():
    x = torch.randn(5, 16)
    models = [Adapted() for _ in range(3)]
    compiled = [torch.compile(model, **OPTIONS) for model in models]
    with torch.no_grad():
        for _ in range(4):
            for model, function in zip(models, compiled, strict=True):
                assert torch.equal(function(x), model(x))


def test_gradients_are_those_of_an_ordinary_function():
    model, x = Adapted(), torch.randn(5, 16)
    compiled = torch.compile(model, **OPTIONS)
    parameters = list(model.parameters())
    for _ in range(2):
        with torch.no_grad():
            assert torch.equal(compiled(x), model(x))
        found = torch.autograd.grad(compiled(x).sum(), parameters)
        expected = torch.autograd.grad(model(x).sum(), parameters)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("channels_last", [False, True])
def test_batch_norms_are_folded(channels_last):
    model, x = convolutions(), torch.randn(2, 3, 16, 16)
    if channels_last:
        model, x = (y.to(memory_format=torch.channels_last) for y in (model, x))
    compiled = torch.compile(model, **OPTIONS)
    found, [constants], [graph] = constants_of(compiled, x)
    with torch.no_grad():
        expected = model(x)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(torch.compile(model)(x), expected)
    ops = [node.op for node in graph.nodes()]
    assert ops.count("convolution") == 3 and "rsqrt" not in ops
    assert ops.count("add") == 3 and not {"mul", "sub"} & set(ops)
    assert len(constants.values[0]) == 6  # a weight and a summand of each
    with torch.no_grad():
        model[1].running_mean.add_(3.0)
        model[4].eps = 0.25
        found, expected = compiled(x), model(x)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_linear_layers_with_batch_norm():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh()).eval()
    with torch.no_grad():
        model[1].running_var.uniform_(0.5, 2.0)
    x = torch.randn(7, 6)
    found, _, [graph] = constants_of(torch.compile(model, **OPTIONS), x)
    with torch.no_grad():
        assert torch.allclose(found, model(x), rtol=1e-5, atol=1e-6)
    assert not {"mul", "sub", "rsqrt"} & {node.op for node in graph.nodes()}


def test_only_batch_norms_change_bits():
    """Other factors and summands of channels are not folded, nor a norm whose input is shared."""
    torch.manual_seed(5)
    convolution, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
    x = torch.randn(2, 3, 8, 8)
    scale = nn.Parameter(torch.randn(1, 4, 1, 1))

    def scaled(x):
        return convolution(x) * scale + 1

    def shared(x):
        y = convolution(x)
        return norm(y) + y

    def alone(x):
        return norm(x[:, :2].repeat(1, 2, 1, 1))

    for function in (scaled, shared, alone):
        with torch.no_grad():
            assert torch.equal(torch.compile(function, **OPTIONS)(x), function(x))


def test_weights_in_a_narrower_type():
    torch.manual_seed(6)
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(4, 32)

    def narrow(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    compiled = torch.compile(narrow, **OPTIONS)
    found, [constants], [graph] = constants_of(compiled, x)
    with torch.no_grad():
        assert torch.equal(found, narrow(x)) and torch.equal(compiled(x), found)
    matrices = [value for value in constants.values[0] if value.ndim == 2]
    assert [value.dtype for value in matrices] == [torch.bfloat16] * 2
    casts = [n for n in graph.nodes() if n.op == "cast" and n.inputs[0].is_input]
    assert len(casts) == 1  # of the data


def test_weights_are_packed_at_the_first_call():
    model, x = nn.Linear(256, 256).eval(), torch.randn(64, 256)
    counts = []
    for options in ({}, OPTIONS):
        runtime.empty_cache()
        with torch.no_grad():
            torch.compile(model, **options)(x)
        counts.append(runtime.memory_stats()["num_prepacked"])
    assert counts == [0, 1]


def test_values_go_with_the_function():
    model, x = Adapted(), torch.randn(5, 16)
    compiled = torch.compile(model, **OPTIONS)
    _, [constants], _ = constants_of(compiled, x)
    value, weight = weakref.ref(constants.values[0][0]), weakref.ref(model.weight)
    del compiled, model
    gc.collect()
    assert value() is None and weight() is None and constants.values == ()


def test_setting_and_option():
    model, x = Adapted(), torch.randn(5, 16)
    with config.patch(freezing=True):
        compiled = torch.compile(model)
        unfrozen = torch.compile(model, options={"freezing": False})
    assert constants_of(unfrozen, x)[1] == [None]
    assert [each is None for each in constants_of(compiled, x)[1]] == [False]
    with config.patch(freezing_discard_parameters=True):
        torch.compile(model)(x)  # without freezing it says nothing


def test_frozen_functions_skip_their_python():
    model, x = Adapted(), torch.randn(5, 16)
    compiled = torch.compile(model.forward, **OPTIONS)
    with torch.no_grad():
        for _ in range(8):
            compiled(x)
        hits = compiled._hits
        model.up.mul_(2.0)
        assert torch.equal(compiled(x), model(x)) and compiled._hits > max(hits, 0)


def test_results_that_are_constants_are_copies():
    model = Adapted()
    compiled = torch.compile(lambda: model.weight * 2, **OPTIONS)
    with torch.no_grad():
        first = compiled()
        first.zero_()
        assert torch.equal(compiled(), model.weight * 2)


# ------------------------------------------------------------------------------- discarded weights

DISCARDING = {"options": {"freezing": True, "freezing_discard_parameters": True}}
DISCARDED = "original parameters have been discarded for memory efficiency"


class Mixed(Adapted):
    """Constants that are computed, weights that are read as they are, and what no program reads."""

    def __init__(self, width=16):
        super().__init__(width)
        self.last = nn.Linear(width, 4)
        self.unread = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return self.last(super().forward(x))


def allocated():
    gc.collect()
    return runtime.memory_stats()["allocated_bytes.all.current"]


def test_discarded_weights():
    torch.manual_seed(7)
    model, x = Mixed(), torch.randn(5, 16)
    compiled = torch.compile(model, **DISCARDING)
    with torch.no_grad():
        inputs = [torch.randn(rows, 16) for rows in (5, 9, 5, 3, 5, 5, 7, 7)]
        expected = [model(y) for y in inputs]
        assert all(torch.equal(compiled(y), z) for y, z in zip(inputs, expected, strict=True))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name == "unread":
            assert len(tensor.tolist()) == 3
            continue
        assert isinstance(tensor, nn.Parameter) or name == "scale"
        for read in (lambda t: t + 1, torch.Tensor.tolist, torch.clone, str, lambda t: t.zero_()):
            with torch.no_grad(), pytest.raises(RuntimeError, match=DISCARDED):
                read(tensor)
    with pytest.raises(RuntimeError, match=DISCARDED):
        model(x)
    with pytest.raises(RuntimeError, match=DISCARDED):
        compiled(x)  # gradients are recorded
    with torch.no_grad():
        assert torch.equal(compiled(inputs[0]), expected[0])
        with pytest.raises(RuntimeError, match=DISCARDED):
            compiled(inputs[0][None])  # a program that is not there
        assert torch.equal(compiled(inputs[0]), expected[0])


def test_discarded_weights_free_their_memory():
    torch.compiler.reset()
    model, x = Adapted(width=64), torch.randn(4, 64)
    matrix = 64 * 64 * 4
    with torch.no_grad():
        expected = model(x)
        for options, matrices in ((OPTIONS, 2), (DISCARDING, 1)):
            again = Adapted(width=64)
            again.load_state_dict(model.state_dict())
            compiled = torch.compile(again, **options)
            assert torch.equal(compiled(x), expected)
            runtime.empty_cache()  # packed weights
            before = allocated()
            del compiled, again
            assert matrices * matrix <= before - allocated() < (matrices + 0.5) * matrix


def test_tensors_that_others_hold_are_whole():
    model, x = Mixed(), torch.randn(5, 16)
    weight, copy = model.weight, model.weight.clone()
    compiled = torch.compile(model, **DISCARDING)
    with torch.no_grad():
        compiled(x)
    assert torch.equal(weight, copy) and model.weight is not weight
    weight_of_last = model.last.weight
    with pytest.raises(RuntimeError, match=DISCARDED):
        weight_of_last.sum()


def test_functions_that_share_a_program_own_their_weights():
    x = torch.randn(5, 16)
    models = [Mixed() for _ in range(12)]  # more than a program remembers of others
    with torch.no_grad():
        expected = [model(x) for model in models]
        compiled = [torch.compile(model, **DISCARDING) for model in models]
        plain = Mixed()
        frozen = torch.compile(plain, **OPTIONS)
        for _ in range(4):
            assert torch.equal(frozen(x), plain(x))
            for function, result in zip(compiled, expected, strict=True):
                assert torch.equal(function(x), result)
        del compiled[::2], function
        gc.collect()
        for function, result in zip(compiled, expected[1::2], strict=True):
            assert torch.equal(function(x), result)


def test_discarded_weights_go_with_the_function():
    model, x = Mixed(), torch.randn(5, 16)
    compiled = torch.compile(model, **DISCARDING)
    weight = weakref.ref(model.last.weight)
    _, [constants], _ = constants_of(compiled, x)
    value = weakref.ref(constants.values[0][0])
    assert weight() is not None and model.last.weight is not weight()
    del compiled, model
    gc.collect()
    assert value() is None and weight() is None and constants.values == ()


def test_discarding_functions_skip_their_python():
    model, x = Mixed(), torch.randn(5, 16)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model.forward, **DISCARDING)
        for _ in range(8):
            assert torch.equal(compiled(x), expected)
    assert compiled._hits > 0


def test_tied_weights_and_breaks():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(x).relu()

    model, x = Tied(), torch.randn(3, 8)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, **DISCARDING)
        for _ in range(5):
            assert torch.equal(compiled(x), expected)
    assert model.first.weight is model.second.weight
    with pytest.raises(RuntimeError, match=DISCARDED):
        model(x)


def test_folded_norms_are_discarded():
    model, x = convolutions(), torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, **DISCARDING)
        for _ in range(3):
            assert torch.allclose(compiled(x), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match=DISCARDED):
        model[1].running_mean.sum()


def test_models_of_other_widths():
    """Sizes of weights are constants, whatever they were in programs before."""
    torch.compiler.reset()
    with torch.no_grad():
        for width in (16, 24, 32, 24):
            y = torch.randn(3, width)
            for options in (DISCARDING, OPTIONS):
                model = Mixed(width)
                expected, rows = model(y), model(y[:2])
                compiled = torch.compile(model, **options)
                assert all(torch.equal(compiled(y), expected) for _ in range(3))
                assert torch.equal(compiled(y[:2]), rows)
