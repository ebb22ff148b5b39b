"""`torch._dynamo`: PyTorch's private names of `torch.compile`, as views of ours.

Regions run as ordinary Python, so that marks which guide PyTorch's analysis of bytecode have
nothing to change: sizes of data are symbols from the start, and every function may be called.
"""

from __future__ import annotations

from flambeau.runtime import missing as _missing

_SOURCES = {
    "flambeau.capture.module": "OptimizedModule",
    "flambeau.capture.regions": "disable",
    "flambeau.capture.recording": "is_compiling",
    "flambeau.utils.compiler_names": "allow_in_graph assume_constant_result set_stance "
    "substitute_in_graph",
    "flambeau._dynamo.eval_frame": "explain export optimize optimize_assert replay run reset "
    "reset_recompile_user_contexts set_recursion_limit",
    "flambeau._dynamo.backends.registry": "list_backends lookup_backend register_backend",
    "flambeau._dynamo.decorators": "allow_c_slot disable_nested_graph_breaks disallow_in_graph "
    "dont_skip_tracing error_on_graph_break forbid_in_graph graph_break "
    "is_dynamo_disable_recursive mark_dynamic mark_static mark_static_address maybe_mark_dynamic "
    "mark_unbacked nonstrict_trace override_cudagraphs override_optimization_hint "
    "patch_dynamo_config skip_frame step_unsupported",
}
_NAMES = {name: module for module, names in _SOURCES.items() for name in names.split()}
_PARTS = ("backends", "compiled_autograd", "config", "decorators", "eval_frame", "exc",
          "external_utils", "testing", "utils", "bytecode_debugger")  # fmt: skip

__all__ = [*_NAMES, "bytecode_debugger", "config"]

__getattr__ = _missing.getter(__name__, _NAMES, _PARTS)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_PARTS})
