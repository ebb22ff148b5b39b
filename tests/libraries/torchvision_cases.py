"""torchvision: its models, smallest of each family, and its operators by way of detection."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torchvision.models import get_model, list_models

from tests.libraries.cases import Case, Program

# Variants of a family that differ in size alone.
LARGE = ("152", "101", "50_2", "101_", "_l_", "_16", "_14", "32gf", "16gf", "8gf", "3_2gf", "128gf")
SKIPPED = ("quantized", "vgg13", "vgg16", "vgg19", "densenet161", "densenet169", "densenet201",
           "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5",
           "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_l", "efficientnet_v2_m",
           "convnext_base", "convnext_large", "convnext_small", "swin_b", "swin_s", "swin_v2_b",
           "swin_v2_s", "vit_l", "vit_h", "resnext", "wide", "swin3d_b", "swin3d_s",
           "mvit_v1", "x3d")  # fmt: skip


def classifier(name: str) -> Case:
    """A classifier, a segmentation model, or one of videos."""
    generator = torch.Generator().manual_seed(3)
    size: tuple[int, ...] = (2, 3, 64, 64)
    options: dict[str, Any] = {"weights": None}
    if name.startswith(("vit", "maxvit")):
        size = (2, 3, 224, 224)
    elif name.startswith("inception"):
        size = (2, 3, 96, 96)
    elif name.startswith(("mvit", "swin3d", "r3d", "mc3", "r2plus1d", "s3d")):
        size = (1, 3, 16, 224, 224) if name.startswith(("mvit",)) else (1, 3, 16, 64, 64)
    if "segmentation" in torchvision.models.get_model_builder(name).__module__:
        options |= {"weights_backbone": None, "num_classes": 5}
    elif name not in ("inception_v3", "googlenet"):
        options["num_classes"] = 10
    else:
        options |= {"num_classes": 10, "init_weights": False}
    return Case(get_model(name, **options), (torch.randn(*size, generator=generator),))


class Detector(torch.nn.Module):
    """A detector: its losses, or the scores of what it finds.

    Which of two boxes with nearly equal scores comes first, rounding decides.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Any, targets: Any) -> Any:
        result = self.model(images, targets)
        return result if self.training else [each["scores"].sort().values for each in result]


def detector(name: str) -> Case:
    """A detector on two small images."""
    generator = torch.Generator().manual_seed(3)
    options: dict[str, Any] = {"weights": None, "weights_backbone": None, "num_classes": 5}
    if not name.startswith("ssd"):
        options |= {"min_size": 96, "max_size": 128}
    model = Detector(get_model(name, **options))
    images = [torch.rand(3, 96, 128, generator=generator) for _ in range(2)]
    boxes = torch.tensor([[8.0, 10.0, 60.0, 70.0], [30.0, 20.0, 110.0, 90.0]])
    targets = [
        {
            "boxes": boxes,
            "labels": torch.tensor([1, 3]),
            "masks": torch.ones(2, 96, 128, dtype=torch.uint8),
            "keypoints": torch.tensor([20.0, 30.0, 1.0]).expand(2, 17, 3).contiguous(),
        }
        for _ in images
    ]
    return Case(model, (images, targets))


def flow(name: str) -> Case:
    """RAFT on a pair of small images."""
    generator = torch.Generator().manual_seed(3)
    pair = tuple(torch.rand(1, 3, 128, 128, generator=generator) for _ in range(2))
    return Case(get_model(name, weights=None), pair, {"num_flow_updates": 2})


def _kind(name: str) -> Callable[[str], Case]:
    module = torchvision.models.get_model_builder(name).__module__
    if ".detection" in module:
        return detector
    return flow if "optical_flow" in module else classifier


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(_kind(name), name)
    for name in list_models()
    if not any(part in name for part in (*LARGE, *SKIPPED))
}
