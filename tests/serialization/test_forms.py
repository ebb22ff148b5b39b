"""Forms of files and their options: GGUF, shards, mapping, places, skipped data, old pickles."""

import collections
import io
import json
import mmap
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile

import pytest

import flambeau as torch
from tests.serialization import oldest_files

serialization = torch.serialization


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


# ------------------------------------------------------------------------------ archives
def test_records_are_aligned_and_named(tmp_path):
    torch.save({"a": torch.ones(3), "b": torch.zeros(5)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "model/data.pkl", "model/.format_version", "model/.storage_alignment",
            "model/byteorder", "model/data/0", "model/data/1", "model/version",
            "model/.data/serialization_id",
        ]  # fmt: skip
        assert archive.read("model/byteorder") == b"little"
        data = (tmp_path / "model.pt").read_bytes()
        for info in archive.infolist():
            name, extra = struct.unpack("<HH", data[info.header_offset + 26 :][:4])
            assert (info.header_offset + 30 + name + extra) % 64 == 0


def test_same_bytes_for_the_same_object():
    assert saved({"a": torch.ones(3)}).getvalue() == saved({"a": torch.ones(3)}).getvalue()


def test_wide_archives(monkeypatch):
    """Fields of 64 bits, as archives over 4 GiB have them."""
    from flambeau.serialization import zip_writer

    monkeypatch.setattr(zip_writer, "_LARGEST", 20)
    file = saved({"a": torch.arange(100)})
    assert zipfile.ZipFile(file).testzip() is None
    file.seek(0)
    assert torch.load(file)["a"].tolist() == list(range(100))


def test_pickles_name_pytorch():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with zipfile.ZipFile(saved(model)) as archive:
        data = archive.read("archive/data.pkl")
    assert b"flambeau" not in data and b"ctorch.nn.modules.linear\nLinear\n" in data
    result = torch.load(saved(model), weights_only=False)
    x = torch.ones(1, 2)
    assert torch.equal(result(x), model(x)) and type(result[0]) is torch.nn.Linear


def test_several_dtypes_over_one_storage():
    x = torch.ones(4)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        torch.save([x, x.view(torch.int32)], io.BytesIO())
    result = torch.load(saved([x, x.view(torch.int32)], form="safetensors"))
    assert result[0].untyped_storage()._cdata == result[1].untyped_storage()._cdata


def test_long_lists_and_protocols():
    value = {"list": list(range(2000)), "texts": ["a"] * 600, "x": torch.ones(2)}
    for protocol in (2, 3, 4, 5):
        result = torch.load(saved(value, pickle_protocol=protocol))
        assert result["list"] == value["list"] and result["texts"] == value["texts"]
        assert torch.equal(result["x"], value["x"])


def test_arguments_that_do_not_fit(tmp_path):
    file = saved([1])
    with pytest.raises(RuntimeError, match="pickle_module"):
        torch.load(file, pickle_module=pickle, weights_only=True)
    assert torch.load(file, pickle_module=pickle) == [1]
    with pytest.raises(ValueError, match="file path"):
        torch.load(saved([1]), mmap=True)
    with pytest.raises(ValueError, match="no form"):
        torch.save([1], file, form="tar")
    with pytest.raises(AttributeError, match="'write'"):
        torch.save([1], 3)
    with pytest.raises(TypeError, match="map_location"):
        torch.load(saved([1]), map_location=3)
    torch.save([1], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        torch.load(tmp_path / "old.pt", mmap=True)
    with pytest.raises(EOFError):
        torch.load(io.BytesIO())


class Plain:
    """A file object with the least that `load` needs."""

    def __init__(self, data):
        self.inner = io.BytesIO(data)
        self.read, self.seek, self.tell = self.inner.read, self.inner.seek, self.inner.tell


@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
def test_file_objects(form, tmp_path):
    data = saved({"x": torch.arange(3)}, form=form).getvalue()
    assert torch.load(Plain(data))["x"].tolist() == [0, 1, 2]
    (tmp_path / "file").write_bytes(data)
    for name in (tmp_path / "file", str(tmp_path / "file")):
        assert torch.load(name)["x"].tolist() == [0, 1, 2]
    with open(tmp_path / "file", "rb") as file:
        assert torch.load(file)["x"].tolist() == [0, 1, 2]
    torch.save({"x": torch.arange(3)}, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes()[8:9] == b"{"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_tar_archives(form, tmp_path):
    path = tmp_path / "old.pt"
    oldest_files.write(path, form)
    with pytest.raises(RuntimeError, match=r"weights_only=True.* legacy .tar format"):
        torch.load(path)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        torch.load(path, weights_only=False, mmap=True)
    with open(path, "rb") as file:
        for source in (path, file):
            loaded = torch.load(source, weights_only=False)
            assert loaded["a"].tolist() == [[0, 2, 4], [1, 3, 5]] and loaded["n"] == 5
            assert loaded["b"][0].tolist() == [2, 3, 4] and loaded["b"][1] is loaded["a"]
            assert loaded["c"].tolist() == [8, 9] and loaded["d"].item() == 5
            loaded["a"][0, 1] = -1.0
            assert loaded["b"][0].tolist() == [-1, 3, 4]


def test_damaged_tar_archives(tmp_path):
    """What is cut off, renamed or out of bounds raises."""
    path = tmp_path / "old.pt"
    oldest_files.write(path)
    whole = path.read_bytes()
    names = (b"storages", b"tensors", b"pickle")
    begins = [whole.index(name + b"\0") for name in names]
    for cut in range(512, begins[2] + 512 + 40, 97):
        with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
            torch.load(io.BytesIO(whole[:cut]), weights_only=False)
    for name, begin in zip(names, begins):
        other = whole[:begin] + b"x" * len(name) + whole[begin + len(name) :]
        with pytest.raises(RuntimeError, match="has no file"):
            torch.load(io.BytesIO(other), weights_only=False)
    other = whole.replace(struct.pack("<q", 6), struct.pack("<q", 2**40), 1)
    with pytest.raises(RuntimeError, match="cut off"):
        torch.load(io.BytesIO(other), weights_only=False)
    other = whole.replace(struct.pack("<qq", 1, 2), struct.pack("<qq", 9, 2), 1)
    with pytest.raises(RuntimeError, match="reaches beyond"):
        torch.load(io.BytesIO(other), weights_only=False)


# ------------------------------------------------------------------------------ options
def test_mapping(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"x": torch.arange(6.0), "y": torch.ones(2)}, path)
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        assert serialization.get_default_mmap_options() == mmap.MAP_SHARED
        assert torch.load(path, mmap=True)["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    with pytest.raises(ValueError, match="flags"):
        serialization.set_default_mmap_options(77)
    serialization.config.load.mmap = True
    try:
        assert torch.load(path)["y"].tolist() == [1, 1]
    finally:
        serialization.config.load.mmap = False


def test_mapping_reads_nothing(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({f"{n}": torch.ones(1 << 16) for n in range(8)}, path)
    before = torch._core.memory_stats()["requested_bytes.all.allocated"]
    loaded = torch.load(path, mmap=True)
    assert torch._core.memory_stats()["requested_bytes.all.allocated"] - before < 4096
    os.unlink(path)
    loaded["3"][0] = 5.0
    assert loaded["3"][:2].tolist() == [5.0, 1.0]


@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
def test_loading_takes_memory_once(form, tmp_path):
    """The bytes go from the file to the tensors, through no buffer of Python's or ours."""
    path, count = tmp_path / "model.pt", 3 << 20
    state = {name: torch.arange(count, dtype=torch.float32) + n for n, name in enumerate("ab")}
    torch.save(state, path, form=form)
    with open(path, "rb") as file:
        for source in (path, file):
            before = torch._core.memory_stats()["allocated_bytes.all.allocated"]
            tracemalloc.start()
            loaded = torch.load(source)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            used = torch._core.memory_stats()["allocated_bytes.all.allocated"] - before
            assert peak < 1 << 20 and 8 * count <= used < 10 * count
            assert all(torch.equal(loaded[name], state[name]) for name in state)
            del loaded


def test_a_file_that_ends_too_early(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(256)) * (9 << 12))
    storage = torch.UntypedStorage((9 << 20) - 3)
    with open(path, "rb") as file:
        assert storage._read(file.fileno(), 3) is True
        assert storage.bytes() == path.read_bytes()[3:]
        assert storage._read(file.fileno(), 4) is False
    with pytest.raises(OSError):
        storage._read(file.fileno() if not file.closed else 10**6, 0)


def test_skipped_data():
    with serialization.skip_data():
        file = saved({"x": torch.ones(3)})
    assert torch.load(file)["x"].tolist() == [0, 0, 0]
    with serialization.skip_data():
        assert torch.load(saved({"x": torch.ones(3)}))["x"].shape == (3,)
    serialization.set_crc32_options(False)
    try:
        assert torch.load(saved(torch.ones(2))).tolist() == [1, 1]
    finally:
        serialization.set_crc32_options(True)


def test_registered_packages(monkeypatch):
    from flambeau.serialization import locations

    monkeypatch.setattr(locations, "_packages", list(locations._packages))
    serialization.register_package(
        5,
        lambda storage: "there" if storage.nbytes() == 12 else None,
        lambda storage, place: storage if place == "there" else None,
    )
    assert serialization.location_tag(torch.ones(3).untyped_storage()) == "there"
    file = saved([torch.ones(3), torch.ones(2)])
    seen = []
    torch.load(file, map_location=lambda storage, place: seen.append(place))
    assert seen == ["there", "cpu"]
    file.seek(0)
    assert torch.load(file)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [pickle.Pickler, pickle._Pickler])
def test_custom_pickle_module(kind):
    class Module:
        Pickler = kind
        Unpickler = pickle._Unpickler

    value = {"x": torch.ones(2), "d": collections.deque([1])}
    file = saved(value, pickle_module=Module)
    result = torch.load(file, pickle_module=Module)
    assert result["x"].tolist() == [1, 1] and result["d"] == value["d"]


def test_text_of_python_2():
    """Bytes that Python 2 wrote as text are read as the caller says."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}U\x01kU\x02\xc3\xa9s.")
    for encoding, expected in (("latin1", {"k": "Ã©"}), ("bytes", {b"k": b"\xc3\xa9"})):
        for weights_only in (True, False):
            file.seek(0)
            assert torch.load(file, weights_only=weights_only, encoding=encoding) == expected
    file.seek(0)
    assert torch.load(file) == {"k": "é"}


def test_older_names():
    assert serialization.check_module_version_greater_or_equal(pytest, (7, 0))
    assert str(serialization.StorageType("LongStorage")) == "StorageType(dtype=torch.int64)"
    assert serialization.storage_to_tensor_type(torch.LongStorage(1)) is torch.LongTensor
    with pytest.raises(RuntimeError, match="CUDA"):
        serialization.validate_cuda_device("cuda:0")


# ------------------------------------------------------------------------------ shards
def test_sharded_safetensors(tmp_path):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    files = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}
    for name, file in files.items():
        safetensors.save_file({name: numpy.full(2, ord(name), "f4")}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    for options in ({}, {"mmap": True}):
        loaded = torch.load(index, **options)
        assert {k: v.tolist() for k, v in loaded.items()} == {"a": [97, 97], "b": [98, 98]}
    for wrong in ({"a": "../x"}, {"a": files["b"]}, {"a": 1}, []):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(RuntimeError):
            torch.load(index)


# ------------------------------------------------------------------------------ GGUF
def half(data, begin):
    return struct.unpack("<e", data[begin : begin + 2])[0]


def nibble(data, j):
    return data[j] & 15 if j < 16 else data[j - 16] >> 4


def six_bits(scales, j):
    """Scale and minimum of sub-block j of Q4_K and Q5_K."""
    if j < 4:
        return scales[j] & 63, scales[j + 4] & 63
    low = scales[j + 4]
    return (low & 15) | (scales[j - 4] >> 6 << 4), (low >> 4) | (scales[j] >> 6 << 4)


def q4_0(b):
    return [half(b, 0) * (nibble(b[2:], j) - 8) for j in range(32)]


def q4_1(b):
    return [half(b, 0) * nibble(b[4:], j) + half(b, 2) for j in range(32)]


def q5_0(b):
    high = int.from_bytes(b[2:6], "little")
    return [half(b, 0) * ((nibble(b[6:], j) | (high >> j & 1) << 4) - 16) for j in range(32)]


def q5_1(b):
    high = int.from_bytes(b[4:8], "little")
    return [half(b, 0) * (nibble(b[8:], j) | (high >> j & 1) << 4) + half(b, 2) for j in range(32)]


def q8_0(b):
    return [half(b, 0) * v for v in struct.unpack("<32b", b[2:])]


def q8_k(b):
    return [struct.unpack("<f", b[:4])[0] * v for v in struct.unpack("<256b", b[4:260])]


def q2_k(b):
    values = []
    for j in range(256):
        number = b[16 + j // 128 * 32 + j % 32] >> (j // 32 % 4 * 2) & 3
        scale = b[j // 16]
        values.append(half(b, 80) * (scale & 15) * number - half(b, 82) * (scale >> 4))
    return values


def q3_k(b):
    values = []
    for j in range(256):
        number = b[32 + j // 128 * 32 + j % 32] >> (j // 32 % 4 * 2) & 3
        number -= 0 if b[j % 32] >> (j // 32) & 1 else 4
        i, packed = j // 16, b[96:108]
        low = packed[i] & 15 if i < 8 else packed[i - 8] >> 4
        scale = (low | (packed[8 + i % 4] >> (2 * (i // 4)) & 3) << 4) - 32
        values.append(half(b, 108) * scale * number)
    return values


def q4_k(b):
    values = []
    for j in range(256):
        scale, minimum = six_bits(b[4:16], j // 32)
        byte = b[16 + j // 64 * 32 + j % 32]
        number = byte >> 4 if j // 32 % 2 else byte & 15
        values.append(half(b, 0) * scale * number - half(b, 2) * minimum)
    return values


def q5_k(b):
    values = []
    for j in range(256):
        scale, minimum = six_bits(b[4:16], j // 32)
        byte = b[48 + j // 64 * 32 + j % 32]
        number = (byte >> 4 if j // 32 % 2 else byte & 15) | (b[16 + j % 32] >> (j // 32) & 1) << 4
        values.append(half(b, 0) * scale * number - half(b, 2) * minimum)
    return values


def q6_k(b):
    values = []
    for j in range(256):
        part, row, column = j // 128, j // 32 % 4, j % 32
        byte = b[part * 64 + row % 2 * 32 + column]
        low = byte >> 4 if row > 1 else byte & 15
        number = (low | (b[128 + part * 32 + column] >> (2 * row) & 3) << 4) - 32
        scale = struct.unpack("<b", b[192 + j // 16 : 193 + j // 16])[0]
        values.append(half(b, 208) * scale * number)
    return values


BLOCKS = {
    "Q4_0": (2, 18, q4_0, (0,)), "Q4_1": (3, 20, q4_1, (0, 2)), "Q5_0": (6, 22, q5_0, (0,)),
    "Q5_1": (7, 24, q5_1, (0, 2)), "Q8_0": (8, 34, q8_0, (0,)), "Q2_K": (10, 84, q2_k, (80, 82)),
    "Q3_K": (11, 110, q3_k, (108,)), "Q4_K": (12, 144, q4_k, (0, 2)),
    "Q5_K": (13, 176, q5_k, (0, 2)), "Q6_K": (14, 210, q6_k, (208,)), "Q8_K": (15, 292, q8_k, ()),
}  # fmt: skip


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors, pairs=b"", count=0):
    """A GGUF file of (name, type, dimensions, data)."""
    infos, data = b"", b""
    for name, kind, dims, part in tensors:
        infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += part + bytes(-len(part) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count) + pairs + infos
    return io.BytesIO(head + bytes(-len(head) % 32) + data)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name):
    """Every number of a block, beside a decoder that goes element by element."""
    kind, size, decode, halves = BLOCKS[name]
    generator = __import__("random").Random(name)
    blocks = []
    for _ in range(3):
        block = bytearray(generator.randbytes(size))
        for begin in halves:  # scales that are numbers
            block[begin : begin + 2] = struct.pack("<e", generator.uniform(-2, 2))
        if name == "Q8_K":
            block[:4] = struct.pack("<f", 0.75)
        blocks.append(bytes(block))
    expected = [value for block in blocks for value in decode(block)]
    count = len(expected) // 3
    loaded = torch.load(gguf([("w", kind, (count, 3), b"".join(blocks))]))["w"]
    assert loaded.shape == (3, count) and loaded.dtype is torch.float32
    assert torch.allclose(loaded.flatten().double(), torch.tensor(expected).double(), rtol=1e-6)


def test_gguf(tmp_path):
    pairs = text("general.name") + struct.pack("<I", 8) + text("tiny")
    pairs += text("sizes") + struct.pack("<IIQII", 9, 4, 2, 7, 8)
    pairs += text("words") + struct.pack("<IIQ", 9, 8, 1) + text("e")
    pairs += text("rate") + struct.pack("<If", 6, 0.5) + text("yes") + struct.pack("<I?", 7, True)
    tensors = [
        ("f32", 0, (3, 2), struct.pack("<6f", *range(6))),
        ("f16", 1, (2,), struct.pack("<2e", 1, 2)),
        ("bf16", 30, (1,), b"\x80\x3f"),
        ("i32", 26, (2,), struct.pack("<2i", -1, 5)),
        ("empty", 0, (0, 2), b""),
    ]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(tensors, pairs, 5).getvalue())
    for options in ({}, {"mmap": True}):
        metadata, loaded = serialization.load_gguf(path, **options)
        assert metadata == {
            "general.name": "tiny", "sizes": [7, 8], "words": ["e"], "rate": 0.5, "yes": True,
        }  # fmt: skip
        assert loaded["f32"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert loaded["f16"].tolist() == [1, 2] and loaded["bf16"].item() == 1
        assert loaded["i32"].tolist() == [-1, 5] and loaded["empty"].shape == (2, 0)
    assert torch.load(path, mmap=True, map_location="meta")["f32"].is_meta
    with pytest.raises(NotImplementedError, match="IQ4_NL.*\n.*Q4_K"):
        torch.load(gguf([("w", 20, (32,), bytes(18))]))
    for wrong in ([("w", 0, (2**40,), b"")], [("w", 2, (33,), bytes(64))]):
        with pytest.raises(RuntimeError):
            torch.load(gguf(wrong))
