"""`torch.package.analyze`: which modules functions and packages depend on."""

from flambeau.package.analyze import is_from_package
from flambeau.package.analyze.find_first_use_of_broken_modules import (
    find_first_use_of_broken_modules,
)
from flambeau.package.analyze.trace_dependencies import trace_dependencies

__all__ = ["find_first_use_of_broken_modules", "is_from_package", "trace_dependencies"]
