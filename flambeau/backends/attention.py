"""Switches for the implementations of attention; this is their only home.

There is one implementation, compiled for each shape. The switches decide which calls are refused,
as PyTorch refuses them on the CPU, and change no result. `torch.backends.cuda` and
`torch.nn.attention` read and set them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.backends.switches import Switches
from flambeau.core.devices import has_data
from flambeau.ir.lock import late

Tensor = Any

KINDS = ("math", "flash", "mem_efficient", "cudnn", "overrideable")  # by PyTorch's numbers
switches = Switches(
    "backends.cuda",
    **dict.fromkeys(KINDS, True),
    half=False,  # sums in half precision
    priority=(1, 2, 0, 3, 4),  # numbers of kinds, the first choice first
)


def switch(**values: Any) -> None:
    """Sets switches.

    Raises:
        RuntimeError: not a bool.
    """
    for name, value in values.items():
        setattr(switches, name, value)
    operator = late("flambeau.nn.functional").scaled_dot_product_attention
    operator.gate = None if switches.math else check


@contextlib.contextmanager
def switched(**values: Any) -> Iterator[None]:
    """Sets switches for the time of a `with` block.

    Raises:
        RuntimeError: not a bool.
    """
    before = {name: getattr(switches, name) for name in values}
    try:
        switch(**values)
        yield
    finally:
        switch(**before)


def check(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
    generator: Any = None,
) -> None:
    """Refuses a call that nothing may compute while the formula (`math`) is switched off.

    Raises:
        RuntimeError: no kind that PyTorch has on the CPU may run, or "flash" cannot take the call.
    """
    del is_causal, scale, generator
    operands = (query, key, value)
    if any(not has_data(x) or x.numel() == 0 for x in operands):
        return
    name = "scaled_dot_product_attention"
    if not switches.flash:
        raise RuntimeError(
            f"[{name}] No viable backend for {name} was found: the math kernel and the fused "
            "kernels are turned off\nhint: SDPBackend.MATH or SDPBackend.FLASH_ATTENTION is there "
            "on the CPU"
        )
    if dropout_p or _too_special(operands, attn_mask, enable_gqa):
        raise RuntimeError(
            f"[{name}] No available kernel: FLASH_ATTENTION takes four dimensions, one batch size, "
            "one head size, dense rows, no dropout and no mask that requires a gradient\n"
            "hint: add SDPBackend.MATH"
        )


def kind_of(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout_p: float, enable_gqa: bool
) -> int:
    """The number in `KINDS` of what PyTorch computes a call with on the CPU.

    Raises:
        RuntimeError: nothing may compute it.
    """
    operands = (query, key, value)
    plain = not any(x.is_nested or 0 in x.shape for x in operands)
    special = dropout_p or not plain or _too_special(operands, mask, enable_gqa)
    if switches.flash and not special and _fits(mask, query, key):
        return KINDS.index("flash")
    if not switches.math:
        check(query, key, value, mask, dropout_p, enable_gqa=enable_gqa)
    return KINDS.index("math")


def _fits(mask: Tensor, query: Tensor, key: Tensor) -> bool:
    """Whether a mask has two or four dimensions, each 1 or that of the scores."""
    if mask is None:
        return True
    scores = (query.shape[0], query.shape[1], query.shape[-2], key.shape[-2])[-mask.ndim :]
    return mask.ndim in (2, 4) and all(
        size in (1, expected) for size, expected in zip(mask.shape, scores, strict=True)
    )


def _too_special(operands: tuple[Tensor, Tensor, Tensor], mask: Tensor, grouped: bool) -> bool:
    """Whether PyTorch's "flash" does not take operands and mask."""
    if any(x.ndim != 4 or x.stride(-1) != 1 for x in operands):
        return True
    query, key, value = (x.shape for x in operands)
    alike = (query[0], query[-1]) == (key[0], key[-1]) == (value[0], value[-1])
    heads = key[1] == value[1] and (grouped or query[1] == key[1])
    return not (alike and heads) or (mask is not None and mask.requires_grad)
