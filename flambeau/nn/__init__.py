"""Neural networks: modules, parameters, functions, initialisation."""

from flambeau.nn import functional, init, parameter

from flambeau.nn import modules, utils, attention  # isort: skip - they use the ones above
from flambeau.nn.modules import *  # noqa: F403
from flambeau.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

Container = modules.Module
