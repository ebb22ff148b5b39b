"""Names that pickles give to classes and functions: PyTorch's, whatever ours are.

A file names `torch.nn.modules.linear.Linear`, so that PyTorch can read it. `resolve` finds ours
for such a name, `name_of` the name to write for one of ours. Three tables hold what differs in more
than the package's name: functions that rebuild tensors, classes that PyTorch defines elsewhere, and
what does not exist here.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import _core
from flambeau.ir.dtypes import ROWS
from flambeau.ir.lock import importing, late
from flambeau.ir.modules import module_of
from flambeau.language.dtypes import DTYPE_OBJECTS
from flambeau.serialization import rebuild

__all__: list[str] = []

_UTILS = (
    "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_meta_tensor_no_storage",
    "_rebuild_nested_tensor", "_rebuild_parameter", "_rebuild_parameter_with_state",
    "_rebuild_sparse_csr_tensor", "_rebuild_sparse_tensor", "_rebuild_tensor",
    "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_wrapper_subclass",
)  # fmt: skip
_NESTED = "torch.nested._internal.nested_tensor"
_MASKED = "torch.masked.maskedtensor.core"
FUNCTIONS: dict[tuple[str, str], Any] = {
    **{("torch._utils", name): getattr(rebuild, name) for name in _UTILS},
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild._rebuild_from_type_v2,
    ("torch.serialization", "_get_layout"): rebuild._get_layout,
    (_NESTED, "_rebuild_njt"): rebuild._rebuild_njt,
}
CLASSES: dict[tuple[str, str], Any] = {
    (_NESTED, "NestedTensor"): rebuild.JaggedTensor,
    (_MASKED, "MaskedTensor"): rebuild.MaskedTensor,
    ("torch._dynamo.decorators", "_DimRange"): rebuild.DimRange,
}
_BUILTIN_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_SIZES = ("1", "2", "3", "4", "5", "6", "7")
_ABSENT = {
    *("qint8", "quint8", "qint32", "quint4x2", "quint2x4"),
    *("QInt8Storage", "QUInt8Storage", "QInt32Storage", "QUInt4x2Storage", "QUInt2x4Storage"),
    *("per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric"),
    *("per_channel_affine_float_qparams", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"),
    *(f"{sign}int{size}" for sign in ("", "u") for size in _SIZES),
}


def is_ours(module: str) -> bool:
    """Whether a name belongs to PyTorch's package or to this one."""
    return module.partition(".")[0] in ("torch", "flambeau")


def canonical(module: str) -> str:
    """A module's name in files: PyTorch's for ours."""
    module = _BUILTIN_MODULES.get(module, module)
    if module == "flambeau" or module.startswith("flambeau."):
        return "torch" + module.removeprefix("flambeau")
    return module


def check_exists(module: str, name: str) -> None:
    """Raises NotImplementedError for what PyTorch has and this package has not."""
    absent = module == "torch" and name in _ABSENT
    if absent or (module, name) == ("torch._utils", "_rebuild_qtensor"):
        raise NotImplementedError(
            f"[load] {module}.{name}: quantized tensors and dtypes of bits are not supported\n"
            "hint: save dequantized tensors (x.dequantize()), or bits as uint8 (x.view)"
        )


# ------------------------------------------------------------------------------ reading
def _storage_types() -> dict[str, Any]:
    with importing:
        from flambeau.storage import STORAGE_TYPES

    return STORAGE_TYPES


def _constant(module: str, name: str) -> Any:
    """A dtype, storage type, tensor type, layout or memory format of `torch`, else None."""
    module = "torch" if module in ("torch.cuda", "torch.sparse", "torch.cuda.sparse") else module
    if module == "torch.storage" and name in ("UntypedStorage", "TypedStorage"):
        return getattr(late("flambeau.storage"), name)
    if module != "torch":
        return None
    if name.endswith("Storage"):
        return _storage_types().get(name)
    if name.endswith("Tensor") and name != "Tensor":
        return late("flambeau.core.legacy").TENSOR_TYPES.get(name)
    constant = getattr(_core, name, None)
    return constant if isinstance(constant, (_core.dtype, _core.memory_format)) else None


def safe(module: str, name: str, check_key: Callable[[Any], None]) -> tuple[Any, Any] | None:
    """Returns the object that `weights_only` may use under a name, and the meaning of its calls, or
    None.

    Args:
        check_key: called with whatever is going to be hashed.

    Raises:
        NotImplementedError: PyTorch has it, and this package has not.
    """
    module = canonical(module)
    key = (module, name)
    if key in FUNCTIONS:
        return FUNCTIONS[key], FUNCTIONS[key]
    if key in CLASSES:
        return CLASSES[key], rebuild.DimRange if name == "_DimRange" else None
    check_exists(module, name)
    constant = _constant(module, name)
    if constant is not None:
        return constant, None
    builders = _builders(check_key)
    return builders.get(key)


