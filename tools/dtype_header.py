"""Prints `native/tensor/dtypes.h` from the table of dtypes: `python -m tools.dtype_header`.

The table is read by itself: the package cannot be imported while its core lacks a new row.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau.ir.dtypes import DType

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "flambeau" / "ir" / "dtypes.py"
HEADER = ROOT / "native" / "tensor" / "dtypes.h"
_HEAD = """\
// The element types, printed from flambeau/ir/dtypes.py by `python -m tools.dtype_header`.
// clang-format off
#pragma once

// Enumerator, public name, second public name, IR name, PyTorch's short name, name in messages,
// category, bytes, type string of the array protocol, type code of DLPack, holds negative numbers
"""


def _quoted(text: str) -> str:
    return f'"{text}"' if text else "nullptr"


def _row(row: DType, category: int) -> str:
    texts = (row.public, row.alias, row.name, row.abbreviation, row.title)
    fields = [
        "Bool" if row.name == "bool" else row.name.upper(),
        *map(_quoted, texts),
        str(category),
        str(row.size),
        _quoted(row.array),
        str(row.exchange),
        str(row.signed).lower(),
    ]
    return f"  X({', '.join(fields[:6])}, \\\n    {', '.join(fields[6:])})"


def text(path: Path = TABLE) -> str:
    """The whole header for a table of dtypes."""
    table = runpy.run_path(str(path))
    rows = [_row(row, table["CATEGORY"][row.name]) for row in table["ROWS"]]
    return _HEAD + " \\\n".join(["#define FB_DTYPES(X)", *rows]) + "\n"


if __name__ == "__main__":
    HEADER.write_text(text())
    sys.stdout.write(f"{HEADER}\n")
