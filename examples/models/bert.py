"""BERT base (Devlin et al. 2018) over `nn.TransformerEncoder`: guesses the words masked in a text.

Letters in shape comments: B batch, T time, C channels, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn

PADDING, MASK, WORDS = 0, 1, 2  # special tokens, and the first of the others
IGNORED = -100  # target where nothing is masked


@dataclass
class Config:
    """Sizes of the model; the defaults are BERT base's."""

    vocabulary: int = 30522
    context: int = 512
    segments: int = 2
    layers: int = 12
    heads: int = 12
    width: int = 768
    dropout: float = 0.1

    @classmethod
    def small(cls) -> Config:
        """A model for tests."""
        return cls(vocabulary=89, context=24, layers=2, heads=2, width=32)


class Embeddings(nn.Module):
    """Sum of what a token, its position and its segment stand for."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width, padding_idx=PADDING)
        self.position = nn.Embedding(config.context, config.width)
        self.segment = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """(B, T) -> (B, T, C)."""
        if segments is None:
            segments = torch.zeros_like(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions) + self.segment(segments)
        return self.drop(self.norm(x))


class Bert(nn.Module):
    """Tokens in, logits of what should stand in their places out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            4 * config.width,
            dropout=config.dropout,
            activation="gelu",
            layer_norm_eps=1e-12,
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.decoder = nn.Linear(config.width, config.vocabulary)
        self.decoder.weight = self.embeddings.token.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, T) -> logits (B, T, V); padding is neither looked at nor meant."""
        x = self.embeddings(tokens, segments)
        x = self.encoder(x, src_key_padding_mask=tokens == PADDING)
        return self.decoder(self.norm(F.gelu(self.dense(x))))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy where the targets (B, T) are not `IGNORED`."""
        logits = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Random texts, each shorter than the one before, and targets for a word in seven."""
        config = self.config
        texts = torch.randint(WORDS, config.vocabulary, (batch, config.context))
        lengths = config.context - torch.arange(batch) * (config.context // (2 * batch))
        outside = torch.arange(config.context) >= lengths.unsqueeze(1)
        masked = (torch.rand(batch, config.context) < 0.15) & ~outside
        masked[:, 0] = True
        targets = texts.masked_fill(~masked, IGNORED)
        return texts.masked_fill(masked, MASK).masked_fill(outside, PADDING), targets
