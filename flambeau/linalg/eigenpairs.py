"""`lobpcg`: a few extreme eigenpairs of a large symmetric matrix, from products with it alone.

Every step improves a block of vectors X by a Rayleigh-Ritz projection on the span of X, of the
preconditioned residuals W, and of the last step's directions P (Knyazev 2001). "basic" projects on
these vectors as they are, so it needs the Cholesky factor of a Gram matrix that nears a singular
one. "ortho" makes the basis B-orthonormal: W by Gram-Schmidt in blocks and the Gram matrix's own
eigenvectors (Stathopoulos and Wu 2002), P by the choice of Duersch, Shao, Yang and Gu (2018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.autograd import Function, no_grad
from flambeau.core.install import hand_over, stands_in

__all__ = ["LOBPCG", "lobpcg"]

_SOURCE = "lobpcg"


def _problem(what: str, hint: str) -> str:
    return f"[{_SOURCE}] {what}\nhint: {hint}"


class LOBPCG:
    """The state of an iteration, as a tracker sees it.

    Attributes:
        iparams, fparams, bparams: numbers that were given: sizes, tolerances, switches.
        ivars, fvars, bvars, tvars: numbers and tensors of this step: "istep", "iterations_left",
            "converged_count", "converged_end" (columns of S); "A_norm", "B_norm", "X_norm"; "rerr",
            the relative residuals.
        A, B, iK: the problem (B and iK may be None: identities).
        E, X, R, S: eigenvalues, eigenvectors, residuals, and the basis of the next projection.
    """

    def __init__(
        self,
        problem: tuple[Any, Any, Any, Any],
        iparams: dict[str, int],
        fparams: dict[str, float],
        bparams: dict[str, bool],
        method: str,
    ) -> None:
        self.A, self.B, self.X, self.iK = problem
        self.iparams, self.fparams, self.bparams = iparams, fparams, bparams
        self.method = method
        self.E: Any = self.X.new_zeros(self.X.shape[-1])
        self.R: Any = torch.zeros_like(self.X)
        self.S: Any = self.X
        self.ivars: dict[str, int] = {
            "istep": 0,
            "iterations_left": iparams["niter"],
            "converged_count": 0,
            "converged_end": 0,
        }
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {"converged": False}
        self.tvars: dict[str, Any] = {}
        self._old = 0  # columns of S after those of X that are the last step's directions
        self._eps = torch.finfo(self.X.dtype).eps

    def run(self, tracker: Callable[[Any], Any] | None) -> None:
        """Steps until enough pairs have converged or no iterations are left."""
        while True:
            self.update()
            if tracker is not None:
                tracker(self)
            if self.bvars["converged"] or self.ivars["iterations_left"] == 0:
                return

    def update(self) -> None:
        """One step: project on S, judge the residuals, make the next S."""
        if self.ivars["istep"] == 0:
            directions = self._begin()
        elif self.method == "basic":
            directions = self._project_basic()
        else:
            directions = self._project_orthonormal()
        self.ivars["istep"] += 1
        self.ivars["iterations_left"] -= 1
        self._judge()
        if not self.bvars["converged"]:
            self._extend(directions)

    # ------------------------------------------------------------------------ products
    def _times_b(self, vectors: Any) -> Any:
        return vectors if self.B is None else self.B @ vectors

    def _gram(self, left: Any, right: Any) -> Any:
        return left.mT @ self._times_b(right)

    def _ordered(self, symmetric: Any) -> tuple[Any, Any]:
        """Eigenvalues and vectors of a small matrix, the wanted ones first."""
        values, vectors = torch.linalg.eigh((symmetric + symmetric.mT) / 2)
        return (values.flip(0), vectors.flip(1)) if self.bparams["largest"] else (values, vectors)

    # ------------------------------------------------------------------------ projections
    def _begin(self) -> None:
        """Norms of the matrices, as the first block sees them; the first Ritz pairs."""
        norm = float(torch.linalg.norm(self.X))
        if norm == 0.0:
            raise ValueError(_problem("X is zero", "start from independent columns"))
        self.fvars["X_norm"] = norm
        self.fvars["A_norm"] = float(torch.linalg.norm(self.A @ self.X)) / norm
        self.fvars["B_norm"] = float(torch.linalg.norm(self._times_b(self.X))) / norm
        if self.method == "basic":
            self.S = self.X
            self._project_basic()
            return
        if self.B is not None:
            torch.linalg.cholesky(self._gram(self.X, self.X))  # raises where B is not positive
        count = self.X.shape[-1]
        self.S = self._orthonormal(self.X, None)
        if self.S.shape[-1] < count:
            text = f"X has only {self.S.shape[-1]} independent columns of {count}"
            raise ValueError(_problem(text, "start from independent columns"))
        self._project_orthonormal()

    def _project_basic(self) -> Any:
        """Rayleigh-Ritz on columns that are only scaled; the directions that changed X."""
        factor, scale = self._factor()
        basis, count = self.S, self.X.shape[-1]
        inner = scale[:, None] * (basis.mT @ (self.A @ basis)) * scale
        half = torch.linalg.solve_triangular(factor, inner, upper=False)
        projected = torch.linalg.solve_triangular(factor, half.mT, upper=False)
        values, vectors = self._ordered(projected)
        vectors = torch.linalg.solve_triangular(factor.mT, vectors[:, :count], upper=True)
        vectors = scale[:, None] * vectors
        self.E, self.X = values[:count], basis @ vectors
        return basis[:, count:] @ vectors[count:]

    def _factor(self) -> tuple[Any, Any]:
        """The Cholesky factor of S's scaled Gram matrix, and the scale of S's columns.

        Where it has none, or one too near to singular for the Ritz values to be right, S does
        without the last step's directions: the iteration starts anew (Knyazev 2001, section 5).
        """
        gram = self._gram(self.S, self.S)
        scale = gram.diagonal().rsqrt()
        factor, failed = torch.linalg.cholesky_ex(scale[:, None] * gram * scale)
        if not int(failed) and float(factor.diagonal().min()) > self._eps**0.375:
            return factor, scale
        if self._old:
            count = self.X.shape[-1]
            trailing = self.S[:, count + self._old :]
            self.S, self._old = torch.cat([self.S[:, :count], trailing], 1), 0
            return self._factor()
        return torch.linalg.cholesky(scale[:, None] * gram * scale), scale

    def _project_orthonormal(self) -> Any:
        """Rayleigh-Ritz on B-orthonormal columns; the directions are so too, and to the new X.

        Of the Ritz vectors that X leaves out, the directions span the part that the old X reaches.
        """
        basis, count = self.S, self.X.shape[-1]
        values, vectors = self._ordered(basis.mT @ (self.A @ basis))
        self.E, self.X = values[:count], basis @ vectors[:, :count]
        others = vectors[:, count:]
        chosen, _ = torch.linalg.qr(others[:count].mT)
        return basis @ (others @ chosen)

    # ------------------------------------------------------------------------ steps
    def _judge(self) -> None:
        """Residuals, and how many of the leading pairs are good enough."""
        images = self._times_b(self.X)
        self.R = self.A @ self.X - images * self.E
        sizes = torch.linalg.norm(self.R, dim=0)
        norms = torch.linalg.norm(self.X, dim=0)
        scale = norms * (self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"])
        errors = torch.where(sizes == 0, sizes, sizes / scale)
        self.tvars["rerr"] = errors
        good = [bool(error <= self.fparams["tol"]) for error in errors.tolist()]
        count = good.index(False) if False in good else len(good)
        self.ivars["converged_count"] = count
        self.bvars["converged"] = count >= self.iparams["k"]

    def _extend(self, directions: Any) -> None:
        """The next basis: X whole, and what the pairs that have not converged ask for."""
        first = self.ivars["converged_count"]
        residuals = self.R[:, first:]
        if self.iK is not None:
            residuals = self.iK @ residuals
        if directions is None:
            directions = self.X[:, :0]
        if self.method == "basic":
            directions = directions[:, first:]
            directions = directions[:, torch.linalg.norm(directions, dim=0) > 0]
            residuals = residuals - self.X @ self._gram(self.X, residuals)
            residuals = self._orthonormalised(residuals, self._eps**0.5)
            basis = torch.cat([self.X, directions], 1)
        else:
            basis = torch.cat([self.X, directions], 1)
            if self._distance(basis) > self.fparams["ortho_tol"]:
                basis = self._orthonormal(basis, None)
            residuals = self._orthonormal(residuals, basis)
        self.S, self._old = torch.cat([basis, residuals], 1), directions.shape[-1]
        if residuals.shape[-1] == 0:  # no direction is left to look into
            self.bvars["converged"] = True
        self.ivars["converged_end"] = self.S.shape[-1]

    # ------------------------------------------------------------------------ bases
    def _distance(self, basis: Any) -> float:
        """How far columns are from B-orthonormal ones."""
        if basis.shape[-1] == 0:
            return 0.0
        gram = self._gram(basis, basis)
        return float(
            (gram - torch.eye(len(gram), dtype=gram.dtype, device=gram.device)).abs().max()
        )

    def _orthonormal(self, vectors: Any, basis: Any) -> Any:
        """B-orthonormal columns of a span, B-orthogonal to known ones; dependent ones go."""
        tolerance, limit = self.fparams["ortho_tol"], self.fparams["ortho_tol_drop"]
        drop = limit if self.bparams["ortho_use_drop"] else 0.0
        for outer in range(1, self.iparams["ortho_i_max"] + 1):
            self.ivars["ortho_i"] = outer
            if basis is not None:
                vectors = vectors - basis @ self._gram(basis, vectors)
            for inner in range(1, self.iparams["ortho_j_max"] + 1):
                self.ivars["ortho_j"] = inner
                vectors = self._orthonormalised(vectors, drop)
                if self._distance(vectors) <= tolerance:
                    break
            if basis is None or vectors.shape[-1] == 0:
                break
            if float(self._gram(basis, vectors).abs().max()) <= tolerance:
                break
        if self._distance(vectors) > tolerance:
            vectors = self._orthonormalised(vectors, limit)
        return vectors

    def _orthonormalised(self, vectors: Any, drop: float) -> Any:
        """One round: scaled by the eigenvectors of the Gram matrix; zero columns always go.

        Args:
            drop: how small an eigenvalue next to the largest has its direction left out; where 0,
                small ones are raised, so that another round turns the remainder into a direction.
        """
        sizes = self._gram(vectors, vectors).diagonal()
        largest = float(sizes.max()) if sizes.numel() else 0.0
        vectors = vectors[:, sizes > drop * drop * largest]
        if vectors.shape[-1] == 0:
            return vectors
        gram = self._gram(vectors, vectors)
        scale = gram.diagonal().rsqrt()
        values, turned = torch.linalg.eigh(scale[:, None] * gram * scale)
        top = float(values.max())
        if drop:
            independent = values > drop * top
            values, turned = values[independent], turned[:, independent]
        else:
            values = values.clamp(min=self.fparams["ortho_tol_replace"] * top)
        return vectors @ (scale[:, None] * turned * values.rsqrt())


class _Options(NamedTuple):
    """The arguments of `lobpcg` beside the two matrices, checked."""

    start: Any
    inverse: Any
    iparams: dict[str, int]
    fparams: dict[str, float]
    bparams: dict[str, bool]
    method: str
    tracker: Callable[[Any], Any] | None


def _solve(a: Any, b: Any, options: _Options) -> tuple[Any, Any]:
    """Eigenpairs of one matrix or of a batch of them, one after the other."""
    batch, (size, count) = a.shape[:-2], (options.iparams["m"], options.iparams["n"])
    if not batch:
        return _solve_one(a, b, options.start, options, options.iparams)
    matrices = a.reshape(-1, size, size)
    others = None if b is None else b.reshape(-1, size, size)
    starts = None if options.start is None else options.start.reshape(-1, size, count)
    pairs = [
        _solve_one(
            matrix,
            None if others is None else others[index],
            None if starts is None else starts[index],
            options,
            options.iparams | {"batch_index": index},
        )
        for index, matrix in enumerate(matrices)
    ]
    k = options.iparams["k"]
    if not pairs:
        return a.new_zeros((*batch, k)), a.new_zeros((*batch, size, k))
    values, vectors = (torch.stack(part) for part in zip(*pairs, strict=True))
    return values.reshape(*batch, -1), vectors.reshape(*batch, size, -1)


def _solve_one(
    a: Any, b: Any, start: Any, options: _Options, iparams: dict[str, int]
) -> tuple[Any, Any]:
    if start is None:
        start = torch.randn((iparams["m"], iparams["n"]), dtype=a.dtype, device=a.device)
    state = LOBPCG(
        (a, b, start, options.inverse), iparams, options.fparams, options.bparams, options.method
    )
    state.run(options.tracker)
    k = iparams["k"]
    return state.E[:k], state.X[:, :k]


class _Eigenpairs(Function):
    """The eigenpairs with the derivative of a symmetric matrix's."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, options: _Options) -> Any:
        values, vectors = _solve(a, b, options)
        ctx.save_for_backward(a, values, vectors)
        ctx.generalised = b is not None
        return values, vectors

    @staticmethod
    def backward(ctx: Any, grad_values: Any, grad_vectors: Any) -> Any:
        a, values, vectors = ctx.saved_tensors
        if ctx.generalised:
            text = "the gradient with B is not supported"
            raise ValueError(_problem(text, "solve the problem of L^-1 A L^-T, with B = L L^T"))
        return _gradient(a, values, vectors, grad_values, grad_vectors), None, None


