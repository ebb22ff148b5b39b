"""Pooling with windows that reach far beyond the image: only what lies inside is computed."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler.dry_run import dry_run

F = torch.nn.functional
HUGE = 2**31


def image(*shape: int) -> Any:
    torch.manual_seed(0)
    return torch.randn(shape).requires_grad_()


def gradient(y: Any, x: Any) -> Any:
    weights = torch.arange(1.0, y.numel() + 1).reshape(y.shape)
    return torch.autograd.grad((y * weights).sum(), x)[0]


@pytest.mark.parametrize("kernel", [200, HUGE])
@pytest.mark.parametrize("shape", [(1, 2, 7), (3, 90)])
def test_one_window_over_everything(kernel: int, shape: tuple[int, ...]) -> None:
    x = image(*shape)
    value, place = F.max_pool1d(x, kernel, kernel, kernel // 2, 1, True, True)
    assert torch.equal(value, x.amax(-1, True)) and torch.equal(place, x.argmax(-1, True))
    assert torch.equal(gradient(value, x), gradient(x.amax(-1, True), x))
    mean = F.avg_pool1d(x, kernel, kernel, kernel // 2, True, False)
    torch.testing.assert_close(mean, x.mean(-1, True))
    torch.testing.assert_close(gradient(mean, x), gradient(x.mean(-1, True), x))


@pytest.mark.parametrize("stride", [1, 40])
def test_windows_that_begin_in_the_padding(stride: int) -> None:
    """The same as with the padding made by hand."""
    x, kernel, pad = image(2, 11), 150, 75
    windows = F.pad(x, (pad, pad), value=-torch.inf).unfold(-1, kernel, stride)
    assert torch.equal(F.max_pool1d(x, kernel, stride, pad), windows.amax(-1))
    zeros = F.pad(x, (pad, pad)).unfold(-1, kernel, stride)
    torch.testing.assert_close(F.avg_pool1d(x, kernel, stride, pad), zeros.mean(-1))


def test_dilated_windows() -> None:
    x = image(2, 700)
    windows = F.pad(x, (50, 50), value=-torch.inf).unfold(-1, 298, 2)[..., ::3]
    assert torch.equal(F.max_pool1d(x, 100, 2, 50, 3), windows.amax(-1))


@pytest.mark.parametrize(("kernel", "stride"), [(33, 1), (500, 3)])
def test_gradient_of_long_windows(kernel: int, stride: int) -> None:
    x = image(2, 3, 600)
    means = F.avg_pool1d(x, kernel, stride)
    torch.testing.assert_close(
        gradient(means, x), gradient(x.unfold(-1, kernel, stride).mean(-1), x), rtol=1e-4, atol=1e-4
    )


def test_text_of_a_gradient_does_not_grow_with_the_window() -> None:
    x = image(1, 2000)

    def lines(kernel: int) -> int:
        call = lambda: gradient(F.avg_pool1d(x, kernel, 1), x)  # noqa: E731
        texts = dry_run([call], lambda ks: [str(k.text().count("\n")) for k in ks])
        return sum(int(count) for _, counts in texts for count in counts)

    assert lines(900) <= lines(40) + 20


def test_volumes() -> None:
    x = image(1, 1, 3, 4, 5)
    y = F.max_pool3d(x, (HUGE, 2, HUGE), (1, 2, HUGE), (HUGE // 2, 1, 0), ceil_mode=True)
    assert y.shape[-2:] == (3, 1) and torch.equal(y.amax(), x.amax())
