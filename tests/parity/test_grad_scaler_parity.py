"""`GradScaler` beside PyTorch's over 50 steps, and training under autocast in both libraries."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")


def scales(library: Any, interval: int) -> list[Any]:
    """Scale, steps since its change and a parameter's element after each of 50 steps."""
    w = library.full((3,), 1.5, requires_grad=True)
    optimizer = library.optim.SGD([w], lr=0.125, momentum=0.5)
    scaler = library.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=interval)
    rows = []
    for step in range(50):
        if step == 25:  # a new scaler goes on
            state = scaler.state_dict()
            scaler = library.amp.GradScaler("cpu")
            scaler.load_state_dict(state)
        factor = (1.0, 0.5, float("inf"), 2.0, 1.0, float("nan"), -1.0)[step * step % 7]
        optimizer.zero_grad()
        scaler.scale((w * w * factor).sum()).backward()
        if step % 3 == 0:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        rows.append((scaler.get_scale(), scaler._get_growth_tracker(), w[0].item()))
    return [*rows, scaler.state_dict()]


@pytest.mark.parametrize("interval", [1, 3, 5])
def test_fifty_steps(interval: int) -> None:
    assert scales(flambeau, interval) == scales(torch, interval)


def models(library: Any) -> dict[str, Any]:
    nn = library.nn
    return {
        "mlp": (nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)), (8, 6)),
        "cnn": (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                          nn.Linear(16, 3)), (8, 1, 4, 4)),
        "transformer": (
            nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
                          nn.Flatten(), nn.Linear(40, 3)), (8, 5, 8)),
    }  # fmt: skip


def losses(library: Any, kind: str, lower: str) -> list[float]:
    library.manual_seed(3)
    model, shape = models(library)[kind]
    optimizer = library.optim.AdamW(model.parameters(), lr=0.01)
    scaler = library.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
    values = []
    for _ in range(12):
        x, y = library.randn(shape), library.randint(3, (shape[0],))
        optimizer.zero_grad()
        with library.autocast("cpu", getattr(library, lower)):
            loss = library.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(loss.item())
    return values


@pytest.mark.parametrize("lower", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "transformer"])
def test_training(kind: str, lower: str) -> None:
    close = 0.05 if lower == "bfloat16" else 0.01
    assert losses(flambeau, kind, lower) == pytest.approx(losses(torch, kind, lower), abs=close)
