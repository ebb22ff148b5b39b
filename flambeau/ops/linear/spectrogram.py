"""Short-time Fourier transforms: spectra of overlapping windows of a signal, and the signal back.

Source: Griffin & Lim, Signal Estimation from Modified Short-Time Fourier Transform, IEEE Trans.
ASSP 32, 1984: the inverse adds the windowed pieces and divides by the sum of squared windows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import function, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import static_size
from flambeau.ops.indexing.slices import narrow, unfold
from flambeau.ops.linear import fourier  # noqa: F401 - defines the transforms
from flambeau.ops.linear.factorisations import values_of
from flambeau.ops.neural.padding import pad
from flambeau.ops.shape.views import transpose, view_as_real


def _error(name: str, text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[{name}] {name}: {text}\nhint: {hint}")


def _transform(name: str, x: Any, **options: Any) -> Any:
    """One of the transforms of `torch.fft`, of the last dimension."""
    from flambeau.language.definition import REGISTRY

    return REGISTRY[f"fft.{name}"](x, **options)


def _inexact(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _lengths(
    name: str, n_fft: int, hop_length: int | None, win_length: int | None, window: Any
) -> tuple[int, int]:
    """The step between windows and a window's length, checked."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop <= 0:
        raise _error(name, f"expected hop_length > 0, but got hop_length={hop}", "n_fft // 4")
    if not 0 < length <= n_fft:
        raise _error(
            name, f"expected 0 < win_length <= n_fft, but got win_length={length}", "n_fft"
        )
    if window is not None and tuple(window.shape) != (length,):
        raise _error(
            name,
            f"expected a 1D window tensor of size equal to win_length={length}, but got window "
            f"with size {list(window.shape)}",
            "torch.hann_window(win_length)",
        )
    return hop, length


def _centred(window: Any, n_fft: int, length: int, like: Any) -> Any:
    """The weights of n_fft samples: zeros around the window; ones where there is none."""
    if window is None:
        if length == n_fft:
            return None
        window = like.new_ones(length, dtype=_real_dtype(like))
    left = (n_fft - length) // 2
    return pad(window, (left, n_fft - length - left)) if length < n_fft else window


def _real_dtype(x: Any) -> Any:
    return view_as_real(x).dtype if x.is_complex() else x.dtype


def _warn_without_window(window: Any, name: str) -> None:
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied,which is known to "
            "cause spectral leakage. Other windows such as torch.hann_window or "
            f"torch.hamming_window are recommended to reduce spectral leakage ({name}).",
            UserWarning,
            stacklevel=4,
        )


def _stft_samples() -> Iterator[Sample]:
    window = T(8, low=0.2, grad=False)
    yield sample(T(21), 8, return_complex=True)
    yield sample(T(2, 21), 8, 3, 6, T(6, low=0.2), return_complex=True)
    yield sample(T(2, 21), 8, window=window, center=False, normalized=True, return_complex=True)
    yield sample(T(21), 8, onesided=False, pad_mode="constant", return_complex=False)


def _stft_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(21), 8), RuntimeError, "return_complex")
    yield ErrorSample(
        sample(T(2, 2, 21), 8, center=False, return_complex=True), RuntimeError, "1D or 2D"
    )
    yield ErrorSample(sample(T(21), 8, 0, return_complex=True), RuntimeError, "hop_length > 0")
    yield ErrorSample(sample(T(21), 8, 2, 9, return_complex=True), RuntimeError, "win_length")


