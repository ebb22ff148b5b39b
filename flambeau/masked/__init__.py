"""`torch.masked`: masked tensors, and reductions that leave out what a mask is False for.

>>> x = torch.masked.as_masked_tensor(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
>>> x
MaskedTensor(
  [  1.0000,       --]
)
"""

from flambeau.core.install import namespace as _namespace
from flambeau.masked.construct import as_masked_tensor, is_masked_tensor, masked_tensor
from flambeau.masked.masks import _input_mask, _output_mask  # noqa: F401 - PyTorch's own names
from flambeau.masked.tensor import MaskedTensor

globals().update(_namespace("masked"))
__all__ = sorted(
    ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor", *_namespace("masked")]
)
