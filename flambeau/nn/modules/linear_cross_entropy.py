"""`LinearCrossEntropyLoss`: the last layer of a classifier and its loss, in one."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.functional_linear_cross_entropy import LinearCrossEntropyOptions
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.loss import _WeightedLoss

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of a linear layer's results, which are never stored.

    Args:
        in_features: width E of a sample.
        num_classes: number of classes C.
        out_features: dimensions of a sample's losses.
        bias: whether the layer has one.
        reduction, weight, ignore_index, label_smoothing, options: as `F.linear_cross_entropy`.

    Shape: `(E)` or `(N, E)`, and classes `(N, *out_features)` or probabilities
    `(N, C, *out_features)`. The layer's weight is `(C * prod(out_features), E)`.

    Example:
        >>> loss = nn.LinearCrossEntropyLoss(8, 1000)
        >>> loss(torch.zeros(3, 8), torch.tensor([5, 0, 999]))
        tensor(6.9078, grad_fn=<LinearCrossEntropyBackward0>)
    """

    __constants__ = ["num_classes", "out_features", "reduction", "ignore_index", "label_smoothing"]

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        super().__init__(weight, None, None, reduction)
        rows = num_classes
        for size in out_features:
            rows *= size
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.in_features, self.num_classes = in_features, num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options

    def forward(self, input: Any, target: Any) -> Any:
        """`F.linear_cross_entropy`."""
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """The arguments."""
        names = ("in_features", *self.__constants__, "options")
        bias = self.linear.bias is not None
        parts = [f"{name}={getattr(self, name)}" for name in names]
        return ", ".join([*parts[:3], f"bias={bias}", *parts[3:]])
