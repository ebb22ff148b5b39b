"""Fills `flambeau/_kernels`, the cache level that is installed with the package.

    python -m flambeau.driver.prefill [--directory D] [--jobs N]

Compiles the templates' variants (`compiler/baseline/variants.py`) for every target of the
architecture. Then, for this machine's target, it runs a few usual training steps and calls every
public operator on its own samples, forward and backward, while kernels are collected instead of
run; compiles what is not there yet, in a few large bundles, as it is found. The common operators
are called on all their samples; the rest, and other dtypes, on a few contiguous ones. Functions
that many kernels share are filled in as objects, too: a new product takes the compiler a tenth of
the time. Of the kernels that `bench/first_call.py` asks for, the 460 of common operators and
training steps are three in four, all 1600 are nine in ten. What is missing is left to the first
call that needs it, so that this is an optimisation and never a condition.

Which kernels these are depends on the sources alone, never on how fast the machine is: a checkout,
`pip install .` and a wheel bring the same ones.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flambeau.compiler import cache, codegen, targets, toolchain
from flambeau.compiler.codegen.batches import compile_functions
from flambeau.compiler.codegen.c.printer import c_unit
from flambeau.compiler.dry_run import Describe, dry_run
from flambeau.driver import prebuilt
from flambeau.ir.dtypes import PUBLIC as TORCH_DTYPE

if TYPE_CHECKING:
    from flambeau.ir.kernel import Kernel

OPERATORS = True  # whether kernels of operators are filled in beside the templates' variants
BUNDLE = 40  # kernels in one translation unit
FIRST = "f32"
RARE_SAMPLES = 2  # of an operator that is not on the short list, or in another dtype
# Operators whose kernels are wanted for other dtypes too; floating ones besides f32 for a few.
OTHERS = ("i64", "bool", "bf16", "f64")
SHORT_LIST = frozenset(
    "add sub mul div neg abs eq ne lt le gt ge where sum mean amax amin argmax argmin any all "
    "clone copy_ zero_ fill_ to cat stack softmax nn.functional.softmax relu exp log sqrt pow "
    "clamp maximum minimum index_select embedding nn.functional.embedding nn.functional.gelu "
    "nn.functional.layer_norm nn.functional.silu arange masked_fill full zeros ones".split()
)


# ------------------------------------------------------------------------------- collecting


def calls() -> list[tuple[str, str]]:
    """(operator, dtype) of what is called, the most useful first."""
    from flambeau.language.definition import REGISTRY

    sampled = [name for name, op in REGISTRY.items() if _samples(op) is not None]
    first = [(name, FIRST) for name in sampled]
    others = [(name, d) for d in OTHERS for name in sampled if name in SHORT_LIST]
    first.sort(key=lambda call: call[0] not in SHORT_LIST)
    common = sum(name in SHORT_LIST for name in sampled)
    steps = [(name, FIRST) for name in STEPS]
    return [*first[:common], *steps, *others, *first[common:]]


def _samples(definition: Any) -> Any:
    for overload in definition.overloads:
        if overload.options.samples is not None:
            return overload.options
    return None


def _tensor(spec: Any, dtype: str) -> Any:
    """A tensor as the sample describes it, without running a kernel."""
    flambeau: Any = importlib.import_module("flambeau")
    dtype = spec.dtype or dtype
    kind = getattr(flambeau, TORCH_DTYPE[dtype])
    grad = spec.grad and dtype[0] in "fb" and dtype != "bool"
    if spec.values is not None:
        return flambeau.tensor(spec.values, dtype=kind, requires_grad=grad)
    shape = list(spec.shape)
    if spec.layout == "transposed" and len(shape) > 1:
        shape[-1], shape[-2] = shape[-2], shape[-1]
        tensor = flambeau.empty(*shape, dtype=kind).transpose(-1, -2)
    elif spec.layout == "sliced" and shape:
        shape[-1] *= 2
        tensor = flambeau.empty(*shape, dtype=kind)[..., ::2]
    elif spec.layout == "expanded" and shape:
        tensor = flambeau.empty(1, *shape[1:], dtype=kind).expand(*shape)
    else:
        tensor = flambeau.empty(shape, dtype=kind)
    return tensor.requires_grad_() if grad else tensor


def _argument(value: Any, dtype: str) -> Any:
    from flambeau.language.samples import TensorSpec

    if isinstance(value, TensorSpec):
        return _tensor(value, dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(_argument(item, dtype) for item in value)
    return value


def _chosen_samples(name: str, dtype: str) -> Iterator[Any]:
    """All samples of a common operator in float32; a few contiguous ones of anything else."""
    from flambeau.language.definition import REGISTRY

    samples = _samples(REGISTRY[name]).samples()
    if name in SHORT_LIST and dtype == FIRST:
        return iter(samples)
    return islice((sample for sample in samples if _plain(sample.args)), RARE_SAMPLES)


def _plain(values: Sequence[Any]) -> bool:
    return all(getattr(value, "layout", "contiguous") == "contiguous" for value in values)


def _call(name: str, dtype: str) -> None:
    """Runs one operator on its samples, and what it recorded backward; or a step of training."""
    from flambeau.language.definition import REGISTRY

    if name in STEPS:
        with suppress(Exception):
            STEPS[name](importlib.import_module("flambeau"))
        return
    definition = REGISTRY[name]
    for sample in _chosen_samples(name, dtype):
        with suppress(Exception):
            args = [_argument(value, dtype) for value in sample.args]
            kwargs = {key: _argument(value, dtype) for key, value in sample.kwargs.items()}
            result = definition.native(*args, **kwargs)
            for output in result if isinstance(result, (list, tuple)) else [result]:
                if getattr(output, "requires_grad", False):
                    output.backward(output.detach(), retain_graph=True)


def _train(torch: Any, model: Any, loss: Callable[[], Any]) -> None:
    """A step with each of the usual optimizers."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizers: tuple[Callable[[], Any], ...] = (
        lambda: torch.optim.SGD(parameters, lr=0.1),
        lambda: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4),
        lambda: torch.optim.Adam(parameters),
        lambda: torch.optim.AdamW(parameters),
        lambda: torch.optim.Adagrad(parameters),
    )
    for make in optimizers:
        with suppress(Exception):
            optimizer = make()
            for _ in range(2):  # the second step meets the state that the first one made
                optimizer.zero_grad()
                value = loss()
                value.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                value.item()


