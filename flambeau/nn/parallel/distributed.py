"""`DistributedDataParallel`: training in several processes."""

from __future__ import annotations

from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Training in several processes; not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        text = "training in several processes is not supported"
        raise NotImplementedError(problem("DistributedDataParallel", text, "use one process"))
