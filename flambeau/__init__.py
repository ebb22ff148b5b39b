"""Flambeau: PyTorch's public API over one small compiler. `import flambeau as torch`."""

import gc as _gc
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
from flambeau.core import install as _installer
from flambeau.core import tensor as _tensor
from flambeau.core.install import namespace as _namespace
from flambeau.ir.lock import late as _late
from flambeau.language import dtypes as _dtypes
from flambeau.language.dtypes import get_default_dtype, set_default_dtype

for _ir_name, _public in _dtypes.PUBLIC_NAMES.items():
    globals()[_public] = _dtypes.DTYPE_OBJECTS[_ir_name]
for _public, _second in _dtypes.ALIASES.items():
    globals()[_second] = globals()[_public]

_installer.use_driver(lambda: _late("flambeau.driver.dispatch").builder)
_installer.install()
_tensor.install()
# When this process had read nothing yet: a source that is younger may not be what is running.
_began = _time.time_ns() - _time.process_time_ns()
globals().update(_namespace("torch"))
# Collections, also the one at the exit, read every object that may be part of a cycle: not those of
# the package, which live as long as the process.
if _gc.isenabled():
    _gc.freeze()
newaxis = None
legacy_contiguous_format = contiguous_format

# Loaded on first access, so that `import flambeau` loads operators only.
_LAZY = {
    "AcceleratorError": "flambeau.runtime.errors",
    "Event": "flambeau.runtime.streams",
    "OutOfMemoryError": "flambeau.runtime.errors",
    "Stream": "flambeau.runtime.streams",
    "SymBool": "flambeau.runtime.symbolic",
    "SymFloat": "flambeau.runtime.symbolic",
    "SymInt": "flambeau.runtime.symbolic",
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

_GROUPS = {
    "flambeau.jit": "CompilationUnit ScriptFunction ScriptModule fork wait",
    "flambeau.jit.mobile": "LiteScriptModule",
    "flambeau.jit.native_types": "AnyType AwaitType BoolType ClassType ComplexType DeviceObjType "
    "DictType EnumType FloatType FutureType InferredType IntType InterfaceType ListType NoneType "
    "NumberType OptionalType PyObjectType RRefType StreamObjType StringType SymBoolType SymIntType "
    "TensorType TupleType Type UnionType unify_type_list",
    "flambeau._C.native_names": "AVG AggregationType AliasDb ArgumentSpec BenchmarkConfig "
    "BenchmarkExecutionStats Block BufferDict CallStack Capsule Code CompleteArgumentSpec "
    "ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext "
    "DispatchKey DispatchKeySet ErrorReport ExecutionPlan FatalError Gradient Graph "
    "GraphExecutorState IODescriptor JITException LockingLogger LoggerBase ModuleDict Node "
    "NoopLogger OperatorInfo ParameterDict PyTorchFileReader PyTorchFileWriter SUM ScriptClass "
    "ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptList "
    "ScriptListIterator ScriptMethod ScriptModuleSerializer ScriptObject ScriptObjectProperty "
    "SerializationStorageContext QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage "
    "QUInt8Storage StaticModule TracingState Use Value compiled_with_cxx11_abi "
    "get_file_path import_ir_module import_ir_module_from_buffer init_num_threads "
    "is_vulkan_available merge_type_from_type_comment parse_ir parse_schema parse_type_comment "
    "sym_constrain_range sym_constrain_range_for_size sym_fresh_size",
    "flambeau.runtime.foreign_operators": "batch_norm_backward_elemt batch_norm_backward_reduce "
    "batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats "
    "choose_qparams_optimized cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution "
    "cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose "
    "cudnn_grid_sampler cudnn_is_acceptable dequantize empty_quantized fbgemm_linear_fp16_weight "
    "fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight "
    "fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight "
    "fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix fused_moving_avg_obs_fake_quant "
    "int_repr miopen_batch_norm miopen_convolution miopen_convolution_add_relu "
    "miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss "
    "miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution "
    "mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer "
    "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine "
    "per_tensor_symmetric q_per_channel_axis q_per_channel_scales q_per_channel_zero_points "
    "q_scale q_zero_point qscheme quantize_per_channel quantize_per_tensor "
    "quantize_per_tensor_dynamic quantized_batch_norm quantized_gru quantized_gru_cell "
    "quantized_lstm quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d "
    "quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell",
    "flambeau._higher_order_ops": "cond while_loop",
    "flambeau.fake_quantize": "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine",
    "flambeau.futures": "Future",
    "flambeau.private_operators": "_cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half "
    "_cast_Int _cast_Long _cast_Short _sample_dirichlet _shape_as_tensor",
    "flambeau.testing": "FileCheck",
    "flambeau.utils.throughput_benchmark": "ThroughputBenchmark",
    "flambeau.library.schemas": "Argument FunctionSchema",
    "flambeau.random": "thread_safe_generator",
    "flambeau._C": "DisableTorchFunction DisableTorchFunctionSubclass ExcludeDispatchKeyGuard "
    "StorageBase cpp",
    "flambeau._core": "bits16 bits1x8 bits2x4 bits4x2 bits8 int1 int2 int3 int4 int5 int6 int7 "
    "qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
}
_LAZY.update({_each: _home for _home, _names in _GROUPS.items() for _each in _names.split()})

# Private modules of PyTorch that other packages import.
_PRIVATE = frozenset(
    {
        "_C",
        "__config__",
        "__future__",
        "_custom_ops",
        "_decomp",
        "_dynamo",
        "_functorch",
        "_guards",
        "_higher_order_ops",
        "_inductor",
        "_jit_internal",
        "_lobpcg",
        "_logging",
        "_lowrank",
        "_prims",
        "_prims_common",
        "_refs",
        "_subclasses",
        "_tensor",
        "_tensor_str",
        "_utils",
        "_vmap_internals",
    }
)


def __getattr__(name: str) -> object:
    """Names of `_LAZY`, then submodules (`nn`, `optim`, `linalg` ...)."""
    if name in _LAZY:
        value: object = getattr(_late(_LAZY[name]), name)
    elif name == "torch":  # a program that imports PyTorch's modules sees its name among them
        value = _late("flambeau")
    elif name == "bit":
        value = _core.uint1
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
    """Loads the stream compiler when the first recorded region needs it."""
    compiler = _late("flambeau.capture.stream").compile_stream
    _core.set_stream_compiler(compiler)
    return compiler(*arguments)


_core.set_stream_compiler(_compile_stream)

if _os.environ.get("TORCH_LOGS"):
    _late("flambeau.runtime.logs").switch_by_environment()
