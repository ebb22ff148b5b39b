"""`torch.backends.cpu`: which instructions kernels use."""

from flambeau.ir.lock import late

__all__ = ["get_cpu_capability"]

_NAMES = {"avx512": "AVX512", "avx2": "AVX2", "generic": "DEFAULT"}


def get_cpu_capability() -> str:
    """The instruction set that kernels are compiled for, by PyTorch's name: "AVX512", "AVX2" ...

    Example:
        >>> torch.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
        True
    """
    targets = late("flambeau.compiler.targets")
    return _NAMES.get(targets.current().name, "DEFAULT")
