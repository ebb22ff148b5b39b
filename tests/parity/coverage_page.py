"""docs/coverage.md: what of PyTorch's operator database passes, and why the rest does not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from tests.parity import entry_reasons, name_coverage

Key = tuple[str, str, str]
Known = dict[Key, list[dict[str, Any]]]
ORDER = (
    "forward", "strides", "gradient", "double gradient", "forward mode", "method", "inplace",
    "operator", "alias", "out", "errors",
)  # fmt: skip
HEAD = """# Coverage: PyTorch's operator database through Flambeau

Computed by `python -m tests.parity.operator_database` in the parity environment (PyTorch 2.13); do
not edit. Each entry of `op_db` and of the foreach families runs its own sample inputs in both
libraries, called under PyTorch's name. An entry passes a check in a dtype when **every** sample
agrees: number, dtype, shape and values of the results within {tolerance}; strides, derivatives,
`out=`, in-place, method and operator forms, aliases and exceptions are checks of their own.
A sample that PyTorch itself refuses is not counted, nor is an entry of which all are.

The last column also counts entries of which every differing sample is an answer as good as
PyTorch's: its result is no farther from the same call in float64 than PyTorch's own is (the rule
by which PyTorch's tests judge a second implementation), or its index names another of several equal
elements where the documentation leaves open which. They count as failing everywhere else.
"""
TOLERANCE = (
    "2e-5 (float32, complex64), 1e-9 (float64, complex128), 4e-3 (float16), 3.2e-2 (bfloat16) or "
    "what PyTorch's own tests of the entry allow"
)


def records(known: Known) -> Iterable[dict[str, Any]]:
    """All records with at least one sample."""
    for found in known.values():
        for record in found:
            if record["samples"]:
                yield record


def category(entry: str) -> str:
    """The family of an entry: its namespace."""
    for prefix in ("nn.functional", "linalg", "fft", "special", "masked", "signal.windows"):
        if entry.startswith(prefix + "."):
            return prefix
    return "foreach" if entry.startswith("_foreach") else "torch and Tensor"


def totals(known: Known) -> list[tuple[str, str, int, int, int]]:
    """(check, dtype, entries that pass, with as good answers, entries) in the page's order."""
    passed: Counter[tuple[str, str]] = Counter()
    as_good: Counter[tuple[str, str]] = Counter()
    run: Counter[tuple[str, str]] = Counter()
    for record in records(known):
        key = (record["check"], record["dtype"])
        run[key] += 1
        passed[key] += not record["failed"]
        as_good[key] += record["failed"] == record.get("excused", 0)
    keys = sorted(run, key=lambda key: (ORDER.index(key[0]) if key[0] in ORDER else 99, key[1]))
    return [(*key, passed[key], as_good[key], run[key]) for key in keys]


def summary(known: Known) -> str:
    """The totals as lines of text."""
    return "\n".join(
        f"{check:16} {dtype:10} {passed:4} of {run:4} entries pass ({100 * passed / run:.1f} %)"
        for check, dtype, passed, _, run in totals(known)
    )


def _totals_table(known: Known) -> list[str]:
    lines = ["| check | dtype | entries pass | of | % | or as good, % |"]
    lines.append("| --- | --- | --: | --: | --: | --: |")
    for check, dtype, passed, as_good, run in totals(known):
        shares = f"{100 * passed / run:.1f} | {100 * as_good / run:.1f}"
        lines.append(f"| {check} | {dtype} | {passed} | {run} | {shares} |")
    return lines


def _whole(known: Known) -> dict[str, bool]:
    whole: dict[str, bool] = {}
    for record in records(known):
        whole[record["entry"]] = whole.get(record["entry"], True) and not record["failed"]
    return whole


def _families_table(known: Known) -> list[str]:
    whole = _whole(known)
    simple: dict[str, bool] = {}
    for record in records(known):
        if record["check"] == "forward" and record["dtype"] == "float32":
            simple[record["entry"]] = not record["failed"]
    rows = ["| family | float32 forward | of | every check | of |"]
    rows.append("| --- | --: | --: | --: | --: |")
    families = sorted({category(entry) for entry in whole})
    for name in [*families, "all"]:
        forward = [ok for entry, ok in simple.items() if name in (category(entry), "all")]
        every = [ok for entry, ok in whole.items() if name in (category(entry), "all")]
        rows.append(f"| {name} | {sum(forward)} | {len(forward)} | {sum(every)} | {len(every)} |")
    return rows


def _clean(reason: str) -> str:
    return reason.replace("|", "/").replace("`", "'").replace("\n", " ")[:160]


def _failures(known: Known) -> list[str]:
    failing: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for record in records(known):
        if record["failed"]:
            good = record.get("excused", 0)
            place = f"{record['dtype']} {record['failed']}/{record['samples']}"
            place += f", {'all' if good == record['failed'] else good} as good" if good else ""
            key = (record["check"], _clean(record["reason"]))
            failing[record["entry"]][key].append(place)
    lines = []
    for entry in sorted(failing):
        lines.append(f"- **{entry}**: {entry_reasons.reason(entry)}.")
        by_check: dict[str, list[tuple[str, list[str]]]] = defaultdict(list)
        for (check, reason), places in failing[entry].items():
            by_check[check].append((reason, places))
        for check, found in by_check.items():
            places = "; ".join(place for _, some in found for place in some)
            lines.append(f"  - {check} ({places}), first `{found[0][0]}`")
    return lines


def _sampling(known: Known) -> str:
    """Of which checks every sample was run, and how many of the others; empty if all were."""
    limits: dict[str, set[int]] = defaultdict(set)
    for record in records(known):
        limits[f"{record['check']} ({record['dtype']})"].add(record.get("limit", 0))
    whole = sorted(check for check, found in limits.items() if found == {0})
    most = max((max(found) for found in limits.values()), default=0)
    if not most:
        return ""
    others = f"at most {most} samples of an entry, spread over its list"
    if not whole:
        return f"This run took {others}.\n"
    return f"Every sample was run of: {', '.join(whole)}; else {others}.\n"


def page(names: list[str], known: Known) -> str:
    """The whole page."""
    whole = _whole(known)
    passing = sorted(entry for entry, ok in whole.items() if ok)
    silent = sorted({entry for entry, _, _ in known} - whole.keys())
    untested = [name for name in names if all(name != key[0] for key in known)]
    parts = [HEAD.format(tolerance=TOLERANCE)]
    parts += filter(None, [_sampling(known)])
    parts.append(f"**{len(passing)} of {len(whole)} entries pass every check that was run.**\n")
    parts += ["## Totals\n", *_totals_table(known), "", "## Families\n", *_families_table(known)]
    parts += ["", *name_coverage.section()]
    parts += ["", "## Entries with a failing check: why, and the first difference\n"]
    parts += _failures(known)
    parts += ["", "## Entries that pass every check\n", ", ".join(f"`{n}`" for n in passing)]
    if silent:
        parts += ["", "## Not counted: PyTorch itself refuses every sample on the CPU\n"]
        parts += [", ".join(f"`{n}`" for n in silent)]
    if untested:
        parts += ["", "## Not run\n", ", ".join(f"`{n}`" for n in untested)]
    return "\n".join(parts) + "\n"