@function(samples=_stft_samples, errors=_stft_errors, dtypes="f32 f64", autocast="float32")
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """The spectra of overlapping windows of a signal.

    Args:
        input: signals (length) or (batch, length), real or complex.
        n_fft: samples of a window; hop_length (n_fft // 4): between the starts of two.
        win_length, window: weights of the samples; ones without window. A shorter window stands in
            the middle.
        center: pads the signal by n_fft // 2 on both sides, as `pad_mode` says, so that window t
            is around sample t * hop_length.
        normalized: divides by the root of n_fft.
        onesided: only the n_fft // 2 + 1 frequencies that a real signal needs.
        return_complex: must be given for real signals; False adds a dimension of two parts.
        align_to_window: without center, the first window starts at the first sample.

    Returns:
        (batch, frequencies, windows).

    Raises:
        RuntimeError: sizes that do not fit, or return_complex not given for a real signal.

    Example:
        >>> window = torch.hann_window(4)
        >>> torch.stft(torch.ones(8), 4, window=window, return_complex=True).shape
        torch.Size([3, 9])
    """
    if center and align_to_window:
        raise _error("stft", "align_to_window should only be set when center = false", "leave out")
    if center and input.ndim in (1, 2):
        input = _padded_ends(input, n_fft // 2, pad_mode)
    any_complex = input.is_complex() or (window is not None and window.is_complex())
    onesided, return_complex = _form_of_result(any_complex, onesided, return_complex)
    hop, length = _checked_signal(input, n_fft, hop_length, win_length, window)
    _warn_without_window(window, "stft")
    if align_to_window and length < n_fft:
        side = (n_fft - length) // 2
        input = pad(input, (side, side))
    pieces = unfold(input, -1, n_fft, hop)
    weights = _centred(window, n_fft, length, input)
    if weights is not None:
        pieces = pieces * weights
    norm = "ortho" if normalized else "backward"
    spectra = _transform("rfft" if onesided else "fft", pieces, norm=norm)
    spectra = transpose(spectra, -1, -2)
    return spectra if return_complex else view_as_real(spectra)


def _padded_ends(signal: Any, count: int, mode: str) -> Any:
    """Signals with `count` more samples on both sides, so that windows lie around samples."""
    rows = signal.reshape(1, -1, signal.shape[-1])
    padded = pad(rows, (count, count), mode=mode)
    return padded.reshape(*signal.shape[:-1], padded.shape[-1])


def _form_of_result(
    any_complex: bool, onesided: bool | None, return_complex: bool | None
) -> tuple[bool, bool]:
    """Whether half of the frequencies are wanted, and whether as complex numbers.

    Raises:
        RuntimeError: half of them do not suffice, or a real signal leaves it open.
    """
    if return_complex is None and not any_complex:
        raise _error(
            "stft",
            "stft requires the return_complex parameter be given for real inputs, and will "
            "further require that return_complex=True in a future PyTorch release.",
            "return_complex=True",
        )
    half = not any_complex if onesided is None else onesided
    if half and any_complex:
        raise _error("stft", "Cannot have onesided output if window or input is complex", "False")
    return half, return_complex is None or return_complex


def _checked_signal(
    x: Any, n_fft: int, hop_length: int | None, win_length: int | None, window: Any
) -> tuple[int, int]:
    if not _inexact(x) or x.ndim not in (1, 2):
        raise _error(
            "stft",
            f"expected a 1D or 2D tensor of floating types, got {x.ndim}D of {x.dtype}",
            "(batch, length)",
        )
    if not 0 < n_fft <= x.shape[-1]:
        raise _error(
            "stft", f"expected 0 < n_fft < {x.shape[-1]}, but got n_fft={n_fft}", "pad the signal"
        )
    return _lengths("stft", n_fft, hop_length, win_length, window)


# ------------------------------------------------------------------------------------ inverse


_MOST_TERMS = 16  # of a sum that is written out


def _sums(pieces: Node, step: int) -> Node:
    """Sums of windows (..., count, length) that start `step` apart."""
    *_, count, length = pieces.shape
    d, extent = pieces.ndim - 1, (count - 1) * step + length
    width = static_size(length)
    terms = -(-width // step)
    if terms > _MOST_TERMS:
        return prims.overlap_add(pieces, d - 1, extent, step, 1)
    total: Node | None = None
    for k in range(terms):  # what term k of a window holds lies k steps after its start
        end = min(width, (k + 1) * step)
        part = prims.slice(pieces, d, k * step, end - k * step)
        low, high = (k, 0), (terms - 1 - k, (k + 1) * step - end)
        part = prims.pad(part, (*(0,) * (d - 1), *low), (*(0,) * (d - 1), *high))
        total = part if total is None else total + part
    assert total is not None
    flat = prims.reshape(total, (*total.shape[:-2], total.shape[-2] * step))
    return prims.slice(flat, d - 1, 0, extent)


@op(where="private", samples=lambda: [sample(T(2, 3, 4), T(4), 2), sample(T(3, 5), None, 2)])
def _overlapped(self: Tensor, weights: Tensor | None, step: int) -> Tensor:
    """Sums of windows (..., count, length) times weights, which start `step` apart."""
    return _sums(self if weights is None else self * weights, step)


@op(where="private", samples=lambda: [sample(T(4), 3, 2)])
def _envelope(self: Tensor, count: int, step: int) -> Tensor:
    """Sums of the squares of `count` equal windows that start `step` apart."""
    return _sums(prims.broadcast(self * self, (count, self.shape[-1]), (1,)), step)


def _istft_samples() -> Iterator[Sample]:
    spectrum, window = T(5, 9, dtype="c128"), T(8, dtype="f64", low=0.5, grad=False)
    short = T(6, dtype="f64", low=0.5, grad=False)
    yield sample(spectrum, 8, window=window)
    yield sample(T(2, 5, 9, dtype="c128"), 8, 3, 6, short, length=20)
    yield sample(T(8, 9, dtype="c128"), 8, window=window, center=False, onesided=False)
    yield sample(T(8, 9, dtype="c64"), 8, onesided=False, normalized=True, return_complex=True)


def _istft_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(5, 9), 8), RuntimeError, "complex")
    yield ErrorSample(sample(T(5, dtype="c64"), 8), IndexError, "2D or 3D")
    yield ErrorSample(sample(T(4, 9, dtype="c64"), 8), RuntimeError, "n_fft / 2 + 1")


