"""The text every Python installation carries: the language reference that `help()` shows.

A token is a frequent word, with the space before it, or a single byte. A short training then learns
which words follow each other; with bytes alone it would still be spelling.
"""

from __future__ import annotations

import re
from collections import Counter
from pydoc_data.topics import topics

import flambeau as torch
from flambeau import Tensor

WORD = re.compile(r" ?\w+| ?[^\w\s]+|\s")


def load_text(limit: int = 200_000) -> str:
    """The first `limit` characters of the topics in alphabetical order, a paragraph per line."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = re.split(r"\n\s*\n", re.sub(r"[-=+*~^|]{3,}", "", text))  # no rules of tables
    return "\n".join(" ".join(lines.split()) for lines in paragraphs)[:limit]


class Tokenizer:
    """Texts as numbers: 0 to 255 are bytes, the others the most frequent words of a text.

    Args:
        text: where words are counted.
        size: how many tokens there are.
    """

    def __init__(self, text: str, size: int) -> None:
        words = Counter(word for word in WORD.findall(text) if len(word.encode()) > 1)
        frequent = [word.encode() for word, _ in words.most_common(max(size - 256, 0))]
        self.pieces = [bytes([i]) for i in range(256)] + frequent
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; a word that is none gives its bytes."""
        tokens: list[int] = []
        for word in WORD.findall(text):
            piece = word.encode()
            number = self.numbers.get(piece)
            tokens.extend(piece if number is None else [number])
        return tokens

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", errors="replace")


class Windows:
    """Random windows of a text; its last tenth is held out for validation.

    Args:
        text: what to read.
        vocabulary: how many tokens there are.
        context: window length T.
    """

    def __init__(self, text: str, vocabulary: int, context: int) -> None:
        self.context = context
        self.tokenizer = Tokenizer(text, vocabulary)
        data = torch.tensor(self.tokenizer.encode(text))
        cut = len(data) * 9 // 10
        self.training, self.validation = data[:cut], data[cut:]

    def batch(
        self, batch: int, generator: torch.Generator, validation: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Tokens and next tokens, both (B, T) int64."""
        data = self.validation if validation else self.training
        starts = torch.randint(len(data) - self.context - 1, (batch,), generator=generator)
        offsets = torch.arange(self.context + 1)
        windows = data[starts.unsqueeze(1) + offsets]
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
