"""Neural networks: modules, parameters, functions, initialisation."""

from flambeau.nn import functional, grad, init, parameter

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
