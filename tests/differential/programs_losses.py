"""Losses: values, gradients, reductions, warnings."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.differential.show import describe, numbers, raised


def classification() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    target = torch.tensor([0, 2, 1, -100])
    for options in (
        {},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"label_smoothing": 0.1},
        {"weight": torch.tensor([1.0, 2, 3])},
        {"ignore_index": 2},
    ):
        loss = F.cross_entropy(
            logits, target if "ignore_index" not in options else target.abs() % 3, **options
        )
        (g,) = torch.autograd.grad(loss.sum(), logits)
        print(options, numbers(loss), numbers(g[0]), describe(loss))
    print(
        numbers(F.cross_entropy(logits, logits.softmax(1).detach())),
        numbers(F.nll_loss(logits.log_softmax(1), target)),
    )
    print(numbers(F.cross_entropy(torch.zeros(2, 3), torch.tensor([-100, -100]))))
    print(
        raised(lambda: F.cross_entropy(logits, torch.tensor([0, 3, 1, 1]))),
        raised(lambda: F.cross_entropy(logits, torch.ones(4))),
    )
    print(
        raised(lambda: F.cross_entropy(logits, torch.ones(3, dtype=torch.long))),
        nn.CrossEntropyLoss(label_smoothing=0.1),
    )
    print(
        numbers(F.cross_entropy(torch.randn(2, 3, 4), torch.zeros(2, 4, dtype=torch.long))),
        raised(lambda: F.cross_entropy(logits, target.int())),
    )


def regression() -> None:
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        for reduction in ("mean", "sum", "none"):
            value = loss(x, y, reduction=reduction)
            (g,) = torch.autograd.grad(value.sum(), x)
            print(loss.__name__, reduction, numbers(value.sum()), numbers(g[0]), describe(value))
    print(
        numbers(F.gaussian_nll_loss(x, y, torch.ones(3, 4))),
        numbers(F.poisson_nll_loss(x, y.abs())),
    )
    print(
        raised(lambda: F.mse_loss(x, y, reduction="median")),
        numbers(F.smooth_l1_loss(x, y, beta=0.0)),
    )
    print(numbers(F.mse_loss(x, y, weight=torch.ones(3, 4))))


def broadcasting_warnings() -> None:
    x, y = torch.ones(3, 1), torch.ones(3)
    print(F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y))
    print(raised(lambda: F.mse_loss(torch.ones(3), torch.ones(4))))
    F.mse_loss(x, x, size_average=True)
    F.l1_loss(x, x, reduce=False)
    nn.MSELoss(size_average=False)
    F.kl_div(x.log(), x)
    F.kl_div(x.log(), x, reduction="batchmean")


def binary_losses() -> None:
    x = torch.randn(5, requires_grad=True)
    y = torch.tensor([0.0, 1, 1, 0, 1])
    print(
        numbers(F.binary_cross_entropy_with_logits(x, y)),
        numbers(F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.tensor(3.0))),
    )
    print(
        numbers(F.binary_cross_entropy(x.sigmoid(), y)),
        numbers(F.binary_cross_entropy(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))),
    )
    print(
        raised(lambda: F.binary_cross_entropy(x, y)),
        raised(lambda: F.binary_cross_entropy(x.sigmoid(), y[:3])),
    )
    print(
        raised(lambda: F.binary_cross_entropy_with_logits(x, y[:3])),
        raised(lambda: F.binary_cross_entropy(x.sigmoid(), y.long())),
    )
    print(numbers(F.soft_margin_loss(x, y * 2 - 1)), numbers(F.hinge_embedding_loss(x, y * 2 - 1)))
    print(
        numbers(F.multilabel_soft_margin_loss(x[None], y[None])),
        numbers(F.multi_margin_loss(x[None], torch.tensor([2]))),
    )
    F.binary_cross_entropy_with_logits(x, y).backward()
    print(numbers(x.grad), type(F.binary_cross_entropy(x.sigmoid(), y).grad_fn).__name__)


def metric_losses() -> None:
    a, b, c = (torch.randn(4, 6, requires_grad=True) for _ in range(3))
    loss = nn.TripletMarginLoss(margin=0.5, swap=True)(a, b, c)
    loss.backward()
    print(numbers(loss), numbers(a.grad[0]), type(loss.grad_fn).__name__)
    cosine = nn.CosineEmbeddingLoss(0.2)(a, b, torch.tensor([1, -1, 1, -1]))
    print(
        numbers(cosine),
        numbers(F.margin_ranking_loss(a[0], b[0], torch.ones(6))),
        numbers(F.cosine_similarity(a, b)),
    )
    print(
        numbers(
            F.triplet_margin_with_distance_loss(
                a, b, c, distance_function=lambda u, v: (u - v).abs().sum(-1)
            )
        )
    )
    print(
        numbers(F.pdist(a)),
        numbers(torch.cdist(a, b, p=1.0)[0]),
        numbers(F.pairwise_distance(a, b, p=3)),
    )
    sims = F.normalize(a) @ F.normalize(b).t() / 0.1
    print(
        numbers(F.cross_entropy(sims, torch.arange(4)) + F.cross_entropy(sims.t(), torch.arange(4)))
    )


def sequence_losses() -> None:
    log_probs = torch.randn(10, 2, 5).log_softmax(2).requires_grad_()
    targets = torch.tensor([[1, 2, 2], [3, 4, 0]])
    loss = F.ctc_loss(
        log_probs, targets, torch.tensor([10, 8]), torch.tensor([3, 2]), zero_infinity=True
    )
    loss.backward()
    print(
        numbers(loss),
        numbers(log_probs.grad.norm()),
        type(loss.grad_fn).__name__,
        loss.grad_fn.name(),
    )
    print(
        numbers(F.ctc_loss(log_probs, torch.tensor([1, 2, 3]), (10, 10), (2, 1), reduction="none"))
    )
    print(numbers(nn.CTCLoss()(log_probs[:1], targets, torch.tensor([1, 1]), torch.tensor([3, 2]))))
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8])
    out = adaptive(torch.randn(3, 8), torch.tensor([0, 5, 11]))
    print(
        numbers(out.output),
        numbers(out.loss),
        type(out).__name__,
        adaptive.predict(torch.ones(1, 8)),
    )


def distillation() -> None:
    student, teacher = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)
    t = 2.0
    soft = (
        F.kl_div(F.log_softmax(student / t, 1), F.softmax(teacher / t, 1), reduction="batchmean")
        * t
        * t
    )
    log_target = F.kl_div(
        F.log_softmax(student, 1), F.log_softmax(teacher, 1), log_target=True, reduction="sum"
    )
    (soft + log_target).backward()
    print(numbers(soft), numbers(log_target), numbers(student.grad), type(soft.grad_fn).__name__)


def weighted_and_masked() -> None:
    x = torch.randn(2, 4, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]], dtype=torch.bool)
    per_token = (x - 1).pow(2)
    loss = (per_token * mask).sum() / mask.sum()
    loss.backward()
    print(numbers(loss), numbers(x.grad), mask.sum().dtype, (mask.float().mean()))
    alternative = per_token.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp(min=1)
    print(
        numbers(alternative), numbers(torch.where(mask, x, 0.0).sum()), x.masked_select(mask).shape
    )
    focal = -((1 - x.sigmoid()) ** 2) * F.logsigmoid(x)
    dice = 1 - 2 * (x.sigmoid() * mask).sum() / (x.sigmoid().sum() + mask.sum())
    print(numbers(focal), numbers(dice), type(dice.grad_fn).__name__, type(focal.grad_fn).__name__)
