"""The public random operators against PyTorch: same bits, and the same state afterwards."""

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

SHAPES = [(3,), (100,), (33, 7), (), (0,), (16,), (40000,)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
FILLS = [
    "uniform_(-2,3)", "normal_(1,2)", "exponential_()", "exponential_(2.5)", "cauchy_()",
    "log_normal_()", "geometric_(0.3)", "bernoulli_()", "bernoulli_(0.2)", "random_()",
    "random_(7)", "random_(-3,9)",
]  # fmt: skip
CASES = [
    "t.rand(5,dtype=t.complex64)",
    "t.randn(5,dtype=t.complex64)",
    "t.randn(50,dtype=t.complex128)",
    "t.randperm(10)",
    "t.randperm(0)",
    "t.randperm(1000)",
    "t.randperm(10,dtype=t.int32)",
    "t.zeros(4,dtype=t.int64).random_(-2**63,None)",
    "t.zeros(4,dtype=t.int64).random_(5,None)",
    "t.zeros(4).random_(5,None)",
    "t.normal(t.zeros(20),t.ones(20))",
    "t.normal(t.zeros(20),2.)",
    "t.normal(1.,t.ones(20))",
    "t.normal(1.,2.,(20,))",
    "t.normal(0,1,size=(4,))",
    "t.bernoulli(t.full((9,),0.3))",
    "t.bernoulli(t.full((9,),0.3,dtype=t.float64))",
    "t.bernoulli(t.full((9,),0.3),0.7)",
    "t.full((9,),0.3).bernoulli_(t.full((9,),0.5))",
    "t.full((9,),0.3).bernoulli_(t.full((9,),0.5,dtype=t.float64))",
    "t.poisson(t.full((20,),3.))",
    "t.poisson(t.full((20,),30.,dtype=t.float64))",
    "t._standard_gamma(t.full((20,),3.))",
    "t.multinomial(t.tensor([1.,2,3,4]),2)",
    "t.multinomial(t.tensor([1.,2,3,4]),1)",
    "t.multinomial(t.tensor([[1.,2,3,4],[4,3,2,1]]),10,replacement=True)",
    "t.multinomial(t.tensor([[1.,2,3,4],[4,3,2,1]]),10,True,generator=t.Generator().manual_seed(5))",
    "t.rand(3,generator=t.Generator().manual_seed(5))",
    "t.rand(3,generator=5)",
    "t.rand(2,3,requires_grad=True)",
    "t.rand(3,dtype=t.int64)",
    "t.normal(0.,-1.,(3,))",
    "t.empty(3).uniform_(2,1)",
    "t.empty(3).bernoulli_(2)",
    "t.empty(3).exponential_(-1)",
    "t.empty(3).geometric_(0)",
    "t.empty(3).cauchy_(0,-1)",
    "t.empty(3).log_normal_(0,-1)",
    "t.empty(3,dtype=t.int64).normal_()",
    "t.randint(3,3,(2,))",
    "t.randperm(-1)",
    "t.empty(3,dtype=t.uint8).random_(0,300)",
    "t.bernoulli(t.tensor([2.]))",
    "t.poisson(t.tensor([-2.]))",
    "t.bernoulli(t.tensor([1]))",
    "t.empty(3,dtype=t.int64).uniform_()",
    "t.Generator().manual_seed('a')",
    "t.Generator().manual_seed(2**64)",
    "t.Generator().manual_seed(-3).get_state()",
    "t.Generator().set_state(t.zeros(3,dtype=t.uint8))",
    "t.rand(4,3,dtype=t.float64,out=t.zeros(4,3,dtype=t.float64))",
    "t.randn(size=(3,))",
    "t.rand(-1)",
    "t.rand(2,2,out=t.zeros(2,2))",
    "t.rand([2,3])",
]
LAYOUTS = [
    "t.zeros(6,40,dtype=t.{}).t()",
    "t.zeros(3,4,5,dtype=t.{}).permute(2,0,1)",
    "t.zeros(6,40,dtype=t.{}).narrow(1,3,20)",
    "t.zeros(6,40,dtype=t.{})[:, ::2]",
    "t.zeros(6,1,5,dtype=t.{}).expand(6,4,5)",
]
LIKE = [
    "t.rand_like({})", "t.randn_like({})", "t.randint_like({}, 9)", "t.bernoulli({}, 0.3)",
    "t.nn.functional.dropout({} + 1, 0.25)", "t.nn.functional.alpha_dropout({} + 1, 0.25, True)",
]  # fmt: skip


def outcome(code, library):
    library.manual_seed(1234)
    try:
        result = eval(code, {"t": library})
    except Exception as error:
        return error
    return result


def compare(code):
    expected, found = outcome(code, torch), outcome(code, flambeau)
    if isinstance(expected, Exception):
        assert type(found) is type(expected), f"{found!r} instead of {expected!r}"
        return
    assert not isinstance(found, Exception), repr(found)
    assert str(found.dtype) == str(expected.dtype)
    assert found.stride() == expected.stride()
    half = expected.dtype in (torch.float16, torch.bfloat16)
    assert (found.float() if half else found).tolist() == (
        expected.float() if half else expected
    ).tolist()
    assert flambeau.get_rng_state().tolist() == torch.get_rng_state().tolist()


@pytest.mark.parametrize("code", CASES)
def test_case(code):
    compare(code)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_floating(shape, dtype):
    compare(f"t.rand({shape}, dtype=t.{dtype})")
    compare(f"t.randn({shape}, dtype=t.{dtype})")
    for fill in FILLS:
        compare(f"t.zeros({shape}, dtype=t.{dtype}).{fill}")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_integers(shape, dtype):
    for fill in ("random_()", "random_(1)", "bernoulli_(0.3)"):
        compare(f"t.zeros({shape}, dtype=t.{dtype}).{fill}")
    compare(f"t.randint(0, 2, {shape}, dtype=t.{dtype})")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_of_memory(layout, dtype):
    x = layout.format(dtype)
    for fill in ("uniform_()", "normal_()", "bernoulli_(0.4)", "random_(100)", "exponential_()"):
        if "expand" not in layout:
            compare(f"({x}).{fill}")
    for like in LIKE:
        if "alpha" not in like or dtype == "float64":  # others round at other places
            compare(like.format(x))
