"""`torch.lobpcg` against the dense eigenvalue decomposition, its options, state and gradients."""

import math

import pytest

import flambeau as torch

SIZE = 20


def symmetric(*batch, low=1.0, size=SIZE, dtype=torch.float64, seed=0):
    """A matrix with the eigenvalues low, low + 1, ..."""
    torch.manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(*batch, size, size, dtype=dtype))[0]
    return (basis * torch.arange(low, low + size, dtype=dtype)) @ basis.mT


def extremes(a, b, k, largest):
    if b is not None:
        factor = torch.linalg.cholesky(b)
        a = torch.linalg.solve_triangular(factor, a, upper=False)
        a = torch.linalg.solve_triangular(factor, a.mT, upper=False)
    values = torch.linalg.eigvalsh(a)
    return values.flip(-1)[..., :k] if largest else values[..., :k]


def check(a, b, k, largest, **options):
    values, vectors = torch.lobpcg(a, k, b, largest=largest, **options)
    assert values.shape == (*a.shape[:-2], k) and vectors.shape == (*a.shape[:-1], k)
    single = a.dtype is torch.float32
    torch.testing.assert_close(
        values,
        extremes(a, b, k, largest),
        rtol=1e-4 if single else 1e-10,
        atol=1e-4 if single else 1e-9,
    )
    images = vectors if b is None else b @ vectors
    bound = 2e-2 if single else 2e-5
    assert float((a @ vectors - images * values[..., None, :]).abs().max()) < bound
    gram = vectors.mT @ images
    assert float((gram - torch.eye(k, dtype=a.dtype)).abs().max()) < (1e-3 if single else 1e-6)


