"""`torch.export`: whole models as graphs of operators, with their state and what holds of inputs.

A module runs once on tensors without data. The graph has the calls that it made, and its inputs
are parameters, buffers, constants, then the arguments. Sizes are numbers, or symbols where
`dynamic_shapes` says that they vary; the program checks at each call that its graph holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flambeau as torch
from flambeau._dynamo.exc import UserError
from flambeau.export._archive import load, save
from flambeau.export._draft_export import draft_export
from flambeau.export._environment import DimEnvironment
from flambeau.export._trace import Trace
from flambeau.export.decomp_utils import CustomDecompTable, default_decompositions
from flambeau.export.dynamic_shapes import (
    AdditionalInputs,
    Constraint,
    Dim,
    ShapesCollection,
    dims,
)
from flambeau.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
)
from flambeau.export.graph_signature import ExportBackwardSignature, ExportGraphSignature
from flambeau.export.unflatten import FlatArgsAdapter, UnflattenedModule, unflatten
from flambeau.runtime import missing
from flambeau.utils import _pytree as pytree

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature",
    "ExportGraphSignature", "ExportedProgram", "FlatArgsAdapter", "ModuleCallEntry",
    "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "default_decompositions",
    "dims", "draft_export", "export", "load", "register_dataclass", "save", "unflatten",
]  # fmt: skip

Value = Any  # an argument of a module


def export(
    mod: torch.nn.Module,
    args: tuple[Value, ...],
    kwargs: Mapping[str, Value] | None = None,
    *,
    dynamic_shapes: Value = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Records what a module does with its arguments, ahead of time.

    The module runs once, on tensors without data, and is left as it was. Its Python is not
    recorded: branches and loops are those of this run. `torch.cond`, `while_loop`, `scan` and
    `map` are nodes with a graph for each of their functions.

    Args:
        mod: the module.
        args, kwargs: its arguments: tensors and numbers, in any containers.
        dynamic_shapes: which sizes vary; by default none. By name of the argument, or in order:
            for a tensor a dictionary from dimensions to a `Dim`, `Dim.AUTO`, `Dim.DYNAMIC` or
            `Dim.STATIC`, or a sequence of these; containers of them for containers.
        strict: in PyTorch, whether bytecode is analysed instead; without effect.
        preserve_module_call_signature: paths of modules whose calls keep their form in `unflatten`.
        prefer_deferred_runtime_asserts_over_guards: in PyTorch, how conditions are stated.

    Raises:
        UserError: the program needs a size to be constant, related to another one or in a smaller
            range than its `Dim` says: the message has the new `Dim`. Arguments, or
            `dynamic_shapes`, of a wrong structure.
        ConstraintViolationError: an example that is not in the range of its `Dim`.
        GuardOnDataDependentSymNode: a branch depends on data.
        AttributeError: there is no module of a path.
        AssertionError: a module whose call is preserved gets arguments of several structures.
        NotImplementedError: a module whose call is preserved runs where gradients are switched off.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        >>> batch = torch.export.Dim("batch", max=64)
        >>> program = torch.export.export(
        ...     model, (torch.ones(2, 3),), dynamic_shapes=({0: batch},)
        ... )
        >>> program.range_constraints
        {s0: VR[0, 64]}
        >>> program.module()(torch.ones(5, 3)).shape
        torch.Size([5, 4])
    """
    return _exported(mod, args, kwargs, dynamic_shapes, preserve_module_call_signature)


def _exported(
    mod: torch.nn.Module, args: tuple[Value, ...], kwargs: Mapping[str, Value] | None,
    shapes: Value, preserved: tuple[str, ...], env: DimEnvironment | None = None,
) -> ExportedProgram:  # fmt: skip
    if not isinstance(mod, torch.nn.Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}"
        )
    trace = Trace(mod, args, kwargs or {}, shapes, preserved, env)
    signature = ModuleCallSignature([], [], trace.in_spec, trace.out_spec, trace.forward_arg_names)
    signatures = {"": signature, **trace.inner.signatures}
    calls = [ModuleCallEntry(x, signatures.get(x)) for x in {**trace.called, **signatures}]
    return ExportedProgram(
        trace.root, trace.root.graph, trace.signature, trace.state_dict(),
        trace.env.range_constraints(), calls, (args, trace.kwargs), trace.all_constants(),
        conditions=trace.env.conditions(),
    )  # fmt: skip


def register_dataclass(cls: type[Value], *, serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a container of inputs and outputs.

    Args:
        cls: the class.
        serialized_type_name: its name in files; by default its path.

    Raises:
        ValueError: the class is no dataclass.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: torch.Tensor
        >>> torch.export.register_dataclass(Point)
    """
    if not dataclasses.is_dataclass(cls):
        raise ValueError(f"Only dataclasses can be registered with this function: {cls}")
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    pytree.register_dataclass(cls, serialized_type_name=name)


# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = missing.getter(__name__)
