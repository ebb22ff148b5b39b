"""Impossible arguments of the whole library: sizes, dimensions, dtypes, integers beyond 64 bits,
strings, None, outputs, indices. PyTorch's exception type, or its success."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

# One call a line. t: the package, F: its nn.functional, o: ones, i: int64 zeros, x: an image,
# w: weights of a convolution, q: queries, b: a table, sdpa: attention.
CALLS = Path(__file__).with_name("impossible_calls.txt").read_text().splitlines()


def names(package):
    """What the calls are written in."""
    functional = package.nn.functional

    def query(*shape):
        return package.ones(*(shape or (1, 2, 4, 8)))

    return {
        "t": package,
        "F": functional,
        "sdpa": functional.scaled_dot_product_attention,
        "o": package.ones,
        "i": lambda *shape: package.zeros(*shape, dtype=package.int64),
        "x": lambda: package.ones(1, 2, 5, 5),
        "w": lambda: package.ones(2, 2, 3, 3),
        "b": lambda: package.ones(4, 3),
        "q": query,
    }


def outcome(call, package):
    """The name of the exception's type, or none."""
    try:
        eval(call, names(package))
    except Exception as error:
        return type(error).__name__.removeprefix("_"), str(error)  # _LinAlgError
    return "no error", ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_exception_type(call):
    theirs, ours = outcome(call, torch), outcome(call, flambeau)
    assert ours[0] == theirs[0], (ours, theirs)
    if ours[1].startswith("["):
        assert "\nhint: " in ours[1]


@pytest.mark.parametrize(
    "call",
    [
        "t.empty(2**62, 4)",
        "t.zeros(2**62, 4)",
        "t.arange(2**62)",
        "t.ones(1).expand(2**62, 4)",
        "t.ones(1).expand(2**61) + 1",
        "t.ones(4).repeat(2**40, 2**40)",
        "F.pad(t.ones(2, 2), (2**61, 0, 2**61, 0))",
        "F.conv_transpose2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 3, 3), stride=2**60)",
        "F.adaptive_avg_pool2d(t.ones(1, 1, 4, 4), (2**32, 2**32))",
        "F.interpolate(t.ones(1, 1, 4, 4), size=(2**32, 2**32))",
        "F.unfold(t.ones(1, 1, 4, 4), 2, padding=2**61)",
        "F.one_hot(t.tensor([1, 2]), 2**62)",
        "t.ones(1, 1).expand(2**40, 1) @ t.ones(1, 1).expand(1, 2**40)",
    ],
)
def test_sizes_that_overflow_are_refused(call):
    """Before any allocation, by an exception that PyTorch's callers catch."""
    for package in (torch, flambeau):
        with pytest.raises(RuntimeError):
            eval(call, names(package))
