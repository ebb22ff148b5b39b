"""What `save` writes, `load` gives back, in every form; damaged files fail cleanly."""

import io
import os
import pickle
from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau.nn.parameter import Parameter
from flambeau.serialization import load, save

FORMS = ("zip", "legacy", "safetensors")


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


def round_trip(value, form="safetensors", **options):
    file = io.BytesIO()
    save(value, file, form=form)
    file.seek(0)
    return load(file, **options)


def equal(a, b):
    if isinstance(a, torch.Tensor):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        assert a.requires_grad == b.requires_grad
        assert a.numel() == 0 or bool((a == b).all())
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for key in a:
            equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            equal(x, y)
    else:
        assert type(a) is type(b) and a == b


STRUCTURE = {
    "none": None, "flag": True, "count": -(2**80), "half": 0.5, "text": "é\n", "raw": b"\0\xff",
    "items": [1, [2, (3, ())]], "set": {1, 2}, "order": OrderedDict([("b", 1), ("a", [])]),
    3: "int key", (1, "x"): "tuple key", "size": torch.Size([2, 3]), "dtype": torch.bfloat16,
    "device": torch.device("cpu"), "complex": 1 - 2j, "infinity": float("-inf"),
}  # fmt: skip


def test_structure_comes_back(form):
    equal(STRUCTURE, round_trip(STRUCTURE, form))


@pytest.mark.parametrize(
    "dtype", "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
)
def test_every_dtype(dtype, form):
    value = torch.tensor([0, 1, 2, 1]).to(getattr(torch, dtype))
    equal(value, round_trip(value, form))


@pytest.mark.parametrize(
    "dtype",
    "uint16 uint32 uint64 complex32 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu".split(),
)
def test_every_storage_dtype(dtype, form):
    kind = getattr(torch, dtype)
    code = getattr(torch, f"int{8 * kind.itemsize}")
    value = torch.tensor([1, 2, 3, 70], dtype=code).view(kind)
    result = round_trip({"x": value, "part": value[1:3]}, form)
    assert result["x"].dtype is kind
    assert result["x"].view(code).tolist() == [1, 2, 3, 70]
    assert result["part"].view(code).tolist() == [2, 3]
    assert result["part"].untyped_storage()._cdata == result["x"].untyped_storage()._cdata


def test_complex(form):
    value = torch.randn(3, dtype=torch.complex64)
    equal(value, round_trip(value, form))


def test_geometry(form):
    base = torch.arange(24.0).reshape(4, 6)
    for value in (base.t(), base[1:3, ::2], base[2], torch.zeros(0, 3), torch.ones(1).expand(5)):
        result = round_trip({"x": value}, form)["x"]
        equal(value, result)
        assert result.stride() == value.stride()


def test_a_part_of_a_large_storage_is_small_on_disk():
    file = io.BytesIO()
    save(torch.zeros(1 << 20)[5:9], file, form="safetensors")
    assert len(file.getvalue()) < 2000


def test_aliasing_is_kept(form):
    base = torch.arange(6.0)
    result = round_trip({"a": base[1:4], "b": [base[2:]], "again": base}, form)
    result["again"][2] = 77.0
    assert result["a"][1] == 77.0 and result["b"][0][0] == 77.0


def test_one_object_twice(form):
    parameter = Parameter(torch.ones(2))
    result = round_trip([parameter, {"same": parameter}], form)
    assert result[0] is result[1]["same"] and type(result[0]) is Parameter


def test_path_is_replaced_atomically(tmp_path, form):
    path = tmp_path / "model.pt"
    save({"x": torch.ones(2)}, path, form=form)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="cannot (save|pickle)"):
        save({"y": (n for n in ())}, path, form=form)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.pt"]


@pytest.mark.parametrize("form", ["zip", "safetensors"])
def test_mmap(tmp_path, form):
    path = tmp_path / "model.pt"
    save({"x": torch.arange(4.0)}, path, form=form)
    before = path.read_bytes()
    loaded = load(path, mmap=True)["x"]
    loaded[0] = 9.0  # writes stay in memory
    assert loaded.tolist() == [9.0, 1.0, 2.0, 3.0] and path.read_bytes() == before


def test_map_location(form):
    value = {"x": torch.ones(2)}
    assert round_trip(value, form, map_location="meta")["x"].is_meta
    assert round_trip(value, form, map_location={"cpu": "meta"})["x"].is_meta
    assert round_trip(value, form, map_location=lambda storage, where: storage)["x"][0] == 1


def test_safetensors_both_ways(tmp_path):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    save({"layer": {"weight": torch.ones(2, 3)}}, path)
    assert safetensors.load_file(path)["layer.weight"].shape == (2, 3)
    safetensors.save_file({"w": numpy.arange(3.0), "e": numpy.zeros((0, 2))}, path)
    assert load(path)["w"].tolist() == [0.0, 1.0, 2.0] and load(path)["e"].shape == (0, 2)


