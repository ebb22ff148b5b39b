"""The caching allocator: alignment, reuse, splitting, coalescing, statistics, threads, fork."""

from __future__ import annotations

import gc
import os
import random
import threading
from typing import Any

import pytest

from flambeau import _core

MIB = 1 << 20
# Behind every block in a sanitizer build (native/runtime/poison.h).
RED_ZONE = 64 if "asan" in os.environ.get("LD_PRELOAD", "") else 0


def block(nbytes: int) -> Any:
    return _core.tensor_empty((nbytes,), _core.uint8)


def current(name: str, pool: str = "all") -> int:
    value: int = _core.memory_stats()[f"{name}.{pool}.current"]
    return value


@pytest.fixture(autouse=True)
def clean(no_garbage: None) -> None:
    _core.empty_cache()


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 513, 4097, MIB, MIB + 1, 5 * MIB + 3])
def test_blocks_are_aligned_and_counted(nbytes: int) -> None:
    before = current("allocated_bytes"), current("requested_bytes"), current("allocation")
    t = block(nbytes)
    assert t.data_ptr() % 64 == 0
    allocated = current("allocated_bytes") - before[0]
    assert nbytes <= allocated <= max(64, nbytes * 1.25 + 4096)
    assert current("requested_bytes") - before[1] == nbytes
    assert current("allocation") - before[2] == 1
    del t
    assert (current("allocated_bytes"), current("requested_bytes"), current("allocation")) == before


def test_small_classes_waste_at_most_a_quarter() -> None:
    for nbytes in [*range(64, 4096, 37), *range(4096, MIB, 9973)]:
        before = current("allocated_bytes")
        t = block(nbytes)
        used = current("allocated_bytes") - before
        assert nbytes <= used <= max((nbytes + RED_ZONE) * 1.25, nbytes + RED_ZONE + 64)
        del t


@pytest.mark.parametrize("nbytes", [100, 10_000, 3 * MIB])
def test_freed_blocks_are_reused(nbytes: int) -> None:
    address = block(nbytes).data_ptr()
    assert block(nbytes).data_ptr() == address
    assert _core._probe_block(nbytes) == address


def test_blocks_do_not_overlap() -> None:
    generator = random.Random(0)
    live: list[Any] = []
    for step in range(3000):
        if live and generator.random() < 0.5:
            live.pop(generator.randrange(len(live)))
        else:
            live.append(block(generator.choice((10, 100, 3000, 70_000, 2 * MIB, 3 * MIB + 17))))
        if len(live) > 60:
            del live[:30]
        if step % 500 == 0:
            spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in live)
            assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def test_large_blocks_split_and_coalesce() -> None:
    _core.empty_cache()  # what other tests left could fit better
    whole = block(96 * MIB)
    start = whole.data_ptr()
    del whole
    parts = [block(32 * MIB) for _ in range(3)]
    assert sorted(t.data_ptr() for t in parts) == [start + k * 32 * MIB for k in range(3)]
    del parts[1]
    del parts
    assert block(96 * MIB).data_ptr() == start


def test_best_fit() -> None:
    _core.empty_cache()
    spacer = [block(n * MIB) for n in (48, 16, 24, 16)]
    small, large = spacer[2].data_ptr(), spacer[0].data_ptr()
    spacer[0] = spacer[2] = None
    fitting = block(24 * MIB)
    assert fitting.data_ptr() == small != large


def test_empty_cache_returns_everything() -> None:
    keep = block(100)
    before = current("reserved_bytes")
    tensors = [block(n) for n in (50, 5000, 600_000, 9 * MIB, 40 * MIB) for _ in range(20)]
    assert current("reserved_bytes") >= 20 * 49 * MIB
    del tensors
    assert _core.memory_stats()["cached_bytes"] > 0
    assert _core.empty_cache() > 0
    assert current("reserved_bytes") <= before + 16 * MIB
    assert keep.data_ptr() and block(50).data_ptr()


