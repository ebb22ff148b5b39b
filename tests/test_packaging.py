"""What ends in a wheel: every folder with code is a package; what is required beside it."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
import zlib
from itertools import islice
from pathlib import Path

import pytest

import flambeau
from flambeau.compiler import cache, targets, toolchain
from flambeau.compiler.baseline import functions
from flambeau.driver import prebuilt
from tools import build_baseline, build_package, wheel_tag
from tools.jobs import Jobs

ROOT = Path(__file__).resolve().parent.parent


def test_every_folder_with_code_is_a_package():
    """Setuptools leaves out a folder without `__init__.py`; a checkout would not notice."""
    folders = {path.parent for path in (ROOT / "flambeau").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_one_required_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [word.partition(">=")[0] for word in project["dependencies"]] == ["scipy-openblas64"]


def test_version():
    assert str(flambeau.__version__) == f"2.13.0+flambeau{flambeau.version.__version__}"
    assert flambeau.version.cuda is None


def packed():
    """The files that a wheel of this checkout holds."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = ["**/*.py", "*.so", "_baseline/*.so", "_kernels/**/*", "_plans/plans"]
    patterns += settings["package-data"]["flambeau"]
    files = {path for pattern in patterns for path in (ROOT / "flambeau").glob(pattern)}
    files -= set((ROOT / "flambeau" / "_kernels" / "blobs").rglob("*"))
    variants = {path.name for path in build_package.LEVELS.glob("*/bundles/*.so")}
    bundles = set((ROOT / "flambeau" / "_kernels" / "bundles").iterdir())
    files -= {path for path in bundles if path.name not in variants}  # of earlier builds
    return sorted(path for path in files if path.is_file() and path.name != "sources")


def bytecode(path):
    """What Python adds beside a source; as much as the source where it was not imported yet."""
    cached = Path(importlib.util.cache_from_source(str(path)))
    return (cached if cached.exists() else path).stat().st_size


def test_a_wheel_is_small():
    """12 MB, and 35 MB when it is installed, with the bytecode and without LAPACK."""
    files = packed()
    assert any(path.suffix == ".so" and path.parent.name == "bundles" for path in files)
    wheel = sum(len(zlib.compress(path.read_bytes())) for path in files)
    installed = sum(path.stat().st_size for path in files)
    installed += sum(bytecode(path) for path in files if path.suffix == ".py")
    print(f"wheel {wheel / 1e6:.1f} MB, installed {installed / 1e6:.1f} MB")
    assert wheel <= 12e6
    assert installed <= 35e6


PLANS = """
import hashlib
from flambeau.compiler import shipped
from tools import ship_plans as ship, workload
shipped.FILE = "none"  # plans of this checkout would not be made again
for text, (content, everywhere) in sorted(ship.plan_calls(workload.calls()[:300:10]).items()):
    print(hashlib.sha256(text.encode() + content).hexdigest(), everywhere)
"""


