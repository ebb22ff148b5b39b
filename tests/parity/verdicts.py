"""Why a sample differs from PyTorch's result: whether ours is the better or an equal answer.

PyTorch's own tests judge a second implementation by the same call in twice the precision: it may
differ from the first as long as it is no farther from that. And which of several equal elements an
index names is left open by the documentation of the functions in `CHOICES`. Such samples still
count as failed; the page says of how many of them this holds.
"""

from __future__ import annotations

from typing import Any

import torch

import flambeau
from tests.parity.comparison import flattened
from tests.parity.translation import oracle_tensor

WIDER = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}  # fmt: skip
# Functions that name one of several equal elements: where in their arguments `dim` stands.
CHOICES = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "mode": 0}


def excuse(entry: Any, sample: Any, ours: Any, theirs: Any) -> str | None:
    """Either "nearer" or "equal elements"; None where the difference stands against us."""
    mine = [oracle_tensor(a) for a in flattened(ours) if isinstance(a, flambeau.Tensor)]
    wanted = [b.detach() for b in flattened(theirs) if isinstance(b, torch.Tensor)]
    if len(mine) != len(wanted) or any(a.shape != b.shape for a, b in zip(mine, wanted)):
        return None
    if entry.name in CHOICES and _choose_the_same(entry.name, sample, mine, wanted):
        return "equal elements"
    return "nearer" if _is_nearer(entry, sample, mine, wanted) else None


def _choose_the_same(name: str, sample: Any, mine: list[Any], wanted: list[Any]) -> bool:
    """Whether both indices choose equal elements, and the values agree."""
    place = CHOICES[name]
    given = sample.args[place] if len(sample.args) > place else -1
    dim = sample.kwargs.get("dim", given)
    if any(not torch.equal(a, b) for a, b in zip(mine[:-1], wanted[:-1])):
        return False
    x, pair = sample.input.detach(), (mine[-1], wanted[-1])
    if x.ndim and pair[0].ndim < x.ndim:
        pair = (pair[0].unsqueeze(dim), pair[1].unsqueeze(dim))
    a, b = (torch.take_along_dim(x, index, dim) if x.ndim else x for index in pair)
    named_once = not x.ndim or bool((pair[0].sort(dim).values.diff(dim=dim) > 0).all())
    return torch.equal(a, b) and named_once and bool((pair[0] >= 0).all())


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(WIDER.get(value.dtype, value.dtype))
    if isinstance(value, (list, tuple)):
        return type(value)(_wide(item) for item in value)
    if isinstance(value, dict):
        return {key: _wide(item) for key, item in value.items()}
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def _error(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The distance from the exact result rounded to the dtype; an equal infinity or NaN is 0."""
    if not (found.is_floating_point() or found.is_complex()):
        return (found != exact).double()
    wide = found.to(exact.dtype)
    distance = (wide - exact).abs()
    same = (found == exact.to(found.dtype)) | (wide.isnan() & exact.isnan())
    return torch.where(same, 0.0, distance.nan_to_num(nan=torch.inf))


def _is_nearer(entry: Any, sample: Any, mine: list[Any], wanted: list[Any]) -> bool:
    """Whether no result's greatest error is above PyTorch's, against the call in float64."""
    given = (sample.input, *sample.args)
    if all(t.dtype not in WIDER for t in flattened(given) if isinstance(t, torch.Tensor)):
        return False
    try:
        exact = entry.op(*_wide(given), **_wide(sample.kwargs))
    except Exception:
        return False
    exact = [e.detach() for e in flattened(exact) if isinstance(e, torch.Tensor)]
    if len(exact) != len(mine) or any(e.shape != a.shape for e, a in zip(exact, mine)):
        return False
    return all(
        not a.numel() or bool(_error(a, e).max() <= _error(b, e).max())
        for a, b, e in zip(mine, wanted, exact)
    )
