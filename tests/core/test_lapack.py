"""Linear algebra by LAPACK and by own code: bits depend on the matrix alone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import flambeau as torch
from flambeau import _core
from flambeau.runtime import lapack

DTYPES = ["float32", "float64", "complex64", "complex128"]
nan, inf = float("nan"), float("inf")


@contextmanager
def without_library():
    """Own code for matrices of every size, as where the wheel is not installed."""
    _core.load_lapack(None)
    try:
        yield
    finally:
        lapack.load()


@pytest.fixture(params=["library", "own code"])
def either(request):
    if request.param == "library":
        if lapack.library() is None:
            pytest.skip("scipy-openblas64 is not installed")
        assert lapack.load()
        yield
    else:
        with without_library():
            yield


def general(dtype, *shape, seed=0):
    """Made by NumPy, as are the checks: what these tests compile is what they are about."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * generator.standard_normal(shape)
    return x.astype(dtype)


def adjoint(x):
    return x.conj().swapaxes(-1, -2)


L, t = torch.linalg, torch.from_numpy
# What each operator computes from a matrix, a right side, a positive and a triangular matrix.
OPERATORS = {
    "cholesky": lambda x, b, p, u: [L.cholesky(p)],
    "cholesky_solve": lambda x, b, p, u: [torch.cholesky_solve(b, u, upper=True)],
    "lu_factor": lambda x, b, p, u: list(L.lu_factor(x)),
    "lu_solve": lambda x, b, p, u: [L.lu_solve(*L.lu_factor(x), b)],
    "solve": lambda x, b, p, u: [L.solve(x, b)],
    "inv": lambda x, b, p, u: [L.inv(x)],
    "det": lambda x, b, p, u: [L.det(x / 8), *L.slogdet(x)],
    "qr": lambda x, b, p, u: list(L.qr(x)),
    "complete qr": lambda x, b, p, u: list(L.qr(x[..., : x.shape[-1] - 3], mode="complete")),
    "ormqr": lambda x, b, p, u: [torch.ormqr(*torch.geqrf(x), b)],
    "eigh": lambda x, b, p, u: list(L.eigh(p)),
    "eigvalsh": lambda x, b, p, u: [L.eigvalsh(p)],
    "eig": lambda x, b, p, u: list(L.eig(x)),
    "eigvals": lambda x, b, p, u: [L.eigvals(x)],
    "svd": lambda x, b, p, u: list(L.svd(x)),
    "wide svd": lambda x, b, p, u: list(L.svd(x[..., : x.shape[-1] - 3, :], full_matrices=False)),
    "svdvals": lambda x, b, p, u: [L.svdvals(x)],
    "solve_triangular": lambda x, b, p, u: [L.solve_triangular(u, b, upper=True)],
    "ldl_factor": lambda x, b, p, u: list(L.ldl_factor(x, hermitian=True)),
    "ldl_solve": lambda x, b, p, u: [L.ldl_solve(*L.ldl_factor(x), b)],
    "householder_product": lambda x, b, p, u: [L.householder_product(*torch.geqrf(x))],
    "tall gelsy": lambda x, b, p, u: [L.lstsq(x[..., : x.shape[-1] // 4], b).solution],
    "gels": lambda x, b, p, u: [L.lstsq(x, b, driver="gels").solution],
    "gelsy": lambda x, b, p, u: [L.lstsq(x, b).solution],
    "gelsd": lambda x, b, p, u: [L.lstsq(x, b, driver="gelsd").solution],
    "gelss": lambda x, b, p, u: [L.lstsq(x, b, driver="gelss").solution],
}


LATE = ("qr", "complete qr", "eigh", "svd", "wide svd")  # own code up to nearly 200 rows


def bits(tensors):
    return [x.numpy().copy().tobytes() for x in tensors]


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_matrix_has_the_same_bits_alone_and_in_a_batch(name, dtype):
    """Also at another place in memory, and on another number of threads."""
    check_bits((67, 200)[name in LATE and dtype == "float32"], OPERATORS[name], dtype)


@pytest.mark.parametrize("n", [5, 17, 40])
@pytest.mark.parametrize("name", ["det", "lu_factor", "solve", "ldl_factor", "ldl_solve"])
def test_small_matrices_have_the_same_bits_alone_and_in_a_batch(name, n):
    check_bits(n, OPERATORS[name], "complex64")


def check_bits(n, function, dtype):
    x, b = general(dtype, 5, n, n), general(dtype, 5, n, 3, seed=1)
    positive = x @ adjoint(x) + n * np.eye(n, dtype=dtype)
    operands = [x, b, positive, np.triu(positive)]
    batch = function(*map(t, operands))
    for index in (1, 4):
        moved = []
        for operand in operands:
            memory = np.zeros(operand[index].size + index, dtype)
            memory[index:] = operand[index].ravel()
            moved.append(t(memory)[index:].view(operand[index].shape))
        assert bits(function(*moved)) == bits([r[index] for r in batch])
    threads = torch.get_num_threads()
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            assert bits(function(*map(t, operands))) == bits(batch)
    finally:
        torch.set_num_threads(threads)


class Near:
    """Compares up to the roundings that an operator of size n may make."""

    def __init__(self, dtype, n):
        self.bound = 30 * np.finfo(dtype).eps * n

    def __call__(self, found, expected, scale=1.0):
        greatest = np.abs(expected).max(initial=0)
        assert np.abs(found - expected).max(initial=0) <= self.bound * greatest * scale


CASES = [(dtype, n) for dtype in DTYPES for n in (3, 80)] + [("float32", 200)]


@pytest.mark.parametrize("dtype, n", CASES)
def test_systems_satisfy_their_equations(either, dtype, n):
    x, b, near = general(dtype, 2, n, n), general(dtype, 2, n, 3, seed=1), Near(dtype, n)
    x += 3 * np.eye(n, dtype=dtype)
    packed, pivots = L.lu_factor(t(x))
    near(x @ L.solve(t(x), t(b)).numpy(), b, 100)
    near(x @ L.lu_solve(packed, pivots, t(b)).numpy(), b, 100)
    near(adjoint(x) @ L.lu_solve(packed, pivots, t(b), adjoint=True).numpy(), b, 100)
    near(x @ L.inv(t(x)).numpy(), np.eye(n), 100)
    p, low, up = (v.numpy() for v in torch.lu_unpack(packed, pivots))
    near(p @ low @ up, x)
    h = x @ adjoint(x) + n * np.eye(n, dtype=dtype)
    low = L.cholesky(t(h)).numpy()
    near(low @ adjoint(low), h)
    for upper, triangle in ((True, np.triu(h)), (False, np.tril(h))):
        near(triangle @ L.solve_triangular(t(h), t(b), upper=upper).numpy(), b)


@pytest.mark.parametrize("dtype, n", CASES)
@pytest.mark.parametrize("hermitian", [False, True])
def test_indefinite_systems(either, dtype, n, hermitian):
    x, b, near = general(dtype, 2, n, n), general(dtype, 2, n, 3, seed=1), Near(dtype, n)
    x = x + (adjoint(x) if hermitian else x.swapaxes(-1, -2))
    packed, pivots, info = L.ldl_factor_ex(t(x), hermitian=hermitian)
    assert n == 3 or (pivots < 0).any()
    assert info.tolist() == [0, 0]
    assert (np.triu(packed.numpy(), 1) == 0).all()
    near(x @ L.ldl_solve(packed, pivots, t(b), hermitian=hermitian).numpy(), b, 300)
    assert L.ldl_factor_ex(torch.zeros(n, n)).info.item() == 1


@pytest.mark.parametrize("dtype, n", CASES)
def test_decompositions_multiply_to_the_matrix(either, dtype, n):
    x, near = general(dtype, 2, n, n), Near(dtype, n)
    h = x @ adjoint(x)
    for part in (x, x[..., : n - 1].copy(), x[..., : n - 1, :].copy()):
        for mode in ("reduced", "complete"):
            q, r = (v.numpy() for v in L.qr(t(part), mode=mode))
            near(q @ r, part)
            near(adjoint(q) @ q, np.eye(q.shape[-1]))
            assert (np.tril(r, -1) == 0).all()
        u, s, vh = (v.numpy() for v in L.svd(t(part)))
        k = s.shape[-1]
        near((u[..., :k] * s[:, None]) @ vh[..., :k, :], part)
        near(L.svdvals(t(part)).numpy(), s)
    w, v = (v.numpy() for v in L.eigh(t(h)))
    near(h @ v, v * w[:, None], 3)
    near(L.eigvalsh(t(h)).numpy(), w)
    w, v = (v.numpy() for v in L.eig(t(x)))
    near(x @ v, v * w[:, None], 3)
    near(np.linalg.norm(v, axis=-2), np.ones((2, n)))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(12, 8), (8, 12), (50, 30)])
def test_least_squares_of_low_rank(either, dtype, driver, shape):
    """Of all solutions the shortest, whose rank is told."""
    m, n = shape
    a = general(dtype, 2, m, 3) @ general(dtype, 2, 3, n, seed=2)
    b = general(dtype, 2, m, 2, seed=3)
    found = L.lstsq(t(a), t(b), driver=driver)
    for i in range(2):
        expected, _, _, values = np.linalg.lstsq(a[i], b[i], rcond=1e-12)
        np.testing.assert_allclose(found.solution[i].numpy(), expected, atol=1e-12)
        if driver != "gelsy":
            np.testing.assert_allclose(found.singular_values[i].numpy(), values, atol=1e-12)
    assert found.rank.tolist() == [3, 3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 30, 170])
