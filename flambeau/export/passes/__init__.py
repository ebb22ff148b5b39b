"""`torch.export.passes`: changes of exported programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flambeau as torch
from flambeau.export.exported_program import ExportedProgram
from flambeau.utils import _pytree as pytree

__all__ = ["move_to_device_pass"]

Value = Any  # of a program


def move_to_device_pass(
    ep: ExportedProgram, location: torch.device | str | Mapping[str, str]
) -> ExportedProgram:
    """Moves a program to another device: its state, constants, and devices that its nodes name.

    Args:
        ep: the program, which is changed.
        location: the device, or new devices by old ones.

    Example:
        >>> from torch.export.passes import move_to_device_pass
        >>> program = torch.export.export(nn.Linear(2, 3), (torch.ones(1, 2),))
        >>> move_to_device_pass(program, "meta").state_dict["bias"].device
        device(type='meta')
    """

    def device(before: Value) -> Value:
        if isinstance(location, Mapping):
            named = location.get(str(before), location.get(before.type, str(before)))
            return torch.device(named)
        return torch.device(location)

    def moved(value: Value) -> Value:
        if isinstance(value, torch.nn.Parameter):
            data = value.detach().to(device(value.device))
            return torch.nn.Parameter(data, value.requires_grad)
        if isinstance(value, torch.Tensor):
            return value.to(device(value.device))
        return device(value) if isinstance(value, torch.device) else value

    for tensors in (ep.state_dict, ep.constants):
        tensors.update({name: moved(tensor) for name, tensor in tensors.items()})
    for node in ep.graph.nodes:
        node.args = pytree.tree_map(moved, node.args)
        node.kwargs = pytree.tree_map(moved, node.kwargs)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(moved, node.meta["val"])
    if ep.example_inputs is not None:
        ep.example_inputs = pytree.tree_map(moved, ep.example_inputs)
    ep.graph_module.recompile()
    return ep
