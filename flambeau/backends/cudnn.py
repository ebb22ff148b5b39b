"""`torch.backends.cudnn`: NVIDIA's library of layers, which this build does not call."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.backends.switches import Switches, install

__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]

set_flags, flags = install(
    __name__,
    enabled=True,
    benchmark=False,
    benchmark_limit=None,
    deterministic=False,
    allow_tf32=True,
    fp32_precision="none",
    depthwise_kernel="auto",
)
conv = Switches("backends.cudnn.conv", fp32_precision="tf32")
rnn = Switches("backends.cudnn.rnn", fp32_precision="tf32")


CUDNN_TENSOR_DTYPES = {_core.float16, _core.float32, _core.float64}


def is_available() -> bool:
    """False: this build has no cuDNN."""
    return False


def version() -> int | None:
    """None: this build has no cuDNN."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """False: no tensor is on a GPU."""
    return False