def test_least_squares_of_full_rank(either, dtype, n):
    """Solved without a rule of rank; a batch may hold both kinds of matrices."""
    m, near = n + 7, Near(dtype, n)
    a, b = general(dtype, 3, m, n), general(dtype, 3, m, 2, seed=1)
    a[1, :, 1] = a[1, :, 0]
    found = L.lstsq(t(a), t(b))
    assert found.rank.tolist() == [n, n - 1, n]
    x = found.solution.numpy()
    near(adjoint(a) @ (a @ x), adjoint(a) @ b, 100)
    np.testing.assert_allclose(x[1, 0], x[1, 1], rtol=0.01)  # the shortest of several
    assert L.lstsq(t(a[:1]), t(b[:1])).solution.numpy().tobytes() == x[:1].tobytes()


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_the_memory_order_of_least_squares(driver):
    """Solutions have their place in the memory of right sides, as LAPACK leaves them."""
    for shape, strides in (((5, 3), (1, 5)), ((3, 3), (1, 3)), ((3, 5), (1, 5))):
        a = t(general("float64", *shape))
        found = L.lstsq(a, torch.ones(shape[0], 2, dtype=a.dtype), driver=driver).solution
        assert found.stride() == strides and found.shape == (shape[1], 2)
        assert L.lstsq(a, torch.ones(shape[0], dtype=a.dtype), driver=driver)[0].stride() == (1,)
    assert L.lstsq(torch.ones(0, 5, 3), torch.ones(0, 5, 2), driver=driver)[0].shape == (0, 3, 2)


