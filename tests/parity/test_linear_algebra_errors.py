"""Linear algebra on operands it does not take: PyTorch's exception type, or its success.

Every call is made with each of the operands named for its letters: wrong shapes, dtypes, empty
matrices and batches, singular, indefinite and not finite matrices. Of what succeeds shapes and
dtypes are compared, and the whole numbers (pivots, error numbers, ranks).
"""

from __future__ import annotations

import itertools
import re

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

nan, inf = float("nan"), float("inf")


def operands(t):
    """By name; m: matrices, v: vectors, p: pivots, s: scales of reflections."""
    positive = t.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
    damaged = positive.clone()
    damaged[1, 1] = nan
    pivots = t.tensor([1, 2, 3], dtype=t.int32)
    return {
        "t": t, "inf": inf, "m": positive, "general": t.tensor([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]]),
        "double": positive.double(), "complex": positive.to(t.complex64),
        "batch": t.stack([positive, positive * 2]), "three": t.stack([positive] * 3),
        "tall": t.tensor([[1.0, 2, 0], [3, 1, 1], [0, 2, 5], [1, 1, 1]]),
        "wide": t.tensor([[1.0, 2, 0, 1], [3, 1, 1, 1], [0, 2, 5, 1]]),
        "v": t.arange(3.0) + 1, "v4": t.arange(4.0) + 1, "number": t.tensor(2.0),
        "right": t.arange(6.0).reshape(3, 2) + 1, "empty": t.ones(0, 0), "none": t.ones(0),
        "no_rows": t.ones(0, 3), "no_columns": t.ones(3, 0), "empties": t.ones(2, 0, 0),
        "no_batch": t.ones(0, 3, 3), "integer": positive.long(), "bool_": positive.bool(),
        "half": positive.half(), "bfloat": positive.bfloat16(), "zero": t.zeros(3, 3),
        "singular": t.tensor([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]]),
        "indefinite": t.tensor([[1.0, 0, 0], [0, -1, 0], [0, 0, 1]]), "damaged": damaged,
        "both": t.stack([positive, t.zeros(3, 3)]),
        "p": pivots, "p64": pivots.long(), "p2": pivots[:2], "p_batch": t.stack([pivots] * 2),
        "p_none": pivots[:0], "p_float": pivots.float(),
        "p_zero": pivots - 1, "p_beyond": pivots + 1, "p_negative": -pivots,
        "s": t.tensor([0.5, 0.3, 0.2]), "s4": t.ones(4), "s_batch": t.ones(2, 3) / 2,
        "wide3": t.eye(6).reshape(2, 3, 6), "r23": t.ones(2, 3), "r24": t.ones(2, 4),
        "zero3": t.zeros(2, 3, 6), "r34": t.ones(3, 4), "r42": t.ones(4, 2), "r43": t.ones(4, 3),
        "talls": t.ones(2, 4, 3) + t.eye(4, 3), "wides": t.ones(2, 3, 4) + t.eye(3, 4),
        "b242": t.ones(2, 4, 2), "b342": t.ones(3, 4, 2),
        "b4232": t.ones(4, 2, 3, 2), "b4133": t.ones(4, 1, 3, 3), "vi": t.arange(3),
        "vb": t.ones(3, dtype=t.bool), "vd": t.ones(3).double(), "vc": t.ones(3) * (1 + 0j),
        "vh": t.ones(3).half(), "vbf": t.ones(3).bfloat16(),
        "cdouble": positive.to(t.complex128), "target": t.empty(0),
    }  # fmt: skip


SHAPES = "m batch tall wide v number empty no_rows no_columns empties no_batch none"
DTYPES = "double complex integer bool_ half bfloat"
VALUES = "singular zero indefinite both"
MATRICES = f"{SHAPES} {DTYPES} {VALUES} damaged"
SQUARE = "m batch tall v number empty empties no_batch integer half double complex"
RIGHT = "m batch three v v4 number right empty no_columns no_batch integer half double none"
VECTORS = "v vi vb vd vc vh vbf"
NORMED = f"{VECTORS} m double complex integer bool_ half bfloat empty none no_rows number"


def _norms(arguments):
    functions = ("L.vector_norm", "L.norm", "t.norm", "L.matrix_norm")
    return "; ".join(f"{f}(A, {x})" for x in arguments for f in functions)


