"""Factorisations and solvers over batches of matrices, for LAPACK.

Operands are [*B, M, N] with equal batch dimensions. A factorisation has one node per result, with
the attribute `result`; the routine runs once for all of them. Derivatives: Giles (2008),
"An extended collection of matrix derivative results"; for complex matrices and for LU, QR and
eigenvectors the same method with conjugates. Each result's rule gives its share of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.ir.environment import less, same_shape, same_size
from flambeau.ir.node import Node
from flambeau.ir.size import Size, add, minimum, mul, prod
from flambeau.prims import linear_references as references
from flambeau.prims import pointwise, reduce, shape
from flambeau.prims.annotation import register_rule
from flambeau.prims.common import (
    COMPLEX,
    TO_COMPLEX,
    TO_REAL,
    Gradients,
    Type,
    check_count,
    check_dtype,
    show,
)
from flambeau.prims.create import full_like, iota, zeros_like
from flambeau.prims.linear_references import RESULTS
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    Arguments,
    Primitive,
    Routine,
    bind,
    leading,
    register,
)
from flambeau.prims.routine import adjoint, matmul
from flambeau.prims.scatter import scatter

LAPACK = frozenset({"f32", "f64", "c64", "c128"})
DRIVERS = ("gels", "gelsy", "gelsd", "gelss")

# ------------------------------------------------------------------------------------ helpers


def _mask(x: Node, test: Callable[[Node, Node], Node]) -> Node:
    """A test of (row, column) for each place of the matrices."""
    return test(iota(x.shape, x.ndim - 2), iota(x.shape, x.ndim - 1))


def lower_triangle(x: Node, strict: bool = False) -> Node:
    """The lower triangle, zeros elsewhere."""
    test = pointwise.gt if strict else pointwise.ge
    return pointwise.where(_mask(x, test), x, zeros_like(x))


def upper_triangle(x: Node) -> Node:
    """The upper triangle, zeros elsewhere."""
    return pointwise.where(_mask(x, pointwise.le), x, zeros_like(x))


def diagonal(x: Node) -> Node:
    """The diagonals [*B, N] of square matrices."""
    batch, n = x.shape[:-2], x.shape[-1]
    flat = shape.reshape(x, (*batch, mul(x.shape[-2], n)))
    return shape.slice(flat, len(batch), 0, x.shape[-2], add(n, 1))


def with_diagonal(x: Node, values: Node) -> Node:
    """Square matrices with their diagonals replaced by `values` [*B, N]."""
    return pointwise.where(_mask(x, pointwise.eq), _columns(values, x), x)


def _columns(values: Node, like: Node) -> Node:
    """values[*B, N] for every row: element [i, j] is values[j]."""
    return shape.broadcast(values, like.shape, [*range(like.ndim - 2), like.ndim - 1])


def _rows(values: Node, like: Node) -> Node:
    """values[*B, M] for every column: element [i, j] is values[i]."""
    return shape.broadcast(values, like.shape, [*range(like.ndim - 2), like.ndim - 2])


def _halved_diagonal(x: Node) -> Node:
    return with_diagonal(x, diagonal(x) * 0.5)


def _like(values: Node, like: Node) -> Node:
    return pointwise.cast(values, like.dtype)


# ------------------------------------------------------------------------------------ type rules


def _check_square(name: str, x: Node) -> None:
    if x.ndim < 2 or not same_size(x.shape[-1], x.shape[-2]):
        raise ValueError(
            f"[{name}] matrices are not square: {show(x.shape)}\n"
            "hint: the last two sizes must agree"
        )


def _check_result(name: str, result: str) -> None:
    if result not in RESULTS[name]:
        raise ValueError(f"[{name}] no result {result!r}\nhint: one of {', '.join(RESULTS[name])}")


def _infer_solve(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("solve", operands, 2)
    a, b = operands
    check_dtype("solve", a, LAPACK)
    check_dtype("solve", b, frozenset({a.dtype}))
    _check_square("solve", a)
    if not same_shape(a.shape[:-1], b.shape[:-1]):
        raise ValueError(
            f"[solve] right sides {show(b.shape)} do not fit matrices {show(a.shape)}\n"
            "hint: both are batches of matrices of as many rows"
        )
    return b.dtype, b.shape


def _infer_factorisation(name: str, square: bool) -> Any:
    def infer(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
        check_count(name, operands, 1)
        [x] = operands
        check_dtype(name, x, LAPACK)
        _check_result(name, constants["result"])
        if square:
            _check_square(name, x)
        elif x.ndim < 2:
            raise ValueError(f"[{name}] {show(x.shape)} is no batch of matrices\nhint: unsqueeze")
        return _SHAPES[name](x, constants)

    return infer


def _cholesky_shape(x: Node, constants: dict[str, Any]) -> Type:
    return (x.dtype, x.shape) if constants["result"] == "factor" else ("i32", x.shape[:-2])


def _lu_shape(x: Node, constants: dict[str, Any]) -> Type:
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    types: dict[str, Type] = {
        "packed": (x.dtype, x.shape),
        "pivots": ("i32", (*batch, minimum(m, n))),
        "permutation": ("i64", (*batch, m)),
        "info": ("i32", batch),
    }
    return types[constants["result"]]


def _ldl_shape(x: Node, constants: dict[str, Any]) -> Type:
    types: dict[str, Type] = {
        "packed": (x.dtype, x.shape),
        "pivots": ("i32", x.shape[:-1]),
        "info": ("i32", x.shape[:-2]),
    }
    return types[constants["result"]]


def _infer_ldl_solve(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("ldl_solve", operands, 3)
    packed, pivots, b = operands
    if pivots.dtype != "i32" or not same_shape(pivots.shape, packed.shape[:-1]):
        raise ValueError(
            f"[ldl_solve] pivots {pivots.dtype} {show(pivots.shape)} of {show(packed.shape)}\n"
            "hint: one i32 for each row, as ldl gives them"
        )
    return _infer_solve((packed, b), constants)


def _infer_least_squares(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("least_squares", operands, 2)
    a, b = operands
    check_dtype("least_squares", a, LAPACK)
    check_dtype("least_squares", b, frozenset({a.dtype}))
    _check_result("least_squares", constants["result"])
    if a.ndim < 2 or not same_shape(a.shape[:-1], b.shape[:-1]):
        raise ValueError(
            f"[least_squares] right sides {show(b.shape)} do not fit matrices {show(a.shape)}\n"
            "hint: both are batches of matrices of as many rows"
        )
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    types: dict[str, Type] = {
        "solution": (a.dtype, (*batch, n, b.shape[-1])),
        "rank": ("i64", batch),
        "values": (TO_REAL.get(a.dtype, a.dtype), (*batch, minimum(m, n))),
    }
    return types[constants["result"]]


def _infer_reflect(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("reflect", operands, 3)
    packed, tau, x = operands
    check_dtype("reflect", packed, LAPACK)
    for other in (tau, x):
        check_dtype("reflect", other, frozenset({packed.dtype}))
    fits = same_shape(packed.shape[:-1], x.shape[:-1]) and same_shape(
        packed.shape[:-2], tau.shape[:-1]
    )
    if not fits or less(minimum(*packed.shape[-2:]), tau.shape[-1]):
        raise ValueError(
            f"[reflect] {show(packed.shape)}, {show(tau.shape)} and {show(x.shape)} do not fit\n"
            "hint: batches of matrices of as many rows, and of scales"
        )
    return x.dtype, x.shape


def _infer_pivot_order(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("pivot_order", operands, 1)
    [pivots] = operands
    check_dtype("pivot_order", pivots, frozenset({"i32"}))
    return "i64", (*pivots.shape[:-1], constants["rows"])


def _pivot_order_arguments(value: Node) -> Arguments:
    [shape] = value.attribute("shapes")
    sizes = (prod(shape[:-1]), shape[-1], value.shape[-1])
    return Arguments("pivot_order_i32", sizes, mul(prod(value.shape), 2))


def _qr_shape(x: Node, constants: dict[str, Any]) -> Type:
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    inner = m if constants["complete"] else minimum(m, n)
    return x.dtype, (*batch, m, inner) if constants["result"] == "q" else (*batch, inner, n)


def _geqrf_shape(x: Node, constants: dict[str, Any]) -> Type:
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    return x.dtype, x.shape if constants["result"] == "packed" else (*batch, minimum(m, n))


def _eigh_shape(x: Node, constants: dict[str, Any]) -> Type:
    if constants["result"] == "vectors":
        return x.dtype, x.shape
    return TO_REAL.get(x.dtype, x.dtype), x.shape[:-1]


def _eigvalsh_shape(x: Node, constants: dict[str, Any]) -> Type:
    return TO_REAL.get(x.dtype, x.dtype), x.shape[:-1]


def _eigvals_shape(x: Node, constants: dict[str, Any]) -> Type:
    return TO_COMPLEX.get(x.dtype, x.dtype), x.shape[:-1]


def _svdvals_shape(x: Node, constants: dict[str, Any]) -> Type:
    return TO_REAL.get(x.dtype, x.dtype), (*x.shape[:-2], minimum(*x.shape[-2:]))


def _eig_shape(x: Node, constants: dict[str, Any]) -> Type:
    dtype = TO_COMPLEX.get(x.dtype, x.dtype)
    return dtype, x.shape if constants["result"] == "vectors" else x.shape[:-1]


def _svd_shape(x: Node, constants: dict[str, Any]) -> Type:
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    k = minimum(m, n)
    full = constants["full_matrices"]
    sizes: dict[str, tuple[Size, ...]] = {
        "u": (*batch, m, m if full else k),
        "s": (*batch, k),
        "vh": (*batch, n if full else k, n),
    }
    real = TO_REAL.get(x.dtype, x.dtype)
    return real if constants["result"] == "s" else x.dtype, sizes[constants["result"]]


_SHAPES: dict[str, Callable[[Node, dict[str, Any]], Type]] = {
    "cholesky": _cholesky_shape,
    "lu": _lu_shape,
    "ldl": _ldl_shape,
    "qr": _qr_shape,
    "geqrf": _geqrf_shape,
    "eigh": _eigh_shape,
    "eigvalsh": _eigvalsh_shape,
    "eig": _eig_shape,
    "eigvals": _eigvals_shape,
    "svd": _svd_shape,
    "svdvals": _svdvals_shape,
}

# ------------------------------------------------------------------------------------ derivatives


def _solve_rule(g: Node, y: Node, a: Node, b: Node) -> Gradients:
    of_b = solve(adjoint(a), g)
    return -matmul(of_b, adjoint(y)), of_b


def _inverse_rule(g: Node, y: Node, a: Node) -> Gradients:
    """The gradient of an inverse, from the inverse alone."""
    return (-matmul(matmul(adjoint(y), g), adjoint(y)),)


register_rule("inverse", _inverse_rule)


def _triangular_rule(g: Node, y: Node, a: Node, b: Node) -> Gradients:
    is_upper, adjointed, unit = (y.attribute(k) for k in ("upper", "adjointed", "unit"))
    of_b = triangular_solve(a, g, is_upper, not adjointed, unit)
    of_a = -(matmul(y, adjoint(of_b)) if adjointed else matmul(of_b, adjoint(y)))
    of_triangle = upper_triangle(of_a) if is_upper else lower_triangle(of_a)
    if unit:
        of_triangle = with_diagonal(of_triangle, full_like(0, diagonal(of_triangle)))
    return of_triangle, of_b


def _cholesky_rule(g: Node, y: Node, a: Node) -> Gradients:
    if y.attribute("result") != "factor":
        return (None,)
    phi = _halved_diagonal(lower_triangle(matmul(adjoint(y), g)))
    left = triangular_solve(y, phi, False, True)
    both = adjoint(triangular_solve(y, adjoint(left), False, True))
    return ((both + adjoint(both)) * 0.5,)


def _lu_rule(g: Node, y: Node, a: Node) -> Gradients:
    if y.attribute("result") != "packed":
        return (None,)
    rows, columns = a.ndim - 2, a.ndim - 1
    m, n = a.shape[-2:]
    least = minimum(m, n)
    square, of_square = (
        shape.slice(shape.slice(x, rows, 0, least), columns, 0, least) for x in (y, g)
    )
    below = matmul(adjoint(_unit_lower(square)), lower_triangle(of_square, strict=True))
    above = matmul(upper_triangle(of_square), adjoint(upper_triangle(square)))
    beyond, of_rest = _beyond_square(y, g)
    if less(m, n):
        below = below - matmul(of_rest, adjoint(beyond))
    elif less(n, m):
        above = above - matmul(adjoint(beyond), of_rest)
    inner = lower_triangle(below, strict=True) + upper_triangle(above)
    # With the adjoint of L from the left, with that of U from the right.
    left = triangular_solve(square, inner, False, True, unit=True)
    permuted = adjoint(triangular_solve(square, adjoint(left), True, False))
    if less(m, n):
        outside = triangular_solve(square, of_rest, False, True, unit=True)
        permuted = shape.cat([permuted, outside], columns)
    elif less(n, m):
        outside = adjoint(triangular_solve(square, adjoint(of_rest), True, False))
        permuted = shape.cat([permuted, outside], rows)
    order = lu(a)[2]
    return (scatter(zeros_like(a), _rows(order, a), permuted, rows, "set"),)


def _beyond_square(y: Node, g: Node) -> list[Node]:
    """Returns the part of packed factors, and of their gradient, beyond the square."""
    axis = y.ndim - (1 if less(y.shape[-2], y.shape[-1]) else 2)
    least = minimum(*y.shape[-2:])
    return [shape.slice(x, axis, least, y.shape[axis] - least) for x in (y, g)]


def _unit_lower(packed: Node) -> Node:
    return with_diagonal(lower_triangle(packed), full_like(1, diagonal(packed)))


def _qr_rule(g: Node, y: Node, a: Node) -> Gradients:
    m, n = a.shape[-2:]
    q, r = qr(a, y.attribute("complete"))
    result = y.attribute("result")
    if less(m, n):
        return (_wide_qr(g, q, r, result),)
    if y.attribute("complete") and less(n, m):
        q, r, g = _reduced_qr(q, r, g, result)
    if result == "q":
        return (_tall_qr(-matmul(adjoint(q), g), g, q, r),)
    return (_tall_qr(matmul(g, adjoint(r)), None, q, r),)


def _reduced_qr(q: Node, r: Node, g: Node, result: str) -> tuple[Node, Node, Node]:
    """Q and R without the rest of the complete form, and the gradient on them.

    The last columns of Q are any basis of what the first leave: the gradient is that of a function
    of their span.
    """
    columns, n = q.ndim - 1, r.shape[-1]
    surplus = q.shape[-1] - n
    first, last = (shape.slice(q, columns, *part) for part in ((0, n), (n, surplus)))
    r = shape.slice(r, r.ndim - 2, 0, n)
    if result == "r":
        return first, r, shape.slice(g, g.ndim - 2, 0, n)
    of_first, of_last = (shape.slice(g, columns, *part) for part in ((0, n), (n, surplus)))
    return first, r, of_first - matmul(last, matmul(adjoint(of_last), first))


def _tall_qr(inner: Node, of_q: Node | None, q: Node, r: Node) -> Node:
    """The gradient of Q R, `inner` being that of R times R^H, less Q^H times that of Q."""
    triangle = upper_triangle(inner)
    total = matmul(q, _halved_diagonal(triangle + adjoint(triangle)))
    if of_q is not None:
        total = total + of_q
    return adjoint(triangular_solve(r, adjoint(total), True, False))


def _wide_qr(g: Node, q: Node, r: Node, result: str) -> Node:
    """The first columns, a square, decide Q; the rest of R is Q^H times the rest."""
    columns, rows = r.ndim - 1, r.shape[-2]
    square = shape.slice(r, columns, 0, rows)
    beyond = shape.slice(r, columns, rows, r.shape[-1] - rows)
    if result == "q":
        first = _tall_qr(-matmul(adjoint(q), g), g, q, square)
        return shape.cat([first, zeros_like(beyond)], columns)
    of_square = shape.slice(g, columns, 0, rows)
    of_rest = shape.slice(g, columns, rows, r.shape[-1] - rows)
    turned = matmul(beyond, adjoint(of_rest))
    inner = matmul(of_square, adjoint(square)) - turned
    first = _tall_qr(inner, matmul(q, turned), q, square)
    return shape.cat([first, matmul(q, of_rest)], columns)


def _reflect_rule(g: Node, y: Node, packed: Node, tau: Node, x: Node) -> Gradients:
    """By Q = I - V T V^H with T = (I + D U)^-1 D, D = diag(tau), U above the diagonal of V^H V.

    No step depends on the number of reflections. Source: Schreiber & Van Loan, "A storage-efficient
    WY representation for products of Householder transformations", SISSC 10, 1989.
    """
    adjointed = y.attribute("adjointed")
    v = _reflectors(packed, tau)
    gram = matmul(adjoint(v), v)
    above = gram - lower_triangle(gram)
    scaled, w = _rows(tau, above) * above, matmul(adjoint(v), x)
    scales = _rows(tau, w)
    of_s = -matmul(adjoint(v), g)
    if adjointed:  # S = D^H (I + D U)^-H V^H x
        z = triangular_solve(scaled, w, True, True, unit=True)
        s, of_scales = pointwise.conj(scales) * z, pointwise.conj(of_s) * z
        of_w = triangular_solve(scaled, scales * of_s, True, False, unit=True)
        of_scaled = -matmul(z, adjoint(of_w))
    else:  # S = (I + D U)^-1 D V^H x
        s = triangular_solve(scaled, scales * w, True, False, unit=True)
        inner = triangular_solve(scaled, of_s, True, True, unit=True)
        of_scales, of_w = inner * pointwise.conj(w), pointwise.conj(scales) * inner
        of_scaled = -matmul(inner, adjoint(s))
    of_scaled = of_scaled - lower_triangle(of_scaled)
    of_tau = reduce.sum(of_scales, axis=w.ndim - 1)
    of_tau = of_tau + reduce.sum(of_scaled * pointwise.conj(above), axis=above.ndim - 1)
    of_gram = of_scaled * pointwise.conj(_rows(tau, above))
    of_v = matmul(v, of_gram + adjoint(of_gram)) + matmul(x, adjoint(of_w)) - matmul(g, adjoint(s))
    return _packed_gradient(of_v, packed), of_tau, g + matmul(v, of_w)


def _reflectors(packed: Node, tau: Node) -> Node:
    """The vectors of the reflections: 1 on the diagonal, above it 0."""
    v = shape.slice(packed, packed.ndim - 1, 0, tau.shape[-1])
    return lower_triangle(v, strict=True) + pointwise.cast(_mask(v, pointwise.eq), v.dtype)


def _packed_gradient(of_v: Node, packed: Node) -> Node:
    below = lower_triangle(of_v, strict=True)
    if not less(of_v.shape[-1], packed.shape[-1]):
        return below
    columns = packed.ndim - 1
    width = packed.shape[-1] - of_v.shape[-1]
    unread = zeros_like(shape.slice(packed, columns, of_v.shape[-1], width))
    return shape.cat([below, unread], columns)


def _differences(values: Node, like: Node) -> Node:
    """values[j] - values[i] with ones on the diagonal."""
    return with_diagonal(_columns(values, like) - _rows(values, like), full_like(1, values))


def _eigh_rule(g: Node, y: Node, a: Node) -> Gradients:
    values, vectors = eigh(a)
    if y.attribute("result") == "values":  # of `eigvalsh`, too
        inner = with_diagonal(zeros_like(a), _like(g, a))
    else:
        projected = matmul(adjoint(vectors), g)
        # A perturbation that preserves orthonormal vectors is skew.
        skew = (projected - adjoint(projected)) * 0.5
        inner = skew / _differences(_like(values, a), a)
        inner = with_diagonal(inner, zeros_like(diagonal(inner)))
    return (matmul(matmul(vectors, inner), adjoint(vectors)),)


def _eig_rule(g: Node, y: Node, a: Node) -> Gradients:
    values, vectors = eig(a)
    if y.attribute("result") == "values":
        inner = with_diagonal(zeros_like(vectors), g)
    else:
        # The norm of a vector is fixed: what would change it has no effect.
        projected = matmul(adjoint(vectors), g)
        radial = _like(pointwise.real(diagonal(projected)), g)
        gram = matmul(adjoint(vectors), vectors)
        free = projected - gram * _columns(radial, projected)
        inner = free / pointwise.conj(_differences(values, projected))
        inner = with_diagonal(inner, zeros_like(values))
    total = solve(adjoint(vectors), matmul(inner, adjoint(vectors)))
    return (total if a.dtype in COMPLEX else pointwise.real(total),)


def _svd_rule(g: Node, y: Node, a: Node) -> Gradients:
    # Vectors of no singular value are any basis of the complement: nothing should depend on them.
    u, s, vh = svd(a, y.attribute("full_matrices", False))
    least = minimum(*a.shape[-2:])
    u, vh = shape.slice(u, u.ndim - 1, 0, least), shape.slice(vh, vh.ndim - 2, 0, least)
    if y.attribute("result") != "s":
        g = shape.slice(g, g.ndim - (1 if y.attribute("result") == "u" else 2), 0, least)
    result = y.attribute("result")
    if result == "s":
        inner = _columns(_like(g, a), u)
        return (matmul(u * inner, vh),)
    scale = _like(s, a)
    if result == "u":
        return (_svd_vectors(g, u, scale, vh, a.dtype in COMPLEX),)
    transposed = _svd_vectors(adjoint(g), adjoint(vh), scale, adjoint(u), False)
    return (adjoint(transposed),)


def _svd_vectors(g: Node, u: Node, s: Node, vh: Node, with_phase: bool) -> Node:
    """Share of the left vectors; the right ones' is the adjoint, with roles swapped.

    The phase that both vectors of a complex pair share counts once, with the left vectors.
    """
    projected = matmul(adjoint(u), g)
    skew = projected - adjoint(projected)
    squares = _differences(s * s, skew)
    inner = skew / squares * _columns(s, skew)
    phase = diagonal(skew) / (s * 2) if with_phase else zeros_like(s)
    inner = with_diagonal(inner, phase)
    total = matmul(matmul(u, inner), vh)
    outside = g - matmul(u, projected)  # zero where u is square
    return total + matmul(outside / _columns(s, outside), vh)


# ------------------------------------------------------------------------------------ records


def _routine(
    name: str,
    infer: Any,
    derivative: Any,
    square: bool = True,
    raises: bool = False,
    arguments: Callable[[Node], Arguments] | None = None,
) -> None:
    reference, samples = references.REFERENCES[name], references.SAMPLES[name]
    register(
        Primitive(
            name,
            "routine",
            infer,
            derivative,
            routine=Routine(name, square=square, arguments=arguments),
            cost=256,
            reference=reference,
            samples=samples,
            batch=leading,
            raises=raises,
        )
    )


_routine("solve", _infer_solve, _solve_rule)
_routine("triangular_solve", _infer_solve, _triangular_rule)
_routine("least_squares", _infer_least_squares, NOT_DIFFERENTIABLE, square=False, raises=True)
_routine("reflect", _infer_reflect, _reflect_rule, square=False)
_routine("pivot_order", _infer_pivot_order, NOT_DIFFERENTIABLE, arguments=_pivot_order_arguments)
_routine("ldl_solve", _infer_ldl_solve, NOT_DIFFERENTIABLE)
_ITERATIVE = ("eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals")  # may not converge
_SQUARE = ("cholesky", "ldl", "eigh", "eigvalsh", "eig", "eigvals")
for _name, _rule in (
    ("cholesky", _cholesky_rule),
    ("lu", _lu_rule),
    ("ldl", NOT_DIFFERENTIABLE),
    ("qr", _qr_rule),
    ("geqrf", NOT_DIFFERENTIABLE),
    ("eigh", _eigh_rule),
    ("eigvalsh", _eigh_rule),
    ("eig", _eig_rule),
    ("eigvals", _eig_rule),
    ("svd", _svd_rule),
    ("svdvals", _svd_rule),
):
    _square = _name in _SQUARE
    _infer = _infer_factorisation(_name, square=_square)
    _routine(_name, _infer, _rule, _square, raises=_name in _ITERATIVE)

# ------------------------------------------------------------------------------------ constructors


def solve(a: Node, b: Node) -> Node:
    """X with A X = B, for square matrices A [*B, N, N] and B [*B, N, K]."""
    return bind("solve", a, b)


def triangular_solve(
    a: Node, b: Node, upper: bool, adjointed: bool = False, unit: bool = False
) -> Node:
    """X with T X = B (or T^H X = B), T being the upper or lower triangle of A."""
    return bind("triangular_solve", a, b, upper=upper, adjointed=adjointed, unit=unit)


def cholesky(a: Node) -> tuple[Node, Node]:
    """L, lower, with A = L L^H; and info (i32): 0, or the order of the minor not positive."""
    return bind("cholesky", a, result="factor"), bind("cholesky", a, result="info")


def lu(a: Node) -> tuple[Node, Node, Node, Node]:
    """Packed L and U, LAPACK's pivots (i32, from 1), rows order (A[order] = L U), and info."""
    packed, pivots, order, info = (bind("lu", a, result=r) for r in RESULTS["lu"])
    return packed, pivots, order, info


