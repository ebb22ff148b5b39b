"""Writes `flambeau/library/aten_schemas.bin`: every schema of PyTorch's inner library, with tags.

Run where PyTorch is installed: `.venv-oracle/bin/python -m tools.aten_schemas`. One line per
overload, in PyTorch's order: its signature, a space, and a letter per tag (`Tag(i)` is the i-th
letter; `W`, `X`: PyTorch has a decomposition in `decomposition_table`, in the table of core ATen;
`Y`: it composes it of others before a mode sees it; `Z`: an operator of TorchScript, which the
dispatcher does not have). Only an operator's first line has its name.
"""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "flambeau" / "library" / "aten_schemas.bin"


def lines(torch: Any) -> list[str]:
    """The lines of the table.

    Args:
        torch: PyTorch.
    """
    by_name: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace == "aten":
            by_name.setdefault(name, []).append(schema)
    from flambeau.runtime.tags import Tag

    decomposed = torch._decomp.decomposition_table
    core = torch._decomp.core_aten_decompositions()
    numbers = {tag.name: tag.value for tag in Tag}
    table = []
    for name, schemas in sorted(by_name.items()):
        for place, schema in enumerate(schemas):
            text = str(schema).removeprefix(f"aten::{name}")
            overload = schema.overload_name
            operator = getattr(getattr(torch.ops.aten, name), overload or "default")
            tags = sorted(numbers[tag.name] for tag in operator.tags)
            letters = "".join(chr(ord("a") + number) for number in tags)
            letters += "W" * (operator in decomposed) + "X" * (operator in core)
            full = f"aten::{name}" + (f".{overload}" if overload else "")
            composed = "CompositeImplicitAutograd"
            if not torch._C._dispatch_has_kernel(full):
                letters += "Z"
            elif torch._C._dispatch_has_kernel_for_dispatch_key(full, composed):
                letters += "Y"
            short = text.replace(", ", ",").replace(" -> ", ">")
            if short.replace(",", ", ").replace(">", " -> ") != text:
                short = text  # an arrow inside of a type
            table.append(f"{'' if place else name}{short} {letters}")
    return table


def main() -> None:
    """Writes the table."""
    torch = importlib.import_module("torch")
    importlib.import_module("torch._decomp")
    text = "\n".join(lines(torch))
    FILE.write_bytes(zlib.compress(text.encode(), 9))
    print(f"{FILE.name}: {text.count(chr(10)) + 1} overloads, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
