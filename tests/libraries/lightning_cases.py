"""Lightning: a toy fit with validation, a checkpoint, and the fit resumed from it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.libraries.cases import Case, Program

PLACES = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
TARGETS = PLACES.sum(1, keepdim=True)


class Line(lightning.LightningModule):
    """A regression with a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8, bias=False),
            torch.nn.BatchNorm1d(8),
            torch.nn.Tanh(),
            torch.nn.Linear(8, 1),
        )
        self.seen: list[Any] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("train", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("valid", loss)
        self.seen.append(loss)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def _trainer(folder: Path, epochs: int, **options: Any) -> Any:
    callbacks = [ModelCheckpoint(folder, filename="last")]
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=callbacks, default_root_dir=folder, **options,
    )  # fmt: skip


def _loader() -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(PLACES, TARGETS), 8)


def resumed() -> list[Any]:
    """Two epochs, a checkpoint, and two more by another trainer."""
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = Line()
        _trainer(folder, 2).fit(model, _loader(), _loader())
        first = {name: value.clone() for name, value in model.state_dict().items()}
        again = Line()
        _trainer(folder, 4).fit(again, _loader(), _loader(), ckpt_path=folder / "last.ckpt")
        return [first, dict(again.state_dict()), model.seen, again.seen]


def accumulated() -> list[Any]:
    """Gradients of two batches, clipped."""
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as name:
        model = Line()
        options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}
        _trainer(Path(name), 2, **options).fit(model, _loader())
        return [dict(model.state_dict())]


def fabric() -> list[Any]:
    """Lightning Fabric."""
    lightning.seed_everything(0, verbose=False)
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
    for x, y in fabric.setup_dataloaders(_loader()):
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
    return [dict(model.state_dict())]


CASES: dict[str, Callable[[], Case | Program]] = {
    "resumed": lambda: Program(resumed),
    "accumulated": lambda: Program(accumulated),
    "fabric": lambda: Program(fabric),
}
