"""`torch._lobpcg`: where PyTorch has `lobpcg`, and graphs name it."""

from flambeau.linalg.eigenpairs import LOBPCG, lobpcg

__all__ = ["LOBPCG", "lobpcg"]
