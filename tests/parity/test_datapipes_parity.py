"""Data pipes and distributed samplers against PyTorch: the same items in the same order."""

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")


def parts(name):
    names = ("utils.data", "utils.data.datapipes.iter", "utils.data.datapipes.map")
    return [importlib.import_module(f"{name}.{part}") for part in names]


EXPRESSIONS = [
    "list(I(range(20)).shuffle())",
    "list(I(range(20)).shuffle(buffer_size=4))",
    "list(I(range(20)).shuffle().set_seed(5))",
    "list(I(range(20)).groupby(third, group_size=3, buffer_size=6, guaranteed_group_size=2))",
    "list(I(range(20)).groupby(str, group_size=3, buffer_size=7, drop_remaining=True))",
    "list(I(range(3)).zip(I(range(5))))",
    "list(I(range(3)).mux(I(range(5))))",
    "[list(x) for x in I(range(5)).fork(2, buffer_size=4)]",
    "[list(x) for x in I(range(5)).fork(2, buffer_size=5)]",
    "[list(x) for x in I(range(7)).demux(3, third)]",
    "[list(x) for x in I(range(7)).demux(2, third)]",
    "list(I(range(7)).batch(2).batch(2).unbatch(unbatch_level=-1))",
    "list(I(range(7)).batch(2).batch(2).unbatch())",
    "list(I(range(7)).unbatch())",
    "list(I([(1, 2, 3), (4, 5, 6)]).map(add, input_col=[0, 2]))",
    "list(I([(1, 2, 3), (4, 5, 6)]).map(add, input_col=[0, 2], output_col=-1))",
    "list(I([(1, 2, 3)]).map(add, input_col=[0]))",
    "list(I([1, 2, 3]).filter(third))",
    "list(M.SequenceWrapper(range(5)).batch(2))",
    "list(M.SequenceWrapper(range(9)).shuffle())",
    "list(M.SequenceWrapper(range(5)).zip(M.SequenceWrapper(range(3))))",
    "[x.tolist() for x in D.DataLoader(I(range(12)).shuffle(), batch_size=3)]",
    "[x.tolist() for x in D.DataLoader(I(range(12)).shuffle(), batch_size=3, shuffle=False)]",
    "[x.tolist() for x in D.DataLoader(I(list(range(12))).shuffle().sharding_filter(), "
    "batch_size=3, num_workers=2)]",
    "list(D.DistributedSampler(range(10), num_replicas=3, rank=1))",
    "list(D.DistributedSampler(range(10), num_replicas=7, rank=6, seed=3, drop_last=True))",
    "D.DistributedSampler(range(10), num_replicas=3, rank=4)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_same(expression):
    outcomes = []
    for api in (torch, flambeau):
        data, iterable, mapped = parts(api.__name__)
        names = {"D": data, "I": iterable.IterableWrapper, "M": mapped}
        names |= {"third": lambda x: x % 3, "add": lambda a, b: a + b}
        api.manual_seed(4)
        try:
            outcomes.append(eval(expression, names))
        except Exception as error:
            outcomes.append(type(error))
        outcomes.append(api.rand(1).item())
    assert outcomes[:2] == outcomes[2:]
