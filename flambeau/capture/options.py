"""The names and types of `mode` and `options` of `torch.compile`, and those that tune.

Options are the settings of `torch._inductor.config`, which PyTorch's compiler reads; the ones in
`_TUNING` change how kernels are chosen here, those in `PASSES` are called, `freezing` makes weights
constants (`freezing.py`). The others name freedoms
that this compiler has always taken (fusion, planned memory) or never takes (fast mathematics), so
that accepting them changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.ir.failure import failure
from flambeau.runtime import config_modules

SETTINGS = "torch._inductor.config"
MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
_TUNING = ("max_autotune", "max_autotune_gemm", "combo_kernels")
_FREEZING = ("freezing", "freezing_discard_parameters")
# Functions of the user that change graphs, in the order in which they are called.
PASSES = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass",
    "post_grad_custom_pre_pass", "post_grad_custom_post_pass",
)  # fmt: skip
_SCHEDULER_PASSES = ("_pre_fusion_custom_pass", "_post_fusion_custom_pass")


def tunes(mode: str | None, options: dict[str, Any] | None) -> bool:
    """Checks `mode` and `options`; returns whether kernels are measured at the first call.

    Args:
        mode: one of `MODES`, or None.
        options: option name to value; "-" and "_" are the same.

    Raises:
        RuntimeError: both are given, a mode or option is unknown, or a value has the wrong type.
        TypeError: `options` is no dict, or one of its names is no string.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "[compile] either mode or options can be specified, but both are\n"
            "hint: options={'max_autotune': True} stands for mode='max-autotune'"
        )
    if options is not None:
        return _option_tunes(options)
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"[compile] unrecognized mode {mode!r}\nhint: one of {', '.join(MODES)}")
    return mode in _TUNED_MODES or any(config_modules.value(SETTINGS, name) for name in _TUNING)


def freezes(options: Mapping[str, object] | None) -> int:
    """Whether weights are constants of calls without gradients: 1, and 2 where modules lose them.

    Args:
        options: as of `torch.compile`, instead of the settings.
    """
    plain = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    chosen = [plain.get(name, config_modules.value(SETTINGS, name)) for name in _FREEZING]
    return 0 if not chosen[0] else 1 + bool(chosen[1])


def graph_passes(options: Mapping[str, object] | None) -> dict[str, object]:
    """The passes of the user by the names of their settings.

    Args:
        options: as of `torch.compile`, instead of the settings.

    Raises:
        NotImplementedError: a pass over PyTorch's scheduler is set.
    """
    names = (*PASSES, *_SCHEDULER_PASSES)
    values: dict[str, object] = {n: config_modules.value(SETTINGS, n) for n in names}
    for name, value in (options or {}).items():
        if (plain := name.replace("-", "_")) in values:
            values[plain] = value
    passes = {name: value for name, value in values.items() if value}
    for name in _SCHEDULER_PASSES:
        if name in passes:
            problem = f"{name} gets nodes of PyTorch's scheduler, which is not here"
            hint = 'flambeau.compiler.passes.register(..., after="fusion")'
            raise failure(NotImplementedError, "compile", problem, hint)
    return passes


def _option_tunes(options: dict[str, Any]) -> bool:
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise TypeError(
            f"[compile] options is not a dict of named values: {options!r}\n"
            "hint: options={'max_autotune': True}"
        )
    values = {name.replace("-", "_"): value for name, value in options.items()}
    defaults = config_modules.defaults()[SETTINGS]
    for name, value in values.items():
        if name not in defaults:
            raise RuntimeError(
                f"[compile] unexpected optimization option {name}\n"
                "hint: torch._inductor.list_options() lists the known ones"
            )
        expected = type(defaults[name])
        if expected in (bool, int, float, str) and type(value) is not expected:
            raise RuntimeError(
                f"[compile] unexpected type of option {name}, got {type(value).__name__} should "
                f"be {expected.__name__}\nhint: options={{{name!r}: {expected()!r}}}"
            )
    return any(values.get(name, False) for name in _TUNING)
