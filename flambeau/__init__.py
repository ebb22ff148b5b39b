"""Flambeau: PyTorch's public API over one small compiler. `import flambeau as torch`."""

import os as _os
import time as _time

if _os.environ.get("FLAMBEAU_NATIVE_DIR"):  # another build of the core, e.g. with sanitizers
    __path__.insert(0, _os.environ["FLAMBEAU_NATIVE_DIR"])

from flambeau import _core
from flambeau import ops as _ops  # noqa: F401 - defines every operator
from flambeau._core import (
    Generator,
    Size,
    Tensor,
    channels_last,
    channels_last_3d,
    contiguous_format,
    default_generator,
    device,
    dtype,
    finfo,
    get_default_device,
    get_num_threads,
    iinfo,
    jagged,
    layout,
    memory_format,
    preserve_format,
    set_default_device,
    set_num_threads,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from flambeau.core import dtypes as _dtypes
from flambeau.core import tensor as _tensor
from flambeau.core.dtypes import get_default_dtype, set_default_dtype
from flambeau.core.install import install as _install
from flambeau.core.install import namespace as _namespace
from flambeau.ir.lock import late as _late

for _ir_name, _public in _dtypes.PUBLIC_NAMES.items():
    globals()[_public] = _dtypes.DTYPE_OBJECTS[_ir_name]
for _public, _second in _dtypes.ALIASES.items():
    globals()[_second] = globals()[_public]

_install()
_tensor.install()
# When this process had read nothing yet: a source that is younger may not be what is running.
_began = _time.time_ns() - _time.process_time_ns()
globals().update(_namespace("torch"))
newaxis = None
legacy_contiguous_format = contiguous_format

# What a program may never touch is loaded when it asks: an import pays for operators only.
_LAZY = {
    "AcceleratorError": "flambeau.runtime.errors",
    "Event": "flambeau.runtime.streams",
    "OutOfMemoryError": "flambeau.runtime.errors",
    "Stream": "flambeau.runtime.streams",
    "SymBool": "flambeau.runtime.symbols",
    "SymFloat": "flambeau.runtime.symbols",
    "SymInt": "flambeau.nested.ragged",
    "Tag": "flambeau.runtime.tags",
    "get_device_module": "flambeau.runtime.streams",
    "__version__": "flambeau.torch_version",
    "compile": "flambeau.capture.regions",
    "e": "math",
    "enable_grad": "flambeau.autograd",
    "inf": "math",
    "nan": "math",
    "pi": "math",
    "inference_mode": "flambeau.autograd",
    "is_grad_enabled": "flambeau.autograd",
    "is_inference_mode_enabled": "flambeau.autograd",
    "load": "flambeau.serialization",
    "lobpcg": "flambeau.linalg.eigenpairs",
    "no_grad": "flambeau.autograd",
    "save": "flambeau.serialization",
    "hspmm": "flambeau.sparse",
    "set_grad_enabled": "flambeau.autograd",
    "smm": "flambeau.sparse",
    "sparse_bsc_tensor": "flambeau.sparse",
    "sparse_bsr_tensor": "flambeau.sparse",
    "sparse_compressed_tensor": "flambeau.sparse",
    "sparse_coo_tensor": "flambeau.sparse",
    "sparse_csc_tensor": "flambeau.sparse",
    "sparse_csr_tensor": "flambeau.sparse",
    "sspaddmm": "flambeau.sparse",
    "vmap": "flambeau.func",
    "are_deterministic_algorithms_enabled": "flambeau.runtime.switches",
    "get_deterministic_debug_mode": "flambeau.runtime.switches",
    "get_float32_matmul_precision": "flambeau.runtime.switches",
    "get_num_interop_threads": "flambeau.runtime.switches",
    "is_deterministic_algorithms_warn_only_enabled": "flambeau.runtime.switches",
    "is_warn_always_enabled": "flambeau.runtime.switches",
    "set_deterministic_debug_mode": "flambeau.runtime.switches",
    "set_float32_matmul_precision": "flambeau.runtime.switches",
    "set_flush_denormal": "flambeau.runtime.switches",
    "set_num_interop_threads": "flambeau.runtime.switches",
    "set_printoptions": "flambeau.core.printing",
    "set_warn_always": "flambeau.runtime.switches",
    "typename": "flambeau.runtime.switches",
    "use_deterministic_algorithms": "flambeau.runtime.switches",
    "has_lapack": "flambeau.version",
    "has_mkl": "flambeau.version",
    "has_openmp": "flambeau.version",
    "has_spectral": "flambeau.version",
    "dsmm": "flambeau.sparse.products",
    "hsmm": "flambeau.sparse.products",
    "spmm": "flambeau.sparse.products",
    "saddmm": "flambeau.sparse.products",
    "ccol_indices_copy": "flambeau.sparse.copies",
    "col_indices_copy": "flambeau.sparse.copies",
    "crow_indices_copy": "flambeau.sparse.copies",
    "indices_copy": "flambeau.sparse.copies",
    "native_norm": "flambeau.sparse.copies",
    "resize_as_sparse_": "flambeau.sparse.copies",
    "row_indices_copy": "flambeau.sparse.copies",
    "values_copy": "flambeau.sparse.copies",
    "FloatTensor": "flambeau.core.legacy",
    "DoubleTensor": "flambeau.core.legacy",
    "HalfTensor": "flambeau.core.legacy",
    "BFloat16Tensor": "flambeau.core.legacy",
    "ByteTensor": "flambeau.core.legacy",
    "CharTensor": "flambeau.core.legacy",
    "ShortTensor": "flambeau.core.legacy",
    "IntTensor": "flambeau.core.legacy",
    "LongTensor": "flambeau.core.legacy",
    "BoolTensor": "flambeau.core.legacy",
    "set_default_tensor_type": "flambeau.core.legacy",
    "FloatStorage": "flambeau.storage",
    "DoubleStorage": "flambeau.storage",
    "HalfStorage": "flambeau.storage",
    "BFloat16Storage": "flambeau.storage",
    "ByteStorage": "flambeau.storage",
    "CharStorage": "flambeau.storage",
    "ShortStorage": "flambeau.storage",
    "IntStorage": "flambeau.storage",
    "LongStorage": "flambeau.storage",
    "BoolStorage": "flambeau.storage",
    "ComplexFloatStorage": "flambeau.storage",
    "ComplexDoubleStorage": "flambeau.storage",
    "Storage": "flambeau.storage",
    "TypedStorage": "flambeau.storage",
    "UntypedStorage": "flambeau.storage",
    "is_storage": "flambeau.storage",
    "from_file": "flambeau.runtime.files",
    "to_dlpack": "flambeau.utils.dlpack",
    "is_anomaly_check_nan_enabled": "flambeau.autograd.anomaly",
    "is_anomaly_enabled": "flambeau.autograd.anomaly",
    "set_anomaly_enabled": "flambeau.autograd.anomaly",
    "gru": "flambeau.nn.functional_recurrent",
    "gru_cell": "flambeau.nn.functional_recurrent",
    "lstm": "flambeau.nn.functional_recurrent",
    "lstm_cell": "flambeau.nn.functional_recurrent",
    "rnn_relu": "flambeau.nn.functional_recurrent",
    "rnn_relu_cell": "flambeau.nn.functional_recurrent",
    "rnn_tanh": "flambeau.nn.functional_recurrent",
    "rnn_tanh_cell": "flambeau.nn.functional_recurrent",
    "sym_float": "flambeau.runtime.symbols",
    "sym_int": "flambeau.runtime.symbols",
    "sym_ite": "flambeau.runtime.symbols",
    "sym_max": "flambeau.runtime.symbols",
    "sym_min": "flambeau.runtime.symbols",
    "sym_not": "flambeau.runtime.symbols",
    "sym_sqrt": "flambeau.runtime.symbols",
    "sym_sum": "flambeau.runtime.symbols",
    "_assert": "flambeau.runtime.checks",
    "_assert_async": "flambeau.runtime.checks",
    "_check": "flambeau.runtime.checks",
    "_check_index": "flambeau.runtime.checks",
    "_check_is_size": "flambeau.runtime.checks",
    "_check_not_implemented": "flambeau.runtime.checks",
    "_check_tensor_all": "flambeau.runtime.checks",
    "_check_tensor_all_with": "flambeau.runtime.checks",
    "_check_type": "flambeau.runtime.checks",
    "_check_value": "flambeau.runtime.checks",
    "_check_with": "flambeau.runtime.checks",
    "autocast": "flambeau.amp.autocast_mode",
    "GradScaler": "flambeau.amp.grad_scaler",
    "_amp_foreach_non_finite_check_and_unscale_": "flambeau.amp.scaling",
    "_amp_update_scale_": "flambeau.amp.scaling",
    "autocast_decrement_nesting": "flambeau.amp.state",
    "autocast_increment_nesting": "flambeau.amp.state",
    "clear_autocast_cache": "flambeau.amp.state",
    "get_autocast_cpu_dtype": "flambeau.amp.state",
    "get_autocast_dtype": "flambeau.amp.state",
    "get_autocast_gpu_dtype": "flambeau.amp.state",
    "get_autocast_ipu_dtype": "flambeau.amp.state",
    "get_autocast_xla_dtype": "flambeau.amp.state",
    "is_autocast_cache_enabled": "flambeau.amp.state",
    "is_autocast_cpu_enabled": "flambeau.amp.state",
    "is_autocast_enabled": "flambeau.amp.state",
    "is_autocast_ipu_enabled": "flambeau.amp.state",
    "is_autocast_xla_enabled": "flambeau.amp.state",
    "set_autocast_cache_enabled": "flambeau.amp.state",
    "set_autocast_cpu_dtype": "flambeau.amp.state",
    "set_autocast_cpu_enabled": "flambeau.amp.state",
    "set_autocast_dtype": "flambeau.amp.state",
    "set_autocast_enabled": "flambeau.amp.state",
    "set_autocast_gpu_dtype": "flambeau.amp.state",
    "set_autocast_ipu_dtype": "flambeau.amp.state",
    "set_autocast_ipu_enabled": "flambeau.amp.state",
    "set_autocast_xla_dtype": "flambeau.amp.state",
    "set_autocast_xla_enabled": "flambeau.amp.state",
    "eig": "flambeau.runtime.removed",
    "lstsq": "flambeau.runtime.removed",
    "matrix_rank": "flambeau.runtime.removed",
    "solve": "flambeau.runtime.removed",
    "symeig": "flambeau.runtime.removed",
}

# Private modules of PyTorch that other packages import.
_PRIVATE = frozenset(
    {
        "_C",
        "__config__",
        "__future__",
        "_guards",
        "_jit_internal",
        "_lobpcg",
        "_logging",
        "_lowrank",
        "_subclasses",
        "_tensor_str",
        "_utils",
    }
)


def __getattr__(name: str) -> object:
    """Names of `_LAZY`, then submodules (`nn`, `optim`, `linalg` ...)."""
    if name in _LAZY:
        value: object = getattr(_late(_LAZY[name]), name)
    elif name.startswith("_") and name not in _PRIVATE:
        from flambeau.runtime import missing

        missing.refuse("flambeau", name)
    else:
        try:
            value = _late(f"flambeau.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"flambeau.{name}":
                raise
            from flambeau.runtime import missing

            missing.refuse("flambeau", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from flambeau.ir.modules import module_names

    return sorted({*globals(), *_LAZY, *module_names(__path__)})


def _compile_stream(*arguments: object) -> object:
    """Loads the stream compiler when a recorded region asks for it first."""
    regions = _late("flambeau.capture.regions")
    regions.install()
    return regions.stream.compile_stream(*arguments)


_core.set_stream_compiler(_compile_stream)
