"""U-Net (Ronneberger et al. 2015) with padded convolutions and batch norm: a class per pixel.

Letters in shape comments: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn


@dataclass
class Config:
    """Sizes of the model; the defaults are the paper's, on colour images."""

    channels: int = 3
    classes: int = 21
    width: int = 64
    depth: int = 4  # times the image is halved
    image: int = 256

    @classmethod
    def small(cls) -> Config:
        """A model for tests."""
        return cls(classes=5, width=8, depth=2, image=32)


def double_convolution(channels: int, out: int) -> nn.Sequential:
    """Twice: 3x3 convolution, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class Up(nn.Module):
    """Doubles the image, and joins what the way down had at that size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, stride=2)
        self.mix = double_convolution(channels, channels // 2)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """(B, C, H, W) and (B, C / 2, 2 H, 2 W) -> (B, C / 2, 2 H, 2 W)."""
        return self.mix(torch.cat((skip, self.up(x)), dim=1))


class UNet(nn.Module):
    """Images in, logits of a class per pixel out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = [config.width << level for level in range(config.depth + 1)]
        self.stem = double_convolution(config.channels, widths[0])
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), double_convolution(a, b))
            for a, b in zip(widths, widths[1:], strict=False)
        )
        self.up = nn.ModuleList(Up(width) for width in reversed(widths[1:]))
        self.head = nn.Conv2d(widths[0], config.classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> logits (B, classes, H, W); H and W multiples of 2 ** depth."""
        skips = [self.stem(images)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        return self.head(x)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy of the labels (B, H, W)."""
        return F.cross_entropy(self(images), labels)

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Random images and labels."""
        config = self.config
        images = torch.randn(batch, config.channels, config.image, config.image)
        return images, torch.randint(0, config.classes, (batch, config.image, config.image))
