"""nn.utils, state dicts, copies, generators, loaders and samplers at their edges."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import parametrize, prune
from torch.utils import data

from tests.differential.show import describe, numbers, raised


class _Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, a):
        return a.triu()


class _Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def parametrization_chains() -> None:
    net = nn.Linear(3, 3)
    parametrize.register_parametrization(net, "weight", _Symmetric())
    parametrize.register_parametrization(net, "weight", _Scaled(2.0))
    print(net, [n for n, _ in net.named_parameters()], list(net.state_dict()))
    print(
        torch.equal(net.weight, net.weight.T), type(net).__name__, parametrize.is_parametrized(net)
    )
    print(raised(lambda: setattr(net, "weight", torch.ones(3, 3))))
    with parametrize.cached():
        print(net.weight is net.weight)
    print(net.weight is net.weight, len(net.parametrizations.weight))
    parametrize.remove_parametrizations(net, "weight", leave_parametrized=True)
    print(net, type(net).__name__, torch.equal(net.weight, net.weight.T))
    print(raised(lambda: parametrize.remove_parametrizations(net, "weight")))
    print(raised(lambda: parametrize.register_parametrization(net, "none", _Symmetric())))


def parametrization_inverse() -> None:
    net = nn.Linear(3, 3)
    parametrize.register_parametrization(net, "weight", _Symmetric())
    net.weight = torch.arange(9.0).view(3, 3)
    print(numbers(net.weight), numbers(net.parametrizations.weight.original))
    net(torch.ones(1, 3)).sum().backward()
    print(numbers(net.parametrizations.weight.original.grad), describe(net.weight))
    other = nn.Linear(3, 3)
    parametrize.transfer_parametrizations_and_params(net, other)
    print(torch.equal(other.weight, net.weight), other)


def pruning_methods() -> None:
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight.copy_(torch.arange(12.0).view(3, 4))
    prune.l1_unstructured(net, "weight", 0.25)
    print(numbers(net.weight), [n for n, _ in net.named_buffers()], prune.is_pruned(net))
    prune.ln_structured(net, "weight", 1, n=2, dim=0)
    print(numbers(net.weight), list(net._forward_pre_hooks.values())[0])
    print([n for n, _ in net.named_parameters()], raised(lambda: prune.remove(net, "bias")))
    prune.remove(net, "weight")
    print([n for n, _ in net.named_parameters()], prune.is_pruned(net))
    print(raised(lambda: prune.l1_unstructured(net, "weight", 1.5)))
    print(raised(lambda: prune.l1_unstructured(net, "weight", 13)))
    prune.custom_from_mask(net, "bias", torch.tensor([1.0, 0, 1]))
    print(net.bias_mask, net.bias.shape, list(net.state_dict()))


def global_pruning() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.arange(1.0, 7).view(2, 3))
        net[1].weight.copy_(torch.arange(1.0, 5).view(2, 2) / 2)
    pairs = [(net[0], "weight"), (net[1], "weight")]
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=4)
    print(numbers(net[0].weight), numbers(net[1].weight))
    print(int(net[0].weight_mask.sum()), int(net[1].weight_mask.sum()))


def clipping_variants() -> None:
    p = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    p[0].grad = torch.tensor([3.0, -4.0])
    norm = nn.utils.clip_grad_norm_(p, 1.0)
    print(norm, p[0].grad, p[1].grad)
    print(nn.utils.clip_grad_norm_([], 1.0), nn.utils.clip_grad_norm_(p[1], 1.0))
    p[1].grad = torch.tensor([float("inf"), 1.0, 1.0])
    print(raised(lambda: nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)))
    print(nn.utils.clip_grad_norm_(p, 2.0, norm_type=float("inf")), p[1].grad)
    p[1].grad = torch.tensor([5.0, -7.0, 1.0])
    nn.utils.clip_grad_value_(p, 2.0)
    print(p[1].grad, nn.utils.get_total_norm([x.grad for x in p]))
    nn.utils.clip_grads_with_norm_(p, 0.5, torch.tensor(2.0))
    print(p[1].grad)


def packed_sequences() -> None:
    rnn = nn.utils.rnn
    lengths = torch.tensor([2, 4, 1])
    x = torch.arange(24.0).view(3, 4, 2)
    packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    print(packed.data.shape, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    back, sizes = rnn.pad_packed_sequence(
        packed, batch_first=True, padding_value=-1.0, total_length=5
    )
    print(back[..., 0], sizes)
    print(raised(lambda: rnn.pack_padded_sequence(x, lengths, batch_first=True)))
    print(raised(lambda: rnn.pack_padded_sequence(x, torch.tensor([2, 0, 1]), True, False)))
    print(raised(lambda: rnn.pad_packed_sequence(packed, total_length=3)))
    parts = rnn.unpack_sequence(packed)
    print([tuple(p.shape) for p in parts], packed.to(torch.float64).data.dtype, packed.is_cuda)
    print(rnn.pad_sequence([torch.ones(2), torch.ones(3)], True, 9.0, padding_side="left"))
    print(rnn.unpad_sequence(torch.ones(3, 2), torch.tensor([1, 3])))
    print(rnn.pack_sequence([torch.ones(3), torch.ones(2)]))


def vectors_of_parameters() -> None:
    net = nn.Linear(2, 2)
    flat = nn.utils.parameters_to_vector(net.parameters())
    print(describe(flat), raised(lambda: nn.utils.vector_to_parameters([1.0], net.parameters())))
    nn.utils.vector_to_parameters(torch.arange(6.0), net.parameters())
    print(net.weight, net.bias, nn.utils.skip_init(nn.Linear, 2, 3).weight.shape)
    fused = nn.utils.fuse_linear_bn_eval(nn.Linear(2, 2).eval(), nn.BatchNorm1d(2).eval())
    print(type(fused).__name__, fused.training, raised(nn.utils.fuse_conv_bn_eval, net, net))


def spectral_and_weight_norm() -> None:
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2), dim=0)
    print(net, list(net.state_dict()), describe(net.weight))
    net = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    print(list(net.state_dict()), describe(net.weight))
    old = nn.utils.weight_norm(nn.Linear(3, 2))
    print([n for n, _ in old.named_parameters()], describe(old.weight))
    nn.utils.remove_weight_norm(old)
    print([n for n, _ in old.named_parameters()], raised(nn.utils.remove_weight_norm, old))


def strictness_of_state_dicts() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    state = net.state_dict()
    state["more"] = torch.ones(1)
    del state["0.bias"]
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        print([line for line in str(error).splitlines() if line.startswith("\t")])
    print(net.load_state_dict(state, strict=False))
    state["0.weight"] = torch.ones(4, 4)
    try:
        net.load_state_dict(state, strict=False)
    except RuntimeError as error:
        print([line for line in str(error).splitlines() if line.startswith("\t")])
    print(raised(lambda: net.load_state_dict([1])), raised(lambda: net.load_state_dict(None)))
    print(net.load_state_dict(net.state_dict()), net.state_dict()._metadata)


def assigned_state() -> None:
    net = nn.Linear(2, 2)
    before = net.weight
    state = {"weight": torch.ones(2, 2, dtype=torch.float64), "bias": torch.zeros(2)}
    net.load_state_dict(state)
    print(net.weight is before, net.weight.dtype)
    net.load_state_dict(state, assign=True)
    print(
        net.weight is before, net.weight.dtype, net.weight.data_ptr() == state["weight"].data_ptr()
    )
    print(type(net.weight).__name__, net.weight.requires_grad)
    with torch.device("meta"):
        hollow = nn.Linear(2, 2)
    hollow.load_state_dict(state, assign=True)
    print(hollow.weight.device, hollow(torch.ones(1, 2, dtype=torch.float64)) if False else "")
    kept = net.state_dict(keep_vars=True)
    print(type(kept["weight"]).__name__, kept["weight"] is net.weight)
    target: OrderedDict[str, torch.Tensor] = OrderedDict()
    print(net.state_dict(destination=target, prefix="a.") is target, list(target))


def hooks_of_state_dicts() -> None:
    net = nn.Linear(1, 1)
    calls = []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(("pre", prefix, keep)))
    net.register_state_dict_post_hook(lambda m, s, p, meta: calls.append(("post", p, sorted(s))))
    net.register_load_state_dict_pre_hook(lambda m, s, *rest: calls.append(("load", sorted(s))))
    net.register_load_state_dict_post_hook(lambda m, keys: calls.append(("done", keys)))
    outer = nn.ModuleDict({"in": net})
    outer.load_state_dict(outer.state_dict())
    print(*calls, sep="\n")

    class Extra(nn.Module):
        def get_extra_state(self):
            return {"n": 3}

        def set_extra_state(self, state):
            self.seen = state

    extra = Extra()
    print(extra.state_dict(), extra.load_state_dict({"_extra_state": {"n": 4}}), extra.seen)
    print(raised(lambda: extra.load_state_dict({})))


def buffers_and_parameters() -> None:
    net = nn.Module()
    net.register_buffer("a", torch.ones(1), persistent=False)
    net.register_buffer("b", None)
    net.register_parameter("p", None)
    print(list(net.state_dict()), dict(net.named_buffers()), dict(net.named_parameters()))
    print(raised(lambda: net.register_buffer("a", torch.ones(1))))
    print(
        raised(lambda: net.register_buffer("x.y", torch.ones(1))),
        raised(net.register_buffer, "", 1),
    )
    print(raised(lambda: net.register_buffer("z", 3)), raised(lambda: setattr(net, "p", 3.0)))
    print(raised(lambda: net.register_parameter("q", torch.ones(1))))
    net.p = nn.Parameter(torch.ones(2))
    net.a = None
    print(
        net.p, net.a, raised(lambda: setattr(net, "p", torch.ones(2))), raised(lambda: net.missing)
    )
    del net.p
    print(hasattr(net, "p"), raised(lambda: net.get_parameter("p")), raised(net.get_submodule, "u"))


def copies_of_modules_and_tensors() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    print(raised(copy.deepcopy, y), describe(copy.copy(x)), copy.deepcopy(x).requires_grad)
    base = torch.arange(6.0)
    pair = copy.deepcopy([base, base[2:]])
    pair[0][3] = 100
    print(pair[1], pair[1].storage_offset(), copy.deepcopy({"a": base, "b": base})["a"] is base)
    twin = pickle.loads(pickle.dumps(base[1:3]))
    print(twin, twin.untyped_storage().size(), twin.stride())
    p = nn.Parameter(torch.ones(2), requires_grad=False)
    print(copy.deepcopy(p), pickle.loads(pickle.dumps(p)), type(copy.copy(p)).__name__)
    x.grad = torch.ones(3)
    x.tag = "kept"
    twin = copy.deepcopy(x)
    print(twin.grad, getattr(twin, "tag", None), pickle.loads(pickle.dumps(x)).grad)
    for kind in (torch.float16, torch.Size([2]), torch.device("cpu"), torch.contiguous_format):
        print(pickle.loads(pickle.dumps(kind)) == kind, copy.deepcopy(kind) == kind)
    print(
        raised(lambda: pickle.dumps(torch.Generator())), pickle.loads(pickle.dumps(torch.strided))
    )


def state_of_generators() -> None:
    g = torch.Generator().manual_seed(7)
    state = g.get_state()
    a = torch.rand(3, generator=g)
    g.set_state(state)
    print(torch.equal(a, torch.rand(3, generator=g)), state.dtype, state.shape, g.initial_seed())
    twin = g.clone_state()
    print(torch.equal(torch.rand(2, generator=g), torch.rand(2, generator=twin)), g.device)
    print(raised(g.set_state, torch.zeros(3, dtype=torch.uint8)), raised(g.set_state, [1]))
    print(
        raised(g.manual_seed, "a"), raised(g.manual_seed, 2**64), g.manual_seed(-1).initial_seed()
    )
    before = torch.random.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.rand(3)
    print(torch.equal(before, torch.random.get_rng_state()), torch.initial_seed())
    print(type(torch.seed()).__name__, torch.manual_seed(3) is torch.default_generator)


def draws_of_many_kinds() -> None:
    torch.manual_seed(5)
    print(torch.randint(-3, 3, (4,)), torch.randperm(5), torch.rand(2, dtype=torch.float64))
    print(torch.normal(torch.zeros(2), torch.ones(2)), torch.bernoulli(torch.tensor([0.2, 0.8])))
    print(torch.multinomial(torch.tensor([1.0, 2, 3]), 2), torch.poisson(torch.tensor([3.0, 30.0])))
    x = torch.empty(3)
    print(x.exponential_(2.0), x.geometric_(0.3), x.log_normal_(), x.cauchy_(), x.random_(0, 9))
    print(
        raised(lambda: x.uniform_(2, 1)),
        raised(lambda: x.normal_(0, -1)),
        raised(torch.randint, 3, 3, (1,)),
    )
    print(raised(lambda: torch.multinomial(torch.tensor([0.0, 0.0]), 1)))
    print(
        raised(lambda: torch.multinomial(torch.ones(2), 3)),
        raised(lambda: torch.bernoulli(torch.tensor(2.0))),
    )
    print(
        torch.rand(2, 2, out=torch.empty(2, 2)).shape,
        torch.randn_like(torch.ones(2, dtype=torch.cfloat)).dtype,
    )


def loader_arguments() -> None:
    items = list(range(7))
    print(
        [b.tolist() for b in data.DataLoader(items, 3, drop_last=True)],
        len(data.DataLoader(items, 3)),
    )
    for options in (
        {"batch_size": None},
        {"shuffle": True, "sampler": [0]},
        {"batch_sampler": [[0, 1], [2]]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_size": 0},
        {"batch_size": None, "drop_last": True},
        {"num_workers": -1},
        {"prefetch_factor": 2},
        {"timeout": -1},
        {"persistent_workers": True},
        {"sampler": data.SequentialSampler(items), "batch_size": 4},
    ):

        def run(options=options):
            return [
                b if isinstance(b, int) else b.tolist() for b in data.DataLoader(items, **options)
            ]

        try:
            print(sorted(options), run())
        except Exception as error:
            print(sorted(options), type(error).__name__)
    loader = data.DataLoader(items, 2)
    print(raised(lambda: setattr(loader, "batch_size", 3)), loader.sampler.__class__.__name__)


def sampler_edges() -> None:
    torch.manual_seed(1)
    print(list(data.RandomSampler(range(4), replacement=True, num_samples=6)))
    print(list(data.RandomSampler(range(3), num_samples=7)), raised(data.RandomSampler, range(0)))
    print(
        list(data.WeightedRandomSampler([0.1, 0.9], 4)),
        raised(data.WeightedRandomSampler, [1.0], 0),
    )
    print(list(data.BatchSampler(data.SequentialSampler(range(5)), 2, False)))
    print(raised(data.BatchSampler, range(3), 0, False), raised(data.BatchSampler, range(3), 1, 1))
    print(list(data.SubsetRandomSampler([3, 5, 9])), len(data.BatchSampler(range(5), 2, True)))
    parts = data.random_split(range(10), [0.5, 0.3, 0.2], torch.Generator().manual_seed(2))
    print([list(p) for p in parts], raised(data.random_split, range(3), [1, 1]))
    both = data.ConcatDataset([range(2), range(10, 13)])
    print(len(both), both[-1], raised(lambda: both[9]), both.cumulative_sizes)
    print(data.Subset(list("abc"), [2, 0])[1], raised(data.ConcatDataset, []))


def collate_edges() -> None:
    collate = data.default_collate
    print(collate([1, 2]), collate([1.5, 2.5]), collate(["a", "b"]), collate([True, False]))
    print(collate([{"a": 1, "b": [2, 3]}, {"a": 4, "b": [5, 6]}]), collate([(1, 2.0), (3, 4.0)]))
    print(collate([np.float32(1), np.float32(2)]).dtype, collate([np.ones(2), np.zeros(2)]).dtype)
    print(
        raised(collate, [None, None]),
        raised(collate, [[1], [1, 2]]),
        raised(collate, [np.array("a")]),
    )
    print(raised(collate, [torch.ones(1), torch.ones(2)]), collate([b"x", b"y"]))
    print(data.default_convert([np.ones(1), 3, "s", {"k": np.zeros(1)}]))

    class Pair(tuple):
        pass

    print(type(collate([OrderedDict(a=1), OrderedDict(a=2)])).__name__, collate([Pair((1, 2))]))


def tensors_of_datasets() -> None:
    x, y = torch.arange(6.0).view(3, 2), torch.tensor([1, 2, 3])
    both = data.TensorDataset(x, y)
    print(both[1], len(both), both[0:2], raised(data.TensorDataset, x, y[:2]))
    stacked = data.StackDataset(a=range(3), b="xyz")
    print(
        stacked[1],
        len(stacked),
        raised(data.StackDataset, range(2), range(3)),
        raised(data.StackDataset),
    )

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter([1, 2, 3])

    print(list(data.DataLoader(Stream(), 2)), raised(lambda: len(data.DataLoader(Stream(), 2))))
    print(
        raised(lambda: data.DataLoader(Stream(), shuffle=True)),
        list(data.ChainDataset([Stream(), Stream()])),
    )
    print(
        raised(lambda: data.DataLoader(Stream(), sampler=[1])),
        (Stream() + Stream()).__class__.__name__,
    )
