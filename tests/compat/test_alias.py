"""`import torch` gives Flambeau: each program runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=ENVIRONMENT, **options
    )  # type: ignore[call-overload]


def checked(program: str, *before: str) -> list[str]:
    """The lines that a program prints under the alias."""
    result = run("-m", "flambeau", *before, "-c", program)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_a_module_has_one_object() -> None:
    checked("""
import sys, importlib, importlib.util
import torch, torch.nn.functional as F, torch.utils.data
from torch import nn
import flambeau, flambeau.nn.utils.rnn, torch.nn.utils.rnn
assert torch is flambeau and nn is flambeau.nn is sys.modules["torch.nn"]
assert torch.nn.functional is F is flambeau.nn.functional
assert sys.modules["torch.nn.utils.rnn"] is sys.modules["flambeau.nn.utils.rnn"]
for name in [n for n in sys.modules if n.startswith("torch.")]:
    assert sys.modules[name] is sys.modules["flambeau" + name[5:]], name
assert importlib.util.find_spec("torch").origin == flambeau.__file__
assert importlib.util.find_spec("torch.nn") and importlib.util.find_spec("torch.fft")
assert importlib.util.find_spec("torch.nothing") is None
assert torch.fft.__spec__.name == "flambeau.fft" and torch.nn.__spec__.name == "flambeau.nn"
assert importlib.reload(torch.fft) is torch.fft
""")


def test_modules_have_the_names_of_pytorch() -> None:
    checked("""
import torch, torch.nn.functional, torch.distributions.kl, torch.optim.lr_scheduler as late
assert torch.__name__ == "torch" and late.__name__ == "torch.optim.lr_scheduler"
assert torch.torch is torch and torch.distributions.kl.__name__ == "torch.distributions.kl"
from flambeau import nn
import importlib
assert nn is torch.nn and importlib.reload(torch.fft) is torch.fft
""")


def test_classes_and_functions_have_the_names_of_pytorch() -> None:
    checked("""
import inspect, pickle
import torch
assert torch.Tensor.__module__ == torch.Size.__module__ == torch.device.__module__ == "torch"
assert torch.nn.Linear.__module__ == "torch.nn.modules.linear"
assert torch.nn.functional.relu.__module__ == "torch.nn.functional"
import torch.optim.lr_scheduler as late
assert late.StepLR.__module__ == "torch.optim.lr_scheduler"
assert inspect.getsource(torch.nn.Linear).startswith("class Linear")
assert inspect.getmodule(late.StepLR) is late
assert pickle.loads(b"ctorch.nn.modules.linear\\nLinear\\n.") is torch.nn.Linear
assert b"flambeau" not in pickle.dumps([torch.nn.Linear, torch.Size([2]), torch.nn.functional.relu])
layer = pickle.loads(pickle.dumps(torch.nn.Linear(2, 3)))
assert layer(torch.ones(1, 2)).shape == (1, 3)
assert repr(type(torch.ones(1))) == "<class 'torch.Tensor'>"
""")


def test_the_distribution_is_found() -> None:
    [version, owners, installed] = checked("""
import importlib.metadata as metadata
import torch
print(metadata.version("torch"))
print(metadata.packages_distributions()["torch"])
print(torch.__version__, torch.__version__ >= "2.13", torch.__version__ < (2, 14))
""")
    assert owners == "['torch']"
    assert installed == f"{version} True True" and version.startswith("2.13.0+flambeau")


def test_a_script_a_directory_and_a_module(tmp_path: Path) -> None:
    """Arguments, the name of the main module and its path are as under `python`."""
    (tmp_path / "beside.py").write_text("import torch\nvalue = torch.ones(2).sum().item()\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside\nprint(beside.value, sys.argv[1:], __name__, len(sys.path[0]) > 0)\n"
    )
    (tmp_path / "__main__.py").write_text(script.read_text())
    expected = "2.0 ['a', '-b'] __main__ True\n"
    for target in ([str(script)], [str(tmp_path)], ["-m", "script"]):
        result = run("-m", "flambeau", *target, "a", "-b", cwd=tmp_path)
        assert result.stdout == expected, result.stderr


def test_processes_that_a_program_starts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import multiprocessing, subprocess, sys
import torch

def work(queue):
    import torch as again
    queue.put(again.__version__ == torch.__version__)

if __name__ == "__main__":
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
    program = "import torch, flambeau; assert torch is flambeau"
    print(subprocess.run([sys.executable, "-c", program]))
""")
    result = run("-m", "flambeau", str(script))
    assert result.stdout.splitlines()[:2] == ["True", "True"], result.stderr
    assert result.stdout.rstrip().endswith("returncode=0)"), result.stdout


