"""torchmetrics: metrics of three batches, accumulated, and their functional forms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torchmetrics
from torchmetrics import classification, clustering, image, regression, retrieval

from tests.libraries.cases import Case, Program

CLASSES = 4


def drawn(step: int) -> torch.Generator:
    """A generator of a batch."""
    return torch.Generator().manual_seed(step + 11)


def classes(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and classes."""
    scores = torch.rand(20, CLASSES, generator=drawn(step)).softmax(-1)
    return scores, torch.randint(CLASSES, (20,), generator=drawn(step + 50))


def binary(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and truths."""
    return torch.rand(20, generator=drawn(step)), classes(step)[1] % 2


def labels(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and truths of several labels."""
    return torch.rand(20, CLASSES, generator=drawn(step)), classes(step)[0] > 0.25


def numbers(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Predicted and true numbers."""
    true = torch.rand(20, generator=drawn(step)) + 0.1
    return true + 0.1 * torch.rand(20, generator=drawn(step + 50)), true


def pictures(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two similar images."""
    true = torch.rand(2, 3, 48, 48, generator=drawn(step))
    return (true + 0.05 * torch.rand(2, 3, 48, 48, generator=drawn(step + 50))).clamp(0, 1), true


def groups(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two groupings."""
    return classes(step)[1], classes(step + 7)[1]


def queries(step: int) -> tuple[torch.Tensor, ...]:
    """Scores, truths, and the query of each."""
    return (*binary(step), torch.arange(20) // 5)


Batch = Callable[[int], Any]


def _several(module: Any, names: str, batch: Batch, **options: Any) -> dict[str, Any]:
    return {name: (getattr(module, name), options, batch) for name in names.split()}


METRICS: dict[str, tuple[Any, dict[str, Any], Callable[[int], Any]]] = {
    **_several(
        classification,
        "MulticlassAccuracy MulticlassF1Score MulticlassPrecision MulticlassRecall MulticlassAUROC "
        "MulticlassAveragePrecision MulticlassConfusionMatrix MulticlassCohenKappa "
        "MulticlassMatthewsCorrCoef MulticlassCalibrationError MulticlassHingeLoss "
        "MulticlassJaccardIndex MulticlassSpecificity MulticlassStatScores MulticlassROC "
        "MulticlassPrecisionRecallCurve MulticlassExactMatch",
        classes,
        num_classes=CLASSES,
    ),
    **_several(
        classification,
        "BinaryAccuracy BinaryF1Score BinaryAUROC BinaryAveragePrecision BinaryConfusionMatrix "
        "BinaryROC BinaryPrecisionRecallCurve BinaryCalibrationError BinaryHingeLoss",
        binary,
    ),
    **_several(
        classification,
        "MultilabelAccuracy MultilabelF1Score MultilabelAUROC MultilabelRankingLoss "
        "MultilabelCoverageError MultilabelRankingAveragePrecision MultilabelConfusionMatrix",
        labels,
        num_labels=CLASSES,
    ),
    **_several(
        regression,
        "MeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError R2Score PearsonCorrCoef "
        "SpearmanCorrCoef ExplainedVariance ConcordanceCorrCoef CosineSimilarity "
        "KendallRankCorrCoef LogCoshError MeanSquaredLogError MinkowskiDistance "
        "RelativeSquaredError "
        "SymmetricMeanAbsolutePercentageError TweedieDevianceScore "
        "WeightedMeanAbsolutePercentageError",
        numbers,
    ),
    **_several(
        image,
        "PeakSignalNoiseRatio StructuralSimilarityIndexMeasure UniversalImageQualityIndex "
        "SpectralAngleMapper ErrorRelativeGlobalDimensionlessSynthesis TotalVariation "
        "RelativeAverageSpectralError VisualInformationFidelity SpatialCorrelationCoefficient",
        pictures,
    ),
    **_several(
        clustering,
        "MutualInfoScore RandScore AdjustedRandScore NormalizedMutualInfoScore HomogeneityScore "
        "CompletenessScore VMeasureScore FowlkesMallowsIndex",
        groups,
    ),
    **_several(
        retrieval,
        "RetrievalMAP RetrievalMRR RetrievalPrecision RetrievalRecall RetrievalNormalizedDCG "
        "RetrievalFallOut RetrievalHitRate RetrievalRPrecision RetrievalAUROC",
        queries,
    ),
}
NEEDED = {
    "MinkowskiDistance": {"p": 3.0},
    "PeakSignalNoiseRatio": {"data_range": 1.0},
    "StructuralSimilarityIndexMeasure": {"data_range": 1.0},
}
CHANGED: dict[str, Batch] = {
    "TotalVariation": lambda step: pictures(step)[:1],
    "MulticlassExactMatch": lambda step: tuple(t.reshape(4, 5) for t in groups(step)),
    "CosineSimilarity": lambda step: tuple(t.reshape(4, 5) for t in numbers(step)),
}


def metric(name: str) -> Program:
    """A metric of each batch, and of all."""

    def run() -> Any:
        kind, options, batch = METRICS[name]
        measured = kind(**options, **NEEDED.get(name, {}))
        batch = CHANGED.get(name, batch)
        return [[measured(*batch(step)) for step in range(3)], measured.compute()]

    return Program(run)


def collection() -> Program:
    """Several metrics at once, which share their states, then reset and kept."""

    def run() -> Any:
        kinds = (classification.MulticlassAccuracy, classification.MulticlassRecall)
        metrics = torchmetrics.MetricCollection([kind(CLASSES) for kind in kinds])
        for step in range(3):
            metrics.update(*classes(step))
        first = dict(metrics.compute())
        metrics.reset()
        metrics.update(*classes(5))
        tracker = torchmetrics.MinMaxMetric(regression.MeanSquaredError())
        for step in range(3):
            tracker.update(*numbers(step))
            tracker.compute()
        return [first, dict(metrics.compute()), dict(tracker.compute())]

    return Program(run)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(metric, name) for name in METRICS
}
CASES["collection"] = collection
