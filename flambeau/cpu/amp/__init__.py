"""`torch.cpu.amp`: older names of `torch.amp` for the CPU."""

from flambeau.cpu.amp.autocast_mode import autocast
from flambeau.cpu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
