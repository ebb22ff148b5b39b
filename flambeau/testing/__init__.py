"""`torch.testing`: `assert_close`, `make_tensor`, checks of printed text."""

from flambeau.runtime import missing as _missing
from flambeau.testing.comparison import assert_close
from flambeau.testing.creation import make_tensor

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]

_LAZY = {
    "FileCheck": "flambeau.testing.file_check",
    "assert_allclose": "flambeau.testing.older",
}
# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__, _LAZY)
