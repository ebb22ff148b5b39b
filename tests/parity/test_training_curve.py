"""The demo model trains like PyTorch's: equal initial weights for equal seeds, equal losses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from bench.models import GPT  # noqa: E402

VOCABULARY, CONTEXT, BATCH, STEPS = 65, 32, 8, 10

LAYERS = {
    "Linear": lambda nn: nn.Linear(7, 5),
    "Bilinear": lambda nn: nn.Bilinear(3, 4, 5),
    "Embedding": lambda nn: nn.Embedding(11, 6),
    "Conv1d": lambda nn: nn.Conv1d(4, 6, 3),
    "Conv2d": lambda nn: nn.Conv2d(4, 6, 3, groups=2),
    "Conv3d": lambda nn: nn.Conv3d(2, 4, 3),
    "ConvTranspose2d": lambda nn: nn.ConvTranspose2d(4, 6, 3),
    "LayerNorm": lambda nn: nn.LayerNorm(8),
    "BatchNorm2d": lambda nn: nn.BatchNorm2d(8),
    "GroupNorm": lambda nn: nn.GroupNorm(2, 8),
    "PReLU": lambda nn: nn.PReLU(),
    "LSTM": lambda nn: nn.LSTM(4, 8, 2),
    "GRU": lambda nn: nn.GRU(4, 8),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(16, 4),
    "TransformerEncoderLayer": lambda nn: nn.TransformerEncoderLayer(16, 4, 32),
    "Sequential": lambda nn: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
}


def model(library):
    library.manual_seed(1337)
    return GPT(library, VOCABULARY, CONTEXT, layers=2, heads=4, width=32)


@pytest.mark.parametrize("name", LAYERS)
def test_equal_seeds_give_equal_weights(name):
    states = []
    for library in (flambeau, torch):
        library.manual_seed(5)
        states.append(LAYERS[name](library.nn).state_dict())
    ours, theirs = states
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        assert ours[key].tolist() == value.tolist(), key


def test_model_starts_from_equal_weights():
    ours, theirs = model(flambeau).state_dict(), model(torch).state_dict()
    assert list(ours) == list(theirs)
    assert all(ours[k].tolist() == theirs[k].tolist() for k in theirs)


def batches(library):
    """Counting modulo the vocabulary from many starts: something that can be learned."""
    for step in range(STEPS):
        starts = [(7 * step + 11 * row) % VOCABULARY for row in range(BATCH)]
        made = library.tensor([[(s + t) % VOCABULARY for t in range(CONTEXT + 1)] for s in starts])
        yield made[:, :-1], made[:, 1:]


def curve(library, compiled):
    network = model(library)
    optimizer = library.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.1)

    def step(tokens, targets):
        optimizer.zero_grad()
        loss = network(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    run = library.compile(step) if compiled else step
    return [run(x, y).item() for x, y in batches(library)]


@pytest.fixture(scope="module")
def oracle_curve():
    return curve(torch, compiled=False)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_losses(compiled, oracle_curve):
    ours = curve(flambeau, compiled)
    assert ours == pytest.approx(oracle_curve, rel=2e-4)
    assert ours[-1] < ours[0] - 0.1


def test_compiled_curve_is_eager_curve():
    assert curve(flambeau, compiled=True) == curve(flambeau, compiled=False)
