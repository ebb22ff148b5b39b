"""The kernel cache: hits, damage, several processes, limits, export and import."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kernel_reference import N0, R, const, op, run

from flambeau.compiler import cache, codegen, toolchain, trust
from flambeau.compiler.codegen import progress
from flambeau.ir import kernel as K
from flambeau.ir.kernel import Kernel, Pass
from flambeau.runtime import settings

HERE = Path(__file__).parent


def scale_kernel(factor):
    value = op("mul", K.load(0, R, "f32"), const(factor))
    store = Pass(stores=((1, R, value),))
    return Kernel("map", (("f32", "r"), ("f32", "w")), 1, (), (), N0, (store,))


def check(factor):
    x = np.arange(20, dtype=np.float32)
    out = np.zeros_like(x)
    run(scale_kernel(factor), [x, out], [20])
    np.testing.assert_array_equal(out, x * np.float32(factor))


@pytest.fixture
def fresh(tmp_path):
    """An empty cache directory and a process that has loaded nothing."""
    with settings.override(CACHE_DIR=tmp_path / "cache"):
        forget()
        yield tmp_path / "cache"
    forget()


def forget():
    codegen._handles.clear()
    cache._libraries.clear()
    cache._levels.clear()
    cache.statistics.__init__()


def test_a_kernel_is_compiled_once(fresh):
    check(3.0)
    assert cache.stats()["misses"] == 1 and cache.stats()["kernels"] == 1
    check(3.0)
    forget()
    check(3.0)
    assert cache.statistics.hits == 1 and cache.statistics.misses == 0
    assert len(cache.list()) == 1
    cache.clear()
    forget()
    check(3.0)
    assert cache.statistics.misses == 1


def test_the_table_of_handles_is_bounded(fresh, monkeypatch):
    monkeypatch.setattr(codegen, "MAX_HANDLES", 8)
    for factor in range(2, 40):
        codegen._handles[f"kernel {factor}", "avx2"] = codegen.nothing()
        if factor % 10 == 0:
            check(3.0 + factor % 20)
            assert len(codegen._handles) <= 8 + 10
    misses = cache.statistics.misses
    check(3.0)
    check(13.0)
    assert cache.statistics.misses == misses  # dropped, they are in the cache


def test_many_kernels_go_into_at_most_one_unit_per_job(fresh):
    kernels = [scale_kernel(float(i)) for i in range(6)]
    with settings.override(COMPILE_JOBS=2):
        handles = codegen.build([*kernels, kernels[0]])
    assert handles[0] is handles[6] and len({h.address for h in handles}) == 6
    assert cache.stats()["bundles"] == 2 and cache.stats()["kernels"] == 6


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "delete"])
def test_damage_is_noticed_and_repaired(fresh, damage):
    check(5.0)
    (bundle,) = (fresh / "bundles").glob("*.so")
    content = bundle.read_bytes()
    forget()
    # A new file, as a process that is still running has the old one mapped.
    bundle.unlink()
    if damage == "truncate":
        bundle.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        bundle.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    elif damage == "empty":
        bundle.write_bytes(b"")
    check(5.0)
    assert cache.statistics.misses == 1
    forget()
    check(5.0)
    assert cache.statistics.hits == 1


def test_large_bundles_are_checked_once_and_again_when_changed(fresh, monkeypatch):
    monkeypatch.setattr(cache, "_SMALL", 0)
    check(5.5)
    assert len(list((fresh / "verified").iterdir())) == 1
    (bundle,) = (fresh / "bundles").glob("*.so")
    content = bundle.read_bytes()
    bundle.unlink()
    bundle.write_bytes(content[:-1] + b"x")
    forget()
    check(5.5)
    assert cache.statistics.damaged == 1 and cache.statistics.misses == 1


def test_a_damaged_entry_counts_as_absent(fresh):
    check(6.0)
    (entry,) = (fresh / "index").glob("*/*")
    entry.write_text("nonsense")
    forget()
    check(6.0)
    assert cache.statistics.misses == 1


def test_blobs(fresh):
    assert cache.get_blob("ab12") is None
    cache.put_blob("ab12", b"hello")
    assert cache.get_blob("ab12") == b"hello"
    path = fresh / "blobs" / "ab" / "ab12"
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get_blob("ab12") is None and not path.exists()


def test_export_and_import(fresh, tmp_path):
    for factor in (1.0, 2.0):
        check(factor)
    assert cache.export(tmp_path / "exported") == 2
    (tmp_path / "exported").rename(tmp_path / "moved")
    with settings.override(CACHE_DIR=tmp_path / "other"):
        forget()
        assert cache.import_(tmp_path / "moved") == 2
        assert cache.import_(tmp_path / "moved") == 0
        check(1.0)
        assert cache.statistics.hits == 1 and cache.statistics.misses == 0


def test_the_prefilled_level_serves_kernels_of_its_own_compiler(fresh, tmp_path, monkeypatch):
    check(8.0)
    level = tmp_path / "kernels"
    cache.export(level)
    (level / "compiler").write_text(toolchain.find().identity)
    monkeypatch.setattr(cache, "PREFILLED", level)
    toolchain.prefilled_identity.cache_clear()
    with settings.override(CACHE_DIR=tmp_path / "empty"):
        forget()
        check(8.0)
        assert cache.statistics.prefilled_hits == 1 and cache.statistics.misses == 0
    toolchain.prefilled_identity.cache_clear()


def test_the_oldest_go_first_beyond_the_limit(fresh):
    for i, factor in enumerate((1.0, 2.0, 3.0)):
        check(factor)
        for bundle in (fresh / "bundles").glob("*.so"):
            if not (bundle.stat().st_mtime < 100):
                os.utime(bundle, (i, i))
    sizes = [bundle.stat().st_size for bundle in (fresh / "bundles").glob("*.so")]
    assert cache.evict(sum(sizes) - 1) >= 1
    forget()
    check(3.0)
    assert cache.statistics.hits == 1
    check(1.0)
    assert cache.statistics.misses == 1


def put(number, size=3000):
    cache.put_blob(f"{number:032x}", bytes(size))


def stored_kib(root):
    files = [*(root / "blobs").glob("??/*"), *(root / "bundles").glob("*.so")]
    return sum(-(-file.stat().st_size // 1024) for file in files)


@pytest.fixture
def walks(monkeypatch):
    """A list with an element for each walk of the directory."""
    seen, walk = [], cache._stored_files
    monkeypatch.setattr(cache, "_stored_files", lambda: (seen.append(1), walk())[1])
    return seen


def test_the_directory_is_walked_only_when_it_may_be_full(fresh, walks):
    with settings.override(CACHE_LIMIT=1):
        for number in range(340):
            put(number)
        assert len(walks) == 1, "the first store measures; then 1020 of 1024 KiB are known"
        put(1000, 5000)
        assert len(walks) == 2
        assert stored_kib(fresh) <= 1024 * 9 // 10
        assert (fresh / "filled").stat().st_size == stored_kib(fresh)
        for number in range(2000, 2030):
            put(number)
        assert len(walks) == 2, "a walk leaves a tenth of the limit free"


def test_a_directory_of_an_earlier_version_is_measured_once(fresh, walks):
    for number in range(10):
        put(number)
    (fresh / "filled").unlink()
    put(10)
    put(11)
    assert len(walks) == 2
    assert (fresh / "filled").stat().st_size == stored_kib(fresh) == 36


def test_files_that_are_replaced_do_not_fill_the_cache(fresh, walks):
    with settings.override(CACHE_LIMIT=1):
        for _ in range(1000):
            put(7)
        assert stored_kib(fresh) == 3
        assert len(walks) <= 4
        assert cache.get_blob(f"{7:032x}") is not None


def test_files_that_another_process_deletes_are_not_deleted_twice(fresh, monkeypatch):
    """Two processes that find the cache full at once leave what one of them would have left."""
    for number in range(20):
        put(number)
    listed = cache._stored_files()
    cache.evict(30 << 10)
    left = stored_kib(fresh)
    monkeypatch.setattr(cache, "_stored_files", lambda: listed)
    cache.evict(30 << 10)
    assert stored_kib(fresh) == left == 30


def test_several_processes_count_together(fresh):
    program = (
        "import os\n"
        "from flambeau.compiler import cache\n"
        "for i in range(200): cache.put_blob(f'{os.getpid():016x}{i:016x}', bytes(3000))\n"
    )
    put(0)
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(fresh)}
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (fresh / "filled").stat().st_size == stored_kib(fresh) == 3 * 601


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with settings.override(CACHE_DIR=blocked / "cache"):
        forget()
        check(9.0)
    forget()


def test_a_failing_compile_keeps_its_source(fresh):
    with pytest.raises(toolchain.CompileError) as caught:
        compiler = toolchain.find()
        compiler.compile("int broken(", codegen.targets.current(), fresh / "out.so")
    path = Path(str(caught.value).split(": ", 1)[1].split("\n")[0])
    assert path.read_text() == "int broken("


WORKER = """
import sys
sys.path[:0] = [{here!r}]
from test_cache import check
for factor in {factors!r}:
    check(float(factor))
