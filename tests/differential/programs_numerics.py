"""Linear algebra, Fourier transforms, complex numbers, special functions, statistics."""

from __future__ import annotations

import math

import torch

from tests.differential.show import describe, numbers, raised


def solving() -> None:
    a = torch.randn(3, 3, dtype=torch.float64) + 3 * torch.eye(3, dtype=torch.float64)
    b = torch.randn(3, 2, dtype=torch.float64)
    x = torch.linalg.solve(a, b)
    print(
        numbers(a @ x - b),
        numbers(torch.linalg.inv(a) @ a),
        numbers(torch.linalg.det(a)),
        numbers(torch.linalg.slogdet(a).logabsdet),
    )
    print(
        numbers(torch.linalg.lstsq(a, b).solution),
        torch.linalg.matrix_rank(torch.ones(3, 3)),
        numbers(torch.linalg.pinv(a) - a.inverse()),
    )
    lu = torch.linalg.lu_factor(a)
    print(lu.pivots, numbers(torch.linalg.lu_solve(*lu, b) - x), type(lu).__name__)
    spd = a @ a.T
    c = torch.linalg.cholesky(spd)
    print(
        numbers(c @ c.T - spd),
        numbers(torch.cholesky_solve(b, c) - torch.linalg.solve(spd, b)),
        torch.linalg.cholesky_ex(-spd).info,
    )
    print(
        raised(lambda: torch.linalg.cholesky(-spd)),
        raised(lambda: torch.linalg.inv(torch.zeros(2, 2))),
        raised(lambda: torch.linalg.solve(torch.zeros(2, 2), torch.ones(2))),
    )
    print(
        raised(lambda: torch.linalg.inv(torch.ones(2, 3))),
        raised(lambda: torch.linalg.cholesky(torch.ones(2, 2, dtype=torch.int64))),
        raised(lambda: a @ torch.ones(3)),
    )
    print(
        numbers(torch.linalg.solve_triangular(c, b, upper=False)),
        numbers(torch.linalg.matrix_power(a, 3).trace()),
        numbers(torch.matrix_exp(torch.zeros(2, 2))),
    )


def decompositions() -> None:
    a = torch.arange(6.0).view(3, 2) + torch.eye(3, 2)
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    print(numbers(s), numbers(u @ torch.diag(s) @ vh), u.shape, describe(vh))
    q, r = torch.linalg.qr(a)
    print(numbers(q @ r), numbers(r.abs()), numbers(torch.linalg.svdvals(a)))
    sym = a.T @ a
    values, vectors = torch.linalg.eigh(sym)
    print(
        numbers(values),
        numbers(vectors @ values.diag() @ vectors.T),
        numbers(torch.linalg.eigvalsh(sym)),
    )
    general = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    print(
        torch.linalg.eigvals(general).imag.sort().values,
        torch.linalg.eig(general).eigenvalues.dtype,
        raised(lambda: torch.linalg.eigh(a)),
    )
    torch.qr(a), torch.lu(sym), torch.svd(a), torch.linalg.lu(a)
    torch.cholesky(sym)
    print(
        raised(lambda: torch.symeig(sym)),
        raised(lambda: torch.eig(sym)),
        raised(lambda: torch.lstsq(a, a)),
    )


def norms_and_products() -> None:
    a = torch.arange(6.0).view(2, 3)
    for order in (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        print(order, numbers(torch.linalg.norm(a, order)))
    print(
        numbers(torch.linalg.vector_norm(a, 3, dim=1)),
        numbers(a.norm(dim=0, keepdim=True)),
        numbers(torch.norm(a, p=1)),
        numbers(torch.linalg.cond(a)),
    )
    print(
        torch.einsum("ij,kj->ik", a, a),
        torch.einsum("ii", torch.eye(3)),
        torch.tensordot(a, a, dims=([1], [1])),
        torch.kron(torch.eye(2), a[:1]),
    )
    print(
        torch.linalg.multi_dot([a, a.T, a]),
        torch.cross(a[0], a[1], dim=0),
        torch.outer(a[0], a[1]),
        torch.inner(a, a),
        torch.dot(a[0], a[1]),
    )
    print(
        torch.matmul(torch.ones(2, 1, 3, 4), torch.ones(5, 4, 2)).shape,
        torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 1)).stride(),
        torch.mv(a, a[0]),
    )
    print(
        raised(lambda: a @ a),
        raised(lambda: torch.dot(a, a)),
        raised(lambda: torch.bmm(a, a)),
        raised(lambda: torch.einsum("ij,jk", a, a)),
    )
    print(
        torch.addmm(torch.ones(2), a, a.T, beta=0.5, alpha=2),
        torch.baddbmm(torch.ones(1), a[None], a.T[None]),
        torch.linalg.cross(a, a),
        torch.trace(a),
    )
    print(
        raised(lambda: a @ a.long().T),
        raised(lambda: torch.cross(a, a.T)),
        torch.cross(a, a + 1).shape,
    )


