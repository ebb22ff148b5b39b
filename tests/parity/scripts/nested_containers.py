"""Nested containers: forms, texts, paths, registered classes."""

# ruff: noqa
import warnings

warnings.simplefilter("ignore")
import torch, collections, dataclasses, enum
import torch.utils._pytree as p

NT = collections.namedtuple("NT", "x y")
NT2 = collections.namedtuple("NT2", "x y")
t = {
    "a": [1, (2, 3)],
    "b": collections.OrderedDict(c=4),
    "d": collections.defaultdict(list, {"z": 5}),
    "e": collections.deque([6, 7], maxlen=3),
    "f": NT(8, 9),
    "g": None,
    "h": torch.max(torch.ones(2, 2), 0),
}
l, s = p.tree_flatten(t)
print(s)
print(s.num_nodes, s.num_leaves, s.num_children, s.type, s.context, s.children()[0], s.child(1))
try:
    print(p.treespec_dumps(s))
except Exception as e:
    print(type(e))
t.pop("h")
print(p.treespec_pprint(s).split("torch")[0])
print(p.tree_structure(t["f"]))
t.pop("f")
d = p.treespec_dumps(p.tree_structure(t))
print(d)
print(p.treespec_loads(d) == p.tree_structure(t))
p._register_namedtuple(NT2, serialized_type_name="my.NT2")
d = p.treespec_dumps(p.tree_structure(NT2(1, [2])))
print(d)
print(p.treespec_loads(d))
for k, v in p.tree_leaves_with_path(t):
    print(k, p.keystr(k), p.key_get(t, k), v)
f = NT(1, [2])
print([p.keystr(k) for k, _ in p.tree_leaves_with_path(f)], p.tree_leaves_with_path(f)[0][0])


@dataclasses.dataclass
class D:
    a: int
    b: list
    c: str = "q"


@dataclasses.dataclass
class D2:
    a: int
    b: list
    c: str = "q"


p.register_dataclass(D, serialized_type_name="my.D")
x = D(1, [2, 3])
print(p.tree_flatten(x))
print([p.keystr(k) for k, _ in p.tree_leaves_with_path(x)])
print(p.tree_unflatten([1, 2, 3, 4], p.tree_structure(x)))
print(p.treespec_dumps(p.tree_structure(x)))
p.register_dataclass(D2, field_names=["a", "b"], drop_field_names=["c"])
print(p.tree_flatten(D2(1, [2, 3])), p.tree_map(lambda x: x + 1, D2(1, [2], "z")))


@dataclasses.dataclass
class D3:
    a: int
    b: object = None


p.register_dataclass(D3)
print(p.tree_flatten(D3(1)), p.tree_flatten(D3(1, 2)), p.tree_map(lambda x: x, D3(5)))


class C:
    def __init__(s, v):
        s.v = v

    def __eq__(s, o):
        return isinstance(o, C) and s.v == o.v

    def __hash__(s):
        return hash(s.v)

    def __repr__(s):
        return "C"


p.register_constant(C)
print(
    p.tree_flatten([1, C(2)]),
    p.is_constant_class(C),
    p.tree_structure(C(2)) == p.tree_structure(C(2)),
    p.tree_structure(C(2)) == p.tree_structure(C(3)),
    p.tree_map(lambda x: x, [C(2)]),
)


class E:
    def __init__(s, v):
        s.v = v


p.register_pytree_node(E, lambda e: ([e.v], "ctx"), lambda v, c: E(*v))
print(p.tree_structure(E([1])))


class G:
    def __init__(s, v):
        s.v = v


