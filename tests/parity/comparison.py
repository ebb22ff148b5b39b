"""Whether two results are the same: what PyTorch returned, and what Flambeau returned."""

from __future__ import annotations

from typing import Any

import torch

import flambeau
from tests.parity.translation import oracle_tensor

# Relative and absolute, of one operator: both libraries round once or a few times.
TOLERANCE = {
    torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 2e-5, torch.complex64: 2e-5,
    torch.float16: 4e-3, torch.bfloat16: 3.2e-2, torch.complex32: 4e-3,
}  # fmt: skip
# Their results are storage that nobody wrote.
UNINITIALISED = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ "
    "resize_as_".split()
)


def declared_tolerance(entry: Any, dtype: torch.dtype) -> float:
    """The widest tolerance PyTorch's own tests grant an entry, at least ours."""
    widest = TOLERANCE.get(dtype, 0.0)
    for decorator in getattr(entry, "decorators", ()):
        for held in getattr(decorator, "decorators", [decorator]):
            stated = getattr(held, "d", None)
            if isinstance(stated, dict) and dtype in stated:
                wide = stated[dtype]
                widest = max(widest, *(wide if isinstance(wide, tuple) else (wide,)))
    return widest


def _matrix(vectors: torch.Tensor, values: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (vectors * values.to(vectors.dtype).unsqueeze(-2)) @ other


def _singular(result: Any) -> tuple[torch.Tensor, ...]:
    u, s, v = result
    if not u.numel() or not v.numel():
        return (s,)
    count = s.shape[-1]
    rows = v[..., :count, :]
    return s, _matrix(u[..., :count], s, rows), u.mH @ u, v @ v.mH


def _singular_old(result: Any) -> tuple[torch.Tensor, ...]:
    u, s, v = result
    return _singular((u, s, v.mH))


def _symmetric(result: Any) -> tuple[torch.Tensor, ...]:
    values, vectors = result
    return values, _matrix(vectors, values, vectors.mH)


def _sorted(values: torch.Tensor) -> torch.Tensor:
    keys = values.real + 1e-3 * values.imag if values.is_complex() else values
    return values.gather(-1, keys.argsort(-1))


def _general(result: Any) -> tuple[torch.Tensor, ...]:
    values, vectors = result
    if not values.numel():
        return (values, vectors)
    return _sorted(values), _matrix(vectors, values, torch.linalg.inv(vectors))


# Results that are unique only up to a sign, a phase or an order: what of them is unique.
UNIQUE_PART = {
    "linalg.svd": _singular,
    "svd": _singular_old,
    "svd_lowrank": _singular_old,
    "pca_lowrank": _singular_old,
    "linalg.eigh": _symmetric,
    "linalg.eig": _general,
    "linalg.eigvals": lambda values: (_sorted(values),),
}
# Their eigenvalues come in any order.
UNORDERED = frozenset(("linalg.eig", "linalg.eigvals"))


def in_order(result: Any, library: Any) -> Any:
    """Eigenvalues, with their vectors if there are any, in one order for both libraries."""
    values, *vectors = [result] if isinstance(result, library.Tensor) else result
    order = (values.detach().real + 1e-3 * values.detach().imag).argsort(-1)
    chosen = [library.take_along_dim(values, order, -1)]
    chosen += [library.take_along_dim(v, order.unsqueeze(-2), -1) for v in vectors]
    return chosen if vectors else chosen[0]


def flattened(result: Any) -> list[Any]:
    """Tensors and other values of a result, in order."""
    if isinstance(result, (list, tuple)) and not isinstance(result, (torch.Size, flambeau.Size)):
        return [leaf for item in result for leaf in flattened(item)]
    if isinstance(result, dict):
        return [leaf for item in result.values() for leaf in flattened(item)]
    return [result]


def difference(ours: Any, theirs: Any, entry: Any) -> str | None:
    """The first difference of two results in number, dtype, shape or value, in one line."""
    mine, wanted = flattened(ours), flattened(theirs)
    if len(mine) != len(wanted):
        return f"{len(mine)} results, expected {len(wanted)}"
    for a, b in zip(mine, wanted):
        found = _geometry(a, b)
        if found is not None:
            return found
    if entry.name in UNINITIALISED:
        return None
    tensors = [oracle_tensor(a) if isinstance(a, flambeau.Tensor) else a for a in mine]
    wanted = [b.detach() if isinstance(b, torch.Tensor) else b for b in wanted]
    if entry.name in UNIQUE_PART:
        tensors, wanted = (UNIQUE_PART[entry.name](part if len(part) > 1 else part[0])
                           for part in (tensors, wanted))  # fmt: skip
    for a, b in zip(tensors, wanted):
        found = _values(a, b, entry)
        if found is not None:
            return found
    return None


def _geometry(a: Any, b: Any) -> str | None:
    if not isinstance(b, torch.Tensor):
        if isinstance(a, flambeau.Tensor):
            return f"a tensor, expected {b!r}"
        return None
    if not isinstance(a, flambeau.Tensor):
        return f"{type(a).__name__}, expected a tensor"
    for what in ("dtype", "shape", "layout"):
        mine, wanted = str(getattr(a, what)), str(getattr(b, what))
        if mine.rpartition(".")[2] != wanted.rpartition(".")[2]:
            return f"{what} {mine}, expected {wanted}"
    return None


def _values(a: Any, b: Any, entry: Any) -> str | None:
    if not isinstance(b, torch.Tensor):
        same = a == b or str(a).replace("flambeau", "torch") == str(b) or (a != a and b != b)
        if isinstance(b, float) and isinstance(a, float):
            same = same or abs(a - b) <= 2e-5 * max(1, abs(b))
        return None if same else f"{a!r}, expected {b!r}"
    a, b = a.to_dense(), b.to_dense().resolve_conj().resolve_neg()
    tolerance = declared_tolerance(entry, b.dtype)
    if b.dtype == torch.complex32:  # PyTorch does not compare them
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    close = torch.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if bool(close.all()):
        return None
    where = tuple((~close).nonzero()[0].tolist())
    count = int((~close).sum())
    return f"value {a[where].item()} at {where}, expected {b[where].item()} ({count} elements)"


def stride_difference(ours: Any, theirs: Any) -> str | None:
    """The first result whose strides differ where they matter."""
    for a, b in zip(flattened(ours), flattened(theirs)):
        if not isinstance(b, torch.Tensor) or b.layout != torch.strided or not b.numel():
            continue
        pairs = zip(a.stride(), b.stride(), a.shape)
        if any(p != q and n > 1 for p, q, n in pairs):
            return f"strides {a.stride()}, expected {b.stride()} of {tuple(b.shape)}"
    return None
