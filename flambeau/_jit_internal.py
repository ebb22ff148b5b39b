"""`torch._jit_internal`: marks of functions for `torch.jit`, under PyTorch's private module."""

from __future__ import annotations

from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: UP035 - PyTorch's names

from flambeau.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from flambeau.jit.markers import (
    _drop,
    _overload,
    _overload_method,
    boolean_dispatch,
    export,
    ignore,
    is_scripting,
    unused,
)
from flambeau.jit.markers import copy_to_script_wrapper as _copy_to_script_wrapper
from flambeau.jit.script_types import qualified_name as _qualified_name

__all__ = [
    "Any",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Dict",
    "Final",
    "List",
    "Optional",
    "Tuple",
    "Union",
    "_copy_to_script_wrapper",
    "_drop",
    "_overload",
    "_overload_method",
    "_qualified_name",
    "boolean_dispatch",
    "export",
    "ignore",
    "is_scripting",
    "unused",
]