def test_a_program_that_fails_and_usage() -> None:
    assert run("-m", "flambeau", "-c", "raise SystemExit(7)").returncode == 7
    failed = run("-m", "flambeau", "-c", "import torch\ntorch.ones(2) @ torch.ones(3)")
    assert failed.returncode == 1 and "RuntimeError: [" in failed.stderr
    for arguments in ((), ("-m",), ("-c",), ("--unknown",)):
        result = run("-m", "flambeau", *arguments)
        assert result.returncode == 2 and result.stderr.startswith("usage: python -m flambeau")
    assert run("-m", "flambeau", "--help").stdout.startswith("usage: python -m flambeau")


@pytest.mark.parametrize("times", [1, 2])
def test_installed_in_the_process(times: int) -> None:
    program = "import flambeau.compat as c\nassert not c.is_installed()\n"
    program += "c.install()\n" * times + "import torch, flambeau\nassert torch is flambeau\n"
    program += "import sys\nassert c.is_installed() and sys.path.count(c.PATH) == 1\n"
    result = run("-c", program)
    assert result.returncode == 0, result.stderr


def test_an_imported_pytorch_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.13.0'\n")
    program = "import sys; sys.path.insert(0, sys.argv[1])\nimport torch, flambeau.compat\n"
    result = run("-c", program + "flambeau.compat.install()", str(tmp_path))
    assert "RuntimeError: [compat] cannot install the alias: PyTorch 2.13.0" in result.stderr
    result = run("-m", "flambeau", "-c", program + "assert torch is flambeau", str(tmp_path))
    assert result.returncode == 0, result.stderr


def test_the_package_that_stands_for_torch() -> None:
    """What `sys.path` and PYTHONPATH may hold, and what the small distribution brings."""
    program = "import sys\nfrom flambeau.compat import PATH\n"
    program += "sys.path.insert(0, PATH)\nimport torch.nn, flambeau\n"
    program += "assert torch is flambeau and sys.modules['torch'] is flambeau"
    result = run("-c", program)
    assert result.returncode == 0, result.stderr


def test_what_asks_where_a_class_is_defined() -> None:
    """Conjugates stay views, results with names are containers, kinds of tensors are saved."""
    checked("""
import io
import torch, torch.utils._pytree as pytree, torch.masked, torch.nn.functional as F

x = torch.randn(3, dtype=torch.complex64)
assert x.conj().is_conj() and x.conj().data_ptr() == x.data_ptr()
assert torch.nn.Parameter(x).conj().is_conj()
leaves, form = pytree.tree_flatten(torch.sort(torch.tensor([2.0, 1.0])))
assert len(leaves) == 2 and pytree.tree_unflatten(leaves, form).indices.tolist() == [1, 0]
nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
masked = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
for value in (nested, masked, torch.ones(2).to_sparse(), torch.nn.Parameter(torch.ones(2))):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    assert type(torch.load(file)) is type(value)
assert type(F.linear_cross_entropy).__name__ == type(F.relu).__name__ == "shield"
""")


def test_plans_are_kept_under_one_name(tmp_path: Path) -> None:
    """What a process stores is found by the next one, whichever name they import."""
    program = """
import sys
if sys.argv[1] == "alias":
    import flambeau.compat
    flambeau.compat.install()
import flambeau as torch
x = torch.arange(30.0).reshape(5, 6).requires_grad_()
torch.nn.functional.gelu(x * 3.25).logsumexp(1).sum().backward()
print("flambeau.driver.specify" in sys.modules)  # whether anything was traced
"""
    environment = {**ENVIRONMENT, "FLAMBEAU_CACHE_DIR": str(tmp_path), "FLAMBEAU_VERIFY": "0"}
    traced = [
        subprocess.check_output([sys.executable, "-c", program, name], env=environment, text=True)
        for name in ("plain", "alias")
    ]
    assert [text.strip() for text in traced] == ["True", "False"]
