"""`autocast` as a context manager and decorator: dtypes, nesting, threads, gradients, weights."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F  # noqa: N812

ONES = torch.ones(2, 2)


def product_dtype(x: Any = ONES, y: Any = ONES) -> Any:
    return (x @ y).dtype


def test_context_and_decorator() -> None:
    @torch.autocast("cpu", torch.float16)
    def run() -> Any:
        """Documented."""
        return product_dtype()

    assert product_dtype() == torch.float32
    with torch.autocast("cpu"):
        assert product_dtype() == torch.bfloat16
        assert run() == torch.float16
        assert product_dtype() == torch.bfloat16
    assert run.__doc__ == "Documented."
    assert product_dtype() == torch.float32


def test_nesting_and_states() -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.autocast("cpu", enabled=False):
            assert not torch.is_autocast_enabled("cpu")
            assert product_dtype() == torch.float32
            with torch.autocast("cpu"):  # the dtype of the regions around
                assert product_dtype() == torch.float16
        assert torch.get_autocast_dtype("cpu") == torch.float16
        assert product_dtype() == torch.float16
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_one_object_entered_again_and_after_an_error() -> None:
    region = torch.autocast("cpu")
    with pytest.raises(RuntimeError), region, region:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not torch.is_autocast_enabled("cpu")
    with region:
        assert product_dtype() == torch.bfloat16
    assert product_dtype() == torch.float32


def test_threads_have_states_of_their_own() -> None:
    states = []

    def ask() -> None:
        states.append((torch.is_autocast_enabled("cpu"), product_dtype()))
        with torch.autocast("cpu", torch.float16):
            states.append(product_dtype())

    with torch.autocast("cpu"):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert product_dtype() == torch.bfloat16
    assert states == [(False, torch.float32), torch.float16]


@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16])
def test_three_kinds_of_operators(lower: Any) -> None:
    x = torch.ones(2, 2)
    half = x.to(lower)
    with torch.autocast("cpu", lower):
        assert F.linear(x, x).dtype == lower
        assert x.mm(half).dtype == lower  # mixed operands are cast alike
        assert torch.mv(x, x[0]).dtype == torch.float32  # not on PyTorch's list for the CPU
        assert F.mse_loss(half, half).dtype == torch.float32
        assert half.prod().dtype == torch.float32
        assert torch.cat([x, half]).dtype == torch.float32
        assert torch.cat([half, half]).dtype == lower
        assert (x + half).dtype == torch.float32  # promotes as ever
        assert half.exp().dtype == lower
        assert torch.einsum("ij,jk->ik", x, x).dtype == lower
        assert torch.einsum("i,j->ij", x[0], x[0]).dtype == torch.float32


def test_what_is_not_cast() -> None:
    double, whole = ONES.double(), ONES.long()
    with torch.autocast("cpu"):
        assert product_dtype(double, double) == torch.float64
        assert product_dtype(whole, whole) == torch.int64
        assert product_dtype(ONES.to("meta"), ONES.to("meta")) == torch.float32
        with pytest.raises(RuntimeError, match="dtype"):
            double @ ONES
        out = torch.empty(2, 2)
        torch.mm(ONES, ONES, out=out)
        assert out.dtype == torch.float32
        target = torch.zeros(2, 2)
        with pytest.raises(RuntimeError, match="dtype"):
            target.addmm_(ONES.bfloat16(), ONES)
        assert target.addmm_(ONES, ONES).dtype == torch.float32
        with pytest.raises(RuntimeError, match="prioritize"):
            torch.cat([ONES.half(), ONES.half()])


def test_results_are_those_of_explicit_casts() -> None:
    x, w, b = torch.randn(5, 7), torch.randn(3, 7), torch.randn(3)
    with torch.autocast("cpu"):
        found = F.linear(x, w, b)
        loss = F.mse_loss(found, torch.zeros(5, 3))
    expected = F.linear(x.bfloat16(), w.bfloat16(), b.bfloat16())
    assert torch.equal(found, expected)
    assert torch.equal(loss, F.mse_loss(expected.float(), torch.zeros(5, 3)))


def test_gradients_arrive_in_the_parameters_dtype() -> None:
    x, w = torch.randn(4, 3), torch.randn(3, 2, requires_grad=True)
    with torch.autocast("cpu"):
        y = x @ w
    y.sum().backward()
    expected = (x.bfloat16().mT @ torch.ones(4, 2, dtype=torch.bfloat16)).float()
    assert w.grad.dtype == torch.float32
    assert torch.equal(w.grad, expected)


def cast_of(y: Any) -> Any:
    """The node of the cast of a product's second operand."""
    return y.grad_fn.next_functions[-1][0]


