"""Random inputs of operators of one sparse tensor."""

from __future__ import annotations

from typing import Any

from flambeau.utils.benchmark.op_fuzzers import shapes
from flambeau.utils.benchmark.utils.fuzzer import Fuzzer

__all__ = ["UnaryOpSparseFuzzer"]


class UnaryOpSparseFuzzer(Fuzzer):
    """A sparse tensor of two or three dimensions.

    Args:
        seed: of the parameters.
        dtype: of the tensors.
        cuda: False.

    Example:
        >>> from flambeau.utils.benchmark.op_fuzzers.sparse_unary import UnaryOpSparseFuzzer
        >>> tensors, _, _ = next(UnaryOpSparseFuzzer(seed=0).take(1))
        >>> sorted(tensors)
        ['x']
    """

    def __init__(self, seed: int | None, dtype: Any = None, cuda: bool = False) -> None:
        super().__init__(**shapes.sparse("x", dtype, cuda), seed=seed)
