"""An LSTM language model (Zaremba et al. 2014, tied as in Press and Wolf 2016).

Letters in shape comments: B batch, T time, C channels, L layers, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn

State = tuple[Tensor, Tensor]


@dataclass
class Config:
    """Sizes of the model; the defaults are the paper's medium ones."""

    vocabulary: int = 10000
    context: int = 35
    layers: int = 2
    width: int = 650
    dropout: float = 0.5

    @classmethod
    def small(cls) -> Config:
        """A model for tests."""
        return cls(vocabulary=71, context=12, width=24)


class LSTMLanguageModel(nn.Module):
    """Tokens in, logits of the next token and the state after the last one out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.drop = nn.Dropout(config.dropout)
        self.token = nn.Embedding(config.vocabulary, width)
        self.lstm = nn.LSTM(width, width, config.layers, dropout=config.dropout, batch_first=True)
        self.head = nn.Linear(width, config.vocabulary)
        self.head.weight = self.token.weight
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.05, 0.05)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """(B, T) and the state before, two of (L, B, C) -> (B, T, V) and the state after."""
        y, state = self.lstm(self.drop(self.token(tokens)), state)
        return self.head(self.drop(y)), state

    def loss(self, tokens: Tensor, following: Tensor) -> Tensor:
        """Mean cross entropy of the following tokens (B, T), from an empty state."""
        logits, _ = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())

    def example(self, batch: int) -> tuple[Tensor, Tensor]:
        """Random tokens that fill the context, and those that follow."""
        text = torch.randint(0, self.config.vocabulary, (batch, self.config.context + 1))
        return text[:, :-1], text[:, 1:]
