"""`torch.lobpcg` against PyTorch: eigenvalues, spans, gradients, state of a tracker, errors."""

import inspect

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

SIZE = 30
CASES = [
    dict(k=2),
    dict(k=3, largest=False),
    dict(k=2, method="basic"),
    dict(k=2, n=3, largest=False, method="basic"),
    dict(k=1, niter=-1, tol=1e-10),
    dict(k=2, ortho_iparams={"i_max": 2}, ortho_bparams={"use_drop": True}),
]
WRONG = [
    lambda t, a: t.lobpcg(a[:8]),
    lambda t, a: t.lobpcg(a[0]),
    lambda t, a: t.lobpcg(a, 11),
    lambda t, a: t.lobpcg(a, B=a[:8, :8]),
    lambda t, a: t.lobpcg(a, X=a[:8, :2]),
    lambda t, a: t.lobpcg(a, X=a[:, :2].to(t.float32)),
    lambda t, a: t.lobpcg(a.to(t.int64)),
    lambda t, a: t.lobpcg(a.to(t.complex128)),
    lambda t, a: t.lobpcg(a, B=-a, k=2),
    lambda t, a: t.lobpcg(a.clone().requires_grad_(), B=a)[0].sum().backward(),
]


def matrix(*batch, seed=0):
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.standard_normal((*batch, SIZE, SIZE)))[0]
    return (basis * np.arange(1.0, SIZE + 1)) @ np.swapaxes(basis, -1, -2)


def solve(library, a, b, options):
    library.manual_seed(3)
    a = library.from_numpy(a).requires_grad_(b is None)
    values, vectors = library.lobpcg(a, B=None if b is None else library.from_numpy(b), **options)
    gradient = None
    if b is None:
        ((vectors**4).sum() + (values**2).sum()).backward()
        gradient = a.grad.numpy()
    return values.detach().numpy(), np.abs(vectors.detach().numpy()), gradient


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("batch", [(), (2, 1)], ids=str)
@pytest.mark.parametrize("generalised", [False, True])
def test_results(options, batch, generalised):
    a = matrix(*batch)
    b = matrix(*batch, seed=1) if generalised else None
    if generalised and options.get("method") == "basic" and not options.get("largest", True):
        pytest.skip("PyTorch gives one pair twice; tests/ops/test_lobpcg.py knows the right ones")
    ours, theirs = (solve(library, a, b, options) for library in (flambeau, torch))
    for found, expected, bound in zip(ours, theirs, (1e-9, 1e-5, 1e-4), strict=True):
        if expected is not None:
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("method", ["ortho", "basic"])
def test_tracker(method):
    states = []
    for library in (flambeau, torch):
        library.manual_seed(0)
        seen = []

        def tracker(state, seen=seen):
            seen.append((dict(state.iparams), dict(state.bparams), dict(state.ivars)))
            assert set(state.fparams) >= {"tol"} and set(state.tvars) == {"rerr"}
            seen[-1] += (state.fvars["A_norm"], tuple(state.X.shape), tuple(state.R.shape))

        library.lobpcg(library.from_numpy(matrix()), 2, tracker=tracker, method=method)
        states.append(seen)
    ours, theirs = states
    assert len(ours) <= len(theirs) + 3
    assert ours[0][0] == theirs[0][0] and ours[0][1] == theirs[0][1]
    assert set(ours[0][2]) == set(theirs[0][2]) and ours[0][3] == pytest.approx(theirs[0][3])
    assert ours[0][4:] == theirs[0][4:]
    for name in ("istep", "iterations_left", "converged_end"):
        assert [step[2][name] for step in ours[:5]] == [step[2][name] for step in theirs[:5]]


@pytest.mark.parametrize("call", WRONG)
def test_errors(call):
    with pytest.raises(Exception) as theirs:
        call(torch, torch.from_numpy(matrix()))
    with pytest.raises(Exception) as ours:
        call(flambeau, flambeau.from_numpy(matrix()))
    assert ours.type.__name__.lstrip("_") == theirs.type.__name__.lstrip("_")


def test_signature():
    ours, theirs = (inspect.signature(library.lobpcg) for library in (flambeau, torch))
    assert list(ours.parameters) == list(theirs.parameters)
    assert [p.default for p in ours.parameters.values()] == [
        p.default for p in theirs.parameters.values()
    ]