CALLS = {
    "cholesky": ("L.cholesky(A); L.cholesky(A, upper=True); L.cholesky_ex(A)", MATRICES),
    "old cholesky": ("t.cholesky(A); t.cholesky(A, True)", MATRICES),
    "lu": ("L.lu(A); L.lu_factor_ex(A); t.lu(A); L.lu(A, pivot=False)", SHAPES + " " + DTYPES),
    "ldl": ("L.ldl_factor_ex(A); L.ldl_factor_ex(A, hermitian=True)", f"{SHAPES} {DTYPES}"),
    "qr": ("L.qr(A); t.qr(A); L.qr(A, 'r'); L.qr(A, 'complete'); L.qr(A, 'x')", MATRICES),
    "geqrf": ("t.geqrf(A)", MATRICES),
    "eigh": ("L.eigh(A); L.eigvalsh(A); L.eigh(A, 'U'); L.eigh(A, 'X'); L.eigh(A, '')", MATRICES),
    "eig": ("L.eig(A)", MATRICES),
    "eigvals": ("L.eigvals(A)", f"{SHAPES} {DTYPES} {VALUES}"),
    "svd": ("L.svd(A); L.svdvals(A); t.svd(A); L.svd(A, driver='gesvd')", MATRICES),
    "inverse": ("L.inv(A); L.inv_ex(A); t.inverse(A)", MATRICES),
    "determinant": ("L.det(A); L.slogdet(A); t.logdet(A)", MATRICES),
    "condition": ("L.cond(A); L.cond(A, 1); L.cond(A, -2); L.cond(A, 'x')", f"{SHAPES} {DTYPES}"),
    "rank": ("L.matrix_rank(A); L.matrix_rank(A, hermitian=True); L.pinv(A); t.pinverse(A)",
             f"{SHAPES} {DTYPES} {VALUES}"),
    "functions": ("L.matrix_exp(A); L.vander(A); L.tensorinv(A)", f"{SHAPES} double integer bool_"),
    "no tensors": ("L.cond(A); t.matrix_exp(A); L.inv(A); L.cond(m, A)", "None [[1.0]] str"),
    "power": ("L.matrix_power(A, 0); L.matrix_power(A, 3)", f"{SHAPES} {DTYPES}"),
    "cholesky_inverse": ("t.cholesky_inverse(A)", f"{SHAPES} {DTYPES}"),
    "solve": ("L.solve(A, B); L.solve_ex(A, B)", f"{SQUARE} singular both", RIGHT),
    "solve_triangular": ("L.solve_triangular(A, B, upper=True)",
                         "m batch tall v number empty no_batch", "m batch v number right empty"),
    "triangular_solve": ("t.triangular_solve(B, A)",
                         "m batch tall v number empty no_batch integer half",
                         "m batch three v number right empty no_batch none integer half"),
    "cholesky_solve": ("t.cholesky_solve(B, A)", "m batch tall v empty no_batch integer", RIGHT),
    "lu_solve": ("L.lu_solve(A, P, B); t.lu_solve(B, A, P)", "m batch tall v empty integer half",
                 "m batch v right empty number double", "p p2 p_batch p64 p_float p_none"),
    "ldl_solve": ("L.ldl_solve(A, P, B)", "m batch tall v empty integer half",
                  "m batch right empty double", "p p2 p_batch p_float p_none"),
    "lu_unpack": ("t.lu_unpack(A, P)", "m batch tall wide v number empty none", "p p64 p_float"),
    "reflections": ("L.householder_product(A, P); t.ormqr(A, P, B)",
                    "m batch tall wide v empty no_batch integer half complex", "m right",
                    "s s4 s_batch v4 double"),
    "check_errors": ("; ".join(f"L.{x}(A, check_errors=True)" for x in (
        "cholesky_ex", "lu_factor_ex", "ldl_factor_ex", "inv_ex")), MATRICES),
    "solve with check": ("L.solve_ex(A, B, check_errors=True)", f"{SQUARE} singular both", RIGHT),
    "factors": ("L.lu_factor(A); L.ldl_factor(A); L.ldl_factor(A, hermitian=True)", MATRICES),
    "ldl of NaN": ("L.ldl_factor_ex(A); L.ldl_factor_ex(A, hermitian=True)", "damaged zero both"),
    "inverses": ("t.cholesky_inverse(A); t.cholesky_inverse(A, True); L.matrix_power(A, -1); "
                 "t.matrix_power(A, -3); L.tensorinv(A, 1)", MATRICES),
    "tensors": ("L.tensorinv(A, 1); L.tensorinv(A, 2); L.tensorsolve(A, B)",
                "m zero singular zero3 wide3", "v r23"),
    "pivots": ("t.lu_unpack(A, P); t.lu_unpack(A, P, unpack_data=False); "
               "t.lu_unpack(A, P, unpack_pivots=False)",
               "m batch tall wide integer half complex", "m", "p p_zero p_beyond p_negative p64"),
    "mixed triangles": ("L.solve_triangular(A, B, upper=True); t.triangular_solve(B, A); "
                        "L.solve_triangular(A, B, upper=True, left=False)",
                        *["m double complex cdouble half integer bool_"] * 2),
    "norms in a dtype": (_norms(f"dtype=t.{x}" for x in (
        "float32 float64 float16 bfloat16 complex64 complex128 int64 bool").split()), NORMED),
    "norms": (_norms("2 0 inf -1 -inf 1 'fro' 'nuc' 'x' None 2.5 -2".split()),
              f"{NORMED} batch no_batch damaged"),
    "vecdot": ("L.vecdot(A, B); t.inner(A, B); L.vecdot(A, B, dim=0)",
               f"{VECTORS} m integer bool_ number v4", f"{VECTORS} m integer v4 number"),
    "det": ("t.det(A, out=target); L.det(A, out=target)", "m batch double integer tall empty"),
    "lstsq": ("; ".join(f"L.lstsq(A, B, driver={x})" for x in (
        "None", "'gels'", "'gelsy'", "'gelsd'", "'gelss'", "'x'")),
        "m batch tall wide talls wides v number empty no_rows no_columns empties no_batch double "
        "half integer b4133 zero none",
        "m batch v v4 number right r23 b4232 r42 r43 talls r24 r34 b242 b342 empty no_batch "
        "empties double half integer none complex"),
    "tensorsolve": ("L.tensorsolve(A, B); L.tensorsolve(A, B, (0,)); L.tensorsolve(A, B, (5,))",
                    "wide3 m tall empty", "r23 r24 v integer"),
}  # fmt: skip


