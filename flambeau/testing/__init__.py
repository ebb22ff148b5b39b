"""`torch.testing`: `assert_close` and `make_tensor`."""

from flambeau.testing.comparison import assert_close
from flambeau.testing.creation import make_tensor

__all__ = ["assert_close", "make_tensor"]
