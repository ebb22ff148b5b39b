"""`torch.jit._script`: names of scripting under PyTorch's private module."""

from flambeau.jit import interface, script
from flambeau.jit.functions import ScriptWarning
from flambeau.jit.markers import Attribute
from flambeau.jit.modules import RecursiveScriptModule, ScriptModule, script_method

__all__ = [
    "Attribute",
    "RecursiveScriptModule",
    "ScriptModule",
    "ScriptWarning",
    "interface",
    "script",
    "script_method",
]
