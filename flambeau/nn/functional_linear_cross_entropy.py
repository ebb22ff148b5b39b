"""`linear_cross_entropy` as a function: the operator, and PyTorch's options of its chunks.

The operator (`ops/neural/linear_cross_entropy.py`) never stores logits and has every gradient, so
there is nothing to choose; options are checked and change nothing. Part of `nn.functional`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau import _core
from flambeau.language.definition import REGISTRY
from flambeau.nn.messages import problem

_NAME = "LinearCrossEntropyOptions"
_POLICIES = ("accurate", "balanced", "compact", "auto")
_FLOATS = (None, _core.float16, _core.bfloat16, _core.float32, _core.float64)


@dataclass
class LinearCrossEntropyOptions:
    """How PyTorch cuts `linear_cross_entropy` into chunks; here blocks have one size.

    Args:
        allow_retain_graph: whether gradients may be computed twice; here they always may.
        batch_chunk_size: samples of a chunk.
        chunking_method: "auto", "aspect_ratio:<number>" or None.
        acc_policy: "accurate", "balanced", "compact" or "auto".
        acc_dtype: of sums; here float32 (float64 for float64).

    Raises:
        ValueError: an argument is not one of these.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if self.acc_policy not in _POLICIES:
            self._refuse(f"invalid acc_policy: {self.acc_policy!r}", f"one of {_POLICIES}")
        if size is not None and (not isinstance(size, int) or size <= 0):
            self._refuse(f"batch_chunk_size must be positive int or None, got {size}", "or None")
        if method not in (None, "auto") and not _is_ratio(method):
            self._refuse(f"invalid chunking_method: {method!r}", "'auto' or 'aspect_ratio:2'")
        if self.acc_dtype not in _FLOATS:
            self._refuse(f"acc_dtype must be None or floating, got {self.acc_dtype}", "None")

    @staticmethod
    def _refuse(text: str, hint: str) -> None:
        raise ValueError(problem(_NAME, text, hint))


def _is_ratio(method: str) -> bool:
    name, _, number = method.partition(":")
    return name == "aspect_ratio" and number.replace(".", "", 1).isdigit()


def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Any:
    """cross_entropy(linear(input, linear_weight, linear_bias), target), its logits never stored.

    Shape: `(E)` or `(N, E)`, `(C, *, E)`; targets are classes `(N, *)` or probabilities
    `(N, C, *)`. Memory grows with N and C, not with their product.

    Args:
        linear_bias: `(C, *)`.
        weight, reduction, label_smoothing: as `cross_entropy`.
        ignore_index: a class that counts nothing; -100 when None.
        options: of PyTorch's chunks; changes nothing.

    Raises:
        IndexError: a class is outside [0, C), found when the call runs.
        RuntimeError: shapes or dtypes do not fit, or `ignore_index` beside probabilities.

    Example:
        >>> x, head = torch.zeros(3, 8), torch.zeros(1000, 8)
        >>> F.linear_cross_entropy(x, head, torch.tensor([5, 0, 999]))
        tensor(6.9078)
    """
    return REGISTRY["private._linear_cross_entropy"].native(
        input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction,
        ignore_index=ignore_index, label_smoothing=label_smoothing,
    )  # fmt: skip


__all__ = ["LinearCrossEntropyOptions", "linear_cross_entropy"]
