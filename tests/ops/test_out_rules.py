"""What `out=` may be: the rules that definitions state, and the operators that state them."""

from __future__ import annotations

from itertools import islice

import pytest

import flambeau as torch
from flambeau.language.definition import OUT_RULES, op
from flambeau.language.samples import Sample
from tests.ops.exercise import run
from tests.ops.inputs import arguments, leaves, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED

STRICT = [
    key
    for key, entry in TABLE.items()
    if entry.definition.options.out_rule in ("exact", "separate")
    and key not in UNINITIALISED
    and not entry.mutating
]
EYE = torch.eye(2)


def empty(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype)


def outs_of(results: list[torch.Tensor], wrong: int) -> list[torch.Tensor]:
    """Empty tensors of the results' dtypes, but for one of a wider dtype."""
    wide = torch.complex128
    assert results[wrong].dtype is not wide
    return [empty(wide if n == wrong else r.dtype) for n, r in enumerate(results)]


def first_sample(key: str) -> Sample:
    return next(islice(TABLE[key].samples(), 1))


@pytest.mark.parametrize("key", STRICT)
def test_strict_operators_refuse_another_dtype(key: str) -> None:
    """Even one that would lose nothing, for each of the results; their own dtype is fine."""
    sample = first_sample(key)
    plain = run(TABLE[key], sample, "f32")
    results = leaves(plain)
    many = isinstance(plain, (tuple, list))
    for number in range(len(results)):
        args, kwargs = arguments(sample, tensor_builder(torch), "f32")
        outs = outs_of(results, number)
        with pytest.raises(RuntimeError, match="can't be written to an out tensor of type"):
            TABLE[key].function(*args, **kwargs, out=tuple(outs) if many else outs[0])
    outs = [empty(r.dtype) for r in results]
    TABLE[key].function(*args, **kwargs, out=tuple(outs) if many else outs[0])
    assert [o.shape for o in outs] == [r.shape for r in results]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cross(x, x, out=x),
        lambda x: torch.take(x, torch.tensor([0, 1, 2]), out=x),
        lambda x: torch.index_select(x, 0, torch.tensor([0, 1, 2]), out=x),
        lambda x: torch.gather(x, 0, torch.tensor([0, 1, 2]), out=x),
        lambda x: torch.take_along_dim(x, torch.tensor([0, 1, 2]), 0, out=x),
        lambda x: torch.masked_select(x, x > 0, out=x),
        lambda x: torch.masked_select(x, x > 0, out=x[1:]),
    ],
)
def test_separate_operators_refuse_memory_that_they_read(call) -> None:
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        call(torch.tensor([1.0, 2.0, 3.0]))


def test_exact_operators_write_over_what_they_read() -> None:
    x = torch.tensor([3.0, 1.0, 2.0])
    torch.sort(x, out=(x, torch.empty(3, dtype=torch.int64)))
    assert x.tolist() == [1.0, 2.0, 3.0]
    least, most = torch.aminmax(x, out=(x[0], x[2]))
    assert (least.item(), most.item()) == (1.0, 3.0)


def test_a_cast_that_loses_a_kind_of_number_is_refused() -> None:
    x = torch.tensor([1.5, 2.5])
    assert torch.exp(x, out=empty(torch.float64)).dtype is torch.float64
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
        torch.exp(x, out=empty(torch.int64))
    with pytest.raises(TypeError, match="can't be cast"):
        torch.cat([x, x], out=empty(torch.int64))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.fft.irfft(x, out=empty(torch.complex64))
    assert torch.fft.irfft(x, out=empty(torch.float64)).dtype is torch.float64


def test_truth_is_bool_or_uint8() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert torch.all(x, 0, out=empty(torch.uint8)).tolist() == [1, 0]
    assert torch.any(x.byte(), 0, out=empty(torch.bool)).tolist() == [True, True]
    with pytest.raises(RuntimeError, match="type Char"):
        torch.all(x, out=empty(torch.int8))


def test_what_sums_computes_in_the_dtype_of_out() -> None:
    x = torch.tensor([1.5, 2.5, 300.0])
    assert torch.sum(x, 0, out=empty(torch.int32)).item() == 303  # of 1, 2 and 300
    assert torch.cumsum(x, 0, out=empty(torch.int64)).tolist() == [1, 3, 303]
    assert torch.prod(x, 0, out=empty(torch.bool)).item() is True
    third = torch.full((3,), 1 / 3).double()
    assert torch.mean(third, 0, out=empty(torch.float32)).item() == third.float().mean().item()
    for name in ("sum", "prod", "mean", "nansum", "nanmean", "cumsum", "cumprod"):
        with pytest.raises(RuntimeError, match="does not match dtype of out parameter"):
            getattr(torch, name)(x, 0, dtype=torch.float64, out=empty(torch.float32))
    with pytest.raises(RuntimeError, match="does not match dtype of out parameter"):
        torch.empty(2, dtype=torch.float64, out=empty(torch.float32))


def test_any_dtype() -> None:
    assert torch.bernoulli(torch.ones(2), out=empty(torch.int32)).tolist() == [1, 1]
    packed, _ = torch.lu(2 * EYE, out=(empty(torch.int32), empty(torch.int64)))
    assert packed.tolist() == [[2, 0], [0, 2]]


def test_functions_in_python_follow_the_rules() -> None:
    """`linalg.inv` and others are Python functions that know nothing of `out=`."""
    result = torch.linalg.inv(2 * EYE, out=empty(torch.float32))
    assert result.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    with pytest.raises(RuntimeError, match="type Double"):
        torch.linalg.inv(EYE, out=empty(torch.float64))
    with pytest.raises(TypeError, match="must be Tensor, got tuple"):
        torch.linalg.inv(EYE, out=(empty(torch.float32),))
    with pytest.raises(TypeError, match="must be tuple of Tensors, got"):
        torch.nonzero(EYE, as_tuple=True, out=empty(torch.int64))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.linalg.inv(torch.eye(2, requires_grad=True), out=empty(torch.float32))
    assert torch.nonzero(EYE, out=empty(torch.int64)).tolist() == [[0, 0], [1, 1]]


def test_statistics_of_batch_norm_are_written() -> None:
    x = torch.tensor([[1.0], [3.0]])
    outs = tuple(empty(torch.float32) for _ in range(3))
    torch.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0, out=outs)
    assert [o.tolist() for o in outs] == [[[-1.0], [1.0]], [2.0], [1.0]]


def test_a_definition_can_not_state_another_rule() -> None:
    with pytest.raises(TypeError, match="unknown out='exactly'"):
        op("_never_defined(Tensor self) -> Tensor", out="exactly")(lambda self: self)
    assert {e.definition.options.out_rule for e in TABLE.values()} >= set(OUT_RULES)


@pytest.mark.parametrize(
    "call",
    [
        lambda out: torch.tensor([1.0], out=out),
        lambda out: torch.as_tensor([1.0], out=out),
        lambda out: EYE.new_empty((2,), out=out),
        lambda out: torch.is_same_size(EYE, EYE, out=out),
        lambda out: torch.initial_seed(out=out),
        lambda out: EYE.clone().unsqueeze_(0, out=out),
    ],
)
def test_functions_that_compute_no_tensor_take_no_out(call) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument:? 'out'"):
        call(empty(torch.float32))
