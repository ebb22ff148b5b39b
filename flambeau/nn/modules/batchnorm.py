"""Batch normalisation (Ioffe and Szegedy 2015)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d",
    "LazyBatchNorm3d", "SyncBatchNorm",
]  # fmt: skip


class _NormBase(Module):
    """Statistics and affine parameters per channel; the base of batch and instance norm."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        weight = Parameter(torch.empty(num_features, **options)) if affine else None
        self.register_parameter("weight", weight)
        has_bias = affine and bias
        self.register_parameter(
            "bias", Parameter(torch.empty(num_features, **options)) if has_bias else None
        )
        tracked = track_running_stats
        self.register_buffer(
            "running_mean", torch.zeros(num_features, **options) if tracked else None
        )
        self.register_buffer(
            "running_var", torch.ones(num_features, **options) if tracked else None
        )
        counter = torch.tensor(0, dtype=torch.long, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", counter)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, statistics as at first."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Any) -> None:
        raise NotImplementedError(problem(type(self).__name__, "no input check", "define one"))

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:
            key = prefix + "num_batches_tracked"  # files of version 1 have no counter
            if key not in state_dict:
                counter = self.num_batches_tracked
                present = counter is not None and not counter.is_meta
                state_dict[key] = counter if present else torch.tensor(0, dtype=torch.long)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, over batch and positions."""

    def forward(self, input: Any) -> Any:
        """Normalises; when training it updates the running statistics."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # cumulative average
                factor = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        use_running = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if use_running else None,
            self.running_var if use_running else None,
            self.weight,
            self.bias,
            by_batch,
            factor,
            self.eps,
        )


def _expect(module: Module, input: Any, allowed: tuple[int, ...]) -> None:
    if input.dim() not in allowed:
        names = " or ".join(f"{d}D" for d in allowed)
        text = f"expected {names} input (got {input.dim()}D input)"
        raise ValueError(problem(type(module).__name__, text, "reshape the input"))


class BatchNorm1d(_BatchNorm):
    """Batch norm of `(N, C)` or `(N, C, L)`.

    Args:
        num_features: channels C.
        eps: added to the variance.
        momentum: weight of a new batch in the running statistics; None for a plain average.
        affine: whether there are weight and bias.
        track_running_stats: whether there are running statistics, for evaluation.

    Example:
        >>> nn.BatchNorm1d(4, device="meta")(torch.ones(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 9])
    """

    def _check_input_dim(self, input: Any) -> None:
        _expect(self, input, (2, 3))


class BatchNorm2d(_BatchNorm):
    """Batch norm of `(N, C, H, W)`; arguments as `BatchNorm1d`.

    Example:
        >>> nn.BatchNorm2d(4, device="meta")(torch.ones(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 9, 9])
    """

    def _check_input_dim(self, input: Any) -> None:
        _expect(self, input, (4,))


class BatchNorm3d(_BatchNorm):
    """Batch norm of `(N, C, D, H, W)`; arguments as `BatchNorm1d`.

    Example:
        >>> nn.BatchNorm3d(4, device="meta")(torch.ones(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 5, 5, 5])
    """

    def _check_input_dim(self, input: Any) -> None:
        _expect(self, input, (5,))


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm that learns `num_features` from its first input; put before the eager class."""

    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=bias)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = torch.tensor(0, dtype=torch.long, device=device)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, statistics as at first, once their size is known."""
        if self.num_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def _features(self, input: Any) -> int:
        """The channels of an input."""
        return int(input.shape[1])

    def initialize_parameters(self, input: Any) -> None:
        """Takes `num_features` from an input; what was loaded keeps its values."""
        self._check_input_dim(input)
        loaded = not self.has_uninitialized_params()
        if self.num_features != 0 and loaded:
            return
        self.num_features = self._features(input)
        if loaded:
            return
        for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A `BatchNorm1d` that learns `num_features` from its first input; other arguments as there.

    Example:
        >>> nn.LazyBatchNorm1d()(torch.ones(2, 4, 9)).shape
        torch.Size([2, 4, 9])
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A `BatchNorm2d` that learns `num_features` from its first input; other arguments as there.

    Example:
        >>> nn.LazyBatchNorm2d()(torch.ones(2, 4, 9, 9)).shape
        torch.Size([2, 4, 9, 9])
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A `BatchNorm3d` that learns `num_features` from its first input; other arguments as there.

    Example:
        >>> nn.LazyBatchNorm3d()(torch.ones(2, 4, 5, 5, 5)).shape
        torch.Size([2, 4, 5, 5, 5])
    """

    cls_to_become = BatchNorm3d


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics are those of all processes; of one process, plain batch norm.

    Args:
        process_group: the processes; the default group when None.

    Example:
        >>> nn.SyncBatchNorm(4)(torch.ones(2, 4, 5)).shape
        torch.Size([2, 4, 5])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            text = f"expected at least 2D input (got {input.dim()}D input)"
            raise ValueError(problem("SyncBatchNorm", text, "a batch and channels come first"))

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replaces every batch norm in a module by one of this class with the same tensors.

        Args:
            module: changed in place, and returned unless it is a batch norm itself.
            process_group: of the new modules.

        Example:
            >>> m = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(2)))
            >>> type(m[0]).__name__
            'SyncBatchNorm'
        """
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls._from(module, process_group)
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted

    @classmethod
    def _from(cls, module: Any, process_group: Any) -> Module:
        """A module of this class with the parameters and buffers of another batch norm."""
        bias = module.bias is not None
        result: Any = cls(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_group,
            bias=bias,
        )
        if module.affine:
            result.weight, result.bias = module.weight, module.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(result, name, getattr(module, name))
        result.training = module.training
        if hasattr(module, "qconfig"):
            result.qconfig = module.qconfig
        return result
