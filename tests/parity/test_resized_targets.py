"""Strides of `out=` tensors: of resized ones, and of ones whose shape is right, beside PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

# Calls by the dtypes of their results: f float32, i int32, l int64, c complex64.
ON_SQUARES = {
    "f": """L.cholesky(A); L.inv(A); L.pinv(A); t.inverse(A); t.cholesky_inverse(A);
        L.matrix_power(A, -1); L.matrix_power(A, 1); L.matrix_power(A, 0); t.matrix_power(A, 3);
        L.eigvalsh(A); L.svdvals(A); L.det(A); L.cond(A); L.matrix_norm(A); L.norm(A); t.norm(A);
        t.cholesky(A); L.matmul(A, A); L.solve(A, A); L.solve(A, A, left=False);
        L.solve_triangular(A, A, upper=True); L.solve_triangular(A, A, upper=True, left=False);
        t.cholesky_solve(A, A); t.kron(A, A); t.frobenius_norm(A, (0, 1));
        t.frobenius_norm(A, (0, 1), True); t.nuclear_norm(A); t.nuclear_norm(A, True);
        t.nuclear_norm(A, (0, 1))""",
    "l": "L.matrix_rank(A)",
    "c": "L.eigvals(A)",
    "fi": """L.cholesky_ex(A); L.inv_ex(A); L.solve_ex(A, A); L.lu_factor(A); L.ldl_factor(A);
        t.lu(A)""",
    "fii": "L.lu_factor_ex(A); L.ldl_factor_ex(A)",
    "fff": "L.lu(A); L.svd(A); t.svd(A); L.svd(A, False)",
    "ff": """L.qr(A); t.qr(A); L.qr(A, 'r'); L.qr(A, 'complete'); t.geqrf(A); L.eigh(A);
        L.slogdet(A); t.slogdet(A); t.triangular_solve(A, A)""",
    "cc": "L.eig(A)",
    "fflf": "L.lstsq(A, A)",
}
ON_OTHERS = {
    "f": """L.svdvals(tall); L.pinv(wide); L.lu_solve(m, p, right); t.lu_solve(right, m, p);
        L.lu_solve(m, p, m, left=False); L.ldl_solve(m, p, right); L.solve(batch, right);
        L.householder_product(tall, v); t.orgqr(tall, v); t.ormqr(tall, v, tall);
        t.ormqr(m, v, m, left=False); L.tensorinv(cube, 2); L.tensorinv(m, 1);
        L.tensorsolve(cube, right.t()); t.outer(v, v); t.inner(m, m); t.addmm(turned, m, m);
        t.add(turned, turned); t.mul(turned, m); t.exp(turned); t.where(turned > 0, turned, turned);
        t.clamp(turned, 0, 1); t.sum(turned, 0); t.cumsum(turned, 0); t.cat([turned, turned]);
        t.stack([turned, turned]); t.tril(turned); t.gather(turned, 0, i);
        t.softmax(turned, 0); t.pow(turned, 2); t.addcmul(turned, turned, turned);
        t.norm(turned, 2, 0); t.sigmoid(turned); t.lerp(turned, turned, .5)""",
    "fff": "t.lu_unpack(m, p); L.lu(tall); L.svd(wide); L.svd(tall, False); t.svd(wide)",
    "fi": "L.lu_factor(tall); L.lu_factor(wide)",
    "ff": "L.qr(tall); L.qr(wide, 'r'); L.qr(tall, 'complete'); t.geqrf(tall); t.geqrf(wide)",
    "fflf": "L.lstsq(wide, wide); L.lstsq(wide, wide, driver='gelsd')",
}
DTYPES = {"f": "float32", "i": "int32", "l": "int64", "c": "complex64"}
SIZES = {"empty": (0,), "smaller": (2,), "larger": (2, 7, 7)}


def operands(t):
    m = t.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
    tall = t.tensor([[1.0, 2, 0], [3, 1, 1], [0, 2, 5], [1, 1, 1]])
    return {
        "t": t, "L": t.linalg, "m": m, "batch": t.stack([m, 2 * m]), "tall": tall,
        "wide": tall.t().contiguous(), "right": t.arange(6.0).reshape(3, 2), "turned": m.t(),
        "p": t.tensor([1, 2, 3], dtype=t.int32), "v": t.tensor([0.5, 0.3, 0.2]),
        "cube": t.eye(6).reshape(2, 3, 6), "i": t.zeros(3, 3, dtype=t.int64).t(),
    }  # fmt: skip


def calls():
    for table, squares in ((ON_SQUARES, ("m", "batch")), (ON_OTHERS, ("",))):
        for dtypes, text in table.items():
            for call in text.split(";"):
                for name in squares:
                    yield " ".join(call.split()).replace("A", name), dtypes


def targets(t, results, dtypes, kind):
    if kind in SIZES:
        return [t.empty(SIZES[kind], dtype=getattr(t, DTYPES[x])) for x in dtypes]
    if kind == "contiguous":
        return [t.empty(tuple(x.shape), dtype=x.dtype) for x in results]
    return [t.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype) for x in results]


def strides(t, call, dtypes, kind):
    """Shapes and strides that the targets have afterwards."""
    names = operands(t)
    results = eval(call, dict(names))
    outs = targets(t, [results] if len(dtypes) == 1 else results, dtypes, kind)
    names["outs"] = outs[0] if len(dtypes) == 1 else tuple(outs)
    eval(f"{call[:-1]}, out=outs)", names)
    return [(list(x.shape), list(x.stride())) for x in outs]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*SIZES, "contiguous", "as results"])
def test_strides(kind):
    wrong = []
    for call, dtypes in calls():
        theirs, ours = (strides(t, call, dtypes, kind) for t in (torch, flambeau))
        if theirs != ours:
            wrong.append((call, theirs, ours))
    assert not wrong
