"""`torch.cuda.nvtx`: marks for NVIDIA's profiler, which needs a GPU."""

from flambeau.runtime.absent import Absent

_absent = Absent("cuda.nvtx", RuntimeError, "NVTX functions not installed: this build has no CUDA")
_functions = _absent.refusals("mark range range_end range_pop range_push range_start")
globals().update(_functions)

__all__ = list(_functions)
