"""Subclasses, modes, trees, hooks of modules, copies, threads, utilities."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections import OrderedDict

import torch
import torch.nn as nn

from tests.differential.show import describe, numbers, raised


class _Unit(torch.Tensor):
    @staticmethod
    def __new__(cls, data, unit=""):
        return torch.as_tensor(data, dtype=torch.float32).as_subclass(cls)

    def __init__(self, data, unit=""):
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls):
            out.unit = next(
                (a.unit for a in args if isinstance(a, cls) and hasattr(a, "unit")), "?"
            )
        return out

    def __repr__(self):
        return f"{super().__repr__()} {self.unit}"


def tensors_with_units() -> None:
    x = _Unit([1.0, 2.0], "m")
    y = x * 2 + 1
    print(
        y,
        y.unit,
        type(y.mean()).__name__,
        y.mean().unit,
        pickle.loads(pickle.dumps(x)).unit,
        x.clone().unit,
    )
    print(
        type(x.numpy()).__name__,
        type(x.tolist()).__name__,
        isinstance(x, torch.Tensor),
        type(x.detach()).__name__,
        type(nn.Parameter(x)).__name__,
        type(torch.ones(2) + x).__name__,
    )


class _Logged(torch.Tensor):
    @staticmethod
    def __new__(cls, elem):
        return torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), dtype=elem.dtype, requires_grad=elem.requires_grad
        )

    def __init__(self, elem):
        self.elem = elem

    def __repr__(self):
        return f"Logged({self.elem})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        print(func)
        unwrap = lambda v: v.elem if isinstance(v, _Logged) else v  # noqa: E731
        wrap = lambda v: _Logged(v) if isinstance(v, torch.Tensor) else v  # noqa: E731
        out = func(
            *torch.utils._pytree.tree_map(unwrap, args),
            **torch.utils._pytree.tree_map(unwrap, kwargs or {}),
        )
        return torch.utils._pytree.tree_map(wrap, out)


def wrapped_tensors() -> None:
    x = _Logged(torch.ones(2, 3))
    y = x @ x.t() + 1
    print(y, type(y).__name__, y.shape, y.dtype)
    w = _Logged(torch.ones(2, 2)).requires_grad_()
    (w * w).sum().backward()
    print(w.grad)


def trees() -> None:
    from torch.utils import _pytree as pytree

    tree = {"a": [torch.ones(1), (2, None)], "b": OrderedDict(x=1)}
    leaves, spec = pytree.tree_flatten(tree)
    print(
        leaves,
        spec.num_leaves,
        pytree.tree_unflatten([10, 20, 30, 40], spec)
        if len(leaves) == 4
        else pytree.tree_unflatten(list(range(len(leaves))), spec),
    )
    print(
        pytree.tree_map(lambda v: v * 2 if v is not None else v, tree),
        pytree.tree_all(lambda v: True, tree),
        [pytree.keystr(k) for k, _ in pytree.tree_flatten_with_path(tree)[0]],
        spec,
    )
    print(
        pytree.tree_map_only(int, lambda v: -v, tree),
        pytree.tree_leaves(torch.Size([1, 2])),
        pytree.tree_structure([1]) == pytree.tree_structure([2]),
    )


def object_lifetimes() -> None:
    x = torch.ones(3)
    ref = weakref.ref(x)
    y = x.view(3)
    del x
    gc.collect()
    print(ref() is None, y.sum())
    p = torch.ones(1, requires_grad=True)
    z = p.exp()
    node = weakref.ref(z.grad_fn) if hasattr(type(z.grad_fn), "__weakref__") else None
    table = weakref.WeakKeyDictionary({y: 1})
    print(len(table), node is None or node() is not None)
    del y
    gc.collect()
    print(len(table), raised(lambda: weakref.ref(torch.float32)))


def threads() -> None:
    results = {}

    def work(i):
        with torch.no_grad():
            results[i] = (torch.is_grad_enabled(), float(torch.full((4,), float(i)).sum()))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    print(sorted(results.items()), torch.is_grad_enabled())
    torch.set_grad_enabled(False)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
    thread.start()
    thread.join()
    torch.set_grad_enabled(True)
    print(seen)


def module_copies() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.note = {"a": 1}
    twin = copy.deepcopy(net)
    shallow = copy.copy(net)
    print(
        twin[0].weight is net[0].weight,
        shallow[0].weight is net[0].weight,
        twin.note is net.note,
        torch.equal(twin[0].weight, net[0].weight),
        pickle.loads(pickle.dumps(net)).note,
    )
    shared = nn.Linear(2, 2)
    tied = nn.ModuleDict({"a": shared, "b": shared})
    again = copy.deepcopy(tied)
    print(
        again["a"] is again["b"],
        len(list(tied.parameters())),
        list(tied.state_dict()),
        len(list(tied.named_parameters(remove_duplicate=False))),
    )
    net[0].weight.grad = torch.ones(2, 2)
    print(
        copy.deepcopy(net)[0].weight.grad,
        net.zero_grad(),
        net[0].weight.grad,
        [b.dtype for b in net.double().buffers()],
    )


def module_attributes() -> None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))
            self.b = None
            self.items = [1, 2]

    net = Net()
    print(
        raised(lambda: setattr(net, "w", torch.ones(2))),
        raised(lambda: net.x),
        "w" in dir(net),
        sorted(net.__dict__.keys() - {"training"}),
        hasattr(net, "w"),
    )
    net.b = nn.Parameter(torch.zeros(1))
    net.child = nn.Linear(1, 1)
    net.child = None
    net.w = None
    print([n for n, _ in net.named_parameters()], net.child, list(net._modules), net)
    net.register_buffer("k", torch.ones(1))
    net.k = torch.zeros(2)
    print(
        net.k,
        raised(lambda: net.register_buffer("k2", 3)),
        raised(lambda: net.register_buffer("b", torch.ones(1))),
        raised(lambda: setattr(net, "k", 3)),
        net.get_buffer("k"),
        raised(lambda: net.get_parameter("nope")),
    )
    net.k = nn.Buffer(torch.ones(1))
    print(
        isinstance(net.k, nn.Buffer),
        list(net.state_dict()),
        net.train(False).training,
        raised(lambda: net.train(3)),
        net.apply(lambda m: None) is net,
        net.float() is net,
    )


def state_dict_hooks() -> None:
    class Old(nn.Module):
        _version = 2

        def __init__(self):
            super().__init__()
            self.new = nn.Linear(1, 1)

        def _load_from_state_dict(self, state, prefix, meta, strict, missing, unexpected, errors):
            print(meta, prefix)
            for key in list(state):
                if key.startswith(prefix + "old"):
                    state[key.replace("old", "new")] = state.pop(key)
            super()._load_from_state_dict(state, prefix, meta, strict, missing, unexpected, errors)

        def get_extra_state(self):
            return {"v": 1}

        def set_extra_state(self, state):
            print("extra", state)

    net = nn.Sequential(Old())
    state = net.state_dict()
    print(list(state), state._metadata)
    print(net.load_state_dict(OrderedDict((k.replace("new", "old"), v) for k, v in state.items())))
    net.register_state_dict_post_hook(lambda m, s, p, meta: s.update(added=torch.ones(1)))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    print(
        list(net.state_dict()),
        net.load_state_dict(net.state_dict()),
        raised(lambda: net.load_state_dict([1])),
    )
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "0.")
    print(list(state))


def global_hooks() -> None:
    from torch.nn.modules.module import (
        register_module_forward_hook,
        register_module_forward_pre_hook,
        register_module_full_backward_hook,
    )

    log = []
    handles = [
        register_module_forward_pre_hook(lambda m, i: log.append(("pre", type(m).__name__))),
        register_module_forward_hook(lambda m, i, o: log.append(("post", type(m).__name__))),
        register_module_full_backward_hook(
            lambda m, gi, go: log.append(("back", type(m).__name__, gi[0] is None))
        ),
    ]
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    net(torch.ones(1, 2, requires_grad=True)).sum().backward()
    for h in handles:
        h.remove()
    net(torch.ones(1, 2))
    print(log)
    always = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda m, i, o: always.append(1), always_call=True)
    layer.register_forward_hook(lambda m, i, o: always.append(2), prepend=True)
    print(raised(lambda: layer(torch.ones(3))), layer(torch.ones(2)).shape, always)


def lazy_modules() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2))
    print(
        net, net[0].weight, raised(lambda: net[0].weight.shape), net[0].has_uninitialized_params()
    )
    net(torch.ones(2, 3))
    print(net, net[0].weight.shape, type(net[0]).__name__, net[1].running_mean.shape)
    other = nn.LazyLinear(4)
    other.load_state_dict(net[0].state_dict())
    print(other.weight.shape, other(torch.ones(1, 3)).shape)


def rnn_with_packing() -> None:
    lengths = torch.tensor([2, 4, 1])
    x = torch.randn(3, 4, 2)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, (h, c) = nn.LSTM(2, 3, batch_first=True, bidirectional=True)(packed)
    padded, n = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=5)
    print(
        packed.sorted_indices,
        packed.unsorted_indices,
        packed.batch_sizes,
        padded.shape,
        n,
        numbers(padded[2, :2]),
        describe(h),
        numbers(c[:, 2]),
        describe(packed.data),
    )


def mixed_modules() -> None:
    net = nn.ModuleDict(
        {
            "conv": nn.Conv1d(2, 3, 3, padding="same", padding_mode="circular"),
            "norm": nn.InstanceNorm1d(3),
            "act": nn.PReLU(3),
            "pool": nn.AdaptiveMaxPool1d(2),
        }
    )
    x = torch.randn(2, 2, 7)
    for layer in net.values():
        x = layer(x)
        print(layer, describe(x), numbers(x.mean()))
    x.sum().backward()
    print({k: numbers(p.grad.norm()) for k, p in net.named_parameters()})
    print(
        nn.ChannelShuffle(2)(torch.arange(8.0).view(1, 4, 2, 1)).flatten(),
        nn.Fold((3, 3), 2)(torch.ones(1, 4, 4)),
        nn.CosineSimilarity()(torch.ones(1, 2), torch.ones(1, 2)),
        nn.Hardtanh(-1, 2),
        nn.ConstantPad1d((1, 2), 3.5)(torch.ones(1, 2)),
        nn.CircularPad1d(1)(torch.arange(3.0)[None]),
    )
    nn.Conv1d(1, 1, 4, padding="same")(torch.ones(1, 1, 5))


def utilities() -> None:
    from torch.utils.benchmark import Timer

    measurement = Timer("x + 1", globals={"x": torch.ones(2)}).timeit(3)
    print(
        type(measurement).__name__, measurement.number_per_run, torch.utils.data.get_worker_info()
    )
    print(
        torch.utils.dlpack.from_dlpack(torch.ones(2)),
        torch.from_dlpack(torch.arange(2)),
        torch.is_storage(3),
        torch.typename(torch.ones(1)),
        torch.typename(3),
        torch.overrides.is_tensor_method_or_property(torch.Tensor.add),
    )
    print(
        torch.version.cuda,
        torch.version.hip,
        torch.backends.cudnn.enabled,
        torch.backends.cuda.is_built(),
        torch.distributed.is_available() in (True, False),
        torch.cuda.is_initialized(),
        torch.jit.is_scripting(),
        torch.get_rng_state().dtype,
    )
    print(
        torch.nn.utils.parameters_to_vector(nn.Linear(1, 1).parameters()).shape,
        torch.nn.modules.utils._pair(3),
        torch.nn.modules.utils._ntuple(3)(1),
        torch.broadcast_shapes((2, 1), (3,)),
        torch.Size([2, 3]).numel(),
        torch.Size([1]) + torch.Size([2]),
        torch.Size([1, 2])[1:],
    )
    from torch.testing import assert_close, make_tensor

    print(
        make_tensor((2,), dtype=torch.int64, device="cpu", low=3, high=4),
        raised(lambda: assert_close({"a": torch.ones(1)}, {"a": torch.ones(1) + 1e-9})),
        raised(lambda: assert_close(torch.ones(1), torch.ones(1).double())),
    )
