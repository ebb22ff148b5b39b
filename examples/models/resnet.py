"""ResNet-50 (He et al. 2015), in the layout of torchvision: its checkpoints have these names.

Letters in shape comments: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn


@dataclass
class Config:
    """Sizes of the model; the defaults are ResNet-50's."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)  # per stage
    width: int = 64
    classes: int = 1000
    image: int = 224

    @classmethod
    def small(cls) -> Config:
        """A model for tests."""
        return cls(blocks=(1, 2, 1, 1), width=8, classes=10, image=64)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a residual; the 3x3 one carries the stride."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 4 width, H / stride, W / stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += identity
        return self.relu(y)


class ResNet(nn.Module):
    """Images in, logits of their classes out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, count in enumerate(config.blocks):
            blocks = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(channels, width << stage, stride))
                channels = (width << stage) * Bottleneck.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, config.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in range(len(self.config.blocks)):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy of the labels (B,)."""
        return F.cross_entropy(self(images), labels)

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Random images and labels."""
        size = self.config.image
        return torch.randn(batch, 3, size, size), torch.randint(0, self.config.classes, (batch,))
