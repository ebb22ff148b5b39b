"""`torch.backends.cuda`: switches of NVIDIA's libraries, and which attention may run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.backends.attention import switch, switched
from flambeau.backends.attention import switches as _attention
from flambeau.backends.switches import ContextProp, Switches
from flambeau.runtime.absent import Absent

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
    """Returns the last value passed to `enable_flash_sdp`."""
    return bool(_attention.flash)


def math_sdp_enabled() -> bool:
    """Returns the last value passed to `enable_math_sdp`."""
    return bool(_attention.math)


def mem_efficient_sdp_enabled() -> bool:
    """Returns the last value passed to `enable_mem_efficient_sdp`."""
    return bool(_attention.mem_efficient)


def cudnn_sdp_enabled() -> bool:
    """Returns the last value passed to `enable_cudnn_sdp`."""
    return bool(_attention.cudnn)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Returns the last value passed to `allow_fp16_bf16_reduction_math_sdp`."""
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


def _preferred(name: str, backend: str | None, backends: tuple[str, ...]) -> str:
    if backend is not None and backend not in backends:
        raise RuntimeError(
            f"[backends.cuda.{name}] unknown input value {backend!r}\n"
            f"hint: one of {', '.join(backends)}"
        )
    return "default"


def preferred_rocm_fa_library(backend: str | None = None) -> str:
    """The library of attention on AMD's GPUs: "default", whatever is preferred.

    Raises:
        RuntimeError: an unknown library.
    """
    return _preferred("preferred_rocm_fa_library", backend, ("default", "aotriton", "ck"))


class SDPAParams:
    """A call of scaled dot-product attention: what `can_use_flash_attention` judges.

    Args:
        query, key, value: the tensors.
        attn_mask: a mask, or None.
        dropout: the probability of dropout.
        is_causal: whether later keys are hidden.
        enable_gqa: whether groups of queries share keys.
    """

    def __init__(
        self, query: Any, key: Any, value: Any, attn_mask: Any, dropout: float, is_causal: bool,
        enable_gqa: bool,
    ) -> None:  # fmt: skip
        self.query, self.key, self.value = query, key, value
        self.attn_mask, self.dropout = attn_mask, dropout
        self.is_causal, self.enable_gqa = is_causal, enable_gqa


def _no_kernel(params: SDPAParams, debug: bool = False) -> bool:
    """False: the kernel is one of CUDA, and the tensors are on the CPU."""
    return False


can_use_flash_attention = can_use_efficient_attention = can_use_cudnn_attention = _no_kernel
_absent = Absent("cuda", AssertionError, "Torch not compiled with CUDA enabled")
globals().update(
    _absent.refusals("blas_workspace_size cublas_workspace_size cublaslt_workspace_size")
)


class cuBLASModule:  # noqa: N801 - PyTorch's name
    """Switches of products on GPUs; `torch.backends.cuda.matmul` is the object."""

    def __new__(cls) -> Any:
        """The object that holds the switches."""
        return matmul


class cuFFTPlanCache:  # noqa: N801 - PyTorch's name
    """The plans of Fourier transforms of a GPU; its attributes raise without one.

    Args:
        device_index: of the GPU.
    """

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    @property
    def size(self) -> int:
        """How many plans there are.

        Raises:
            AssertionError: always.
        """
        _absent.refuse("cufft_plan_cache.size")

    @property
    def max_size(self) -> int:
        """How many plans there may be.

        Raises:
            AssertionError: always.
        """
        _absent.refuse("cufft_plan_cache.max_size")

    def clear(self) -> None:
        """Forgets plans.

        Raises:
            AssertionError: always.
        """
        _absent.refuse("cufft_plan_cache.clear")


class cuFFTPlanCacheManager(cuFFTPlanCache):  # noqa: N801 - PyTorch's name
    """The plans of all GPUs."""

    def __init__(self) -> None:
        super().__init__(-1)

    def __getitem__(self, device: Any) -> cuFFTPlanCache:
        raise RuntimeError(
            "cufft_plan_cache: expected 0 <= device index < 0, but got device with index "
            f"{device}\nhint: check torch.cuda.is_available() first"
        )


cuFFTPlanCacheAttrContextProp = ContextProp
cufft_plan_cache = cuFFTPlanCacheManager()
