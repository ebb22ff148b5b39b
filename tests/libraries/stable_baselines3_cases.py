"""stable-baselines3: agents that learn a short while, kept and loaded again."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import stable_baselines3

from tests.libraries.cases import Case, Program

AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "PPO": ("CartPole-v1", {"n_steps": 32, "batch_size": 16, "n_epochs": 2}),
    "A2C": ("CartPole-v1", {"n_steps": 8}),
    "DQN": ("CartPole-v1", {"learning_starts": 20, "train_freq": 4, "batch_size": 8}),
    "SAC": ("Pendulum-v1", {"learning_starts": 20, "train_freq": 4, "batch_size": 8}),
    "TD3": ("Pendulum-v1", {"learning_starts": 20, "train_freq": 4, "batch_size": 8}),
    "DDPG": ("Pendulum-v1", {"learning_starts": 20, "train_freq": 4, "batch_size": 8}),
}


def agent(name: str) -> Program:
    """Parameters after 64 steps, and after a file."""

    def run() -> Any:
        environment, options = AGENTS[name]
        kind = getattr(stable_baselines3, name)
        network = {"net_arch": [16, 16]}
        learner = kind("MlpPolicy", environment, seed=1, policy_kwargs=network, **options)
        learner.learn(64)
        file = io.BytesIO()
        learner.save(file)
        file.seek(0)
        again = kind.load(file)
        return [dict(p.policy.state_dict()) for p in (learner, again)]

    return Program(run)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(agent, name) for name in AGENTS
}
