"""The package `functorch` of PyTorch: the former home of `torch.func`.

Under the alias `import functorch` gives this module.
"""

from flambeau._functorch.make_functional import (
    FunctionalModule,
    FunctionalModuleWithBuffers,
    combine_state_for_ensemble,
    make_functional,
    make_functional_with_buffers,
)
from flambeau.func import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from flambeau.runtime import missing as _missing
from flambeau.torch_version import __version__ as __version__

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble",
    "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "make_functional", "make_functional_with_buffers", "vjp", "vmap",
]  # fmt: skip

globals()["__getattr__"] = _missing.getter(__name__)
