"""`torch.onnx`: names that packages read when they register their own exports; export raises."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from flambeau.onnx import errors, symbolic_helper
from flambeau.onnx.errors import OnnxExporterError
from flambeau.runtime import missing as _missing

__all__ = [
    "OnnxExporterError",
    "OperatorExportTypes",
    "TensorProtoDataType",
    "TrainingMode",
    "dynamo_export",
    "errors",
    "export",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
    "select_model_mode_for_export",
    "symbolic_helper",
    "unregister_custom_op_symbolic",
]

_HINT = "hint: save the weights by torch.save or as safetensors and export them under PyTorch"


class TensorProtoDataType(enum.IntEnum):
    """Numbers of element types in ONNX files (the ONNX specification, `TensorProto.DataType`)."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20


class TrainingMode(enum.IntEnum):
    """The mode of a module while it is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.IntEnum):
    """The treatment of operators that ONNX lacks."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


_symbolics: dict[tuple[str, int], Any] = {}  # registered, by name and version


def is_in_onnx_export() -> bool:
    """Whether a model is being exported: never."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Stores a function that would write an operator into an ONNX file.

    Args:
        symbolic_name: "namespace::name".
        symbolic_fn: the function.
        opset_version: of ONNX's operators.
    """
    _symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forgets a function of `register_custom_op_symbolic`."""
    _symbolics.pop((symbolic_name, opset_version), None)


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"[onnx.{name}] models cannot be written as ONNX files\n{_HINT}")


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported.

    Raises:
        NotImplementedError: always.
    """
    _refuse("export")


def dynamo_export(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported.

    Raises:
        NotImplementedError: always.
    """
    _refuse("dynamo_export")


def select_model_mode_for_export(model: Any, mode: Any) -> NoReturn:
    """Not supported.

    Raises:
        NotImplementedError: always.
    """
    _refuse("select_model_mode_for_export")


globals()["__getattr__"] = _missing.getter(
    __name__, submodules=["symbolic_opset9", "symbolic_opset11", "symbolic_opset12"]
)
