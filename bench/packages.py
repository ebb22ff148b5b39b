"""Packages of compiled models beside PyTorch's AOTInductor: compiling, size, loading, calls.

    python -m bench packages
    python -m bench.packages flambeau encoder FILE    # compiles one, in this process

Compiling is `aoti_compile_and_package` in a fresh process with empty caches, import and export not
counted. Calls run in one process, interleaved, on packages that were loaded before.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import Row, compare, publish

THREADS = (1, 2)
MODELS = ("mlp", "encoder", "convolutions")


def model(t: Any, name: str) -> tuple[Any, Any]:
    """A model and its arguments, by name."""
    nn = t.nn
    t.manual_seed(0)
    if name == "mlp":
        layers = [nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8)]
        return nn.Sequential(*layers).eval(), t.randn(4, 64)
    if name == "encoder":
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        return encoder.eval(), t.randn(2, 32, 128)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    for channels in (32, 64):
        out = 2 * channels
        layers += [nn.Conv2d(channels, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*layers).eval(), t.randn(4, 3, 32, 32)


def child(library: str, name: str, path: str) -> dict[str, float]:
    """Compiles a package of a batch that varies; returns its seconds."""
    t = importlib.import_module(library)
    importlib.import_module(f"{library}._inductor")
    importlib.import_module(f"{library}.export")
    module, x = model(t, name)
    with t.no_grad():
        batch = t.export.Dim("batch", min=2, max=64)
        program = t.export.export(module, (x,), dynamic_shapes=({0: batch},))
        start = time.perf_counter()
        t._inductor.aoti_compile_and_package(program, package_path=path)
    return {"seconds": time.perf_counter() - start}


def compiled(library: str, name: str, folder: str) -> tuple[str, float]:
    """The path of a package that a fresh process compiled, and its seconds."""
    path = f"{folder}/{library}-{name}.pt2"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        caches = {"FLAMBEAU_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        command = [sys.executable, "-m", "bench.packages", library, name, path]
        done = subprocess.run(
            command, env=os.environ | caches, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"[bench] {command[2:]} failed\n{done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return path, figures["seconds"]


def rows(name: str, folder: str) -> dict[str, Row]:
    """The row of each table."""
    import torch
    from torch._inductor import aoti_load_package

    import flambeau
    from flambeau._inductor import aoti_load_package as load_ours

    libraries = ("flambeau", "torch")
    (ours, own_seconds), (theirs, their_seconds) = (compiled(x, name, folder) for x in libraries)
    sizes = [Path(path).stat().st_size for path in (ours, theirs)]
    note = f"{sizes[0] / 1e6:.2f} MB and {sizes[1] / 1e6:.2f} MB"
    loading = [lambda: load_ours(ours), lambda: aoti_load_package(theirs)]
    tables = {
        "compile": Row(name, own_seconds, their_seconds, own_seconds / their_seconds, note=note),
        "load": compare(name, *loading, blocks=5),
    }
    packages = load_ours(ours), aoti_load_package(theirs)
    for threads in THREADS:
        flambeau.set_num_threads(threads)
        torch.set_num_threads(threads)
        calls = []
        for library, package in zip((flambeau, torch), packages, strict=True):
            x = model(library, name)[1]
            calls.append(lambda package=package, x=x: package(x))
        tables[f"call, {threads} thread(s)"] = compare(name, *calls, threads=threads)
    return tables


def main() -> None:
    """Prints and publishes the tables."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        models = [rows(name, folder) for name in MODELS]
    titles = list(models[0])
    publish("packages", [(title, [each[title] for each in models], None) for title in titles])


if __name__ == "__main__":
    print(json.dumps(child(*sys.argv[1:4])))
