"""GPyTorch: exact, sparse and variational Gaussian processes, trained for a few steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gpytorch
import torch

from tests.libraries.cases import Case, Program

PLACES = torch.linspace(0, 1, 20)
VALUES = torch.sin(PLACES * 6.2832) + 0.1 * torch.cos(PLACES * 40)
KERNELS: dict[str, Callable[[], Any]] = {
    "rbf": gpytorch.kernels.RBFKernel,
    "matern": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "periodic": gpytorch.kernels.PeriodicKernel,
    "quadratic": gpytorch.kernels.RQKernel,
    "linear": gpytorch.kernels.LinearKernel,
    "polynomial": lambda: gpytorch.kernels.PolynomialKernel(power=2),
    "cosine": gpytorch.kernels.CosineKernel,
    "spectral": lambda: gpytorch.kernels.SpectralMixtureKernel(num_mixtures=2),
    "sum": lambda: gpytorch.kernels.RBFKernel() + gpytorch.kernels.LinearKernel(),
}


class Exact(gpytorch.models.ExactGP):
    """Regression with one kernel."""

    def __init__(self, kernel: Any, likelihood: Any) -> None:
        super().__init__(PLACES, VALUES, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    """A process through inducing points."""

    def __init__(self) -> None:
        points = PLACES[::4].clone()
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        strategy = gpytorch.variational.VariationalStrategy(self, points, distribution)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit(model: Any, likelihood: Any, objective: Any, steps: int = 5) -> list[Any]:
    """Losses of a few steps, then the prediction's mean and variance at new places."""
    model.train()
    likelihood.train()
    parameters = {id(p): p for p in (*model.parameters(), *likelihood.parameters())}.values()
    optimizer = torch.optim.Adam(parameters, 0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(PLACES), VALUES)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(torch.linspace(0.05, 1.2, 7)))
    return [torch.stack(losses), predicted.mean, predicted.variance]


def exact(make: Callable[[], Any]) -> Program:
    """Regression by maximum marginal likelihood."""

    def run() -> Any:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Exact(make(), likelihood)
        return fit(model, likelihood, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model))

    return Program(run)


def variational() -> Program:
    """The evidence's lower bound."""

    def run() -> Any:
        model, likelihood = Variational(), gpytorch.likelihoods.GaussianLikelihood()
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(VALUES))
        return fit(model, likelihood, objective)

    return Program(run)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(exact, make) for name, make in KERNELS.items()
}
CASES["variational"] = variational
