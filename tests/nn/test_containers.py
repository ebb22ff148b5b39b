"""Containers behave like the lists and dictionaries they are named after."""

from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau import nn


def test_sequential():
    net = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Linear(1, 1))
    assert isinstance(net[-1], nn.Linear)
    assert [type(m) for m in net[:2]] == [nn.ReLU, nn.Tanh]
    net.insert(1, nn.GELU()).append(nn.SiLU())
    assert list(net._modules) == ["0", "1", "2", "3", "4"]
    del net[0]
    assert [type(m).__name__ for m in net] == ["GELU", "Tanh", "Linear", "SiLU"]
    assert len(net + net) == 8 and len(net * 3) == 12
    assert isinstance(nn.Sequential(OrderedDict(a=nn.ReLU())).a, nn.ReLU)
    with pytest.raises(IndexError, match="index 9 is out of range"):
        net[9]
    with pytest.raises(ValueError, match="Non-positive multiplication factor"):
        net * 0


def test_module_list():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    layers.insert(0, nn.ReLU())
    assert list(layers._modules) == ["0", "1", "2", "3"]
    assert len(layers[1:]) == 3 and len(layers + [nn.ReLU()]) == 5
    assert len(list(layers.parameters())) == 6
    assert "(1-3): 3 x Linear(in_features=2, out_features=2, bias=True)" in repr(layers)
    with pytest.raises(TypeError, match="ModuleList.extend should be called with an iterable"):
        layers.extend(3)
    with pytest.raises(NotImplementedError):
        layers(1)


def test_module_dict():
    modules = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    assert list(modules) == ["b", "a"] and "a" in modules
    modules.update([("c", nn.GELU())])
    assert isinstance(modules.pop("b"), nn.ReLU)
    assert list(modules.keys()) == ["a", "c"]
    with pytest.raises(KeyError):
        modules["q"]
    with pytest.raises(ValueError, match="has length 3; 2 is required"):
        modules.update([(1, 2, 3)])


def test_parameter_list():
    values = nn.ParameterList([torch.ones(2), nn.Parameter(torch.zeros(3)), "text"])
    assert isinstance(values[0], nn.Parameter) and values[2] == "text"
    assert list(values.state_dict()) == ["0", "1"]
    values.append(torch.ones(1))
    assert len(values) == 4 and len(values[1:]) == 3
    with pytest.raises(RuntimeError, match="should not be called"):
        values()


def test_parameter_dict():
    values = nn.ParameterDict({"a": torch.ones(2)})
    values["b"] = nn.Parameter(torch.zeros(3))
    assert isinstance(values["a"], nn.Parameter)
    assert list(values) == ["a", "b"] and values.get("q", 3) == 3
    merged = values | nn.ParameterDict({"c": torch.ones(1)})
    assert list(merged.state_dict()) == ["a", "b", "c"]
    assert values.popitem()[0] == "b" and len(values) == 1
