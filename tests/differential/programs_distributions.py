"""Distributions, divergences, transforms, inference by sampling."""

from __future__ import annotations

import torch
import torch.distributions as D  # noqa: N812
from torch.distributions import constraints, transforms

from tests.differential.show import describe, numbers, raised


def _family():
    one, half = torch.tensor([1.0, 2.0]), torch.tensor([0.3, 0.7])
    return [
        D.Normal(one, half),
        D.Bernoulli(half),
        D.Categorical(torch.ones(2, 3)),
        D.Beta(one, half),
        D.Gamma(one, half),
        D.Dirichlet(torch.ones(2, 3)),
        D.Poisson(one),
        D.Exponential(one),
        D.Uniform(one, one + 1),
        D.Laplace(one, half),
        D.StudentT(one + 2),
        D.Cauchy(one, half),
        D.LogNormal(one, half),
        D.Geometric(half),
        D.Binomial(5, half),
        D.NegativeBinomial(5, half),
        D.Multinomial(4, torch.ones(3)),
        D.MultivariateNormal(torch.zeros(2), torch.eye(2)),
        D.Gumbel(one, half),
        D.HalfNormal(one),
        D.HalfCauchy(one),
        D.Pareto(one, one),
        D.Weibull(one, one),
        D.VonMises(one, one),
        D.Chi2(one),
        D.FisherSnedecor(one, one + 5),
        D.OneHotCategorical(torch.ones(2, 3)),
        D.Kumaraswamy(one, one),
        D.ContinuousBernoulli(half),
        D.InverseGamma(one + 2, one),
        D.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
        D.RelaxedBernoulli(torch.tensor(0.5), half),
        D.LogisticNormal(torch.zeros(2), torch.ones(2)),
        D.Wishart(torch.tensor(3.0), torch.eye(2)),
    ]


def samples_and_densities() -> None:
    for d in _family():
        torch.manual_seed(3)
        s = d.sample((2,))
        print(d, d.batch_shape, d.event_shape, d.has_rsample, type(d.support).__name__)
        print(numbers(s, 3), numbers(d.log_prob(s), 3))


def moments() -> None:
    for d in _family():
        values = []
        for name in ("mean", "variance", "stddev", "mode"):
            if isinstance(d, D.Kumaraswamy) and name == "mode":
                continue
            try:
                values.append(numbers(getattr(d, name), 3))
            except Exception as error:
                values.append(type(error).__name__)
        try:
            values.append(numbers(d.entropy(), 3))
        except Exception as error:
            values.append(type(error).__name__)
        print(type(d).__name__, values)


def kumaraswamy_mode() -> None:
    print(D.Kumaraswamy(torch.tensor(2.0), torch.tensor(2.0)).mode)


def divergences() -> None:
    pairs = [
        (D.Normal(0.0, 1.0), D.Normal(1.0, 2.0)),
        (D.Bernoulli(0.3), D.Bernoulli(0.6)),
        (D.Gamma(1.0, 2.0), D.Gamma(2.0, 1.0)),
        (D.Categorical(torch.tensor([0.2, 0.8])), D.Categorical(torch.tensor([0.5, 0.5]))),
        (D.Beta(1.0, 2.0), D.Beta(2.0, 2.0)),
        (D.Uniform(0.0, 1.0), D.Uniform(-1.0, 2.0)),
        (D.Exponential(1.0), D.Gamma(1.0, 2.0)),
        (D.Laplace(0.0, 1.0), D.Laplace(1.0, 2.0)),
        (
            D.MultivariateNormal(torch.zeros(2), torch.eye(2)),
            D.MultivariateNormal(torch.ones(2), 2 * torch.eye(2)),
        ),
        (
            D.Independent(D.Normal(torch.zeros(2), 1.0), 1),
            D.Independent(D.Normal(torch.ones(2), 1.0), 1),
        ),
        (D.Poisson(1.0), D.Poisson(2.0)),
    ]
    for p, q in pairs:
        print(type(p).__name__, numbers(D.kl_divergence(p, q)))
    print(raised(lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.Cauchy(0.0, 1.0))))


