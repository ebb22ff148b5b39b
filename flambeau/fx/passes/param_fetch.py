"""Parameters and settings of modules, copied to the nodes that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name: str, target_version: int) -> str:
    """The name of an attribute in another version of a module: the same.

    Args:
        name: the name.
        target_version: the version.
    """
    return name


_CONVOLUTION = [
    "weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode",
]  # fmt: skip
_NORMALIZATION = ["weight", "bias", "running_mean", "running_var", "eps"]

module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    torch.nn.Linear: (1, ["weight", "bias"], default_matching),
    torch.nn.Conv2d: (1, _CONVOLUTION, default_matching),
    torch.nn.BatchNorm2d: (2, _NORMALIZATION, default_matching),
    torch.nn.AdaptiveAvgPool2d: (1, [], default_matching),
    torch.nn.MaxPool2d: (
        1, ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"],
        default_matching,
    ),
    torch.nn.ReLU: (1, ["inplace"], default_matching),
}  # fmt: skip


@compatibility(is_backward_compatible=False)
def extract_attrs_for_lowering(mod: torch.nn.Module) -> dict[str, Any]:
    """The attributes of a module that a backend needs.

    Args:
        mod: a module of a type in `module_fetch_book`.

    Raises:
        RuntimeError: of another type, or of a later version.
    """
    attributes: dict[str, Any] = {"name": torch.typename(mod)}
    if type(mod) not in module_fetch_book:
        raise RuntimeError(
            f"{torch.typename(mod)} is not in the module_fetch_book yet, please add it to the "
            "module_fetch_book"
        )
    version, names, matching = module_fetch_book[type(mod)]
    if version < mod._version:
        raise RuntimeError(
            f"Fetcher version {version} try to fetch {torch.typename(mod)} version "
            f"{mod._version}, please upgrade the module_fetch_book"
        )
    for name in names:
        attributes[name] = getattr(mod, matching(name, mod._version))
    return attributes


@compatibility(is_backward_compatible=False)
def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Sets `attrs_for_lowering` of every node that calls a module.

    Args:
        fx_module: the module.
    """
    submodules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        inner = submodules[node.target]
        if isinstance(inner, GraphModule):
            lift_lowering_attrs_to_nodes(inner)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(inner)
