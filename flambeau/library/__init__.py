"""`torch.library`: operators that users define, with kernels, sizes, derivatives and batches."""

from flambeau.library.checks import opcheck
from flambeau.library.definitions import CustomOpDef, custom_op
from flambeau.library.fake import get_ctx
from flambeau.library.registration import (
    Library,
    define,
    fallthrough_kernel,
    get_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
    triton_op,
    wrap_triton,
)
from flambeau.library.schemas import infer_schema

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]
