"""`torch.__config__`: how this build was made."""

from __future__ import annotations

import os

from flambeau import _core
from flambeau.ir.lock import late

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Compiler, vector instructions and libraries of this build, as text."""
    cpu, version = late("flambeau.backends.cpu"), late("flambeau.version")
    lines = [
        "PyTorch built with:",
        f"  - Flambeau {version.__version__}, kernels compiled on this machine",
        f"  - CPU capability usage: {cpu.get_cpu_capability()}",
        "  - LAPACK is enabled (routines of the core)",
        "  - Build settings: BUILD_TYPE=Release, USE_CUDA=0, USE_MKL=OFF, USE_MKLDNN=OFF, "
        "USE_OPENMP=OFF, USE_ROCM=OFF, ",
    ]
    return "\n".join(lines) + "\n"


def _cxx_flags() -> str:
    """Flags of the C++ compiler: those of kernels."""
    return "-O3 -fPIC"


def parallel_info() -> str:
    """Threads that operators use, as text."""
    return (
        f"ATen/Parallel:\n\tat::get_num_threads() : {_core.get_num_threads()}\n"
        f"std::thread::hardware_concurrency() : {os.cpu_count()}\n"
        f"Environment variables:\n\tOMP_NUM_THREADS : "
        f"{os.environ.get('OMP_NUM_THREADS', '[not set]')}\n"
        "ATen parallel backend: threads of the core\n"
    )
