"""Operators that users define: eager, differentiated, batched, on meta tensors and compiled."""

import warnings

import pytest

import flambeau as torch

NAMES = iter(range(1 << 30))


def fresh():
    """A name that no other test takes."""
    return f"tests_library::f{next(NAMES)}"


def make_scaled(fake=True, autograd=True):
    @torch.library.custom_op(fresh(), mutates_args=())
    def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        scaled.calls += 1
        return torch.tensor([v * by for v in x.flatten().tolist()]).reshape(x.shape)

    scaled.calls = 0
    if fake:
        scaled.register_fake(lambda x, by=2.0: torch.empty_like(x))
    if autograd:

        def setup(ctx, inputs, output):
            ctx.by = inputs[1]

        scaled.register_autograd(lambda ctx, grad: (grad * ctx.by, None), setup_context=setup)
    return scaled


X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


class TestEager:
    def test_results_and_defaults(self):
        scaled = make_scaled()
        assert torch.equal(scaled(X), X * 2)
        assert torch.equal(scaled(X, by=3.0), X * 3)

    def test_lookup(self):
        scaled = make_scaled()
        name = scaled._name
        packet = getattr(torch.ops.tests_library, name)
        assert torch.equal(packet(X), X * 2)
        assert packet.overloads() == ["default"]
        text = f"tests_library::{name}(Tensor x, float by=2.) -> Tensor"
        assert str(packet.default._schema) == text
        assert repr(packet) == f"<OpOverloadPacket(op='tests_library.{name}')>"
        with pytest.raises(AttributeError, match="has no attribute 'nowhere'"):
            _ = torch.ops.tests_library.nowhere
        with pytest.raises(AttributeError, match="no overload name 'other'"):
            _ = packet.other

    @pytest.mark.parametrize(
        "args, kwargs, text",
        [
            ((1,), {}, "Expected a value of type 'Tensor' for argument 'x'"),
            ((), {}, "is missing value for argument 'x'"),
            ((X, 1.0, 2.0), {}, "expected at most 2 argument"),
            ((X,), {"to": 1.0}, "Unknown keyword argument 'to'"),
        ],
    )
    def test_wrong_arguments(self, args, kwargs, text):
        with pytest.raises(RuntimeError, match=text):
            make_scaled()(*args, **kwargs)

    def test_result_must_be_new(self):
        for function in (lambda x: x, lambda x: x[:1]):
            op = torch.library.custom_op(
                fresh(), function, mutates_args=(), schema="(Tensor x) -> Tensor"
            )
            with pytest.raises(RuntimeError, match="must not also be an input"):
                op(torch.ones(2))

    def test_writes_are_counted(self):
        @torch.library.custom_op(fresh(), mutates_args={"x"})
        def clear(x: torch.Tensor) -> None:
            x.zero_()

        x = torch.ones(3)
        version = x._version
        assert clear(x) is None and x.tolist() == [0, 0, 0] and x._version > version
        with pytest.raises(RuntimeError, match="non-functional operator"):
            clear.register_autograd(lambda ctx: None)

    def test_device_kernels(self):
        scaled = make_scaled()
        scaled.register_kernel("cpu", lambda x, by: x + 100)
        assert torch.equal(scaled(X), X + 100)
        with scaled.set_kernel_enabled("cpu", False):
            assert torch.equal(scaled(X), X * 2)
        assert torch.equal(scaled(X), X + 100)
        other = torch.library.custom_op(
            fresh(),
            lambda x: x,
            mutates_args=(),
            device_types="cuda",
            schema="(Tensor x) -> Tensor",
        )
        with pytest.raises(NotImplementedError, match="'CPU' backend"):
            other(X)

    def test_contradicting_mutations(self):
        with pytest.raises(ValueError, match="make these consistent"):
            torch.library.custom_op(
                fresh(), lambda x: x, mutates_args=("x",), schema="(Tensor x) -> Tensor"
            )


class TestMeta:
    def test_sizes(self):
        y = make_scaled()(X.to("meta"))
        assert y.is_meta and y.shape == X.shape

    def test_without_fake(self):
        with pytest.raises(RuntimeError, match="There was no fake impl registered"):
            make_scaled(fake=False)(X.to("meta"))

    def test_sizes_that_only_data_tell(self):
        op = torch.library.custom_op(
            fresh(), lambda x: x.nonzero(), mutates_args=(), schema="(Tensor x) -> Tensor"
        )

        @op.register_fake
        def _(x):
            count = torch.library.get_ctx().new_dynamic_size()
            return x.new_empty(count, x.ndim, dtype=torch.int64)

        with pytest.raises(RuntimeError, match="data-dependent output shape"):
            op(X.to("meta"))
        assert torch.compile(lambda x: op(x) + 1)(X).shape == (6, 2)


