"""The package `torch` of an environment without PyTorch: importing it gives Flambeau."""

__flambeau__ = True

from flambeau.compat import install  # noqa: E402

install()