def calls(templates, firsts, seconds="", thirds=""):
    """Each template with every operand of its letters."""
    for template in templates.split("; "):
        slots = {"A": firsts, "B": seconds, "P": thirds}
        used = [x for x in slots if re.search(rf"\b{x}\b", template)]
        for names in itertools.product(*(slots[x].split() for x in used)):
            chosen = dict(zip(used, names, strict=True))
            call = re.sub(r"\b[ABP]\b", lambda m, by=chosen: by[m[0]], template)
            yield call.replace("L.", "t.linalg.")


def described(x):
    """Shapes and dtypes, and numbers that are whole."""
    if isinstance(x, (tuple, list)):
        return [described(y) for y in x]
    whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
    return [list(x.shape), str(x.dtype).split(".")[-1], x.tolist() if whole else None]


def outcome(call, names):
    """The exception's type, or what the result is."""
    try:
        result = eval(call, dict(names))
    except Exception as error:
        return type(error).__name__.removeprefix("_")
    return described(result)


# Columns of ones: whether elimination leaves an exact zero depends on the processor's kernels, in
# PyTorch's library, too; either outcome is right.
BY_ROUNDING = {"t.linalg.lstsq(b4133, b4232, driver='gels')"}
SOLVED = [[[4, 2, 3, 2], "float32", None], [[0], "float32", None], [[0], "int64", []]]
EITHER = ("LinAlgError", [*SOLVED, [[0], "float32", None]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_outcome(name):
    names = [operands(package) for package in (torch, flambeau)]
    wrong = []
    for call in calls(*CALLS[name]):
        if "out=" in call:  # which is resized
            names = [operands(package) for package in (torch, flambeau)]
        theirs, ours = (outcome(call, by) for by in names)
        same = ours in EITHER and theirs in EITHER if call in BY_ROUNDING else ours == theirs
        if not same:
            wrong.append((call, theirs, ours))
    assert not wrong
