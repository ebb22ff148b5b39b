"""A variational autoencoder of blobs, with the closed form of the divergence (Kingma 2014)."""

from __future__ import annotations

import json

import flambeau as torch

nn = torch.nn
functional = torch.nn.functional
distributions = torch.distributions


def blobs(count: int, generator: torch.Generator) -> torch.Tensor:
    """Images of one round blob each: (count, 1, 12, 12), in [0, 1]."""
    centers = 2 + 8 * torch.rand(count, 2, generator=generator)
    axis = torch.arange(12.0)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    distance = (rows - centers[:, 0, None, None]) ** 2 + (columns - centers[:, 1, None, None]) ** 2
    return torch.exp(-distance / 4).unsqueeze(1)


class Autoencoder(nn.Module):
    """Encoder and decoder of convolutions; four latent numbers."""

    def __init__(self, latent: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ELU(), nn.Flatten(), nn.Linear(288, 32),
            nn.ELU(),
        )  # fmt: skip
        self.mean, self.log_variance = nn.Linear(32, latent), nn.Linear(32, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 288), nn.ELU(), nn.Unflatten(1, (8, 6, 6)),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits of the image, mean and logarithm of the variance of its code."""
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(code), mean, log_variance


def bound(x: torch.Tensor, model: Autoencoder) -> tuple[torch.Tensor, torch.Tensor]:
    """The two parts of the evidence bound, per image: reconstruction and divergence."""
    logits, mean, log_variance = model(x)
    reconstruction = functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    posterior = distributions.Normal(mean, torch.exp(0.5 * log_variance))
    prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    divergence = distributions.kl_divergence(posterior, prior).sum()
    closed = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    torch.testing.assert_close(divergence, closed, rtol=1e-4, atol=1e-4)
    return reconstruction / x.shape[0], divergence / x.shape[0]


def main() -> dict[str, object]:
    """Both parts of the bound at every step, and samples of the prior."""
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(5)
    model = Autoencoder()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    parts = []
    for _ in range(10):
        reconstruction, divergence = bound(blobs(16, generator), model)
        optimizer.zero_grad()
        (reconstruction + divergence).backward()
        optimizer.step()
        parts.append([reconstruction.item(), divergence.item()])
    with torch.no_grad():
        images = torch.sigmoid(model.decoder(torch.randn(2, 4, generator=generator)))
    return {"parts": parts, "sampled": images.mean(dim=(1, 2, 3)).tolist()}


if __name__ == "__main__":
    print(json.dumps(main()))
