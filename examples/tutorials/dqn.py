"""Deep Q-learning (Mnih et al. 2015) on a walk of seven places, with a replay memory."""

from __future__ import annotations

import copy
import json
import random
from collections import deque
from typing import NamedTuple

import flambeau as torch

nn = torch.nn
PLACES = 7


class Step(NamedTuple):
    """A transition: state, action, reward, the next state (None: the end)."""

    state: torch.Tensor
    action: int
    reward: float
    following: torch.Tensor | None


class Walk:
    """An agent walks left or right; the right end gives 1, the left end 0.1."""

    def reset(self) -> torch.Tensor:
        """Begins in the middle."""
        self.place = PLACES // 2
        return self.state()

    def state(self) -> torch.Tensor:
        """The place, one-hot."""
        return nn.functional.one_hot(torch.tensor(self.place), PLACES).to(torch.float32)

    def step(self, action: int) -> tuple[torch.Tensor | None, float]:
        """Moves; the next state and the reward."""
        self.place += 1 if action else -1
        if 0 < self.place < PLACES - 1:
            return self.state(), 0.0
        return None, 1.0 if self.place else 0.1


def network() -> nn.Sequential:
    """Values of both actions."""
    return nn.Sequential(nn.Linear(PLACES, 24), nn.Tanh(), nn.Linear(24, 2))


def learn(
    policy: nn.Module, target: nn.Module, batch: list[Step], optimizer: torch.optim.Optimizer
) -> float:
    """One step on the temporal difference; the loss."""
    states = torch.stack([step.state for step in batch])
    actions = torch.tensor([step.action for step in batch])
    rewards = torch.tensor([step.reward for step in batch])
    alive = torch.tensor([step.following is not None for step in batch])
    values = policy(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    following = torch.zeros(len(batch))
    with torch.no_grad():
        others = torch.stack([step.following for step in batch if step.following is not None])
        following[alive] = target(others).max(dim=1).values
    loss = nn.functional.smooth_l1_loss(values, rewards + 0.9 * following)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main() -> dict[str, object]:
    """Losses, and the values of going right at every place."""
    torch.manual_seed(6)
    chance = random.Random(6)
    policy = network()
    target = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory: deque[Step] = deque(maxlen=256)
    walk, losses = Walk(), []
    for _ in range(20):
        state: torch.Tensor | None = walk.reset()
        while state is not None:
            greedy = int(policy(state).argmax())
            action = greedy if chance.random() > 0.5 else chance.randrange(2)
            following, reward = walk.step(action)
            memory.append(Step(state, action, reward, following))
            state = following
        if len(memory) >= 32:
            losses.append(learn(policy, target, chance.sample(list(memory), 32), optimizer))
        with torch.no_grad():
            for old, new in zip(target.parameters(), policy.parameters()):
                old.lerp_(new, 0.1)
    return {"losses": losses, "values": policy(torch.eye(PLACES))[:, 1].tolist()}


if __name__ == "__main__":
    print(json.dumps(main()))
