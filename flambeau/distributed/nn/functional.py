"""`torch.distributed.nn.functional`: exchanges between processes with gradients, which raise."""

from __future__ import annotations

import flambeau.distributed.nn as _nn

globals().update(_nn._functions)

__all__ = [*_nn._functions]  # noqa: PLE0604 - names of this module
