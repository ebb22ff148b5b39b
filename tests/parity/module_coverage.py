"""Which of PyTorch's public names exist, by module, and which third-party files they suffice for.

A section of docs/coverage.md. `names.json` holds the public names of PyTorch 2.13 by group and
module, and the names that each file of 16 open-source projects uses. A name counts as there if its
module can be imported and has it. `python -m tests.parity.module_coverage` prints the section,
`--write` puts it into the page, `--missing` lists what third-party files lack, most used first.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.parity import page_sections

DATA = Path(__file__).with_name("names.json")
PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
TITLE = "## Public names by module"
OUTSIDE = (
    "distributed", "export", "onnx", "quantiz", "ao.", "cuda (", "xpu", "mps", "mtia",
    "nn.quantized", "_dynamo", "_inductor", "_functorch", "_higher_order_ops", "_prims", "_refs",
    "_decomp", "_subclasses",
)  # fmt: skip
"""Groups of distributed training, export, quantization, hardware and the compiler's inside."""


@functools.cache
def holder(module: str) -> Any:
    """The module or class of a dotted name of PyTorch's, or None."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(["flambeau", *parts[1:end]]))
        except ImportError:
            continue
        for part in parts[end:]:
            try:
                value = getattr(value, part, None)
            except ImportError:  # a module of a package that is not installed, or not written
                return None
        return value
    return None


def exists(module: str, name: str) -> bool:
    """Whether a module has a name: an attribute, or a submodule that can be imported."""
    module = module.split(" ")[0]  # "torch.Tensor (public)"
    value = holder(module)
    if value is None:
        return False
    try:
        return hasattr(value, name) or holder(f"{module}.{name}") is not None
    except Exception:  # noqa: BLE001 - an accessor that works on instances only
        return True


def group_counts(groups: dict[str, dict[str, list[str]]]) -> list[tuple[str, int, int]]:
    """(group, names there, names) in the data's order."""
    counts = []
    for group, modules in groups.items():
        names = [(module, name) for module, found in modules.items() for name in found]
        there = sum(exists(module, name) for module, name in names)
        counts.append((group, there, len(names)))
    return counts


def is_outside(group: str) -> bool:
    """Whether a group is left to other work: distributed, export, quantization, hardware."""
    return group.startswith(OUTSIDE)


def used_names(data: dict[str, Any]) -> list[bool]:
    """Whether each name that third-party files use exists."""
    present = []
    for name in data["used"]:
        full = name if name.startswith("torch") else f"torch.{name}"
        module, _, last = full.rpartition(".")
        present.append(full == "torch" or exists(module, last))
    return present


def file_counts(data: dict[str, Any], present: list[bool]) -> dict[str, tuple[int, int, int]]:
    """By project: files, files of which all names exist, the same leaving distributed aside."""
    apart = [present[i] or "distributed" in name for i, name in enumerate(data["used"])]
    counts = {}
    for project, files in data["files"].items():
        complete = sum(all(present[i] for i in names) for names in files)
        aside = sum(all(apart[i] for i in names) for names in files)
        counts[project] = (len(files), complete, aside)
    return counts


def missing_uses(data: dict[str, Any], present: list[bool]) -> Counter[str]:
    """Names that do not exist, by the number of files that use them."""
    uses: Counter[str] = Counter()
    for files in data["files"].values():
        for names in files:
            uses.update(data["used"][i] for i in names if not present[i])
    return uses


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}"


def section() -> list[str]:
    """The page's lines."""
    data = json.loads(DATA.read_text())
    counts = group_counts(data["groups"])
    inside = [entry for entry in counts if not is_outside(entry[0])]
    chosen = (("all groups", counts), ("without those marked *", inside))
    totals = [(title, sum(e[1] for e in rows), sum(e[2] for e in rows)) for title, rows in chosen]
    lines = [TITLE, "", *_text(), "", "| group | exist | of | % |", "| --- | --: | --: | --: |"]
    for group, there, names in counts:
        mark = " *" if is_outside(group) else ""
        lines.append(f"| {group}{mark} | {there} | {names} | {_share(there, names)} |")
    lines += [f"| **{t}** | **{h}** | **{n}** | **{_share(h, n)}** |" for t, h, n in totals]
    return [*lines, "", *_files_table(data)]


def _text() -> list[str]:
    return [
        "Computed by `python -m tests.parity.module_coverage --write` from "
        "`tests/parity/names.json`; do not edit. A name",
        "counts if its module can be imported and has it. Groups marked * are distributed training,"
        " export, ONNX, quantization,",
        "hardware, and the inside of PyTorch's compiler. The package `tensorboard` is installed.",
    ]


def _files_table(data: dict[str, Any]) -> list[str]:
    counts = file_counts(data, used_names(data))
    lines = ["Files of third-party projects all of whose PyTorch names exist:", ""]
    lines += ["| project | files | complete | % | complete but for `torch.distributed` | % |"]
    lines += ["| --- | --: | --: | --: | --: | --: |"]
    rows = [*counts.items()]
    sums = tuple(map(sum, zip(*counts.values(), strict=True)))
    for project, (files, complete, aside) in [*rows, ("**all**", sums)]:
        shares = f"{complete} | {_share(complete, files)} | {aside} | {_share(aside, files)}"
        lines.append(f"| {project} | {files} | {shares} |")
    return lines


def write() -> None:
    """Puts the section into the page."""
    PAGE.write_text(page_sections.replaced(PAGE.read_text(), section()))


def main() -> None:
    """Prints or writes the section."""
    warnings.simplefilter("ignore")
    if "--missing" in sys.argv:
        data = json.loads(DATA.read_text())
        for name, files in missing_uses(data, used_names(data)).most_common():
            print(f"{files:5} {name}")
    elif "--write" in sys.argv:
        write()
    else:
        print("\n".join(section()))


if __name__ == "__main__":
    main()
