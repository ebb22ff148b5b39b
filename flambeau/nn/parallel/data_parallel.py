"""`DataParallel`: one module on several devices, of which there are none beside the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.parallel.parallel_apply import parallel_apply
from flambeau.nn.parallel.replicate import replicate
from flambeau.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


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

    def replicate(self, module: Any, device_ids: Sequence[Any]) -> list[Any]:
        """Copies of the module on devices, see `nn.parallel.replicate`."""
        return replicate(module, device_ids)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        """Inputs divided among devices, see `nn.parallel.scatter`."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas: Sequence[Any], inputs: Any, kwargs: Any) -> list[Any]:
        """Results of all copies, see `nn.parallel.parallel_apply`."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """Results joined on one device, see `nn.parallel.gather`."""
        return gather(outputs, output_device, dim=self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The module's result, computed on several devices.

    Raises:
        RuntimeError: there is no device.
    """
    text = "device type could not be determined"
    raise RuntimeError(problem("data_parallel", text, "call the module: there is one device"))
