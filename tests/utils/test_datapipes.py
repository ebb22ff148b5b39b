"""Data pipes: their results, and the settings that a loader gives them."""

import pickle

import pytest

import flambeau as torch
from flambeau.utils.data import DataLoader, IterDataPipe, MapDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.iter import FileLister, IterableWrapper, Sampler
from flambeau.utils.data.datapipes.map import SequenceWrapper
from flambeau.utils.data.graph import traverse_dps
from flambeau.utils.data.graph_settings import apply_sharding, get_all_graph_pipes


def numbers(count):
    return IterableWrapper(range(count))


def test_chain_of_functional_forms():
    pipe = numbers(7).map(lambda x: x + 1).filter(lambda x: x % 2 == 1).batch(2)
    assert list(pipe) == [[1, 3], [5, 7]]
    assert list(pipe) == [[1, 3], [5, 7]]
    assert list(pipe.unbatch()) == [1, 3, 5, 7]


def test_draws_are_those_of_the_seed():
    torch.manual_seed(3)
    order = [6, 7, 18, 15, 12, 10, 14, 11, 16, 8, 0, 4, 5, 2, 19, 3, 1, 9, 13, 17]
    assert list(numbers(20).shuffle()) == order
    assert list(numbers(5).shuffle().set_seed(5)) == list(numbers(5).shuffle().set_seed(5))


def test_groups():
    pipe = numbers(9).groupby(lambda x: x % 3, group_size=2, buffer_size=6)
    assert list(pipe) == [[0, 3], [1, 4], [2, 5], [6], [7], [8]]
    with pytest.raises(RuntimeError, match="Failed to group"):
        list(numbers(9).groupby(lambda x: x, group_size=2, buffer_size=3))


@pytest.mark.parametrize(("size", "fits"), [(3, False), (4, False), (5, True)])
def test_fork_holds_what_one_child_is_ahead(size, fits):
    children = numbers(5).fork(2, buffer_size=size)
    if fits:
        assert [list(child) for child in children] == [list(range(5))] * 2
        return
    with pytest.raises(BufferError, match="buffer_size"):
        list(children[0])


def test_demultiplexed_and_multiplexed():
    even, odd = numbers(7).demux(2, lambda x: x % 2)
    assert (list(even), list(odd)) == ([0, 2, 4, 6], [1, 3, 5])
    assert list(numbers(2).mux(numbers(3))) == [0, 0, 1, 1]


def test_columns_of_items():
    pipe = IterableWrapper([(1, 2, 3)])
    assert list(pipe.map(lambda a, b: a + b, input_col=[0, 2])) == [(4, 2)]
    assert list(pipe.map(lambda a, b: a + b, input_col=[0, 2], output_col=-1)) == [(1, 2, 3, 4)]
    with pytest.raises(ValueError, match="positional"):
        pipe.map(lambda a, b: a, input_col=0)


def test_files(tmp_path):
    for name in ("b.txt", "a.txt", "c.json"):
        (tmp_path / name).write_text('{"x": 1}')
    pipe = FileLister(str(tmp_path), "*.txt").open_files(mode="b").read_from_stream()
    assert [content for _, content in pipe] == [b'{"x": 1}'] * 2
    decoded = FileLister(str(tmp_path), "*.json").open_files(mode="b").routed_decode()
    assert [content for _, content in decoded] == [{"x": 1}]


def test_items_by_index():
    pipe = SequenceWrapper(range(5)).map(lambda x: 2 * x).batch(2)
    assert (pipe[1], len(pipe), list(pipe)) == ([4, 6], 3, [[0, 2], [4, 6], [8]])
    joined = SequenceWrapper([1, 2]).concat(SequenceWrapper([3]))
    assert list(joined) == [1, 2, 3]
    assert sorted(joined.shuffle()) == [1, 2, 3]


def test_shards_and_graph():
    pipe = numbers(10).sharding_filter().map(str)
    apply_sharding(pipe, 3, 1)
    assert list(pipe) == ["1", "4", "7"]
    names = [str(each) for each in get_all_graph_pipes(traverse_dps(pipe))]
    assert names == ["MapperIterDataPipe", "ShardingFilterIterDataPipe"] + [
        "IterableWrapperIterDataPipe"
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_shuffles_and_divides(workers):
    pipe = numbers(12).shuffle().sharding_filter()
    for shuffle in (None, True, False):
        torch.manual_seed(1)
        loader = DataLoader(pipe, batch_size=3, num_workers=workers, shuffle=shuffle)
        batches = torch.cat(list(loader))
        assert sorted(batches.tolist()) == list(range(12))
        assert shuffle is not False or workers or batches.tolist() == list(range(12))
        assert shuffle is False or batches.tolist() != list(range(12))


def test_a_pipe_of_ones_own():
    @functional_datapipe("doubled_for_test")
    class Doubled(IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            for item in self.source:
                yield 2 * item

    try:
        assert list(numbers(3).doubled_for_test()) == [0, 2, 4]
        with pytest.raises(Exception, match="already taken"):
            functional_datapipe("doubled_for_test")(Doubled)
    finally:
        del IterDataPipe.functions["doubled_for_test"]
    with pytest.raises(AttributeError, match="doubled_for_test"):
        numbers(3).doubled_for_test  # noqa: B018
    with pytest.raises(TypeError):
        functional_datapipe("other")(dict)


def test_pickled_pipes():
    pipe = pickle.loads(pickle.dumps(numbers(4).batch(2)))
    assert list(pipe) == [[0, 1], [2, 3]]
    assert issubclass(SequenceWrapper, MapDataPipe)


def test_lengths():
    assert len(numbers(5).batch(2)) == 3
    with pytest.raises(TypeError, match="len"):
        len(numbers(5).filter(bool))
    assert list(Sampler(SequenceWrapper([7, 8]))) == [0, 1]