def reparametrized_gradients() -> None:
    mu, sigma = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    d = D.Normal(mu, sigma)
    x = d.rsample((3,))
    (x**2).sum().backward()
    print(
        describe(x),
        numbers(mu.grad),
        numbers(sigma.grad),
        d.sample().requires_grad,
        describe(d.log_prob(x)),
    )
    alpha = torch.tensor([2.0, 3.0], requires_grad=True)
    D.Gamma(alpha, torch.ones(2)).rsample().sum().backward()
    print(numbers(alpha.grad))
    c = torch.tensor([0.5, 1.0, 1.5], requires_grad=True)
    y = D.Dirichlet(c).rsample()
    (y * torch.arange(3.0)).sum().backward()
    print(numbers(y), numbers(c.grad))
    logits = torch.zeros(3, requires_grad=True)
    z = D.RelaxedOneHotCategorical(torch.tensor(0.7), logits=logits).rsample()
    z[0].backward()
    print(numbers(z), numbers(logits.grad), raised(lambda: D.Bernoulli(0.5).rsample()))


def validation() -> None:
    print(
        raised(lambda: D.Normal(0.0, -1.0)),
        raised(lambda: D.Bernoulli(1.5)),
        raised(lambda: D.Categorical(torch.tensor([-1.0, 2.0]))),
    )
    print(
        raised(lambda: D.Bernoulli()),
        raised(lambda: D.Bernoulli(0.5, logits=0.1)),
        raised(lambda: D.Uniform(2.0, 1.0)),
        raised(lambda: D.Normal(0.0, 1.0).log_prob("a")),
    )
    print(
        raised(lambda: D.Bernoulli(0.5).log_prob(torch.tensor(0.3))),
        raised(lambda: D.Beta(1.0, 1.0).log_prob(torch.tensor(2.0))),
        D.Normal(0.0, -1.0, validate_args=False),
    )
    print(
        raised(lambda: D.Categorical(torch.ones(3)).log_prob(torch.tensor(5))),
        raised(lambda: D.MultivariateNormal(torch.zeros(2), -torch.eye(2))),
        D.Normal(torch.zeros(2), 1).expand((3, 2)).batch_shape,
    )
    print(
        raised(lambda: D.Normal(float("nan"), 1.0)),
        D.Normal(0, 1).sample().dtype,
        D.Normal(torch.tensor(0.0, dtype=torch.float64), 1.0).sample().dtype,
        raised(lambda: D.Independent(D.Normal(0.0, 1.0), 1)),
    )


def transformed() -> None:
    base = D.Normal(torch.zeros(2), torch.ones(2))
    d = D.TransformedDistribution(
        base, [transforms.AffineTransform(1.0, 2.0), transforms.ExpTransform()]
    )
    x = d.rsample()
    print(
        d,
        numbers(x),
        numbers(d.log_prob(x)),
        d.support,
        numbers(d.cdf(x)),
        numbers(d.icdf(torch.tensor(0.5))),
    )
    for t in (
        transforms.SigmoidTransform(),
        transforms.TanhTransform(),
        transforms.SoftplusTransform(),
        transforms.StickBreakingTransform(),
        transforms.PowerTransform(torch.tensor(2.0)),
        transforms.CorrCholeskyTransform(),
    ):
        v = torch.tensor([0.2, 0.5, 0.9])
        y = t(v)
        print(t, numbers(y), numbers(t.inv(y)), numbers(t.log_abs_det_jacobian(v, y)), t.bijective)
    print(
        numbers(D.transform_to(constraints.simplex)(torch.ones(3))),
        D.biject_to(constraints.positive),
        numbers(D.transform_to(constraints.interval(1, 3))(torch.tensor(0.0))),
    )
    print(
        constraints.positive,
        constraints.interval(0, 1),
        constraints.simplex.check(torch.tensor([0.5, 0.5])),
        D.Normal.arg_constraints,
        constraints.real_vector.event_dim,
    )