@pytest.mark.parametrize("method", ["ortho", "basic"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("k", [1, 3])
def test_pairs(method, largest, dtype, k):
    check(symmetric(dtype=dtype), None, k, largest, method=method)


@pytest.mark.parametrize("method", ["ortho", "basic"])
@pytest.mark.parametrize("largest", [True, False])
def test_generalised_problems(method, largest):
    check(symmetric(low=-5.0), symmetric(seed=1), 2, largest, method=method)


@pytest.mark.parametrize("method", ["ortho", "basic"])
def test_batches(method):
    check(symmetric(2, 3), None, 2, True, method=method)
    check(symmetric(2), symmetric(2, seed=3), 2, False, method=method)
    assert torch.lobpcg(torch.zeros(0, 9, 9), 2)[1].shape == (0, 9, 2)


@pytest.mark.parametrize("largest", [True, False])
def test_multiple_eigenvalues(largest):
    for matrix in (torch.eye(SIZE), torch.zeros(SIZE, SIZE), torch.eye(SIZE) - 0.5):
        values, vectors = torch.lobpcg(matrix.double(), 2, largest=largest)
        torch.testing.assert_close(values, extremes(matrix.double(), None, 2, largest))
        torch.testing.assert_close(vectors.mT @ vectors, torch.eye(2, dtype=torch.float64))


def test_large_sparse_matrix():
    size = 300  # the second difference: eigenvalues 2 - 2 cos(pi j / (size + 1))
    points = torch.arange(size)
    rows = torch.cat([points, points[1:], points[:-1]])
    columns = torch.cat([points, points[:-1], points[1:]])
    data = torch.cat([torch.full((size,), 2.0), torch.full((2 * size - 2,), -1.0)]).double()
    sparse = torch.sparse_coo_tensor(torch.stack([rows, columns]), data, (size, size))
    expected = torch.tensor([2 - 2 * math.cos(math.pi * j / (size + 1)) for j in (size, size - 1)])
    torch.manual_seed(0)
    for matrix in (sparse, sparse.to_sparse_csr()):
        values, _ = torch.lobpcg(matrix, 2, n=6, niter=-1, tol=1e-6)
        torch.testing.assert_close(values, expected.double(), rtol=1e-6, atol=1e-6)
    inverse = torch.linalg.inv(sparse.to_dense())
    steps = []
    values, _ = torch.lobpcg(
        sparse, 2, iK=inverse, largest=False, tracker=lambda s: steps.append(1)
    )
    torch.testing.assert_close(values[0], torch.tensor(2 - 2 * math.cos(math.pi / 301)).double())
    assert len(steps) < 20  # the preconditioner is exact


def test_start_and_block():
    a = symmetric()
    start = torch.randn(SIZE, 4, dtype=torch.float64)
    assert torch.lobpcg(a, X=start)[0].shape == (4,)
    assert torch.lobpcg(a, 2, X=start)[1].shape == (SIZE, 2)
    assert torch.lobpcg(a, 3, n=2)[0].shape == (2,)
    exact = torch.linalg.eigh(a)[1][:, -2:]
    steps = []
    torch.lobpcg(a, X=exact, tracker=lambda state: steps.append(state.ivars["istep"]))
    assert steps == [1]
    torch.manual_seed(7)
    first = torch.lobpcg(a, 2)
    torch.manual_seed(7)
    again = torch.lobpcg(a, 2)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("method", ["ortho", "basic"])
def test_tracker_sees_the_state(method):
    seen = []

    def tracker(state):
        assert state.method == method and state.A.shape == (SIZE, SIZE) and state.B is None
        assert state.R.shape == state.X.shape == (SIZE, 3) and state.E.shape == (3,)
        assert state.iparams["n"] == 3 and state.bparams["largest"] and state.fparams["tol"] == 1e-5
        assert state.ivars["converged_end"] == state.S.shape[-1] <= 9
        seen.append((dict(state.ivars), float(state.tvars["rerr"].max())))

    torch.lobpcg(symmetric(), 3, method=method, tol=1e-5, niter=50, tracker=tracker)
    steps = [ivars["istep"] for ivars, _ in seen]
    assert steps == list(range(1, len(steps) + 1)) and 1 < len(steps) < 50
    assert seen[0][0]["iterations_left"] == 49
    assert seen[-1][0]["converged_count"] == 3 and seen[-1][1] <= 1e-5
    seen.clear()
    torch.lobpcg(symmetric(), 3, method=method, tol=1e-5, niter=2, tracker=tracker)
    assert len(seen) == 2


def test_dependent_starts_are_mended():
    a = symmetric()
    values, _ = torch.lobpcg(a, X=a[:, [0, 0]])
    torch.testing.assert_close(values, extremes(a, None, 2, True))


def test_options_of_the_basis():
    a = symmetric()
    values, _ = torch.lobpcg(
        a, 2, ortho_iparams={"i_max": 2, "j_max": 2}, ortho_fparams={"tol": 1e-6},
        ortho_bparams={"use_drop": True},
    )  # fmt: skip
    torch.testing.assert_close(values, extremes(a, None, 2, True))


# ------------------------------------------------------------------------------ gradients
def test_gradients():
    # Powers of the vectors' entries do not depend on their signs.
    def pairs(a):
        torch.manual_seed(0)
        values, vectors = torch.lobpcg(a, 2, tol=1e-13, niter=300)
        return values, vectors**2

    a = symmetric(size=8).requires_grad_()
    assert torch.autograd.gradcheck(pairs, (a,), atol=1e-4)
    batch = symmetric(2, size=6).requires_grad_()
    assert torch.autograd.gradcheck(pairs, (batch,), atol=1e-4)
    assert torch.autograd.gradgradcheck(pairs, (a,), atol=1e-3)


def test_gradient_is_that_of_the_decomposition():
    a = symmetric().requires_grad_()
    values, vectors = torch.lobpcg(a, 3, tol=1e-12, largest=False)
    (found,) = torch.autograd.grad((vectors**4).sum() + (values**2).sum(), a)
    values, vectors = torch.linalg.eigh((a + a.mT) / 2)
    (expected,) = torch.autograd.grad((vectors[:, :3] ** 4).sum() + (values[:3] ** 2).sum(), a)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_gradients_that_are_not_there():
    a, b = symmetric(), symmetric(seed=1)
    with pytest.raises(ValueError, match="gradient with B"):
        torch.lobpcg(a.requires_grad_(), 2, b)[0].sum().backward()
    with pytest.raises(ValueError, match="gradient with B"):
        torch.lobpcg(a.detach(), 2, b.clone().requires_grad_())[0].sum().backward()
    with pytest.raises(ValueError, match="sparse matrix"):
        torch.lobpcg(a.detach().to_sparse().requires_grad_(), 2)
    with torch.no_grad():
        assert not torch.lobpcg(a, 2)[0].requires_grad


# ------------------------------------------------------------------------------ errors
@pytest.mark.parametrize(
    "kind,match,call",
    [
        (AssertionError, "square", lambda a: torch.lobpcg(a[:9])),
        (AssertionError, "same shape", lambda a: torch.lobpcg(a, B=a[:9, :9])),
        (AssertionError, "X shape", lambda a: torch.lobpcg(a, X=a[:9, :2])),
        (AssertionError, "X shape", lambda a: torch.lobpcg(a, X=a[:, :3], n=2)),
        (IndexError, "1 dimensions", lambda a: torch.lobpcg(a[0])),
        (ValueError, "smaller than 3 x", lambda a: torch.lobpcg(a, 7)),
        (ValueError, "k is 0", lambda a: torch.lobpcg(a, 0)),
        (ValueError, "unknown method", lambda a: torch.lobpcg(a, method="lanczos")),
        (ValueError, "X is zero", lambda a: torch.lobpcg(a, X=0 * a[:, :2])),
        (
            ValueError,
            "independent",
            lambda a: torch.lobpcg(a, X=a[:, [0, 0]], ortho_bparams={"use_drop": True}),
        ),
        (RuntimeError, "int64", lambda a: torch.lobpcg(a.long())),
        (RuntimeError, "complex128", lambda a: torch.lobpcg(a + 0j)),
        (torch.linalg.LinAlgError, "positive", lambda a: torch.lobpcg(a, 2, -a)),
        (torch.linalg.LinAlgError, "positive", lambda a: torch.lobpcg(a, 2, -a, method="basic")),
    ],
)
def test_errors(kind, match, call):
    with pytest.raises(kind, match=match) as error:
        call(symmetric())
    assert "\nhint: " in str(error.value)


def test_compiled_equals_eager():
    a, start = symmetric(), torch.randn(SIZE, 2, dtype=torch.float64)
    found = torch.compile(lambda a, x: torch.lobpcg(2 * a, X=x))(a, start)
    for ours, eager in zip(found, torch.lobpcg(2 * a, X=start), strict=True):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("seed", range(5))
def test_basic_starts_anew_where_its_basis_is_nearly_dependent(seed):
    a = symmetric(size=15)
    torch.manual_seed(seed)
    values, _ = torch.lobpcg(a, 2, n=4, largest=False, method="basic")
    torch.testing.assert_close(values, extremes(a, None, 2, False))