def test_parameters_are_cast_once_per_region() -> None:
    x, w = torch.randn(2, 2), torch.randn(2, 2, requires_grad=True)
    with torch.autocast("cpu"):
        first, second = x @ w, x @ w
        with torch.autocast("cpu", enabled=False):
            pass
        third = x @ w
    cast = cast_of(first)
    assert cast_of(second) is cast
    assert cast_of(third) is cast  # until the outermost region ends
    with torch.autocast("cpu"):
        assert cast_of(x @ w) is not cast
    with torch.autocast("cpu", cache_enabled=False):
        first, second = x @ w, x @ w
    assert cast_of(first) is not cast_of(second)


def test_gradients_of_a_shared_cast_are_summed_in_the_lower_dtype() -> None:
    w = torch.full((1, 1), 1.0, requires_grad=True)
    big, small = torch.full((1, 1), 256.0), torch.full((1, 1), 1.0)
    with torch.autocast("cpu"):
        (big @ w + small @ w).sum().backward()
    assert w.grad.item() == 256.0  # 257 is no bfloat16
    w.grad = None
    with torch.autocast("cpu", cache_enabled=False):
        (big @ w + small @ w).sum().backward()
    assert w.grad.item() == 257.0


def test_a_written_parameter_is_cast_again() -> None:
    """PyTorch goes on with the cast from before the write, in the same region."""
    w = torch.ones(2, 2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1.0)
    with torch.autocast("cpu"):
        (ONES @ w).sum().backward()
        optimizer.step()
        assert torch.equal((ONES @ w).detach(), torch.full((2, 2), -2.0, dtype=torch.bfloat16))
        w.data.fill_(4.0)
        assert (ONES @ w)[0, 0].item() == 8.0


def test_casts_without_gradients_do_not_stay() -> None:
    w = torch.ones(2, 2, requires_grad=True)
    for quiet in (torch.no_grad, torch.inference_mode):
        with torch.autocast("cpu"):
            with quiet():
                ONES @ w
            y = ONES @ w
        assert y.requires_grad
        y.sum().backward()
    assert torch.equal(w.grad, torch.full((2, 2), 4.0))


def test_two_backwards_in_one_region() -> None:
    w = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu"):
        for _ in range(3):
            (ONES @ w).sum().backward()
    assert torch.equal(w.grad, torch.full((2, 2), 6.0))


def test_backward_runs_in_the_dtypes_of_forward() -> None:
    """PyTorch casts in backward, too, where autocast is on while it runs; here forward decides."""
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
    (a @ b).sum().backward()
    expected = a.grad
    a.grad = None
    y = (a @ b).sum()
    with torch.autocast("cpu"):
        y.backward()
    assert torch.equal(a.grad, expected)


def test_functions_of_users() -> None:
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            (x,) = ctx.saved_tensors
            return grad @ x.mT + x.mT @ grad

    x = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        y = Product.apply(x)
    assert y.dtype == torch.float16
    y.sum().backward()
    with torch.autocast("cpu"):
        Product.apply(x.detach().requires_grad_()).sum().backward()
    y = Product.apply(x)
    with torch.autocast("cpu"):
        y.sum().backward()
    assert seen == [(True, torch.float16), (True, torch.bfloat16), (False, torch.bfloat16)]


def test_inputs_of_functions_are_cast() -> None:
    kinds = []

    class Quiet(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx: Any, x: Any, others: Any, scale: float) -> Any:
            kinds.append((x.dtype, [o.dtype for o in others], torch.is_autocast_enabled("cpu")))
            return x * scale

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, None, None

    half = ONES.half().requires_grad_()
    with torch.autocast("cpu"):
        Quiet.apply(half, [ONES.half(), ONES.double(), ONES.long()], 2.0).sum().backward()
    Quiet.apply(half, [ONES.half()], 2.0)
    assert kinds[0] == (torch.float32, [torch.float32, torch.float64, torch.int64], False)
    assert kinds[1] == (torch.float16, [torch.float16], False)
    assert half.grad.dtype == torch.float16


def test_transformations() -> None:
    x = torch.randn(3, 2, 2)
    with torch.autocast("cpu"):
        assert torch.vmap(torch.mm)(x, x).dtype == torch.bfloat16
        assert torch.equal(torch.vmap(torch.mm)(x, x), torch.stack([a @ a for a in x]))
        assert torch.func.grad(lambda a: (a @ a).sum())(x[0]).dtype == torch.float32
        assert torch.func.jvp(lambda a: a @ a, (x[0],), (x[0],))[1].dtype == torch.bfloat16
        assert torch.func.jacrev(lambda a: a @ a)(x[0]).dtype == torch.float32
        assert torch.func.jacfwd(lambda a: a @ a)(x[0]).dtype == torch.bfloat16