def linear_algebra_gradients() -> None:
    a = (torch.eye(3) * 2 + torch.arange(9.0).view(3, 3) / 10).requires_grad_()
    for name in (
        "inv",
        "det",
        "cholesky",
        "eigvalsh",
        "svdvals",
        "pinv",
        "matrix_norm",
        "slogdet",
        "qr",
        "solve",
    ):
        function = getattr(torch.linalg, name)
        source = a @ a.T if name in ("cholesky", "eigvalsh") else a
        result = function(source, torch.ones(3)) if name == "solve" else function(source)
        result = result[1] if isinstance(result, tuple) else result
        (g,) = torch.autograd.grad((result**2).sum(), a)
        print(name, numbers(g), type(result.grad_fn).__name__)


def matrix_exponential_node() -> None:
    a = torch.eye(2, requires_grad=True)
    result = torch.linalg.matrix_exp(a)
    result.sum().backward()
    print(numbers(a.grad), type(result.grad_fn).__name__)


def fourier() -> None:
    x = torch.arange(8.0)
    f = torch.fft.rfft(x)
    print(
        describe(f),
        numbers(f),
        numbers(torch.fft.irfft(f)),
        torch.fft.fftfreq(4, 0.5),
        torch.fft.fftshift(torch.arange(5)),
    )
    print(
        numbers(torch.fft.fft2(x.view(2, 4))),
        describe(torch.fft.fftn(torch.ones(2, 3, 4))),
        numbers(torch.fft.ifft(f, n=4, norm="ortho")),
    )
    print(
        numbers(torch.fft.hfft(f)),
        torch.fft.fft(torch.ones(3, dtype=torch.int64)).dtype,
        raised(lambda: torch.fft.fft(x, norm="x")),
        raised(lambda: torch.fft.rfft(f)),
    )
    y = x.clone().requires_grad_()
    torch.fft.rfft(y).abs().sum().backward()
    print(numbers(y.grad), type(torch.fft.rfft(y).grad_fn).__name__)
    s = torch.stft(
        torch.sin(torch.arange(64.0)), 16, 4, window=torch.hann_window(16), return_complex=True
    )
    print(
        describe(s),
        numbers(s[3, :2]),
        numbers(torch.istft(s, 16, 4, window=torch.hann_window(16))[:3]),
    )
    print(
        raised(lambda: torch.stft(x, 4)),
        numbers(torch.hamming_window(5)),
        numbers(torch.signal.windows.gaussian(4)),
    )
    torch.stft(x, 4, return_complex=True)
    print(
        numbers(torch.fft.ifft(torch.fft.fft(x[:4]) * torch.fft.fft(x[4:])).real),
        numbers(torch.kaiser_window(4)),
    )


def complex_numbers() -> None:
    z = torch.tensor([3 + 4j, 1 - 1j])
    print(
        z.abs(),
        z.angle(),
        z.conj(),
        z.real,
        z.imag,
        z.sgn(),
        z * 1j,
        z**2,
        torch.exp(z),
        z.sum(),
        z.mean(),
    )
    print(
        torch.view_as_real(z),
        torch.view_as_complex(torch.ones(2, 2)),
        z.conj().is_conj(),
        z.conj().resolve_conj().is_conj(),
        z.dtype.to_real(),
    )
    print(
        torch.is_complex(z),
        z.to(torch.complex128).dtype,
        raised(lambda: z > 1),
        raised(lambda: z.max()),
        raised(lambda: z.floor()),
    )
    z.float()
    z.to(torch.float64)
    z.real[0] = 10
    print(
        z,
        torch.complex(torch.ones(1), torch.ones(1)),
        torch.polar(torch.tensor(1.0), torch.tensor(math.pi)),
        z.isreal(),
        z.conj().imag.is_neg(),
    )
    print(
        describe(z.conj().real),
        raised(lambda: torch.ones(1).imag),
        torch.ones(1).real,
        torch.ones(2).conj() is not None,
        z.allclose(z.clone()),
        torch.ones(1).to(torch.complex64),
    )
    print(
        z == z,
        z.numpy().dtype,
        z.tolist(),
        z[0].item(),
        complex(z[0]),
        z.T.shape,
        z.vdot(z),
        torch.mean(torch.abs(z)),
        z.cumsum(0),
        torch.tensor(1j) * torch.tensor(2.0),
    )


