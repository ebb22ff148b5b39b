"""`torch._custom_ops`: names that `torch.library` had before; packages still import the module."""

from flambeau.library import get_ctx, impl_abstract

__all__ = ["get_ctx", "impl_abstract"]
