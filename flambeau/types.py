"""`torch.types`: names for annotations."""

import os
from collections.abc import Sequence
from typing import IO, TypeAlias

from flambeau import Size, Tensor, device, dtype, layout
from flambeau.nested.ragged import SymInt
from flambeau.storage import UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage = UntypedStorage

IntLikeType: TypeAlias = int | SymInt
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool
py_sym_types = (SymInt,)
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_dtype, _device, _layout = dtype, device, layout
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_int, _float, _bool, _complex = int, float, bool, complex
_symint: TypeAlias = IntLikeType
