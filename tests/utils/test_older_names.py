"""Names that older programs use: pipes of data frames, counts of instructions, reductions, jit."""

from __future__ import annotations

import pickle

import pytest

import flambeau as torch
from flambeau.jit import _script, _state, _trace, annotations, frontend, quantized
from flambeau.multiprocessing import reductions
from flambeau.utils.data.datapipes.dataframe import dataframe_wrapper, datapipes
from flambeau.utils.data.datapipes.iter import IterableWrapper


class Frame:
    """A table: rows of equal length, columns by name."""

    def __init__(self, rows, columns):
        self.rows, self.names = [list(row) for row in rows], list(columns)

    def __getitem__(self, name):
        return Column([row[self.names.index(name)] for row in self.rows])

    def __setitem__(self, name, column):
        self.names.append(name)
        for row, value in zip(self.rows, column.values, strict=True):
            row.append(value)


class Column:
    def __init__(self, values):
        self.values = values

    def __add__(self, other):
        return Column([value + other for value in self.values])

    def __mul__(self, other):
        return Column([value * other for value in self.values])


class Wrapper:
    create_dataframe = staticmethod(Frame)
    is_dataframe = staticmethod(lambda data: isinstance(data, Frame))
    is_column = staticmethod(lambda data: isinstance(data, Column))
    iterate = staticmethod(lambda data: map(tuple, data.rows))
    concat = staticmethod(lambda buffer: Frame(sum((f.rows for f in buffer), []), buffer[0].names))
    get_item = staticmethod(lambda data, index: Frame([data.rows[index]], data.names))
    get_len = staticmethod(lambda data: len(data.rows))
    get_columns = staticmethod(lambda data: data.names)


@pytest.fixture
def frames():
    before = dataframe_wrapper.get_df_wrapper()
    dataframe_wrapper.set_df_wrapper(Wrapper)
    yield IterableWrapper([(i, 10 * i) for i in range(7)])._to_dataframes_pipe(
        dataframe_size=3, columns=["a", "b"]
    )
    dataframe_wrapper.set_df_wrapper(before)


def test_pipes_of_data_frames(frames):
    assert [len(frame.rows) for frame in frames] == [3, 3, 1]
    assert list(datapipes.DataFramesAsTuplesPipe(frames)) == [(i, 10 * i) for i in range(7)]
    per_row = datapipes.PerRowDataFramesPipe(frames)
    assert [len(frame.rows) for frame in per_row] == [1] * 7
    joined = datapipes.ConcatDataFramesPipe(per_row, batch=4)
    assert [len(frame.rows) for frame in joined] == [4, 3]
    chosen = datapipes.FilterDataFramesPipe(frames, lambda row: row[0] % 2 == 0)
    assert [row for frame in chosen for row in frame.rows] == [[0, 0], [2, 20], [4, 40], [6, 60]]
    shuffled = list(datapipes.DataFramesAsTuplesPipe(datapipes.ShuffleDataFramesPipe(frames)))
    assert sorted(shuffled) == [(i, 10 * i) for i in range(7)]


def test_noted_operations(frames):
    frame = frames.trace_as_dataframe()
    frame["c"] = (frame["a"] + 1) * 2
    assert "['c']" in frame._ops_str()
    rows = list(frame)
    assert rows[3] == (3, 30, 8)
    assert [len(batch) for batch in frames.trace_as_dataframe().batch(3)] == [3, 3, 1]
    with pytest.raises(RuntimeError, match="Can't collate"):
        frame.collate()


def test_pandas_is_asked_for():
    if dataframe_wrapper.importlib.util.find_spec("pandas") is None:
        with pytest.raises(ModuleNotFoundError, match="pandas"):
            dataframe_wrapper.create_dataframe([(1,)], ["a"])


