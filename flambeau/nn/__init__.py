"""Neural networks: modules, parameters, functions, initialisation."""

from flambeau.nn import functional, grad, init, parameter
from flambeau.runtime import missing as _missing

from flambeau.nn import modules, utils, attention, parallel  # isort: skip - they use those
from flambeau.nn.modules import *  # noqa: F403
from flambeau.nn.parallel import DataParallel
from flambeau.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

Container = modules.Module

# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
