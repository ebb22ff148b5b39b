"""`torch.backends.cuda`: switches of NVIDIA's libraries, and which attention may run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.backends.attention import switch, switched
from flambeau.backends.attention import switches as _attention
from flambeau.backends.switches import Switches

__all__ = [
    "allow_fp16_bf16_reduction_math_sdp", "cudnn_sdp_enabled", "enable_cudnn_sdp",
    "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed", "is_built", "is_ck_sdpa_available",
    "is_flash_attention_available", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
    "preferred_blas_library", "preferred_linalg_library", "sdp_kernel",
]  # fmt: skip

matmul = Switches(
    "backends.cuda.matmul",
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False,
    fp32_precision="none",
)


def is_built() -> bool:
    """False: this build has no CUDA."""
    return False


def is_flash_attention_available() -> bool:
    """False: no GPU."""
    return False


def is_ck_sdpa_available() -> bool:
    """False: no GPU."""
    return False


def flash_sdp_enabled() -> bool:
    """What `enable_flash_sdp` was given last."""
    return bool(_attention.flash)


def math_sdp_enabled() -> bool:
    """What `enable_math_sdp` was given last."""
    return bool(_attention.math)


def mem_efficient_sdp_enabled() -> bool:
    """What `enable_mem_efficient_sdp` was given last."""
    return bool(_attention.mem_efficient)


def cudnn_sdp_enabled() -> bool:
    """What `enable_cudnn_sdp` was given last."""
    return bool(_attention.cudnn)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` was given last."""
    return bool(_attention.half)


def enable_flash_sdp(enabled: bool) -> None:
    """Allows attention without a stored score matrix.

    Raises:
        RuntimeError: not a bool.
    """
    switch(flash=enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Allows attention by its formula.

    Raises:
        RuntimeError: not a bool.
    """
    switch(math=enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allows attention of little memory.

    Raises:
        RuntimeError: not a bool.
    """
    switch(mem_efficient=enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allows cuDNN's attention, which this build does not have.

    Raises:
        RuntimeError: not a bool.
    """
    switch(cudnn=enabled)


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allows sums in half precision inside attention; they are in float32 here either way.

    Raises:
        RuntimeError: not a bool.
    """
    switch(half=enabled)


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[dict[Any, Any]]:
    """Allows kinds of attention for the time of a `with` block (`nn.attention.sdpa_kernel`).

    Raises:
        RuntimeError: not bools.
    """
    allowed = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient}
    with switched(**allowed, cudnn=enable_cudnn, overrideable=False):
        yield {}


def preferred_linalg_library(backend: str | None = None) -> str:
    """The library of linear algebra on GPUs: "default", whatever is preferred.

    Raises:
        RuntimeError: an unknown library.
    """
    return _preferred("preferred_linalg_library", backend, ("default", "cusolver", "magma"))


def preferred_blas_library(backend: str | None = None) -> str:
    """The library of matrix products on GPUs: "default", whatever is preferred.

    Raises:
        RuntimeError: an unknown library.
    """
    return _preferred("preferred_blas_library", backend, ("default", "cublas", "cublaslt", "ck"))


def _preferred(name: str, backend: str | None, known: tuple[str, ...]) -> str:
    if backend is not None and backend not in known:
        raise RuntimeError(
            f"[backends.cuda.{name}] unknown input value {backend!r}\n"
            f"hint: one of {', '.join(known)}"
        )
    return "default"