def _gradient(a: Any, values: Any, vectors: Any, grad_values: Any, grad_vectors: Any) -> Any:
    """The matrix's gradient from those of some eigenpairs (perturbation theory, first order).

    A change dA moves u_j by sum_i u_i (u_i' dA u_j) / (l_j - l_i) among the pairs that are known,
    and by (l_j - A)^-1 dA u_j within the complement of their span. There, the inverse is that of a
    matrix which is the identity on the span.
    """
    transposed = vectors.mT
    gaps = values[..., None, :] - values[..., :, None]
    same = torch.eye(values.shape[-1], dtype=torch.bool, device=a.device)
    weights = torch.where(same, 0.0, 1.0 / torch.where(same, 1.0, gaps))
    within = (transposed @ grad_vectors) * weights + torch.diag_embed(grad_values)
    span = vectors @ transposed
    outside = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device) - span
    shifted = values[..., None, None] * outside[..., None, :, :]
    matrix = shifted - (outside @ a @ outside - span)[..., None, :, :]
    right = (outside @ grad_vectors).mT[..., None]
    moved = torch.linalg.solve(matrix, right)[..., 0].mT
    return (vectors @ within + moved) @ transposed


def lobpcg(
    A: Any,  # noqa: N803
    k: int | None = None,
    B: Any = None,  # noqa: N803
    X: Any = None,  # noqa: N803
    n: int | None = None,
    iK: Any = None,  # noqa: N803
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Callable[[Any], Any] | None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Any, Any]:
    """The k largest (or smallest) eigenvalues l and vectors x of A x = l B x, A symmetric.

    Differentiable in a dense A without B; gradients are those of (A + A') / 2.

    Args:
        A: `(*, m, m)`, dense or sparse, float32 or float64; only products with it are taken.
        k: pairs; the columns of X, or 1.
        B: `(*, m, m)`, symmetric positive definite; the identity when None.
        X: `(*, m, n)`, first guesses; normal random numbers when None.
        n: size of the block, at least k (k); 3 n may not exceed m.
        iK: `(m, m)`, preconditioner, an approximation of the inverse of A - l B.
        niter: most steps (1000); -1 for as many as it takes, however many.
        tol: largest relative residual of a pair (sqrt(eps) of the dtype).
        largest: which end of the spectrum (True).
        method: "ortho" or "basic", which is cheaper and less robust.
        tracker: called after every step with a `LOBPCG`.
        ortho_iparams: "i_max" and "j_max" rounds of orthogonalisation (3, 3).
        ortho_fparams: its tolerances "tol", "tol_drop" and "tol_replace" (tol).
        ortho_bparams: "use_drop": drop dependent directions at once (False).

    Returns:
        Eigenvalues `(*, k)`, the extreme one first, and eigenvectors `(*, m, k)`.

    Raises:
        AssertionError: a matrix is not square or not of A's size, or X not `(*, m, n)`.
        ValueError: 3 n > m, k < 1, unknown method, X is zero or (with "use_drop") its columns are
            dependent, or a gradient is wanted of a sparse matrix or (in backward) with B.
        RuntimeError: another dtype.
        torch.linalg.LinAlgError: B is not positive definite, or "basic" has lost independence.

    Example:
        >>> values, vectors = torch.lobpcg(torch.diag(torch.arange(1.0, 10.0)), k=2)
        >>> values.round(decimals=3)
        tensor([9., 8.])
    """
    if stands_in((A, B)):
        options = {
            "k": k, "B": B, "X": X, "n": n, "iK": iK, "niter": niter, "tol": tol,
            "largest": largest, "method": method, "tracker": tracker,
            "ortho_iparams": ortho_iparams, "ortho_fparams": ortho_fparams,
            "ortho_bparams": ortho_bparams,
        }  # fmt: skip
        return hand_over(lobpcg, (A,), options)  # type: ignore[no-any-return]
    k, n = _counts(A, k, B, X, n)
    method = _method(method)
    tolerance = torch.finfo(A.dtype).eps ** 0.5 if tol is None else tol
    iparams = {"m": A.shape[-1], "n": n, "k": k, "niter": 1000 if niter is None else niter}
    fparams, bparams = {"tol": tolerance}, {"largest": True if largest is None else largest}
    settings = _Options(X, iK, iparams, fparams, bparams, method, tracker)
    if method == "ortho":
        _orthogonalise_by(settings, ortho_iparams, ortho_fparams, ortho_bparams)
    differentiable = [t for t in (A, B) if t is not None and t.requires_grad]
    if differentiable and torch.is_grad_enabled():
        if any(t.layout is not torch.strided for t in (A, *differentiable)):
            text = "the gradient of a sparse matrix is not supported"
            raise ValueError(_problem(text, "to_dense(), or detach() for no gradient"))
        values, vectors = _Eigenpairs.apply((A + A.mT) / 2, B, settings)
        return values, vectors
    with no_grad():
        return _solve(A, B, settings)


