"""`torch.cuda.amp.autocast`, and decorators: older names of those of `torch.amp`."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.amp import autocast_mode
from flambeau.language.dtypes import DTYPE_OBJECTS

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(autocast_mode.autocast):  # noqa: N801 - PyTorch's name
    """Deprecated: `torch.amp.autocast("cuda", ...)`."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: Any = DTYPE_OBJECTS["f16"],
        cache_enabled: bool = True,
    ) -> None:
        text = (
            "`torch.cuda.amp.autocast(args...)` is deprecated. "
            "Please use `torch.amp.autocast('cuda', args...)` instead."
        )
        warnings.warn(text, FutureWarning, stacklevel=2)
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """Deprecated: `torch.amp.custom_fwd(args..., device_type="cuda")`."""
    _warn("custom_fwd")
    return autocast_mode.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """Deprecated: `torch.amp.custom_bwd(args..., device_type="cuda")`."""
    _warn("custom_bwd")
    return autocast_mode.custom_bwd(bwd, device_type="cuda")


def _warn(name: str) -> None:
    text = (
        f"`torch.cuda.amp.{name}(args...)` is deprecated. "
        f"Please use `torch.amp.{name}(args..., device_type='cuda')` instead."
    )
    warnings.warn(text, FutureWarning, stacklevel=3)
