"""Instance normalisation (Ulyanov et al. 2016): each channel of each sample over its positions."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    """The base of the three ranks; `_unbatched` is the rank of one sample."""

    _unbatched: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _check_input_dim(self, input: Any) -> None:
        allowed = (self._unbatched, self._unbatched + 1)
        if input.dim() not in allowed:
            text = f"expected {allowed[0]}D or {allowed[1]}D input (got {input.dim()}D input)"
            raise ValueError(problem(type(self).__name__, text, "reshape the input"))

    def forward(self, input: Any) -> Any:
        """Normalises; a missing batch dimension is added and removed again."""
        self._check_input_dim(input)
        channel = input.dim() - self._unbatched
        if input.size(channel) != self.num_features:
            sizes = f"input's size at dim={channel} does not match num_features"
            if self.affine:
                text = f"expected input's size at dim={channel} to match num_features"
                text += f" ({self.num_features}), but got: {input.size(channel)}."
                raise ValueError(problem(type(self).__name__, text, "change num_features"))
            warnings.warn(
                f"{sizes}. Since affine=False, num_features is not used in the normalization "
                "process. You can safely ignore this warning.",
                stacklevel=2,
            )
        if channel == 0:
            return self._normalise(input.unsqueeze(0)).squeeze(0)
        return self._normalise(input)

    def _normalise(self, input: Any) -> Any:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of `(N, C, L)` or `(C, L)`.

    Args:
        num_features: channels C.
        eps: added to the variance.
        momentum: weight of a new batch in the running statistics.
        affine: whether there are weight and bias.
        track_running_stats: whether there are running statistics, for evaluation.

    Example:
        >>> nn.InstanceNorm1d(4, device="meta")(torch.ones(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 9])
    """

    _unbatched = 2


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of `(N, C, H, W)` or `(C, H, W)`; arguments as `InstanceNorm1d`.

    Example:
        >>> nn.InstanceNorm2d(4, device="meta")(torch.ones(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 9, 9])
    """

    _unbatched = 3


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of `(N, C, D, H, W)` or `(C, D, H, W)`; arguments as `InstanceNorm1d`.

    Example:
        >>> nn.InstanceNorm3d(4, device="meta")(torch.ones(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 5, 5, 5])
    """

    _unbatched = 4


class _LazyInstanceNorm(_LazyNormBase, _InstanceNorm):
    """An instance norm that learns `num_features` from its first input, batched or not."""

    def _features(self, input: Any) -> int:
        return int(input.shape[input.dim() - self._unbatched])


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An `InstanceNorm1d` that learns `num_features` from its first input.

    Other arguments as there, but `affine` and `track_running_stats` are True.

    Example:
        >>> nn.LazyInstanceNorm1d()(torch.ones(2, 4, 9)).shape
        torch.Size([2, 4, 9])
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An `InstanceNorm2d` that learns `num_features` from its first input.

    Other arguments as there, but `affine` and `track_running_stats` are True.

    Example:
        >>> nn.LazyInstanceNorm2d()(torch.ones(2, 4, 9, 9)).shape
        torch.Size([2, 4, 9, 9])
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An `InstanceNorm3d` that learns `num_features` from its first input.

    Other arguments as there, but `affine` and `track_running_stats` are True.

    Example:
        >>> nn.LazyInstanceNorm3d()(torch.ones(2, 4, 5, 5, 5)).shape
        torch.Size([2, 4, 5, 5, 5])
    """

    cls_to_become = InstanceNorm3d
