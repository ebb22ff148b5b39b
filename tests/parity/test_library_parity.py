# ruff: noqa: UP007, UP045, B008 - annotations in every form that programs have
"""`torch.library`: the same definitions in both frameworks give the same schemas and results."""

import typing

import pytest

import flambeau

oracle = pytest.importorskip("torch")
oracle_library = pytest.importorskip("torch.library")


def definitions(torch):
    """Functions whose annotations are read."""
    T = torch.Tensor

    def a(x: T, y: T | None, n: int = 3, *, s: float = 1.5, name: str | None = None) -> T: ...

    def b(xs: list[T], sizes: list[int], flag: bool = True) -> tuple[T, T]: ...

    def c(x: typing.Optional[T], d: torch.dtype = torch.int8) -> list[T]: ...

    def d(
        x: T, k: typing.Union[int, float, bool] = 2.5, w: "list[float] | None" = None
    ) -> None: ...

    def e(x, y: T) -> T: ...

    def f(x: T, *rest: T) -> T: ...

    def g(x: dict) -> T: ...

    def h(x: T): ...

    def i(x: T) -> dict: ...

    def j(
        x: T, y: typing.Sequence[typing.Optional[T]], z: torch.device = torch.device("cpu")
    ) -> int: ...

    return [a, b, c, d, e, f, g, h, i, j]


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("mutated", [(), ("x",), "unknown"])
def test_inferred_schemas(number, mutated):
    def outcome(torch):
        function = definitions(torch)[number]
        try:
            return torch.library.infer_schema(function, mutates_args=mutated)
        except ValueError as error:
            return (
                str(error).partition(".")[0].replace("flambeau.", "torch.").partition("{")[0][:60]
            )

    assert outcome(flambeau) == outcome(oracle)


SCHEMAS = [
    "(Tensor x, float s=2.0) -> Tensor",
    "(Tensor(a!) x, int[] n, *, bool b=True) -> ()",
    "(Tensor x, Tensor? y=None, str m='sum', SymInt k=1) -> (Tensor, Tensor)",
    "(Tensor[] xs, float eps=1e-5) -> Tensor[]",
    "(Tensor x) -> (Tensor values, Tensor indices)",
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_schemas_print_alike(number):
    def shown(torch):
        name = f"parity_schemas::f{number}"
        torch.library.define(name, SCHEMAS[number])
        schema = getattr(torch.ops.parity_schemas, f"f{number}").default._schema
        arguments = [(a.name, a.default_value, a.kwarg_only) for a in schema.arguments]
        return str(schema), arguments, [r.name for r in schema.returns], schema.is_mutable

    mine, theirs = shown(flambeau), shown(oracle)
    assert mine[0] == theirs[0]
    assert mine[1] == theirs[1]
    assert [x or "" for x in theirs[2]] == mine[2] and mine[3] == theirs[3]


def program(torch):
    """Definitions, calls, gradients and batches; returns plain lists."""
    found = []

    @torch.library.custom_op("parity_program::mix", mutates_args=())
    def mix(x: torch.Tensor, y: torch.Tensor, k: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
        return x * y * k, x - y

    @mix.register_fake
    def _(x, y, k=2.0):
        return torch.empty_like(x), torch.empty_like(x)

    def setup(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y)

    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y * ctx.k + b, a * x * ctx.k - b, None

    mix.register_autograd(backward, setup_context=setup)

    @mix.register_vmap
    def _(info, in_dims, x, y, k=2.0):
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x
        y = y.movedim(in_dims[1], 0) if in_dims[1] is not None else y
        return mix(x, y.expand_as(x).contiguous(), k), (0, 0)

    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = torch.full((2, 3), 0.5, requires_grad=True)
    a, b = mix(x, y, 3.0)
    (a.sin() + b.square()).sum().backward()
    found += [a.tolist(), b.tolist(), x.grad.tolist(), y.grad.tolist()]
    p, q = torch.vmap(mix, in_dims=(1, 0))(x.detach(), torch.ones(3, 2))
    found += [p.tolist(), q.tolist(), list(mix(x.to("meta"), y.to("meta"))[1].shape)]
    found.append(torch.library.opcheck(mix, (x.detach().clone(), y.detach().clone()),
                                       test_utils=("test_schema", "test_faketensor")))  # fmt: skip
    return found


def test_program():
    for mine, theirs in zip(program(flambeau), program(oracle), strict=True):
        if isinstance(mine, dict):
            assert mine == theirs
        else:
            assert list(flattened(mine)) == pytest.approx(list(flattened(theirs)), rel=1e-5)


def flattened(values):
    for value in values:
        yield from flattened(value) if isinstance(value, list) else [value]
