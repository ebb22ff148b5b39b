"""`torch.accelerator.graphs`: recorded work of the accelerator, of which there is none."""

import flambeau.accelerator as _accelerator

__all__ = ["Graph"]
Graph = _accelerator._types["Graph"]