@pytest.mark.parametrize("driver", ["gelsd", "gelss"])
def test_residuals_only_where_all_matrices_are_of_full_rank(driver):
    full, low = torch.eye(4)[:, :3], torch.ones(4, 3)
    assert L.lstsq(full, torch.ones(4, 2), driver=driver).residuals.tolist() == [1.0, 1.0]
    assert L.lstsq(low, torch.ones(4, 2), driver=driver).residuals.shape == (0,)
    both = L.lstsq(torch.stack([full, low]), torch.ones(2, 4, 2), driver=driver)
    assert both.residuals.shape == (0,) and both.rank.tolist() == [3, 1]


def test_the_fields_of_lu():
    found = torch.lu(torch.eye(3), get_infos=True)
    assert found.info.item() == 0 and found.pivots.tolist() == [1, 2, 3]
    assert torch.equal(found.LU, torch.eye(3)) and len(found) == 3
    assert type(torch.lu(torch.eye(3))) is tuple


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0)])
def test_determinants_without_elements_keep_their_graph(shape):
    for call in (L.det, torch.det, lambda x: L.slogdet(x)[1], torch.logdet):
        x = torch.ones(shape, requires_grad=True)
        call(x).sum().backward()
        assert x.grad.shape == shape


def test_the_program_of_a_determinant_does_not_depend_on_its_size():
    """One launch multiplies the pivots of complex matrices."""
    launches = []
    for n in (2, 40):
        stages = torch.compiler.stages(L.det, torch.ones(3, n, n, dtype=torch.complex64))
        launches.append("".join(text for name, _, text in stages if name == "lower"))
    assert launches[0].count("launch") == launches[1].count("launch") == 4


