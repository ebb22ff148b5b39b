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
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from flambeau.compiler import cache, machine, shipped, stored, targets
from flambeau.compiler.shipped import GROUP, NUMBER, Header, Names
from flambeau.compiler.targets import Target
from flambeau.ir import kernel_bytes
from tools import workload

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


def _for_one_target(plan: stored.StoredPlan) -> bool:
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
    kernels: dict[bytes, int] = {}
    digests: dict[str, int] = {}
    first = -(-len(entries) // GROUP) * GROUP  # the number of the first kernel
    plans = [_with_numbers(kinds[kind][text], kernels, first, digests) for _, text, kind in entries]
    groups = [*_compressed(plans), *_compressed(list(kernels))]
    names = {
        kind: _names((text, n) for n, (_, text, own) in enumerate(entries) if own == kind)
        for kind in kinds
    }
    header = Header(
        shipped.sources_digest(),
        tuple(machine.current()),
        tuple(accumulate(map(len, groups), initial=0)),
        names.pop(""),
        names,
        bytes.fromhex("".join(digests)),
    )
    head = marshal.dumps(tuple(header))
    cache.write(file, b"".join([len(head).to_bytes(shipped.LENGTH, "little"), head, *groups]))


def _with_numbers(
    content: bytes, kernels: dict[bytes, int], first: int, digests: dict[str, int]
) -> bytes:
    """The plans of a name with numbers in place of their kernels, and of the kernels' digests."""
    plans = [stored.StoredPlan.unpacked(plan) for plan in marshal.loads(content)]
    return stored.written(
        plan._replace(
            contents=[kernels.setdefault(k, first + len(kernels)) for k in plan.contents],
            kernels=[(*k[:3], digests.setdefault(k[3], len(digests))) for k in plan.kernels],
        )
        for plan in plans
    )


def _compressed(contents: list[bytes]) -> Iterator[bytes]:
    for first in range(0, len(contents), GROUP):
        yield zlib.compress(marshal.dumps(contents[first : first + GROUP]), 9)


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
