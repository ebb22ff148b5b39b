"""Plans the calls that a new process usually makes first, and writes the plans of the package.

    python -m tools.ship_plans [--file F] [--jobs N] [--targets N] [--unless-current]

The calls of `workload` run on the baseline, in processes of their own, for the best N targets that
this machine can run (default: 1). Their plans go to one file (`compiler/shipped.py`). Those without
templates are the same for all targets: only the first one plans them. Needs the templates' variants
of `flambeau/_kernels`. The plans depend on the sources alone; a package without them works as well.
"""

from __future__ import annotations

import argparse
import marshal
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from flambeau.compiler import cache, machine, shipped, stored, targets
from flambeau.compiler.shipped import NUMBER, Header, Names, Section
from flambeau.compiler.stored import StoredPlan
from flambeau.compiler.targets import Target
from flambeau.ir import kernel_bytes
from flambeau.ir.plan import BlockProgram, packed
from tools import workload
from tools.dictionaries import compress

# Contents that are compressed together, of plans, block programs and kernels: a first call reads
# one group of each of the first two, some 0.1 ms.
GROUPS = (14, 6, 64)
T = TypeVar("T")
Numbers = dict[Any, Any]  # of block programs; None: None
Plans = dict[str, tuple[bytes, bool]]  # by the name's text: content, whether for every target


def plan_calls(calls: Iterable[tuple[str, str]]) -> Plans:
    """The plans that calls of `workload` make in this process."""
    warnings.simplefilter("ignore")
    with stored.collecting() as collected:
        for call in calls:
            workload.call(*call)
    plans: Plans = {}
    for text, kept in collected.items():
        run = [plan for plan in kept if plan.execution is not None]
        if run:
            plans[text] = stored.written(run), not any(map(_for_one_target, run))
    return plans


def _for_one_target(plan: StoredPlan) -> bool:
    """Whether a plan has machine code, or will have templates' for the present target."""
    if plan.baseline is None:
        return bool(plan.kernels)
    compiled = any(launch.kernel is not None for launch in plan.baseline.launches)
    return compiled or any(kernel_bytes.loads(x).form == "template" for x in plan.contents)


def ship(file: Path, jobs: int, chosen: Sequence[Target], count: int | None = None) -> int:
    """Writes the plans.

    Args:
        file: where.
        jobs: processes that plan side by side.
        chosen: targets, which this machine can run.
        count: of calls; None: all.

    Returns:
        How many plans there are, those of one name counted as one.
    """
    everywhere: dict[str, bytes] = {}
    single: dict[str, dict[str, bytes]] = {}
    file.unlink(missing_ok=True)  # what it has would not be planned again
    for target in chosen:
        plans = _planned(target.name, jobs, count)
        everywhere |= {t: content for t, (content, every) in plans.items() if every}
        single[target.name] = {t: content for t, (content, every) in plans.items() if not every}
        write(file, everywhere, single)
    return len(everywhere) + sum(map(len, single.values()))


def _planned(target: str, jobs: int, count: int | None) -> Plans:
    """The plans of all calls for a target; not those that the package has already."""
    plans: Plans = {}
    with tempfile.TemporaryDirectory(prefix="flambeau") as folder:
        environment = os.environ | {
            "FLAMBEAU_CACHE_DIR": f"{folder}/cache",
            "FLAMBEAU_COMPILER": "never",
            "FLAMBEAU_NUM_THREADS": "1",
            "FLAMBEAU_TARGET": target,
            "FLAMBEAU_TIER": "compiled",
            "FLAMBEAU_VERIFY": "0",
        }
        outputs = [f"{folder}/{part}" for part in range(jobs)]
        children = []
        for part, output in enumerate(outputs):
            words = [sys.executable, "-m", "tools.ship_plans", "--part", str(part)]
            words += ["--jobs", str(jobs), "--file", output]
            words += [] if count is None else ["--count", str(count)]
            children.append(subprocess.Popen(words, env=environment))
        failed = [child.args for child in children if child.wait()]
        if failed:
            raise RuntimeError(f"[ship] a child failed: {failed[0]!r}\nhint: run it alone")
        for output in outputs:
            plans |= marshal.loads(Path(output).read_bytes())
    return plans


