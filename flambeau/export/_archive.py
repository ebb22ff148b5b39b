"""Files of exported programs (`.pt2`): a zip archive of JSON and tensors, without any pickle.

    archive/archive_format             "flambeau-pt2"
    archive/archive_version            "1"
    archive/models/model.json          graph, signature, ranges (`_encoding`)
    archive/data/tensors.safetensors   state, constants, example inputs (`serialization/container`)
    archive/extra/NAME                 further records of the caller

Reading runs no code of the file: operators and functions are looked up in closed tables, names are
checked before they become part of generated code, structures are those that were registered.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from typing import Any

import flambeau as torch
from flambeau.export import graph_signature as signatures
from flambeau.export._encoding import Decoder, Encoder
from flambeau.export._environment import DimEnvironment, ValueRanges
from flambeau.export.dynamic_shapes import int_oo
from flambeau.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
)
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from flambeau.ir.failure import failure
from flambeau.runtime.replacing import replacing
from flambeau.serialization import container, zip_reader
from flambeau.serialization.sources import Source, damaged, opened
from flambeau.serialization.zip_writer import ArchiveWriter
from flambeau.utils import _pytree as pytree

__all__ = ["load", "save"]

Json = Any
Value = Any  # of a program, or of its caller
FORMAT, VERSION = b"flambeau-pt2", 1
_GRAPH, _TENSORS = "models/model.json", "data/tensors.safetensors"
_LARGEST_GRAPH = 2**30
_SPECS = {
    name: getattr(signatures, name)
    for name in ("TensorArgument", "SymIntArgument", "SymFloatArgument", "SymBoolArgument")
}


def save(
    ep: ExportedProgram,
    f: Value,
    *,
    extra_files: Mapping[str, Value] | None = None,
    opset_version: Mapping[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Writes a program to a file, which appears complete or not at all.

    Args:
        ep: the program.
        f: a path, `.pt2` by convention, or a binary file object.
        extra_files: further records by name: texts or bytes.
        opset_version, pickle_protocol: in PyTorch, of its form of files.

    Raises:
        TypeError: it is no exported program.
        NotImplementedError: the graph has a value that the form does not have.

    Example:
        >>> import io
        >>> program = torch.export.export(nn.Linear(2, 3), (torch.ones(1, 2),))
        >>> file = io.BytesIO()  # or a path
        >>> torch.export.save(program, file)
        >>> _ = file.seek(0)
        >>> x = torch.ones(1, 2)
        >>> torch.equal(torch.export.load(file).module()(x), program.module()(x))
        True
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got {type(ep)}"
        )
    if hasattr(f, "write"):
        _write(ep, f, extra_files or {})
        return
    with replacing(os.fspath(f)) as file:
        _write(ep, file, extra_files or {})


def _write(program: ExportedProgram, file: Value, extra: Mapping[str, Value]) -> None:
    text = json.dumps(_encoded(program), separators=(",", ":"))
    tensors = io.BytesIO()
    container.write(
        {
            "state": program.state_dict, "constants": program.constants,
            "inputs": None if program.example_inputs is None
            else pytree.tree_leaves(program.example_inputs),
        },
        tensors,
    )  # fmt: skip
    writer = ArchiveWriter(file, "archive")
    writer.write("archive_format", FORMAT)
    writer.write("archive_version", str(VERSION).encode())
    writer.write(_GRAPH, text.encode())
    writer.write(_TENSORS, tensors.getvalue())
    for name, content in extra.items():
        data = content.encode() if isinstance(content, str) else bytes(content)
        writer.write(f"extra/{name}", data)
    writer.close()


def _encoded(program: ExportedProgram) -> Json:
    env = None
    for node in program.graph.find_nodes(op="placeholder"):
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        env = env or getattr(mode, "shape_env", None)
    encoder = Encoder(env if isinstance(env, DimEnvironment) else None)
    signature = program.graph_signature
    ranges = [
        [encoder.size(k), _bound(lower), _bound(upper)]
        for k, (lower, upper) in program.range_constraints.items()
    ]
    form = {
        "version": VERSION,
        "dialect": program.dialect,
        "graph": encoder.graph(program.graph_module),
        "inputs": [
            [x.kind.name, _spec(encoder, x.arg), x.target, x.persistent]
            for x in signature.input_specs
        ],
        "outputs": [[x.kind.name, _spec(encoder, x.arg), x.target] for x in signature.output_specs],
        "ranges": ranges,
        "conditions": [encoder.condition(x) for x in program._conditions],
        "calls": [[x.fqn, _call(encoder, x.signature)] for x in program.module_call_graph],
    }
    form["symbols"] = encoder.symbols
    return form


def _bound(number: Value) -> int | None:
    return None if number in (int_oo, -int_oo) else int(number)


def _spec(encoder: Encoder, argument: Value) -> Json:
    kind = type(argument).__name__
    if isinstance(argument, ConstantArgument):
        return [kind, argument.name, encoder.argument(argument.value)]
    if kind not in _SPECS:
        raise failure(NotImplementedError, "export.save", f"an argument is a {kind}", "tensors")
    return [kind, argument.name]


def _call(encoder: Encoder, signature: ModuleCallSignature | None) -> Json:
    if signature is None:
        return None
    specs = [pytree.treespec_dumps(x) for x in (signature.in_spec, signature.out_spec)]
    sides = [[_spec(encoder, x) for x in side] for side in (signature.inputs, signature.outputs)]
    return [*specs, signature.forward_arg_names, *sides]


# ------------------------------------------------------------------------------ reading


def load(
    f: Value,
    *,
    extra_files: dict[str, Value] | None = None,
    expected_opset_version: Mapping[str, int] | None = None,
) -> ExportedProgram:
    """Reads a program that `save` wrote. Nothing in a file can run code.

    Args:
        f: a path or a binary file object.
        extra_files: further records to read: names as keys, whose values are set.
        expected_opset_version: in PyTorch, of its form of files.

    Raises:
        RuntimeError: the file is damaged, or names an operator that is not there.
        NotImplementedError: PyTorch wrote it.
    """
    with opened(f, False) as source:
        try:
            return _read(zip_reader.Archive(source), extra_files)
        except RecursionError as error:
            raise damaged("it is nested too deeply") from error
        except NotImplementedError:
            raise
        except (
            KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError,
            OverflowError, ZeroDivisionError, MemoryError, SyntaxError,
        ) as error:  # fmt: skip
            raise damaged(f"{type(error).__name__} at {str(error)[:200]}") from error


def _read(archive: zip_reader.Archive, extra: dict[str, Value] | None) -> ExportedProgram:
    if "archive_format" not in archive or archive.read("archive_format", 100) != FORMAT:
        if f"{_GRAPH}" in archive:
            problem = "the file is PyTorch's: its graph is in a form of its own"
            hint = "load it with PyTorch, or export the model here"
            raise failure(NotImplementedError, "export.load", problem, hint)
        raise damaged("it is no exported program")
    zip_reader.check_version(archive, VERSION, "export.load")
    form = json.loads(archive.read(_GRAPH, _LARGEST_GRAPH))
    data = archive.read(_TENSORS)
    tensors = container.read(Source(io.BytesIO(data), len(data), 0), lambda x, _: x, False)
    program = _program(form, tensors)
    program.validate()
    for name in extra or {}:
        assert extra is not None
        extra[name] = archive.read(f"extra/{name}")
    return program


def _program(form: Json, tensors: Json) -> ExportedProgram:
    decoder = Decoder(form["symbols"])
    module = decoder.graph(form["graph"])
    inputs = [
        InputSpec(InputKind[kind], _argument(decoder, spec), target, persistent)
        for kind, spec, target, persistent in form["inputs"]
    ]
    outputs = [
        OutputSpec(OutputKind[kind], _argument(decoder, spec), target)
        for kind, spec, target in form["outputs"]
    ]
    ranges = {
        decoder.size(key): ValueRanges(
            -int_oo if lower is None else int(lower), int_oo if upper is None else int(upper)
        )
        for key, lower, upper in form["ranges"]
    }
    calls = [ModuleCallEntry(str(name), _called(decoder, call)) for name, call in form["calls"]]
    program = ExportedProgram(
        module, module.graph, ExportGraphSignature(inputs, outputs), dict(tensors["state"]),
        ranges, calls, None, dict(tensors["constants"]),
        conditions=[decoder.condition(x) for x in form["conditions"]],
    )  # fmt: skip
    for name, (lower, upper) in _named_ranges(ranges):
        decoder.env._ranges[name] = ValueRanges(lower, upper)
    if tensors["inputs"] is not None:
        program.example_inputs = pytree.tree_unflatten(tensors["inputs"], program.call_spec.in_spec)
    for each in (*program.state_dict.values(), *program.constants.values()):
        if not isinstance(each, torch.Tensor):
            raise damaged("a value of the state is no tensor")
    program._dialect = str(form["dialect"])
    return program


def _named_ranges(ranges: Mapping[Value, ValueRanges]) -> list[tuple[str, ValueRanges]]:
    return [(key.name, value) for key, value in ranges.items() if getattr(key, "name", "")]


def _argument(decoder: Decoder, form: Json) -> Value:
    if form[0] == "ConstantArgument":
        return ConstantArgument(str(form[1]), decoder.argument(form[2], {}))
    return _SPECS[form[0]](str(form[1]))


def _called(decoder: Decoder, form: Json) -> ModuleCallSignature | None:
    if form is None:
        return None
    in_spec, out_spec = (pytree.treespec_loads(text) for text in form[:2])
    names = None if form[2] is None else [str(name) for name in form[2]]
    inputs, outputs = ([_argument(decoder, x) for x in side] for side in form[3:] or ((), ()))
    return ModuleCallSignature(inputs, outputs, in_spec, out_spec, names)
