"""Files exchanged with PyTorch: 70 kinds of content, both forms, both ways, bit for bit."""

from __future__ import annotations

import argparse
import collections
import enum
import io
import itertools
import warnings
from pathlib import Path

import numpy
import pytest
import torch

import flambeau
from tests.serialization import oldest_files

warnings.filterwarnings("ignore")
DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 "
    "uint16 uint32 uint64 complex32 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu float4_e2m1fn_x2"
).split()


class Colour(enum.Enum):
    RED = 1


class Point(collections.namedtuple("Point", "x y")):
    pass


def of_dtype(t, name):
    dtype = getattr(t, name)
    data = t.arange(16 * dtype.itemsize, dtype=t.uint8)
    return t.tensor([True, False]) if name == "bool" else data.view(dtype)


def shared(t):
    base = t.arange(12.0)
    return {"base": base, "part": base[3:7], "even": base[::2], "matrix": base.view(3, 4).t()}


def tagged(t, value):
    value.tag, value.other = 1, t.ones(2)
    return value


def trained(t, optimizer, **options):
    t.manual_seed(0)
    model = t.nn.Linear(3, 2)
    steps = getattr(t.optim, optimizer)(model.parameters(), lr=0.1, **options)
    schedule = t.optim.lr_scheduler.StepLR(steps, 2)
    for _ in range(3):
        model(t.arange(6.0).view(2, 3)).sum().backward()
        steps.step()
        schedule.step()
    state = {"model": model.state_dict(), "steps": steps.state_dict()}
    return state | {"schedule": schedule.state_dict()}


def network(t):
    t.manual_seed(0)
    layers = t.nn.Conv2d(1, 2, 3), t.nn.BatchNorm2d(2), t.nn.ReLU(), t.nn.Flatten()
    return t.nn.Sequential(*layers, t.nn.Linear(8, 3), t.nn.Dropout(0.5))


def transformer(t):
    t.manual_seed(0)
    return t.nn.TransformerEncoderLayer(8, 2, 16, activation=t.nn.functional.gelu)