def test_reductions_of_other_tensors():
    indices, values = torch.tensor([[0, 1], [1, 2]]), torch.tensor([3.0, 4.0])
    sparse = torch.sparse_coo_tensor(indices, values, (2, 3)).coalesce()
    for tensor in (sparse, sparse.to_dense().to_sparse_csr(), sparse.to_dense().to_sparse_csc()):
        function, arguments = reductions.reduce_sparse_tensor(tensor)
        again = function(*arguments)
        assert again.layout == tensor.layout and torch.equal(again.to_dense(), sparse.to_dense())
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)])
    function, arguments = reductions.reduce_nested_tensor(nested)
    parts = function(*arguments).unbind()
    assert [tuple(p.shape) for p in parts] == [(2, 3), (1, 3)] and torch.equal(parts[0], nested[0])
    storage = torch.FloatStorage([1.0, 2.0])
    function, arguments = reductions.reduce_typed_storage_child(storage)
    assert list(function(*arguments)) == [1.0, 2.0]
    untyped = torch.ones(2).untyped_storage()
    reference = reductions.StorageWeakRef(untyped)
    assert reference == reductions.StorageWeakRef(untyped) and hash(reference) == reference.cdata
    reductions.shared_cache["key"] = reference
    reductions.shared_cache.free_dead_references()
    del reductions.shared_cache["key"]
    assert reductions.storage_from_cache(torch.UntypedStorage, "key") is None


def test_counts_of_instructions():
    from flambeau.utils.benchmark import CopyIfCallgrind, FunctionCount, FunctionCounts

    counts = FunctionCounts((FunctionCount(3, "a/f"), FunctionCount(4, "g")), False)
    assert (counts + counts).sum() == 14 and len(counts - counts) == 0 and counts[0].count == 3
    assert counts.transform(lambda name: "x").sum() == 7 and "Total: 7" in repr(counts)
    assert [row.function for row in counts * 2] == ["g", "a/f"]
    assert CopyIfCallgrind.unwrap_all({"x": CopyIfCallgrind(3), "y": 4}) == {"x": 3, "y": 4}


@pytest.mark.parametrize("kind", ["unary", "binary", "spectral", "sparse_unary", "sparse_binary"])
def test_fuzzers_of_operators(kind, monkeypatch):
    import importlib

    from flambeau.utils.benchmark.op_fuzzers import shapes

    monkeypatch.setattr(shapes, "LARGEST", 4096)
    monkeypatch.setattr(shapes, "POWERS", (16, 64, 256))
    module = importlib.import_module(f"flambeau.utils.benchmark.op_fuzzers.{kind}")
    fuzzer = getattr(module, module.__all__[0])(seed=3)
    for tensors, _, parameters in fuzzer.take(2):
        assert set(tensors) == ({"x", "y"} if "binary" in kind else {"x"})
        assert tensors["x"].dim() == parameters["dim"]


def test_types_of_annotations():
    def typed(x: int, y: str) -> float:
        return 1.0

    assert str(annotations.get_signature(typed, None, None, False)) == "([int, str], float)"
    assert str(annotations.parse_type_line("# type: (int, List[Tensor]) -> int", None, None)) == (
        "([int, List[Tensor]], int)"
    )
    with pytest.raises(RuntimeError, match="Unknown type name 'os'"):
        annotations.parse_type_line("# type: (os) -> int", None, None)
    with pytest.raises(RuntimeError, match="Failed to parse"):
        annotations.parse_type_line("# type: (int.__class__) -> int", None, None)
    assert annotations.try_real_annotations(lambda x: 1, None) is None
    with pytest.raises(ValueError, match="Unknown type annotation"):
        annotations.ann_to_type(3, None)
    assert annotations.get_param_names(lambda x, y: 1, 2) == ["x", "y"]


def test_switch_of_scripting():
    _state.disable()
    try:
        function = lambda x: x  # noqa: E731
        assert torch.jit.script(function) is function
        assert torch.jit.trace(function, (torch.ones(1),)) is function
    finally:
        _state.enable()
    assert bool(_state._enabled)


def test_small_names_of_jit():
    assert frontend.get_default_args(lambda x, y=2: x) == {"y": 2}
    assert frontend.is_reserved_name("__jit_x") and not frontend.is_reserved_name("x")
    with pytest.raises(NotImplementedError, match="syntax trees"):
        frontend.get_jit_def(lambda: 1, "f")
    with pytest.raises(RuntimeError, match="no longer supported"):
        quantized.QuantizedLinear(torch.nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="quantize_dynamic"):
        quantized.quantize_linear_modules(torch.nn.Linear(1, 1))
    assert list(_script.create_script_list([1])) == [1]
    assert _script.ConstMap({"a": 1}).a == 1
    _trace.verify(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    assert _trace.make_tuple(torch.ones(1))[0].numel() == 1
    assert pickle.loads(pickle.dumps(torch.jit.mobile.validate_map_location("cpu"))).type == "cpu"
