"""`nn.Module`: registration, lookup, state, hooks, conversion, copies."""

import copy
import pickle
from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.rest = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.register_buffer("offset", torch.ones(2))
        self.register_buffer("scratch", torch.ones(1), persistent=False)
        self.scale = nn.Parameter(torch.zeros(2))

    def forward(self, x, factor=1):
        return self.rest(self.first(x)) * factor + self.scale


def message(error):
    return str(error.value)


def test_names():
    net = Net()
    assert list(net.state_dict()) == [
        "scale", "offset", "first.weight", "first.bias", "rest.0.weight", "rest.0.bias",
        "rest.1.weight", "rest.1.bias", "rest.1.running_mean", "rest.1.running_var",
        "rest.1.num_batches_tracked",
    ]  # fmt: skip
    assert [name for name, _ in net.named_modules()] == [
        "", "first", "rest", "rest.0", "rest.1",
    ]  # fmt: skip
    assert [name for name, _ in net.named_parameters("p", recurse=False)] == ["p.scale"]
    assert [name for name, _ in net.named_buffers()][:2] == ["offset", "scratch"]


def test_shared_parameters_count_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert len(net.state_dict()) == 4


@pytest.mark.parametrize(
    "name,value,text",
    [
        ("scale", torch.zeros(1), "as parameter 'scale' (torch.nn.Parameter or None expected)"),
        ("first", 3, "cannot assign 'int' as child module 'first' (torch.nn.Module or None"),
        ("offset", 3, "cannot assign 'int' as buffer 'offset' (torch.nn.Buffer, torch.Tensor"),
    ],
)
def test_assignment_of_another_kind(name, value, text):
    with pytest.raises(TypeError) as error:
        setattr(Net(), name, value)
    assert text in message(error)


def test_assignment_replaces():
    net = Net()
    net.scale = None
    assert net.scale is None and "scale" not in net.state_dict()
    net.first = nn.Identity()
    assert isinstance(net.first, nn.Identity)
    net.offset = torch.zeros(3)
    assert net.state_dict()["offset"].shape == (3,)
    del net.offset
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'offset'"):
        net.offset  # noqa: B018
    net.extra = torch.ones(1)  # a plain tensor is a plain attribute
    assert "extra" not in net.state_dict()


def test_before_init():
    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\)"):
        Early()


@pytest.mark.parametrize("name", ["", "a.b", "first"])
def test_bad_parameter_names(name):
    with pytest.raises(KeyError):
        Net().register_parameter(name, nn.Parameter(torch.ones(1)))


def test_registration_of_results_is_refused():
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor to parameter 'q'"):
        value = (nn.Parameter(torch.ones(1)) * 2).as_subclass(nn.Parameter)  # with history
        Net().register_parameter("q", value)


def test_lookup():
    net = Net()
    assert net.get_submodule("rest.0") is net.rest[0]
    assert net.get_submodule("") is net
    assert net.get_parameter("rest.0.bias") is net.rest[0].bias
    assert net.get_buffer("rest.1.running_var") is net.rest[1].running_var
    with pytest.raises(AttributeError, match="Sequential has no attribute `7`"):
        net.get_submodule("rest.7")
    with pytest.raises(AttributeError, match="`scale` is not an nn.Module"):
        net.get_submodule("scale")
    net.set_submodule("rest.1", nn.Identity())
    assert isinstance(net.rest[1], nn.Identity)
    with pytest.raises(AttributeError):
        net.set_submodule("rest.9", nn.Identity(), strict=True)


class TestState:
    def test_round_trip(self):
        a, b = Net(), Net()
        assert repr(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
        assert torch.equal(a.first.weight, b.first.weight)
        assert a.state_dict()._metadata["rest.1"] == {"version": 2}

    def test_missing_and_unexpected(self):
        net = Net()
        state = OrderedDict(net.state_dict())
        del state["scale"]
        state["first.more"] = torch.ones(1)
        with pytest.raises(RuntimeError) as error:
            net.load_state_dict(state)
        assert (
            "Error(s) in loading state_dict for Net:\n"
            '\tMissing key(s) in state_dict: "scale". \n'
            '\tUnexpected key(s) in state_dict: "first.more". '
        ) in message(error)
        keys = net.load_state_dict(state, strict=False)
        assert keys.missing_keys == ["scale"] and keys.unexpected_keys == ["first.more"]

    def test_sizes(self):
        net = Net()
        state = dict(net.state_dict(), scale=torch.ones(5))
        with pytest.raises(RuntimeError) as error:
            net.load_state_dict(state, strict=False)
        assert (
            "size mismatch for scale: copying a param with shape torch.Size([5]) from checkpoint, "
            "the shape in current model is torch.Size([2])."
        ) in message(error)

    def test_assign(self):
        net = Net()
        state = {k: v.double() for k, v in net.state_dict().items()}
        net.load_state_dict(state, assign=True)
        assert net.scale.dtype is torch.float64
        assert isinstance(net.scale, nn.Parameter) and net.scale.requires_grad

    def test_extra_state(self):
        class Extra(nn.Module):
            def get_extra_state(self):
                return {"value": 1}

            def set_extra_state(self, state):
                self.got = state

        module = Extra()
        assert dict(module.state_dict()) == {"_extra_state": {"value": 1}}
        module.load_state_dict(module.state_dict())
        assert module.got == {"value": 1}
        with pytest.raises(RuntimeError, match="_extra_state"):
            module.load_state_dict({})

    def test_hooks(self):
        layer = nn.Linear(1, 1)
        layer.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append("pre"))
        layer.register_state_dict_post_hook(
            lambda m, state, prefix, meta: state.__delitem__("bias")
        )
        layer.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        calls = []
        assert list(layer.state_dict()) == ["weight"]
        assert calls == ["pre"]
        layer.load_state_dict(layer.state_dict())


