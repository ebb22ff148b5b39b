"""Pyro: stochastic variational inference, importance weights and chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import (
    HMC,
    MCMC,
    NUTS,
    SVI,
    Predictive,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceMeanField_ELBO,
)
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal

from tests.libraries.cases import Case, Program

DATA = torch.linspace(-1, 1, 12)
TARGETS = 0.7 * DATA + 0.3


def regression(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    """A line with noise."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    offset = pyro.sample("offset", dist.Normal(0.0, 1.0))
    noise = pyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(slope * x + offset, noise), obs=y)


def inference(guide_of: Callable[[Any], Any], objective: Callable[[], Any]) -> Program:
    """Losses of a few steps and the guide's parameters."""

    def run() -> Any:
        pyro.clear_param_store()
        pyro.set_rng_seed(3)
        guide = guide_of(regression)
        inference = SVI(regression, guide, pyro.optim.Adam({"lr": 0.05}), objective())
        losses = [inference.step(DATA, TARGETS) for _ in range(6)]
        store = pyro.get_param_store()
        return [torch.tensor(losses), *(store[name].detach() for name in sorted(store.keys()))]

    return Program(run)


def mixture() -> Program:
    """Discrete variables summed out."""

    def model(x: torch.Tensor) -> None:
        means = pyro.param("means", torch.tensor([-0.5, 0.5]))
        with pyro.plate("data", len(x)):
            which = pyro.sample("which", dist.Categorical(torch.tensor([0.4, 0.6])))
            pyro.sample("x", dist.Normal(means[which], 0.3), obs=x)

    def run() -> Any:
        pyro.clear_param_store()
        pyro.set_rng_seed(3)
        enumerated = pyro.infer.config_enumerate(model, "parallel")
        bound = TraceEnum_ELBO(max_plate_nesting=1)
        inference = SVI(enumerated, lambda x: None, pyro.optim.Adam({"lr": 0.05}), bound)
        losses = [inference.step(DATA) for _ in range(6)]
        return [torch.tensor(losses), pyro.param("means").detach()]

    return Program(run)


def chain(kernel_of: Callable[[Any], Any]) -> Program:
    """A short chain."""

    def run() -> Any:
        pyro.clear_param_store()
        pyro.set_rng_seed(3)
        chain = MCMC(kernel_of(regression), num_samples=5, warmup_steps=0, disable_progbar=True)
        chain.run(DATA, TARGETS)
        samples = chain.get_samples()
        return [samples[name] for name in sorted(samples)]

    return Program(run)


def predictive() -> Program:
    """Draws from the prior."""

    def run() -> Any:
        pyro.set_rng_seed(3)
        samples = Predictive(regression, num_samples=8)(DATA)
        return [samples[name] for name in sorted(samples)]

    return Program(run)


CASES: dict[str, Callable[[], Case | Program]] = {
    "normal": lambda: inference(AutoNormal, Trace_ELBO),
    "diagonal": lambda: inference(AutoDiagonalNormal, Trace_ELBO),
    "multivariate": lambda: inference(AutoMultivariateNormal, Trace_ELBO),
    "mean_field": lambda: inference(AutoNormal, TraceMeanField_ELBO),
    "mixture": mixture,
    "hmc": lambda: chain(lambda m: HMC(m, step_size=0.05, num_steps=4, adapt_step_size=False)),
    "nuts": lambda: chain(
        lambda m: NUTS(m, step_size=0.05, adapt_step_size=False, max_tree_depth=3)
    ),
    "predictive": predictive,
}
