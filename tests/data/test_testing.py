"""`assert_close` and `make_tensor`."""

import pytest

import flambeau as torch
from flambeau.testing import assert_close, make_tensor


def test_close_values_pass():
    assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-7]))
    assert_close({"a": [1, 2.0, None]}, {"a": [1, 2.0 + 1e-9, None]})
    nan = torch.tensor([float("nan")])
    assert_close(nan, nan, equal_nan=True)


@pytest.mark.parametrize(
    "actual, expected, text",
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), r"1 / 2 \(50.0%\)"),
        (torch.ones(2), torch.ones(3), "attribute 'shape'"),
        (torch.ones(2), torch.ones(2).double(), "attribute 'dtype'"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "not equal"),
        ([1.0, torch.ones(2)], [1.0, torch.zeros(2)], r"item \[1\]"),
        ({"a": 1}, {"b": 1}, "keys of the mappings"),
        (1.0, 1.1, "Scalars are not close"),
    ],
)
def test_differences_are_described(actual, expected, text):
    with pytest.raises(AssertionError, match=text):
        assert_close(actual, expected)


def test_message_and_types():
    with pytest.raises(AssertionError, match="^mine$"):
        assert_close(1, 2, msg="mine")
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(torch.ones(1), "a")
    with pytest.raises(ValueError, match="no atol"):
        assert_close(1.0, 1.0, rtol=1.0)


def test_make_tensor():
    torch.manual_seed(0)
    x = make_tensor((3, 4), dtype=torch.float32, device="cpu", low=1, high=2, noncontiguous=True)
    assert not x.is_contiguous() and x.min() >= 1 and x.max() < 2
    y = make_tensor(100, dtype=torch.int64, device="cpu", low=0, high=2, exclude_zero=True)
    assert bool((y == 1).all())
    with pytest.raises(ValueError, match="must be less"):
        make_tensor((2,), dtype=torch.float32, device="cpu", low=3, high=1)
