"""A TransformerEncoder that restores sequences whose elements were masked."""

from __future__ import annotations

import json
import math

import flambeau as torch

nn = torch.nn
VOCABULARY, LENGTH, MASK = 12, 10, 0


class Positions(nn.Module):
    """Adds sines and cosines of positions (Vaswani et al. 2017)."""

    table: torch.Tensor

    def __init__(self, width: int, length: int = 64) -> None:
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, L, width) to the same shape."""
        return x + self.table[: x.size(1)]


class Restorer(nn.Module):
    """Embeddings, an encoder of two layers, a linear layer."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.positions = Positions(width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.output = nn.Linear(width, VOCABULARY)
        for parameter in self.encoder.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        """(N, L) tokens to (N, L, vocabulary) scores."""
        x = self.positions(self.embedding(tokens) * math.sqrt(self.width))
        return self.output(self.encoder(x, src_key_padding_mask=padding))


def batch(count: int, generator: torch.Generator) -> torch.Tensor:
    """Sequences that count upwards from a random start: (count, LENGTH)."""
    start = torch.randint(0, VOCABULARY - 1, (count, 1), generator=generator)
    return (start + torch.arange(LENGTH)) % (VOCABULARY - 1) + 1


def main() -> dict[str, object]:
    """Losses and how many masked tokens are restored."""
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(3)
    model = Restorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    losses = []
    for _ in range(15):
        tokens = batch(16, generator)
        hidden = torch.rand(tokens.shape, generator=generator) < 0.3
        padding = torch.zeros_like(hidden)
        padding[:4, -2:] = True
        scores = model(tokens.masked_fill(hidden, MASK), padding)
        targets = tokens.masked_fill(~hidden | padding, -100)
        loss = nn.functional.cross_entropy(scores.transpose(1, 2), targets, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    with torch.inference_mode():
        tokens = batch(8, generator)
        restored = model(tokens.index_fill(1, torch.tensor([4]), MASK)).argmax(-1)
        right = (restored[:, 4] == tokens[:, 4]).float().mean()
    return {"losses": losses, "restored": float(right), "rate": schedule.get_last_lr()}


if __name__ == "__main__":
    print(json.dumps(main()))
