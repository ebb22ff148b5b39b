"""NumPy's functions on tensors: what `torch.compiler.wrap_numpy` and compiled NumPy code run.

An array (`arrays.ndarray`) has a tensor. NumPy's own functions hand calls with such arrays over, by
the protocols `__array_ufunc__` and `__array_function__`, and a table says what each is in operators
on tensors. A function without an entry runs as NumPy itself, on the tensor's memory.
"""

from __future__ import annotations

from flambeau._numpy.arrays import asarray, ndarray
from flambeau._numpy.calls import called, compiled, holds_arrays

__all__ = ["asarray", "called", "compiled", "holds_arrays", "ndarray"]
