"""Random calls on whole numbers, whose answers are exact: products, convolutions, sums, writes.

`python -m tests.stress.exact_calls 5000` runs so many, each from a seed that repeats it. Operands
are small whole numbers, so no sum is rounded and NumPy's answer (`exact_references`) is the only
right one, in whatever order a kernel adds. Sizes are drawn around the edges of vectors and tiles,
layouts from what a user may pass, and what follows the call from what may be fused with it. Each
call runs in eager mode and compiled, with two sets of sizes; its gradients are checked, too.
Options: `tests.stress.random_programs`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import flambeau as torch
from tests.stress import exact_references as exact
from tests.stress.exact_references import Array, Pullback, Windows
from tests.stress.random_programs import Kind, command

F = torch.nn.functional
EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 130)
FEW = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33)
WORK = 1_500_000  # multiplications of a call
INEXACT = ("float32", "float64", "complex64", "complex128")  # have gradients that are checked
DTYPES = (*INEXACT, *INEXACT, "float16", "bfloat16", "int32", "int64", "int8")
LAYOUTS = ("plain", "plain", "turned", "stepped", "shifted", "spread", "held")
SPREAD = {"spread": -1, "held": -2}  # the dimension along which values are repeated, not stored


@dataclass(frozen=True)
class Part:
    """A call, or what follows it."""

    name: str
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExactCall:
    """A call on operands of two sets of shapes, and what follows it."""

    seed: int
    dtype: str
    steps: tuple[Part, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    layouts: tuple[str, ...]


# ------------------------------------------------------------------------------- operands


def numbers(rng: Any, shape: Sequence[int], dtype: str) -> Array:
    """Whole numbers in the widest dtype of their kind."""
    most = 1 if dtype in ("float16", "bfloat16", "int8") else 3
    value = rng.integers(-most, most + 1, shape)
    if dtype.startswith("complex"):
        value = value + 1j * rng.integers(-most, most + 1, shape)
        return np.asarray(value, np.complex128)
    return np.asarray(value, np.int64 if dtype.startswith("int") else np.float64)


def repeated(value: Array, layout: str) -> Array:
    """The values, the same along the dimension that the layout does not store."""
    dim = SPREAD.get(layout, -9)
    if value.ndim < -dim:
        return value
    return np.broadcast_to(value.take([0], dim), value.shape).copy()


def tensor_of(value: Array, dtype: str, layout: str) -> Any:
    """A tensor of these values, laid out in memory as named."""
    x = torch.from_numpy(np.array(value, order="C")).to(getattr(torch, dtype))
    if layout == "turned":
        order = list(range(x.ndim))[::-1]
        return x.permute(order).contiguous().permute(order)
    if layout == "channels last" and x.ndim in (4, 5):
        order = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=order)
    if layout in SPREAD and x.ndim >= -SPREAD[layout]:
        return x.narrow(SPREAD[layout], 0, 1).expand(x.shape)
    if layout == "stepped" and x.ndim:
        return torch.stack([x, x * 0 + 1], -1)[..., 0]
    if layout == "shifted":
        return torch.cat([x.reshape(-1).new_ones(3), x.reshape(-1)])[3:].view(x.shape)
    return x


def rounded(value: Array, dtype: str) -> Array:
    """The values as this dtype holds them."""
    held = torch.from_numpy(np.array(value, order="C")).to(getattr(torch, dtype))
    return plain(held)


def plain(x: Any) -> Array:
    """The values of a tensor in the widest dtype of their kind."""
    wide = torch.complex128 if x.is_complex() else torch.float64
    x = x.detach().resolve_conj()
    return x.to(wide if x.is_floating_point() or x.is_complex() else torch.int64).numpy()


# ------------------------------------------------------------------------------- calls
# Per name: draws numbers and shapes, the call on tensors, and NumPy's answer.


@dataclass(frozen=True)
class Call:
    """How a call is drawn and computed."""

    draw: Callable[[random.Random], tuple[dict[str, Any], list[tuple[tuple[int, ...], ...]]]]
    tensors: Callable[..., Any]
    answer: Callable[..., tuple[Array, Pullback]]
    dtypes: tuple[str, ...] = DTYPES


def _draw_product(r: random.Random) -> tuple[dict[str, Any], list[tuple[tuple[int, ...], ...]]]:
    form = r.choice(("mm", "mm", "batches", "spread", "vector", "row", "dot", "linear"))
    sets = []
    batch, other = r.choice(FEW[:6]), r.choice(FEW[:6])
    for _ in range(2):
        while True:
            m, k, n = r.choice(EDGES), r.choice(EDGES), r.choice(EDGES)
            if batch * other * m * k * n <= WORK:
                break
        sets.append(
            {
                "mm": ((m, k), (k, n)),
                "batches": ((batch, m, k), (batch, k, n)),
                "spread": ((batch, 1, m, k), (other, k, n)),
                "vector": ((m, k), (k,)),
                "row": ((k,), (k, n)),
                "dot": ((k,), (k,)),
                "linear": ((batch, m, k), (k, n)),
            }[form]
        )
    return {}, sets


def _draw_convolution(r: random.Random) -> tuple[dict[str, Any], list[Any]]:
    while True:
        drawn = _geometry(r)
        sets = [shapes for shapes in (_images(r, *drawn) for _ in range(20)) if shapes is not None]
        if len(sets) > 1:
            return drawn[0], sets[:2]


def _geometry(r: random.Random) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The settings and the shape of the weight."""
    rank = r.choice((1, 2, 2, 2, 3))
    groups = r.choice((1, 1, 1, 2, 3, 8, 17))
    inside = 1 if groups > 3 else r.choice(FEW)
    outside = r.choice((1, 1, 2)) if groups > 3 else r.choice((*FEW, 43, 64))
    kernel = tuple(r.choice((1, 1, 2, 3, 3, 4, 5, 7)) for _ in range(rank))
    stride = tuple(r.choice((1, 1, 1, 2, 3)) for _ in range(rank))
    dilation = tuple(r.choice((1, 1, 1, 2)) for _ in range(rank))
    padding = tuple(r.choice((0, 0, 1, 2, 3)) for _ in range(rank))
    if r.random() < 0.25:  # what has algorithms of its own
        kernel = (3,) * rank
        stride = dilation = padding = (1,) * rank
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return settings, (groups * outside, inside, *kernel)


