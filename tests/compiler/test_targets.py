"""Targets declare, texts use: every template prints and compiles for every instruction set."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.compiler import targets
from flambeau.compiler.targets import TARGETS
from flambeau.compiler.targets.description import Instruction

COMPILER = Path(targets.__file__).parents[1]

# Prints one unit with the kernels of calls that reach every template and most of their settings.
PROGRAM = """
import functools
import torch
from torch.nn import functional as F
from flambeau.compiler import codegen, targets
from flambeau.compiler.codegen.c.printer.c_unit import render

def product(m, k, n, dtype, transposed):
    a, b = torch.zeros(m, k, dtype=dtype), torch.zeros(n, k, dtype=dtype).t()
    torch.matmul(a, b if transposed else b.contiguous())

def convolution(dtype, groups, kernel, stride, last):
    x = torch.zeros(2, 16, 20, 20, dtype=dtype)
    w = torch.zeros(16, 16 // groups, kernel, kernel, dtype=dtype)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    f = functools.partial(F.conv2d, stride=stride, padding=1, groups=groups)
    f(x.requires_grad_(), w.requires_grad_()).sum().backward()
    torch.compile(lambda x, w: torch.relu(f(x, w)))(x.detach(), w.detach())

def attention(dtype, rows, masked, dropout):
    q = torch.zeros(2, 4, rows, 32, dtype=dtype, requires_grad=True)
    k = torch.zeros(2, 4, 512, 32, dtype=dtype, requires_grad=True)
    mask = torch.zeros(rows, 512, dtype=torch.bool) if masked else None
    F.scaled_dot_product_attention(q, k, k, attn_mask=mask, dropout_p=dropout).sum().backward()

floats = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
with codegen.collect() as kernels:
    for dtype in (*floats, torch.complex64, torch.int32, torch.int8):
        for m in (300, 3):
            product(m, 200, 260, dtype, True)
            product(m, 200, 260, dtype, False)
    for dtype in (torch.float32, torch.bfloat16):
        for last in (False, True):
            for groups, kernel, stride in ((1, 5, 1), (1, 3, 1), (2, 3, 2), (16, 3, 1), (16, 3, 2)):
                convolution(dtype, groups, kernel, stride, last)
        for rows in (64, 1):
            attention(dtype, rows, rows == 64, 0.5 if rows == 64 else 0.0)
target = targets.current()
kernels = dict.fromkeys(kernels)
texts = [codegen.print_kernel(kernel, target) for kernel in kernels]
print(render([(f"fb_{i}", text) for i, text in enumerate(texts)], target))
print("//", *sorted({kernel.template for kernel in kernels}))
"""


def unit(name: str) -> str:
    """C of all templates for a target."""
    environment = {**os.environ, "FLAMBEAU_TARGET": name}
    program = PROGRAM.replace(
        "import torch\nfrom torch.nn", "import flambeau as torch\nfrom flambeau.nn"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return result.stdout


@pytest.mark.parametrize("name", TARGETS)
def test_every_template_compiles(name, tmp_path):
    """Of a foreign processor the portable spelling; its own where zig compiles for it."""
    text, target = unit(name), TARGETS[name]
    printed = set(text.splitlines()[-1].split()[1:])
    folder = COMPILER / "codegen" / "c" / "kernels"
    templates = {path.stem.removeprefix("c_template_") for path in folder.glob("c_template_*.py")}
    assert templates <= printed
    source = tmp_path / "unit.c"
    source.write_text(text)
    command = [shutil.which("gcc") or pytest.skip("no gcc"), *target.all_flags]
    if target.machines and os.uname().machine not in target.machines:
        assert not target.flags
        command += ["-D__clang__", "-Wno-psabi"]  # no builtins of another processor
    check = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    check += ["-Wno-unused-parameter", "-Wno-unused-variable", "-Wno-unused-but-set-variable"]
    subprocess.run([*command, *check, str(source)], check=True)
    if importlib.util.find_spec("ziglang"):
        processor = target.machines[0] if target.machines else "aarch64"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-gnu"]
        flags = [flag for flag in target.all_flags if flag not in target.gcc_flags]
        subprocess.run([*command, *flags, "-w", "-fsyntax-only", str(source)], check=True)


def test_only_targets_name_instructions():
    """No text of a kernel names a builtin, an instruction set or a macro of one.

    The table of block functions is data: its directives are the same for all assemblers.
    """
    named = re.compile(
        r"__builtin_(?:ia32|aarch64|arm|wasm)_|__(?:AVX|SSE|FMA|F16C|ARM)\w*|"
        r'__asm__\((?!"\.data\\n)'
    )
    for path in COMPILER.rglob("*"):
        if path.suffix in (".py", ".in", ".c", ".h") and path.parent.name != "targets":
            found = named.findall(path.read_text())
            assert not found, f"{path}: {found}"


def test_an_instruction_takes_its_operands():
    fma = Instruction("__builtin_ia32_vfmaddps256($a, $b, $c)")
    assert fma(a="x", b="y", c="z") == "__builtin_ia32_vfmaddps256(x, y, z)"
    with pytest.raises(KeyError):
        fma(a="x", b="y")


def test_the_portable_spelling_stands_in():
    """Where a target declares nothing, and where the compiler lacks GCC's builtin."""
    operands = {"a": "a", "b": "b", "c": "c"}
    lines = {
        name: target.spelled("fma", "f32", 4, "return {};", "  portable();\n", **operands)
        for name, target in TARGETS.items()
    }
    assert lines["generic"] == "  portable();\n"
    assert lines["neon"].splitlines()[0] == "#ifndef __clang__"
    assert "__builtin_aarch64_fmav4sf(a, b, c)" in lines["neon"]
    assert "portable" in lines["neon"]


def test_the_best_target_that_runs_is_taken(monkeypatch):
    class Machine:
        machine = "aarch64"

    monkeypatch.setattr(targets.os, "uname", lambda: Machine)
    monkeypatch.setattr(targets, "_processor_flags", frozenset)
    assert targets.detect.__wrapped__() == "neon"
    Machine.machine = "x86_64"
    assert targets.detect.__wrapped__() == "generic"
    monkeypatch.setattr(targets, "_processor_flags", lambda: TARGETS["avx2"].features)
    assert targets.detect.__wrapped__() == "avx2"
    Machine.machine = "riscv64"
    assert targets.detect.__wrapped__() == "generic"