def mixtures() -> None:
    mix = D.Categorical(torch.tensor([0.3, 0.7]))
    d = D.MixtureSameFamily(mix, D.Normal(torch.tensor([-1.0, 1.0]), torch.tensor([0.5, 0.5])))
    print(
        d,
        numbers(d.sample((3,))),
        numbers(d.log_prob(torch.tensor([0.0, 1.0]))),
        numbers(d.mean),
        numbers(d.variance),
        numbers(d.cdf(torch.tensor(0.0))),
    )
    ind = D.Independent(D.Bernoulli(torch.full((2, 3), 0.4)), 1)
    print(
        ind,
        ind.batch_shape,
        ind.event_shape,
        numbers(ind.log_prob(torch.ones(2, 3))),
        numbers(ind.entropy()),
        D.Categorical(logits=torch.zeros(2)).enumerate_support(),
    )


def maximum_likelihood() -> None:
    data = D.Gamma(3.0, 2.0).sample((50,))
    log_a, log_b = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([log_a, log_b], lr=0.1)
    for _ in range(20):
        loss = -D.Gamma(log_a.exp(), log_b.exp()).log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(numbers(log_a, 3), numbers(log_b, 3), numbers(loss, 3))


def metropolis() -> None:
    target = D.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    x, accepted, chain = torch.zeros(2), 0, []
    for _ in range(40):
        proposal = x + 0.5 * torch.randn(2)
        if torch.rand(()) < (target.log_prob(proposal) - target.log_prob(x)).exp():
            x, accepted = proposal, accepted + 1
        chain.append(x)
    print(
        accepted,
        numbers(torch.stack(chain).mean(0)),
        numbers(target.covariance_matrix),
        numbers(target.scale_tril),
        numbers(target.precision_matrix),
    )


def variational_inference() -> None:
    data = torch.tensor([1.2, 0.8, 1.1, 0.9])
    loc, log_scale = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([loc, log_scale], lr=0.1)
    for _ in range(15):
        q = D.Normal(loc, log_scale.exp())
        z = q.rsample((8,))
        elbo = (
            D.Normal(z, 0.5).log_prob(data).sum(-1).mean()
            - D.kl_divergence(q, D.Normal(0.0, 1.0)).sum()
        )
        optimizer.zero_grad()
        (-elbo).backward()
        optimizer.step()
    print(numbers(loc, 3), numbers(log_scale, 3), numbers(elbo, 3))


def gaussian_process() -> None:
    x = torch.linspace(0, 1, 8)
    y = torch.sin(6 * x)
    length = torch.tensor(0.0, requires_grad=True)
    noise = torch.tensor(-2.0, requires_grad=True)
    optimizer = torch.optim.Adam([length, noise], lr=0.1)
    for _ in range(10):
        k = torch.exp(
            -0.5 * (x[:, None] - x[None]) ** 2 / length.exp() ** 2
        ) + noise.exp() * torch.eye(8)
        loss = -D.MultivariateNormal(torch.zeros(8), k).log_prob(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(numbers(loss, 2), numbers(length, 2), numbers(noise, 2))


def actor_distribution() -> None:
    net = torch.nn.Linear(3, 4)
    mean, log_std = net(torch.ones(2, 3)).chunk(2, -1)
    d = D.TransformedDistribution(
        D.Normal(mean, log_std.clamp(-2, 2).exp()), [transforms.TanhTransform(cache_size=1)]
    )
    a = d.rsample()
    log_prob = d.log_prob(a).sum(-1)
    (log_prob.mean() - a.sum()).backward()
    print(numbers(a), numbers(log_prob), numbers(net.weight.grad), describe(a))
    print(
        numbers(D.Categorical(logits=torch.randn(2, 3)).probs.sum(-1)),
        D.OneHotCategoricalStraightThrough(logits=torch.zeros(3)).rsample(),
    )
