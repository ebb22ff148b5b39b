"""`torch.nn.modules.linear_cross_entropy_options`: PyTorch's home of the options."""

from flambeau.nn.functional_linear_cross_entropy import LinearCrossEntropyOptions

__all__ = ["LinearCrossEntropyOptions"]
