"""Softmax over many classes by clusters of rare ones (Grave et al., Efficient softmax, 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.container import ModuleList, Sequential
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_NAME = "AdaptiveLogSoftmaxWithLoss"


class _ASMoutput(NamedTuple):
    """The result of `AdaptiveLogSoftmaxWithLoss`.

    Attributes:
        output: (N) the log probability of each sample's class.
        loss: its negated mean.
    """

    output: Any
    loss: Any


def _check_cutoffs(cutoffs: list[Any], n_classes: int) -> None:
    text = ""
    if not cutoffs:
        text = "cutoffs should be a sequence of length larger than 0"
    elif (
        cutoffs != sorted(cutoffs)
        or min(cutoffs) <= 0
        or max(cutoffs) > n_classes - 1
        or len(set(cutoffs)) != len(cutoffs)
        or any(int(c) != c for c in cutoffs)
    ):
        text = (
            "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
            "order, where each value is between 1 and n_classes-1"
        )
    if text:
        raise ValueError(problem(_NAME, f"{text}, got {cutoffs}", "e.g. [100, 1000]"))


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over classes sorted by frequency, the rare ones in clusters of smaller layers.

    Args:
        in_features: size of a sample.
        n_classes: number of classes, the most frequent one first.
        cutoffs: where clusters begin; classes below the first one are in the head.
        div_value: each cluster's inner size is the one before, divided by this.
        head_bias: whether the head has a bias.

    Shape: `(N, in_features)` or `(in_features)`, targets `(N)` or `()`.

    Raises:
        ValueError: cutoffs that are not increasing, or beyond the classes.

    Example:
        >>> layer = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
        >>> layer(torch.ones(2, 4), torch.tensor([1, 8])).output.shape
        torch.Size([2])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        place = {"device": device, "dtype": dtype}
        super().__init__()
        cutoffs = list(cutoffs)
        _check_cutoffs(cutoffs, n_classes)
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i, (first, after) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            inner = int(in_features // div_value ** (i + 1))
            down = Linear(in_features, inner, bias=False, **place)
            self.tail.append(Sequential(down, Linear(inner, after - first, bias=False, **place)))

    def reset_parameters(self) -> None:
        """Draws all weights anew."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def _check(self, input: Any, target: Any) -> None:
        text = ""
        if target.dim() == 1 and (input.dim() != 2 or input.shape[0] != target.shape[0]):
            text = "input is (N, in_features) for (N) targets"
        elif target.dim() == 0 and input.dim() != 1:
            text = "input is (in_features) for one target"
        elif target.dim() > 1:
            text = "0D or 1D target tensor expected, multi-target not supported"
        if text:
            sizes = f"{tuple(input.shape)} and {tuple(target.shape)}"
            raise RuntimeError(problem(_NAME, f"{text}, got {sizes}", "one class per sample"))
        if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < self.n_classes:
            found = f"got values from {int(target.min())} to {int(target.max())}"
            text = f"Target values should be in [0, {self.n_classes - 1}], but {found}"
            raise RuntimeError(problem(_NAME, text, "classes"))

    def forward(self, input_: Any, target_: Any) -> _ASMoutput:
        """The log probability of each target, and their negated mean.

        Raises:
            RuntimeError: sizes that do not fit, or targets that are no classes.
        """
        input, target = input_, target_  # noqa: A001
        self._check(input, target)
        single = target.dim() == 0
        samples, classes = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
        head = F.log_softmax(self.head(samples), dim=1)
        places = classes.clamp(max=self.shortlist_size - 1)
        found = head.gather(1, places.unsqueeze(1)).squeeze(1)
        for i, (first, after) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            rows = ((classes >= first) & (classes < after)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            inside = F.log_softmax(self.tail[i](samples.index_select(0, rows)), dim=1)
            own = (classes.index_select(0, rows) - first).unsqueeze(1)
            cluster = head[:, self.shortlist_size + i].index_select(0, rows)
            found = found.index_copy(0, rows, inside.gather(1, own).squeeze(1) + cluster)
        output = found.squeeze(0) if single else found
        return _ASMoutput(output, -output.mean())

    def log_prob(self, input: Any) -> Any:
        """(N, n_classes): the log probability of every class."""
        return self._all(input, self.head(input))

    def _all(self, samples: Any, scores: Any) -> Any:
        head = F.log_softmax(scores, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            inside = F.log_softmax(cluster(samples), dim=1)
            parts.append(inside + head[:, self.shortlist_size + i].unsqueeze(1))
        return torch.cat(parts, 1)

    def predict(self, input: Any) -> Any:
        """(N): the most probable class of each sample; clusters are asked where they win."""
        scores = self.head(input)
        found = scores.argmax(dim=1)
        rows = (found >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            rest = self._all(input.index_select(0, rows), scores.index_select(0, rows))
            found = found.index_copy(0, rows, rest.argmax(dim=1))
        return found
