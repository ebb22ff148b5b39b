"""`torch._functorch`: the settings of PyTorch's transformations, under their private name."""

from flambeau.runtime import missing as _missing

__getattr__ = _missing.getter(
    __name__, {}, ("aot_autograd", "compilers", "config", "make_functional", "partitioners", "vmap")
)
