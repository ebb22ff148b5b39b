"""The library of an exported program: the compiler plans it, the C compiler compiles all of it."""

from __future__ import annotations

import functools
from typing import NamedTuple

from flambeau.compiler import codegen, pipeline, targets, toolchain
from flambeau.compiler.codegen.batches import Batches
from flambeau.standalone.printer import metadata_of, print_model
from flambeau.standalone.program import LoweredProgram

__all__ = ["Library", "built"]


class Library(NamedTuple):
    """A compiled model.

    Attributes:
        content: of the shared library.
        source: the C text of its tables and of its executor.
        instructions: the instruction set of its kernels.
    """

    content: bytes
    source: str
    instructions: str


def built(lowered: LoweredProgram) -> Library:
    """Compiles a program.

    Args:
        lowered: the program.

    Raises:
        NotImplementedError: it needs what only the native core has.
        flambeau.compiler.toolchain.CompileError: if the compiler fails.
    """
    metadata, target = metadata_of(lowered), targets.current()
    execution, kernels = pipeline.for_library(lowered.graph, metadata.registers)
    identity = toolchain.find().identity
    keys = [codegen.key_of(kernel, target, identity) for kernel in kernels]
    symbols = [codegen.symbol_of(key) for key in keys]
    source = print_model(lowered, metadata, execution, symbols, sorted(target.features))
    batches = Batches(target, functools.partial(codegen.key_of_functions, target), together=True)
    for key, symbol, kernel in zip(keys, symbols, kernels, strict=True):
        batches.add(key, symbol, codegen.print_kernel(kernel, target))
    return Library(batches.finish_as_one("model", source), source, target.name)
