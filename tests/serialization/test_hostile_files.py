"""Files made to do harm: `load` runs nothing of them, names what it refuses, and stays small."""

import collections
import io
import os
import pickle
import struct
import zipfile
import zlib

import pytest

import flambeau as torch
from flambeau.serialization.unpickler import Unpickler
from tests.stress import damaged_files


def archive(pickled, records=(), method=zipfile.ZIP_STORED):
    """An archive with a pickle of one's own."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as writer:
        for name, data in [("data.pkl", pickled), ("byteorder", b"little"), *records]:
            writer.writestr(f"archive/{name}", data)
    return io.BytesIO(file.getvalue())


def opcodes(text):
    return b"\x80\x02" + text + b"."


def storage(count=4, kind=b"torch\nFloatStorage", location=b"cpu"):
    where = struct.pack("<I", len(location)) + location
    return (
        b"(X\x07\x00\x00\x00storagec" + kind + b"\nX\x01\x00\x00\x000X" + where
        + b"J" + struct.pack("<i", count) + b"tQ"
    )  # fmt: skip


def tensor(offset=0, size=4, stride=1, count=4, **options):
    numbers = [b"J" + struct.pack("<i", n) for n in (offset, size, stride)]
    geometry = numbers[0] + numbers[1] + b"\x85" + numbers[2] + b"\x85"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(count, **options) + geometry
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


class Calls:
    def __init__(self, function, *args):
        self.parts = function, args

    def __reduce__(self):
        return self.parts


CODE = {
    "system": Calls(os.system, "touch ran"),
    "eval": Calls(eval, "open('ran', 'w')"),
    "import": Calls(__import__, "this"),
    "nested": {"weights": [1, (Calls(exec, "open('ran', 'w')"),)]},
    "getattr": Calls(getattr, os, "system"),
    "open": Calls(open, "ran", "w"),
    "partial": collections.defaultdict(list),
}


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("name", ["system", "eval", "import", "nested", "open", "partial"])
def test_code_is_not_run(name, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(CODE[name], protocol)
    with pytest.raises(
        pickle.UnpicklingError, match="(?s)Unsupported global: GLOBAL .*hint: .*add_safe"
    ):
        torch.load(archive(data))
    assert os.listdir(tmp_path) == []


def test_only_what_is_allowed_is_called():
    for text in (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nctorch\nTensor\nX\x01\x00\x00\x00a\x85NtR",
        b"X\x01\x00\x00\x00a)R",  # a text
        b"ctorch\nfloat32\n)R",
        b"ctorch\nTensor\n)R",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nctorch\nTensor\n)NtR",
        b"ctorch\nTensor\n)\x81",
        b"ctorch\nFloatStorage\nK\x05\x85R",
        b"(cos\nsystem\nX\x01\x00\x00\x00ao",  # OBJ
        b"(X\x01\x00\x00\x00aios\nsystem\n",  # INST
        b"\x82\x01",  # EXT1
        b"}}b",
        b"]X\x01\x00\x00\x00a}X\x01\x00\x00\x00b]sb",
    ):
        with pytest.raises(pickle.UnpicklingError):
            torch.load(archive(opcodes(text)))


def test_geometry_is_checked():
    record = [("data/0", bytes(16))]
    assert torch.load(archive(opcodes(tensor()), record)).tolist() == [0.0] * 4
    for options in (
        {"offset": 1}, {"size": 5}, {"stride": 2}, {"offset": -1}, {"size": -4}, {"stride": -1},
        {"count": 5}, {"count": 2**31 - 1}, {"count": -1}, {"size": 2**31 - 1},
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            torch.load(archive(opcodes(tensor(**options)), record))
    with pytest.raises(RuntimeError, match="no record"):
        torch.load(archive(opcodes(tensor())))


def test_locations():
    record = [("data/0", bytes(16))]
    data = opcodes(tensor(location=b"cuda:0"))
    with pytest.raises(RuntimeError, match=r"CUDA device but torch.cuda.is_available\(\) is False"):
        torch.load(archive(data, record))
    for place in ("cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda s, where: s):
        assert torch.load(archive(data, record), map_location=place).tolist() == [0.0] * 4
    assert torch.load(archive(data, record), map_location="meta").is_meta
    seen = []
    torch.load(archive(data, record), map_location=lambda s, where: seen.append(where) or s)
    assert seen == ["cuda:0"]
    with pytest.raises(RuntimeError, match="tagged with nowhere"):
        torch.load(archive(opcodes(tensor(location=b"nowhere")), record))
    with pytest.raises(NotImplementedError, match="quantized"):
        torch.load(archive(opcodes(tensor(kind=b"torch\nQInt8Storage")), record))


def test_byte_order():
    """Elements of a big-endian file, those of complex numbers by their parts."""
    data = struct.pack(">4f", 1, 2, 3, 4)
    for kind, expected in ((b"torch\nFloatStorage", [1, 2, 3, 4]),
                           (b"torch\nComplexFloatStorage", [1 + 2j, 3 + 4j])):  # fmt: skip
        count = len(expected)
        file = io.BytesIO()
        pickled = opcodes(tensor(size=count, count=count, kind=kind))
        with zipfile.ZipFile(file, "w") as writer:
            for name, record in (("data.pkl", pickled), ("byteorder", b"big"), ("data/0", data)):
                writer.writestr(f"a/{name}", record)
        file.seek(0)
        assert torch.load(file).tolist() == expected
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as writer:
        for name, record in (("data.pkl", opcodes(tensor())), ("data/0", data)):
            writer.writestr(f"a/{name}", record)
    assert torch.serialization.get_default_load_endianness() is None
    try:
        torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)
        file.seek(0)
        assert torch.load(file).tolist() == [1, 2, 3, 4]
    finally:
        torch.serialization.set_default_load_endianness(None)


def test_packed_archives_are_bounded():
    data = opcodes(tensor(count=1 << 20, size=1 << 20))
    bomb = archive(data, [("data/0", bytes(4 << 20))], zipfile.ZIP_DEFLATED)
    with pytest.raises(RuntimeError, match="twice as long"):
        torch.load(bomb)
    noise = zlib.compress(os.urandom(64))[:16]
    again = archive(opcodes(tensor()), [("data/0", noise)], zipfile.ZIP_DEFLATED)
    assert torch.load(again).shape == (4,)


def test_archives_that_lie():
    good = archive(opcodes(tensor()), [("data/0", bytes(16))]).getvalue()
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as writer, pytest.warns(UserWarning):
        for _ in range(2):
            writer.writestr("archive/data.pkl", opcodes(b"N"))
    with pytest.raises(RuntimeError, match="two records"):
        torch.load(io.BytesIO(twice.getvalue()))
    entry = good.rfind(b"PK\x01\x02")
    over = bytearray(good)
    over[entry + 42 : entry + 46] = struct.pack("<I", 0)  # the last record lies in the first
    with pytest.raises(RuntimeError):
        torch.load(io.BytesIO(bytes(over)))
    for cut in (5, 30, len(good) // 2, len(good) - 1):
        with pytest.raises((RuntimeError, EOFError)):
            torch.load(io.BytesIO(good[:cut]))


def run(data):
    return Unpickler(data, lambda pid: pid).load()


def test_work_is_bounded():
    deep = b"\x80\x02" + b")" + b"\x85" * 100_000 + b"."
    value = run(deep)
    while value:  # freed level by level: a test of the reader, not of the interpreter
        (value,) = value
    with pytest.raises(pickle.UnpicklingError, match="nested too deeply"):
        run(b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.")
    doubled = b"\x80\x02})" + b"2\x86" * 60 + b"Ns."  # 2 to the power of 60 elements
    with pytest.raises(pickle.UnpicklingError, match="nested too deeply"):
        run(doubled)
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000
    copies = b"h\x01h\x00h\x02\x86R0" * 50
    program = b"\x80\x02c_codecs\nencode\nq\x01" + text + b"q\x00X\x06\x00\x00\x00latin1q\x02"
    with pytest.raises(pickle.UnpicklingError, match="more data"):
        run(program + copies + b".")
    for data in (
        b"\x8b\xff\xff\xff\x7f",
        b"\x8d" + b"\xff" * 8,
        b"\x96" + b"\xff" * 8,
        b"X\xff\xff\xff\xff",
    ):
        with pytest.raises((pickle.UnpicklingError, EOFError)):
            run(b"\x80\x02" + data + b".")
    with pytest.raises(pickle.UnpicklingError, match="unsupported pickle protocol"):
        run(b"\x80\x09N.")


def test_declared_globals():
    class_name = f"{__name__}.Weights"
    file = io.BytesIO()
    torch.save({"a": Weights(3), "b": collections.deque([1])}, file)
    file.seek(0)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    assert names == ["collections.deque", class_name]
    file.seek(0)
    with torch.serialization.safe_globals([Weights, (collections.deque, "collections.deque")]):
        assert torch.serialization.get_unsafe_globals_in_checkpoint(file) == []
        file.seek(0)
        result = torch.load(file)
    assert result["a"].count == 3 and list(result["b"]) == [1]
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match=class_name):
        torch.load(file)
    file.seek(0)
    assert torch.load(file, weights_only=False)["a"].count == 3


class Weights:
    def __init__(self, count):
        self.count = count


@pytest.mark.parametrize("form", damaged_files.FORMS)
def test_damaged_files(form):
    """A few of the mutants of `python -m tests.stress.damaged_files`."""
    outcomes = damaged_files.run(form, first=10**6, count=150)
    assert sum(outcomes.values()) == 150 and len(outcomes) > 1