def test_modes_and_subclasses_see_the_call_first() -> None:
    class Tagged(torch.Tensor):
        pass

    tagged = torch.ones(2, 2).as_subclass(Tagged)
    with torch.autocast("cpu"):
        result = tagged @ tagged
    assert type(result) is Tagged
    assert result.dtype == torch.bfloat16

    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append([x.dtype for x in args if isinstance(x, torch.Tensor)])
            return func(*args, **(kwargs or {}))

    with torch.autocast("cpu"), Mode():
        assert torch.mm(ONES, ONES).dtype == torch.bfloat16
    assert seen[0] == [torch.float32, torch.float32]


def test_sparse_and_fake_tensors() -> None:
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    with torch.autocast("cpu"):
        assert (torch.eye(2).to_sparse() @ ONES).dtype == torch.bfloat16
        with FakeTensorMode():
            fake = torch.ones(2, 2)
            assert (fake @ fake).dtype == torch.bfloat16


def test_modules() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)
    )
    with torch.autocast("cpu"):
        y = model(torch.randn(2, 3, 4, 4))
        loss = F.cross_entropy(y, torch.tensor([1, 2]))
    assert (y.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    loss.backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


def test_unsupported_regions_warn() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"):
        region = torch.autocast("cuda")
    with region:
        assert product_dtype() == torch.float32
    with pytest.warns(UserWarning, match="dtype is not supported"):
        region = torch.autocast("cpu", torch.float32)
    with region:
        assert product_dtype() == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.autocast("cuda", enabled=False)
        torch.autocast("cpu", torch.float64, enabled=False)
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(torch.device("cpu"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="unsupported scalarType"):
        torch.autocast("meta")
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        torch.autocast("toaster")


def test_older_names_warn() -> None:
    with pytest.warns(FutureWarning, match="torch.cpu.amp.autocast"):
        region = torch.cpu.amp.autocast(True, torch.float16)
    with region:
        assert product_dtype() == torch.float16
    with pytest.warns(FutureWarning), pytest.warns(UserWarning, match="CUDA"):
        torch.cuda.amp.autocast()
    with pytest.warns(FutureWarning, match="custom_fwd"):
        torch.cuda.amp.custom_fwd(print)
    with pytest.warns(DeprecationWarning, match="is_autocast_cpu_enabled"):
        assert torch.is_autocast_cpu_enabled() is False
    with pytest.warns(DeprecationWarning, match="get_autocast_gpu_dtype"):
        assert torch.get_autocast_gpu_dtype() == torch.float16
    assert torch.cuda.amp.common.amp_definitely_not_available()


def test_states_of_other_devices_are_kept() -> None:
    assert torch.is_autocast_enabled() is False
    torch.set_autocast_enabled(True)
    assert torch.is_autocast_enabled("cuda")
    assert product_dtype() == torch.float32
    torch.set_autocast_enabled("cuda", False)
    torch.set_autocast_dtype("xpu", torch.bfloat16)
    assert torch.get_autocast_dtype("xpu") == torch.bfloat16
    torch.set_autocast_dtype("xpu", torch.float16)
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0
    with pytest.raises(TypeError, match="must be bool"):
        torch.set_autocast_enabled("cpu", 1)
    with pytest.raises(TypeError, match="must be str"):
        torch.is_autocast_enabled(1)


def test_a_region_without_with() -> None:
    torch.set_autocast_enabled("cpu", True)
    try:
        assert product_dtype() == torch.bfloat16
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()


def test_operators_of_users() -> None:
    seen = []

    @torch.library.custom_op("amp_tests::sum_of", mutates_args=())
    def sum_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.dtype, y.dtype, torch.is_autocast_enabled("cpu")))
        return x + y

    torch.library.register_autocast("amp_tests::sum_of", "cpu", torch.float16)
    with torch.autocast("cpu"):
        sum_of(ONES, ONES.double())
    sum_of(ONES, ONES)
    assert seen[0] == (torch.float16, torch.float64, False)
    assert seen[1] == (torch.float32, torch.float32, False)


def test_methods_of_tensors() -> None:
    lower = (torch.float16, torch.bfloat16)
    assert ONES._autocast_to_reduced_precision(True, True, *lower).dtype == torch.bfloat16
    assert ONES._autocast_to_reduced_precision(True, False, *lower) is ONES
    assert ONES.half()._autocast_to_full_precision(True, True).dtype == torch.float32
    assert ONES.half()._autocast_to_full_precision(True, False).dtype == torch.float16
    assert ONES.double()._autocast_to_full_precision(True, True).dtype == torch.float64
