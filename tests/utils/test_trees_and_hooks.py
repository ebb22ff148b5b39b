"""Nested containers, weak keys, swapped tensors, trackers of modules, small tools of `utils`."""

import collections
import dataclasses
import gc

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils import _pytree as pytree
from flambeau.utils.hooks import RemovableHandle
from flambeau.utils.module_tracker import ModuleTracker
from flambeau.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

Point = collections.namedtuple("Point", "x y")
TREE = {
    "a": [1, (2, 3)],
    "b": collections.OrderedDict(c=4),
    "d": collections.defaultdict(list, {"z": 5}),
    "e": collections.deque([6, 7], maxlen=3),
    "f": None,
}


def test_form_as_text():
    spec = pytree.tree_structure(TREE)
    text = pytree.treespec_dumps(spec)
    assert pytree.treespec_loads(text) == spec and text.startswith('[1, {"type": "builtins.dict"')
    assert repr(pytree.tree_structure([1, (2,)])) == (
        "TreeSpec(list, None, [*,\n  TreeSpec(tuple, None, [*])])"
    )
    with pytest.raises(NotImplementedError, match="serialized_type_name"):
        pytree.treespec_dumps(pytree.tree_structure(Point(1, 2)))
    assert pytree.treespec_pprint(pytree.tree_structure(Point(1, [2]))) == "Point(x=*, y=[*])"


def test_paths():
    paths = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(TREE)]
    assert paths[:4] == ["['a'][0]", "['a'][1][0]", "['a'][1][1]", "['b']['c']"]
    assert all(
        pytree.key_get(TREE, path) == leaf for path, leaf in pytree.tree_leaves_with_path(TREE)
    )
    assert pytree.keystr(pytree.tree_leaves_with_path(Point(1, [2]))[1][0]) == ".y[0]"


def test_registered_classes():
    @dataclasses.dataclass
    class Pair:
        a: object
        b: object = None
        note: str = "n"

    pytree.register_dataclass(Pair, drop_field_names=["note"], serialized_type_name="test.Pair")
    try:
        assert pytree.tree_map(lambda x: 2 * x, Pair(1, [2], "q")) == Pair(2, [4], "n")
        assert pytree.tree_leaves(Pair(1)) == [1]
        spec = pytree.tree_structure(Pair(1, 2))
        assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
        with pytest.raises(ValueError, match="already registered"):
            pytree.register_dataclass(Pair)
    finally:
        pytree._deregister_pytree_node(Pair)
    assert pytree.tree_is_leaf(Pair(1))
    with pytest.raises(TypeError, match="__eq__"):
        pytree.register_constant(type("Plain", (), {}))


def test_only_some_leaves():
    assert pytree.tree_map_only((int, str), str, [1, "a", 2.0]) == ["1", "a", 2.0]
    assert pytree.tree_map_only(int | float, str, [1, "a"]) == ["1", "a"]
    assert pytree.tree_map_only(lambda x: x == 1, str, [1, 2]) == ["1", 2]
    lists = pytree.tree_map_only(list, len, [1, [2]], is_leaf=lambda x: x == [2])
    assert lists == [1, 1]
    assert pytree.tree_all_only(int, lambda x: x > 1, ["a", 2])
    assert not pytree.tree_any_only(int, lambda x: x > 5, ["a", 2])


def test_dicts_match_by_key():
    assert pytree.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}) == {
        "a": (1, 4),
        "b": (2, 3),
    }
    with pytest.raises(ValueError, match="structures differ"):
        pytree.tree_map(lambda a, b: a, {"a": 1}, {"b": 1})


def test_one_class_of_handles():
    module = nn.Linear(1, 1)
    tensor = torch.ones(1, requires_grad=True)
    handles = [
        module.register_forward_hook(print),
        tensor.register_hook(print),
        torch.optim.SGD([tensor], 0.1).register_step_post_hook(print),
    ]
    assert all(type(handle) is RemovableHandle for handle in handles)


def test_weak_keys():
    first, second = torch.ones(2), torch.ones(2)
    table = WeakTensorKeyDictionary({first: 1})
    table[second] = 2
    assert (table[first], len(table), second in table) == (1, 2, True)
    reference = TensorWeakRef(second)
    assert reference() is second
    del second
    gc.collect()
    assert reference() is None and list(table.values()) == [1]
    assert torch.ones(2) not in table


def test_swapped_tensors():
    parameter, other = nn.Parameter(torch.ones(2)), torch.arange(3)
    parameter.grad = torch.full((2,), 5.0)
    other.note = "kept"
    torch.utils.swap_tensors(parameter, other)
    assert isinstance(other, nn.Parameter) and other.requires_grad and other.grad[0] == 5
    assert type(parameter) is torch.Tensor and parameter.tolist() == [0, 1, 2]
    assert parameter.note == "kept" and not parameter.requires_grad
    with pytest.raises(RuntimeError, match="computed from"):
        torch.utils.swap_tensors(other * 2, parameter)


def test_names_of_running_modules():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    seen = []
    net[1][0].register_forward_pre_hook(lambda *_: seen.append(sorted(tracker.parents)))
    with ModuleTracker() as tracker:
        y = net(torch.ones(1, 2, requires_grad=True))
        assert tracker.parents == {"Global"}
        y.sum().backward()
    assert seen == [["Global", "Sequential", "Sequential.1", "Sequential.1.0"]]


def test_backward_hook_class():
    calls = []
    hook = torch.utils.hooks.BackwardHook(
        "m", [lambda m, gi, go: calls.append((m, gi[0].item(), go[0].item()))], []
    )
    x = torch.ones(1, requires_grad=True)
    (inner,) = hook.setup_input_hook((x * 1,))
    hook.setup_output_hook(inner * 3).sum().backward()
    assert calls == [("m", 3.0, 1.0)] and x.grad.item() == 3


def test_small_tools():
    bench = torch.utils.ThroughputBenchmark(lambda x: x + 1)
    with pytest.raises(RuntimeError, match="no inputs"):
        bench.benchmark()
    bench.add_input(torch.ones(2))
    stats = bench.benchmark(num_calling_threads=2, num_warmup_iters=1, num_iters=20)
    assert stats.num_iters == 20 and "Total number of iterations: 20" in str(stats)
    with pytest.raises(NotImplementedError, match="mobile"):
        torch.utils.mobile_optimizer.optimize_for_mobile(None)
    with pytest.raises(NotImplementedError, match="device"):
        torch.utils.rename_privateuse1_backend("mine")
    assert "test_small_tools" in torch.utils.get_cpp_backtrace()
    unique = torch.utils._ordered_set.OrderedSet([3, 1, 3])
    assert list(unique | {2}) == [3, 1, 2]


def test_report_of_the_machine():
    from flambeau.utils import collect_env

    text = collect_env.get_pretty_env_info()
    assert text.startswith(f"PyTorch version: {torch.__version__}\n") and "CPU:\n" in text
    assert collect_env.run(["no-such-command-x"])[0] == 127
    assert collect_env.run("echo hello")[:2] == (0, "hello")
