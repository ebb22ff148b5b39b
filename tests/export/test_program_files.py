"""Files of exported programs: a new process has the same bits, and no bytes run code."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.export import Dim, export, load, save

ROOT = Path(__file__).resolve().parents[2]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU())
        self.rnn = nn.LSTM(4, 5, batch_first=True)
        self.register_buffer("loose", torch.tensor([1.5, float("-inf")]), persistent=False)
        self.plain = torch.arange(2)

    def forward(self, x, *, d):
        y = self.rnn(self.layers(x)[:, None])[0]
        z = torch.cond(y.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))
        return {"z": z, "k": d["k"] + self.plain, "l": [self.loose, None, 3, "a'\"\n"]}


def program(batch=6):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 3 * batch).view(batch, 3)
    shapes = {"x": {0: Dim("b", min=2, max=50)}, "d": {"k": None}}
    named = {"d": {"k": torch.ones(2, dtype=torch.float16)}}
    return export(Model().eval(), (x,), named, dynamic_shapes=shapes), x, named


def written(exported, **options):
    file = io.BytesIO()
    save(exported, file, **options)
    return file.getvalue()


def same(one, other):
    assert one.graph_module.code == other.graph_module.code
    assert str(one.graph_signature) == str(other.graph_signature)
    assert str(one.range_constraints) == str(other.range_constraints)
    assert list(one.state_dict) == list(other.state_dict)
    assert one.module_call_graph == other.module_call_graph and one.dialect == other.dialect


def test_round_trip():
    exported, x, named = program()
    for each in (exported, exported.run_decompositions()):
        loaded = load(io.BytesIO(written(each)))
        same(each, loaded)
        for inputs in (x, x[:4]):
            results = [torch.utils._pytree.tree_leaves(e.module()(inputs, **named))
                       for e in (each, loaded)]  # fmt: skip
            for a, b in zip(*results, strict=True):
                assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        with pytest.raises(AssertionError, match="Guard failed: x.size"):
            loaded.module()(torch.ones(51, 3), **named)
        assert written(loaded) == written(each)  # a file depends on the program alone
    same(load(io.BytesIO(written(exported))).run_decompositions(), exported.run_decompositions())


CHILD = """
import sys, torch
program = torch.export.load(sys.argv[1])
args, kwargs = program.example_inputs
torch.save([program.module()(*args, **kwargs)["z"], program.run_decompositions().module()(
    args[0][:3], **kwargs)["z"]], sys.argv[2])
"""


def test_a_new_process_has_the_same_bits(tmp_path):
    exported, x, named = program()
    save(exported, tmp_path / "model.pt2")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]
    (tmp_path / "child.py").write_text(CHILD)
    arguments = [str(tmp_path / name) for name in ("child.py", "model.pt2", "out.pt")]
    subprocess.run(
        [sys.executable, "-m", "flambeau", *arguments], check=True, cwd=ROOT, timeout=300
    )
    first, second = torch.load(tmp_path / "out.pt")
    assert torch.equal(first, exported.module()(x, **named)["z"])
    assert torch.equal(second, exported.module()(x[:3], **named)["z"])


def test_shared_parameters_and_further_records():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    data = written(export(model, (torch.ones(2, 3),)), extra_files={"notes": "text", "raw": b"\0"})
    extra = {"notes": "", "raw": ""}
    loaded = load(io.BytesIO(data), extra_files=extra)
    assert extra == {"notes": b"text", "raw": b"\0"}
    assert loaded.state_dict["0.weight"] is loaded.state_dict["1.weight"]
    assert isinstance(loaded.state_dict["0.weight"], nn.Parameter)


def test_wrong_arguments(tmp_path):
    with pytest.raises(TypeError, match="ExportedProgram"):
        save(nn.ReLU(), tmp_path / "x.pt2")
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError):
        load(io.BytesIO(b""))
    torch.save({"a": torch.ones(2)}, tmp_path / "x.pt")
    with pytest.raises(RuntimeError):
        load(tmp_path / "x.pt")


# ------------------------------------------------------------------------------ hostile files
def changed(data, change):
    """The archive with another graph."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    graph = json.loads(records["archive/models/model.json"])
    change(graph)
    records["archive/models/model.json"] = json.dumps(graph).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return io.BytesIO(file.getvalue())


def nodes(graph):
    return graph["graph"]["nodes"]


def _set(position, key, value):
    def change(graph):
        nodes(graph)[position][key] = value

    return change


