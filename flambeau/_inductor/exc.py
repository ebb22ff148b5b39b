"""`torch._inductor.exc`: errors of code generation under PyTorch's names."""

from __future__ import annotations

from flambeau.compiler.toolchain import CompileError

__all__ = ["CppCompileError", "InductorError", "InvalidCxxCompiler"]


class InductorError(RuntimeError):
    """An error of PyTorch's code generation; never raised here."""


class InvalidCxxCompiler(RuntimeError):
    """There is no compiler of C++."""


CppCompileError = CompileError
