"""Random shapes, layouts and dtypes against NumPy and SciPy, a test per family of operators.

Few examples, and few kernels: what is compiled is paid for in every run with empty caches.
"""

from __future__ import annotations

import numpy
import pytest
import scipy.signal
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.language.samples import T
from tests.property.arrays import LAYOUTS, PLAIN, SETTINGS, array, near, specs, twins

F = torch.nn.functional
few = settings(max_examples=4, **SETTINGS)


def dimension(data, x):
    """A dimension of `x`, counted from either end."""
    return data.draw(st.integers(-x.ndim, x.ndim - 1), label="dim")


# ------------------------------------------------------------------------------- torch and Tensor

POINTWISE = {
    "add": (torch.add, numpy.add),
    "lt": (torch.lt, numpy.less),
}


@pytest.mark.parametrize("name", POINTWISE)
@few
@given(data=st.data())
def test_pointwise(name, data):
    """Two operands that broadcast, of any layouts and two dtypes."""
    ours, theirs = POINTWISE[name]
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
    lead = data.draw(st.integers(0, len(shape)))
    other = [1 if data.draw(st.booleans()) else size for size in shape[lead:]]
    x, a = twins(T(*shape), 0)
    y, b = twins(T(*other, dtype=data.draw(st.sampled_from(["f32", "i64"]))), 1)
    found = ours(x, y)
    near(found, theirs(a, b).astype(array(found).dtype))


REDUCTIONS = {
    "sum": (torch.sum, numpy.sum),
    "amax": (torch.amax, numpy.amax),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@few
@given(data=st.data())
def test_reductions(name, data):
    """Any set of dimensions, kept or not."""
    ours, theirs = REDUCTIONS[name]
    x, a = twins(data.draw(specs((2, 3), 1)))
    dims = data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))
    keep = data.draw(st.booleans())
    near(ours(x, tuple(dims), keepdim=keep), theirs(a, tuple(dims), keepdims=keep))


def subscript(data, size):
    """An index of one dimension: a slice, a number, a list, or all."""
    numbers = st.integers(-size, size - 1) if size else st.nothing()
    steps = st.builds(slice, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6),
                      st.none() | st.integers(1, 3))  # fmt: skip
    kinds = [steps, st.just(slice(None))] + ([numbers] if size else [])
    return data.draw(st.one_of(kinds))


@settings(max_examples=20, **SETTINGS)
@given(data=st.data())
def test_views_and_indexing(data):
    """Basic subscripts of permuted tensors, then one write through the view."""
    x, a = twins(data.draw(specs((1, 3), 1)))
    order = data.draw(st.permutations(range(x.ndim)))
    x, a = x.permute(*order).contiguous(), a.transpose(order).copy()
    places = tuple(subscript(data, size) for size in a.shape)
    near(x[places], a[places])
    x[places] = 0.5
    a[places] = 0.5
    near(x, a)


@few
@given(data=st.data())
def test_advanced_indexing(data):
    """A list of places, negative ones too, in any dimension; and a mask."""
    x, a = twins(data.draw(specs((2, 3), 1)))
    dim = data.draw(st.integers(0, x.ndim - 1))
    size = a.shape[dim]
    places = data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4))
    before = (slice(None),) * dim
    near(x[(*before, torch.tensor(places))], a[(*before, places)])
    near(x[x > 0], a[a > 0])


@few
@given(data=st.data())
def test_sorting(data):
    """Values and places of a stable sort with ties; the largest few."""
    x, a = twins(data.draw(specs((2, 3), 1, "i64", layouts=PLAIN)))
    dim = dimension(data, x)
    found = x.sort(dim=dim, stable=True)
    near(found.values, numpy.sort(a, dim))
    near(found.indices, numpy.argsort(a, dim, kind="stable"))
    near(x.topk(1, dim).values, numpy.max(a, dim, keepdims=True))


@few
@given(seed=st.integers(0, 2**32 - 1), shape=st.lists(st.integers(0, 3), max_size=2))
def test_random(seed, shape):
    """The Mersenne Twister, as NumPy seeds it: 24 bits a float, a remainder an integer."""
    count = int(numpy.prod(shape))
    raw = numpy.random.RandomState(seed).randint(0, 2**32, count, dtype=numpy.uint32)
    torch.manual_seed(seed)
    near(torch.rand(shape), ((raw & 0xFFFFFF) / numpy.float32(2**24)).reshape(shape))
    torch.manual_seed(seed)
    near(torch.randint(7, shape), (raw % 7).astype("int64").reshape(shape))


# ------------------------------------------------------------------------------- namespaces

FOURIER = {
    "fft": (torch.fft.fft, numpy.fft.fft),
    "rfft": (torch.fft.rfft, numpy.fft.rfft),
}


