"""skorch: scikit-learn's interface, with validation, schedules and a grid search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import skorch
import torch
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import EarlyStopping, EpochScoring, LRScheduler
from skorch.dataset import ValidSplit

from tests.libraries.cases import Case, Program

PLACES = np.random.default_rng(0).standard_normal((80, 6)).astype(np.float32)
CLASSES = (PLACES[:, 0] + PLACES[:, 1] > 0).astype(np.int64)


class Network(torch.nn.Module):
    """A classifier."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1)


def classified() -> list[Any]:
    """History and probabilities after a fit."""
    torch.manual_seed(0)
    callbacks = [
        EpochScoring("accuracy"),
        LRScheduler("StepLR", step_size=2),
        EarlyStopping(patience=10),
    ]
    net = skorch.NeuralNetClassifier(
        Network, max_epochs=5, lr=0.1, verbose=0, train_split=ValidSplit(4), callbacks=callbacks,
        iterator_train__shuffle=True,
    )  # fmt: skip
    net.fit(PLACES, CLASSES)
    losses = [net.history[:, name] for name in ("train_loss", "valid_loss", "valid_acc")]
    return [*map(torch.tensor, losses), torch.from_numpy(net.predict_proba(PLACES))]


def searched() -> list[Any]:
    """Scores of a grid search."""
    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(Network, max_epochs=3, verbose=0, train_split=None)
    search = GridSearchCV(net, {"lr": [0.05, 0.2], "module__width": [4, 8]}, cv=2)
    search.fit(PLACES, CLASSES)
    return [torch.from_numpy(search.cv_results_["mean_test_score"])]


def regression() -> list[Any]:
    """Predictions of a regressor."""
    torch.manual_seed(0)
    net = skorch.NeuralNetRegressor(
        torch.nn.Linear, module__in_features=6, module__out_features=1, max_epochs=4, lr=0.05,
        optimizer=torch.optim.Adam, verbose=0,
    )  # fmt: skip
    net.fit(PLACES, PLACES[:, :1] * 2)
    return [torch.from_numpy(net.predict(PLACES))]


CASES: dict[str, Callable[[], Case | Program]] = {
    "classifier": lambda: Program(classified),
    "search": lambda: Program(searched),
    "regressor": lambda: Program(regression),
}
