"""Sobol sequences: points that fill a cube more evenly than random ones (Sobol 1967).

Direction numbers are those of Joe and Kuo ("Constructing Sobol sequences with better
two-dimensional projections", SIAM J. Sci. Comput. 30, 2008), read from `sobol_directions.bin`:
first the polynomials' bits, then m_1 ... m_s of each dimension. Scrambling is by random lower
triangular matrices and a digital shift (Matousek 1998).
"""

from __future__ import annotations

import functools
import os
from typing import Any

import flambeau as torch

__all__ = ["SobolEngine"]

_DATA = os.path.join(os.path.dirname(__file__), "sobol_directions.bin")
_POLYNOMIAL_BITS = 19

Tensor = Any


@functools.cache
def _table() -> bytes:
    with open(_DATA, "rb") as file:
        return file.read() + bytes(4)


def _bits(position: int, width: int) -> int:
    """Some bits of the table, the lowest first; at most 25."""
    start, shift = divmod(position, 8)
    return (int.from_bytes(_table()[start : start + 4], "little") >> shift) & ((1 << width) - 1)


def _directions(dimension: int, width: int) -> list[list[int]]:
    """Direction numbers of each dimension as integers of `width` bits, by the recurrence."""
    rows = [[1 << (width - 1 - j) for j in range(width)]]
    position = _POLYNOMIAL_BITS * SobolEngine.MAXDIM
    for number in range(1, dimension):
        polynomial = _bits(_POLYNOMIAL_BITS * number, _POLYNOMIAL_BITS)
        degree = polynomial.bit_length() - 1
        odd = []  # m_i has i bits, whose last one is not stored
        for bits in range(degree):
            odd.append(2 * _bits(position, bits) + 1)
            position += bits
        taps = [k for k in range(1, degree + 1) if (polynomial >> (degree - k)) & 1]
        for j in range(degree, width):
            value = odd[j - degree]
            for k in taps:
                value ^= odd[j - k] << k
            odd.append(value)
        rows.append([value << (width - 1 - j) for j, value in enumerate(odd[:width])])
    return rows


def initial_state(dimension: int) -> Tensor:
    """Direction numbers `(dimension, MAXBIT)`, not scrambled.

    Args:
        dimension: 1 to 21,201.
    """
    return torch.tensor(_directions(dimension, SobolEngine.MAXBIT), dtype=torch.int64)


def scrambled(state: Tensor, matrices: Tensor) -> Tensor:
    """Direction numbers times random matrices, modulo 2.

    Args:
        state: `(dimension, bits)` int64.
        matrices: `(dimension, bits, bits)` of 0 and 1, lower triangular; the diagonal counts as 1.
    """
    width = state.shape[1]
    matrices = matrices.clone()
    matrices.diagonal(dim1=-2, dim2=-1).fill_(1)
    high_first = torch.pow(2, torch.arange(width, dtype=torch.int64)).flip(0)
    digits = torch.bitwise_and(state.unsqueeze(-1), high_first).ne(0).long()
    # digits (dimension, number, bit), matrices (dimension, bit, bit): sums modulo 2
    mixed = torch.stack([(digits * matrices[:, None, i]).sum(-1) % 2 for i in range(width)], -1)
    return (mixed * high_first).sum(-1)


def integer_points(start: Tensor, state: Tensor, first: int, count: int) -> Tensor:
    """Points `first` to `first + count - 1` of a sequence as integers, by their Gray codes.

    Args:
        start: point 0, `(dimension,)` int64.
        state: direction numbers, `(dimension, bits)` int64.
        first, count: which points.
    """
    index = torch.arange(first, first + count, dtype=torch.int64)
    code = torch.bitwise_xor(index, index >> 1)
    result = start.unsqueeze(0).expand(count, -1)
    for bit in range((first + count).bit_length()):
        digit = ((code >> bit) & 1).unsqueeze(1)
        result = torch.bitwise_xor(result, digit * state[:, bit])
    return result


class SobolEngine:
    """Draws the points of a Sobol sequence in [0, 1)^dimension, one after the other.

    Args:
        dimension: 1 to 21,201.
        scramble: another sequence of the same evenness, chosen by `seed`.
        seed: of the scrambling; the default generator draws it when None.

    Raises:
        ValueError: another dimension.

    Example:
        >>> torch.quasirandom.SobolEngine(2).draw(3)
        tensor([[0.0000, 0.0000],
                [0.5000, 0.5000],
                [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                "Supported range of dimensionality "
                f"for SobolEngine is [1, {self.MAXDIM}]\nhint: a dimension of that range"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = initial_state(dimension)
        if scramble:
            self._scramble()
        else:
            self.shift = torch.zeros(dimension, dtype=torch.int64)
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def _scramble(self) -> None:
        width, dimension = self.MAXBIT, self.dimension
        generator: Any = None
        if self.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(self.seed)
        powers = torch.pow(2, torch.arange(width, dtype=torch.int64))
        drawn = torch.randint(2, (dimension, width), generator=generator)
        self.shift = (drawn * powers).sum(-1)
        matrices = torch.randint(2, (dimension, width, width), generator=generator).tril()
        self.sobolstate = scrambled(self.sobolstate, matrices)

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next `n` points, a tensor of shape `(n, dimension)`.

        Args:
            n: how many.
            out: receives them.
            dtype: floating point; the default dtype when None.
        """
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if n < 0 or (n == 0 and self.num_generated == 0):
            raise RuntimeError(f"[SobolEngine] cannot draw {n} points\nhint: 1 or more")
        points = integer_points(self.shift, self.sobolstate, self.num_generated, n)
        if n:
            self.quasi = points[-1].clone()
        result = points.to(dtype) * 2.0**-self.MAXBIT
        self.num_generated += n
        if out is None:
            return result
        out.resize_(result.shape).copy_(result)
        return out

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next 2^m points, which together with those before are a power of two.

        Raises:
            ValueError: they would not be.
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}.\nhint: use draw()"
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begins the sequence anew."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Passes over the next `n` points."""
        self.num_generated += n
        if self.num_generated:
            last = self.num_generated - 1
            self.quasi = integer_points(self.shift, self.sobolstate, last, 1)[0].clone()
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts += ["scramble=True"]
        if self.seed is not None:
            parts += [f"seed={self.seed}"]
        return f"{type(self).__name__}({', '.join(parts)})"