@pytest.mark.parametrize("name", FOURIER)
@few
@given(data=st.data())
def test_fft(name, data):
    """Any length, cut or padded, along any dimension, with each norm."""
    ours, theirs = FOURIER[name]
    x, a = twins(data.draw(specs((1, 3), 1, layouts=PLAIN)))
    dim = dimension(data, x)
    length = data.draw(st.none() | st.integers(1, 7))
    norm = data.draw(st.sampled_from(["backward", "ortho", "forward"]))
    near(ours(x, n=length, dim=dim, norm=norm), theirs(a, length, dim, norm))
    near(torch.fft.irfft(torch.fft.rfft(x, dim=dim), a.shape[dim], dim), a)


@few
@given(data=st.data())
def test_foreach(data):
    """Lists of tensors of any shapes, the empty ones among them."""
    pairs = [
        twins(s, k)
        for k, s in enumerate(data.draw(st.lists(specs(layouts=PLAIN), min_size=1, max_size=4)))
    ]
    tensors, arrays = [p[0] for p in pairs], [p[1] for p in pairs]
    for mine, theirs in zip(torch._foreach_add(tensors, tensors, alpha=0.5), arrays):
        near(mine, theirs + numpy.float32(0.5) * theirs)
    for mine, theirs in zip(torch._foreach_norm(tensors), arrays):
        near(mine, numpy.sqrt(numpy.sum(theirs.astype("float64") ** 2)))


@few
@given(data=st.data())
def test_linalg(data):
    """Batches of matrices: solutions, inverses, determinants, eigenvalues, factors."""
    batch, size = data.draw(st.lists(st.integers(0, 2), max_size=2)), data.draw(st.integers(1, 4))
    a = twins(T(*batch, size, size, dtype="f64", low=-1.0, high=1.0))[1] + 3 * numpy.eye(size)
    x = torch.from_numpy(a)
    b, right = twins(T(*batch, size, 2, dtype="f64"), 1)
    near(torch.linalg.solve(x, b), numpy.linalg.solve(a, right), "f64")
    near(torch.linalg.inv(x), numpy.linalg.inv(a), "f64")
    near(torch.linalg.det(x), numpy.linalg.det(a), "f64", 100)
    symmetric = a + a.swapaxes(-1, -2)
    values = torch.linalg.eigvalsh(torch.from_numpy(symmetric))
    near(values, numpy.linalg.eigvalsh(symmetric), "f64", 10)
    q, r = torch.linalg.qr(x)
    near(array(q) @ array(r), a, "f64", 10)


@few
@given(data=st.data())
def test_masked(data):
    """Reductions that see only what the mask keeps."""
    a = twins(data.draw(specs((2, 3), 1, layouts=PLAIN)))[1]
    x, kept = torch.from_numpy(a.copy()), a > -0.5
    dim = dimension(data, x)
    mask = torch.from_numpy(kept)
    hidden = numpy.ma.masked_array(a, ~kept)
    near(torch.masked.sum(x, dim, mask=mask), hidden.sum(dim).filled(0))
    near(torch.masked.amax(x, dim, mask=mask), hidden.max(dim).filled(-numpy.inf))


@few
@given(data=st.data())
def test_functional(data):
    """Activations, a norm, padding, pooling and a loss."""
    x, a = twins(data.draw(specs((2, 3), 2, layouts=PLAIN)))
    exact = a.astype("float64")
    dim = dimension(data, x)
    near(F.softmax(x, dim), scipy.special.softmax(exact, dim))
    near(F.gelu(x), exact * scipy.special.ndtr(exact))
    spread = numpy.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    centred = exact - exact.mean(-1, keepdims=True)
    near(F.layer_norm(x, x.shape[-1:]), centred / spread, scale=20)
    before, after = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    width = [(0, 0)] * (a.ndim - 1) + [(before, after)]
    near(F.pad(x, (before, after), mode="constant"), numpy.pad(a, width))
    pooled = numpy.lib.stride_tricks.sliding_window_view(a, 2, -1)
    near(F.max_pool1d(x, 2, 1), pooled.max(-1))


WINDOWS = {
    "hann": {},
    "kaiser": {"beta": 8.0},
    "gaussian": {"std": 2.0},
    "exponential": {"tau": 1.5},
    "general_hamming": {"alpha": 0.6},
}


@few
@given(length=st.integers(0, 9), symmetric=st.booleans(), name=st.sampled_from(sorted(WINDOWS)))
def test_windows(length, symmetric, name):
    """Any length, 0 and 1 too, symmetric or periodic."""
    found = getattr(torch.signal.windows, name)(
        length, sym=symmetric, dtype=torch.float64, **WINDOWS[name]
    )
    theirs = getattr(scipy.signal.windows, name)
    near(found, theirs(length, *WINDOWS[name].values(), sym=symmetric), "f64")


SPECIAL = {
    "expit": scipy.special.expit,
    "erfcx": scipy.special.erfcx,
    "gammaln": scipy.special.gammaln,
}


@pytest.mark.parametrize("name", SPECIAL)
@few
@given(spec=specs(low=0.05, high=0.95, layouts=LAYOUTS[::2]))
def test_special(name, spec):
    """One argument, of any layout."""
    x, a = twins(spec)
    near(getattr(torch.special, name)(x), SPECIAL[name](a.astype("float64")))
