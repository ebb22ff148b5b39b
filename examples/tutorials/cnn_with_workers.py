"""A convolutional network on images of shapes, loaded by worker processes."""

from __future__ import annotations

import json

import flambeau as torch

nn = torch.nn
functional = torch.nn.functional


class Shapes(torch.utils.data.Dataset):
    """Images of horizontal bars, vertical bars and diagonals, with noise.

    Args:
        count: of images.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = index % 3
        generator = torch.Generator().manual_seed(index)
        image = 0.3 * torch.randn(1, 16, 16, generator=generator)
        place = int(torch.randint(2, 14, (), generator=generator))
        if label == 0:
            image[0, place] += 1
        elif label == 1:
            image[0, :, place] += 1
        else:
            image[0] += torch.eye(16).roll(place, 0)
        return image, label


class Network(nn.Module):
    """Two convolutions with batch norm, and a linear layer."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((2, 2)),
        )
        self.classifier = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes: (N, 1, H, W) to (N, classes)."""
        x = self.features(x).flatten(1)
        return self.classifier(functional.dropout(x, 0.0, self.training))


def evaluate(model: nn.Module, loader: torch.utils.data.DataLoader) -> float:
    """The share of images that are classified correctly."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += int((model(images).argmax(dim=1) == labels).sum().item())
            total += labels.size(0)
    return right / total


def main() -> dict[str, object]:
    """Losses of every epoch, and the accuracy on other images."""
    torch.manual_seed(0)
    data = Shapes(96)
    training, test = torch.utils.data.random_split(data, [72, 24])
    loader = torch.utils.data.DataLoader(training, batch_size=12, shuffle=True, num_workers=2)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses = []
    for _ in range(4):
        model.train()
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
    accuracy = evaluate(model, torch.utils.data.DataLoader(test, batch_size=8, num_workers=2))
    return {"losses": losses, "accuracy": accuracy}


if __name__ == "__main__":
    print(json.dumps(main()))