p.register_pytree_node(
    G,
    lambda e: ([e.v], ("ctx", 1)),
    lambda v, c: G(*v),
    serialized_type_name="G",
    to_dumpable_context=lambda c: {"q": list(c)},
    from_dumpable_context=lambda c: tuple(c["q"]),
    flatten_with_keys_fn=lambda e: ([(p.GetAttrKey("v"), e.v)], ("ctx", 1)),
)
g = p.treespec_dumps(p.tree_structure(G(1)))
print(
    g,
    p.treespec_loads(g),
    p.treespec_loads(g) == p.tree_structure(G(1)),
    p.tree_leaves_with_path([G([1])]),
)
for i, f in enumerate(
    [
        lambda: p.register_pytree_node(E, lambda e: ([e.v], "ctx"), lambda v, c: E(*v)),
        lambda: p.treespec_dumps(p.tree_structure(E(1))),
        lambda: p.tree_leaves_with_path(E(1)),
        lambda: p.tree_unflatten([1], p.tree_structure([1, 2])),
        lambda: p.tree_map(lambda a, b: 0, [1], [1, 2]),
        lambda: p.tree_map(lambda a, b: 0, [1], (1,)),
        lambda: p.tree_map(lambda a, b: 0, {"a": 1}, {"b": 1}),
        lambda: p.tree_structure([1]).flatten_up_to([[1, 2]]),
        lambda: p.tree_map_only(str, lambda x: 0, ["a", 1]),
        lambda: p.tree_map_only_(int, lambda x: print(x), ["a", 1]),
        lambda: p.tree_all_only(int, lambda x: x > 1, ["a", 2]),
        lambda: p.tree_any_only(int, lambda x: x > 5, ["a", 2]),
        lambda: p.tree_map_with_path(lambda k, x: (p.keystr(k), x), {"a": [1]}),
        lambda: p.arg_tree_leaves(1, [2], a=3),
        lambda: p.tree_is_leaf(None),
        lambda: p.LeafSpec(),
        lambda: p.TreeSpec(list, None, [p.LeafSpec()]),
        lambda: p.tree_structure([]) == p.tree_structure(()),
        lambda: hash(p.tree_structure([1])) != 0,
        lambda: p.tree_map(
            lambda a, b: (a, b), collections.OrderedDict(a=1, b=2), {"b": 3, "a": 4}
        ),
        lambda: p.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}),
        lambda: p.tree_map(
            lambda a, b: (a, b), collections.deque([1], maxlen=2), collections.deque([1])
        ),
        lambda: p._broadcast_to_and_flatten([1], p.tree_structure([[1, 2]])),
        lambda: p._broadcast_to_and_flatten(0, p.tree_structure([[1, 2]])),
        lambda: p._broadcast_to_and_flatten([1, 2], p.tree_structure([1])),
        lambda: p.tree_map(lambda x: x, {"b": 1, "a": 2}),
        lambda: p.is_namedtuple(NT),
        lambda: p.is_structseq(torch.max(torch.ones(1, 1), 0)),
        lambda: p.map_only(int)(lambda x: x + 1)("a"),
        lambda: p.tree_leaves([1, None]),
        lambda: p._is_leaf([]),
        lambda: p.treespec_tuple([p.treespec_leaf()]),
        lambda: p.treespec_dict({"a": p.treespec_leaf()}),
        lambda: p.tree_unflatten(1, p.tree_structure([1])),
        lambda: p.treespec_loads("[3,{}]"),
        lambda: p.tree_flatten(t)[1] == p.tree_flatten(t)[1],
        lambda: p.tree_map_only((int, str), str, [1, "a", 2.0]),
        lambda: p.tree_map_only(int | float, str, [1, "a", 2.0]),
        lambda: p.tree_map_only(lambda x: x == 1, str, [1, "a", 2.0]),
        lambda: p.tree_all(bool, [[1], 0]),
        lambda: p.tree_map_(print, [1, [2]]),
        lambda: p.tree_flatten([1, [2]], is_leaf=lambda x: x == [2]),
        lambda: p.tree_map_only(list, len, [1, [2]], is_leaf=lambda x: x == [2]),
        lambda: list(p.tree_iter((1, 2))),
        lambda: p.register_pytree_node(1, 2, 3),
        lambda: p.tree_map(lambda a, b: (a, b), NT(1, 2), NT(3, 4)),
        lambda: p.tree_map(lambda a, b: (a, b), NT(1, 2), NT2(3, 4)),
        lambda: p._get_node_type(NT(1, 2)).__name__,
        lambda: p._dict_flatten({"a": 1}),
        lambda: p._dict_flatten_with_keys({"a": 1}),
        lambda: p._dict_unflatten([1], ["a"]),
        lambda: dict in p.SUPPORTED_NODES,
        lambda: sorted(k.__name__ for k in p.BUILTIN_TYPES),
        lambda: p.tree_map(lambda *a: a, torch.Size([1, 2])),
        lambda: p.tree_structure([[1], 2]).is_leaf(),
        lambda: p.tree_structure([1]).unflatten([5]),
        lambda: p.tree_leaves({2: 1, "a": 3}),
        lambda: p.register_dataclass(int),
        lambda: p.treespec_dumps(5),
    ]
):
    try:
        print(i, f())
    except Exception as e:
        print(i, type(e).__name__)
print(p.GetAttrKey("a"), p.MappingKey("k"), p.SequenceKey(1), str(p.MappingKey("k")))
