"""`torch.distributions` without PyTorch: densities of SciPy, moments, round trips, compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flambeau as torch
from flambeau import distributions as D
from flambeau.distributions import constraints

stats = pytest.importorskip("scipy.stats")

A, B = torch.tensor([0.7, 2.5]), torch.tensor([1.6, 3.2])
CONTINUOUS = {
    "Beta": (D.Beta(A, B), stats.beta(A, B)),
    "Cauchy": (D.Cauchy(A, B), stats.cauchy(A, B)),
    "Chi2": (D.Chi2(B), stats.chi2(B)),
    "Exponential": (D.Exponential(A), stats.expon(scale=1 / A)),
    "FisherSnedecor": (D.FisherSnedecor(A, B), stats.f(A, B)),
    "Gamma": (D.Gamma(A, B), stats.gamma(A, scale=1 / B)),
    "GeneralizedPareto": (D.GeneralizedPareto(A, B, 0.3), stats.genpareto(0.3, A, B)),
    "Gumbel": (D.Gumbel(A, B), stats.gumbel_r(A, B)),
    "HalfCauchy": (D.HalfCauchy(B), stats.halfcauchy(0, B)),
    "HalfNormal": (D.HalfNormal(B), stats.halfnorm(0, B)),
    "InverseGamma": (D.InverseGamma(A, B), stats.invgamma(A, scale=B)),
    "Laplace": (D.Laplace(A, B), stats.laplace(A, B)),
    "LogNormal": (D.LogNormal(A, B), stats.lognorm(B, scale=A.exp())),
    "Normal": (D.Normal(A, B), stats.norm(A, B)),
    "Pareto": (D.Pareto(A, B), stats.pareto(B, scale=A)),
    "StudentT": (D.StudentT(B, A, B), stats.t(B, A, B)),
    "Uniform": (D.Uniform(A, A + B), stats.uniform(A, B)),
    "VonMises": (D.VonMises(A, B), stats.vonmises(B, A)),
    "Weibull": (D.Weibull(A, B), stats.weibull_min(B, scale=A)),
}
P = torch.tensor([0.3, 0.8])
DISCRETE = {
    "Bernoulli": (D.Bernoulli(P), stats.bernoulli(P)),
    "Binomial": (D.Binomial(6, P), stats.binom(6, P)),
    "Geometric": (D.Geometric(P), stats.geom(P, loc=-1)),
    "NegativeBinomial": (D.NegativeBinomial(3, P), stats.nbinom(3, 1 - P)),
    "Poisson": (D.Poisson(B), stats.poisson(B)),
}


def near(ours, expected, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(
        ours.double(), torch.as_tensor(expected).double(), rtol=rtol, atol=atol
    )


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_densities_are_scipys(name):
    ours, theirs = (CONTINUOUS | DISCRETE)[name]
    torch.manual_seed(0)
    value = ours.sample((5,))
    density = theirs.logpdf if name in CONTINUOUS else theirs.logpmf
    near(ours.log_prob(value), density(value.numpy()))


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Laplace", "Pareto", "Weibull", "Uniform"])
def test_distribution_functions_are_scipys(name):
    ours, theirs = CONTINUOUS[name]
    value = ours.sample((5,))
    near(ours.cdf(value), theirs.cdf(value.numpy()))
    near(ours.entropy(), theirs.entropy())
    near(ours.mean, theirs.mean())
    if name != "Gamma":
        near(ours.icdf(ours.cdf(value)), value, rtol=1e-3)


def test_matrices_are_scipys():
    covariance = torch.tensor([[2.0, 0.3], [0.3, 1.0]])
    normal = D.MultivariateNormal(torch.zeros(2), covariance)
    x = normal.sample((4,))
    near(normal.log_prob(x), stats.multivariate_normal(cov=covariance.numpy()).logpdf(x.numpy()))
    wishart = D.Wishart(4.0, covariance)
    w = wishart.sample()
    near(wishart.log_prob(w), stats.wishart(4, covariance.numpy()).logpdf(w.numpy()))
    mixed = D.Dirichlet(torch.tensor([1.5, 2.0, 0.7]))
    near(mixed.entropy(), stats.dirichlet([1.5, 2.0, 0.7]).entropy())


def test_samples_have_the_moments():
    torch.manual_seed(1)
    finite = [D.Gamma(A, B), D.Beta(A, B), D.Gumbel(A, B), D.VonMises(A * 0, B * 4), D.Poisson(B)]
    for each in [*finite, D.NegativeBinomial(3, P), D.ContinuousBernoulli(P)]:
        x = each.sample((20000,))
        spread = each.stddev if not isinstance(each, D.VonMises) else torch.ones(2)
        assert ((x.mean(0) - each.mean).abs() < 5 * spread / 20000**0.5 + 1e-3).all()


def test_gamma_gradients_are_those_of_the_quantile():
    """dx/da against differences of SciPy's quantile function, from tiny to large shapes."""
    shapes = [0.05, 0.3, 1.0, 2.5, 9.0, 80.0, 5000.0]
    a = torch.tensor(shapes, dtype=torch.float64).repeat_interleave(20).requires_grad_()
    x = torch._standard_gamma(a)
    x.sum().backward()
    share = stats.gamma.cdf(x.detach().numpy(), a.detach().numpy())
    steps = 1e-5 * a.detach().numpy()
    high, low = (stats.gamma.ppf(share, a.detach().numpy() + s) for s in (steps, -steps))
    usable = torch.tensor((share > 1e-8) & (share < 1 - 1e-6))
    expected = torch.tensor((high - low) / (2 * steps))
    assert usable.sum() > 100
    near(a.grad[usable], expected[usable], rtol=2e-4, atol=1e-9)


