"""`python -m tests.libraries.own_tests`: libraries' own tests under PyTorch and under Flambeau.

    python -m tests.libraries.own_tests --reference PYTHON --ours PYTHON [LIBRARY ...]

Both Pythons have the libraries, pytest, pytest-timeout and flaky, the first PyTorch, too. Tests lie
in the installed package, or in the source distribution of the installed version, which pip fetches
into build/library_tests. Results lie there as JUnit XML; `--page` computes docs/library_tests.md
from them without running. Large suites are sampled: every n-th test (`every_nth.py`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "library_tests.md"
HEAD = """# Libraries' own tests under the alias

Computed by `python -m tests.libraries.own_tests --reference PYTHON --ours PYTHON`; do not edit.
Versions: `tests/libraries/requirements.txt`.

The tests that libraries ship, in their package or their source distribution, run offline by pytest,
unmodified: once under PyTorch 2.13, once by `python -m flambeau -m pytest`. Of a large suite every
n-th test runs, in the order of collection. A test that PyTorch does not pass (it fails, or is
skipped for a missing package or device) is not counted in the last column.
"""


@dataclass(frozen=True)
class Suite:
    """The tests of a library: of its package, or of its source distribution."""

    library: str
    arguments: tuple[str, ...]
    step: int = 1
    distribution: str = ""  # the name in requirements.txt; empty: the tests are in the package
    environment: dict[str, str] = field(default_factory=dict)


_BASELINES = tuple(
    f"tests/test_{name}.py"
    for name in ("buffers", "distributions", "gae", "preprocessing", "save_load", "spaces")
)
# These load models from a hub: they do not run offline.
_ONLINE = ("--ignore-glob=*test_hf.py", "--ignore-glob=*llm*")
SUITES = (
    Suite("einops", ("--pyargs", "einops.tests"), 1, "", {"EINOPS_TEST_BACKENDS": "numpy,torch"}),
    Suite("opt_einsum", ("--pyargs", "opt_einsum.tests", "-k", "torch")),
    Suite("skorch", ("--pyargs", "skorch.tests", *_ONLINE), 11),
    Suite("linear_operator", ("test",), 41, "linear_operator"),
    Suite("gpytorch", ("test", "--ignore=test/examples"), 11, "gpytorch"),
    Suite("stable_baselines3", _BASELINES, 5, "stable_baselines3"),
)


_WHERE = re.compile(r'File "\S*/')  # what depends on where a library is installed


def fetch(python: str, folder: Path, distribution: str) -> Path:
    """The unpacked source distribution of the version that requirements.txt names."""
    pattern = rf"^{re.escape(distribution)}==(\S+)$"
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8")
    (version,) = re.findall(pattern, lines, re.MULTILINE)
    root = folder / f"{distribution}-{version}"
    if not root.exists():
        words = [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", distribution]
        subprocess.run([*words, "-d", str(folder), f"{distribution}=={version}"], check=True)
        with tarfile.open(f"{root}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return root


def run(suite: Suite, side: str, python: str, folder: Path) -> None:
    """Runs a suite on one side."""
    root = fetch(python, folder, suite.distribution) if suite.distribution else folder
    paths = [str(HERE), *([str(ROOT)] if side == "ours" else [])]
    environment = {**os.environ, **suite.environment, "EVERY_NTH": str(suite.step)}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    alias = ["-m", "flambeau"] if side == "ours" else []
    options = ["-q", "-p", "no:cacheprovider", "-p", "every_nth", "-o", "addopts=", "--tb=short"]
    options += [
        f"--rootdir={root}",
        "--timeout=120",
        f"--junitxml={folder / f'{suite.library}.{side}.xml'}",
    ]
    words = [python, *alias, "-m", "pytest", *options, *suite.arguments]
    subprocess.run(words, env=environment, cwd=root, check=False)


def results(path: Path) -> dict[str, tuple[str, str]]:
    """What became of each test: "passed", "skipped" or "failed", and the message."""
    outcomes = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        outcome, message = "passed", ""
        for element in case:
            if element.tag in ("failure", "error"):
                outcome, message = "failed", element.get("message") or ""
            elif element.tag == "skipped" and outcome == "passed":
                outcome, message = "skipped", element.get("message") or ""
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = (outcome, message)
    return outcomes


def page(folder: Path) -> str:
    """The text of the page."""
    rows, differences = [], []
    for suite in SUITES:
        paths = [folder / f"{suite.library}.{side}.xml" for side in ("reference", "ours")]
        if not all(path.exists() for path in paths):
            continue
        reference, ours = map(results, paths)
        passed = [name for name, (outcome, _) in reference.items() if outcome == "passed"]
        outcomes = {name: ours.get(name, ("missing", "the run ended before")) for name in passed}
        counts = Counter(outcome for outcome, _ in outcomes.values())
        sample = "all" if suite.step == 1 else f"1 in {suite.step}"
        words = " ".join(a for a in suite.arguments if a != "--pyargs")
        words = words if len(words) < 60 else f"{len(suite.arguments)} files"
        cells = (suite.library, words, sample, len(reference), len(passed), counts["passed"])
        rows.append(f"| {' | '.join(map(str, cells))} |")
        for name, (outcome, message) in outcomes.items():
            if outcome != "passed":
                text = " ".join(_WHERE.sub('File "', message).split())[:240]
                differences.append(f"- {suite.library}, {name}: {outcome}: {text}")
    head = "| library | its tests | sample | tests | pass under PyTorch | of those pass here |"
    table = [head, "| --- | --- | --- | --- | --- | --- |", *rows]
    listing = ["## What differs", "", *(differences or ["Nothing."])]
    return "\n".join([HEAD, *table, "", *listing, ""])


def main() -> None:
    """Runs what the command line names, and writes the page."""
    names = ", ".join(suite.library for suite in SUITES)
    parser = argparse.ArgumentParser(prog="python -m tests.libraries.own_tests")
    parser.add_argument("libraries", nargs="*", help=names)
    parser.add_argument("--ours", default=sys.executable, help="Python with the libraries")
    parser.add_argument("--reference", help="Python with PyTorch and the libraries")
    parser.add_argument("--folder", default=str(ROOT / "build" / "library_tests"))
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for suite in SUITES:
        if options.page or (options.libraries and suite.library not in options.libraries):
            continue
        if options.reference:
            run(suite, "reference", options.reference, folder)
        run(suite, "ours", options.ours, folder)
    PAGE.write_text(page(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
