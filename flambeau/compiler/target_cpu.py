"""The CPU: kernels are printed as C, compiled by the C compiler that is there, and loaded."""

from flambeau.compiler.codegen import begin, build

__all__ = ["begin", "build"]
