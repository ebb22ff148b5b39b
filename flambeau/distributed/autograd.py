"""`torch.distributed.autograd` in a build without communication: `is_available()` is False."""

from __future__ import annotations

from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed.autograd", RuntimeError, "this build has no distributed back end yet")
_functions = {
    **_absent.answers(is_available=False),
    **_absent.refusals("backward get_gradients"),
}
_types = _absent.types("DistAutogradContext context")
globals().update(_functions | _types)

__all__ = [*_functions, *_types]

globals()["__getattr__"] = _missing.getter(__name__)
