"""Data parallelism. There is one device, so a wrapped module is called as it is."""

from __future__ import annotations

from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.runtime import missing as _missing

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Calls its module on the one device there is.

    Args:
        module: the wrapped module, as `.module`.
        device_ids, output_device, dim: accepted.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """Training in several processes; not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        text = "training in several processes is not supported"
        raise NotImplementedError(problem("DistributedDataParallel", text, "use one process"))


# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
