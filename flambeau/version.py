"""The version, and which accelerators this build can use: `torch.version`."""

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = "0.4.0"  # of Flambeau; `torch.__version__` says which API it follows
debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "Unknown"
# Which libraries there are: LAPACK and Fourier transforms, but neither Intel's nor OpenMP.
has_lapack = True
has_mkl = False
has_openmp = False
has_spectral = True
