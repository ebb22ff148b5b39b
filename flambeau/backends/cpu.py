"""`torch.backends.cpu`: which instructions kernels use."""

__all__ = ["get_cpu_capability"]

_NAMES = {"avx512": "AVX512", "avx2": "AVX2", "generic": "DEFAULT"}


def get_cpu_capability() -> str:
    """The instruction set that kernels are compiled for, by PyTorch's name: "AVX512", "AVX2" ...

    Example:
        >>> torch.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
        True
    """
    from flambeau.compiler import targets

    return _NAMES.get(targets.current().name, "DEFAULT")
