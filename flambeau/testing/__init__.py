"""`torch.testing`: `assert_close` and `make_tensor`."""

from flambeau.runtime import missing as _missing
from flambeau.testing.comparison import assert_close
from flambeau.testing.creation import make_tensor

__all__ = ["assert_close", "make_tensor"]

# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
