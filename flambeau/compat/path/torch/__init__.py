"""The package `torch` of an environment without PyTorch: importing it gives Flambeau."""

__flambeau__ = True

from flambeau import compat  # noqa: E402

compat.install()
