"""Names of three made-up languages, told apart by an LSTM over packed sequences."""

from __future__ import annotations

import json

import flambeau as torch

nn = torch.nn
rnn = torch.nn.utils.rnn
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(language: int, count: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Words of letters that the language prefers; each as indices from 1."""
    weights = torch.ones(len(LETTERS))
    weights[language * 8 : language * 8 + 8] = 6.0
    lengths = torch.randint(3, 9, (count,), generator=generator).tolist()
    return [torch.multinomial(weights, n, True, generator=generator) + 1 for n in lengths]


class Classifier(nn.Module):
    """A bidirectional LSTM; the last states of both directions are classified."""

    def __init__(self, hidden: int = 16, classes: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS) + 1, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * hidden, classes)

    def forward(self, text: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """(N, longest) indices and (N,) lengths to (N, classes)."""
        packed = rnn.pack_padded_sequence(
            self.embedding(text), lengths, batch_first=True, enforce_sorted=False
        )
        states, (last, _) = self.lstm(packed)
        padded, back = rnn.pad_packed_sequence(states, batch_first=True)
        assert padded.shape[1] == int(lengths.max()) and torch.equal(back, lengths)
        return self.output(torch.cat([last[-2], last[-1]], dim=1))


def main() -> dict[str, object]:
    """Losses while training, and the accuracy at the end."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(7)
    samples = [(word, k) for k in range(3) for word in words(k, 20, generator)]
    text = rnn.pad_sequence([word for word, _ in samples], batch_first=True)
    lengths = torch.tensor([len(word) for word, _ in samples])
    labels = torch.tensor([label for _, label in samples])
    model = Classifier()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses: list[float] = []
    for _ in range(6):
        order = torch.randperm(len(samples))
        for batch in order.split(20):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(text[batch], lengths[batch]), labels[batch])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
    right = model(text, lengths).argmax(1).eq(labels).float().mean()
    return {"losses": losses, "accuracy": right.item()}


if __name__ == "__main__":
    print(json.dumps(main()))
