"""`python -m tests.capture.corpus`: runs the corpus and reports the share that is explained."""

from __future__ import annotations

import argparse
import faulthandler
import sys

from tests.capture.corpus.cases import every
from tests.capture.corpus.running import report, run


def main() -> int:
    """Runs the cases whose name contains a text."""
    parser = argparse.ArgumentParser(prog="python -m tests.capture.corpus", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--report", action="store_true", help="each case's share and reason")
    options = parser.parse_args()
    faulthandler.enable()
    outcomes = []
    for case in every():
        if options.only in case.name:
            if options.report:
                print(case.name, end=": ", flush=True)
            outcome = run(case)
            outcomes.append(outcome)
            if options.report:
                print(f"{outcome.skipped} of {outcome.calls} calls without Python; "
                      f"{outcome.reason or ''}")  # fmt: skip
    print(report(outcomes) if outcomes else "no case has this text in its name")
    return int(any(outcome.difference is not None for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
