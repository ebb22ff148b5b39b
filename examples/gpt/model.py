"""A small GPT, written as a PyTorch user would write it (after Radford et al. 2019).

Letters in shape comments: B batch, T time, C channels, nh heads, hs head size, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn


@dataclass
class GPTConfig:
    """Sizes of the model; the defaults are the demo's."""

    vocabulary: int = 256
    context: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 256
    dropout: float = 0.0
    bias: bool = True


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which position t sees positions 0..t."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(  # (B, nh, T, hs)
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm, with residuals."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = CausalSelfAttention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.down = nn.Linear(4 * config.width, config.width, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
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

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T) tokens -> logits (B, T, V) and, given targets (B, T), the mean cross entropy."""
        B, T = tokens.shape
        positions = torch.arange(T, device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.view(B * T, -1), targets.reshape(B * T))
        return logits, loss

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, temperature: float = 0.8) -> Tensor:
        """Appends `count` sampled tokens to (B, T) tokens."""
        for _ in range(count):
            logits, _ = self(tokens[:, -self.config.context :])
            probabilities = F.softmax(logits[:, -1, :] / temperature, dim=-1)
            following = torch.multinomial(probabilities, num_samples=1)
            tokens = torch.cat((tokens, following), dim=1)
        return tokens
