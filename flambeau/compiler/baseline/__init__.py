"""The baseline tier: kernels as programs of block functions, which run at once (docs/design.md).

Block functions are built with the package, for every target of the machine's architecture. This
module loads the library of the target that kernels are built for; nothing else may load it.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from flambeau import _core
from flambeau.compiler.targets import current
from flambeau.ir.lock import importing, memo
from flambeau.runtime import settings

if TYPE_CHECKING:
    from flambeau.ir.kernel import Kernel
    from flambeau.ir.plan import BlockProgram

_programs: dict[str, BlockProgram] = memo()

DIRECTORY = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "_baseline"
)


def library() -> str:
    """The path of the library of block functions of the current target."""
    return os.path.join(DIRECTORY, f"{current().name}.so")


@functools.cache
def available() -> bool:
    """Whether the block functions of the current target are installed."""
    return os.path.exists(library())


@functools.cache
def load() -> None:
    """Loads the block functions of the current target into the core, once.

    Raises:
        RuntimeError: the library is missing or damaged.
    """
    _core.load_block_functions(library())


def chosen(kernel: Kernel) -> bool:
    """Whether a test lets a kernel run as a block program."""
    return settings.get("TIER") != "random" or hash(kernel.text()) % 2 == 0


def program_of(kernel: Kernel) -> BlockProgram:
    """The block program of a kernel, made once.

    Raises:
        NotImplementedError: a value has no block function.
    """
    text = kernel.text()
    program = _programs.get(text)
    if program is None:
        with importing:
            from flambeau.compiler.baseline.lower import block_program

        program = _programs[text] = block_program(kernel)
    return program


__all__ = ["DIRECTORY", "available", "chosen", "library", "load", "program_of"]
