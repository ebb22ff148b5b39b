"""The text of tensors; the expected texts are PyTorch 2.13's for the same tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flambeau import _core
from flambeau.core import printing
from flambeau.core import tensor as tensor_module

tensor_module.install()
make = _core.tensor_from_python
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    printing.set_printoptions(profile="default")


@pytest.mark.parametrize(
    ("data", "dtype", "text"),
    [
        (1, None, "tensor(1)"),
        (2.5, None, "tensor(2.5000)"),
        (True, None, "tensor(True)"),
        ([1.0, 2.0], None, "tensor([1., 2.])"),
        ([1.5, -2.25], None, "tensor([ 1.5000, -2.2500])"),
        ([1e-5, 1.0], None, "tensor([1.0000e-05, 1.0000e+00])"),
        ([1.0, 2000.5], None, "tensor([1.0000e+00, 2.0005e+03])"),
        ([1e9], None, "tensor([1.0000e+09])"),
        ([NAN, INF, 1.0], None, "tensor([nan, inf, 1.])"),
        ([NAN, -INF, 0.5], None, "tensor([   nan,   -inf, 0.5000])"),
        ([0.0, -0.0], None, "tensor([0., -0.])"),
        ([1, 200], "int32", "tensor([  1, 200], dtype=torch.int32)"),
        ([1.5], "float64", "tensor([1.5000], dtype=torch.float64)"),
        ([1.5], "bfloat16", "tensor([1.5000], dtype=torch.bfloat16)"),
        ([True, False], None, "tensor([ True, False])"),
        ([1 + 2j, -1.5j], None, "tensor([1.+2.0000j, -0.-1.5000j])"),
        ([], None, "tensor([])"),
        ([], "int64", "tensor([], dtype=torch.int64)"),
        ([[], []], None, "tensor([], size=(2, 0))"),
        ([[1, 2], [3, 4]], None, "tensor([[1, 2],\n        [3, 4]])"),
        ([[[1.0]], [[2.0]]], None, "tensor([[[1.]],\n\n        [[2.]]])"),
    ],
)
def test_plain(data: Any, dtype: str | None, text: str) -> None:
    assert repr(make(data, getattr(_core, dtype) if dtype else None)) == text


def test_gradients_and_devices() -> None:
    assert repr(make([1.0], requires_grad=True)) == "tensor([1.], requires_grad=True)"
    meta = _core.tensor_empty((2, 3), _core.int64, "meta")
    assert repr(meta) == "tensor(..., device='meta', size=(2, 3), dtype=torch.int64)"


def test_summary() -> None:
    long = make(range(1001))
    assert repr(long) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    square = _core.tensor_alias(make(range(1600)), (40, 40), (40, 1))
    lines = repr(square).split("\n")
    assert lines[0] == "tensor([[   0,    1,    2,  ...,   37,   38,   39],"
    assert lines[3] == "        ..." + "," and len(lines) == 7
    transposed = _core.tensor_alias(square, (40, 40), (1, 40))
    assert "1599" in repr(transposed) and repr(transposed).startswith("tensor([[   0,   40,   80,")


def test_lines_wrap_at_the_width() -> None:
    text = repr(make([0.5] * 30))
    assert text.split("\n")[0] == "tensor([" + "0.5000, " * 8 + "0.5000,"
    assert all(len(line) <= 80 for line in text.split("\n"))


def test_options() -> None:
    printing.set_printoptions(precision=2)
    assert repr(make([1.2345])) == "tensor([1.23])"
    printing.set_printoptions(sci_mode=True)
    assert repr(make([1.2345])) == "tensor([1.23e+00])"
    printing.set_printoptions(profile="short", threshold=4)
    assert repr(make([1, 2, 3, 4, 5])) == "tensor([1, 2,  ..., 4, 5])"
    printing.set_printoptions(profile="full")
    assert "..." not in repr(make(range(2000)))
    printing.set_printoptions(profile="huge")  # no such profile: nothing changes
    assert "..." not in repr(make(range(2000)))