def _regression(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    _train(torch, model, lambda: nn.functional.mse_loss(model(x), y))


def _classifier(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 16, 10),
    )  # fmt: skip
    x, y = torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
    _train(torch, model, lambda: nn.functional.cross_entropy(model(x), y))
    with suppress(Exception):
        model.eval()
        with torch.no_grad():
            (model(x).argmax(-1) == y).float().mean().item()


def _transformer(torch: Any) -> None:
    nn = torch.nn
    functional = nn.functional
    embedding, norm, mix = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 24, bias=False)
    feed, head = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 11)
    model = nn.ModuleList([embedding, norm, mix, feed, head])
    tokens = torch.zeros(2, 6, dtype=torch.int64)

    def loss() -> Any:
        x = embedding(tokens) + embedding(torch.arange(6))
        q, k, v = mix(norm(x)).split(8, dim=-1)
        q, k, v = (t.view(2, 6, 2, 4).transpose(1, 2) for t in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).contiguous().view(2, 6, 8)
        x = x + feed(norm(x))
        return functional.cross_entropy(head(x).view(-1, 11), tokens.view(-1))

    _train(torch, model, loss)


STEPS: dict[str, Callable[[Any], None]] = {
    "step: regression": _regression,
    "step: classifier": _classifier,
    "step: transformer": _transformer,
}


def new_kernels(exists: Callable[[str], object] = lambda key: False) -> Describe:
    """Describes kernels by key and C text, each once, and not those whose key is `known`."""
    target, identity = targets.current(), toolchain.find().identity
    seen: set[str] = set()

    def describe(kernels: list[Kernel]) -> Iterator[str]:
        for kernel in kernels:
            key = codegen.key_of(kernel, target, identity)
            if key not in seen and not exists(key):
                seen.add(key)
                with suppress(NotImplementedError):
                    yield f"{key}\n{codegen.print_kernel(kernel, target)}"

    return describe


def collect(calls: Sequence[Callable[[], object]], describe: Describe) -> Iterator[tuple[str, str]]:
    """Key and C text of the kernels that the calls need, as they are found."""
    for _, descriptions in dry_run(calls, describe):
        for key, _, text in (description.partition("\n") for description in descriptions):
            yield key, text


# ------------------------------------------------------------------------------- compiling


class Progress:
    """One line that says how far it is; tqdm's where that is installed."""

    def __init__(self) -> None:
        """Starts at 0 of a number that is not known yet."""
        self.done = 0
        self.bar: Any = None
        with suppress(ImportError):
            bar = importlib.import_module("tqdm").tqdm
            self.bar = bar(desc="kernels", unit="kernel")

    def advance(self, count: int) -> None:
        """Counts finished kernels."""
        self.done += count
        if self.bar is not None:
            self.bar.update(count)
        elif sys.stderr.isatty():
            print(f"\r[prefill] {self.done} kernels", end="", file=sys.stderr)

    def close(self) -> None:
        """Ends the line."""
        if self.bar is not None:
            self.bar.close()
        elif sys.stderr.isatty():
            print(file=sys.stderr)