def test_which_plans_are_installed_depends_on_the_sources_alone(tmp_path):
    """Neither on the order of hashes nor on what was planned before."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PLANS],
            env=os.environ
            | {"PYTHONHASHSEED": seed, "FLAMBEAU_COMPILER": "never", "FLAMBEAU_VERIFY": "0"}
            | {"FLAMBEAU_CACHE_DIR": str(tmp_path / seed), "FLAMBEAU_TIER": "compiled"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0].splitlines() for process in processes)
    assert len(first) > 100
    assert first == second


def test_block_functions_are_the_same_bytes_in_every_build(tmp_path, monkeypatch):
    """Of a few, built twice from nothing, into folders of other names."""
    target, compiler = targets.current(), toolchain.find()
    few = functions.pieces(target)[:40]
    monkeypatch.setattr(functions, "pieces", lambda target: few)
    libraries = []
    for name in ("one", "another"):
        monkeypatch.setattr(build_baseline, "BUILD", tmp_path / f"objects of {name}")
        with Jobs(2, name) as jobs:
            assert build_baseline.build(tmp_path / name, target, compiler, jobs)
            assert not build_baseline.build(tmp_path / name, target, compiler, jobs)
        libraries.append((tmp_path / name / f"{target.name}.so").read_bytes())
    assert libraries[0] == libraries[1]
    assert all(
        symbol.encode() in libraries[0] for symbol in ("fb_block_names", few[0].functions[0][0])
    )


def test_variants_do_not_depend_on_what_was_built_before(tmp_path, monkeypatch):
    """Two of each target: from nothing, beside other kernels, and after one was missing."""
    everyone, chosen = prebuilt.parts_of, targets.of_this_architecture()
    monkeypatch.setattr(prebuilt, "parts_of", lambda target: islice(everyone(target), 2))
    monkeypatch.setattr(build_package, "LEVELS", tmp_path / "variants")

    def build(name):
        with Jobs(2, name) as jobs:
            for target in chosen:
                build_package._variants(target, jobs)
        build_package._install(tmp_path / name, chosen)
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        return {path.relative_to(tmp_path / name): path.read_bytes() for path in files}

    first = build("first")
    assert sum(path.suffix == ".so" for path in first) == len(chosen)
    cache.write(tmp_path / "used" / "compiler", toolchain.find().identity.encode())
    cache.store(b"another library", {"0" * 32: "another"}, tmp_path / "used")
    used = build("used")
    assert f"{'0' * 32} ".encode() in used[Path("packed")]
    assert all(used[path] == content for path, content in first.items() if path.suffix == ".so")
    packed = tmp_path / "variants" / chosen[0].name / "packed"
    packed.write_bytes(packed.read_bytes().partition(b"\n")[2])
    assert build("again") == first


def test_a_failed_job_ends_the_others_and_is_raised():
    def fail():
        raise OSError("no room")

    begun = []
    with pytest.raises(OSError, match="no room"), Jobs(1, "test") as jobs:
        first = jobs.submit(fail)
        rest = [jobs.submit(begun.append, number) for number in range(1000)]
        first.result()
    assert all(each.done() for each in rest)


SOURCE = """
#include <math.h>
#include <dlfcn.h>
double f(double x, void *p) { return hypot(x, 1) + log(x) + (dlsym(p, "f") != 0); }
"""


def library(folder, name="library.so"):
    folder.mkdir(exist_ok=True)
    output = folder / name
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(output), "-lm", "-ldl"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return output


def test_a_wheel_is_named_after_the_newest_version_that_is_needed(tmp_path):
    """The reader finds what binutils find; the tag is the newest of all files."""
    path = library(tmp_path / "one")
    table = subprocess.check_output(["objdump", "-p", str(path)], text=True)
    versions = set(re.findall(r"GLIBC_[0-9.]+", table))
    read = wheel_tag.Library(path.read_bytes())
    assert set(read.versions()) == versions and versions
    assert set(read.needed()) == set(re.findall(r"NEEDED +(\S+)", table))
    newest = max(tuple(map(int, text[6:].split(".")))[:2] for text in versions)
    library(tmp_path, "other.so")
    assert wheel_tag.oldest_glibc(tmp_path) == max(newest, (2, 17))


def test_what_is_compiled_here_can_be_loaded_on_older_linux():
    """glibc 2.29: Ubuntu 20.04, Debian 11, RHEL 9."""
    assert wheel_tag.oldest_glibc(ROOT / "flambeau") <= (2, 29)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ValueError, match="not a shared library"):
        wheel_tag.oldest_glibc(tmp_path)


def test_the_distribution_named_torch(tmp_path):
    """Installed beside Flambeau, it makes `import torch` give Flambeau, and nothing else."""
    build = [sys.executable, "-m", "tools.alias_wheel", str(tmp_path)]
    name = subprocess.check_output(build, cwd=ROOT, text=True).strip()
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / name) as archive:
        assert archive.testzip() is None
        archive.extractall(site)
    program = """
import importlib.metadata as metadata, sys
import torch, torch.nn as nn, flambeau
assert torch is flambeau is sys.modules["torch"] and nn is flambeau.nn
assert metadata.version("torch") == str(torch.__version__)
[needed] = metadata.requires("torch")
assert needed == f"flambeau=={flambeau.version.__version__}"
assert metadata.packages_distributions()["torch"] == ["torch"]
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    module = [sys.executable, "-m", "torch.utils.collect_nothing"]
    failed = subprocess.run(module, env=environment, capture_output=True, text=True)
    assert "No module named torch.utils.collect_nothing" in failed.stderr
