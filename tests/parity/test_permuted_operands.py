"""Strides of results whose operands do not lie row by row, beside PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")

import flambeau  # noqa: E402

EXPRESSIONS = """
x.flip(0); x.flip(0, 2); x[0].fliplr(); x.flipud(); x.rot90(); x.rot90(2); x.rot90(3, (1, 2))
x.rot90(0); x.index_fill(1, i, 2.0); x.index_fill(2, i, v); x.put(i, s, accumulate=True)
x.index_put((i,), v); x.index_put((i, i), v, accumulate=True); x.index_put((x > 0,), v)
x[i]; x[:, i]; x[:, :, i]; x[i, i]; x[i, :, i]; x[:, i, i]; x[..., i, None]
x[torch.stack([i, i])]; x[:, torch.stack([i, i]).T]; x[torch.stack([i, i]).T, :, i]
x[x[:, 0, 0] > 0]; x[x[..., 0] > 3]
x.select_scatter(x[:, 0], 1, 1); x.slice_scatter(x[:1], 0, 1, 2)
x.diagonal_scatter(x[0, :, 0:3].diagonal())
torch.complex(x, x); torch.complex(x, v); x.conj_physical(); x.mvlgamma(1); x.cumsum(0); x.roll(1)
x + x[:, :1]; x[0] * x; v + x; torch.where(x > 0, x, v); x[:1] + x[:, :1]; x[:, :1, :1] * x[:1]
"""
LAYOUTS = {
    "last two swapped": lambda lib: lib.arange(24.0).reshape(2, 4, 3).mT.sin() + 3,
    "turned": lambda lib: lib.arange(24.0).reshape(4, 3, 2).permute(2, 1, 0).sin() + 3,
    "rolled": lambda lib: lib.arange(24.0).reshape(3, 4, 2).permute(2, 0, 1).sin() + 3,
}


def expressions():
    return [part.strip() for line in EXPRESSIONS.split("\n") for part in line.split(";") if part]


def result(library, expression, layout):
    x = LAYOUTS[layout](library)
    assert not x.is_contiguous()
    names = {"i": library.tensor([1, 0]), "v": library.tensor(4.0), "s": library.tensor([1.0, 2.0])}
    found = eval(expression, {"torch": library, "x": x, **names})
    return tuple(found.shape), found.stride(), library.view_as_real(found + 0j).tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("expression", expressions())
def test_strides(expression, layout):
    try:
        expected = result(torch, expression, layout)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            result(flambeau, expression, layout)
        return
    shape, strides, values = result(flambeau, expression, layout)
    places = [d for d, size in enumerate(shape) if size > 1]
    assert shape == expected[0]
    assert [strides[d] for d in places] == [expected[1][d] for d in places]
    assert torch.allclose(torch.tensor(values), torch.tensor(expected[2]), equal_nan=True)