# What `weights_only` loads in PyTorch.
WEIGHTS = {
    **{f"dtype {name}": lambda t, name=name: of_dtype(t, name) for name in DTYPES},
    "scalar": lambda t: t.tensor(3.5),
    "empty": lambda t: t.zeros(0, 3),
    "no dimension empty": lambda t: t.zeros(2, 0, 4),
    "expanded": lambda t: t.ones(1).expand(5),
    "transposed": lambda t: t.arange(6.0).view(2, 3).t(),
    "strided part": lambda t: t.arange(24.0).view(4, 6)[1:3, ::2],
    "channels last": lambda t: (
        t.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=t.channels_last)
    ),
    "shared storage": shared,
    "one tensor twice": lambda t: [t.ones(2)] * 2,
    "conjugate": lambda t: t.tensor([1 + 2j, 3 - 1j]).conj(),
    "negative": lambda t: t.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "leaf": lambda t: t.ones(3, requires_grad=True),
    "parameter": lambda t: t.nn.Parameter(t.ones(2)),
    "frozen parameter": lambda t: t.nn.Parameter(t.ones(2), requires_grad=False),
    "parameter with attributes": lambda t: tagged(t, t.nn.Parameter(t.ones(2))),
    "buffer": lambda t: t.nn.Buffer(t.ones(2)),
    "tensor with attributes": lambda t: tagged(t, t.ones(2)),
    "meta": lambda t: t.empty(2, 3, device="meta"),
    "coo": lambda t: t.tensor([[0.0, 1], [2, 0]]).to_sparse(),
    "coo uncoalesced": lambda t: t.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)),
    "coo hybrid": lambda t: t.arange(8.0).view(2, 2, 2).to_sparse(1),
    "coo leaf": lambda t: t.eye(2).to_sparse().requires_grad_(),
    "csr": lambda t: t.tensor([[0.0, 1], [2, 0]]).to_sparse_csr(),
    "csc": lambda t: t.tensor([[0.0, 1], [2, 0]]).to_sparse_csc(),
    "bsr": lambda t: t.eye(4).to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.eye(4).to_sparse_bsc((2, 2)),
    "nested": lambda t: t.nested.nested_tensor([t.arange(2.0), t.arange(3.0)]),
    "dict": lambda t: {"a": 1, 2: [t.ones(1)], (1, "x"): None},
    "numbers": lambda t: [True, -(2**80), 2**31, -5, 0.1, float("inf"), 1 - 2j],
    "texts": lambda t: ["", "é\n\\u1234", "x" * 300, b"\x00\xff", bytearray(b"ab")],
    "nested containers": lambda t: [(1, (2, [3, {"x": (t.ones(1),)}])), {1, 2}, [], (), {}],
    "ordered dict": lambda t: collections.OrderedDict([("b", 1), ("a", t.ones(1))]),
    "counter": lambda t: collections.Counter("abracadabra"),
    "size": lambda t: t.Size([2, 3]),
    "dtypes": lambda t: [t.float32, t.bfloat16, t.uint16, t.complex64],
    "device": lambda t: [t.device("cpu"), t.device("meta")],
    "layouts": lambda t: [t.strided, t.sparse_coo, t.sparse_csr],
    "generator state": lambda t: t.Generator().manual_seed(7).get_state(),
    "typed storage": lambda t: t.arange(3.0).storage(),
    "untyped storage": lambda t: t.arange(3.0).untyped_storage(),
    "state dict": lambda t: network(t).state_dict(),
    "transformer state": lambda t: transformer(t).state_dict(),
    "SGD": lambda t: trained(t, "SGD", momentum=0.9),
    "Adam": lambda t: trained(t, "Adam", amsgrad=True),
    "AdamW": lambda t: trained(t, "AdamW"),
    "long list": lambda t: list(range(3000)) + ["x"] * 1000 + [0.5, None, True],
    "many tensors": lambda t: {f"layer.{n}": t.full((3,), float(n)) for n in range(300)},
}
# What needs trust in PyTorch.
TRUSTED = {
    "linear": lambda t: t.nn.Linear(3, 2),
    "network": network,
    "transformer": transformer,
    "recurrent": lambda t: t.nn.LSTM(3, 4, 2),
    "embedding": lambda t: t.nn.Embedding(5, 3, padding_idx=0),
    "defaultdict": lambda t: collections.defaultdict(list, a=[1]),
    "deque": lambda t: collections.deque([1, t.ones(1)], maxlen=3),
    "namespace": lambda t: argparse.Namespace(rate=0.1, name="x"),
    "enum": lambda t: [Colour.RED, {Colour.RED: 1}],
    "named tuple": lambda t: Point(t.ones(1), 2),
    "frozenset": lambda t: frozenset([1, 2]),
    "slice and range": lambda t: [slice(1, None, 2), range(3)],
    "path": lambda t: Path("a/b"),
    "array": lambda t: numpy.arange(6.0).reshape(2, 3),
    "arrays": lambda t: [numpy.array(["a", "bc"]), numpy.zeros((0, 2), "i2"), numpy.ones(3) > 0],
    "array scalar": lambda t: [numpy.float32(2.5), numpy.int64(3), numpy.dtype("f4")],
    "random state": lambda t: {"torch": t.manual_seed(3).get_state(), "python": (3, (1, 2), None)},
    "return type": lambda t: t.tensor([[1.0, 3], [2, 0]]).max(0),
    "function": lambda t: t.nn.functional.relu,
    "lazy": lambda t: t.nn.LazyLinear(3),
    "whole checkpoint": lambda t: {"model": network(t), **trained(t, "Adam"), "best": 0.5},
}
KINDS = WEIGHTS | TRUSTED
# What PyTorch itself forgets: that a sparse tensor requires a gradient.
FORGOTTEN = {"coo leaf"}
# What PyTorch cannot read from its own old files.
NOT_IN_OLD_FILES = {"nested", "untyped storage", *(f"dtype {name}" for name in DTYPES[12:])}
FRAMEWORKS = {"torch": torch, "flambeau": flambeau}


def framework_of(value):
    return torch if isinstance(value, torch.Tensor) else flambeau


def data_of(tensor):
    """The bytes of the elements, in order."""
    t = framework_of(tensor)
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(t.uint8).tolist()