def test_several_objects_in_one_file(form):
    file = io.BytesIO()
    save([1], file, form=form)
    save(torch.ones(2), file, form=form)
    file.seek(0)
    assert load(file) == [1] and load(file).tolist() == [1.0, 1.0]


class Unknown:
    def state_dict(self):
        return {}


@pytest.mark.parametrize(
    "value, path",
    [({"a": [Unknown()]}, r"a\[0\]"), ({"m": len}, "m"), ({Unknown(): 1}, "Unknown")],
)
def test_unknown_types_name_their_place(value, path):
    with pytest.raises(TypeError, match=path):
        save(value, io.BytesIO(), form="safetensors")


class Tagged(torch.Tensor):
    pass


class Special(Parameter):
    pass


STATE = {"tag": 1, "other": torch.zeros(2), "_names": ["a", {"b": (1, 2)}]}
CARRIERS = {
    "tensor": lambda: torch.ones(2),
    "leaf": lambda: torch.ones(2, requires_grad=True),
    "view": lambda: torch.ones(4)[::2],
    "parameter": lambda: Parameter(torch.ones(2)),
    "buffer": lambda: torch.nn.Buffer(torch.ones(2)),
    "meta": lambda: torch.ones(2, device="meta"),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
}


@pytest.mark.parametrize("kind", CARRIERS)
def test_attributes_of_tensors(kind, form):
    tensor = CARRIERS[kind]()
    inner = set(tensor.__dict__)
    for name, value in STATE.items():
        setattr(tensor, name, value)
    for result in round_trip([tensor, tensor], form):
        assert type(result) is type(tensor)
        assert set(result.__dict__) == inner | set(STATE)
        equal({name: getattr(result, name) for name in STATE}, STATE)


def test_attributes_that_point_back_or_cannot_be_saved():
    tensor = torch.ones(2)
    tensor.me = tensor
    result = round_trip(tensor)
    assert result.me is result
    tensor.me = Unknown()
    with pytest.raises(TypeError, match="Unknown at weight.me"):
        save({"weight": tensor}, io.BytesIO(), form="safetensors")
    model = torch.nn.Linear(2, 2)
    model.weight.tag = 3
    assert not hasattr(round_trip(model.state_dict())["weight"], "tag")  # they were detached


def test_subclasses_are_loaded_where_they_are_allowed():
    tensor = torch.ones(2).as_subclass(Tagged)
    tensor.tag = 1
    with pytest.raises(pickle.UnpicklingError, match="Tagged was not an allowed global"):
        round_trip(tensor)
    result = round_trip(tensor, weights_only=False)
    assert type(result) is Tagged and result.tag == 1
    with torch.serialization.safe_globals([Tagged]):
        assert torch.serialization.get_safe_globals() == [Tagged]
        assert type(round_trip(tensor.requires_grad_())) is Tagged
    assert torch.serialization.get_safe_globals() == []
    assert type(round_trip(Special(torch.ones(2)))) is Parameter
    for name in ("os:system", "os.path:join", "nowhere:Tensor", "builtins:dict"):
        with pytest.raises(pickle.UnpicklingError):
            load(tampered(tensor, f"{__name__}:Tagged", name), weights_only=False)


def test_attributes_never_replace_parts_of_a_tensor():
    sparse = torch.ones(2).to_sparse()
    sparse.aaaaaa = 1
    with pytest.raises(RuntimeError, match="stands for a part"):
        load(tampered(sparse, "aaaaaa", "_index"))


def tampered(value, before, after):
    """A file in which a text of the structure was replaced."""
    file = io.BytesIO()
    save(value, file, form="safetensors")
    data = file.getvalue()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(before.encode(), after.encode())
    return io.BytesIO(len(header).to_bytes(8, "little") + header + data[8 + length :])


def test_cycles_are_refused():
    value = []
    value.append(value)
    with pytest.raises(ValueError, match="contains itself"):
        save(value, io.BytesIO(), form="safetensors")


def test_header_claims(tmp_path):
    def container(header, data=b""):
        text = header.encode()
        return io.BytesIO(len(text).to_bytes(8, "little") + text + data)

    large = f'{{"x":{{"dtype":"F32","shape":[{2**60}],"data_offsets":[0,{2**62}]}}}}'
    for file in (
        container(large),
        container('{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', b"abc"),
        container('{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"ab"),
        container("[" * 100000),
        container('{"__metadata__":{"flambeau":"{}"}}'),
        container("[]"),
        io.BytesIO(b"\xff" * 64),
        io.BytesIO(b""),
    ):
        with pytest.raises((RuntimeError, ValueError, EOFError, pickle.UnpicklingError)):
            load(file)
