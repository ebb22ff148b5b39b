"""`torch.utils._cxx_pytree`: the functions of `_pytree` under the name of PyTorch's native ones."""

from flambeau.utils._pytree import *  # noqa: F403
from flambeau.utils._pytree import (  # noqa: F401
    GetAttrKey,
    MappingKey,
    SequenceKey,
    _broadcast_to_and_flatten,
    _is_leaf,
    register_dataclass,
    treespec_dict,
    treespec_leaf,
    treespec_tuple,
)
