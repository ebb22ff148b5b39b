"""`torch.cpu.amp.autocast`, the older name of `torch.amp.autocast("cpu", ...)`."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.amp import autocast_mode
from flambeau.language.dtypes import DTYPE_OBJECTS

__all__ = ["autocast"]


class autocast(autocast_mode.autocast):  # noqa: N801 - PyTorch's name
    """Deprecated: `torch.amp.autocast("cpu", ...)`."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: Any = DTYPE_OBJECTS["bf16"],
        cache_enabled: bool = True,
    ) -> None:
        text = (
            "`torch.cpu.amp.autocast(args...)` is deprecated. "
            "Please use `torch.amp.autocast('cpu', args...)` instead."
        )
        warnings.warn(text, FutureWarning, stacklevel=2)
        super().__init__("cpu", dtype, enabled, cache_enabled)
