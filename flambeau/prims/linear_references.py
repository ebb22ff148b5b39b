"""Linear algebra as NumPy and SciPy compute it, and the samples it is compared on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Samples = Iterator[tuple[list[Any], dict[str, Any]]]
Reference = Callable[[list[Any], dict[str, Any]], Any]
RESULTS = {
    "cholesky": ("factor", "info"),
    "lu": ("packed", "pivots", "permutation", "info"),
    "ldl": ("packed", "pivots", "info"),
    "qr": ("q", "r"),
    "geqrf": ("packed", "tau"),
    "eigh": ("values", "vectors"),
    "eigvalsh": ("values",),
    "eig": ("values", "vectors"),
    "eigvals": ("values",),
    "svd": ("u", "s", "vh"),
    "svdvals": ("s",),
    "least_squares": ("solution", "rank", "values"),
}

# ------------------------------------------------------------------------------------ references


def _numpy_solve(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.linalg.solve(*arrays)


def _batched(function: Callable[..., Any], *arrays: Any) -> Any:
    import numpy

    batch = arrays[0].shape[:-2]
    if not batch:
        return function(*arrays)
    flat = [x.reshape(-1, *x.shape[-2:]) for x in arrays]
    results = [function(*parts) for parts in zip(*flat)]
    return numpy.stack(results).reshape(*batch, *numpy.shape(results[0]))


def _numpy_triangular(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import scipy.linalg  # type: ignore[import-untyped]

    is_upper, adjointed, unit = (constants[k] for k in ("upper", "adjointed", "unit"))

    def one(a: Any, b: Any) -> Any:
        return scipy.linalg.solve_triangular(
            a, b, lower=not is_upper, trans=2 if adjointed else 0, unit_diagonal=unit
        )

    return _batched(one, *arrays)


def _numpy_cholesky(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    if constants["result"] == "info":
        return numpy.zeros(arrays[0].shape[:-2])
    return numpy.linalg.cholesky(arrays[0])


def _numpy_lu(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy
    import scipy.linalg

    def one(a: Any) -> Any:
        packed, pivots = scipy.linalg.lu_factor(a)
        order = numpy.arange(a.shape[0])
        for i, p in enumerate(pivots):
            order[[i, p]] = order[[p, i]]
        results = {"packed": packed, "pivots": pivots + 1, "permutation": order, "info": 0}
        return results[constants["result"]]

    return _batched(one, arrays[0])


def _numpy_ldl(arrays: list[Any], constants: dict[str, Any]) -> Any:
    """Factors matrices whose diagonal dominates, so that no row is swapped."""
    import numpy

    def one(a: Any) -> Any:
        packed = numpy.array(a)
        for k in range(len(packed)):
            below = packed[k + 1 :, k] / packed[k, k]
            packed[k + 1 :, k + 1 :] -= numpy.tril(numpy.outer(below, packed[k + 1 :, k]))
            packed[k + 1 :, k] = below
        results = {"packed": packed, "pivots": numpy.arange(len(packed)) + 1, "info": 0}
        return results[constants["result"]]

    return _batched(one, arrays[0])


def _numpy_ldl_solve(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    def one(packed: Any, b: Any) -> Any:
        low = numpy.tril(packed, -1) + numpy.eye(len(packed))
        return numpy.linalg.solve(low * numpy.diag(packed) @ low.T, b)

    return _batched(one, arrays[0], arrays[2])


def _numpy_qr(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    mode: Any = "complete" if constants["complete"] else "reduced"
    return numpy.linalg.qr(arrays[0], mode)[constants["result"] == "r"]


def _numpy_eig(name: str) -> Reference:
    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import numpy

        return getattr(numpy.linalg, name)(arrays[0])[constants["result"] == "vectors"]

    return reference


def _numpy_geqrf(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    packed, tau = numpy.linalg.qr(arrays[0], "raw")
    return packed.swapaxes(-1, -2) if constants["result"] == "packed" else tau


def _numpy_eigvals(name: str) -> Reference:
    def reference(arrays: list[Any], constants: dict[str, Any]) -> Any:
        import numpy

        return getattr(numpy.linalg, name)(arrays[0])

    return reference


def _numpy_svdvals(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.linalg.svd(arrays[0], compute_uv=False)


def _numpy_least_squares(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    def one(a: Any, b: Any) -> Any:
        solution, _, rank, values = numpy.linalg.lstsq(a, b, rcond=constants["rcond"])
        return {"solution": solution, "rank": rank, "values": values}[constants["result"]]

    return _batched(one, *arrays)


def _numpy_reflect(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    def one(packed: Any, tau: Any, x: Any) -> Any:
        count = len(tau)
        for k in range(count) if constants["adjointed"] else range(count - 1, -1, -1):
            v = numpy.concatenate([numpy.zeros(k), [1.0], packed[k + 1 :, k]])
            scale = numpy.conj(tau[k]) if constants["adjointed"] else tau[k]
            x = x - scale * numpy.outer(v, v.conj() @ x)
        return x

    return numpy.vectorize(one, signature="(m,n),(k),(m,j)->(m,j)")(*arrays)


def _numpy_pivot_order(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    def one(pivots: Any) -> Any:
        order = numpy.arange(constants["rows"])
        for k, pivot in enumerate(pivots):
            order[[k, pivot - 1]] = order[[pivot - 1, k]]
        return order

    return numpy.vectorize(one, signature="(k)->(r)")(arrays[0])


def _numpy_svd(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    factors = numpy.linalg.svd(arrays[0], full_matrices=constants["full_matrices"])
    return factors[RESULTS["svd"].index(constants["result"])]


# ------------------------------------------------------------------------------------ samples

SQUARE = [[4.0, 1.0, 0.5], [1.0, 3.0, -0.7], [0.5, -0.7, 5.0]]
GENERAL = [[0.3, 1.2, -0.5], [2.0, 0.4, 0.9], [-0.6, 1.1, 1.7]]
TALL = [[0.3, 1.2], [2.0, 0.4], [-0.6, 1.1]]


def _pair_samples() -> Samples:
    yield [GENERAL, TALL], {}
    yield [[GENERAL, SQUARE], [TALL, TALL]], {}


def _triangular_samples() -> Samples:
    for flags in ((False, False, False), (True, False, False), (False, True, True)):
        packed = dict(zip(("upper", "adjointed", "unit"), flags))
        yield [SQUARE, TALL], packed


def _factor_samples(name: str) -> Callable[[], Samples]:
    def samples() -> Samples:
        positive = name in ("cholesky", "eigh", "eigvalsh", "ldl")
        matrices = [SQUARE] if positive else [GENERAL]
        if name in ("qr", "geqrf", "svd", "svdvals"):
            matrices.append(TALL)
        extra = {
            "qr": {"complete": False},
            "ldl": {"hermitian": True},
            "svd": {"full_matrices": False},
        }.get(name, {})
        for matrix in matrices:
            for result in RESULTS[name]:
                yield [matrix], {"result": result, **extra}

    return samples


def _ldl_solve_samples() -> Samples:
    import numpy

    pivots: Any = numpy.array([1, 2, 3], "int32")
    yield [SQUARE, pivots, TALL], {"hermitian": True}


def _least_squares_samples() -> Samples:
    for result in RESULTS["least_squares"]:
        constants = {"result": result, "driver": "gelsd", "rcond": 1e-6}
        yield [TALL, [[1.0], [2.0], [0.5]]], constants
        yield [[GENERAL, SQUARE], [TALL, TALL]], constants


def _reflect_samples() -> Samples:
    for adjointed in (False, True):
        yield [TALL, [0.5, 1.2], GENERAL], {"adjointed": adjointed}


def _pivot_samples() -> Samples:
    import numpy

    pivots: Any = numpy.array([3, 3], "int32")
    yield [pivots], {"rows": 4}


REFERENCES: dict[str, Reference] = {
    "solve": _numpy_solve,
    "triangular_solve": _numpy_triangular,
    "least_squares": _numpy_least_squares,
    "reflect": _numpy_reflect,
    "pivot_order": _numpy_pivot_order,
    "ldl_solve": _numpy_ldl_solve,
    "cholesky": _numpy_cholesky,
    "lu": _numpy_lu,
    "ldl": _numpy_ldl,
    "qr": _numpy_qr,
    "geqrf": _numpy_geqrf,
    "eigh": _numpy_eig("eigh"),
    "eigvalsh": _numpy_eigvals("eigvalsh"),
    "eig": _numpy_eig("eig"),
    "eigvals": _numpy_eigvals("eigvals"),
    "svd": _numpy_svd,
    "svdvals": _numpy_svdvals,
}
SAMPLES: dict[str, Callable[[], Samples]] = {
    **{name: _factor_samples(name) for name in RESULTS if name != "least_squares"},
    "solve": _pair_samples,
    "triangular_solve": _triangular_samples,
    "least_squares": _least_squares_samples,
    "reflect": _reflect_samples,
    "pivot_order": _pivot_samples,
    "ldl_solve": _ldl_solve_samples,
}
