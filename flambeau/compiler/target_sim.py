"""The device "sim" (`native/device/sim.cpp`): the CPU's kernels, which its streams run.

>>> x = torch.arange(4.0, device="sim")
>>> (x + 1).sum()
tensor(10., device='sim:0')
"""

from flambeau.compiler.codegen import begin, build

__all__ = ["begin", "build"]
