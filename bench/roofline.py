"""How near to this machine's limits kernels come: `python -m bench roofline`.

Measures the machine (`roofline_peaks.py`), then runs a table of programs under the profiler, whose
launches tell time, bytes and operations. A kernel's bound is what the slower of two limits allows:
the multiply-add units at its dtype, or the memory that its buffers lie in (Williams et al. 2009).
docs/perf.md explains how to read the result; `python -m bench.perf_page` fills that page. On a
machine that others use, `python -m bench.roofline --more` adds passes to what is known.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import flambeau as torch
from bench import roofline_peaks
from bench.harness import RESULTS, duration
from flambeau.compiler import targets
from flambeau.profiler import profile
from flambeau.profiler.events import EventKind

F = torch.nn.functional
PASSES = 3  # over everything, of which the best counts: others' work on a machine comes and goes
ROUNDS = 2  # of the machine's measurement per pass
SECONDS, CALLS = 0.1, 25  # of profiled calls per program and pass, at least
ROWS, COLUMNS = 4096, 2048  # 32 MB of float32: two of them are more than most caches hold
THREADS = (1, 2)
Program = Callable[[], object]


@dataclass
class Machine:
    """The ceilings for one number of threads: operations and bytes per second."""

    threads: int
    peaks: dict[str, float] = field(default_factory=dict)
    memory: dict[str, dict[str, float]] = field(default_factory=dict)

    def improve(self, peaks: dict[str, float], memory: dict[str, dict[str, float]]) -> None:
        """Keeps the better of two measurements."""
        for dtype, rate in peaks.items():
            self.peaks[dtype] = max(rate, self.peaks.get(dtype, 0.0))
        for level, patterns in memory.items():
            known = self.memory.setdefault(level, {})
            for pattern, rate in patterns.items():
                known[pattern] = max(rate, known.get(pattern, 0.0))


@dataclass
class Row:
    """One program with one number of threads; rates per second.

    Attributes:
        name: what runs.
        threads: number of threads.
        seconds: shortest sum of its launches' times.
        flops: operations per call; an elementary function is one.
        nbytes: bytes per call.
        launches: how many launches a call has.
        bound: what limits it: "f32 units" or "DRAM read".
        fraction: how much of that bound it reaches.
    """

    name: str
    threads: int
    seconds: float
    flops: float
    nbytes: float
    launches: int
    bound: str = ""
    fraction: float = 0.0

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.nbytes if self.nbytes else 0.0


@dataclass
class Case:
    """A program of the table.

    Attributes:
        name: what it is.
        make: makes its operands and returns the program.
        dtype: whose multiply-add peak counts; f32 where the processor has no such units.
        pattern: how it uses memory mostly: "read", "write", "copy" or "update" (in place).
    """

    name: str
    make: Callable[[], Program]
    dtype: str = "f32"
    pattern: str = "copy"


# ------------------------------------------------------------------------------- programs


def _on(shape: tuple[int, ...], call: Callable[..., object], count: int = 1, **options: Any) -> Any:
    """A maker of programs on random tensors of one shape."""

    def make() -> Program:
        operands = [
            torch.rand(*shape).to(options.get("dtype", torch.float32)) for _ in range(count)
        ]
        return lambda: call(*operands)

    return make


def _norm(call: Callable[..., object]) -> Callable[[], Program]:
    def make() -> Program:
        x, scale, shift = torch.randn(ROWS, COLUMNS), torch.rand(COLUMNS), torch.rand(COLUMNS)
        return lambda: call(x, scale, shift)

    return make


def _embedding() -> Program:
    table, index = torch.randn(50000, 1024), torch.randint(0, 50000, (16384,))
    return lambda: F.embedding(index, table)


def _cross_entropy() -> Program:
    logits, target = torch.randn(ROWS, COLUMNS), torch.randint(0, COLUMNS, (ROWS,))
    return lambda: F.cross_entropy(logits, target)


def _product(m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> Callable[[], Program]:
    def make() -> Program:
        a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
        return lambda: a @ b

    return make


def _batched() -> Program:
    a, b = torch.randn(64, 64, 64), torch.randn(64, 64, 64)
    return lambda: a @ b


def _linear_gelu() -> Program:
    x, weight, bias = torch.randn(512, 512), torch.randn(2048, 512), torch.randn(2048)
    step = torch.compile(lambda: F.gelu(F.linear(x, weight, bias)))
    return lambda: step()


def _convolution(kernel: int, channels: int, size: int) -> Callable[[], Program]:
    def make() -> Program:
        x = torch.randn(4, channels, size, size)
        weight = torch.randn(channels, channels, kernel, kernel)
        return lambda: F.conv2d(x, weight, padding=kernel // 2)

    return make


def _attention() -> Program:
    q, k, v = (torch.randn(2, 8, 512, 64) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _optimizer(kind: str) -> Callable[[], Program]:
    def make() -> Program:
        weight = torch.nn.Parameter(torch.randn(ROWS, COLUMNS))
        weight.grad = torch.randn(ROWS, COLUMNS)
        return getattr(torch.optim, kind)([weight], lr=1e-3).step

    return make


MISSED = 0.8  # a row that reaches less of its bound than this misses it
BIG = (ROWS, COLUMNS)
# Why rows stay below their bound, where they do.
WHY = {
    "add, 32 MB": "two streams are read, the bound has one",
    "add, 64 KB": "too small to be shared between threads",
    "add in place, 32 MB": "two streams are read, the bound has one",
    "add bfloat16, 16 MB": "two streams are read, the bound has one",
    "add float64, 64 MB": "two streams are read, the bound has one",
    "gelu": "erf: dozens of operations, counted as one",
    "gelu, 64 KB": "erf: dozens of operations, counted as one",
    "sum of columns": "32 sums a column, the promised order, pass the first cache for every row",
    "argmax of rows": "compares and selects values and places",
    "softmax of rows": "exp: dozens of operations, counted as one",
    "layer norm": "mean and variance before the first result: three passes over a row in cache",
    "rms norm": "the sum of squares before the first result: two passes over a row in cache",
    "cumsum of rows": "sums of floats are one chain a row, an addition waits for the last",
    "transpose copy": "a line of the result comes from 16 lines of the operand",
    "embedding": "rows at random places: nothing to prefetch",
    "cross entropy": "exp: dozens of operations, counted as one",
    "matmul 256": "few tiles, not even for two threads",
    "matmul 64 x 64, 64 times": "64 rows are four panels of 14 and a rest",
    "matmul 1 x 4096 x 4096": "one pass over B at the speed of one stream a core",
    "conv2d 1 x 1, 256 channels": "14 x 14 places are six slabs and a rest",
    "attention, causal": "exp between the products, and tiles that the diagonal cuts",
    "SGD step, 8 M": "several streams at once, the bound has one",
    "AdamW step, 8 M": "seven streams at once, the bound has one",
}
CASES = [
    Case("add, 32 MB", _on(BIG, lambda a, b: a + b, 2)),
    Case("add, 64 KB", _on((128, 128), lambda a, b: a + b, 2)),
    Case("add in place, 32 MB", _on(BIG, lambda a, b: a.add_(b), 2), pattern="update"),
    Case("add bfloat16, 16 MB", _on(BIG, lambda a, b: a + b, 2, dtype=torch.bfloat16)),
    Case("add float64, 64 MB", _on(BIG, lambda a, b: a + b, 2, dtype=torch.float64), "f64"),
    Case("exp", _on(BIG, torch.exp)),
    Case("gelu", _on(BIG, F.gelu)),
    Case("gelu, 64 KB", _on((128, 128), F.gelu)),
    Case("sum", _on(BIG, torch.sum), pattern="read"),
    Case("sum of rows", _on(BIG, lambda a: a.sum(1)), pattern="read"),
    Case("sum of columns", _on(BIG, lambda a: a.sum(0)), pattern="read"),
    Case("argmax of rows", _on(BIG, lambda a: a.argmax(1)), pattern="read"),
    Case("softmax of rows", _on(BIG, lambda a: F.softmax(a, -1))),
    Case("layer norm", _norm(lambda x, s, t: F.layer_norm(x, (COLUMNS,), s, t))),
    Case("rms norm", _norm(lambda x, s, t: F.rms_norm(x, (COLUMNS,), s))),
    Case("cumsum of rows", _on(BIG, lambda a: a.cumsum(1))),
    Case("transpose copy", _on(BIG, lambda a: a.t().contiguous())),
    Case("embedding", _embedding),
    Case("cross entropy", _cross_entropy, pattern="read"),
    Case("matmul 256", _product(256, 256, 256)),
    Case("matmul 1024", _product(1024, 1024, 1024)),
    Case("matmul 64 x 64, 64 times", _batched),
    Case("matmul 1 x 4096 x 4096", _product(1, 4096, 4096), pattern="read"),
    Case("matmul 512 bfloat16", _product(512, 512, 512, torch.bfloat16), "bf16"),
    Case("matmul 512 float64", _product(512, 512, 512, torch.float64), "f64"),
    Case("linear + gelu, compiled", _linear_gelu),
    Case("conv2d 3 x 3, 64 channels", _convolution(3, 64, 56)),
    Case("conv2d 1 x 1, 256 channels", _convolution(1, 256, 14)),
    Case("attention, causal", _attention),
    Case("SGD step, 8 M", _optimizer("SGD"), pattern="update"),
    Case("AdamW step, 8 M", _optimizer("AdamW"), pattern="update"),
]


# ------------------------------------------------------------------------------- measuring


def measure_machines(machines: list[Machine]) -> None:
    """Improves the ceilings of every number of threads."""
    library = roofline_peaks.load()
    for machine in machines * ROUNDS:
        machine.improve(
            roofline_peaks.peaks(library, machine.threads),
            roofline_peaks.bandwidths(library, machine.threads),
        )


def measure(case: Case, threads: int) -> Row:
    """Runs a program under the profiler; the row still lacks its bound."""
    program = case.make()
    for _ in range(3):
        program()
    best: Row | None = None
    spent, calls = 0.0, 0
    while spent < SECONDS or calls < CALLS:
        with profile(with_flops=True) as prof:
            program()
        launches = [e for e in prof.events() if e.kind == EventKind.LAUNCH]
        seconds = sum(e.cpu_time_total for e in launches) / 1e6
        flops, nbytes = (float(sum(getattr(e, n) for e in launches)) for n in ("flops", "bytes"))
        if best is None or seconds < best.seconds:
            best = Row(case.name, threads, seconds, flops, nbytes, len(launches))
        spent += seconds
        calls += 1
    assert best is not None
    return best


def measure_all(machines: list[Machine], known_rows: list[Row]) -> list[Row]:
    """The table: per number of threads and program the best of all passes and of what is known."""
    best = {(row.threads, row.name): row for row in known_rows}
    before = torch.get_num_threads()
    for _ in range(PASSES):
        measure_machines(machines)
        for machine in machines:
            torch.set_num_threads(machine.threads)
            torch.manual_seed(0)
            for case in CASES:
                row = measure(case, machine.threads)
                known = best.setdefault((row.threads, row.name), row)
                if row.seconds < known.seconds:
                    best[row.threads, row.name] = row
    torch.set_num_threads(before)
    return [bounded(best[m.threads, case.name], case, m) for m in machines for case in CASES]


def level_of(nbytes: float, threads: int) -> str:
    """Where data of this size lies when it is used again and again."""
    sizes = roofline_peaks.cache_sizes()
    for level, share in (("L1", threads), ("L2", threads), ("L3", 1)):
        if nbytes <= 0.9 * sizes[level] * share:
            return level
    return "DRAM"


def bounded(row: Row, case: Case, machine: Machine) -> Row:
    """The row with its bound, and how much of it is reached."""
    level = level_of(row.nbytes, machine.threads)
    memory = row.nbytes / machine.memory[level][case.pattern]
    dtype = case.dtype if case.dtype in machine.peaks else "f32"
    units = row.flops / machine.peaks[dtype]
    row.bound = f"{level} {case.pattern}" if memory > units else f"{dtype} units"
    row.fraction = max(memory, units) / row.seconds
    return row


# ------------------------------------------------------------------------------- showing


def table_of(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| program | threads | time | GFLOP/s | GB/s | flop/byte | bound | reached | why |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        why = WHY.get(row.name, "") if row.fraction < MISSED else ""
        lines.append(
            f"| {row.name} | {row.threads} | {duration(row.seconds)} "
            f"| {row.flops / row.seconds / 1e9:.1f} | {row.nbytes / row.seconds / 1e9:.1f} "
            f"| {row.intensity:.2f} | {row.bound} | {row.fraction:.0%} | {why} |"
        )
    return "\n".join(lines)


def machine_table(machines: list[Machine]) -> str:
    """The ceilings as Markdown."""
    names = list(machines[0].peaks)
    levels = list(machines[0].memory)
    patterns = ", ".join(roofline_peaks.PATTERNS)
    lines = [
        "| threads | " + " | ".join(f"{name} Gop/s" for name in names) + " | "
        + " | ".join(f"{level} GB/s ({patterns})" for level in levels) + " |",
        "| --- |" + " --- |" * (len(names) + len(levels)),
    ]  # fmt: skip
    for machine in machines:
        cells = [f"{machine.peaks[name] / 1e9:.0f}" for name in names]
        for level in levels:
            rates = machine.memory[level]
            cells.append(", ".join(f"{rates[p] / 1e9:.0f}" for p in roofline_peaks.PATTERNS))
        lines.append(f"| {machine.threads} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: list[Row], machines: list[Machine], path: Path) -> bool:
    """The picture; False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(machines), figsize=(7 * len(machines), 6), sharey=True)
    for axes, machine in zip(panels, machines, strict=True):
        _draw_roof(axes, machine)
        shown = [r for r in rows if r.threads == machine.threads and r.flops]
        for row in shown:
            style = {"marker": "s" if "units" in row.bound else "o", "markersize": 5}
            rate = row.flops / row.seconds / 1e9
            axes.plot(row.intensity, rate, **style, color="tab:red")
            axes.annotate(row.name, (row.intensity, rate), (4, 3), textcoords="offset points",
                          fontsize=6)  # fmt: skip
        axes.set_title(f"{machine.threads} thread(s)")
        axes.set_xlabel("operations per byte")
    panels[0].set_ylabel("GFLOP/s")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _draw_roof(axes: Any, machine: Machine) -> None:
    """The ceilings: slanted ones of memories, level ones of units."""
    ends = (2.0**-6, 2.0**10)
    top = machine.peaks["f32"]
    for level, rates in machine.memory.items():
        rate = max(rates.values())
        corner = min(top / rate, ends[1])
        axes.plot((ends[0], corner), (ends[0] * rate / 1e9, corner * rate / 1e9), color="0.6")
        axes.annotate(level, (ends[0] * 1.2, ends[0] * 1.3 * rate / 1e9), fontsize=8, color="0.4")
    for dtype in ("f32", "f64"):
        rate = machine.peaks[dtype] / 1e9
        axes.plot(ends, (rate, rate), color="tab:blue", linestyle="-" if dtype == "f32" else ":")
        axes.annotate(f"{dtype} multiply-adds", (ends[0], rate * 1.05), fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.grid(True, which="major", color="0.92")


def about() -> dict[str, object]:
    """The machine and the versions; `load`: how many programs want to run, ours included."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "python": platform.python_version(),
        "flambeau": getattr(torch, "__version__", "development"),
        "processor": model,
        "target": targets.current().name,
        "caches": roofline_peaks.cache_sizes(),
        "load": round(os.getloadavg()[0], 1),
    }


def publish(
    rows: list[Row], machines: list[Machine], facts: dict[str, object], folder: Path = RESULTS
) -> None:
    """Prints and writes everything."""
    text = (
        "# roofline\n\n" + ", ".join(f"{k} {v}" for k, v in facts.items())
        + f"\n\n## This machine\n\n{machine_table(machines)}\n\n## Programs\n\n{table_of(rows)}\n"
    )  # fmt: skip
    print(text)
    folder.mkdir(exist_ok=True)
    (folder / "roofline.md").write_text(text)
    data = {
        "about": facts,
        "machines": [asdict(machine) for machine in machines],
        "rows": [asdict(row) for row in rows],
    }
    (folder / "roofline.json").write_text(json.dumps(data, indent=1))
    if not draw(rows, machines, folder / "roofline.png"):
        print("no picture: pip install matplotlib", file=sys.stderr)


def earlier(facts: dict[str, object], folder: Path = RESULTS) -> tuple[list[Machine], list[Row]]:
    """What was measured before on this processor; nothing where that was another one."""
    path = folder / "roofline.json"
    data = json.loads(path.read_text()) if path.exists() else {}
    same = all(data.get("about", {}).get(key) == facts[key] for key in ("processor", "target"))
    if not same:
        return [Machine(threads) for threads in THREADS], []
    return [Machine(**m) for m in data["machines"]], [Row(**row) for row in data["rows"]]


def main() -> None:
    """Measures the machine and the table; with `--more` results only get better."""
    facts = about()
    machines, rows = [Machine(threads) for threads in THREADS], []
    if "--more" in sys.argv[1:]:
        machines, rows = earlier(facts)
    rows = measure_all(machines, rows)
    publish(rows, machines, facts)


if __name__ == "__main__":
    main()