def ldl(a: Node, hermitian: bool) -> tuple[Node, Node, Node]:
    """Packed L and D of A = L D L^H (or L D L^T), LAPACK's pivots (i32), and info."""
    packed, pivots, info = (bind("ldl", a, result=r, hermitian=hermitian) for r in RESULTS["ldl"])
    return packed, pivots, info


def ldl_solve(packed: Node, pivots: Node, b: Node, hermitian: bool) -> Node:
    """X with A X = B, given what `ldl` returned for A."""
    return bind("ldl_solve", packed, pivots, b, hermitian=hermitian)


def qr(a: Node, complete: bool = False) -> tuple[Node, Node]:
    """Q with orthonormal columns and R upper triangular with A = Q R."""
    q, r = (bind("qr", a, result=k, complete=complete) for k in RESULTS["qr"])
    return q, r


def geqrf(a: Node) -> tuple[Node, Node]:
    """R in the upper triangle, and below it and in tau the reflections whose product is Q."""
    packed, tau = (bind("geqrf", a, result=k) for k in RESULTS["geqrf"])
    return packed, tau


def eigh(a: Node) -> tuple[Node, Node]:
    """Ascending eigenvalues and eigenvectors (columns) of the Hermitian lower triangle of A."""
    return bind("eigh", a, result="values"), bind("eigh", a, result="vectors")


