"""`torch.nested`: batches whose samples have sizes of their own.

>>> x = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(3, 2)], layout=torch.jagged)
>>> x.sum(1)
tensor([[1., 1.],
        [3., 3.]])
"""

from flambeau.core.tensors import define_method as _define_method
from flambeau.nested.construct import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]

_define_method("to_padded_tensor", to_padded_tensor)
