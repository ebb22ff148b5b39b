"""Clipping, packed sequences, parametrizations, fusion, stateless calls, initialisation."""

import math

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.utils import parametrize, rnn


def parameters_with_gradients(*gradients):
    result = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(len(gradient)))
        parameter.grad = torch.tensor(gradient)
        result.append(parameter)
    return result


@pytest.mark.parametrize(
    "norm_type,expected", [(2.0, 13.0), (1.0, 19.0), (math.inf, 12.0), (3.0, 12.207)]
)
def test_clip_grad_norm(norm_type, expected):
    parameters = parameters_with_gradients([3.0, 4.0], [12.0])
    total = nn.utils.clip_grad_norm_(parameters, 6.5, norm_type)
    assert total.item() == pytest.approx(expected, rel=1e-3)
    factor = min(1.0, 6.5 / expected)
    assert parameters[1].grad.item() == pytest.approx(12 * factor, rel=1e-3)


def test_clip_leaves_small_gradients():
    parameters = parameters_with_gradients([3.0, 4.0])
    nn.utils.clip_grad_norm_(parameters, 100.0)
    assert parameters[0].grad.tolist() == [3.0, 4.0]
    assert nn.utils.clip_grad_norm_([nn.Parameter(torch.ones(1))], 1.0).item() == 0


def test_clip_nonfinite():
    parameters = parameters_with_gradients([math.nan])
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)


def test_clip_value():
    parameters = parameters_with_gradients([3.0, -4.0, 0.5])
    nn.utils.clip_grad_value_(parameters, 1.0)
    assert parameters[0].grad.tolist() == [1.0, -1.0, 0.5]


def test_vector():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (13,)
    nn.utils.vector_to_parameters(torch.arange(13.0), net.parameters())
    assert net[1].bias.item() == 12.0 and net[0].weight.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_pack_and_pad():
    sequences = [torch.arange(float(n)) + 10 * n for n in (2, 4, 1)]
    padded = rnn.pad_sequence(sequences, batch_first=True, padding_value=-1.0)
    assert padded.tolist() == [[20, 21, -1, -1], [40, 41, 42, 43], [10, -1, -1, -1]]
    left = rnn.pad_sequence(sequences, padding_side="left")
    assert left.shape == (4, 3) and left[3].tolist() == [21, 43, 10]
    packed = rnn.pack_padded_sequence(padded, [2, 4, 1], batch_first=True, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.data.tolist() == [40, 20, 10, 41, 21, 42, 43]
    again, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
    assert torch.equal(again, padded) and lengths.tolist() == [2, 4, 1]
    assert [s.tolist() for s in rnn.unpack_sequence(packed)] == [s.tolist() for s in sequences]
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        rnn.pack_padded_sequence(padded, [2, 4, 1], batch_first=True)


def test_packed_lstm_equals_single_sequences():
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, 2, bidirectional=True)
    sequences = [torch.randn(n, 3) for n in (2, 5, 3)]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    output, (hidden, _) = lstm(packed)
    for k, (sequence, part) in enumerate(zip(sequences, rnn.unpack_sequence(output))):
        single, (last, _) = lstm(sequence)
        assert torch.allclose(part, single, atol=1e-6)
        assert torch.allclose(hidden[:, k], last, atol=1e-6)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).t()

    def right_inverse(self, x):
        return x.triu()


def test_parametrize():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert parametrize.is_parametrized(layer, "weight")
    assert torch.equal(layer.weight, layer.weight.t())
    assert "parametrizations.weight.original" in layer.state_dict()
    assert type(layer).__name__ == "ParametrizedLinear"
    layer(torch.ones(3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    value = layer.weight
    with parametrize.cached():
        assert layer.weight is layer.weight
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and torch.equal(layer.weight, value)
    assert isinstance(layer.weight, nn.Parameter)


def test_weight_norm():
    layer = nn.Linear(3, 4)
    x = torch.randn(2, 3)
    expected = layer(x)
    nn.utils.parametrizations.weight_norm(layer)
    assert torch.allclose(layer(x), expected, atol=1e-6)
    assert layer.parametrizations.weight.original0.shape == (4, 1)


def test_spectral_norm():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4), n_power_iterations=30)
    layer(torch.ones(6))
    gram = layer.weight @ layer.weight.t()
    vector = torch.ones(4)
    for _ in range(200):
        vector = gram @ vector
        vector = vector / vector.norm()
    assert (vector @ gram @ vector).item() == pytest.approx(1.0, rel=1e-3)


def test_fuse():
    conv, norm = nn.Conv2d(2, 3, 3).eval(), nn.BatchNorm2d(3).eval()
    norm.running_mean.copy_(torch.tensor([0.1, 0.2, 0.3]))
    norm.running_var.copy_(torch.tensor([1.0, 2.0, 0.5]))
    x = torch.randn(1, 2, 5, 5)
    fused = nn.utils.fuse_conv_bn_eval(conv, norm)
    assert torch.allclose(fused(x), norm(conv(x)), atol=1e-5)
    linear, norm = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
    x = torch.randn(4, 2)
    assert torch.allclose(nn.utils.fuse_linear_bn_eval(linear, norm)(x), norm(linear(x)), atol=1e-5)


def test_functional_call():
    layer = nn.Linear(1, 1)
    before = layer.weight
    given = {"weight": torch.full((1, 1), 2.0, requires_grad=True)}
    call = nn.utils.stateless.functional_call
    out = call(layer, {**given, "bias": torch.ones(1)}, torch.ones(1, 1))
    assert out.item() == 3.0 and layer.weight is before
    out.sum().backward()
    assert given["weight"].grad.item() == 1.0 and layer.weight.grad is None
    with pytest.raises(RuntimeError, match="Missing key"):
        call(layer, given, torch.ones(1, 1), strict=True)


def test_functional_call_of_several_mappings():
    layer, call = nn.Linear(1, 1), torch.func.functional_call
    mappings = [{"weight": torch.full((1, 1), 2.0)}, {"bias": torch.ones(1)}]
    out = call(layer, parameter_and_buffer_dicts=mappings, args=torch.ones(1, 1), strict=True)
    assert out.item() == 3.0
    with pytest.raises(ValueError, match="multiple dictionaries"):
        call(layer, [mappings[0], mappings[0]], torch.ones(1, 1))


def test_skip_init():
    layer = nn.utils.skip_init(nn.Linear, 4, 3)
    assert layer.weight.device.type == "cpu" and layer.weight.shape == (3, 4)
    assert isinstance(layer.weight, nn.Parameter)


def test_gain():
    assert nn.init.calculate_gain("relu") == math.sqrt(2.0)
    assert nn.init.calculate_gain("leaky_relu", 1) == 1.0
    with pytest.raises(ValueError, match="Unsupported nonlinearity foo"):
        nn.init.calculate_gain("foo")


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (-0.1, 0.1), (1.0, 3.0)])
def test_trunc_normal(bounds):
    values = nn.init.trunc_normal_(torch.empty(500), 0.0, 1.0, *bounds)
    assert values.min() >= bounds[0] and values.max() <= bounds[1]


def test_fan():
    with pytest.raises(ValueError, match="Fan in and fan out can not be computed"):
        nn.init.kaiming_uniform_(torch.ones(3))
    weight = nn.init.xavier_uniform_(torch.empty(30, 20))
    assert weight.abs().max() <= math.sqrt(6 / 50)