def _images(
    r: random.Random, settings: dict[str, Any], weight: tuple[int, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """Shapes of an image and its weight; None where they do not fit, or are too many numbers."""
    kernel = weight[2:]
    sizes = {1: EDGES, 2: (1, 2, 3, 5, 8, 9, 14, 17, 28, 33), 3: (1, 2, 3, 5, 8)}[len(kernel)]
    image = tuple(r.choice(sizes) for _ in kernel)
    geometry = zip(image, kernel, settings["dilation"], settings["padding"])
    fits = all(n + 2 * p > (k - 1) * d for n, k, d, p in geometry)
    batch = r.choice((1, 1, 2, 3))
    work = batch * int(np.prod(weight)) * int(np.prod(image))
    channels = settings["groups"] * weight[1]
    return ((batch, channels, *image), weight) if fits and work <= WORK else None


def _convolved(x: Any, weight: Any, **geometry: Any) -> Any:
    return getattr(F, f"conv{x.ndim - 2}d")(x, weight, None, **geometry)


def _convolution_answer(x: Array, weight: Array, **geometry: Any) -> tuple[Array, Pullback]:
    groups = geometry.pop("groups")
    windows = Windows(x.shape[2:], weight.shape[2:], **geometry)
    return exact.convolution(x, weight, windows, groups)


def _draw_transposed(r: random.Random) -> tuple[dict[str, Any], list[Any]]:
    settings, sets = _draw_convolution(r)
    windows = [
        Windows(x[2:], w[2:], settings["stride"], settings["padding"], settings["dilation"])
        for x, w in sets
    ]
    images = [tuple(x[2:]) for x, _ in sets]
    sets = [((x[0], w[0], *seen.places), w) for (x, w), seen in zip(sets, windows)]
    return settings | {"images": dict(zip([s[0][2:] for s in sets], images))}, sets


def _more(y: Any, weight: Any, geometry: dict[str, Any]) -> tuple[Sequence[int], Windows]:
    names = ("stride", "padding", "dilation")
    image = geometry["images"][tuple(y.shape[2:])]
    windows = Windows(image, tuple(weight.shape[2:]), *[geometry[n] for n in names])
    least = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(
            y.shape[2:], geometry["stride"], geometry["padding"], geometry["dilation"],
            weight.shape[2:],
        )
    ]  # fmt: skip
    return [n - m for n, m in zip(image, least)], windows


def _transposed(y: Any, weight: Any, **geometry: Any) -> Any:
    more, _ = _more(y, weight, geometry)
    function = getattr(F, f"conv_transpose{y.ndim - 2}d")
    return function(
        y, weight, None, geometry["stride"], geometry["padding"], more, geometry["groups"],
        geometry["dilation"],
    )  # fmt: skip


def _transposed_answer(y: Array, weight: Array, **geometry: Any) -> tuple[Array, Pullback]:
    _, windows = _more(y, weight, geometry)
    return exact.transposed_convolution(y, weight, windows, geometry["groups"])


def _draw_reduction(r: random.Random) -> tuple[dict[str, Any], list[Any]]:
    rank = r.choice((1, 2, 2, 3, 4))
    dims = sorted(r.sample(range(rank), r.randint(1, rank)))
    sets = []
    while len(sets) < 2:
        shape = tuple(r.choice((*EDGES, 257, 1030, 5000)) for _ in range(rank))
        if np.prod(shape) <= 60_000:
            sets.append((shape,))
    return {"name": r.choice(("sum", "sum", "amax", "amin")), "dims": tuple(dims)}, sets


def _reduction_answer(x: Array, name: str, dims: tuple[int, ...]) -> tuple[Array, Pullback]:
    value = {"sum": np.sum, "amax": np.max, "amin": np.min}[name](x, axis=dims)

    def pull(gradient: Array) -> list[Array]:
        spread = np.broadcast_to(np.expand_dims(gradient, dims), x.shape)
        if name == "sum":
            return [spread]
        chosen = x == np.expand_dims(value, dims)
        return [np.where(chosen, spread / chosen.sum(dims, keepdims=True), 0)]

    return value, pull


def _draw_scan(r: random.Random) -> tuple[dict[str, Any], list[Any]]:
    settings, sets = _draw_reduction(r)
    return {"dim": settings["dims"][0]}, sets


def _scan_answer(x: Array, dim: int) -> tuple[Array, Pullback]:
    def pull(gradient: Array) -> list[Array]:
        return [np.flip(np.cumsum(np.flip(gradient, dim), dim), dim)]

    return np.cumsum(x, dim), pull


def _draw_write(r: random.Random) -> tuple[dict[str, Any], list[Any]]:
    sets = []
    width = r.choice(EDGES)
    for _ in range(2):
        rows, many = r.choice(EDGES), r.choice((*EDGES, 500))
        sets.append(((rows, width), (many, width)))
    return {"seed": r.randrange(1 << 30)}, sets


def _places(rows: int, many: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, rows, many)


def _written(base: Any, source: Any, seed: int) -> Any:
    index = torch.from_numpy(_places(len(base), len(source), seed))
    return base.index_add(0, index, source)


def _write_answer(base: Array, source: Array, seed: int) -> tuple[Array, Pullback]:
    index, value = _places(len(base), len(source), seed), base.copy()
    np.add.at(value, index, source)
    return value, lambda gradient: [gradient, gradient[index]]


def _looked_up(table: Any, source: Any, seed: int) -> Any:
    return table[torch.from_numpy(_places(len(table), len(source), seed))] * source


def _look_up_answer(table: Array, source: Array, seed: int) -> tuple[Array, Pullback]:
    index = _places(len(table), len(source), seed)

    def pull(gradient: Array) -> list[Array]:
        of_table = np.zeros_like(table)
        np.add.at(of_table, index, gradient * source.conj())
        return [of_table, gradient * table[index].conj()]

    return table[index] * source, pull


REAL = tuple(d for d in DTYPES if not d.startswith("complex"))
FLOATING = tuple(d for d in DTYPES if not d.startswith("int"))
CALLS = {
    "product": Call(_draw_product, lambda a, b: a @ b, exact.product),
    "convolution": Call(_draw_convolution, _convolved, _convolution_answer, FLOATING),
    "transposed": Call(_draw_transposed, _transposed, _transposed_answer, FLOATING),
    "reduction": Call(
        _draw_reduction, lambda x, name, dims: getattr(torch, name)(x, dims), _reduction_answer
    ),
    "scan": Call(_draw_scan, lambda x, dim: x.cumsum(dim), _scan_answer),
    "write": Call(_draw_write, _written, _write_answer),
    "look up": Call(_draw_write, _looked_up, _look_up_answer),
}
SHARES = {"product": 5, "convolution": 7, "transposed": 2}


# ------------------------------------------------------------------------------- what follows


def _bias_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    if name == "channel":
        return (shape[1], *[1] * (len(shape) - 2)) if len(shape) > 1 else tuple(shape)
    return tuple(shape[-1:]) if name == "bias" else tuple(shape)


def _follow(name: str, y: Any, extra: Any) -> Any:
    """One step after the call, on tensors."""
    if extra is not None:
        return y + extra
    if name == "relu":
        return y.clamp(min=0)
    if name == "doubled":
        return y * 2
    if name == "sum":
        return y.sum(-1)
    if name == "turned":
        return y.transpose(0, -1).contiguous()
    if name == "twice":
        return torch.cat([y, y])
    wider = {"float32": "float64", "float16": "float32", "bfloat16": "float32"}
    return y.to(getattr(torch, wider[str(y.dtype).rpartition(".")[2]]))


def _follow_answer(name: str, y: Array, extra: Array | None) -> tuple[Array, Pullback]:
    """The same on arrays."""
    if extra is not None:
        return y + extra, lambda g: [g]
    if name == "relu":
        return np.maximum(y, 0), lambda g: [g * (y >= 0)]
    if name == "doubled":
        return y * 2, lambda g: [g * 2]
    if name == "sum":
        return y.sum(-1), lambda g: [np.broadcast_to(g[..., None], y.shape)]
    if name == "turned":
        return y.swapaxes(0, -1), lambda g: [g.swapaxes(0, -1)]
    if name == "twice":
        return np.concatenate([y, y]), lambda g: [g[: len(y)] + g[len(y) :]]
    return y, lambda g: [g]


def _draw_followers(r: random.Random, dtype: str, rank: int) -> list[Part]:
    names = ["bias", "channel", "residual", "doubled"]
    names += [] if dtype.startswith("complex") else ["relu", "relu"]
    names += ["wider"] if dtype in ("float32", "float16", "bfloat16") else []
    names += ["sum", "turned", "twice"] if rank > 1 else []
    drawn = r.sample(names, r.choice((0, 1, 1, 2, 3)))
    if "sum" in drawn:  # the last: ranks are drawn before it
        drawn.sort(key=lambda name: name == "sum")
    return [Part(name) for name in drawn]


# ------------------------------------------------------------------------------- programs


def of_seed(seed: int) -> ExactCall:
    """The call of a number."""
    r = random.Random(seed)
    name = r.choice([name for name in CALLS for _ in range(SHARES.get(name, 1))])
    call = CALLS[name]
    dtype = r.choice(call.dtypes)
    if name == "reduction" and dtype.startswith("complex"):
        dtype = "float64"
    settings, shapes = call.draw(r)
    images = ("channels last",) * 3 if name in ("convolution", "transposed") else ()
    layouts = tuple(r.choice((*LAYOUTS, *images)) for _ in shapes[0])
    first = call.answer(*[np.zeros(s) for s in shapes[0]], **settings)[0]
    steps = (Part(name, settings), *_draw_followers(r, dtype, np.ndim(first)))
    return ExactCall(seed, dtype, steps, tuple(shapes), layouts)


def _dtype_after(step: Part, dtype: str) -> str:
    """The dtype of a step's result: sums of integers are int64."""
    if step.name == "wider":
        return "float64" if dtype == "float32" else "float32"
    adds = step.name in ("scan", "sum") or step.numbers.get("name") == "sum"
    return "int64" if adds and dtype.startswith("int") else dtype


def _expected(call: ExactCall, arrays: list[Array], rng: Any) -> tuple[Array, list[Array], Any]:
    """The value, what the steps add, and the way back for gradients."""
    first, *later = call.steps
    value, pull = CALLS[first.name].answer(*arrays, **first.numbers)
    dtype = _dtype_after(first, call.dtype)
    value, pulls, extras = rounded(value, dtype), [pull], []
    for step in later:
        extra = None
        if step.name in ("bias", "channel", "residual"):
            extra = numbers(rng, _bias_shape(step.name, value.shape), call.dtype)
        value, pull = _follow_answer(step.name, value, extra)
        dtype = _dtype_after(step, dtype)
        value = rounded(value, dtype)
        pulls.append(pull)
        extras.append(extra)
    return value, extras, pulls


def _gradients(pulls: list[Pullback], gradient: Array) -> list[Array]:
    for pull in reversed(pulls[1:]):
        [gradient] = pull(gradient)
    return pulls[0](gradient)


def fault(call: ExactCall) -> str:
    """What is wrong with a call's results; empty where nothing is."""
    first, *later = call.steps

    def program(operands: list[Any], extras: list[Any]) -> Any:
        y = CALLS[first.name].tensors(*operands, **first.numbers)
        for step, extra in zip(later, extras, strict=True):
            y = _follow(step.name, y, extra)
        return y

    compiled = torch.compile(program)
    for turn, shapes in enumerate((*call.shapes, call.shapes[0])):
        rng = np.random.default_rng(call.seed + turn)
        arrays = [
            repeated(numbers(rng, shape, call.dtype), layout)
            for shape, layout in zip(shapes, call.layouts, strict=True)
        ]
        value, added, pulls = _expected(call, arrays, rng)
        gradient = numbers(rng, value.shape, call.dtype)
        backward = call.dtype in INEXACT and value.size > 0
        for mode, run in (("eager", program), ("compiled", compiled)):
            pairs = zip(arrays, call.layouts, strict=True)
            operands = [tensor_of(a, call.dtype, layout) for a, layout in pairs]
            if backward:
                operands = [x.detach().requires_grad_() for x in operands]
            extras = [None if a is None else tensor_of(a, call.dtype, "plain") for a in added]
            result = run(operands, extras)
            if result.shape != value.shape or not np.array_equal(plain(result), value):
                return f"{mode}, shapes {shapes}: {_difference(plain(result), value)}"
            if not backward:
                continue
            result.backward(tensor_of(gradient, call.dtype, "plain").to(result.dtype))
            for k, (x, g) in enumerate(zip(operands, _gradients(pulls, gradient), strict=True)):
                if not np.allclose(plain(x.grad), g, rtol=1e-6, atol=0):
                    where = _difference(plain(x.grad), g)
                    return f"{mode}, shapes {shapes}, gradient {k}: {where}"
    return ""


def _difference(value: Array, expected: Array) -> str:
    if value.shape != expected.shape:
        return f"shape {value.shape}, not {expected.shape}"
    wrong = np.argwhere(value != expected)
    place = tuple(int(n) for n in wrong[0])
    return f"{len(wrong)} wrong, at {place} {value[place]}, not {expected[place]}"


def shown(call: ExactCall) -> str:
    """The call as text."""
    first, *later = call.steps
    lines = [f"  {first.name} of {call.dtype} {call.layouts} {first.numbers}"]
    lines += [f"  shapes {call.shapes}", f"  then {[step.name for step in later]}"]
    return "\n".join(lines)


if __name__ == "__main__":
    NAMES = [*CALLS, "bias", "channel", "residual", "doubled", "relu", "wider", "sum", "turned"]
    KIND = Kind("tests.stress.exact_calls", of_seed, fault, shown, [*NAMES, "twice"])
    sys.exit(command(__doc__ or "", KIND))
