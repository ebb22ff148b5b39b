"""`torch.distributions` beside PyTorch: values, samples for equal seeds, gradients, divergences.

Facts that no derivative changes (shapes, supports, reprs, error types) are equal; numbers agree
within rounding of float32, and gradients of gamma-distributed samples within PyTorch's own error.
"""

from __future__ import annotations

import importlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
LIBRARIES = {"flambeau": flambeau, "torch": torch}
SPACES = {name: importlib.import_module(f"{name}.distributions") for name in LIBRARIES}


@pytest.fixture(autouse=True)
def validated():
    """PyTorch's compiler, which other tests run, ends the checks of arguments for good."""
    SPACES["torch"].Distribution.set_default_validate_args(True)


# name -> constructor's arguments; lists become tensors (that require gradients, if floating).
SPD = [[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.2]]
TRIL = [[1.4, 0.0], [0.3, 0.8]]
LOC, SCALE, POSITIVE = [0.3, -1.2, 2.5], [0.5, 1.3, 2.2], [0.7, 1.9, 6.5]
PROBS, ROWS = [0.2, 0.5, 0.9], [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
CASES = {
    "Bernoulli": dict(probs=PROBS),
    "Bernoulli/logits": dict(logits=LOC),
    "Bernoulli/number": dict(probs=0.3),
    "Beta": dict(concentration1=POSITIVE, concentration0=SCALE),
    "Binomial": dict(total_count=7, probs=PROBS),
    "Binomial/logits": dict(total_count=7, logits=LOC),
    "Categorical": dict(probs=ROWS),
    "Categorical/logits": dict(logits=ROWS),
    "Cauchy": dict(loc=LOC, scale=SCALE),
    "Chi2": dict(df=POSITIVE),
    "ContinuousBernoulli": dict(probs=[0.2, 0.4999, 0.9]),
    "ContinuousBernoulli/logits": dict(logits=LOC),
    "Dirichlet": dict(concentration=[[0.7, 1.9, 6.5], [2.0, 3.0, 0.4]]),
    "Exponential": dict(rate=POSITIVE),
    "Exponential/number": dict(rate=2.0),
    "FisherSnedecor": dict(df1=POSITIVE, df2=[3.0, 5.0, 9.0]),
    "Gamma": dict(concentration=POSITIVE, rate=SCALE),
    "GeneralizedPareto": dict(loc=LOC, scale=SCALE, concentration=[0.2, 0.0, 0.3]),
    "Geometric": dict(probs=PROBS),
    "Geometric/logits": dict(logits=LOC),
    "Gumbel": dict(loc=LOC, scale=SCALE),
    "HalfCauchy": dict(scale=SCALE),
    "HalfNormal": dict(scale=SCALE),
    "InverseGamma": dict(concentration=[3.0, 1.9, 6.5], rate=SCALE),
    "Kumaraswamy": dict(concentration1=POSITIVE, concentration0=SCALE),
    "LKJCholesky": dict(dim=3, concentration=[0.5, 1.0, 2.0]),
    "Laplace": dict(loc=LOC, scale=SCALE),
    "LogNormal": dict(loc=LOC, scale=SCALE),
    "LogisticNormal": dict(loc=LOC, scale=SCALE),
    "LowRankMultivariateNormal": dict(
        loc=LOC, cov_factor=[[1.0, 0.2], [0.5, -0.3], [0.1, 0.9]], cov_diag=SCALE
    ),
    "Multinomial": dict(total_count=5, probs=ROWS),
    "MultivariateNormal": dict(loc=LOC, covariance_matrix=SPD),
    "MultivariateNormal/tril": dict(loc=[[0.1, 0.2], [0.3, 0.4]], scale_tril=TRIL),
    "MultivariateNormal/precision": dict(loc=LOC, precision_matrix=SPD),
    "NegativeBinomial": dict(total_count=4, probs=PROBS),
    "NegativeBinomial/logits": dict(total_count=POSITIVE, logits=[0.3, -1.2, 0.5]),
    "Normal": dict(loc=LOC, scale=SCALE),
    "Normal/number": dict(loc=0.5, scale=2.0),
    "OneHotCategorical": dict(probs=ROWS),
    "OneHotCategoricalStraightThrough": dict(logits=ROWS),
    "Pareto": dict(scale=SCALE, alpha=[3.0, 2.5, 4.0]),
    "Poisson": dict(rate=POSITIVE),
    "RelaxedBernoulli": dict(temperature=0.7, probs=PROBS),
    "RelaxedOneHotCategorical": dict(temperature=0.7, logits=ROWS),
    "StudentT": dict(df=[3.0, 5.0, 9.0], loc=LOC, scale=SCALE),
    "Uniform": dict(low=LOC, high=[1.3, 0.8, 9.0]),
    "VonMises": dict(loc=LOC, concentration=POSITIVE),
    "Weibull": dict(scale=SCALE, concentration=POSITIVE),
    "Wishart": dict(df=[4.0, 5.5], covariance_matrix=SPD),
}
# PyTorch's own derivative of a gamma sample is good to about 1e-3.
OF_GAMMAS = {"Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT",
             "Wishart"}  # fmt: skip


def build(library, case, **changes):
    """A distribution and its parameters that require gradients."""
    arguments, leaves = dict(CASES[case]), []
    for name, value in arguments.items():
        if name == "temperature":
            arguments[name] = LIBRARIES[library].tensor(value)
        elif isinstance(value, list):
            leaves.append(LIBRARIES[library].tensor(value, requires_grad=True))
            arguments[name] = leaves[-1]
    cls = getattr(SPACES[library], case.partition("/")[0])
    return cls(**arguments, **changes), leaves


def near(ours, theirs, rtol=2e-5, atol=2e-6):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    mine = torch.tensor(ours.tolist(), dtype=torch.float64).reshape(theirs.shape)
    torch.testing.assert_close(mine, theirs.detach().double(), rtol=rtol, atol=atol, equal_nan=True)


def both(call):
    """The results of call(library) in both libraries, or the types of their errors."""
    results = []
    for library in LIBRARIES:
        LIBRARIES[library].manual_seed(7)
        try:
            results.append(call(library))
        except Exception as error:
            results.append(type(error))
    ours, theirs = results
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours is theirs
        return None
    return ours, theirs


def same(call, **tolerance):
    found = both(call)
    if found is not None:
        near(*found, **tolerance)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("case", CASES)
def test_facts(case):
    def facts(library):
        d, _ = build(library, case)
        e = d.expand((2, *d.batch_shape))
        return [
            repr(d), tuple(d.batch_shape), tuple(d.event_shape), d.has_rsample,
            d.has_enumerate_support, repr(d.support), d.support.is_discrete, d.support.event_dim,
            {name: repr(c) for name, c in d.arg_constraints.items()}, repr(e),
            tuple(e.batch_shape), tuple(e.event_shape), tuple(e.sample().shape),
        ]  # fmt: skip

    ours, theirs = both(facts)
    assert ours == theirs


@pytest.mark.parametrize("case", CASES)
def test_moments(case):
    wrong = case == "Kumaraswamy"  # PyTorch's mode takes a logarithm of negative numbers
    for name in ("mean", "variance", "stddev", *(() if wrong else ("mode",))):
        same(lambda library, name=name: getattr(build(library, case)[0], name))
    for name in ("entropy", "perplexity"):
        same(lambda library, name=name: getattr(build(library, case)[0], name)(), rtol=1e-4)
    same(lambda library: build(library, case)[0].enumerate_support())
    same(lambda library: build(library, case)[0].enumerate_support(expand=False))


@pytest.mark.parametrize("case", CASES)
def test_samples(case):
    for shape in ((), (3,), (4, 5)):
        same(lambda library, shape=shape: build(library, case)[0].sample(shape))
        same(lambda library, shape=shape: build(library, case)[0].rsample(shape))
    for library in LIBRARIES.values():
        library.manual_seed(3)
    for library in LIBRARIES:
        build(library, case)[0].sample((5,))
    ours, theirs = (bytes(lib.get_rng_state().tolist()) for lib in LIBRARIES.values())
    assert ours == theirs  # the same words were drawn


@pytest.mark.parametrize("case", CASES)
def test_functions_of_samples(case):
    torch.manual_seed(11)
    values = build("torch", case)[0].sample((4,)).tolist()
    shares = (torch.rand((4, *build("torch", case)[0].batch_shape)) * 0.9 + 0.05).tolist()

    def gradient(library):
        d, leaves = build(library, case)
        result = d.log_prob(LIBRARIES[library].tensor(values))
        if not leaves:
            return result
        grads = LIBRARIES[library].autograd.grad(result.sum(), leaves, allow_unused=True)
        return LIBRARIES[library].cat([g.reshape(-1) for g in grads if g is not None])

    def value(name, numbers):
        return lambda lib: getattr(build(lib, case)[0], name)(LIBRARIES[lib].tensor(numbers))

    same(value("log_prob", values), rtol=1e-4, atol=1e-5)
    same(value("cdf", values), rtol=1e-4)
    same(value("icdf", shares), rtol=1e-4)
    same(gradient, rtol=1e-3, atol=1e-4)


# Numbers have no gradient; PyTorch's Wishart samples cannot be differentiated.
DIFFERENTIATED = [c for c in CASES if not c.endswith("/number") and c != "Wishart"]


@pytest.mark.parametrize("case", DIFFERENTIATED)
def test_gradients_of_samples(case):
    def gradient(library):
        d, leaves = build(library, case)
        result = d.rsample((3,))
        weights = LIBRARIES[library].arange(result.numel()).reshape(result.shape) + 1.0
        grads = LIBRARIES[library].autograd.grad(
            (result * weights).sum(), leaves, allow_unused=True
        )
        return LIBRARIES[library].cat([g.reshape(-1) for g in grads if g is not None])

    loose = case.partition("/")[0] in OF_GAMMAS
    same(gradient, **(dict(rtol=1e-2, atol=2e-2) if loose else dict(rtol=1e-3, atol=1e-4)))


WRONG = {
    "Bernoulli": dict(probs=[1.5]), "Normal": dict(loc=[0.0], scale=[-1.0]),
    "Gamma": dict(concentration=[0.0], rate=[1.0]), "Uniform": dict(low=[1.0], high=[0.5]),
    "Categorical": dict(probs=[-1.0, 2.0]), "Geometric": dict(probs=[0.0]),
    "MultivariateNormal": dict(loc=[0.0], covariance_matrix=[[-1.0]]),
    "Wishart": dict(df=[1.0], covariance_matrix=[[1.0, 0.0], [0.0, 1.0]]),
    "LowRankMultivariateNormal": dict(loc=[0.0], cov_factor=[[1.0], [2.0]], cov_diag=[1.0]),
    "Dirichlet": dict(concentration=[-1.0, 2.0]), "Beta": dict(concentration1=[1.0]),
    "Exponential": dict(rate=["a"]), "Poisson": dict(rate=[-1.0]), "Binomial": dict(),
    "Multinomial": dict(total_count=1.5, probs=[0.5, 0.5]), "LKJCholesky": dict(dim=1),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_of_parameters(name):
    def call(library):
        values = WRONG[name].items()
        arguments = {
            k: LIBRARIES[library].tensor(v) if isinstance(v, list) else v for k, v in values
        }
        return getattr(SPACES[library], name)(**arguments)

    assert both(call) is None


@pytest.mark.parametrize("case", CASES)
def test_errors_of_values(case):
    for value in (-1.5, [[0.3] * 7], "text"):

        def call(library, value=value):
            d = build(library, case)[0]
            number = value if isinstance(value, str) else LIBRARIES[library].tensor(value)
            return d.log_prob(number)

        same(call, rtol=1e-4)


PAIRS = sorted(
    (p.__name__, q.__name__) for p, q in SPACES["torch"].kl._KL_REGISTRY
    if p.__name__ in CASES and q.__name__ in CASES
)  # fmt: skip


def test_pairs_are_those_of_pytorch():
    ours = importlib.import_module("flambeau.distributions.kl")._KL_REGISTRY
    theirs = importlib.import_module("torch.distributions.kl")._KL_REGISTRY
    names = [{(p.__name__, q.__name__) for p, q in registry} for registry in (ours, theirs)]
    assert names[0] == names[1] and len(names[0]) == 87


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_divergences(pair):
    def call(library):
        p, q = (build(library, name)[0] for name in pair)
        return SPACES[library].kl_divergence(p, q)

    same(call, rtol=1e-4, atol=1e-5)


def test_divergences_of_composed_distributions():
    def independent(library):
        space = SPACES[library]
        p, q = (space.Independent(build(library, "Normal")[0].expand((2, 3)), n) for n in (1, 1))
        return space.kl_divergence(p, q)

    def transformed(library):
        p, q = build(library, "LogNormal")[0], SPACES[library].LogNormal(0.0, 1.0)
        return SPACES[library].kl_divergence(p, q)

    def unknown(library):
        return SPACES[library].kl_divergence(
            build(library, "Gumbel")[0], build(library, "Cauchy")[0]
        )

    for call in (independent, transformed, unknown):
        same(call)


TRANSFORMS = {
    "ExpTransform": ((), (4,)), "SigmoidTransform": ((), (4,)), "SoftplusTransform": ((), (4,)),
    "TanhTransform": ((), (4,)), "AbsTransform": ((), (4,)), "SoftmaxTransform": ((), (2, 4)),
    "StickBreakingTransform": ((), (2, 4)), "LowerCholeskyTransform": ((), (2, 3, 3)),
    "PositiveDefiniteTransform": ((), (2, 3, 3)), "CorrCholeskyTransform": ((), (2, 6)),
    "AffineTransform": ((1.0, -2.0), (4,)), "ReshapeTransform": (((2, 2), (4,)), (3, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    arguments, shape = TRANSFORMS[name]
    torch.manual_seed(5)
    numbers = torch.randn(shape).tolist()

    def part(what):
        def call(library):
            t = getattr(SPACES[library], name)(*arguments)
            x = LIBRARIES[library].tensor(numbers)
            y = t(x)
            return {"y": lambda: y, "x": lambda: t.inv(y),
                    "jacobian": lambda: t.log_abs_det_jacobian(x, y)}[what]()  # fmt: skip

        return call

    for what in ("y", "x", "jacobian"):
        same(part(what), rtol=1e-4, atol=1e-5)

    def facts(library):
        t = getattr(SPACES[library], name)(*arguments)
        shapes = [tuple(t.forward_shape(torch.Size(shape)))]
        shapes.append(tuple(t.inverse_shape(torch.Size(shapes[0]))))
        return [repr(t), repr(t.inv), repr(t.domain), repr(t.codomain), t.bijective, shapes,
                t.inv.inv is t, t == getattr(SPACES[library], name)(*arguments)]  # fmt: skip

    ours, theirs = both(facts)
    assert ours == theirs


CONSTRAINTS = [
    "real", "positive", "nonnegative", "unit_interval", "simplex", "lower_cholesky",
    "positive_definite", "positive_semidefinite", "corr_cholesky", "real_vector", "boolean",
    "one_hot", "nonnegative_integer", "positive_integer", "lower_triangular", "square",
    "symmetric", "greater_than(1.0)", "greater_than_eq(1.0)", "less_than(2.0)",
    "interval(-1.0, 3.0)", "half_open_interval(0.0, 2.0)", "integer_interval(0, 2)",
    "independent(constraints.positive, 1)", "multinomial(2)",
    "cat([constraints.positive, constraints.real], 0, [1, 2])",
    "stack([constraints.positive, constraints.real, constraints.positive])",
]  # fmt: skip


@pytest.mark.parametrize("text", CONSTRAINTS)
def test_constraints(text):
    def constraint(library):
        return eval(f"constraints.{text}", {"constraints": SPACES[library].constraints})

    values = ([-1.0, 0.0, 2.0], [[1.0, 0.0, 0.0], [0.2, 2.0, 0.0], [0.3, 0.4, 1.0]],
              [0.0, 1.0, 0.0], [[2.0, 0.1, 0.0], [0.1, 2.0, 0.0], [0.0, 0.0, 1.0]])  # fmt: skip
    for value in values:
        same(lambda library, value=value: constraint(library).check(
            LIBRARIES[library].tensor(value)))  # fmt: skip
    for name in ("biject_to", "transform_to"):
        found = both(lambda library, name=name: repr(
            getattr(SPACES[library], name)(constraint(library))))  # fmt: skip
        assert found is None or found[0] == found[1]
    ours, theirs = both(
        lambda lib: [repr(constraint(lib)), constraint(lib).is_discrete, constraint(lib).event_dim]
    )
    assert ours == theirs


def test_names():
    for module in ("", ".constraints", ".transforms", ".kl", ".utils", ".constraint_registry"):
        ours = importlib.import_module(f"flambeau.distributions{module}")
        theirs = importlib.import_module(f"torch.distributions{module}")
        assert set(theirs.__all__) <= set(ours.__all__) <= set(dir(ours))
    for name in SPACES["torch"].__all__:
        module = getattr(SPACES["torch"], name).__module__
        if module.startswith("torch.distributions."):
            own = importlib.import_module(module.replace("torch", "flambeau", 1))
            assert getattr(own, name) is getattr(SPACES["flambeau"], name)


def test_a_mixture():
    def mixture(library):
        weights = SPACES[library].Categorical(logits=LIBRARIES[library].tensor([0.3, -0.2, 0.1]))
        return SPACES[library].MixtureSameFamily(weights, build(library, "Normal")[0])

    x = [0.3, -2.0]
    for name in ("mean", "variance"):
        same(lambda library, name=name: getattr(mixture(library), name))
    for name in ("log_prob", "cdf"):
        same(lambda library, name=name: getattr(mixture(library), name)(
            LIBRARIES[library].tensor(x)))  # fmt: skip
    same(lambda library: mixture(library).sample((6,)))
    ours, theirs = both(lambda library: repr(mixture(library)))
    assert ours == theirs
