"""`weight_norm` and `spectral_norm` in their older, hook-based form.

Salimans and Kingma 2016; Miyato et al. 2018. The newer form is in `parametrizations`.
"""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils.parametrizations import norm_except_dim, normed_weight

__all__ = ["WeightNorm", "remove_spectral_norm", "remove_weight_norm", "spectral_norm",
           "weight_norm"]  # fmt: skip


class WeightNorm:
    """A pre-hook that makes `name` = g v / |v| before each call.

    Args:
        name: which parameter.
        dim: the dimension that keeps a norm each; -1 for one norm.
    """

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Any:
        """g v / |v|."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return normed_weight(v, g, self.dim)

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        """Splits a parameter into norm `_g` and direction `_v`."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                text = f"Cannot register two weight_norm hooks on the same parameter {name}"
                raise RuntimeError(problem("weight_norm", text, "remove_weight_norm first"))
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        del module._parameters[name]
        norms = norm_except_dim(weight.detach(), hook.dim)
        module.register_parameter(name + "_g", Parameter(norms))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Any) -> None:
        """Makes the product an ordinary parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        """Computes the weight; runs before forward."""
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Learns norm and direction of a parameter apart from each other."""
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Undoes `weight_norm`.

    Raises:
        ValueError: there is none.
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    text = f"weight_norm of '{name}' not found in {module}"
    raise ValueError(problem("remove_weight_norm", text, "see weight_norm"))


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """The older form of spectral norm; not supported."""
    text = "the hook-based spectral_norm is not supported"
    hint = "torch.nn.utils.parametrizations.spectral_norm"
    raise NotImplementedError(problem("spectral_norm", text, hint))


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undoes `spectral_norm`, of which there is none."""
    text = f"spectral_norm of '{name}' not found in {module}"
    raise ValueError(problem("remove_spectral_norm", text, "parametrize.remove_parametrizations"))
