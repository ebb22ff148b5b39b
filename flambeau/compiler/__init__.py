"""From a traced graph to a plan: stages, scheduling, code generation, cache.

Also PyTorch's `torch.compiler` namespace; those names live in `flambeau.capture` and are looked up
on first use, so that this package does not import the packages above it.
"""

from importlib import import_module
from typing import Any

from flambeau.ir.lock import late

_PUBLIC = {
    **dict.fromkeys("compile disable reset".split(), "flambeau.capture.regions"),
    "explain": "flambeau.reports.explanation",
    "is_compiling": "flambeau.capture.recording",
    **dict.fromkeys(
        "load_cache_artifacts save_cache_artifacts".split(), "flambeau.compiler.artifacts"
    ),
    "find_nan": "flambeau.compiler.nan_origin",
    "report": "flambeau.reports.report",
    "stages": "flambeau.capture.stages",
    "step": "flambeau.compiler.stepping",
    "wait": "flambeau.compiler.tiers",
    **dict.fromkeys(
        "allow_in_graph assume_constant_result cudagraph_mark_step_begin "
        "get_default_backend is_dynamo_compiling is_exporting keep_portable_guards_unsafe "
        "keep_tensor_guards_unsafe list_backends "
        "load_compiled_function nested_compile_region "
        "set_default_backend set_enable_guard_collectives set_stance "
        "skip_all_guards_unsafe skip_guard_on_all_nn_modules_unsafe "
        "skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe "
        "substitute_in_graph wrap_numpy _is_non_strict_tracing "
        "_non_strict_tracing_context _patch_engine_backward".split(),
        "flambeau.utils.compiler_names",
    ),
}


# PyTorch's names; `report`, `stages`, `step`, `find_nan`, `wait` and `explain` are Flambeau's own.
__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin",
    "disable", "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting",
    "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "list_backends",
    "load_cache_artifacts", "load_compiled_function", "nested_compile_region", "reset",
    "save_cache_artifacts", "set_default_backend", "set_enable_guard_collectives", "set_stance",
    "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

# `from flambeau.compiler import cache` first looks for an attribute: parts that every first call
# loads are found here, before the list of PyTorch's names is read for the message of an error.
_PARTS = frozenset(
    "cache config debug machine passes postponed shipped stored targets tiers toolchain".split()
)


def __dir__() -> list[str]:
    return sorted({*__all__, *_PUBLIC})


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(late(_PUBLIC[name]), name)
    if name in _PARTS:
        return import_module(f"flambeau.compiler.{name}")
    from flambeau.runtime import missing

    missing.refuse(__name__, name)