def test_peaks() -> None:
    _core.reset_peak_memory_stats()
    base = current("allocated_bytes")
    first = block(8 * MIB)
    del first
    second = block(1000)
    stats = _core.memory_stats()
    assert stats["allocated_bytes.all.peak"] - base == 8 * MIB
    _core.reset_peak_memory_stats()
    stats = _core.memory_stats()
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"]
    assert second.nbytes == 1000


def test_pools_add_up() -> None:
    tensors = [block(n) for n in (10, 1000, 2 * MIB)]
    stats = _core.memory_stats()
    for name in ("allocated_bytes", "requested_bytes", "allocation", "reserved_bytes"):
        parts = [stats[f"{name}.{pool}.current"] for pool in ("small_pool", "large_pool")]
        assert stats[f"{name}.all.current"] == sum(parts)
        entry = f"{name}.all."
        assert stats[entry + "allocated"] - stats[entry + "freed"] == stats[entry + "current"]
    assert len(tensors) == 3


def test_snapshot_covers_the_reserved_memory() -> None:
    tensors = [block(n) for n in (10, 3 * MIB, 20 * MIB)]
    segments = _core.memory_snapshot()
    total = 0
    for segment in segments:
        position = segment["address"]
        for entry in segment["blocks"]:
            assert entry["address"] == position
            position += entry["size"]
        total += position - segment["address"]
    assert total == current("reserved_bytes")
    states = {b["state"] for s in segments for b in s["blocks"]}
    assert states <= {"active_allocated", "inactive", "slab"} and "slab" in states
    addresses = [b["address"] for s in segments for b in s["blocks"]]
    assert all(t.data_ptr() in addresses for t in tensors[1:])


def test_cache_limit() -> None:
    try:
        _core.set_memory_cache_limit(0)
        del_me = block(40 * MIB)
        reserved = current("reserved_bytes")
        del del_me
        assert current("reserved_bytes") <= reserved - 40 * MIB
        with pytest.raises(ValueError):
            _core.set_memory_cache_limit(-1)
    finally:
        _core.set_memory_cache_limit(None)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="counts resident pages")
def test_large_segments_are_touched_little() -> None:
    """Whether huge pages are slow is tested on a sixteenth of a segment at most."""
    before = resident()
    t = block(512 * MIB)
    assert resident() - before <= (512 / 16 + 4) * MIB
    address = t.data_ptr()
    t[:: 64 * MIB] = 1
    assert t[:: 64 * MIB].tolist() == [1] * 8 and t.data_ptr() == address
    del t
    _core.empty_cache()
    shadow = 64 if "FLAMBEAU_NATIVE_DIR" in os.environ else 0  # a sanitizer's, of the segment
    assert resident() - before <= (16 + shadow) * MIB  # kernels of the writes were loaded


def test_failure_frees_the_cache_and_is_counted() -> None:
    del_me = block(30 * MIB)
    del del_me
    stats = _core.memory_stats()
    with pytest.raises(MemoryError):
        block(1 << 46)
    after = _core.memory_stats()
    assert after["num_ooms"] == stats["num_ooms"] + 1
    assert after["num_alloc_retries"] == stats["num_alloc_retries"] + 1
    assert block(30 * MIB).nbytes == 30 * MIB


def test_threads() -> None:
    before = current("allocated_bytes")
    failures = []

    def work(seed: int) -> None:
        generator = random.Random(seed)
        live = []
        for number in range(1500):
            t = block(generator.choice((16, 500, 40_000, 2 * MIB)))
            view = memoryview(t.untyped_storage())
            view[0] = view[-1] = number % 251
            live.append((t, view, number % 251))
            if len(live) > 8:
                t, view, mark = live.pop(generator.randrange(8))
                if view[0] != mark or view[-1] != mark:
                    failures.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    gc.collect()
    assert not failures and current("allocated_bytes") == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_keeps_the_allocator_usable() -> None:
    t = block(3 * MIB)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            u = block(2 * MIB)
            status = 0 if u.nbytes == 2 * MIB and t.nbytes == 3 * MIB else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