class TestTransformed:
    def test_gradient(self):
        scaled = make_scaled()
        x = X.clone().requires_grad_()
        scaled(x, 3.0).sum().backward()
        assert torch.equal(x.grad, torch.full_like(X, 3.0))
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            make_scaled(autograd=False)(x).sum().backward()

    def test_lists(self):
        @torch.library.custom_op(fresh(), mutates_args=())
        def all_scaled(xs: list[torch.Tensor], by: int) -> list[torch.Tensor]:
            return [x * by for x in xs]

        seen = []

        def backward(ctx, grads):
            seen.append(ctx.needs_input_grad)
            return [g * 5 for g in grads], None

        all_scaled.register_autograd(backward)
        x = X.clone().requires_grad_()
        a, b = all_scaled([x, X], 5)
        (a.sum() + b.sum()).backward()
        assert torch.equal(x.grad, torch.full_like(X, 5.0))
        assert seen == [([True, False], False)]

    def test_keyword_only(self):
        @torch.library.custom_op(fresh(), mutates_args=())
        def scaled(x: torch.Tensor, *, by: float = 2.0) -> torch.Tensor:
            return x * by

        def setup(ctx, inputs, keyword_only_inputs, output):
            ctx.by = keyword_only_inputs["by"]

        scaled.register_autograd(lambda ctx, grad: grad * ctx.by, setup_context=setup)
        x = X.clone().requires_grad_()
        scaled(x, by=3.0).sum().backward()
        assert torch.equal(x.grad, torch.full_like(X, 3.0))

    def test_func(self):
        scaled = make_scaled()
        grad = torch.func.grad(lambda x: scaled(x, 3.0).sum())
        assert torch.equal(grad(X), torch.full_like(X, 3.0))
        out, moved = torch.func.jvp(lambda x: scaled(x, 3.0), (X,), (X + 1,))
        assert torch.equal(out, X * 3) and torch.equal(moved, (X + 1) * 3)
        with pytest.raises(RuntimeError, match="forward AD"):
            torch.func.jvp(make_scaled(autograd=False), (X,), (X,))

    def test_vmap_one_by_one(self):
        scaled = make_scaled()
        with pytest.warns(UserWarning, match="performance drop"):
            found = torch.vmap(lambda x: scaled(x, 3.0))(X)
        assert torch.equal(found, X * 3) and scaled.calls == 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grads = torch.vmap(torch.func.grad(lambda x: scaled(x).sum()))(X)
        assert torch.equal(grads, torch.full_like(X, 2.0))

    def test_vmap_rule(self):
        scaled = make_scaled()

        @scaled.register_vmap
        def _(info, in_dims, x, by):
            assert info.batch_size == 3 and in_dims == (0, None)
            return scaled(x, by).movedim(0, 1), 1

        assert torch.equal(torch.vmap(scaled, in_dims=1, out_dims=1)(X), X * 2)
        assert scaled.calls == 1


