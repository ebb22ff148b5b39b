"""Optimizers: parameter groups in PyTorch's form; one plan steps every parameter of a kind."""

from importlib import import_module as _import_module

from flambeau.ir.modules import module_names as _module_names
from flambeau.optim import lr_scheduler, swa_utils
from flambeau.optim._adafactor import Adafactor
from flambeau.optim._muon import Muon
from flambeau.optim._swapping import swap_in_optimizer_params_and_state
from flambeau.optim.optimizer import Optimizer
from flambeau.runtime import missing as _missing

__all__ = [
    "Adafactor", "Muon", "Optimizer", "lr_scheduler", "swa_utils",
    "swap_in_optimizer_params_and_state",
]  # fmt: skip
# Every module of this folder is imported, and the optimizers that it lists in `__all__` are
# published: a new optimizer is a new file and nothing else.
for _file in _module_names(__path__):
    _module = None if _file.startswith("_") else _import_module(f"{__name__}.{_file}")
    for _name in getattr(_module, "__all__", ()):
        _value = getattr(_module, _name)
        if isinstance(_value, type) and issubclass(_value, Optimizer) and _name not in __all__:
            globals()[_name] = _value
            __all__ += [_name]

# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__)
