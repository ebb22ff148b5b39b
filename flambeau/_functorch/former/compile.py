"""`functorch.compile`: graphs of forward and backward, ahead of time, under their former home."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau._functorch import config
from flambeau._functorch.aot_autograd import (
    aot_function,
    aot_module,
    aot_module_simplified,
    make_boxed_compiler,
    make_boxed_func,
)
from flambeau._functorch.compilers import nop, print_compile
from flambeau._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)
from flambeau.runtime import missing as _missing

__all__: Sequence[str] = [
    "aot_function", "aot_module", "aot_module_simplified", "config", "default_partition",
    "make_boxed_compiler", "make_boxed_func", "min_cut_rematerialization_partition", "nop",
    "print_compile",
]  # fmt: skip

globals()["__getattr__"] = _missing.getter(__name__)
