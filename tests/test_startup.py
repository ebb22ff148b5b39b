"""What `import flambeau` costs, as counts that no busy machine changes: modules, files, imports.

The times are `python -m bench footprint`'s matter. A count that grows is no error by itself, but
somebody should mean it: change the bound together with what made it grow.
"""

import ast
import subprocess
import sys
from pathlib import Path

from flambeau.language.definition import REGISTRY

# Loaded by nothing but the program itself, or on first use.
NEVER = {
    "numpy", "ctypes", "subprocess", "tempfile", "json", "logging", "asyncio", "multiprocessing",
    "pathlib", "threading", "traceback", "hashlib", "pickle", "socket", "concurrent.futures",
    "safetensors", "scipy", "unittest", "urllib", "platform", "importlib.metadata", "inspect",
    "dataclasses", "pkgutil", "tokenize", "mmap",
}  # fmt: skip
LAZY_PARTS = (
    "nn",
    "optim",
    "sparse",
    "nested",
    "autograd",
    "capture",
    "compiler",
    "distributions",
    "func",
    "linalg",
    "utils",
    "runtime",
)
CHILD = """
import sys
before = set(sys.modules)
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import flambeau
print(repr((sorted(set(sys.modules) - before), opened)))
"""


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded():
    modules, files = ast.literal_eval(python(CHILD))
    return set(modules), files


def test_heavy_modules_stay_out():
    modules, _ = loaded()
    assert not modules & NEVER


def test_parts_are_loaded_when_asked_for():
    modules, _ = loaded()
    assert not {f"flambeau.{part}" for part in LAZY_PARTS} & modules


def test_number_of_modules_and_files():
    modules, files = loaded()
    ours = {name for name in modules if name.startswith("flambeau")}
    assert len(modules - ours) <= 60
    assert len(ours - {n for n in ours if n.startswith("flambeau.ops.")}) <= 52
    # Modules, and nothing else: no configuration, no kernel, no probe of the machine.
    others = [name for name in files if "flambeau" in name and ".py" not in Path(name).name]
    assert others == []


def test_nothing_is_traced_or_compiled():
    code = "import flambeau, sys; print('flambeau.driver.dispatch' in sys.modules)"
    assert python(code).strip() == "False"


def test_every_schema_can_be_parsed():
    """Schemas are parsed on first use, so a wrong one would otherwise hide."""
    for definition in REGISTRY.values():
        for overload in definition.overloads:
            schema = overload.schema
            assert schema.name == definition.name
            assert len({a.name for a in schema.arguments}) == len(schema.arguments)


def test_ops_resolve_on_first_use():
    code = """
import flambeau as torch
op = torch.logaddexp2
assert op.__name__ == "logaddexp2" and op.__doc__
assert op.schemas and torch.ones(2).mul(3).tolist() == [3.0, 3.0]
assert torch.ones(2).add_(1).tolist() == [2.0, 2.0]
"""
    python(code)


def test_lazy_names():
    code = """
import flambeau as torch
assert {"nn", "optim", "compile", "no_grad", "load"} <= set(dir(torch))
from flambeau import nn, no_grad
import flambeau.nn.functional as F
assert torch.nn is nn and F.relu(torch.ones(1)).item() == 1
assert torch.optim.SGD and torch.compile and torch.autograd.grad
assert not hasattr(torch, "no_such_name")
try:
    torch.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
"""
    python(code)


def test_collector_is_left_as_it_was():
    python("import gc, flambeau; assert gc.isenabled()")
    python("import gc; gc.disable(); import flambeau; assert not gc.isenabled()")


def test_autograd_methods_load_their_module():
    code = """
import flambeau as torch
x = torch.tensor(2.0, requires_grad=True)
seen = []
x.register_hook(seen.append)
x.backward()
assert x.grad.item() == 1 and len(seen) == 1
torch.tensor(1.0, requires_grad=True).retain_grad()
"""
    python(code)
    python("import flambeau as t; t.tensor(2.0, requires_grad=True).backward()")
