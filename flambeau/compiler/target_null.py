"""The device "null": programs go through the whole compiler, and nothing is compiled or executed.

Tensors of it have a shape, a dtype and strides, but no memory. Where the meta device stops after
tracing, this one schedules every program and prints its kernels as well: it shows what the
compiler does with a program that the machine is too small for, and times the compiler alone.

    >>> x = torch.ones(1 << 20, 1 << 20, device="null")
    >>> (x @ x).softmax(-1).shape
    torch.Size([1048576, 1048576])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.compiler import codegen, targets
from flambeau.ir.kernel import Kernel

# Called with each kernel and its text, for instance to print or count them.
observers: list[Callable[[Kernel, str], None]] = []


def build(kernels: Sequence[Kernel]) -> list[codegen.KernelHandle]:
    """Prints every kernel; the handles stand for functions that the core never calls."""
    target = targets.current()
    for kernel in kernels:
        text = codegen.print_kernel(kernel, target)
        for observe in observers:
            observe(kernel, text)
    return [codegen.nothing()] * len(kernels)
