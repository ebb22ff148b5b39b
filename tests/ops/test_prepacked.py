"""Packed copies of weights: the same bits, found again, dropped by every kind of write."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import runtime

ROWS, INNER, COLUMNS = 40, 130, 261  # packed ahead on every target


@pytest.fixture(autouse=True)
def no_gradients():
    runtime.empty_cache()
    with torch.no_grad():
        yield


def made(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def weight(seed=1):
    return made(COLUMNS, INNER, seed=seed)


def bits(tensor):
    return tensor.shape, tensor.contiguous().numpy().tobytes()


def product(w, rows=ROWS):
    """A product with an operand that no earlier call has seen."""
    return F.linear(made(rows, INNER), w)


def stat(name):
    return runtime.memory_stats()[name]


def kept():
    return stat("prepacked_bytes.all.current")


def hits(function):
    """How many launches a call saves."""
    before = stat("num_prepacked_hits")
    function()
    return stat("num_prepacked_hits") - before


def keep(w):
    """Calls until a copy of the weight is there and used."""
    for _ in range(2):
        product(w)
    assert hits(lambda: product(w)) == 1


def expected(w):
    """The same product where no copy can be: of new memory."""
    return bits(product(w.clone()))


# --------------------------------------------------------------------------------- found again


def test_the_second_sight_keeps_a_copy():
    w, before = weight(), kept()
    first = product(w)
    assert kept() == before  # an operand that is seen once costs no memory
    second = product(w)
    size = kept() - before
    assert w.nbytes <= size <= 1.2 * w.nbytes
    assert [hits(lambda: product(w)) for _ in range(3)] == [1, 1, 1]
    assert bits(first) == bits(second) == bits(product(w)) == expected(w)
    assert kept() - before == size


def test_other_sizes_use_the_same_copy():
    w = weight()
    keep(w)
    for rows in (ROWS, 57, 300):
        assert hits(lambda rows=rows: product(w, rows)) == 1
        assert bits(product(w, rows)) == bits(product(w.clone(), rows))


def test_parts_of_a_storage_have_copies_of_their_own():
    whole = made(2 * COLUMNS, INNER)
    parts = whole[:COLUMNS], whole[COLUMNS:]
    for part in parts:
        keep(part)
    assert bits(product(parts[0])) == expected(parts[0])
    assert bits(product(parts[1])) == expected(parts[1])
    assert bits(product(parts[0])) != bits(product(parts[1]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_dtypes_and_layouts(dtype):
    w = weight().to(getattr(torch, dtype))
    for operand in (w, w.t().contiguous().t(), w.flip(0)[1:]):
        x = made(ROWS, INNER).to(w.dtype)
        results = [(x.clone() @ operand.t()).float() for _ in range(4)]
        assert len({bits(r) for r in results}) == 1
        assert bits(results[0]) == bits((x.clone() @ operand.t().clone()).float())


def test_both_operands_and_batches():
    a, b = made(3, ROWS, INNER), made(3, INNER, COLUMNS, seed=1)
    torch.bmm(a, b)
    torch.bmm(a, b)
    assert hits(lambda: torch.bmm(a, b)) >= 1
    assert bits(torch.bmm(a, b)) == bits(torch.bmm(a.clone(), b.clone()))


def test_compiled_regions_use_what_eager_calls_left():
    w = weight()

    @torch.compile
    def layer(x, w):
        return torch.tanh(F.linear(x, w))

    x = made(ROWS, INNER)
    layer(x.clone(), w)
    layer(x.clone(), w)
    assert hits(lambda: layer(x.clone(), w)) == 1 == hits(lambda: product(w))
    assert bits(layer(x, w)) == bits(torch.tanh(F.linear(x, w.clone())))


def test_number_of_threads():
    w, count = weight(), torch.get_num_threads()
    keep(w)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert hits(lambda: product(w)) == 1
            assert bits(product(w)) == expected(w)
    finally:
        torch.set_num_threads(count)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("depth, columns", [(64, 64), (130, 100), (300, 33), (2100, 48)])
def test_few_rows_of_small_weights(dtype, depth, columns):
    kind = getattr(torch, dtype)
    w, x = (10 * made(columns, depth, seed=1)).to(kind), (10 * made(33, depth)).to(kind)
    before = (x @ w.clone().t()).double()
    for rows in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33):
        for _ in range(3):
            assert bits((x[:rows] @ w.t()).double()) == bits(before[:rows])


def test_small_weights_are_packed():
    linear = torch.nn.Linear(64, 64)
    compiled = torch.compile(lambda x: F.relu(linear(x)))
    for rows in (1, 2, 8):
        x = made(rows, 64)
        eager = [bits(F.relu(linear(x.clone()))) for _ in range(3)]
        assert hits(lambda x=x: linear(x.clone())) == 1
        assert {bits(compiled(x.clone())) for _ in range(3)} == set(eager)
        assert hits(lambda x=x: compiled(x.clone())) == 1
    linear.weight.mul_(2)
    assert bits(linear(x)) == bits(F.linear(x, linear.weight.clone(), linear.bias))


# ------------------------------------------------------------------------------------- dropped


def optimizer_step(w):
    parameter = torch.nn.Parameter(w)
    assert parameter.untyped_storage()._cdata == w.untyped_storage()._cdata
    parameter.grad = torch.ones_like(w)
    torch.optim.SGD([parameter], lr=0.5).step()


def load(w):
    module = torch.nn.Linear(INNER, COLUMNS, bias=False)
    module.weight = torch.nn.Parameter(w)
    module.load_state_dict({"weight": weight(5)})


def compiled_write(w):
    torch.compile(lambda w: w.mul_(0.5))(w)


def compiled_use_and_write(w):
    def body(x, w):
        y = F.linear(x, w)
        w.mul_(0.5)
        return y + F.linear(x, w)

    before = w.clone()
    for _ in range(3):
        x = made(ROWS, INNER)
        eager = F.linear(x, before) + F.linear(x, before.mul_(0.5))
        assert bits(torch.compile(body)(x, w)) == bits(eager)


def inference(w):
    with torch.inference_mode():
        w.add_(1)


def resized(w):
    w.untyped_storage().resize_(w.nbytes + 64)
    w.untyped_storage().resize_(w.nbytes)
    w.fill_(0.25)


def into_out(w):
    torch.add(w, 1, out=w)


WRITES = {
    "add_": lambda w: w.add_(1),
    "copy_": lambda w: w.copy_(weight(3)),
    "fill_": lambda w: w.fill_(0.5),
    "normal_": lambda w: w.normal_(),
    "zero_": lambda w: w.zero_(),
    "setitem": lambda w: w.__setitem__((3, 5), 7.0),
    "index_add_": lambda w: w.index_add_(0, torch.tensor([1]), torch.ones(1, INNER)),
    "index_put_": lambda w: w.index_put_((torch.tensor([2]),), torch.tensor(3.0)),
    "scatter_": lambda w: w.scatter_(0, torch.zeros(1, INNER, dtype=torch.int64), 2.0),
    "masked_fill_": lambda w: w.masked_fill_(w > 0, 0.0),
    "out": into_out,
    "a view": lambda w: w[1:3].mul_(2),
    "a view of another dtype": lambda w: w.view(torch.int32).add_(1 << 20),
    "detached": lambda w: w.detach().add_(1),
    "data": lambda w: w.data.add_(1),
    "assigned data": lambda w: setattr(w, "data", weight(4)),
    "set_": lambda w: w.set_(weight(4)),
    "inference": inference,
    "resized": resized,
    "storage bytes": lambda w: w.untyped_storage().fill_bytes(bytes(w.nbytes)),
    "optimizer": optimizer_step,
    "load_state_dict": load,
    "vector_to_parameters": lambda w: torch.nn.utils.vector_to_parameters(weight(6).flatten(), [w]),
    "init": lambda w: torch.nn.init.xavier_uniform_(w),
    "compiled": compiled_write,
    "compiled use": compiled_use_and_write,
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_drop_the_copy(name):
    w = weight()
    keep(w)
    old = bits(product(w))
    WRITES[name](w)
    assert bits(product(w)) == expected(w) != old
    for _ in range(3):  # and what is kept anew is of the new bytes
        assert bits(product(w)) == expected(w)


FOREIGN = {
    "numpy": lambda w: w.numpy(),
    "array": lambda w: np.asarray(w),
    "dlpack": lambda w: np.from_dlpack(w),
    "buffer": lambda w: np.ndarray(w.shape, np.float32, w.untyped_storage()),
    "frombuffer": lambda w: np.frombuffer(w.untyped_storage(), np.float32).reshape(w.shape),
    "memoryview": lambda w: np.ndarray(w.shape, np.float32, memoryview(w.untyped_storage())),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("early", [False, True])
def test_foreign_writers_are_never_missed(name, early):
    w = weight()
    if not early:
        keep(w)
    array = FOREIGN[name](w)
    for number in range(4):
        array[number] = number
        assert bits(product(w)) == expected(w)
    assert hits(lambda: product(w)) == 0
    copied = w.clone()  # of the package's own memory again
    keep(copied)


def test_foreign_memory_is_never_kept():
    array = weight().numpy()
    w, shared = torch.from_numpy(array), weight().share_memory_()
    for operand in (w, torch.as_tensor(array), torch.from_dlpack(array), shared):
        for _ in range(3):
            product(operand)
        assert hits(lambda operand=operand: product(operand)) == 0
    array[3] = 2.5
    assert bits(product(w)) == expected(w)


def test_an_address_is_a_licence_to_write():
    w = weight()
    keep(w)
    assert w.data_ptr() and hits(lambda: product(w)) == 0
    w = weight()
    keep(w)
    assert w.untyped_storage().data_ptr() and hits(lambda: product(w)) == 0


def test_saving_is_no_licence(tmp_path):
    w = weight()
    keep(w)
    torch.save({"w": w}, tmp_path / "w.safetensors")
    assert hits(lambda: product(w)) == 1
    loaded = torch.load(tmp_path / "w.safetensors")["w"]
    keep(loaded)
    assert bits(product(loaded)) == bits(product(w))
    keep(pickle.loads(pickle.dumps(w)))
    assert hits(lambda: product(w)) == 1


def test_copies_of_a_module_are_independent():
    module = torch.nn.Linear(INNER, COLUMNS)
    x = made(ROWS, INNER)
    for _ in range(3):
        module(x.clone())
    twin = copy.deepcopy(module)
    twin.weight.mul_(2)
    assert bits(twin(x)) == bits(F.linear(x, twin.weight.clone(), twin.bias))
    assert hits(lambda: module(x.clone())) == 1


# -------------------------------------------------------------------------------------- memory


def test_freed_with_the_weight():
    w, before = weight(), kept()
    view = w[:100]
    keep(w)
    del w
    assert kept() > before  # the storage lives
    del view
    gc.collect()
    assert kept() == before


def test_empty_cache_drops_copies():
    w = weight()
    keep(w)
    assert kept() > 0
    assert runtime.empty_cache() >= 0
    assert kept() == 0 == stat("num_prepacked")
    assert bits(product(w)) == expected(w)
    keep(w)


def test_memory_pressure_drops_copies():
    w = weight()
    keep(w)
    with pytest.raises(MemoryError):
        torch.empty(1 << 44)
    assert kept() == 0
    assert bits(product(w)) == expected(w)


def test_counters_and_snapshot():
    w = made(1200, 400)  # a block of its own in the snapshot
    runtime.reset_peak_memory_stats()
    before, allocated = kept(), stat("prepacked_bytes.all.allocated")
    for _ in range(3):
        F.linear(made(ROWS, 400), w)
    size = kept() - before
    assert size >= w.nbytes and stat("prepacked_bytes.all.allocated") == allocated + size
    blocks = [b for segment in runtime.memory_snapshot() for b in segment["blocks"]]
    assert [b["requested_size"] for b in blocks if b["state"] == "prepacked"] == [size]
    del w
    assert kept() == before and stat("prepacked_bytes.all.peak") >= size


def test_the_bound():
    limit, w = runtime.prepacked_limit(), weight()
    assert limit > 1 << 26
    keep(w)
    try:
        runtime.set_prepacked_limit(0)
        assert kept() == 0
        for _ in range(3):
            assert hits(lambda: product(w)) == 0
        runtime.set_prepacked_limit(w.nbytes + w.nbytes // 2)
        keep(w)
        assert hits(lambda: [product(other) for other in [weight(2)] * 4]) == 0  # no room
        with pytest.raises(ValueError):
            runtime.set_prepacked_limit(-1)
    finally:
        runtime.set_prepacked_limit(None)
    assert runtime.prepacked_limit() == limit


def test_weights_that_change_every_step_are_not_kept():
    w, before = weight(), stat("prepacked_bytes.all.allocated")
    for _ in range(5):
        product(w)
        w.add_(0.125)
    assert stat("prepacked_bytes.all.allocated") == before


def test_copies_that_are_never_used_are_made_more_rarely():
    w, before = weight(), stat("prepacked_bytes.all.allocated")
    for _ in range(40):  # two uses, then a write
        product(w)
        product(w)
        w.add_(0.125)
    assert stat("prepacked_bytes.all.allocated") - before < 3 * w.nbytes


# ------------------------------------------------------------------------- threads, processes


def test_threads_share_copies_while_another_drops_them():
    weights = [weight(seed) for seed in range(3)]
    x = made(ROWS, INNER)
    wanted = [bits(F.linear(x, w)) for w in weights]
    wrong = []

    def work(number):
        for step in range(60):
            which = (number + step) % len(weights)
            if bits(F.linear(x, weights[which])) != wanted[which]:
                wrong.append((number, step))
            if number == 0 and step % 7 == 0:
                runtime.empty_cache()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_write_of_another_thread_is_seen_after_it():
    w, x = made(1024, 1024), made(64, 1024)
    stop = threading.Event()

    def use():
        while not stop.is_set():
            F.linear(x, w)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        for number in range(20):
            w.fill_(number / 8)
            assert bits(F.linear(x, w)) == bits(F.linear(x, w.clone()))
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork():
    w, count = weight(), torch.get_num_threads()
    keep(w)
    wanted = expected(w)
    torch.set_num_threads(1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            same = bits(product(w)) == wanted
            w.mul_(2)
            status = 0 if same and bits(product(w)) == expected(w) != wanted else 1
        finally:
            os._exit(status)
    torch.set_num_threads(count)
    assert os.waitpid(child, 0)[1] == 0
    assert bits(product(w)) == wanted


# -------------------------------------------------------------- few rows, images: other launches


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_with_few_rows_a_copy_is_used_if_there_is_one(dtype, layout):
    w = made(900, 301, seed=1).to(getattr(torch, dtype))
    if layout == "columns":
        w = w.t().contiguous().t()
    rows = 9, 12  # fewer are as fast without

    def few(w, rows):
        return F.linear(made(rows, 301).to(w.dtype), w)

    first = few(w, rows[0])
    few(w, rows[0])
    assert hits(lambda: few(w, rows[1])) == 1
    assert bits(few(w, rows[0]).float()) == bits(first.float())
    assert bits(few(w, 40).float()) == bits(few(w.clone(), 40).float())
    before = few(w, rows[0])
    w.mul_(2)
    assert bits(few(w, rows[0]).float()) == bits((before * 2).float())


def test_factors_of_convolutions():
    w = made(40, 33, 3, 3)
    x = made(2, 33, 20, 21, seed=2)
    first = F.conv2d(x, w, padding=1)
    F.conv2d(x, w, padding=1)
    assert hits(lambda: F.conv2d(x, w, padding=1)) == 1
    assert hits(lambda: F.conv2d(x[:, :, :17], w, padding=1)) == 1  # images of any size
    assert bits(F.conv2d(x, w, padding=1)) == bits(first)
    w[0, 0] = 0.5
    assert bits(F.conv2d(x, w, padding=1)) == bits(F.conv2d(x, w.clone(), padding=1))
