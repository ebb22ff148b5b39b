"""Programs of NumPy's functions: of the module, and of two matrices, a vector and integers."""

from __future__ import annotations

from typing import Any

import numpy as np


def operands() -> tuple[Any, ...]:
    """Two matrices, a positive vector, integers, a mask, a positive definite matrix."""
    draw = np.random.default_rng(3)
    a, b = draw.normal(size=(2, 4, 3))
    n = draw.integers(-3, 6, (4, 3))
    square = draw.normal(size=(3, 3))
    return a, b, np.abs(draw.normal(size=3)) + 0.1, n, a > 0, square @ square.T + np.eye(3)


UNARY = (
    "negative positive absolute fabs sign sqrt square cbrt reciprocal exp exp2 expm1 log log2 "
    "log10 log1p sin cos tan arctan sinh cosh tanh arcsinh floor ceil trunc rint isnan isinf "
    "isfinite signbit degrees radians deg2rad rad2deg logical_not conjugate"
).split()
BINARY = (
    "add subtract multiply divide true_divide floor_divide remainder mod fmod arctan2 hypot "
    "maximum minimum fmax fmin equal not_equal less less_equal greater greater_equal logical_and "
    "logical_or logical_xor copysign nextafter logaddexp logaddexp2 heaviside float_power"
).split()
INTEGER = "bitwise_and bitwise_or bitwise_xor left_shift gcd lcm add multiply floor_divide".split()
REDUCTIONS = (
    "sum prod mean std var max min amax amin argmax argmin any all median ptp cumsum cumprod "
    "count_nonzero nansum nanmean nanmax nanmin average diff sort argsort"
).split()


def programs() -> dict[str, Any]:
    """name: a function of the module `np` and the operands."""
    cases: dict[str, Any] = {}
    for name in UNARY:
        cases[name] = lambda np, a, b, v, *_, name=name: getattr(np, name)(v)
    for name in ("arcsin", "arccos", "arctanh"):
        cases[name] = lambda np, a, b, v, *_, name=name: getattr(np, name)(np.tanh(v))
    cases["arccosh"] = lambda np, a, b, v, *_: np.arccosh(v + 1)
    for name in BINARY:
        cases[name] = lambda np, a, b, *_, name=name: getattr(np, name)(np.abs(a), b)
    for name in INTEGER:
        cases[f"{name} of integers"] = lambda np, a, b, v, n, *_, name=name: getattr(np, name)(
            np.abs(n), np.abs(n.T.reshape(4, 3))
        )
    for name in REDUCTIONS:
        cases[name] = lambda np, a, *_, name=name: getattr(np, name)(a)
        cases[f"{name} along"] = lambda np, a, *_, name=name: getattr(np, name)(a, axis=1)
        if name not in ("average", "diff", "sort", "argsort", "median", "ptp"):
            cases[f"{name} of integers"] = lambda np, a, b, v, n, *_, name=name: getattr(np, name)(
                n, axis=0
            )
    return cases | FURTHER


