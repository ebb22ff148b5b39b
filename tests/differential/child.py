"""Runs the programs of one file and prints a JSON list of what each did."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch


def programs(module: types.ModuleType) -> list[Callable[[], None]]:
    """The programs of a file, in their order."""
    return [
        value
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def reset() -> None:
    """The state of a fresh process, as far as programs change it."""
    torch.manual_seed(0)
    random.seed(0)
    torch.set_default_dtype(torch.float32)
    torch.set_printoptions(profile="default")
    torch.set_grad_enabled(True)


def run(program: Callable[[], None]) -> dict[str, Any]:
    """Output, warnings and the exception of a program."""
    reset()
    output, error = io.StringIO(), None
    with warnings.catch_warnings(record=True) as records, contextlib.redirect_stdout(output):
        warnings.simplefilter("always")
        try:
            program()
        except Exception as exception:
            error = f"{type(exception).__name__}: {exception}"
    return {
        "name": program.__name__,
        "output": output.getvalue(),
        "error": error,
        "warnings": [[record.category.__name__, str(record.message)] for record in records],
    }


def main() -> None:
    module = importlib.import_module(f"tests.differential.{sys.argv[1]}")
    names = sys.argv[2:]
    chosen = [program for program in programs(module) if not names or program.__name__ in names]
    results = [run(program) for program in chosen]
    sys.stdout.write("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
