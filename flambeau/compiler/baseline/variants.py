"""The template kernels that come with the package: one for each choice of dtypes.

Templates declare them (`Template.variants`): all sizes, strides and the number of batch dimensions
are arguments of a call, and results are stored as they are. What follows from results is a kernel
of its own where the compiler is not run (`baseline/split.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from flambeau.compiler.targets import Target
from flambeau.compiler.templates import TEMPLATES
from flambeau.ir.kernel import Kernel


def variants(target: Target) -> Iterator[Kernel]:
    """The prebuilt kernels of a target, always in the same order."""
    for template in TEMPLATES.values():
        yield from template.variants(target)


@functools.cache
def _texts(target: Target) -> frozenset[str]:
    return frozenset(kernel.text() for kernel in variants(target))


def is_variant(kernel: Kernel, target: Target) -> bool:
    """Whether a kernel is prebuilt for a target."""
    return kernel.form == "template" and kernel.text() in _texts(target)


__all__ = ["is_variant", "variants"]
