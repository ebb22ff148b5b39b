"""`torch.autograd.profiler_legacy`: the profiler under its former module name."""

from flambeau.autograd.profiler import profile

__all__ = ["profile"]
