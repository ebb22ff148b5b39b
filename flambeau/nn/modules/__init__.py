"""The layers, a module per family; `Module` itself is in `module`."""

from importlib import import_module as _import_module

from flambeau.ir.modules import module_names as _module_names
from flambeau.nn.modules import linear_cross_entropy, loss, module

Module = module.Module

__all__ = ["Module"]
_INNER = ("_functions", "hooks", "lazy")  # what they list is not part of `torch.nn`
# Every module of this folder is imported, and the classes that it lists in `__all__` are published:
# a new layer is a new file and nothing else.
for _file in _module_names(__path__):
    _family = _import_module(f"{__name__}.{_file}")
    for _name in () if _file in _INNER else getattr(_family, "__all__", ()):
        _value = getattr(_family, _name)
        if isinstance(_value, type) and _name not in __all__:
            globals()[_name] = _value
            __all__ += [_name]
# PyTorch defines the class in `loss`.
loss.LinearCrossEntropyLoss = linear_cross_entropy.LinearCrossEntropyLoss