def _builders(check_key: Callable[[Any], None]) -> dict[tuple[str, str], tuple[Any, Any]]:
    with importing:
        from flambeau.nn import parameter

    lazy = ("UninitializedParameter", "UninitializedBuffer")
    builders = {name: getattr(parameter, name) for name in lazy}
    mapping = rebuild.maker_of_mapping
    return {
        ("torch", "Size"): (_core.Size, rebuild.make_size),
        ("torch", "Tensor"): (_core.Tensor, None),
        ("torch", "device"): (_core.device, rebuild.make_device),
        ("torch.nn.parameter", "Parameter"): (parameter.Parameter, rebuild.make_parameter),
        **{
            ("torch.nn.parameter", name): (cls, rebuild.make_uninitialized(cls))
            for name, cls in builders.items()
        },
        ("_codecs", "encode"): (rebuild.encode, rebuild.encode),
        ("builtins", "bytearray"): (bytearray, rebuild.make_bytearray),
        ("builtins", "complex"): (complex, rebuild.make_complex),
        ("builtins", "set"): (set, rebuild.maker_of_set(check_key)),
        ("collections", "Counter"): (Counter, mapping(Counter, check_key)),
        ("collections", "OrderedDict"): (OrderedDict, mapping(OrderedDict, check_key)),
    }


def resolve(module: str, name: str) -> Any:
    """The class or function that one of PyTorch's names refers to in a trusted file.

    Raises:
        NotImplementedError: PyTorch has it, and this package has not.
        AttributeError, ModuleNotFoundError: there is no such name.
    """
    module = canonical(module)
    key = (module, name)
    special = FUNCTIONS.get(key) or CLASSES.get(key) or _constant(module, name)
    if special is not None:
        return special
    check_exists(module, name)
    if module == "torch._C" and name in ("_VariableFunctionsClass", "_VariableFunctions"):
        return sys.modules["flambeau"]
    module = _MOVED.get(key, module)
    own = _OWN_MODULES.get(module, "flambeau" + module.removeprefix("torch"))
    value: Any = importlib.import_module(own)
    for part in name.split("."):
        value = getattr(value, part)
    return value


# Modules that PyTorch has under other names.
_OWN_MODULES = {
    "torch._C._nn": "flambeau.nn.functional",
    "torch._tensor": "flambeau",
    "torch.torch_version": "flambeau.torch_version",
}
# Classes that PyTorch defines in other modules: its name to our module.
_MOVED = {
    ("torch.nn.modules.activation", "MultiheadAttention"): "torch.nn.modules.multihead",
    ("torch.nn.modules.container", "Container"): "torch.nn.modules.module",
    ("torch.nn.modules.loss", "LinearCrossEntropyLoss"): "torch.nn.modules.linear_cross_entropy",
    ("torch.nn.modules.module", "_WrappedHook"): "torch.nn.modules.state",
    ("torch.nn.parallel.data_parallel", "DataParallel"): "torch.nn.parallel",
    ("torch.utils.hooks", "RemovableHandle"): "torch.autograd.graph",
}
_MOVED_BACK = {(ours, name): theirs for (theirs, name), ours in _MOVED.items()}


# ------------------------------------------------------------------------------ writing
_WRITTEN: dict[int, tuple[str, str]] = {
    id(value): key for table in (FUNCTIONS, CLASSES) for key, value in table.items()
} | {id(DTYPE_OBJECTS[row.name]): ("torch", row.public) for row in ROWS}
_SPACES = ("torch.nn.functional", "torch", "torch.special", "torch.linalg", "torch.fft")


def name_of(value: Any, name: str | None = None) -> tuple[str, str] | None:
    """Module and name under which a file names one of ours; None for what is not ours."""
    if id(value) in _WRITTEN:
        return _WRITTEN[id(value)]
    module = getattr(value, "__module__", None)
    if isinstance(value, _core.memory_format):
        return "torch", str(value).removeprefix("torch.")
    name = name or getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str):
        return None
    if value is _core.UntypedStorage:
        return "torch.storage", "UntypedStorage"
    if value is _core.Generator:
        return "torch._C", "Generator"
    module = canonical(module_of(value))
    if not is_ours(module):
        return None if isinstance(module, str) and module else _public(value, name)
    if isinstance(value, type):
        return _MOVED_BACK.get((module, name), module), name
    return _public(value, name) or (module, name)


def _public(value: Any, name: str) -> tuple[str, str] | None:
    """A namespace of PyTorch's that has one of our functions under its name."""
    for space in _SPACES:
        own = sys.modules.get("flambeau" + space.removeprefix("torch"))
        if own is not None and getattr(own, name, None) is value:
            return space, name
    return None