def compile_all(
    kernels: Iterable[tuple[str, str]],
    keep: Callable[[dict[str, str], bytes], object],
    jobs: int,
    bundle: int = BUNDLE,
    progress: Progress | None = None,
) -> None:
    """Compiles kernels in bundles while more of them arrive.

    Args:
        kernels: key and C text of each.
        keep: gets each unit and its library.
        jobs: compilers that run side by side.
        bundle: kernels in one translation unit.
        progress: counts what is finished.
    """
    target, arriving = targets.current(), iter(kernels)
    counted = progress or Progress()

    def one(unit: dict[str, str]) -> tuple[dict[str, str], bytes]:
        return unit, codegen.compile_unit(unit, target)

    with ThreadPoolExecutor(jobs) as pool:
        pending: set[Future[tuple[dict[str, str], bytes]]] = set()
        while True:
            while len(pending) < jobs:
                unit = dict(islice(arriving, bundle))
                if not unit:
                    break
                pending.add(pool.submit(one, unit))
            if not pending:
                break
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                unit, content = future.result()
                keep(unit, content)
                counted.advance(len(unit))
    if progress is None:
        counted.close()


def write_level(root: Path, entries: dict[str, tuple[str, str]]) -> None:
    """Writes the index of a level and removes bundles that nothing refers to."""
    lines = [f"{key} {digest} {symbol}\n" for key, (digest, symbol) in sorted(entries.items())]
    cache.write(root / "packed", "".join(lines).encode())
    used = {digest for digest, _ in entries.values()}
    for path in (root / "bundles").glob("*.so"):
        if path.stem not in used:
            path.unlink()


def write_objects(root: Path, functions: dict[str, dict[str, str]], jobs: int) -> set[str]:
    """Writes the objects of the functions that kernels share, which kernels that are not in the
    level are linked with.

    Args:
        root: of the level.
        functions: by the names of an object's, definitions of these and of those that they call.
        jobs: compilers that run side by side.

    Returns:
        The objects' keys.
    """
    target = targets.current()

    def one(names: str) -> str:
        key = codegen.key_of_functions(target, names)
        if not os.path.exists(f"{root}/blobs/{key[:2]}/{key}"):
            with tempfile.TemporaryDirectory(prefix="flambeau") as folder:
                output = os.path.join(folder, "functions.o")
                content = compile_functions(names, functions[names], target, output)
            cache.write_blob(root, key, content)
        return key

    with ThreadPoolExecutor(jobs) as pool:
        return set(pool.map(one, sorted(functions)))


def drop_objects(root: Path, used: set[str]) -> None:
    """Removes the objects that are not in use."""
    for path in (root / "blobs").glob("*/*"):
        if path.name not in used:
            path.unlink()


def fill(root: Path, jobs: int) -> tuple[int, int]:
    """Brings a level up to date; returns (kernels in it, kernels that were compiled now)."""
    present = prepare_level(root)
    progress = Progress()
    with ThreadPoolExecutor(jobs) as pool:
        entries, objects = prebuilt.fill(root, present, pool, progress.advance)
    if OPERATORS:
        objects |= _fill_operators(root, present, entries, jobs, progress)
    progress.close()
    drop_objects(root, objects)
    write_level(root, entries)
    return len(entries), len(entries.keys() - present.keys())


def prepare_level(root: Path) -> dict[str, tuple[str, str]]:
    """Empties a level that another compiler filled; returns the entries of one that stays."""
    identity = toolchain.find().identity
    level = cache.Level(root, writable=True)
    if level.compiler() != identity:
        for name in ("bundles", "blobs", "packed"):
            path = root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        cache.write(root / "compiler", identity.encode())
    return {key: (digest, symbol) for key, digest, symbol in level.all_entries()}


def _fill_operators(
    root: Path,
    present: dict[str, tuple[str, str]],
    entries: dict[str, tuple[str, str]],
    jobs: int,
    progress: Progress,
) -> set[str]:
    """Adds the kernels of operators and training steps to a level's entries; returns the keys of
    the objects that they share."""
    functions: dict[str, dict[str, str]] = {}  # by the names of an object's
    todo = [functools.partial(_call, *call) for call in calls()]

    def missing() -> Iterator[tuple[str, str]]:
        for key, text in collect(todo, new_kernels()):
            shared = c_unit.separate(text)[1]
            functions.update(dict.fromkeys(c_unit.objects_of(shared), shared))
            if key in present:
                entries[key] = present[key]
            elif key not in entries:
                yield key, text

    def keep(unit: dict[str, str], content: bytes) -> None:
        digest = cache.digest_of(content)
        cache.write(root / "bundles" / f"{digest}.so", content)
        entries.update({key: (digest, codegen.symbol_of(key)) for key in unit})

    compile_all(missing(), keep, jobs, progress=progress)
    return write_objects(root, functions, jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Fill the cache of compiled kernels.")
    parser.add_argument("--directory", type=Path, default=cache.PREFILLED)
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    options = parser.parse_args()
    began = time.monotonic()
    total, new = fill(options.directory, options.jobs)
    took = time.monotonic() - began
    print(f"[prefill] {total} kernels ({new} new) in {options.directory}, {took:.1f} s")


if __name__ == "__main__":
    main()
