"""A new operator, primitive or target is one new file, a template three: those of
docs/extending.md, each kind alone.

A new device is a target and a table of functions in C++, a new routine a file of the core; both are
compiled here.

The package is laid out anew in a temporary folder, made of links to the real files except for the
one file that is added; a second process imports it from there.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import build_native, dtype_header

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
BLOCK = re.compile(
    r"^```(?:py|c)\n(?:#|//) (?P<title>[^\n]+)\n(?P<code>.*?)^```\n", re.DOTALL | re.MULTILINE
)
BLOCKS = [(found["title"], found["code"]) for found in BLOCK.finditer(PAGE)]
FILES = {title: code for title, code in BLOCKS if title.startswith("flambeau/")}
PROGRAMS = {  # the program that follows a file
    BLOCKS[i - 1][0]: code for i, (title, code) in enumerate(BLOCKS) if title == "a program"
}
OPERATOR, LAYER, OPTIMIZER, PRIMITIVE, HELPER, SPELLED, TARGET, *OTHERS = FILES
*TEMPLATE, ROUTINE, ROUTINE_OPERATOR, DEVICE = OTHERS
NATIVE = {
    found["title"]: found["code"]
    for found in re.finditer(
        r"^```cpp\n(?P<code>// (?P<title>\S+)\n.*?)^```\n", PAGE, re.DOTALL | re.MULTILINE
    )
}


def link(source: Path, target: Path, without: frozenset[str]) -> None:
    """Links a folder's entries; those that lead to one of `without` are folders of their own."""
    target.mkdir()
    for entry in source.iterdir():
        name = str(entry.relative_to(ROOT))
        if name in without or entry.name == "__pycache__":
            continue
        if any(path.startswith(name + "/") for path in without):
            link(entry, target / entry.name, without)
        else:
            (target / entry.name).symlink_to(entry)


def lay_out(folder: Path, added: dict[str, str], removed: tuple[str, ...] = ()) -> None:
    """The package in `folder`, with files added or removed; all else is linked."""
    link(ROOT / "flambeau", folder / "flambeau", frozenset((*added, *removed)))
    (folder / "tests").symlink_to(ROOT / "tests")
    for name, text in added.items():
        (folder / name).write_text(text)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def check(folder: Path, *words: str) -> str:
    result = run(folder, *words)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


WHERE = "import flambeau; print(flambeau.__file__)"


@pytest.mark.parametrize("name", [OPERATOR, OPTIMIZER, PRIMITIVE])
def test_one_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    lay_out(folder, {name: FILES[name]})
    assert check(folder, "-c", WHERE).strip() == str(folder / "flambeau" / "__init__.py")
    check(folder, "-c", PROGRAMS[name])