@op(
    "istft(Tensor input, int n_fft) -> Tensor",
    host=True,
    samples=_istft_samples,
    errors=_istft_errors,
)
def istft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signal whose `stft` with these arguments is nearest to the given spectra.

    Args:
        input: (frequencies, windows) or (batch, frequencies, windows), complex.
        length: of the signal; what the windows cover when None.

    Raises:
        RuntimeError: sizes that do not fit, a real input, or windows whose squares sum to zero at
            some sample.
        IndexError: fewer than two dimensions.

    Example:
        >>> x, window = torch.arange(8.0), torch.hann_window(4)
        >>> spectra = torch.stft(x, 4, window=window, return_complex=True)
        >>> torch.istft(spectra, 4, window=window).allclose(x, atol=1e-5)
        True
    """
    onesided = _checked_spectra(input, n_fft, window, onesided, return_complex)
    hop, span = _lengths("istft", n_fft, hop_length, win_length, window)
    if hop > span:
        raise _error("istft", "expected 0 < hop_length <= win_length", "overlap the windows")
    _warn_without_window(window, "istft")
    weights = _centred(window, n_fft, span, input)
    pieces = transpose(input, -1, -2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        pieces = _transform("ifft", pieces, norm=norm)
    else:
        pieces = pieces if onesided else narrow(pieces, -1, 0, n_fft // 2 + 1)
        pieces = _transform("irfft", pieces, n=n_fft, norm=norm)
    count = pieces.shape[-2]
    total = _overlapped(pieces, weights, hop)
    if weights is None:
        weights = pieces.new_ones(n_fft, dtype=_real_dtype(pieces))
    envelope = _envelope(weights, count, hop)
    return _cut_signal(total, envelope, n_fft, center, length)


def _checked_spectra(
    x: Any, n_fft: int, window: Any, onesided: bool | None, return_complex: bool
) -> bool:
    """Whether the spectra are onesided."""
    if not x.is_complex():
        raise _error(
            "istft",
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True.",
            "torch.view_as_complex",
        )
    if x.numel() == 0 or x.ndim not in (2, 3):
        kind = IndexError if x.ndim < 2 else RuntimeError
        raise kind(
            "[istft] istft: expected a tensor with 2D or 3D that is not empty, but got "
            f"{list(x.shape)}\nhint: (batch, frequencies, windows)"
        )
    bins = x.shape[-2]
    onesided = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        expected = "n_fft / 2 + 1" if onesided else "n_fft"
        raise _error(
            "istft",
            f"expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"{expected}, but got {bins}",
            "give stft and istft the same arguments",
        )
    complex_window = window is not None and window.is_complex()
    if (return_complex and onesided) or (complex_window and not return_complex):
        raise _error(
            "istft", "Cannot have onesided or real output if window or input is complex", "False"
        )
    return onesided


def _cut_signal(total: Any, envelope: Any, n_fft: int, center: bool, length: int | None) -> Any:
    """Cuts the sum of pieces to length, divided by the sum of the squared windows."""
    covered = total.shape[-1]
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else covered - (n_fft // 2 if center else 0)
    count = min(end, covered) - start
    y, weight = narrow(total, -1, start, count), narrow(envelope, -1, start, count)
    least = values_of(weight.abs().min())
    if least is not None and bool((least < 1e-11).any()):
        raise _error("istft", "window overlap add min: 1", "overlap the windows, or choose another")
    y = y / weight
    if end > covered:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings",
            UserWarning,
            stacklevel=3,
        )
        y = pad(y, (0, end - covered))
    return y
