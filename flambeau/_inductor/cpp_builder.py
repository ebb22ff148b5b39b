"""`torch._inductor.cpp_builder`: the compiler of generated kernels, under PyTorch's name."""

from __future__ import annotations

from flambeau.ir.lock import late

__all__ = ["get_cpp_compiler"]


def get_cpp_compiler() -> str:
    """The path of the compiler that compiles kernels.

    Raises:
        RuntimeError: there is none.
    """
    path: str = late("flambeau.compiler.toolchain").find().command[0]
    return path
