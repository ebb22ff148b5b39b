"""Fourier transforms: accuracy for every length, and bits that depend on nothing but the signal."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau as torch
from flambeau import _core

LENGTHS = [*range(1, 301), 437, 899, 1000, 1009, 1024, 2187, 4096, 4099, 16807, 65537]
SOME = [1, 2, 3, 4, 5, 6, 8, 12, 16, 23, 25, 31, 32, 37, 40, 64, 74, 77, 96, 128, 200, 243, 360]
WIDE = {"float32": np.float64, "float64": np.longdouble}
COMPLEX = {"float32": np.complex64, "float64": np.complex128}
# Of the root of log n: rounding errors of independent sums grow so.
ROUNDINGS = 1.6


def _signals(n, dtype, rows=3):
    generator = np.random.default_rng(n)
    x = generator.standard_normal((rows, n)).astype(dtype)
    z = x + 1j * generator.standard_normal((rows, n))
    return x, z.astype(COMPLEX[dtype])


def _half(x):
    """Half of a spectrum as NumPy and PyTorch read it: what has no mirror image is real."""
    found = np.fft.rfft(x)
    return found.astype(COMPLEX[x.dtype.name])


CALLS = {
    "fft": (lambda t, x, z, s, n: t.fft.fft(z)),
    "ifft": (lambda t, x, z, s, n: t.fft.ifft(z)),
    "fft of real": (lambda t, x, z, s, n: t.fft.fft(x)),
    "rfft": (lambda t, x, z, s, n: t.fft.rfft(x)),
    "irfft": (lambda t, x, z, s, n: t.fft.irfft(s, n)),
    "hfft": (lambda t, x, z, s, n: t.fft.hfft(s, n)),
    "ihfft": (lambda t, x, z, s, n: t.fft.ihfft(x)),
}


@pytest.mark.parametrize("dtype", WIDE)
def test_accuracy(dtype):
    epsilon = np.finfo(dtype).eps
    for n in LENGTHS:
        x, z = _signals(n, dtype)
        arrays = [x, z, _half(x)]
        wide = [a.astype(np.result_type(a.dtype, WIDE[dtype])) for a in arrays]
        ours = [torch.from_numpy(a) for a in arrays]
        names = CALLS if n < 50 else ("fft", "rfft", "irfft")  # the others differ in signs
        for name in names:
            call = CALLS[name]
            expected, found = call(np, *wide, n), call(torch, *ours, n).resolve_conj().numpy()
            error = np.linalg.norm(found - expected) / max(np.linalg.norm(expected), epsilon)
            assert error <= ROUNDINGS * epsilon * max(1, np.log2(n)) ** 0.5, (name, n)
            assert found.dtype.itemsize == (arrays[0 if name in ("irfft", "hfft") else 1]).itemsize


def _same(a, b):
    return a.resolve_conj().numpy().tobytes() == b.resolve_conj().contiguous().numpy().tobytes()


def _transforms(x, z, dim, n):
    found = [torch.fft.fft(z, dim=dim), torch.fft.ifft(z, dim=dim), torch.fft.fft(x, dim=dim)]
    half = torch.fft.rfft(x, dim=dim)
    return [*found, half, torch.fft.irfft(half, n, dim), torch.fft.ihfft(x, dim=dim)]


@pytest.mark.parametrize("dtype", WIDE)
def test_bits_of_a_signal_do_not_depend_on_others(dtype):
    """Alone, in a batch, along each axis beside few or many others."""
    for n in [*SOME, 1009, 2000]:
        x, z = (torch.from_numpy(a) for a in _signals(n, dtype, 21))
        batch = _transforms(x, z, -1, n)
        alone = _transforms(x[5], z[5], -1, n)
        first = _transforms(x.T.contiguous(), z.T.contiguous(), 0, n)
        middle = [v.reshape(3, 7, n).transpose(1, 2).contiguous() for v in (x, z)]
        inner = _transforms(*middle, 1, n)
        for whole, one, moved, between in zip(batch, alone, first, inner, strict=True):
            assert _same(one, whole[5]), n
            assert _same(whole, moved.T), n
            assert _same(whole, between.transpose(1, 2).reshape(21, -1)), n


def test_bits_do_not_depend_on_threads():
    before = torch.get_num_threads()
    shapes = [(64, 200), (40, 77), (7, 1009), (30, 64, 20)]
    found = []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            for shape in shapes:
                x = torch.randn(*shape)
                results = _transforms(x, torch.complex(x, x.flip(0)), 1, shape[1])
                found.append([r.resolve_conj().numpy().tobytes() for r in results])
    finally:
        torch.set_num_threads(before)
    assert found[: len(shapes)] == found[len(shapes) :]


@pytest.mark.parametrize("dtype", WIDE)
def test_bits_do_not_depend_on_the_vector_unit(dtype):
    found = []
    try:
        for level in (2, 1, 0):
            _core.call_routine("fourier_level", [], [level])
            for n in [*SOME, 1009, 1000]:
                for rows in (1, 19):
                    x, z = (torch.from_numpy(a) for a in _signals(n, dtype, rows))
                    results = _transforms(x, z, -1, n) + _transforms(x.T, z.T, 0, n)
                    found.append([r.resolve_conj().numpy().tobytes() for r in results])
    finally:
        _core.call_routine("fourier_level", [], [2])
    third = len(found) // 3
    assert found[:third] == found[third : 2 * third] == found[2 * third :]


def test_whole_spectrum_of_real_numbers_is_its_own_mirror():
    for n in (1, 2, 7, 8, 74, 200):
        x, _ = _signals(n, "float32")
        found = torch.fft.fft(torch.from_numpy(x)).numpy()
        mirrored = found[:, -np.arange(n) % n].conj()
        np.testing.assert_array_equal(found, mirrored)


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_gradients(n, norm):
    torch.manual_seed(0)
    x = torch.randn(2, n, 3, dtype=torch.float64, requires_grad=True)
    z = torch.randn(2, n, 3, dtype=torch.complex128, requires_grad=True)

    def along(name):
        return lambda v: getattr(torch.fft, name)(v, None, 1, norm)

    for name in ("fft", "rfft", "ihfft"):
        assert torch.autograd.gradcheck(along(name), (x,))
    for name in ("fft", "ifft", "irfft", "hfft"):
        assert torch.autograd.gradcheck(along(name), (z,))
        assert torch.autograd.gradgradcheck(along(name), (z,))
    half = torch.randn(2, n // 2 + 1, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: torch.fft.irfft(v, n, norm=norm), (half,))


def test_compiled_is_eager():
    def program(x, z):
        spectrum = torch.fft.rfft(x * 2, dim=0, norm="ortho")
        back = torch.fft.irfft(spectrum * spectrum.conj(), 12, 0)
        return back, torch.fft.fft2(z).conj(), torch.fft.fftn(x), torch.fft.ifft(z.T.conj())

    torch.manual_seed(0)
    x, z = torch.randn(12, 20), torch.randn(20, 9, dtype=torch.complex64)
    for a, b in zip(program(x, z), torch.compile(program)(x, z), strict=True):
        assert a.resolve_conj().numpy().tobytes() == b.resolve_conj().numpy().tobytes()


def test_vmap_moves_no_bits():
    torch.manual_seed(0)
    x = torch.randn(4, 5, 12)
    for f in (torch.fft.fft, torch.fft.rfft, torch.fft.irfft, torch.fft.hfft):
        assert _same(f(x, dim=1), torch.vmap(lambda v, f=f: f(v, dim=0))(x))
        assert _same(f(x, dim=0), torch.vmap(lambda v, f=f: f(v, dim=0), 2, 2)(x))


def test_operands_of_any_layout():
    torch.manual_seed(0)
    z = torch.randn(14, 10, dtype=torch.complex64)
    for view in (z.T, z[::2, 1:], z.conj(), z[:, :1].expand(14, 6), z.flip(0)):
        assert _same(torch.fft.fft(view), torch.fft.fft(view.resolve_conj().clone().contiguous()))
    out = torch.empty(14, 10, dtype=torch.complex64)
    assert torch.fft.fft(z, out=out) is out and _same(out, torch.fft.fft(z))
    turned = torch.empty(10, 14, dtype=torch.complex64).T
    torch.fft.fft(z, out=turned)
    assert _same(torch.fft.fft(z), turned)


def test_lengths_without_points():
    with pytest.raises(RuntimeError, match="data points"):
        torch.fft.fft(torch.ones(0))
    with pytest.raises(RuntimeError, match="data points"):
        torch.fft.irfft(torch.ones(1))
    with pytest.raises(RuntimeError, match="data points"):
        torch.fft.rfft(torch.ones(3), 0)
    assert torch.fft.fft(torch.ones(0, 3)).shape == (0, 3)
    assert torch.fft.rfft(torch.ones(3, 0, 5), dim=2).shape == (3, 0, 3)


def test_many_threads_and_lengths():
    """Plans are made, kept and dropped while others use them."""
    lengths = [3000 + 7 * i for i in range(40)]
    expected = {n: np.fft.rfft(np.arange(n, dtype=np.float64)) for n in lengths}
    wrong: list[int] = []

    def work(seed):
        for n in np.random.default_rng(seed).permutation(lengths):
            found = torch.fft.rfft(torch.arange(int(n), dtype=torch.float64)).numpy()
            if not np.allclose(found, expected[n], rtol=1e-9, atol=1e-6):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_istft_of_many_and_few_overlaps():
    """Sums of overlapping windows, written out or not."""
    torch.manual_seed(0)
    x = torch.randn(2, 400, dtype=torch.float64)
    for n_fft, hop in ((40, 16), (40, 2), (40, 40), (33, 5)):
        window = torch.ones(n_fft, dtype=torch.float64)
        found = torch.stft(x, n_fft, hop, window=window, return_complex=True)
        back = torch.istft(found, n_fft, hop, window=window)
        torch.testing.assert_close(back, x[:, : back.shape[-1]], rtol=1e-10, atol=1e-10)