def special_functions() -> None:
    x = torch.tensor([0.1, 0.5, 2.0, 7.0])
    for name in (
        "gammaln digamma erf erfc erfinv i0 i0e i1 ndtr "
        "ndtri log_ndtr logit expit expm1 log1p sinc entr xlog1py "
        "multigammaln zeta polygamma bessel_j0 bessel_y1 exp2"
    ).split():
        function = getattr(torch.special, name)
        try:
            print(
                name,
                numbers(
                    function(x, x + 2)
                    if name in ("zeta", "xlog1py")
                    else function(2, x)
                    if name == "polygamma"
                    else function(x + 1, 2)
                    if name == "multigammaln"
                    else function(x)
                ),
            )
        except Exception as error:
            print(name, type(error).__name__)
    print(
        numbers(torch.lgamma(x)),
        numbers(torch.igamma(x, x)),
        numbers(torch.mvlgamma(x + 1, 2)),
        numbers(torch.xlogy(x, 0)),
        torch.special.softmax(x, 0).sum(),
    )
    print(
        numbers(torch.hypot(x, x)),
        numbers(torch.atan2(x, -x)),
        numbers(torch.logaddexp(x, x)),
        torch.frexp(x),
        torch.ldexp(x, torch.tensor(2)),
        torch.nextafter(x, x + 1) > x,
    )
    print(
        torch.heaviside(x - 0.5, torch.tensor(0.5)),
        torch.copysign(x, -x),
        torch.signbit(-x),
        torch.trunc(-x),
        torch.frac(x),
        torch.deg2rad(x * 90),
        torch.float_power(x, 2).dtype,
    )


def statistics() -> None:
    x = torch.arange(12.0).view(3, 4) ** 1.5
    print(
        numbers(x.std()),
        numbers(x.var(0)),
        numbers(x.std(1, correction=0)),
        numbers(torch.var_mean(x)[1]),
        numbers(x.var(unbiased=False)),
        numbers(torch.std_mean(x, 1)[0]),
    )
    print(
        numbers(torch.cov(x)),
        numbers(torch.corrcoef(x)),
        numbers(x.quantile(torch.tensor([0.25, 0.5]), dim=1)),
        torch.histogram(x, 3),
        numbers(x.logsumexp(1)),
    )
    torch.ones(1).std()
    torch.ones(2, 1).var(1)
    print(
        x.mean(dim=(0, 1)),
        x.sum(()),
        x.prod(),
        x.all(),
        x.any(1),
        x.count_nonzero(0),
        x.argmin(),
        numbers(x.median()),
        x.amax((0, 1)),
        numbers(x.renorm(2, 0, 5.0)),
    )
    print(
        raised(lambda: x.sum(3)),
        raised(lambda: x.max(dim=5)),
        raised(lambda: torch.tensor([]).max()),
        torch.tensor([]).sum(),
        torch.tensor([]).mean(),
        torch.tensor([]).prod(),
    )
    print(
        torch.bincount(torch.tensor([1, 1, 3]), weights=torch.ones(3)),
        raised(lambda: torch.bincount(torch.tensor([-1]))),
        numbers(torch.histc(x, 3, 0, 40)),
        numbers(torch.cumulative_trapezoid(x[0])),
    )
    print(
        torch.gradient(x[0])[0],
        numbers(torch.nn.functional.softmax(x, 1).sum()),
        numbers(x.sum(0, keepdim=True, dtype=torch.float64)),
        x.sum(dtype=torch.int64),
    )


def polynomial_fit() -> None:
    x = torch.linspace(-1, 1, 20)
    y = 3 * x**2 - x + 0.5
    a = torch.stack([x**k for k in range(3)], 1)
    print(
        numbers(torch.linalg.lstsq(a, y[:, None]).solution.squeeze()),
        numbers(torch.linalg.pinv(a) @ y),
        numbers(torch.linalg.solve(a.T @ a, a.T @ y)),
    )
    w = torch.zeros(3, requires_grad=True)
    for _ in range(200):
        loss = ((a @ w - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= 0.5 * w.grad
            w.grad.zero_()
    print(numbers(w), numbers(loss))


def differential_equations() -> None:
    def field(t, state):
        x, v = state.unbind(-1)
        return torch.stack([v, -x - 0.1 * v], -1)

    state = torch.tensor([1.0, 0.0], requires_grad=True)
    s, h = state, 0.1
    for k in range(30):
        k1 = field(k * h, s)
        k2 = field(k * h, s + h / 2 * k1)
        k3 = field(k * h, s + h / 2 * k2)
        k4 = field(k * h, s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    s[0].backward()
    print(numbers(s), numbers(state.grad), type(s.grad_fn).__name__)
    u = torch.exp(-((torch.linspace(0, 1, 32) - 0.5) ** 2) * 50)
    for _ in range(50):
        u = u + 0.2 * (u.roll(1) - 2 * u + u.roll(-1))
    print(numbers(u[::6]), numbers(u.sum()))
