"""Random inputs of operators of two sparse tensors."""

from __future__ import annotations

from typing import Any

from flambeau.utils.benchmark.op_fuzzers import shapes
from flambeau.utils.benchmark.utils.fuzzer import Fuzzer

__all__ = ["BinaryOpSparseFuzzer"]


class BinaryOpSparseFuzzer(Fuzzer):
    """Two sparse tensors of one shape.

    Args:
        seed: of the parameters.
        dtype: of the tensors.
        cuda: False.

    Example:
        >>> from flambeau.utils.benchmark.op_fuzzers.sparse_binary import BinaryOpSparseFuzzer
        >>> tensors, _, _ = next(BinaryOpSparseFuzzer(seed=0).take(1))
        >>> sorted(tensors)
        ['x', 'y']
    """

    def __init__(self, seed: int | None, dtype: Any = None, cuda: bool = False) -> None:
        super().__init__(**shapes.sparse("x y", dtype, cuda), seed=seed)