def eigvalsh(a: Node) -> Node:
    """Ascending eigenvalues of the Hermitian lower triangle of A."""
    return bind("eigvalsh", a, result="values")


def eigvals(a: Node) -> Node:
    """Complex eigenvalues of a general matrix."""
    return bind("eigvals", a, result="values")


def svdvals(a: Node) -> Node:
    """Descending singular values of A."""
    return bind("svdvals", a, result="s")


def least_squares(a: Node, b: Node, driver: str, rcond: float) -> tuple[Node, Node, Node]:
    """X with the least |A X - B|; the rank (i64) and the singular values of A [*B, M, N].

    Drivers are LAPACK's: "gels" is for matrices of full rank and returns neither; "gelsy" returns
    the rank. Singular values up to rcond times the greatest count as 0.
    """
    options = {"driver": driver, "rcond": rcond}
    solution, rank, values = (
        bind("least_squares", a, b, result=r, **options) for r in RESULTS["least_squares"]
    )
    return solution, rank, values


def reflect(packed: Node, tau: Node, x: Node, adjointed: bool = False) -> Node:
    """Q X (or Q^H X), Q being the product of reflections as `geqrf` packs them [*B, M, N]."""
    return bind("reflect", packed, tau, x, adjointed=adjointed)


def pivot_order(pivots: Node, rows: Size) -> Node:
    """The order of `rows` rows (i64, from 0) that LAPACK's interchanges amount to."""
    return bind("pivot_order", pivots, rows=rows)


def eig(a: Node) -> tuple[Node, Node]:
    """Complex eigenvalues and eigenvectors (columns of norm 1) of a general matrix."""
    return bind("eig", a, result="values"), bind("eig", a, result="vectors")


def svd(a: Node, full_matrices: bool = False) -> tuple[Node, Node, Node]:
    """U, descending singular values S and V^H with A = U diag(S) V^H."""
    u, s, vh = (bind("svd", a, result=k, full_matrices=full_matrices) for k in RESULTS["svd"])
    return u, s, vh