def write(file: Path, everywhere: dict[str, bytes], single: dict[str, dict[str, bytes]]) -> None:
    """Writes the file of plans: `everywhere` those of all targets, `single` those of one. A plan
    stands beside the same one of other targets, most of which it equals."""
    kinds = {"": everywhere, **single}
    entries = sorted((kind != "", text, kind) for kind, plans in kinds.items() for text in plans)
    plans = [_unpacked(kinds[kind][text]) for _, text, kind in entries]
    every = [plan for named in plans for plan in named]
    programs = _numbered(len(plans), (p for plan in every for p in _programs(plan)))
    kernels = _numbered(len(plans) + len(programs), (k for plan in every for k in plan.contents))
    digests = _numbered(0, (kernel[3] for plan in every for kernel in plan.kernels))
    numbers: Numbers = {None: None, **programs}
    sections, groups = _sections(
        [stored.written(_with_numbers(p, numbers, kernels, digests) for p in n) for n in plans],
        [marshal.dumps(tuple(program), stored.FORMAT) for program in programs],
        list(kernels),
    )
    names = {
        kind: _names((text, n) for n, (_, text, own) in enumerate(entries) if own == kind)
        for kind in kinds
    }
    header = Header(
        shipped.sources_digest(),
        tuple(machine.current()),
        sections,
        names.pop(""),
        names,
        bytes.fromhex("".join(digests)),
    )
    head = marshal.dumps(packed(header))
    cache.write(file, b"".join([len(head).to_bytes(shipped.LENGTH, "little"), head, *groups]))


def _sections(*kinds: list[bytes]) -> tuple[tuple[Section, ...], list[bytes]]:
    """The sections of contents of several kinds, and their groups."""
    sections: list[Section] = []
    groups: list[bytes] = []
    first = 0
    for size, contents in zip(GROUPS, kinds):
        parts = (contents[start : start + size] for start in range(0, len(contents), size))
        dictionary, compressed = compress([marshal.dumps(part) for part in parts])
        bounds = accumulate(map(len, compressed), initial=sum(map(len, groups)))
        sections.append(Section(first, size, dictionary, tuple(bounds)))
        groups += compressed
        first += len(contents)
    return tuple(sections), groups


def _unpacked(content: bytes) -> list[StoredPlan]:
    return [StoredPlan.unpacked(plan) for plan in marshal.loads(content)]


def _programs(plan: StoredPlan) -> list[BlockProgram]:
    launches = () if plan.baseline is None else plan.baseline.launches
    return [launch.program for launch in launches if launch.program is not None]


def _numbered(first: int, values: Iterable[T]) -> dict[T, int]:
    """The numbers of different values, in their order."""
    return {value: number for number, value in enumerate(dict.fromkeys(values), first)}


def _with_numbers(
    plan: StoredPlan,
    programs: Numbers,
    kernels: dict[bytes, int],
    digests: dict[str, int],
) -> StoredPlan:
    """A plan with numbers for its kernels, their digests and its block programs, and with the
    changes of its execution to its baseline."""
    plan = plan._replace(
        contents=[kernels[content] for content in plan.contents],
        kernels=[(*kernel[:3], digests[kernel[3]]) for kernel in plan.kernels],
    )
    if plan.baseline is None:
        return plan
    numbers: Iterable[Any] = [
        p and programs[p] for p in (x.program for x in plan.baseline.launches)
    ]
    launches = [x._replace(program=n) for x, n in zip(plan.baseline.launches, numbers)]
    baseline = packed(plan.baseline._replace(launches=launches))
    return plan._replace(baseline=baseline, execution=_changes(baseline, plan.execution))


def _changes(base: object, other: Any) -> Any:
    """The difference of two packed records, which `changed` adds: by position what `other` has."""
    if not (isinstance(base, tuple) and isinstance(other, tuple) and len(base) == len(other)):
        return other
    pairs = enumerate(zip(base, other))
    return {i: _changes(a, b) for i, (a, b) in pairs if repr(a) != repr(b)}  # 1, 1.0, True, -0.0


def _names(places: Iterable[tuple[str, int]]) -> Names:
    digests = [
        (shipped.digest_of(text), number.to_bytes(NUMBER, "little")) for text, number in places
    ]
    return b"".join(digest for digest, _ in digests), b"".join(number for _, number in digests)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Write the plans that the package brings.")
    parser.add_argument("--file", type=Path, default=shipped.FILE)
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--targets", type=int, default=1, help="how many, the best first")
    parser.add_argument("--unless-current", action="store_true", help="not if nothing has changed")
    parser.add_argument("--count", type=int, help="of calls (default: all)")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        calls = workload.calls()[: options.count][options.part :: options.jobs]
        options.file.write_bytes(marshal.dumps(plan_calls(calls)))
        return
    if options.unless_current and shipped.sources_of(options.file) == shipped.sources_digest():
        return
    print("[ship] planning what a new process usually asks for", flush=True)
    began = time.monotonic()
    chosen = targets.of_this_machine()[: options.targets]
    total = ship(options.file, options.jobs, chosen, options.count)
    size, took = options.file.stat().st_size / 1e6, time.monotonic() - began
    print(f"[ship] {total} plans, {size:.1f} MB, in {options.file}, {took:.1f} s")


if __name__ == "__main__":
    main()
