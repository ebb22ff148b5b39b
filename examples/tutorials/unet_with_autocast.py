"""A U-Net that finds discs in images, trained in bfloat16 by autocast."""

from __future__ import annotations

import json

import flambeau as torch

nn = torch.nn
functional = torch.nn.functional


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with group norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Three levels; each one's features are joined on the way up."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList([block(1, widths[0]), block(widths[0], widths[1])])
        self.bottom = block(widths[1], widths[2])
        self.up = nn.ModuleList([
            nn.ConvTranspose2d(widths[2], widths[1], 2, stride=2),
            nn.ConvTranspose2d(widths[1], widths[0], 2, stride=2),
        ])  # fmt: skip
        self.joined = nn.ModuleList([block(widths[2], widths[1]), block(widths[1], widths[0])])
        self.output = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 1, H, W) to logits of the same shape."""
        features = []
        for down in self.down:
            x = down(x)
            features.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, joined in zip(self.up, self.joined):
            x = joined(torch.cat((up(x), features.pop()), dim=1))
        return self.output(x)


def discs(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy images of a disc each, and its mask: (count, 1, 16, 16)."""
    centers = 4 + 8 * torch.rand(count, 2, 1, 1, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    distance = torch.hypot(rows - centers[:, 0], columns - centers[:, 1])
    mask = (distance < 3).float().unsqueeze(1)
    return mask + 0.3 * torch.randn(mask.shape, generator=generator), mask


def dice(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One minus the overlap of two masks (Milletari et al. 2016)."""
    chance = logits.float().sigmoid()
    both = (chance * mask).sum(dim=(1, 2, 3))
    return (1 - 2 * both / (chance.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3)) + 1)).mean()


def main() -> dict[str, object]:
    """Losses in bfloat16, dtypes inside, and the output of the trained model in float32."""
    torch.manual_seed(10)
    generator = torch.Generator().manual_seed(11)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    losses, dtypes = [], set()
    for _ in range(6):
        images, masks = discs(8, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images)
            dtypes.add(str(logits.dtype))
            loss = functional.binary_cross_entropy_with_logits(logits.float(), masks)
            loss = loss + dice(logits, masks)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    kinds = sorted({str(p.dtype) for p in model.parameters()} | dtypes)
    return {"losses": losses, "dtypes": kinds}


if __name__ == "__main__":
    print(json.dumps(main()))
