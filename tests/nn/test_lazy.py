"""Lazy modules: what they allow and refuse before their first call, and what they become."""

import copy
import io
import pickle

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

WAITING = [UninitializedParameter, UninitializedBuffer]
REFUSED = {
    "arithmetic": lambda t: t + 1,
    "reflected": lambda t: torch.ones(2) + t,
    "function": lambda t: torch.nn.functional.linear(torch.ones(2), t),
    "length": len,
    "method": lambda t: t.numel(),
    "detach": lambda t: t.detach(),
    "in place": lambda t: t.requires_grad_(False),
    "initialisation": nn.init.ones_,
    "value": lambda t: t.item(),
}


def network():
    """A net whose first call draws the same weights as that of any other, if called next."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)
    )


# ------------------------------------------------------------------------------ tensors
@pytest.mark.parametrize("kind", WAITING)
@pytest.mark.parametrize("operation", REFUSED.values(), ids=list(REFUSED))
def test_operations_need_a_shape(kind, operation):
    with pytest.raises(ValueError, match="Attempted to use an uninitialized") as error:
        operation(kind())
    assert "\nhint: " in str(error.value)


@pytest.mark.parametrize("kind", WAITING)
def test_shape_and_shared_memory_are_refused(kind):
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = kind().shape
    with pytest.raises(RuntimeError, match="Can't share memory"):
        kind().share_memory_()


@pytest.mark.parametrize("kind", WAITING)
def test_what_is_known_before_the_shape(kind):
    tensor = kind(device="meta", dtype=torch.float64)
    assert is_lazy(tensor) and repr(tensor) == f"<{kind.__name__}>"
    assert tensor.dtype is torch.float64 and tensor.device.type == "meta"
    assert tensor.grad is None and tensor.is_floating_point() and len({tensor}) == 1
    assert tensor.requires_grad is (kind is UninitializedParameter)


def test_copies_keep_the_options():
    parameter = UninitializedParameter(False, dtype=torch.float16)
    for other in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert type(other) is UninitializedParameter and other is not parameter
        assert other.dtype is torch.float16 and not other.requires_grad
    buffer = pickle.loads(pickle.dumps(UninitializedBuffer(dtype=torch.int64, persistent=False)))
    assert type(buffer) is UninitializedBuffer and buffer.dtype is torch.int64
    assert not buffer.persistent
    with pytest.raises(ValueError, match="uninitialized"):
        copy.deepcopy(buffer)


def test_materialize_keeps_the_identity():
    parameter = UninitializedParameter(dtype=torch.float64)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    optimizer.step()  # nothing to do yet
    parameter.materialize((2, 3))
    assert type(parameter) is nn.Parameter and not is_lazy(parameter)
    assert parameter.shape == (2, 3) and parameter.dtype is torch.float64
    with torch.no_grad():
        parameter.fill_(1)
    (parameter * 2).sum().backward()
    optimizer.step()
    assert torch.equal(parameter.detach(), torch.zeros(2, 3, dtype=torch.float64))
    buffer = UninitializedBuffer()
    buffer.materialize(3, dtype=torch.int64)
    assert type(buffer) is torch.Tensor and isinstance(buffer, nn.Buffer)
    assert buffer.dtype is torch.int64 and buffer.shape == (3,)


# ------------------------------------------------------------------------------ modules
def test_first_call_makes_the_eager_module():
    net, x = network(), torch.randn(2, 3, 5, 5)
    assert "LazyConv2d(0, 4" in repr(net) and net[0].has_uninitialized_params()
    net(x)
    kinds = [type(m) for m in net]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Linear]
    assert net[0].in_channels == 3 and net[1].num_features == 4 and net[4].in_features == 36
    for module in net:
        assert not module._forward_pre_hooks and not module._load_state_dict_pre_hooks
        assert not hasattr(module, "_initialize_hook") and not hasattr(module, "_load_hook")


def test_weights_are_those_of_the_eager_module():
    torch.manual_seed(3)
    lazy = nn.LazyConvTranspose1d(6, 3, groups=2)
    lazy(torch.zeros(2, 4, 9))
    torch.manual_seed(3)
    eager = nn.ConvTranspose1d(4, 6, 3, groups=2)
    for name, value in eager.state_dict().items():
        assert torch.equal(lazy.state_dict()[name], value)


def test_hooks_of_the_user_see_the_eager_module():
    seen = []
    layer = nn.LazyLinear(3)
    layer.register_forward_pre_hook(lambda module, args: seen.append(type(module)))
    layer.register_forward_hook(lambda module, args, out: seen.append(type(module)))
    layer(input=torch.ones(2))
    assert seen == [nn.Linear, nn.Linear]


@pytest.mark.parametrize("convert", ["half", "double"])
def test_conversion_before_the_first_call(convert):
    net = getattr(network(), convert)()
    assert net(getattr(torch.ones(2, 3, 5, 5), convert)()).dtype is net[1].running_mean.dtype
    assert {t.dtype for t in net.parameters()} == {net[1].running_var.dtype}
    with pytest.raises(RuntimeError, match="Can't share memory"):
        network().share_memory()


def test_optimizer_made_before_the_first_call():
    net, x = network(), torch.randn(2, 3, 5, 5)
    optimizer = torch.optim.Adam(net.parameters())
    before = net(x)
    before.sum().backward()
    optimizer.step()
    assert not torch.equal(net(x), before)


def test_copies_of_a_module_are_apart():
    layer = nn.LazyLinear(3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        other(torch.ones(2, 5))
        assert type(other) is nn.Linear and not other._forward_pre_hooks
        assert type(layer) is nn.LazyLinear and len(layer._forward_pre_hooks) == 1
    layer(torch.ones(4))
    assert layer.in_features == 4


# ------------------------------------------------------------------------------ state
def test_state_between_lazy_modules():
    lazy = network()
    state = lazy.state_dict()
    assert is_lazy(state["0.weight"]) and state["0.weight"] is lazy[0].weight
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file)
    assert {k for k, v in loaded.items() if is_lazy(v)} == {
        k for k, v in state.items() if is_lazy(v)
    }
    other = network()
    other.load_state_dict(loaded)
    assert is_lazy(other[1].running_mean)
    x = torch.randn(2, 3, 5, 5)
    torch.manual_seed(1)
    expected = lazy(x)
    torch.manual_seed(1)
    assert torch.equal(other(x), expected)


def test_lazy_modules_load_eager_state():
    eager, lazy, x = network(), network(), torch.randn(2, 3, 5, 5)
    eager(x)
    optimizer = torch.optim.SGD(lazy.parameters(), lr=0.1)
    lazy.load_state_dict(eager.state_dict())
    assert type(lazy[0]) is nn.LazyConv2d and type(lazy[0].weight) is nn.Parameter
    assert optimizer.param_groups[0]["params"][0] is lazy[0].weight
    assert torch.equal(lazy(x), eager(x)) and repr(lazy) == repr(eager)
    norm = nn.LazyInstanceNorm1d()
    norm.load_state_dict(nn.InstanceNorm1d(4, affine=True, track_running_stats=True).state_dict())
    norm(torch.randn(2, 4, 5))
    assert norm.num_features == 4


def test_sizes_that_do_not_fit_loaded_weights():
    lazy = nn.LazyLinear(3)
    lazy.load_state_dict(nn.Linear(4, 3).state_dict())
    with pytest.raises(AssertionError, match="the input has 5 features, the loaded weight 4"):
        lazy(torch.ones(5))
    assert lazy(torch.ones(4)).shape == (3,)


def test_eager_modules_do_not_load_lazy_state():
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        nn.Linear(4, 3).load_state_dict(nn.LazyLinear(3).state_dict())


# ------------------------------------------------------------------------------ own lazy modules
class Scale(LazyModuleMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = UninitializedParameter()
        self.register_buffer("count", UninitializedBuffer(), persistent=False)

    def initialize_parameters(self, x):
        self.weight.materialize(x.shape)
        nn.init.ones_(self.weight)

    def forward(self, x):
        return x * self.weight


def test_modules_must_be_initialised_whole():
    scale = Scale()
    assert list(scale.state_dict()) == ["weight"]
    with pytest.raises(RuntimeError, match="module Scale has not been fully initialized"):
        scale(torch.ones(2))
    scale = Scale()
    del scale.count
    assert torch.equal(scale(torch.ones(2)), torch.ones(2)) and type(scale) is Scale
    assert not scale._forward_pre_hooks
    with pytest.raises(RuntimeError, match="DataParallel"):
        Scale()._replicate_for_data_parallel()

    class Nothing(LazyModuleMixin, nn.Module):
        pass

    with pytest.raises(NotImplementedError, match="initialize_parameters"):
        Nothing()(1)


def test_unbatched_instance_norm_counts_the_right_dimension():
    norm = nn.LazyInstanceNorm1d()
    assert norm(torch.randn(4, 5)).shape == (4, 5) and norm.num_features == 4


def test_bad_ranks():
    with pytest.raises(RuntimeError, match="Expected 3D"):
        nn.LazyConv2d(4, 3)(torch.ones(5, 5))
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.LazyConv2d(4, 3, groups=2)(torch.ones(1, 3, 5, 5))
    with pytest.raises(ValueError, match="expected 4D"):
        nn.LazyBatchNorm2d()(torch.ones(2, 3, 4))


# ------------------------------------------------------------------------------ compiled
@pytest.mark.parametrize("called_before", [True, False])
def test_compiled_equals_eager(called_before):
    x = torch.randn(2, 3, 5, 5)
    eager, other = network(), network()
    eager(x)
    torch.manual_seed(0)
    compiled = torch.compile(other)
    if called_before:
        other(x)
    else:
        compiled(x)
    for _ in range(2):
        assert torch.equal(compiled(x), eager(x))
    assert type(other[0]) is nn.Conv2d
