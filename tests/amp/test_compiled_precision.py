"""Mixed precision in compiled functions: the bits of eager mode."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F  # noqa: N812
from flambeau.utils.checkpoint import checkpoint


def mlp() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )


class Block(nn.Module):
    """A transformer's layer and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        """Classes of sequences."""
        return self.head(self.layer(x).mean(1))


MODELS = {"mlp": (mlp, (4, 6)), "cnn": (cnn, (4, 1, 4, 4)), "transformer": (Block, (4, 5, 8))}


def train(kind: str, lower: Any, compiled: bool, outside: bool) -> list[Any]:
    torch.manual_seed(0)
    make, shape = MODELS[kind]
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)

    def loss_of(x: Any, y: Any) -> Any:
        if outside:
            return F.cross_entropy(model(x), y)
        with torch.autocast("cpu", lower):
            return F.cross_entropy(model(x), y)

    run = torch.compile(loss_of) if compiled else loss_of
    values = []
    for _ in range(4):
        x, y = torch.randn(shape), torch.randint(3, (shape[0],))
        optimizer.zero_grad()
        with torch.autocast("cpu", lower, enabled=outside):
            loss = run(x, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(loss.detach())
    return [*values, *(p.detach() for p in model.parameters())]


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", MODELS)
def test_training_has_the_bits_of_eager_mode(kind: str, lower: Any, outside: bool) -> None:
    eager = train(kind, lower, compiled=False, outside=outside)
    compiled = train(kind, lower, compiled=True, outside=outside)
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))


def test_state_changes_between_calls_of_a_region() -> None:
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    run = torch.compile(lambda a: (a @ w) + (a @ w))
    for lower in (torch.bfloat16, torch.float16, None, torch.bfloat16):
        with torch.autocast("cpu", lower, enabled=lower is not None):
            y = run(x)
            expected = (x @ w) + (x @ w)
        assert y.dtype == (lower or torch.float32)
        assert torch.equal(y, expected)


def test_regions_within_a_region() -> None:
    x = torch.randn(3, 3)

    def program(a: Any) -> Any:
        with torch.autocast("cpu", torch.float16):
            b = a @ a
            with torch.autocast("cpu", enabled=False):
                c = b.float() @ a
        return b, c, a @ a

    for eager, compiled in zip(program(x), torch.compile(program)(x), strict=True):
        assert eager.dtype == compiled.dtype
        assert torch.equal(eager, compiled)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_compute_again_under_the_same_state(reentrant: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    kinds: list[Any] = []

    def part(a: Any) -> Any:
        y = layer(a)
        kinds.append(y.dtype)
        return y * 2

    gradients = []
    for kept in (True, False):
        x.grad = layer.weight.grad = None
        with torch.autocast("cpu", torch.float16):
            y = part(x) if kept else checkpoint(part, x, use_reentrant=reentrant)
        with torch.autocast("cpu", torch.bfloat16):
            y.sum().backward()
        gradients.append((x.grad, layer.weight.grad))
    assert set(kinds) == {torch.float16}
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert torch.equal(gradients[0][1], gradients[1][1])
