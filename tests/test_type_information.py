"""Signatures, `help`, completion and type stubs: what tools see of operators and modules."""

from __future__ import annotations

import inspect
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.core import install
from tools import type_stubs

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "examples" / "tutorials"
# What a type checker says of each value.
PROGRAM = """
import flambeau as torch

x = torch.zeros(2, 3, requires_grad=True)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
reveal_type(torch.add(x, 1, alpha=2))  # Tensor
reveal_type(x.view(3, 2) @ x + 1)  # Tensor
reveal_type(1 - x.sum(dim=0, keepdim=True))  # Tensor
reveal_type(torch.max(x, 1))  # tuple[Tensor, Tensor]
reveal_type(x.shape)  # Size
reveal_type(x.size(0))  # int
reveal_type(torch.linalg.svd(x))  # tuple[Tensor, Tensor, Tensor]
reveal_type(torch.fft.rfft(x))  # Tensor
reveal_type(torch.nn.functional.relu(x, inplace=True))  # Tensor
reveal_type(torch.equal(x, x))  # bool
reveal_type(x.dtype)  # dtype
reveal_type(torch.float32)  # dtype
reveal_type(x.unbind())  # tuple[Tensor, ...]
reveal_type(model)  # Sequential
torch.cat(x, "dim")  # error
x.permute("a")  # error
torch.nn.Linear()  # error
"""


def test_signatures_of_operators():
    assert list(inspect.signature(torch.add).parameters) == ["input", "other", "alpha", "out"]
    assert str(inspect.signature(torch.Tensor.add_)).startswith("(input: 'Tensor', other:")
    assert list(inspect.signature(torch.ones(1).sum).parameters)[:2] == ["dim", "keepdim"]
    assert "requires_grad" in inspect.signature(torch.zeros).parameters
    assert inspect.signature(torch.cat).bind([torch.ones(1)], dim=0).args
    for space in ("torch", "nn.functional", "linalg", "fft", "special"):
        for name, op in install.namespace(space).items():
            if type(op) is torch._core.Op:
                assert inspect.signature(op).return_annotation, name


def test_help_shows_arguments_and_documentation():
    text = re.sub(".\b", "", pydoc.render_doc(torch.add))
    assert "add(input: 'Tensor', other: 'Tensor | Number', *, alpha" in text
    assert "broadcasting" in text and "Example" in text


def test_completion_sees_operators_methods_and_modules():
    assert {"add", "nn", "linalg", "compile", "float32", "Tensor"} <= {*dir(torch)}
    assert {"add_", "view", "backward", "shape"} <= {*dir(torch.Tensor)}
    stub = (ROOT / "flambeau" / "__init__.pyi").read_text()
    for space in ("torch",):
        missing = [n for n in install.namespace(space) if not re.search(rf"\b{n}\b", stub)]
        assert not missing
    methods = stub[stub.index("class Tensor(") :]
    shown = [n for n in dir(torch.Tensor) if not n.startswith("_")]
    native = type_stubs.native_members()
    assert not [n for n in shown if n not in native and not re.search(rf"\b{n}\b", methods)]
    core = (ROOT / "flambeau" / "_core.pyi").read_text()
    listed = core[core.index("class _NativeTensor") : core.index("class Generator")]
    assert not [n for n in native if not re.search(rf"\b{n}\b", listed)]


def test_stubs_are_current():
    """In a process of its own: tests define operators."""
    command = [sys.executable, "-m", "tools.type_stubs", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _expected(output: str, pattern: str) -> None:
    """Compares what a checker prints for `PROGRAM` with the comments beside its lines."""
    shown: dict[int, str] = {}
    for line, text in re.findall(pattern, output):
        shown[int(line)] = re.sub(r"\b(flambeau(\._core|\.nn\.modules\.\w+)?|builtins)\.", "", text)
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        comment = line.rpartition("  # ")[2] if "  # " in line else None
        if comment == "error":
            assert "error" in shown[number], line
        elif comment:
            assert f'"{comment}"' in shown[number], (line, shown[number])
        else:
            assert number not in shown, shown[number]


def test_mypy_accepts_tutorials_and_knows_types(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    cache = ROOT / "build" / "mypy-users"
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent"]
    command += [f"--cache-dir={cache}", str(TUTORIALS), str(tmp_path / "program.py")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    of_program = [line for line in result.stdout.splitlines() if "program.py:" in line]
    assert "examples/tutorials" not in result.stdout, result.stdout
    _expected("\n".join(of_program), r"program\.py:(\d+): (.*)")


def test_pyright_accepts_tutorials_and_knows_types(tmp_path):
    pyright = shutil.which("pyright", path=Path(sys.executable).parent) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is installed by ./go lint")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text("{}")
    command = [
        pyright,
        "--pythonpath",
        sys.executable,
        str(TUTORIALS),
        str(tmp_path / "program.py"),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "examples/tutorials" not in result.stdout, result.stdout
    _expected(result.stdout, r"program\.py:(\d+):\d+ - (.*)")
