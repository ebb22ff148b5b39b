"""`torch.func`: functions made from functions, `vmap`, `grad`, `jvp` and their kin, freely nested.

Loaded on first access, so that it does not slow `import flambeau`.
"""

from flambeau.autograd.transforms.modules import (
    functionalize,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from flambeau.autograd.transforms.reverse import grad, grad_and_value, vjp
from flambeau.autograd.transforms.tangents import hessian, jacfwd, jacrev, jvp, linearize
from flambeau.autograd.transforms.vmap import vmap
from flambeau.autograd.transforms.wrappers import debug_unwrap
from flambeau.func.calls import functional_call
from flambeau.func.rearranging import rearrange

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