def _orthogonalise_by(options: _Options, rounds: Any, limits: Any, switches: Any) -> None:
    """Adds what governs orthogonalisation, as "ortho_<name>", with defaults for what is None."""
    limits = {"tol": options.fparams["tol"]} | (limits or {})
    limits = {"tol_drop": limits["tol"], "tol_replace": limits["tol"]} | limits
    rounds = {"i_max": 3, "j_max": 3} | (rounds or {})
    switches = {"use_drop": False} | (switches or {})
    for target, source in (
        (options.iparams, rounds), (options.fparams, limits), (options.bparams, switches)
    ):  # fmt: skip
        target.update({f"ortho_{name}": value for name, value in source.items()})


def _method(method: str | None) -> str:
    if method not in (None, "basic", "ortho"):
        raise ValueError(_problem(f"unknown method {method!r}", "'ortho' or 'basic'"))
    return method or "ortho"


def _counts(a: Any, k: Any, b: Any, x: Any, n: Any) -> tuple[int, int]:
    """The numbers of pairs and of columns, after all sizes were checked."""
    if a.dtype not in (torch.float32, torch.float64):
        text = f"A is {a.dtype}, not torch.float32 or torch.float64"
        raise RuntimeError(_problem(text, "A.float()"))
    if a.dim() < 2:
        raise IndexError(_problem(f"A has {a.dim()} dimensions", "pass matrices"))
    size = a.shape[-1]
    if a.shape[-2] != size:
        raise AssertionError(_problem(f"A must be square, got {tuple(a.shape)}", "pass (m, m)"))
    if b is not None and b.shape != a.shape:
        text = f"A and B must have same shape, got {tuple(a.shape)} and {tuple(b.shape)}"
        raise AssertionError(_problem(text, "give one B per A"))
    columns = None if x is None else x.shape[-1]
    k = (1 if columns is None else columns) if k is None else k
    n = (k if columns is None else columns) if n is None else n
    if k < 1 or n < 1:
        raise ValueError(_problem(f"k is {k}, n is {n}", "ask for 1 pair or more"))
    if size < 3 * n:
        text = f"the number of A rows (={size}) is smaller than 3 x the block's columns (={n})"
        raise ValueError(_problem(text, "use torch.linalg.eigh"))
    if x is not None and tuple(x.shape) != (*a.shape[:-2], size, n):
        text = f"X shape mismatch: got {tuple(x.shape)}, expected {(*a.shape[:-2], size, n)}"
        raise AssertionError(_problem(text, "give n columns of m rows"))
    return min(k, n), n