class TestHooks:
    def test_order_and_arguments(self):
        net, log = Net(), []
        net.register_forward_pre_hook(lambda m, args: log.append("second"))
        net.register_forward_pre_hook(
            lambda m, args, kwargs: (args, {**kwargs, "factor": 0}),
            with_kwargs=True,
            prepend=True,
        )
        net.register_forward_hook(lambda m, args, kwargs, out: log.append(kwargs), with_kwargs=True)
        handle = net.register_forward_hook(lambda m, args, out: out + 5)
        assert net(torch.ones(3, 2)).tolist() == [[5.0, 5.0]] * 3
        assert log == ["second", {"factor": 0}]
        handle.remove()
        assert net(torch.ones(3, 2)).tolist() == [[0.0, 0.0]] * 3

    def test_always_called(self):
        class Broken(nn.Module):
            def forward(self, x):
                raise ValueError("boom")

        module, log = Broken(), []
        module.register_forward_hook(lambda m, a, out: log.append(out), always_call=True)
        module.register_forward_hook(lambda m, a, out: log.append("never"))
        with pytest.raises(ValueError, match="boom"):
            module(1)
        assert log == [None]

    def test_full_backward(self):
        layer, log = nn.Linear(2, 3), []
        layer.register_full_backward_pre_hook(lambda m, grad: log.append(grad[0].shape))
        layer.register_full_backward_hook(
            lambda m, into, out: (log.append((into[0].shape, out[0].shape)), (into[0] * 0,))[1]
        )
        x = torch.ones(4, 2, requires_grad=True)
        layer(x).sum().backward()
        assert log == [(4, 3), ((4, 2), (4, 3))]
        assert x.grad.abs().sum() == 0 and layer.weight.grad is not None

    def test_full_backward_without_input_gradient(self):
        layer, log = nn.Linear(2, 3), []
        layer.register_full_backward_hook(lambda m, into, out: log.append((into, out[0].shape)))
        layer(torch.ones(4, 2)).sum().backward()
        assert log == [((None,), (4, 3))]

    def test_kinds_do_not_mix(self):
        layer = nn.Linear(1, 1)
        layer.register_full_backward_hook(lambda *a: None)
        with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
            layer.register_backward_hook(lambda *a: None)

    def test_global(self):
        log = []
        hook = nn.modules.module.register_module_forward_hook(
            lambda m, args, out: log.append(type(m).__name__)
        )
        net = nn.Sequential(nn.ReLU(), nn.Tanh())
        net(torch.ones(1))
        hook.remove()
        net(torch.ones(1))
        assert log == ["ReLU", "Tanh", "Sequential"]

    def test_registration(self):
        log = []
        hook = nn.modules.module.register_module_parameter_registration_hook(
            lambda m, name, p: log.append(name)
        )
        nn.Linear(1, 1)
        hook.remove()
        assert log == ["weight", "bias"]


def test_conversion_keeps_parameters():
    net = Net()
    weight = net.first.weight
    assert net.to(torch.float64).first.weight is weight
    assert weight.dtype is torch.float64
    assert net.rest[1].num_batches_tracked.dtype is torch.int64
    assert net.half().first.weight.dtype is torch.float16
    assert net.float().offset.dtype is torch.float32
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        net.to(torch.int32)
    with pytest.raises(AssertionError):
        net.cuda()


def test_modes():
    net = Net()
    assert not any(m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(3)
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad():
    layer = nn.Linear(1, 1)
    layer(torch.ones(1)).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad.item() == 0
    layer.zero_grad()
    assert layer.weight.grad is None


@pytest.mark.parametrize("owner", [lambda p: torch.optim.SGD([p], 1.0), lambda p: _holding(p)])
def test_zero_grad_of_views_and_graphs(owner):
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.ones(6).view(2, 3)
    gradient = weight.grad
    owner(weight).zero_grad(set_to_none=False)
    assert weight.grad is gradient and not gradient.any()
    weight.grad = None
    (weight * weight).sum().backward(create_graph=True)
    owner(weight).zero_grad(set_to_none=False)
    assert not weight.grad.any() and weight.grad.grad_fn is None and not weight.grad.requires_grad


def _holding(parameter):
    module = nn.Module()
    module.parameter = parameter
    return module


def test_copies():
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert repr(other) == repr(net)
        assert torch.equal(other.first.weight, net.first.weight)
        assert isinstance(other.first.weight, nn.Parameter)
        other.first.weight.data.zero_()
        assert net.first.weight.abs().sum() > 0


def test_forward_is_required():
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)


def test_parameter():
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]), requires_grad=False)
    assert repr(parameter) == "Parameter containing:\ntensor([1., 2.])"
    assert type(parameter * 2) is torch.Tensor
    assert not isinstance(torch.ones(1), nn.Parameter)
    with pytest.raises(RuntimeError):
        nn.Parameter(torch.ones(1, dtype=torch.int64))


def test_buffer():
    module = nn.Module()
    module.kept = nn.Buffer(torch.ones(2))
    module.lost = nn.Buffer(torch.ones(2), persistent=False)
    assert list(module.state_dict()) == ["kept"]
    assert [name for name, _ in module.named_buffers()] == ["kept", "lost"]


def test_compile():
    net = Net().eval()
    x = torch.randn(3, 2)
    expected = net(x)
    net.compile()
    assert torch.equal(net(x), expected)
