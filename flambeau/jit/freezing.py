"""`torch.jit.freeze` and its relatives: a scripted module whose parameters are constants."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from flambeau.jit.modules import RecursiveScriptModule, ScriptModule


def freeze(
    mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True
) -> RecursiveScriptModule:
    """Returns a copy of a scripted module in eval mode whose parameters are constants.

    Args:
        mod: a scripted module in eval mode.
        preserved_attrs: methods that the copy has beside `forward`.
        optimize_numerics: accepted; results are those of `mod` to the last bit.

    Raises:
        RuntimeError: no scripted module, or one in training mode.

    Example:
        >>> frozen = torch.jit.freeze(torch.jit.script(torch.nn.Linear(2, 1).eval()))
        >>> list(frozen.parameters())
        []
    """
    warnings.warn(
        "`torch.jit.freeze` is deprecated. Please use `torch.compile` instead.",
        DeprecationWarning,
        stacklevel=2,
    )
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or "
            "torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call "
            ".eval() on your module before freezing."
        )
    frozen: RecursiveScriptModule = copy.deepcopy(mod)  # type: ignore[assignment]
    for inner in frozen.modules():
        _fix_state(inner)
    _drop_methods(frozen, {"forward", *(preserved_attrs or ())})
    return frozen


def _fix_state(module: Any) -> None:
    """Makes a module's parameters and buffers plain attributes."""
    state = module.__dict__
    for table in ("_parameters", "_buffers"):
        for name, value in state[table].items():
            state[name] = None if value is None else value.detach()
        state[table] = {}


def _drop_methods(module: Any, preserved: set[str]) -> None:
    codes = module.__dict__["_script_codes"]
    called = {name for name in preserved if name in codes}
    pending = list(called)
    while pending:  # what a preserved method calls stays
        text = codes[pending.pop()].text
        for name in codes:
            if name not in called and f"self.{name}" in text:
                called.add(name)
                pending.append(name)
    module.__dict__["_script_codes"] = {name: codes[name] for name in called}


def run_frozen_optimizations(
    mod: Any, optimize_numerics: bool = True, preserved_methods: list[str] | None = None
) -> None:
    """Nothing to do: operators are compiled when they run."""


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """Freezes a scripted module.

    Example:
        >>> fast = torch.jit.optimize_for_inference(torch.jit.script(torch.nn.ReLU().eval()))
        >>> fast(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script "
            "or torch.jit.trace to script your 'nn.Module'."
        )
    return freeze(mod.eval(), other_methods) if mod.training or list(mod.parameters()) else mod