print("done")
"""


def worker(cache_dir, factors):
    code = WORKER.format(here=str(HERE), factors=factors)
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(cache_dir)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)


def test_several_processes_fill_one_cache(tmp_path):
    workers = [worker(tmp_path, [1, 2, 3]) for _ in range(3)]
    assert all(w.communicate()[0] == b"done\n" for w in workers)
    assert not list(tmp_path.glob("**/*.tmp"))
    with settings.override(CACHE_DIR=tmp_path):
        forget()
        check(1.0)
        check(3.0)
        assert cache.statistics.misses == 0
    forget()


def test_killed_processes_leave_a_usable_cache(tmp_path):
    for delay in (0.3, 0.5, 0.7):
        victim = worker(tmp_path, [1, 2, 3, 4])
        time.sleep(delay)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    survivor = worker(tmp_path, [1, 2, 3, 4])
    assert survivor.communicate()[0] == b"done\n"


def shared(directory):
    """A cache directory with one kernel that everybody may write."""
    with settings.override(CACHE_DIR=directory):
        forget()
        check(3.0)
    directory.chmod(0o777)
    trust._checked.clear()
    forget()


@pytest.fixture(autouse=True)
def unchecked():
    yield
    trust._checked.clear()


def test_a_new_cache_is_private(fresh):
    check(3.0)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700


def test_a_directory_that_others_may_write_is_not_used(tmp_path):
    directory = tmp_path / "cache"
    shared(directory)
    with settings.override(CACHE_DIR=directory):
        with pytest.warns(UserWarning, match="is not used: others may write it"):
            check(3.0)
        assert cache.statistics.misses == 1 and cache.statistics.hits == 0
        replacement = cache.directory()
        assert replacement != directory and stat.S_IMODE(replacement.stat().st_mode) == 0o700
        check(4.0)  # warns once
    assert len(list((directory / "bundles").iterdir())) == 1
    forget()


def test_a_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    directory = tmp_path / "cache"
    shared(directory)
    directory.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(directory, 12345, 12345)  # a second user, for real
    else:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with settings.override(CACHE_DIR=directory):
        with pytest.warns(UserWarning, match=r"user \d+ owns it"):
            check(3.0)
        assert cache.statistics.misses == 1
    forget()


@pytest.mark.parametrize("part", ["bundles/*.so", "index/??/*"])
def test_a_file_that_others_may_write_is_not_loaded(fresh, part):
    check(3.0)
    for path in fresh.glob(part):
        path.chmod(0o666)
    forget()
    check(3.0)
    assert cache.statistics.misses == 1 and cache.statistics.hits == 0


def test_a_value_that_others_may_write_is_not_read(fresh):
    cache.put_blob("ab12", b"value")
    assert cache.get_blob("ab12") == b"value"
    (fresh / "blobs" / "ab" / "ab12").chmod(0o622)
    assert cache.get_blob("ab12") is None


def test_a_long_compile_says_so_once(fresh, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_explained", False)
    check(5.0)
    check(6.0)
    text = capsys.readouterr().err
    assert text.count("the first call compiles") == 1
    assert "1 of 1 kernels" in text


def test_a_short_compile_is_silent(fresh, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 600.0)
    check(7.0)
    assert capsys.readouterr().err == ""
