"""ViT-S/16 (Dosovitskiy et al. 2020, Touvron et al. 2020): an image as a sequence of patches.

Letters in shape comments: B batch, N patches, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn


@dataclass
class Config:
    """Sizes of the model; the defaults are ViT-S/16's."""

    image: int = 224
    patch: int = 16
    layers: int = 12
    heads: int = 6
    width: int = 384
    classes: int = 1000

    @classmethod
    def small(cls) -> Config:
        """A model for tests."""
        return cls(image=32, patch=8, layers=2, heads=2, width=32, classes=10)


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm, with residuals."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Images in, logits of their classes out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        patches = (config.image // config.patch) ** 2
        self.patches = nn.Conv2d(3, config.width, config.patch, stride=config.patch)
        self.summary = nn.Parameter(torch.zeros(1, 1, config.width))
        self.position = nn.Parameter(torch.empty(1, 1 + patches, config.width))
        self.blocks = nn.Sequential(
            *(Block(config.width, config.heads) for _ in range(config.layers))
        )
        self.norm = nn.LayerNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.classes)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, classes)."""
        x = self.patches(images).flatten(2).transpose(1, 2)  # (B, N, C)
        x = torch.cat((self.summary.expand(x.shape[0], -1, -1), x), dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy of the labels (B,), a tenth of it spread over all classes."""
        return F.cross_entropy(self(images), labels, label_smoothing=0.1)

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Random images and labels."""
        size = self.config.image
        return torch.randn(batch, 3, size, size), torch.randint(0, self.config.classes, (batch,))