def test_beta_gradients_are_those_of_the_quantile():
    a = torch.tensor([0.3, 0.8, 2.0, 30.0], dtype=torch.float64).repeat(30)
    b = torch.tensor([0.5, 3.0, 2.0], dtype=torch.float64).repeat_interleave(40)
    x = D.Beta(a, b).sample()
    gradient = D.dirichlet.beta_gradient(x, a, b) * (1 - x)
    share = stats.beta.cdf(x, a, b)
    steps = 1e-5 * a.numpy()
    high, low = (stats.beta.ppf(share, a.numpy() + s, b) for s in (steps, -steps))
    usable = torch.tensor((share > 1e-6) & (share < 1 - 1e-6)) & (x > 1e-6) & (x < 1 - 1e-6)
    near(gradient[usable], torch.tensor((high - low) / (2 * steps))[usable], rtol=1e-3, atol=1e-7)


SETS = [
    constraints.real, constraints.positive, constraints.greater_than(2.0),
    constraints.less_than(-1.0), constraints.interval(-1.0, 3.0), constraints.simplex,
    constraints.corr_cholesky, constraints.independent(constraints.positive, 1),
    constraints.stack([constraints.positive] * 3, -1),
]  # fmt: skip


@pytest.mark.parametrize("constraint", SETS, ids=repr)
def test_round_trips(constraint):
    torch.manual_seed(2)
    x = torch.randn(4, 3, dtype=torch.float64)
    for registry in (D.biject_to, D.transform_to):
        t = registry(constraint)
        y = t(x)
        assert constraint.check(y).all()
        near(t(t.inv(y)), y)
    t = D.biject_to(constraint)
    near(t.inv(t(x)), x)
    assert t.inv.inv is t or t.inv.inv == t


@pytest.mark.parametrize("t", [D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(),
    D.SoftplusTransform(), D.AffineTransform(1.0, -2.0), D.PowerTransform(torch.tensor(3.0))],
    ids=repr)  # fmt: skip
