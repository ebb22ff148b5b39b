"""Neural networks: modules, parameters, functions, initialisation."""

from typing import Any

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


def factory_kwargs(kwargs: Any) -> dict[str, Any]:
    """The keyword arguments of a tensor's creation: device, dtype, memory_format.

    Args:
        kwargs: these names, and a dict of them under "factory_kwargs"; or None.

    Raises:
        TypeError: another name, or one in both places.

    Example:
        >>> factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": None}})
        {'dtype': None, 'device': 'cpu'}
    """
    if kwargs is None:
        return {}
    names = {"device", "dtype", "memory_format"}
    unknown = kwargs.keys() - {*names, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}\nhint: pass {sorted(names)}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for name in sorted(names & kwargs.keys()):
        if name in result:
            raise TypeError(
                f"{name} specified twice, in **kwargs and in factory_kwargs\nhint: once"
            )
        result[name] = kwargs[name]
    return result


# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__, submodules=("common_types", "quantized"))