def test_determinants_of_complex_matrices_with_zero_pivots():
    x = t(general("complex128", 3, 4, 4))
    x[1, :, 2] = 0
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: x.prod(-1), x)
    np.testing.assert_allclose(L.det(x).detach().numpy(), np.linalg.det(x.detach().numpy()))


@pytest.mark.parametrize("n", [3, 200])
def test_reflections_of_nan(n):
    """A column of NaN is not one of zeros."""
    for place in ((1, 1), (2, 1), (n - 1, 0)):
        q, r = L.qr(damaged(n, nan, [place]))
        assert q.isnan().any() and r.isnan().any()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradient_of_reflections(dtype):
    packed, x = (t(general(dtype, 5, k)).requires_grad_() for k in (4, 2))
    tau, wide = (t(general(dtype, *s, seed=1)).requires_grad_() for s in ((4,), (2, 5)))
    few = tau[:3].detach().requires_grad_()
    for transpose in (False, True):
        of_left = lambda *all, by=transpose: torch.ormqr(*all, transpose=by)  # noqa: E731
        of_right = lambda *all, by=transpose: torch.ormqr(*all, False, by)  # noqa: E731
        assert torch.autograd.gradcheck(of_left, (packed, tau, x))
        assert torch.autograd.gradcheck(of_right, (packed, tau, wide))
    assert torch.autograd.gradcheck(L.householder_product, (packed, few))


def test_the_program_of_reflections_does_not_depend_on_their_number():
    texts = [
        "".join(text for name, _, text in torch.compiler.stages(torch.ormqr, *operands))
        for operands in ((torch.ones(n, n), torch.ones(n), torch.ones(n, 5)) for n in (2, 24))
    ]
    assert texts[0].count("\n") == texts[1].count("\n")


