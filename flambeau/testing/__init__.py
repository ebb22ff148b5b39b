"""`torch.testing`: `assert_close`, `make_tensor`, checks of printed text."""

from flambeau.runtime import missing as _missing
from flambeau.testing.comparison import assert_close
from flambeau.testing.creation import make_tensor

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]

_LAZY = {
    "FileCheck": "flambeau.testing.file_check",
    "assert_allclose": "flambeau.testing.older",
}
# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__, _LAZY)
