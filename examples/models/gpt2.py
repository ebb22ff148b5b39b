"""GPT-2 small (Radford et al. 2019): a decoder whose output layer is its token table.

Letters in shape comments: B batch, T time, C channels, nh heads, hs head size, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn


@dataclass
class Config:
    """Sizes of the model; the defaults are GPT-2 small's, without dropout."""

    vocabulary: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    dropout: float = 0.0

    @classmethod
    def small(cls) -> Config:
        """A model for tests."""
        return cls(vocabulary=97, context=32, layers=2, heads=2, width=32)


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which position t sees positions 0..t."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(  # (B, nh, T, hs)
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm, with residuals."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = CausalSelfAttention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.drop(self.attention(self.norm1(x)))
        y = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.drop(self.down(y))


class GPT2(nn.Module):
    """Tokens in, logits of the next token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.token.weight
        self.apply(self._initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # residual branches
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers))

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens -> logits (B, T, V)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.token(tokens) + self.position(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, tokens: Tensor, following: Tensor) -> Tensor:
        """Mean cross entropy of the following tokens (B, T)."""
        return F.cross_entropy(self(tokens).flatten(0, 1), following.flatten())

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Random tokens that fill the context, and those that follow."""
        text = torch.randint(0, self.config.vocabulary, (batch, self.config.context + 1))
        return text[:, :-1], text[:, 1:]