def same_tensor(a, b):
    assert str(a.dtype) == str(b.dtype) and str(a.layout) == str(b.layout)
    assert a.requires_grad == b.requires_grad
    dense = str(a.layout) == "torch.strided" and not a.is_nested
    assert not dense or type(a).__name__ == type(b).__name__
    if a.is_nested:
        for x, y in zip(a.unbind(), b.unbind(), strict=True):
            same_tensor(x, y)
        return
    assert tuple(a.shape) == tuple(b.shape)
    if a.layout in (torch.sparse_coo, flambeau.sparse_coo):
        assert a.is_coalesced() == b.is_coalesced()
        same_tensor(a._indices(), b._indices())
        same_tensor(a._values(), b._values())
        return
    if a.layout not in (torch.strided, flambeau.strided):
        rows = str(a.layout) in ("torch.sparse_csr", "torch.sparse_bsr")
        for name in ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices"):
            same_tensor(getattr(a, name)(), getattr(b, name)())
        same_tensor(a.values(), b.values())
        return
    assert tuple(a.stride()) == tuple(b.stride())
    assert a.storage_offset() == b.storage_offset()
    assert (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
    assert a.is_meta == b.is_meta and (a.is_meta or data_of(a) == data_of(b))
    names = {n for n in a.__dict__ if not n.startswith("_")}
    assert names == {n for n in b.__dict__ if not n.startswith("_")}
    for name in names:
        same(a.__dict__[name], b.__dict__[name])


def state_of(module):
    """What a module consists of, without objects that only one framework has."""
    own = {name: v for name, v in vars(module).items() if not name.startswith("_")}
    return own | {"parts": dict(module.named_children()), "state": list(tensors_of(module))}


def tensors_of(module):
    for name, value in [*module.named_parameters(recurse=False), *module.named_buffers()]:
        yield name, "uninitialized" if "Uninit" in type(value).__name__ else value


def same(a, b):
    if isinstance(a, (torch.Tensor, flambeau.Tensor)):
        same_tensor(a, b)
    elif isinstance(a, (torch.nn.Module, flambeau.nn.Module)):
        assert type(a).__name__ == type(b).__name__
        same(state_of(a), state_of(b))
    elif isinstance(a, numpy.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert type(a) is type(b) and len(a) == len(b)
        for (name, x), (other, y) in zip(a.items(), b.items(), strict=True):
            same(name, other)
            same(x, y)
        same(getattr(a, "_metadata", None), getattr(b, "_metadata", None))
    elif isinstance(a, (list, tuple, collections.deque)):
        assert type(a).__name__ == type(b).__name__ and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, argparse.Namespace):
        same(vars(a), vars(b))
    elif hasattr(a, "tolist") and hasattr(a, "nbytes") and not isinstance(a, numpy.generic):
        assert bytes(a.untyped().tolist()) == bytes(b.untyped().tolist())
    elif callable(a):
        assert a.__name__ == b.__name__
    elif type(a).__module__.split(".")[0] in ("torch", "flambeau"):
        assert str(a) == str(b)
    else:
        assert type(a) is type(b) and (a == b or a != a)


def cases():
    for kind, form in itertools.product(KINDS, ("zip", "legacy")):
        if kind not in FORGOTTEN:
            yield kind, form, "torch to flambeau"
        if form == "zip" or kind not in NOT_IN_OLD_FILES:
            yield kind, form, "flambeau to torch"


@pytest.mark.parametrize("kind, form, way", cases())
def test_exchange(kind, form, way, tmp_path):
    writer, reader = (FRAMEWORKS[name] for name in way.split(" to "))
    path = tmp_path / "file.pt"
    expected = KINDS[kind](writer)
    writer.save(expected, path, _use_new_zipfile_serialization=form == "zip")
    for options in ({}, {"mmap": True}) if form == "zip" else ({},):
        options["weights_only"] = kind in WEIGHTS
        same(reader.load(path, **options), expected)
        if reader is flambeau and kind in WEIGHTS:
            same(reader.load(path, **options | {"weights_only": False}), expected)
    file = io.BytesIO(b"before" + path.read_bytes())
    if form == "legacy" or reader is flambeau:
        file.seek(6)
        same(reader.load(file, weights_only=kind in WEIGHTS), expected)


def test_storages_stay_shared(tmp_path):
    torch.save(shared(torch), tmp_path / "file.pt")
    loaded = flambeau.load(tmp_path / "file.pt")
    loaded["base"][4] = 77.0
    assert loaded["part"][1] == 77.0 and loaded["even"][2] == 77.0
    flambeau.save(shared(flambeau), tmp_path / "file.pt")
    loaded = torch.load(tmp_path / "file.pt")
    loaded["base"][4] = 77.0
    assert loaded["part"][1] == 77.0 and loaded["even"][2] == 77.0


def test_oldest_files(tmp_path):
    """Tar archives: the same tensors, the same refusal of what is not trusted."""
    path = tmp_path / "old.pt"
    oldest_files.write(path)
    values = [t.load(path, weights_only=False) for t in (torch, flambeau)]
    same(*values)
    for t in (torch, flambeau):
        with pytest.raises(RuntimeError, match="weights_only=True.* legacy .tar format"):
            t.load(path)
