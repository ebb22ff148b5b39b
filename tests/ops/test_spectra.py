"""Eigenvalues and singular values where matrices are not generic: of low rank, graded, tiny."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

CASES = {
    "ones": lambda m, n, r: np.ones((m, n)),
    "zeros": lambda m, n, r: np.zeros((m, n)),
    "half the rank": lambda m, n, r: (
        r.standard_normal((m, max(1, n // 2))) @ r.standard_normal((max(1, n // 2), n))
    ),
    "generic": lambda m, n, r: r.standard_normal((m, n)),
    "graded": lambda m, n, r: r.standard_normal((m, n)) * 10.0 ** -np.linspace(0, 6, n),
    "diagonal": lambda m, n, r: np.eye(m, n) * r.integers(0, 3, n),
    "tiny": lambda m, n, r: r.standard_normal((m, n)) * 1e-34,
}
DTYPES = ["float32", "float64", "complex64", "complex128"]


def _matrix(kind, m, n, dtype):
    generator = np.random.default_rng(m + n)
    x = CASES[kind](m, n, generator)
    if dtype.startswith("complex"):
        x = x * np.exp(1j * generator.standard_normal((m, 1)))
    return x.astype(dtype)


def _close(found, expected, size):
    """Within a few roundings per element that a result is made of."""
    epsilon = np.finfo(found.dtype).eps
    assert np.abs(found - expected).max(initial=0) <= 8 * epsilon * size


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_values(kind, dtype):
    for m, n in ((1, 1), (5, 2), (2, 5), (20, 20), (33, 17), (70, 70)):
        x = _matrix(kind, m, n, dtype)
        u, s, vh = (v.numpy() for v in torch.linalg.svd(torch.from_numpy(x), full_matrices=True))
        k, scale = min(m, n), max(np.abs(x).max(), np.finfo(x.dtype).tiny)
        assert (np.diff(s) <= 0).all() and (s >= 0).all()
        _close((u[:, :k] * (s / scale)) @ vh[:k], x / scale, m + n)
        _close(u.conj().T @ u, np.eye(m), m + n)
        _close(vh @ vh.conj().T, np.eye(n), m + n)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues(kind, dtype):
    for n in (1, 2, 20, 64):
        x = _matrix(kind, n, n, dtype)
        x = (x + x.conj().T) / 2
        w, q = (v.numpy() for v in torch.linalg.eigh(torch.from_numpy(x)))
        scale = max(np.abs(x).max(), np.finfo(x.dtype).tiny)
        assert (np.diff(w) >= 0).all()
        _close((q * (w / scale)) @ q.conj().T, x / scale, 2 * n)
        _close(q.conj().T @ q, np.eye(n), 2 * n)
