"""What `torch.compile` accepts as `mode` and `options`: names, types, and which of them tune.

Options are permissions that PyTorch's compiler takes. Those below are known by name and type; the
ones in `_TUNING` change how kernels are chosen here. The others name freedoms that this compiler
has always taken (fusion, planned memory) or never takes (fast mathematics), so that accepting them
changes no result.
"""

from __future__ import annotations

from typing import Any

MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
_TUNING = ("max_autotune", "max_autotune_gemm")
_BOOLS = (
    "max_autotune max_autotune_pointwise max_autotune_gemm allow_buffer_reuse aggressive_fusion "
    "alignment_asserts batch_fusion batch_invariant benchmark_fusion benchmark_kernel "
    "combo_kernels comment_origin comprehensive_padding conv_1x1_as_mm coordinate_descent_tuning "
    "cpp_wrapper dce debug debug_fusion deterministic epilogue_fusion epilogue_fusion_first "
    "fallback_random force_fuse_int_mm_with_mul freezing freezing_discard_parameters "
    "fx_graph_cache graph_partition group_fusion implicit_fallbacks inplace_buffers "
    "joint_graph_constant_folding keep_output_stride layout_optimization "
    "loop_ordering_after_fusion memory_planning nan_asserts pattern_matcher permute_fusion "
    "pick_loop_orders prologue_fusion profile_bandwidth reorder_for_locality "
    "reorder_for_peak_memory scalar_asserts shape_padding size_asserts split_reductions "
    "use_fast_math use_mixed_mm verbose_progress cpp.dynamic_threads cpp.enable_kernel_profile "
    "cpp.weight_prepack trace.enabled trace.graph_diagram triton.cudagraphs "
    "triton.cudagraph_trees triton.unique_kernel_names triton.persistent_reductions "
    "triton.autotune_pointwise"
).split()
_INTS = (
    "autotune_num_choices_displayed compile_threads kernel_name_max_ops max_fusion_size "
    "max_pointwise_cat_inputs realize_opcount_threshold realize_reads_threshold cpp.threads "
    "cpp.min_chunk_size triton.max_tiles"
).split()
_STRINGS = (
    "max_autotune_gemm_backends max_autotune_gemm_search_space disabled_passes worker_start_method"
).split()
TYPES: dict[str, type] = {
    **dict.fromkeys(_BOOLS, bool),
    **dict.fromkeys(_INTS, int),
    **dict.fromkeys(_STRINGS, str),
}


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
    return mode in _TUNED_MODES


def _option_tunes(options: dict[str, Any]) -> bool:
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise TypeError(
            f"[compile] options is not a dict of named values: {options!r}\n"
            "hint: options={'max_autotune': True}"
        )
    values = {name.replace("-", "_"): value for name, value in options.items()}
    for name, value in values.items():
        expected = TYPES.get(name)
        if expected is None:
            raise RuntimeError(
                f"[compile] unexpected optimization option {name}\n"
                f"hint: known options are {', '.join(sorted(TYPES))}"
            )
        if type(value) is not expected:
            raise RuntimeError(
                f"[compile] unexpected type of option {name}, got {type(value).__name__} should "
                f"be {expected.__name__}\nhint: options={{{name!r}: {expected()!r}}}"
            )
    return any(values.get(name, False) for name in _TUNING)