FURTHER = {
    "operators": lambda np, a, b, *_: -a + b * 2 - a / 3 + (a**2) % 0.7 + (a // 0.3) - abs(b),
    "reflected": lambda np, a, *_: 1 - a + 2 / (a + 9) + 3 ** np.tanh(a) + (7 // (a + 8)),
    "comparisons": lambda np, a, b, *_: (a < b) & ~(a == b) | (a >= 0.5) ^ (b != a),
    "in place": lambda np, a, b, *_: _written(np, a, b),
    "divmod": lambda np, a, b, *_: divmod(a, b + 5)[0],
    "matrix product": lambda np, a, b, *_: a.T @ b,
    "dtypes": lambda np, a, b, v, n, m, s: (n + m) * np.float32(2) + n.astype(np.float32) / 2,
    "integer mean": lambda np, a, b, v, n, *_: n.mean(axis=0) + n.sum() + (n > 1).sum(),
    "power of integers": lambda np, a, b, v, n, *_: n**2 + n**3.0,
    "division by zero": lambda np, a, b, v, n, *_: np.abs(n) // np.maximum(n, 0),
    "clip": lambda np, a, *_: (
        np.clip(a, -0.5, 0.5) + a.clip(0, None) + np.clip(a, a_min=0, a_max=1)
    ),
    "where": lambda np, a, b, v, n, m, s: (
        np.where(m, a, 0) + np.where(a > b, a, b) + np.where(m)[0][0]
    ),
    "round": lambda np, a, *_: np.round(a, 1) + a.round() + np.around(a, 2),
    "shapes": lambda np, a, *_: a.reshape(2, -1).T.ravel()[::2] + a.flatten()[:6],
    "transpose": lambda np, a, b, *_: np.transpose(a) + a.transpose(1, 0) + b.swapaxes(0, 1),
    "moveaxis": lambda np, a, *_: np.moveaxis(a[None], 0, 2) + np.rollaxis(a[None], 1)[:, :1].mT,
    "axes": lambda np, a, *_: (
        np.expand_dims(a, (0, 2)).squeeze(0) + a[:, None] + np.squeeze(a[None])[:, np.newaxis]
    ),
    "joined": lambda np, a, b, *_: np.concatenate([a, b]).sum(0) + np.stack((a, b), 1).sum((0, 1)),
    "stacked": lambda np, a, b, *_: (
        np.vstack((a, b))[:4]
        + np.hstack((a, b))[:, 3:]
        + np.dstack((a, b))[..., 1]
        + np.column_stack((a[:, 0], b[:, :2]))
    ),
    "split": lambda np, a, *_: (
        sum(np.split(a, 2))
        + np.array_split(a, 3)[0]
        + np.vsplit(a, 2)[1]
        + np.hsplit(np.hstack((a, a)), 2)[0][:2]
    ),
    "append": lambda np, a, b, *_: np.append(a, b) + np.append(a, b, axis=0).ravel(),
    "tile": lambda np, a, *_: (
        np.tile(a, (1, 2)) + np.repeat(a, 2, axis=1) + np.repeat(a, 2).reshape(4, 6)
    ),
    "flip": lambda np, a, *_: (
        np.flip(a) + np.fliplr(a) + np.flipud(a) + np.roll(a, 1, 0) + np.roll(a, 2) + np.rot90(a, 2)
    ),
    "broadcast": lambda np, a, b, v, *_: (
        np.broadcast_to(v, (4, 3)) + np.broadcast_arrays(a, v)[1] + np.atleast_2d(v)
    ),
    "pad": lambda np, a, b, v, *_: np.pad(a, 1) + np.pad(a, ((0, 2), (1, 1)), constant_values=2.5),
    "like": lambda np, a, b, v, n, *_: (
        np.zeros_like(a) + np.ones_like(n) + np.full_like(a, 3) + np.empty_like(a).ndim
    ),
    "created": lambda np, a, *_: (
        a
        + np.zeros((4, 3))
        + np.arange(3)
        + np.linspace(0, 1, 3)
        + np.ones(3, dtype=np.float32)
        + np.eye(4, 3)
    ),
    "constants": lambda np, a, *_: (
        a * np.pi + np.float64(2) + np.array([1, 2, 3]) + np.asarray([1.0, 2, 3])
    ),
    "triangles": lambda np, a, b, v, n, m, s: (
        np.tril(s) + np.triu(s, 1) + np.diag(np.diag(s)) + np.diagflat(v)
    ),
    "trace": lambda np, a, b, v, n, m, s: np.trace(s) + s.trace() + np.diagonal(s).sum(),
    "meshgrid": lambda np, a, b, v, *_: (
        sum(np.meshgrid(v, v + 1)) + np.meshgrid(v, v, indexing="ij")[0]
    ),
    "slices": lambda np, a, *_: a[1:, ::2] + a[:-1, [0, 2]] + a[::-1][:3, :2] + a[..., -1:][:3],
    "negative steps": lambda np, a, *_: a[::-2, ::-1] + a[-1:0:-2, 2::-1],
    "masks": lambda np, a, b, v, n, m, s: np.sort(a[m]) * 2 + a[a > 0].sum(),
    "index arrays": lambda np, a, b, v, n, m, s: (
        a[np.abs(n[:, 0]) % 4, np.arange(4) % 3] + a[np.array([0, 1, 2, 3]), 0]
    ),
    "written elements": lambda np, a, b, v, n, m, s: _assigned(np, a, v, m),
    "take": lambda np, a, *_: (
        np.take(a, [0, -1], axis=0)
        + a.take([1, 2], 0)
        + np.take_along_axis(a, np.argsort(a, 0), 0)[:2]
    ),
    "nonzero": lambda np, a, b, v, n, m, s: (
        np.argwhere(m).sum(0) + len(np.nonzero(m)) + np.flatnonzero(m)[0]
    ),
    "searchsorted": lambda np, a, b, v, *_: (
        np.searchsorted(np.sort(v), a) + np.searchsorted(np.sort(v), v, side="right")
    ),
    "unique": lambda np, a, b, v, n, *_: np.unique(n),
    "isin": lambda np, a, b, v, n, *_: np.isin(n, [1, 2, 3]),
    "sort": lambda np, a, *_: (
        np.sort(a, axis=None).reshape(4, 3) + np.sort(a, 0) + np.argsort(a, axis=0)
    ),
    "quantile": lambda np, a, *_: (
        np.quantile(a, 0.3, axis=0)
        + np.percentile(a, 70, axis=0)
        + np.median(a, axis=0)
        + np.quantile(a, 0.25)
    ),
    "average": lambda np, a, b, v, *_: (
        np.average(a, axis=1, weights=v) + np.average(a, weights=np.abs(a))
    ),
    "statistics": lambda np, a, *_: (
        a.std(axis=0, ddof=1) + a.var(axis=0, keepdims=True)[0] + a.mean((0, 1)) + np.ptp(a, axis=0)
    ),
    "keepdims": lambda np, a, *_: (
        a
        - a.max(axis=1, keepdims=True)
        + np.sum(a, axis=0, keepdims=True)
        + a.prod(axis=1, keepdims=True)
    ),
    "cumulative": lambda np, a, *_: (
        a.cumsum(0) + np.cumprod(a, axis=1) + np.add.accumulate(a) + np.diff(a, axis=0).sum()
    ),
    "reduce": lambda np, a, *_: (
        np.add.reduce(a)
        + np.maximum.reduce(a)
        + np.multiply.reduce(a, axis=0)
        + np.logical_or.reduce(a > 0)
    ),
    "outer ufunc": lambda np, a, b, v, *_: np.add.outer(v, v) + np.multiply.outer(v, v),
    "nan": lambda np, a, *_: (
        np.nan_to_num(np.where(a > 1, np.nan, a)) + np.isnan(np.where(a > 1, np.nan, a))
    ),
    "nan sums": lambda np, a, *_: (
        np.nansum(np.where(a > 0.5, np.nan, a), axis=0)
        + np.nanmean(np.where(a > 0.5, np.nan, a), axis=0)
        + np.nanmax(np.where(a > 0.5, np.nan, a))
    ),
    "isclose": lambda np, a, b, *_: np.isclose(a, a + 1e-9) & ~np.isclose(a, b),
    "decisions": lambda np, a, b, *_: a if np.allclose(a, a) and not np.array_equal(a, b) else b,
    "dot": lambda np, a, b, v, *_: np.dot(a, v) + a.dot(v) + np.inner(a, v) + np.vdot(a, b) + a @ v,
    "outer": lambda np, a, b, v, *_: np.outer(v, v) + np.kron(v, v)[:3] + np.cross(v, v + 1),
    "tensordot": lambda np, a, b, *_: np.tensordot(a, b, axes=([0], [0])) + np.tensordot(a.T, b, 1),
    "einsum": lambda np, a, b, *_: (
        np.einsum("ij,ik->jk", a, b) + np.einsum("ij->j", a) + np.einsum("ij,ij", a, b)
    ),
    "inverse": lambda np, a, b, v, n, m, s: (
        np.linalg.inv(s) + np.linalg.pinv(s) + np.linalg.matrix_power(s, 2)
    ),
    "solve": lambda np, a, b, v, n, m, s: np.linalg.solve(s, v) + np.linalg.solve(s, a.T)[:, 0],
    "determinant": lambda np, a, b, v, n, m, s: np.linalg.det(s) + np.linalg.slogdet(s)[1],
    "norms": lambda np, a, b, v, *_: (
        np.linalg.norm(a)
        + np.linalg.norm(v, 1)
        + np.linalg.norm(a, axis=1)
        + np.linalg.norm(v, np.inf)
    ),
    "eigenvalues": lambda np, a, b, v, n, m, s: (
        np.linalg.eigvalsh(s) + np.linalg.eigh(s).eigenvalues
    ),
    "factors": lambda np, a, b, v, n, m, s: np.linalg.cholesky(s) + np.abs(np.linalg.qr(s).R),
    "singular values": lambda np, a, *_: (
        np.linalg.svd(a, compute_uv=False) + np.linalg.svd(a, full_matrices=False).S
    ),
    "covariance": lambda np, a, *_: np.cov(a) + np.corrcoef(a),
    "fourier": lambda np, a, b, v, *_: (
        np.abs(np.fft.fft(a))
        + np.fft.ifft(np.fft.fft(a)).real
        + np.fft.irfft(np.fft.rfft(a, axis=1), 3, axis=1)
        + np.abs(np.fft.fft2(a))
    ),
    "complex": lambda np, a, b, *_: (
        np.abs(a + 1j * b) + (a + 1j * b).imag + np.angle(a + 1j * b) + np.conj(a + 1j * b).real
    ),
    "attributes": lambda np, a, *_: (
        a * a.ndim + a.size + a.shape[0] + a.nbytes + a.itemsize + len(a) + a.T.shape[1]
    ),
    "half": lambda np, a, *_: np.sin(a.astype(np.float16)) + a.astype("float16").sum(),
    "short integers": lambda np, a, b, v, n, *_: (
        n.astype(np.int8).sum() + np.sqrt(n.astype(np.int16) ** 2) + n.astype(np.uint8).mean()
    ),
    "rows": lambda np, a, *_: (
        np.stack([row * k for k, row in enumerate(a)]).sum(0) + max(float(x) for x in a[0])
    ),
    "items": lambda np, a, *_: (
        a * a[0, 0].item() + float(a[1, 1]) + int(a.shape[1]) + a.tolist()[0][0]
    ),
    "normalized": lambda np, a, *_: (a - a.mean(0)) / (a.std(0) + 1e-5),
    "softmax": lambda np, a, *_: (
        np.exp(a - a.max(1, keepdims=True))
        / np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True)
    ),
}


def _written(np: Any, a: Any, b: Any) -> Any:
    a = a.copy()
    a += b
    a[1] *= 2
    np.multiply(a, b, out=a)
    a.fill(a[0, 0])
    view = a[:2]
    view -= 1
    return a


def _assigned(np: Any, a: Any, v: Any, m: Any) -> Any:
    a = a.copy()
    a[0] = v
    a[1, ::-1] = v
    a[m] = 0
    a[2, 1] = 7
    a[:, 0] = np.arange(4)
    return a


# Programs of functions without a translation: they run as NumPy itself.
UNTRANSLATED: dict[str, Any] = {
    "interp": lambda np, a, b, v, *_: np.interp(a, [0, 1], [2, 3]),
    "histogram": lambda np, a, *_: np.histogram(a, bins=4)[0],
    "select": lambda np, a, b, *_: np.select([a > 0, b > 0], [a, b], 0),
    "insert": lambda np, a, *_: np.insert(a, 1, 0.0, axis=0),
    "delete": lambda np, a, *_: np.delete(a, 1, axis=0),
    "spacing": lambda np, a, *_: np.spacing(a),
    "method": lambda np, a, *_: a.partition(2) or a,
    "least squares": lambda np, a, b, *_: np.linalg.lstsq(a, b, rcond=None)[0],
    "where of ufuncs": lambda np, a, *_: np.add(a, 1, where=np.asarray(a > 0), out=a.copy()),
    "float16 linear algebra": lambda np, a, *_: np.linalg.norm(a.astype(np.float32)),
    "unsigned": lambda np, a, b, v, n, *_: np.abs(n).astype(np.uint32) + np.uint32(1),
    "dates": lambda np, a, *_: a + len(np.array(["2024-01-01"], dtype="datetime64[D]")),
}