CODE = "x; import os; os.abort()"
CALL = 15  # the node of `linear`


@pytest.mark.parametrize(
    "change",
    [
        _set(0, "name", CODE), _set(0, "target", CODE), _set(CALL, "name", CODE),
        _set(CALL, "name", "import"), _set(CALL, "target", {"operator": "os::system.default"}),
        _set(CALL, "target", {"operator": "aten::from_file.default"}),
        _set(CALL, "target", {"operator": "aten::__class__.__init__"}),
        _set(CALL, "target", {"function": "eval"}), _set(CALL, "target", {"higher_order": "run"}),
        _set(CALL, "target", {"higher_order": "__class__"}), _set(CALL, "target", "os.system"),
        _set(CALL, "op", "call_module"), _set(CALL, "op", "call_method"),
        _set(CALL, "kwargs", {"dict": [[CODE, 1]]}), _set(CALL, "args", {"node": "y"}),
        _set(CALL, "args", {"object": "ops"}), _set(CALL, "args", {"object": "__name__"}),
        _set(CALL, "args", {"device": CODE}), _set(CALL, "args", [1]), _set(CALL, "args", None),
        _set(CALL, "val", {"tensor": ["torch.float32", "cpu", [["symbol", "s9"]], [1], False]}),
        _set(CALL, "val", {"tensor": ["torch.ops", "cpu", [1], [1], False]}),
        _set(CALL, "val", {"sequence": 3}), _set(CALL, "modules", [[1]]),
        lambda graph: graph["graph"]["graphs"].update({CODE: {"nodes": [], "graphs": {}}}),
        lambda graph: graph["symbols"].update({CODE: [0, None, 3]}),
        lambda graph: graph["symbols"].update({"s0": [0, None, CODE]}),
        lambda graph: graph["calls"].pop(), lambda graph: graph["calls"].clear(),
        lambda graph: graph["calls"][0][1].__setitem__(0, '[1, {"type": "os.system"}]'),
        lambda graph: graph["inputs"].pop(), lambda graph: graph["outputs"].clear(),
        lambda graph: graph.pop("ranges"), lambda graph: graph["ranges"].append([1]),
        lambda graph: graph["conditions"].append(["is", 1, 2]),
        lambda graph: graph.update(graph=3), lambda graph: nodes(graph).clear(),
        lambda graph: nodes(graph).append(nodes(graph)[0]), lambda graph: nodes(graph).pop(0),
    ],
)  # fmt: skip
def test_graphs_that_are_none(change):
    data = written(program()[0])

    def applied(graph):
        change(graph)

    try:
        loaded = load(changed(data, applied))
    except (RuntimeError, NotImplementedError):
        return
    loaded.validate()  # a change that leaves a program


def test_names_of_modules_are_not_imported():
    data = written(program()[0])
    before = set(sys.modules)
    for name in ("torch.testing", "__main__", "torch.hub", "aten::add"):
        for value in ({"object": name}, {"higher_order": name}, {"operator": f"{name}::x.y"}):
            with pytest.raises(RuntimeError):
                load(changed(data, _set(CALL, "args", {"list": [value]})))
            with pytest.raises(RuntimeError):
                load(changed(data, _set(CALL, "target", value)))
    assert not {name for name in set(sys.modules) - before if "flambeau" in name}


def test_code_of_names_is_refused():
    data = written(program()[0])
    changed(data, lambda graph: nodes(graph)[CALL]["target"]["operator"].index("linear"))
    for position in (0, CALL):
        with pytest.raises(RuntimeError, match="is no name"):
            load(changed(data, _set(position, "name", CODE)))
    for target in ("os::system.default", "aten::from_file.default"):
        with pytest.raises(RuntimeError, match="operator"):
            load(changed(data, _set(CALL, "target", {"operator": target})))


@pytest.mark.parametrize("seed", range(4))
def test_any_bytes(seed):
    data, draw = written(program()[0]), random.Random(seed)
    for _ in range(60):
        hostile = bytearray(data)
        for _ in range(draw.choice((1, 1, 3, 20))):
            hostile[draw.randrange(len(hostile))] = draw.randrange(256)
        if draw.random() < 0.3:
            hostile = hostile[: draw.randrange(len(hostile))]
        try:
            load(io.BytesIO(bytes(hostile))).validate()
        except (RuntimeError, NotImplementedError):
            pass