def test_operator_with_its_layer(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    lay_out(folder, {name: FILES[name] for name in (OPERATOR, LAYER)})
    check(folder, "-c", PROGRAMS[OPERATOR])
    check(folder, "-c", PROGRAMS[LAYER])


def test_primitive_with_its_function(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    lay_out(folder, {name: FILES[name] for name in (HELPER, SPELLED)})
    check(folder, "-c", PROGRAMS[SPELLED])
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/prims/test_primitives.py"]
    shown = check(folder, *words, "tests/compiler/test_helpers.py", "-k", "smooth_step or needs")
    assert re.search(r"\d+ passed", shown), shown


def test_template_is_three_files(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    assert len(TEMPLATE) == 3
    lay_out(folder, {name: FILES[name] for name in TEMPLATE})
    check(folder, "-c", PROGRAMS[TEMPLATE[-1]])


def test_operators_tests_take_it(tmp_path: Path) -> None:
    """The tests of the operator table find the new operator by itself."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    lay_out(folder, {OPERATOR: FILES[OPERATOR]})
    program = "import tests.ops.table as t; print('soft_gate' in t.TABLE)"
    assert check(folder, "-c", program).strip() == "True"
    files = [f"tests/ops/test_{part}.py" for part in ("forward", "gradients", "compiled")]
    shown = check(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", "soft_gate")
    assert re.search(r"[3-9]\d* passed|\d\d+ passed", shown), shown


def test_primitives_tests_take_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    lay_out(folder, {PRIMITIVE: FILES[PRIMITIVE]})
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/prims/test_primitives.py"]
    shown = check(folder, *words, "-k", "soft_sign")
    assert re.search(r"\d+ passed", shown), shown


NULL = """
import flambeau as torch
x = torch.ones(3, device="null", requires_grad=True)
try:
    y = (x.exp() * 2).sum()
except NotImplementedError as error:
    print(str(error))
else:
    y.backward()
    print(y.shape, y.device, x.grad.shape, y)
"""


def test_target_is_one_file(tmp_path: Path) -> None:
    without, page = tmp_path / "without", tmp_path / "page"
    for folder in (without, page):
        folder.mkdir()
    lay_out(without, {}, removed=(TARGET,))
    shown = run(without, "-c", NULL)
    assert "[compile] no kernels can be built for device 'null'" in shown.stdout + shown.stderr
    lay_out(page, {TARGET: FILES[TARGET]})
    expected = "torch.Size([]) null torch.Size([3]) tensor(..., device='null', size=(), grad_fn="
    assert check(page, "-c", NULL).startswith(expected)


def test_device_from_nothing(tmp_path: Path) -> None:
    """One file for the core, one for the compiler: a model trains on it, with the CPU's bits."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    lay_out(folder, {DEVICE: FILES[DEVICE]})
    (folder / "abacus.cpp").write_text(NATIVE["abacus.cpp"])
    compiler = build_native.find_compiler()
    assert compiler is not None
    words = ["-std=c++20", "-shared", "-fPIC", "-Wall", f"-I{ROOT / 'native'}", "abacus.cpp"]
    subprocess.run([*compiler.command, *words, "-o", "abacus.so"], cwd=folder, check=True)
    shown = check(folder, "-c", PROGRAMS[DEVICE])
    assert re.search(r"device='abacus:0', grad_fn=", shown), shown


BUILD = """
from pathlib import Path
from tools import build_native, dtype_header
build_native.SOURCES = Path("native").absolute()
build_native.build(Path("flambeau").absolute() / build_native.EXTENSION)
"""


def test_routine_is_two_files_and_one_of_the_core(tmp_path: Path) -> None:
    """The core is built with the new file, whose registration is all that names it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    core = f"flambeau/{build_native.EXTENSION}"
    lay_out(folder, {name: FILES[name] for name in (ROUTINE, ROUTINE_OPERATOR)}, removed=(core,))
    source = "native/routines/isotonic.cpp"
    shutil.copytree(ROOT / "native", folder / "native")
    (folder / source).write_text(NATIVE[source])
    (folder / "tools").symlink_to(ROOT / "tools")
    check(folder, "-c", BUILD)
    check(folder, "-c", PROGRAMS[ROUTINE_OPERATOR])
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/prims/test_primitives.py"]
    shown = check(folder, *words, "-k", "isotonic")
    assert re.search(r"\d+ passed", shown), shown


def test_dtype_is_a_row(tmp_path: Path) -> None:
    """The core's units that tell element types apart take one more without a warning.

    A build with it takes minutes; `torch.counter` then converts, moves and prints.
    """
    table = dtype_header.TABLE.read_text()
    [row] = [code for title, code in BLOCKS if title == "a row"]
    last = table.index("\n)\n# fmt: on") + 1
    (tmp_path / "dtypes.py").write_text(table[:last] + row + table[last:])
    header = dtype_header.text(tmp_path / "dtypes.py")
    assert 'X(N8, "counter", nullptr, "n8"' in header
    shutil.copytree(ROOT / "native", tmp_path / "native")
    (tmp_path / "native" / "tensor" / "dtypes.h").write_text(header)
    compiler = build_native.find_compiler()
    assert compiler is not None
    flags = [*build_native.code_flags(compiler), "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    flags = [f for f in flags if f != f"-I{ROOT / 'native'}"] + [f"-I{tmp_path / 'native'}"]
    units = [
        path
        for path in sorted((tmp_path / "native").rglob("*.cpp"))
        if "case DType::" in path.read_text()
    ]
    assert len(units) >= 3
    subprocess.run([*compiler.command, *flags, *map(str, units)], check=True)


def test_device_of_another_interface() -> None:
    from flambeau import _core

    table = (ctypes.c_uint32 * 64)(999)
    with pytest.raises(ValueError, match="another interface"):
        _core.register_device(ctypes.addressof(table))


def test_null_runs_the_whole_compiler_and_nothing_else() -> None:
    """Every kernel is printed; no memory is taken, none of the cache either."""
    import flambeau
    from flambeau.compiler import cache, target_null
    from flambeau.runtime import memory_stats

    texts: list[str] = []
    target_null.observers.append(lambda kernel, text: texts.append(text))
    before = memory_stats()["allocated_bytes.all.allocated"], cache.statistics.misses
    try:
        model = flambeau.nn.Sequential(
            flambeau.nn.Linear(64, 128), flambeau.nn.GELU(), flambeau.nn.LayerNorm(128)
        ).to("null")
        taken = memory_stats()["allocated_bytes.all.allocated"]
        x = flambeau.ones(1 << 30, 64, device="null")
        loss = model(x).square().mean()
        loss.backward()
    finally:
        target_null.observers.clear()
    assert memory_stats()["allocated_bytes.all.allocated"] == taken
    assert before[0] <= taken
    assert (loss.device.type, loss.shape, model[0].weight.grad.shape) == ("null", (), (128, 64))
    assert len(texts) >= 5 and all("fb_" in text for text in texts)
    with pytest.raises(RuntimeError, match=r"\[item\]"):
        loss.item()
