"""Packages of compiled models: `.pt2` files, zip archives whose records are stored as they are.

    archive/archive_format                       "flambeau-aoti"
    archive/archive_version                      "1"
    archive/data/aotinductor/NAME/model.so       library with the interface of `model.h`
    archive/data/aotinductor/NAME/model.c        text of its tables and executor, to be read
    archive/data/aotinductor/NAME/model.json     structure of arguments and results, metadata
    archive/data/aotinductor/NAME/constants.bin  constants, each aligned to 64 bytes

A package holds machine code: load what you trust, as with any library. Everything else in it is
checked.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flambeau._core import Tensor
from flambeau.ir.failure import failure
from flambeau.runtime.replacing import replacing
from flambeau.serialization import zip_reader
from flambeau.serialization.sources import damaged, opened
from flambeau.serialization.zip_writer import ArchiveWriter
from flambeau.standalone.library import built
from flambeau.standalone.program import LoweredProgram, lowered
from flambeau.utils import _pytree as pytree

__all__ = ["Record", "read", "write"]

FORMAT, VERSION = b"flambeau-aoti", 1
_ALIGNMENT = 64
_PLAIN = (int, float, bool, str, type(None))
Value = Any  # an argument or a result of a program


class Record(NamedTuple):
    """A model as a package has it.

    Attributes:
        library: the shared library.
        constants: their bytes.
        form: the rest, as plain data.
    """

    library: bytes
    constants: bytes
    form: dict[str, Value]


def write(program: Value, file: Value, metadata: Mapping[str, str]) -> None:
    """Compiles a program, and writes it to a file, which appears complete or not at all.

    Args:
        program: a `torch.export.ExportedProgram`.
        file: a path or a binary file object.
        metadata: what `get_metadata` gives, beside the machine.

    Raises:
        NotImplementedError: it has a value that a package can't compute.
    """
    lowered_program = lowered(program)
    library = built(lowered_program)
    form = _form(lowered_program, {**_machine(library.instructions), **metadata})
    records = {
        "model.so": library.content,
        "model.c": library.source.encode(),
        "model.json": json.dumps(form).encode(),
        "constants.bin": b"".join(_bytes(lowered_program)),
    }
    if hasattr(file, "write"):
        _write(file, records)
        return
    with replacing(os.fspath(file)) as opened_file:
        _write(opened_file, records)


def _write(file: Value, records: Mapping[str, bytes]) -> None:
    writer = ArchiveWriter(file, "archive")
    writer.write("archive_format", FORMAT)
    writer.write("archive_version", str(VERSION).encode())
    for name, content in records.items():
        writer.write(f"data/aotinductor/model/{name}", content)
    writer.close()


def _machine(instructions: str) -> dict[str, str]:
    """A description of the machine, under PyTorch's names."""
    system = os.uname()
    return {
        "AOTI_DEVICE_KEY": "cpu",
        "AOTI_PLATFORM": system.sysname.lower(),
        "AOTI_MACHINE": system.machine,
        "AOTI_CPU_ISA": instructions.upper(),
    }


def _form(program: LoweredProgram, metadata: Mapping[str, str]) -> dict[str, Value]:
    for value in (*program.fixed.values(), *(x.value for x in program.outputs)):
        if not isinstance(value, _PLAIN):
            problem = f"an argument or result is a {type(value).__name__}"
            raise failure(NotImplementedError, "aoti_compile_and_package", problem, "tensors")
    return {
        "in_spec": pytree.treespec_dumps(program.in_spec),
        "out_spec": pytree.treespec_dumps(program.out_spec),
        "inputs": [[each.name, each.position] for each in program.inputs],
        "fixed": sorted(program.fixed.items()),
        "outputs": [[each.kind, each.value] for each in program.outputs],
        "metadata": dict(metadata),
    }


def _bytes(program: LoweredProgram) -> Iterator[bytes]:
    for constant in program.constants:
        content = _content(constant.tensor)
        yield content
        yield bytes(-len(content) % _ALIGNMENT)


def _content(tensor: Tensor) -> bytes:
    """The elements of a contiguous tensor, of a copy: whose address is known is packed no more."""
    copy = tensor.clone()
    return ctypes.string_at(copy.data_ptr(), copy.nbytes) if copy.nbytes else b""


def read(file: Value, name: str) -> Record:
    """The model of this name in a package.

    Args:
        file: a path or a binary file object.
        name: "model", unless it was written otherwise.

    Raises:
        RuntimeError: the file is damaged, or no package.
        NotImplementedError: PyTorch wrote it.
    """
    with opened(file, False) as source:
        archive = zip_reader.Archive(source)
        folder = f"data/aotinductor/{name}/"
        if "archive_format" not in archive or archive.read("archive_format", 100) != FORMAT:
            if any(record.endswith(".wrapper.so") for record in archive.records):
                problem = "the package is PyTorch's: its library calls PyTorch"
                hint = "compile the model here"
                raise failure(NotImplementedError, "aoti_load_package", problem, hint)
            raise damaged("it is no package of a compiled model")
        zip_reader.check_version(archive, VERSION, "aoti_load_package")
        if folder + "model.so" not in archive:
            names = {x.split("/")[3] for x in archive.records if x.count("/") > 3}
            problem = f"there is no model {name!r} in the package, but {sorted(names)}"
            raise failure(RuntimeError, "aoti_load_package", problem, "pass another model_name")
        try:
            form = json.loads(archive.read(folder + "model.json"))
            assert isinstance(form, dict)
        except (ValueError, AssertionError, RecursionError) as error:
            raise damaged("its description is no JSON") from error
        return Record(
            archive.read(folder + "model.so"), archive.read(folder + "constants.bin"), form
        )
