"""The types of results with named fields, under the names of `torch.return_types`."""

import copy
import pickle
import subprocess
import sys
import time

import pytest

import flambeau as torch
from flambeau.utils import _pytree as pytree

X = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
CALLS = {
    "max": lambda: torch.max(X, 0),
    "sort": lambda: X.sort(),
    "topk": lambda: torch.topk(X, 1),
    "aminmax": lambda: torch.aminmax(X),
    "svd": lambda: torch.svd(X),
    "linalg_svd": lambda: torch.linalg.svd(X),
    "linalg_eigh": lambda: torch.linalg.eigh(X),
    "linalg_lstsq": lambda: torch.linalg.lstsq(X, X),
    "slogdet": lambda: torch.slogdet(X),
    "linalg_slogdet": lambda: torch.linalg.slogdet(X),
    "histogramdd": lambda: torch.histogramdd(X, [2, 2]),
    "qr_out": lambda: torch.qr(X, out=(torch.empty(0), torch.empty(0))),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_of_their_type(name):
    found, kind = CALLS[name](), getattr(torch.return_types, name)
    assert isinstance(found, kind) and isinstance(found, tuple)
    assert kind in torch.return_types.all_return_types
    assert name in dir(torch.return_types)


def test_compiled_and_mapped_results_have_the_same_type():
    assert type(torch.compile(lambda x: torch.max(x, 0))(X)) is torch.return_types.max
    assert type(torch.vmap(lambda x: torch.max(x, 0))(X)) is torch.return_types.max


def test_copies_and_pickles():
    found = torch.max(X, 0)
    for other in (pickle.loads(pickle.dumps(found)), copy.copy(found), copy.deepcopy(found)):
        assert type(other) is torch.return_types.max
        assert torch.equal(other.values, found.values)
        assert torch.equal(other.indices, found.indices)
    for kind in torch.return_types.all_return_types:
        assert pickle.loads(pickle.dumps(kind)) is kind
    data = pickle.dumps(torch.return_types.kthvalue((1, 2)))
    code = f"import pickle; print(type(pickle.loads({data!r})).__name__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "kthvalue\n"


def test_text():
    text = "torch.return_types.max(\nvalues=tensor([4., 3.]),\nindices=tensor([0, 1]))"
    assert repr(torch.max(X, 0)) == text


def test_containers():
    found = pytree.tree_map(lambda t: t + 1, torch.max(X, 0))
    assert isinstance(found, torch.return_types.max) and found.indices.tolist() == [1, 2]
    torch.return_types.pytree_register_structseq(time.struct_time)
    now = pytree.tree_map(lambda part: part + 1, time.struct_time(range(9)))
    assert isinstance(now, time.struct_time) and now.tm_year == 1


def test_unknown_names():
    for name in ("no_such_type", "relu", "svd_out_out", "linalg_max", "histogramdd_out"):
        assert not hasattr(torch.return_types, name)
    with pytest.raises(TypeError):
        torch.return_types.max((1,))