class TestCompiled:
    def test_runs_at_its_call_with_equal_bits(self):
        scaled = make_scaled()

        def function(x):
            return scaled(x.sin() * 2, 3.0).cos() + 1

        compiled = torch.compile(function, fullgraph=True)
        assert torch.equal(compiled(X), function(X))
        assert torch.equal(compiled(X.t()), function(X.t()))
        report = torch.compiler.explain(function, X)
        assert [flush.records for flush in report.flushes] == [2, 2]  # before it and behind it

    def test_runs_once_a_call(self):
        scaled = make_scaled()
        compiled = torch.compile(lambda x: scaled(x + 1))
        compiled(X)
        before = scaled.calls
        compiled(X)
        assert scaled.calls == before + 1

    def test_gradients(self):
        scaled = make_scaled()
        x = X.clone().requires_grad_()
        torch.compile(lambda x: scaled(x.sin(), 3.0).sum())(x).backward()
        y = X.clone().requires_grad_()
        scaled(y.sin(), 3.0).sum().backward()
        assert torch.equal(x.grad, y.grad)

    def test_writes(self):
        @torch.library.custom_op(fresh(), mutates_args={"x"})
        def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
            x.add_(y)

        add_to.register_fake(lambda x, y: None)

        def function(x):
            add_to(x, x.sin())
            return x * 3

        a, b = X.clone(), X.clone()
        assert torch.equal(torch.compile(function, fullgraph=True)(a), function(b))
        assert torch.equal(a, b)

    def test_several_results_and_strides(self):
        @torch.library.custom_op(fresh(), mutates_args=())
        def both(x: torch.Tensor, n: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, x.t().contiguous().t()

        @both.register_fake
        def _(x, n=None):
            return torch.empty_like(x), torch.empty_strided(x.shape, (1, x.shape[0]), device="meta")

        for function in (lambda x: both(x * 2), lambda x: both(x * 2)[1:]):
            expected = function(X)
            found = torch.compile(function, fullgraph=True)(X)
            for a, b in zip(found, expected, strict=True):
                assert torch.equal(a, b) and a.stride() == b.stride()

    def test_errors_of_the_kernel(self):
        @torch.library.custom_op(fresh(), mutates_args=())
        def failing(x: torch.Tensor) -> torch.Tensor:
            raise KeyError("deliberate")

        failing.register_fake(torch.empty_like)
        with pytest.raises(KeyError, match="deliberate"):
            torch.compile(lambda x: failing(x) + 1)(X)

    def test_wrong_fake_is_told(self):
        scaled = make_scaled()
        scaled.register_fake(lambda x, by: x.new_empty(4))
        with pytest.raises(RuntimeError, match="register_fake told"):
            torch.compile(lambda x: scaled(x) + 1)(X)

    def test_what_a_kernel_keeps_stays(self):
        kept = []

        @torch.library.custom_op(fresh(), mutates_args=())
        def keeping(x: torch.Tensor) -> torch.Tensor:
            kept.append(x)
            return x.clone()

        keeping.register_fake(torch.empty_like)
        torch.compile(lambda x: keeping(x + 1) * 2)(X)
        assert torch.equal(kept[0], X + 1)


class TestLibrary:
    def test_define_and_implement(self):
        library = torch.library.Library("tests_library_def", "DEF")
        try:
            assert library.define("f(Tensor x, int n=1) -> Tensor") == "f"
            library.define("f.pair(Tensor x, Tensor y) -> (Tensor, Tensor)")
            with pytest.raises(NotImplementedError, match="Could not run"):
                torch.ops.tests_library_def.f(X)
            library.impl("f", lambda x, n=1: x * n, "CompositeImplicitAutograd")
            library.impl("f.pair", lambda x, y: (x + y, x - y), "CPU")
            y = torch.ops.tests_library_def.f(X.clone().requires_grad_(), 3)
            assert torch.equal(y, X * 3) and y.grad_fn is not None
            assert torch.ops.tests_library_def.f.pair(X, X)[1].abs().sum() == 0
            assert torch.ops.tests_library_def.f(X, X)[1].abs().sum() == 0
            with pytest.raises(RuntimeError, match="Only a single TORCH_LIBRARY"):
                torch.library.Library("tests_library_def", "DEF")
            with pytest.raises(RuntimeError, match="multiple times"):
                library.define("f(Tensor x) -> Tensor")
            with pytest.raises(NotImplementedError, match="no fake impl or Meta kernel"):
                torch.ops.tests_library_def.f.pair(X.to("meta"), X.to("meta"))
        finally:
            library._destroy()
        assert not hasattr(torch.ops.tests_library_def, "f")

    def test_functions(self):
        name = fresh()
        torch.library.define(name, "(Tensor x) -> Tensor")

        @torch.library.impl(name, "cpu")
        def _(x):
            return x.detach().sin()

        @torch.library.register_fake(name)
        def _(x):
            return torch.empty_like(x)

        def setup(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos()

        torch.library.register_autograd(name, backward, setup_context=setup)
        op = torch.library.operators.find(name)
        x = X.clone().requires_grad_()
        op(x).sum().backward()
        assert torch.equal(x.grad, X.cos())
        assert set(torch.library.opcheck(op, (x,)).values()) == {"SUCCESS"}

    @pytest.mark.parametrize(
        "call, kind",
        [
            (lambda: torch.library.Library("tests_x", "OTHER"), ValueError),
            (lambda: torch.library.Library("prim", "DEF"), ValueError),
            (lambda: torch.library.define("tests_x::g", "Tensor x -> Tensor"), ValueError),
            (lambda: torch.library.register_fake("tests_x", lambda x: x), ValueError),
            (lambda: torch.library.register_fake("tests_x::h", lambda x: x), RuntimeError),
            (lambda: torch.library.wrap_triton(lambda: None), NotImplementedError),
        ],
    )
    def test_errors(self, call, kind):
        with pytest.raises(kind):
            call()

    def test_operators_of_triton_raise_where_they_launch(self):
        @torch.library.triton_op("tests_triton::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            torch.library.wrap_triton(None)
            return x

        with pytest.raises(NotImplementedError, match="wrap_triton"):
            twice(torch.ones(2))
        twice.register_kernel("cpu")(lambda x: x * 2)
        assert twice(torch.ones(2)).tolist() == [2.0, 2.0]


class TestOpcheck:
    def test_good_operators_pass(self):
        scaled = make_scaled()
        results = torch.library.opcheck(scaled, (X.clone().requires_grad_(), 3.0))
        assert set(results.values()) == {"SUCCESS"} and len(results) == 4

    def test_undeclared_write(self):
        def body(x):
            x.add_(1)
            return x.sin()

        op = torch.library.custom_op(fresh(), body, mutates_args=(), schema="(Tensor x) -> Tensor")
        found = torch.library.opcheck(
            op, (X.clone(),), test_utils="test_schema", raise_exception=False
        )
        assert "not defined as mutable but was mutated" in str(found["test_schema"])

    def test_wrong_sizes(self):
        scaled = make_scaled()
        scaled.register_fake(lambda x, by: x.new_empty(4))
        with pytest.raises(Exception, match="test_faketensor failed with .*Shapes"):
            torch.library.opcheck(scaled, (X,))

    def test_unknown_check(self):
        with pytest.raises(ValueError, match="to be subset of"):
            torch.library.opcheck(make_scaled(), (X,), test_utils="nothing")