def test_jacobians_are_derivatives(t):
    x = torch.tensor([0.3, 0.9, 1.7], dtype=torch.float64, requires_grad=True)
    y = t(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    near(t.log_abs_det_jacobian(x, y), slope.abs().log())
    near(t.inv.log_abs_det_jacobian(y, x), -slope.abs().log())


def test_jacobians_of_vectors_are_determinants():
    x = torch.randn(3, dtype=torch.float64)
    stick = D.StickBreakingTransform()
    matrix = torch.func.jacrev(lambda v: stick(v)[:-1])(x)
    near(stick.log_abs_det_jacobian(x, stick(x)), torch.linalg.slogdet(matrix).logabsdet)
    corr = D.CorrCholeskyTransform()
    matrix = torch.func.jacrev(lambda v: D.utils.tril_matrix_to_vec(corr(v), diag=-1))(x)
    near(corr.log_abs_det_jacobian(x, corr(x)), torch.linalg.slogdet(matrix).logabsdet)


def test_a_cache_returns_the_input():
    t = D.ComposeTransform([D.ExpTransform(), D.SigmoidTransform()], cache_size=1)
    x = torch.randn(3)
    assert t.inv(t(x)) is x
    with pytest.raises(ValueError):
        D.ExpTransform(cache_size=2)


def test_parts_of_tensors():
    t = D.CatTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0)], lengths=[1, 2])
    x = torch.tensor([0.0, 1.0, 2.0])
    assert t(x).tolist() == [1.0, 3.0, 5.0] and t.inv(t(x)).tolist() == x.tolist()
    near(t.log_abs_det_jacobian(x, t(x)), torch.tensor([0.0, 2.0, 2.0]).log().clamp(min=0))


def sample_and_score(a, b):
    gamma = D.Gamma(a, b, validate_args=False)
    normal = D.Normal(a, b, validate_args=False)
    beta = D.Beta(a, b, validate_args=False)
    x, y, z = gamma.rsample((3,)), normal.rsample((3,)), beta.rsample((3,))
    return gamma.log_prob(x), normal.log_prob(y), beta.log_prob(z)


def test_compiled_is_eager():
    results = []
    for function in (sample_and_score, torch.compile(sample_and_score)):
        torch.manual_seed(3)
        a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
        found = function(a, b)
        grads = torch.autograd.grad(sum(f.sum() for f in found), (a, b))
        results.append([v.tolist() for v in (*found, *grads)])
    assert results[0] == results[1]


def test_validation_in_compiled_functions():
    compiled = torch.compile(lambda x: D.Normal(0.0, 1.0).log_prob(x))
    assert compiled(A).tolist() == D.Normal(0.0, 1.0).log_prob(A).tolist()
    with pytest.raises(ValueError, match="support"):
        compiled(torch.tensor([torch.nan]))


def test_batched_by_vmap():
    def log_prob(a, b, x):
        return D.Gamma(a, b, validate_args=False).log_prob(x)

    x = D.Gamma(A, B).sample()
    assert torch.vmap(log_prob)(A, B, x).tolist() == D.Gamma(A, B).log_prob(x).tolist()

    for family in (D.Normal, D.Gamma, D.Beta, D.Laplace, D.Cauchy, D.Weibull, D.StudentT):

        def draw(a, b, family=family):
            return family(a, b, validate_args=False).rsample((2,))

        assert torch.vmap(draw, randomness="different")(A, B).shape == (2, 2)


def test_subclasses_need_their_own_expand():
    class Shifted(D.Normal):
        def __init__(self, loc):
            super().__init__(loc + 1, 1.0)

    with pytest.raises(NotImplementedError, match="expand"):
        Shifted(torch.zeros(2)).expand((3, 2))


def test_default_of_validation():
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="scale"):
        D.Normal(0.0, -1.0)


def test_registered_divergences():
    class Point(D.Distribution):
        arg_constraints = {}  # noqa: RUF012

    with pytest.raises(NotImplementedError, match="Point"):
        D.kl_divergence(Point(), Point())

    @D.register_kl(Point, D.Distribution)
    def to_anything(p, q):
        return torch.tensor(1.0)

    assert D.kl_divergence(Point(), D.Normal(0.0, 1.0)) == 1
    D.kl._KL_REGISTRY.pop((Point, D.Distribution))


def test_packed_triangles():
    matrix = torch.randn(2, 4, 4).tril()
    for diagonal in (0, -1, -2):
        packed = D.utils.tril_matrix_to_vec(matrix, diagonal)
        assert D.utils.vec_to_tril_matrix(packed, diagonal).equal(matrix.tril(diagonal))


def test_import_is_lazy():
    code = "import flambeau, sys; assert 'flambeau.distributions' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
