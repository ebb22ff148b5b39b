"""Fine-tuning: frozen layers, groups of parameters, schedules, checkpoints of whole models."""

from __future__ import annotations

import json
import tempfile
from collections import OrderedDict
from pathlib import Path

import flambeau as torch

nn = torch.nn
schedules = torch.optim.lr_scheduler


class Body(nn.Module):
    """The part that was trained before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["first"] = nn.Linear(8, width)
        layers["act"] = nn.GELU()
        layers["second"] = nn.Linear(width, width)
        layers["norm"] = nn.LayerNorm(width)
        self.layers = nn.Sequential(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 8) to (N, width)."""
        return self.layers(x)


class Model(nn.Module):
    """A body with a head."""

    def __init__(self, body: Body, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 8) to (N, classes)."""
        return self.head(self.body(x))


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, schedule: schedules.LRScheduler, steps: int
) -> list[float]:
    """Losses of some steps on one batch."""
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(24, 8, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def prepare(model: Model) -> tuple[torch.optim.Optimizer, schedules.LRScheduler]:
    """Two groups of parameters; a warm-up before a cosine."""
    groups = [
        {"params": model.body.layers[2:].parameters(), "lr": 1e-3},
        {"params": model.head.parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.01)
    warm = schedules.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    cosine = schedules.CosineAnnealingLR(optimizer, T_max=9)
    return optimizer, schedules.SequentialLR(optimizer, [warm, cosine], milestones=[3])


def main() -> dict[str, object]:
    """Losses before and after the checkpoint, which continues exactly."""
    torch.manual_seed(9)
    with tempfile.TemporaryDirectory() as folder:
        weights, whole, state = (Path(folder) / f"{n}.pt" for n in ("weights", "whole", "state"))
        torch.save(Body(16).state_dict(), weights)
        body = Body(16)
        result = body.load_state_dict(torch.load(weights, weights_only=True), strict=True)
        assert not result.missing_keys and not result.unexpected_keys
        for name, parameter in body.named_parameters():
            parameter.requires_grad = not name.startswith("layers.first")
        model = Model(body, classes=3)
        optimizer, schedule = prepare(model)
        before = train(model, optimizer, schedule, 6)
        torch.save(model, whole)
        torch.save({"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, state)
        after = train(model, optimizer, schedule, 6)
        restored: Model = torch.load(whole, weights_only=False)
        optimizer, schedule = prepare(restored)
        states = torch.load(state)
        optimizer.load_state_dict(states["optimizer"])
        schedule.load_state_dict(states["schedule"])
        again = train(restored, optimizer, schedule, 6)
    frozen = [n for n, p in restored.named_parameters() if not p.requires_grad]
    rates = [group["lr"] for group in optimizer.param_groups]
    return {
        "before": before, "after": after, "same": after == again, "frozen": frozen, "rates": rates,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main()))
