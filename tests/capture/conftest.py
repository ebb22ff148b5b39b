"""Fixtures of the capture tests: a clean stream cache, and a comparison that wants equal bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core


@pytest.fixture(autouse=True)
def clean_streams() -> Iterator[None]:
    """Every test starts without compiled streams, and must end outside of a region."""
    torch.compiler.reset()
    yield
    assert not _core.is_recording()


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item)]
    return []


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors are equal in dtype, geometry and every bit (NaNs by position)."""
    if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if a.dtype.is_complex:
        return same_bits(torch.view_as_real(a), torch.view_as_real(b))
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    bits = integers[a.element_size()]
    nan = a.isnan()
    return torch.equal(nan, b.isnan()) and torch.equal(
        a.detach().contiguous().view(bits).masked_fill(nan, 0),
        b.detach().contiguous().view(bits).masked_fill(nan, 0),
    )


def copies(values: Any) -> list[Any]:
    """Independent copies of tensor arguments, leaves again where they were."""
    return [
        v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
        for v in values
    ]


@pytest.fixture
def check() -> Callable[..., Any]:
    """check(function, *args): compiled == eager bit for bit, also arguments and gradients."""

    def run(function: Callable[..., Any], *args: Any, times: int = 2, seed: int = 0) -> Any:
        compiled = torch.compile(function)
        for _ in range(times):
            first, second = copies(args), copies(args)
            torch.manual_seed(seed)
            expected = function(*first)
            after = torch.rand(2)
            torch.manual_seed(seed)
            found = compiled(*second)
            assert same_bits(after, torch.rand(2)), "the generator is somewhere else"
            compare(expected, found)
            backward(expected)
            backward(found)
            for a, b in zip(first, second, strict=True):
                if isinstance(a, torch.Tensor):
                    assert same_bits(a, b)
                    assert (a.grad is None) == (b.grad is None)
                    assert a.grad is None or same_bits(a.grad, b.grad)
        return found

    return run


def compare(expected: Any, found: Any) -> None:
    """Equal structure and bits."""
    left, right = _tensors(expected), _tensors(found)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.requires_grad == b.requires_grad
        assert same_bits(a, b), f"{a}\n{b}"
    if not left:
        assert expected == found


def backward(results: Any) -> None:
    """Backward of the sum of everything that has a gradient."""
    roots = [t for t in _tensors(results) if t.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(t) * 0.5 for t in roots])
