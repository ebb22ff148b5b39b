"""Matrices without a result: what raises, with which text; other values keep their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

linalg = torch.linalg
LinAlgError = linalg.LinAlgError
ZERO = torch.zeros(2, 2)
PAIR = torch.tensor([[4.0, 2.0], [1.0, 3.0]])
BOTH = torch.stack([PAIR, ZERO])

REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "cholesky_ex": (lambda x: linalg.cholesky_ex(x, check_errors=True), LinAlgError, "order 1"),
    "inv_ex": (lambda x: linalg.inv_ex(x, check_errors=True), LinAlgError, "element 1 is zero"),
    "solve_ex": (lambda x: linalg.solve_ex(x, PAIR, check_errors=True), LinAlgError, "singular"),
    "solve_ex of rows": (
        lambda x: linalg.solve_ex(x, PAIR, left=False, check_errors=True), LinAlgError, "singular"
    ),
    "lu_factor_ex": (
        lambda x: linalg.lu_factor_ex(x, check_errors=True), RuntimeError, r"U\[1,1\] is zero"
    ),
    "lu_factor": (linalg.lu_factor, RuntimeError, r"U\[1,1\] is zero"),
    "ldl_factor_ex": (
        lambda x: linalg.ldl_factor_ex(x, check_errors=True), RuntimeError, r"D\[1,1\] is zero"
    ),
    "ldl_factor": (linalg.ldl_factor, RuntimeError, r"D\[1,1\] is zero"),
    "cholesky_inverse": (torch.cholesky_inverse, LinAlgError, "element 1 is zero"),
    "matrix_power": (lambda x: linalg.matrix_power(x, -2), LinAlgError, "element 1 is zero"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """One matrix alone, and one of a batch; under vmap, too."""
    call, error, text = REFUSED[name]
    for x in (ZERO, BOTH):
        with pytest.raises(error, match=text) as caught:
            call(x)
        assert isinstance(caught.value, LinAlgError) == (error is LinAlgError)
    with pytest.raises(error, match=text):
        torch.vmap(call)(BOTH)


@pytest.mark.parametrize("name", REFUSED)
def test_others_keep_their_bits(name: str) -> None:
    """With the check and without it the numbers, zeros' signs included, and gradients agree."""
    call = REFUSED[name][0]
    x = torch.tensor([[4.0, -0.0], [-0.0, 9.0]])
    plain = {
        "cholesky_ex": linalg.cholesky,
        "inv_ex": linalg.inv,
        "solve_ex": lambda x: linalg.solve(x, PAIR),
        "lu_factor": linalg.lu_factor_ex,
        "lu_factor_ex": linalg.lu_factor_ex,
    }.get(name, call)

    def bits(function: Callable[[Any], Any]) -> list[Any]:
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        y = y if isinstance(y, torch.Tensor) else y[0]
        if y.requires_grad:
            y.sum().backward()
        grad = leaf.grad
        return [v.detach().view(torch.int32).tolist() for v in (y, grad) if v is not None]

    assert bits(call) == bits(plain)


@pytest.mark.parametrize("n", [3, 150])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_not_a_number_is_no_pivot(n: int, dtype: Any) -> None:
    """A block of two rows would reach beyond the matrix; by LAPACK as well."""
    x = torch.eye(n, dtype=dtype)
    x[n - 1, n - 1] = float("nan")
    factors = linalg.ldl_factor_ex(x)
    assert int(factors.info) == n
    assert factors.pivots.tolist() == list(range(1, n + 1))
    with pytest.raises(RuntimeError, match=rf"D\[{n},{n}\] is zero"):
        linalg.ldl_factor(x)


@pytest.mark.parametrize("pivots", [[0, 2], [1, 3], [-2, -2]])
def test_pivots_are_rows(pivots: list[int]) -> None:
    with pytest.raises(RuntimeError, match="between 1 and LU"):
        torch.lu_unpack(PAIR, torch.tensor(pivots, dtype=torch.int32))
    torch.lu_unpack(PAIR, torch.tensor(pivots, dtype=torch.int32), unpack_pivots=False)


def test_ranks_of_matrices_that_are_expanded() -> None:
    """A rank and singular values belong to a matrix, of which there may be fewer than of sides."""
    matrices, sides = torch.randn(1, 2, 5, 3), torch.randn(4, 1, 5, 2)
    result = linalg.lstsq(matrices, sides, driver="gelsd")
    assert result.solution.shape == (4, 2, 3, 2) and result.residuals.shape == (4, 2, 2)
    assert result.rank.tolist() == [[3, 3]] and result.singular_values.shape == (1, 2, 3)
    for wrong in (sides[0], sides[0, 0], sides[..., 0]):
        with pytest.raises(RuntimeError, match="neither vectors nor matrices"):
            linalg.lstsq(matrices, wrong)


@pytest.mark.filterwarnings("ignore:An output with one or more")
@pytest.mark.parametrize("size", [0, 7])
def test_resized_targets_have_the_strides_of_results(size: int) -> None:
    target = torch.empty(size)
    linalg.inv(PAIR, out=target)
    assert target.stride() == (1, 2)
    target = torch.empty(size)
    torch.exp(PAIR.t(), out=target)
    assert target.stride() == (1, 2)
    target = torch.empty(size)
    torch.linalg.householder_product(PAIR, torch.zeros(2), out=target)
    assert target.stride() == ((2, 1) if size else (1, 2))
    target = torch.empty(size)
    torch.cholesky(PAIR @ PAIR.t(), out=target)
    assert target.stride() == (2, 1)
