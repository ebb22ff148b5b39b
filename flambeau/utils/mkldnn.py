"""`torch.utils.mkldnn`: layers in oneDNN's layout, which this build does not have."""

from __future__ import annotations

from typing import Any, NoReturn

import flambeau as torch

__all__ = [
    "MkldnnBatchNorm", "MkldnnConv1d", "MkldnnConv2d", "MkldnnConv3d", "MkldnnLinear",
    "MkldnnPrelu", "to_mkldnn",
]  # fmt: skip


def to_mkldnn(module: Any, dtype: Any = torch.float32) -> NoReturn:
    """Raises: tensors have no layout of oneDNN.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "[to_mkldnn] layers of the layout torch._mkldnn are not in Flambeau\n"
        "hint: torch.jit.freeze or torch.compile: layouts of weights are chosen by the compiler"
    )


class _Layer(torch.nn.Module):
    """A layer in oneDNN's layout.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, dense_module: Any, *options: Any) -> None:
        to_mkldnn(dense_module)


class MkldnnLinear(_Layer):
    """`Linear`; making one raises NotImplementedError."""


class MkldnnConv1d(_Layer):
    """`Conv1d`; making one raises NotImplementedError."""


class MkldnnConv2d(_Layer):
    """`Conv2d`; making one raises NotImplementedError."""


class MkldnnConv3d(_Layer):
    """`Conv3d`; making one raises NotImplementedError."""


class MkldnnBatchNorm(_Layer):
    """`BatchNorm2d`; making one raises NotImplementedError."""


class MkldnnPrelu(_Layer):
    """`PReLU`; making one raises NotImplementedError."""
