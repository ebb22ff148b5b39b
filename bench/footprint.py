"""What Flambeau costs before it computes: start-up, files opened, installed size, peak memory.

Every number comes from processes of their own; PyTorch stands beside ours where it is installed.
Times are the fastest of several starts, less that of a bare interpreter. Processor time stands
beside wall time because a busy machine lengthens only the latter.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness import duration

ROOT = Path(__file__).resolve().parent.parent
STARTS = 11
IMPORT_BUDGET = 0.1
SIZE_BUDGET = 50e6
OWN_BUDGET = 35e6  # without dependencies
OPENED = """
import sys
before, opened = set(sys.modules), []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
import {module}
print(len(opened), len(set(sys.modules) - before))
"""
PEAK = """
{code}
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1])
"""
STEP = """
import {module} as torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(128, 256)
for _ in range(3):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


@dataclass
class Footprint:
    """Of one framework: seconds, counts, bytes."""

    name: str
    start: float
    processor: float
    files: int
    modules: int
    installed: int
    own: int
    memory_import: int
    memory_step: int


def run(code: str) -> str:
    """Standard output of a Python program."""
    # An installed package has its bytecode; a checkout may have to write it first.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout


def start_times(code: str) -> tuple[float, float]:
    """Wall and processor seconds, the least of several runs after one that may write bytecode."""
    run(code)
    walls, processors = [], []
    for _ in range(STARTS):
        begin, used = time.perf_counter(), _processor_time()
        run(code)
        walls.append(time.perf_counter() - begin)
        processors.append(_processor_time() - used)
    return min(walls), min(processors)


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak(code: str) -> int:
    """Bytes of memory that a program had at most."""
    return int(run(PEAK.format(code=code)).split()[-1]) * 1024


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder, bytecode included."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def distribution_size(name: str, seen: set[str], alone: bool = False) -> int:
    """Bytes of an installed distribution and, unless alone, of what it requires without extras."""
    key = name.lower().replace("_", "-")
    if key in seen:
        return 0
    seen.add(key)
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return 0
    total = 0
    for file in found.files or ():
        path = Path(str(file.locate()))
        total += path.stat().st_size if path.is_file() else 0
    for requirement in () if alone else found.requires or ():
        if "extra ==" not in requirement:
            required = requirement.split(";")[0].split("[")[0]
            for separator in "<>=!~ (":
                required = required.split(separator)[0]
            total += distribution_size(required.strip(), seen)
    return total


def installed_size(module: str, alone: bool = False) -> int:
    """Bytes on disk, with the dependencies or alone; a checkout counts as its package folder."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    if folder.is_relative_to(ROOT):
        seen: set[str] = set()
        own = distribution_size(module, seen, alone)  # a few hundred bytes: the editable link
        return own + folder_size(folder)
    return distribution_size(module, set(), alone)


def footprint(module: str, bare: tuple[float, float]) -> Footprint:
    """Everything about one framework."""
    files, modules = map(int, run(OPENED.format(module=module)).split())
    wall, processor = start_times(f"import {module}")
    return Footprint(
        module,
        wall - bare[0],
        processor - bare[1],
        files,
        modules,
        installed_size(module),
        installed_size(module, alone=True),
        peak(f"import {module}"),
        peak(STEP.format(module=module)),
    )


def main() -> None:
    """Prints one table."""
    bare = start_times("pass")
    found = [footprint("flambeau", bare)]
    if importlib.util.find_spec("torch"):
        found.append(footprint("torch", bare))
    print(f"bare Python starts in {duration(bare[0])}")
    print("| | " + " | ".join(f.name for f in found) + " |")
    print("| --- |" + " --- |" * len(found))
    lines = {
        "import, over bare Python": [duration(f.start) for f in found],
        "the same, processor time": [duration(f.processor) for f in found],
        "files opened by it": [str(f.files) for f in found],
        "modules loaded by it": [str(f.modules) for f in found],
        "installed with dependencies, MB": [f"{f.installed / 1e6:.1f}" for f in found],
        "the same without dependencies": [f"{f.own / 1e6:.1f}" for f in found],
        "peak memory after import, MB": [f"{f.memory_import / 1e6:.0f}" for f in found],
        "peak memory, small training, MB": [f"{f.memory_step / 1e6:.0f}" for f in found],
    }
    for name, values in lines.items():
        print(f"| {name} | " + " | ".join(values) + " |")
    ours = found[0]
    for what, value, budget in (
        ("import, seconds", ours.start, IMPORT_BUDGET),
        ("installed, bytes", ours.installed, SIZE_BUDGET),
        ("without dependencies, bytes", ours.own, OWN_BUDGET),
    ):
        print(f"budget of {what}: {budget:g}, {'ok' if value <= budget else 'exceeded'}")


if __name__ == "__main__":
    main()