def test_reflections_of_shapes_that_do_not_fit():
    a, tau, x = torch.ones(2, 3, 3), torch.ones(2, 3), torch.ones(2, 3, 1)
    for operands, text in (
        ((a, tau[0], x), "one dimension less than input"),
        ((a, torch.ones(3, 3), x), "batch dimensions of tau"),
        ((a, torch.ones(2, 4), x), "tau.shape"),
        ((a, tau, x[0]), "batch dimensions of other"),
        ((a, tau, torch.ones(2, 4, 1)), "must be equal to input.shape"),
        ((a, tau, x.double()), "to have the same dtype"),
        ((a, tau.double(), x), "does not match input dtype"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch.ormqr(*operands)
    for scales in (torch.ones(3), torch.ones(3, 3), torch.ones(2, 4), tau.double()):
        with pytest.raises(RuntimeError, match="tau"):
            L.householder_product(a, scales)


def test_least_squares_of_zeros(either):
    zeros, ones = torch.zeros(6, 4), torch.ones(6, 2)
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        assert (L.lstsq(zeros, ones, driver=driver).solution == 0).all()
    columns = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    found = L.lstsq(columns, torch.ones(3, 1)).solution
    np.testing.assert_allclose(found.numpy(), [[3 / 14], [3 / 14]], rtol=1e-5)
    assert L.lstsq(columns, torch.ones(3, 1), rcond=2.0).rank.item() <= 1


def test_gradient_of_least_squares():
    a, b = (t(general("float64", 2, 6, k)).requires_grad_() for k in (4, 3))
    wide, sides = (t(general("float64", 3, k)).requires_grad_() for k in (5, 2))
    assert torch.autograd.gradcheck(lambda a, b: L.lstsq(a, b)[0], (a, b))
    assert torch.autograd.gradcheck(lambda a, b: L.lstsq(a, b, driver="gelsd")[:2], (a, b))
    assert torch.autograd.gradcheck(lambda a, b: L.lstsq(a, b)[0], (wide, sides))


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_of_badly_scaled_matrices(either, dtype, n):
    x = general(dtype, n, n)
    info = np.finfo(dtype)
    for scale in (info.max / 2**10, info.tiny * 2**10):
        for values in (L.eigvals, L.eigvalsh, lambda x: L.eig(x)[0], lambda x: L.eigh(x)[0]):
            x = x.astype(dtype)
            usual, found = (values(t(v)).numpy() for v in (x, x * np.asarray(scale, x.real.dtype)))
            apart = np.abs(found[:, None] / scale - usual).min(0)  # conjugates in any order
            assert apart.max() <= 1e3 * info.eps * np.abs(usual).max()


def damaged(n, value, places=((0, 0),)):
    x = general("float64", n, n)
    for place in places:
        x[place] = value
    return t(x)


@pytest.mark.parametrize("n", [5, 60])
def test_singular_values_of_what_is_not_finite(either, n):
    for call in (
        L.svd, L.svdvals, torch.svd, L.pinv, L.cond, L.matrix_rank,
        lambda x: L.cond(x, -2), lambda x: L.matrix_norm(x, 2), lambda x: L.matrix_norm(x, "nuc"),
    ):  # fmt: skip
        with pytest.raises(L.LinAlgError, match="linalg.svd: The algorithm failed to converge "
                           "because the input matrix contained non-finite values"):  # fmt: skip
            call(damaged(n, nan))
    batch = torch.stack([damaged(n, 1.0), damaged(n, nan)])
    with pytest.raises(L.LinAlgError, match=r"linalg.svd: \(Batch element 1\): The algorithm"):
        L.svdvals(batch)
    infinite = damaged(n, inf)
    assert L.svdvals(infinite).isnan().all() and L.svd(infinite).S.isnan().all()
    assert L.cond(infinite).isnan() and L.matrix_norm(infinite, "nuc").isnan()
    assert L.matrix_rank(infinite).item() == 0
    assert L.cond(damaged(n, nan), 1) == inf and L.cond(torch.zeros(n, n), "fro") == inf
    assert L.cond(torch.zeros(n, n), "nuc").isnan()


@pytest.mark.parametrize("n", [5, 60])
def test_eigenvalues_of_what_is_not_finite(either, n):
    for value in (nan, inf):
        with pytest.raises(RuntimeError, match="input tensor should not contain infs or NaNs"):
            L.eig(damaged(n, value))
        assert L.eigvals(damaged(n, value)).isnan().all()
        upper = damaged(n, value, [(0, n - 1)])
        assert L.eigh(upper).eigenvalues.isfinite().all()  # not read
    for call in (L.eigh, L.eigvalsh, lambda x: L.pinv(x, hermitian=True)):
        with pytest.raises(L.LinAlgError, match=r"linalg.eigh: The .* eigenvalues \(error code"):
            call(damaged(n, nan, [(n - 1, 0)]))
    assert L.eigvalsh(damaged(n, inf)).isnan().all()


@pytest.mark.parametrize("n", [5, 60])
def test_systems_of_what_is_not_finite(either, n):
    x = damaged(n, nan)
    with pytest.raises(L.LinAlgError, match="leading minor of order 1 is not positive-definite"):
        L.cholesky(x)
    for last in (nan, -1.0):
        y = torch.eye(n)
        y[n - 1, n - 1] = last
        assert L.cholesky_ex(y).info == n
    assert L.inv(x).isnan().any() and L.det(x).isnan() and L.qr(x).R.isnan().any()
    with pytest.raises(L.LinAlgError, match="non-finite"):
        L.lstsq(x, torch.ones(n, 1, dtype=x.dtype))
    with pytest.raises(L.LinAlgError, match="singular"):
        L.inv(torch.zeros(n, n))


def test_without_elements(either):
    for shape in ((0, 0), (3, 0, 0), (0, 50, 50), (0, 4), (40, 0)):
        x = torch.empty(shape)
        assert L.svdvals(x).shape == (*shape[:-2], min(shape[-2:]))
        assert L.qr(x).R.shape == (*shape[:-2], min(shape[-2:]), shape[-1])
        assert L.lstsq(x, torch.empty(*shape[:-1], 2)).solution.shape == (*shape[:-2], shape[-1], 2)
        if shape[-1] == shape[-2]:
            for call in (L.inv, L.cholesky, L.eigvals, L.eigvalsh, L.det, lambda x: L.solve(x, x)):
                assert call(x).shape[: x.ndim - 2] == shape[:-2]


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip


_LOADED = "any('openblas' in line for line in open('/proc/self/maps'))"


def test_the_library_is_loaded_on_first_use():
    program = (
        "import os, sys, flambeau as torch\n"
        f"before = {_LOADED}\n"
        "torch.linalg.inv(torch.eye(2)); torch.eye(200) @ torch.eye(200)\n"
        f"small = {_LOADED}\n"
        "environment = dict(os.environ)\n"
        "torch.linalg.inv(torch.eye(200))\n"
        f"print(before, small, {_LOADED}, dict(os.environ) == environment,\n"
        "      len(os.listdir('/proc/self/task')) < 8, 'scipy_openblas64' in sys.modules)\n"
    )
    found = run(program, FLAMBEAU_NUM_THREADS="1", OPENBLAS_NUM_THREADS="8")
    assert found.stdout.split() == ["False", "False", "True", "True", "True", "False"], found.stderr


def test_where_the_wheel_is_missing():
    program = (
        "import flambeau as torch, flambeau.runtime.lapack as lapack\n"
        "lapack.library = lambda: None\n"
        "x = torch.eye(100) * 2\n"
        "print(float(torch.linalg.inv(x).sum()), torch.linalg.eigvalsh(x).max().item(),\n"
        "      torch.linalg.lstsq(x, x).rank.item(), lapack.load())\n"
        f"print({_LOADED})\n"
    )
    found = run(program)
    assert found.stdout.split() == ["50.0", "2.0", "100", "False", "False"], found.stderr


def test_a_child_after_fork():
    """Also one that is made while another thread computes."""
    program = (
        "import os, threading, flambeau as torch\n"
        "x = torch.randn(300, 300); expected = torch.linalg.svdvals(x)\n"
        "stop = threading.Event()\n"
        "def work():\n"
        "    while not stop.is_set(): torch.linalg.svdvals(x)\n"
        "thread = threading.Thread(target=work); thread.start()\n"
        "for _ in range(5):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(0 if torch.equal(torch.linalg.svdvals(x), expected) else 1)\n"
        "    print(os.waitpid(child, 0)[1])\n"
        "stop.set(); thread.join()\n"
    )
    found = run(program)
    assert found.stdout.split() == ["0"] * 5, found.stderr


@pytest.mark.parametrize("upper", [True, False])
def test_products_of_large_triangles_are_summed_before_they_are_subtracted(upper):
    torch.manual_seed(0)
    general = torch.randn(256, 256)
    positive = general @ general.mT + 256 * torch.eye(256)
    triangle = positive.triu() if upper else positive.tril()
    for operand, of_upper in ((triangle, upper), (triangle.mT, not upper)):
        x = torch.linalg.solve_triangular(operand, general, upper=of_upper)
        left = operand.double() @ x.double() - general.double()
        assert left.abs().max() < 3.5 * 2**-24 * general.abs().max()
