"""`torch._functorch.config`: PyTorch's settings of its transformations, with its defaults.

Partitions of forward and backward are chosen here by what costs least, within
`activation_memory_budget`; no other setting changes them.
"""

from flambeau.ir.lock import late as _late
from flambeau.runtime import config_modules as _config_modules

_BUDGET = tuple(f"activation_memory_budget{part}" for part in ("", "_runtime_estimator", "_solver"))


def remote_autograd_cache_default() -> bool | None:
    """Whether compiled programs are stored elsewhere: no."""
    return False


def _check_budget() -> None:
    """Raises for a budget that the compiler does not take: RuntimeError, NotImplementedError."""
    values = [_config_modules.value("torch._functorch.config", name) for name in _BUDGET]
    _late("flambeau.derivation.memory_budget").Budget(*values).checked()


_config_modules.install(__name__)
for _name in _BUDGET:
    _config_modules.observe("torch._functorch.config", _name, _check_budget)
