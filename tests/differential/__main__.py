"""`python -m tests.differential [file[:program]...]`: programs under PyTorch and here, compared.

Run by an interpreter that has PyTorch. Each file runs in one process per framework.
"""

from __future__ import annotations

import argparse
import sys

from tests.differential.comparison import FILES, LISTED, compare_file


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("files", nargs="*", default=[], metavar="file[:program]")
    arguments = parser.parse_args()
    count = different = 0
    for target in arguments.files or FILES:
        name, _, program = target.partition(":")
        comparison = compare_file(name, [program] if program else [])
        count += comparison.programs
        for title, lines in comparison.differences.items():
            listed = f"{name}.{title}" in LISTED
            different += not listed
            print(f"== {name}:{title}" + (" (listed)" if listed else ""), *lines, sep="\n  ")
    print(f"{count} programs, {different} differ, {len(LISTED)} on the list")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
