"""`torch.distributed.tensor.experimental` in a build without communication."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed.tensor", RuntimeError, "this build has no distributed back end yet")
_functions = _absent.refusals("context_parallel local_map register_sharding")
globals().update(_functions)

__all__ = [*_functions, "implicit_replication"]


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors count as replicated; there are no others."""
    yield


globals()["__getattr__"] = _missing.getter(__name__)
