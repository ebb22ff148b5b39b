"""Settings of symbolic sizes. They are stored only; the compiler handles sizes here."""

from __future__ import annotations

from enum import IntEnum

enrich_profiler_metadata = False
use_duck_shape = True
error_on_nested_fx_trace = True
skip_dtype_check_in_meta_registrations = False
translation_validation = False
translation_validation_timeout = 600_000
translation_validation_no_bisect = False
check_shape_env_recorded_events = False
print_data_dependent_failures = False
inject_EVALUATE_EXPR_flip_equality_TESTING_ONLY = False
validate_shape_env_version_key = False
symbol_guard_limit_before_specialize: int | None = None
extended_debug_guard_added: str | None = None
extended_debug_create_symbol: str | None = None
extended_debug_cpp = False
meta_nonzero_assume_all_nonzero = False
backed_size_oblivious = False
no_data_dependent_graph_break = False


class AggressiveGuardFreeMode(IntEnum):
    """How far guards are avoided."""

    DISABLED = 0
    SKIP_RANGE_ANALYSIS = 1
    SKIP_GUARDS = 2


aggressive_guard_free_semantics = AggressiveGuardFreeMode.DISABLED
