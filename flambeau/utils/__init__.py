"""`torch.utils`: data loading, checkpointing, DLPack, nested structures, and small tools."""

from flambeau.runtime import missing as _missing
from flambeau.utils import checkpoint, data, deterministic, dlpack

__all__ = [
    "ThroughputBenchmark",
    "checkpoint",
    "cmake_prefix_path",
    "data",
    "deterministic",
    "dlpack",
    "generate_methods_for_privateuse1_backend",
    "get_cpp_backtrace",
    "rename_privateuse1_backend",
    "set_module",
    "swap_tensors",
]

_LAZY = {
    "ThroughputBenchmark": "flambeau.utils.throughput_benchmark",
    "cmake_prefix_path": "flambeau.utils.naming",
    "generate_methods_for_privateuse1_backend": "flambeau.utils.backend_registration",
    "get_cpp_backtrace": "flambeau.utils.naming",
    "rename_privateuse1_backend": "flambeau.utils.backend_registration",
    "set_module": "flambeau.utils.naming",
    "swap_tensors": "flambeau.utils.swapping",
}
_PARTS = (
    "_cxx_pytree",
    "_foreach_utils",
    "_ordered_set",
    "_python_dispatch",
    "_pytree",
    "backend_registration",
    "benchmark",
    "bundled_inputs",
    "collect_env",
    "cpp_backtrace",
    "cpp_extension",
    "cpp_extension",
    "flop_counter",
    "hooks",
    "mobile_optimizer",
    "model_zoo",
    "module_tracker",
    "tensorboard",
    "throughput_benchmark",
    "weak",
)
# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__, _LAZY, _PARTS)
