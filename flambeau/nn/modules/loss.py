"""Losses as modules. Each calls the function of its name in `nn.functional`.

`size_average` and `reduce` are PyTorch's old way to say `reduction`; they are turned into it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.distance import PairwiseDistance
from flambeau.nn.modules.module import Module

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """The `reduction` that the old arguments mean."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    name = "none" if not reduce else ("mean" if size_average else "sum")
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.",
        stacklevel=4,
    )
    return name


class _Loss(Module):
    """A loss with a reduction.

    Args:
        size_average, reduce: deprecated; see `reduction`.
        reduction: "mean", "sum" or "none".
    """

    __constants__ = ["reduction"]
    reduction: str

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        old = size_average is not None or reduce is not None
        self.reduction = reduction_of(size_average, reduce) if old else reduction


class _WeightedLoss(_Loss):
    """A loss with a weight per class.

    Args:
        weight: the weights, a buffer of the module; others as `_Loss`.
    """

    weight: Any

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """|input - target|.

    Example:
        >>> nn.L1Loss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.5000)
    """

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.l1_loss`."""
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target)^2.

    Example:
        >>> nn.MSELoss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(2.5000)
    """

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.mse_loss`."""
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Squared below `beta`, absolute above.

    Args:
        beta: where it changes.

    Example:
        >>> nn.SmoothL1Loss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.smooth_l1_loss`."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squared below `delta`, linear with slope `delta` above (Huber 1964).

    Example:
        >>> nn.HuberLoss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.)
    """

    __constants__ = ["reduction", "delta"]

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.huber_loss`."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """-input at the target class; the input holds log probabilities.

    Args:
        weight: per class.
        ignore_index: a target that counts nothing.

    Example:
        >>> nn.NLLLoss()(torch.tensor([[-0.5, -2.0]]), torch.tensor([1]))
        tensor(2.)
    """

    __constants__ = ["ignore_index", "reduction"]

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.nll_loss`."""
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """`NLLLoss` under its older name."""


class CrossEntropyLoss(_WeightedLoss):
    """Negative log softmax at the target class, or against target probabilities.

    Args:
        weight: per class.
        ignore_index: a target class that counts nothing.
        label_smoothing: fraction of the target spread evenly over all classes.

    Shape: `(N, C, *)` and classes `(N, *)` or probabilities `(N, C, *)`.

    Example:
        >>> nn.CrossEntropyLoss()(torch.zeros(1, 4), torch.tensor([2]))
        tensor(1.3863)
    """

    __constants__ = ["ignore_index", "reduction", "label_smoothing"]

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.cross_entropy`."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of Poisson counts.

    Args:
        log_input: the input is the logarithm of the rate.
        full: add Stirling's term.
        eps: keeps the logarithm finite (log_input=False).

    Example:
        >>> nn.PoissonNLLLoss()(torch.zeros(2), torch.ones(2))
        tensor(1.)
    """

    __constants__ = ["log_input", "full", "eps", "reduction"]

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Any, target: Any) -> Any:
        """`F.poisson_nll_loss`."""
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Negative log likelihood of normal targets with given variances.

    Args:
        full: add the constant term.
        eps: least variance.

    Example:
        >>> nn.GaussianNLLLoss()(torch.zeros(2), torch.ones(2), torch.ones(2))
        tensor(0.5000)
    """

    __constants__ = ["full", "eps", "reduction"]

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Any, target: Any, var: Any) -> Any:  # noqa: A002
        """`F.gaussian_nll_loss`."""
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence; the input holds log probabilities.

    Args:
        log_target: the target does, too.

    Example:
        >>> nn.KLDivLoss(reduction="sum")(torch.zeros(2), torch.ones(2))
        tensor(0.)
    """

    __constants__ = ["reduction"]

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.kl_div`."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities.

    Args:
        weight: per element of a batch.

    Example:
        >>> nn.BCELoss()(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.binary_cross_entropy`."""
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of sigmoid(input), computed without overflow.

    Args:
        weight: per element of a batch.
        pos_weight: weight of positive targets, per class.

    Example:
        >>> nn.BCEWithLogitsLoss()(torch.zeros(2), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """

    weight: Any
    pos_weight: Any

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.binary_cross_entropy_with_logits`."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class HingeEmbeddingLoss(_Loss):
    """x where the target is 1, max(0, margin - x) where it is -1.

    Example:
        >>> nn.HingeEmbeddingLoss()(torch.tensor([0.5, 0.5]), torch.tensor([1.0, -1.0]))
        tensor(0.5000)
    """

    __constants__ = ["margin", "reduction"]

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.hinge_embedding_loss`."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Hinge loss of several classes per sample.

    Example:
        >>> nn.MultiLabelMarginLoss()(torch.tensor([[0.1, 0.2, 0.4]]), torch.tensor([[2, -1, 0]]))
        tensor(0.5000)
    """

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.multilabel_margin_loss`."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy per class, averaged over classes.

    Args:
        weight: per class.

    Example:
        >>> nn.MultiLabelSoftMarginLoss()(torch.zeros(1, 3), torch.ones(1, 3))
        tensor(0.6931)
    """

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.multilabel_soft_margin_loss`."""
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)).

    Example:
        >>> nn.SoftMarginLoss()(torch.zeros(2), torch.tensor([1.0, -1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.soft_margin_loss`."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1.

    Example:
        >>> nn.CosineEmbeddingLoss()(torch.ones(1, 2), torch.ones(1, 2), torch.tensor([-1.0]))
        tensor(1.)
    """

    __constants__ = ["margin", "reduction"]

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """`F.cosine_embedding_loss`."""
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin).

    Example:
        >>> nn.MarginRankingLoss()(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]))
        tensor(2.)
    """

    __constants__ = ["margin", "reduction"]

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """`F.margin_ranking_loss`."""
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """Hinge loss of one class per sample.

    Args:
        p: exponent, 1 or 2.
        margin: how much better the target class must be.
        weight: per class.

    Example:
        >>> nn.MultiMarginLoss()(torch.tensor([[0.1, 0.2, 0.4]]), torch.tensor([2]))
        tensor(0.5000)
    """

    __constants__ = ["p", "margin", "reduction"]

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(problem("MultiMarginLoss", "only p == 1 and p == 2 supported", "p=1"))
        if weight is not None and weight.dim() != 1:
            text = f"weight must be 1-dimensional, got {weight.dim()} dimensions"
            raise ValueError(problem("MultiMarginLoss", text, "one weight per class"))
        self.p = p
        self.margin = margin

    def forward(self, input: Any, target: Any) -> Any:  # noqa: A002
        """`F.multi_margin_loss`."""
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    Args:
        margin: how much farther the negative must be.
        p, eps: of the distance.
        swap: use d(positive, negative) where it is smaller.

    Example:
        >>> nn.TripletMarginLoss()(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))
        tensor(1.)
    """

    __constants__ = ["margin", "p", "eps", "swap", "reduction"]

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            text = f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead"
            raise ValueError(problem("TripletMarginLoss", text, "margin=1.0"))
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """`F.triplet_margin_loss`."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance.

    Args:
        distance_function: of two tensors; `PairwiseDistance()` when None.
        margin, swap: as in `TripletMarginLoss`.
    """

    __constants__ = ["margin", "swap", "reduction"]

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average=None, reduce=None, reduction=reduction)
        if margin <= 0:
            text = f"expected margin to be greater than 0, got {margin} instead"
            name = "TripletMarginWithDistanceLoss"
            raise ValueError(problem(name, f"{name}: {text}", "margin=1.0"))
        self.distance_function = (
            distance_function if distance_function is not None else PairwiseDistance()
        )
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """`F.triplet_margin_with_distance_loss`."""
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification (Graves et al. 2006).

    Args:
        blank: index of the blank label.
        zero_infinity: zero infinite losses and their gradients.
    """

    __constants__ = ["blank", "reduction"]

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        """`F.ctc_loss`."""
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
