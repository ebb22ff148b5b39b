"""Errors against float64, beside PyTorch's in the same dtype, on the same inputs.

    python -m bench accuracy

The error of a result is the root mean square of its difference from the float64 result of PyTorch,
divided by the root mean square of that result; the note has the largest difference, divided
likewise, of both. Sums and products of 10^8 elements are among the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from bench.harness import Row, publish

Function = Callable[..., Any]
DTYPES = ("float32", "bfloat16", "float16")
Case = tuple[str, Function, tuple[tuple[int, ...], ...]]


def _attention(package: ModuleType, q: Any, k: Any, v: Any) -> Any:
    return package.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _functional(name: str, *arguments: Any) -> Function:
    def call(package: ModuleType, *tensors: Any) -> Any:
        return getattr(package.nn.functional, name)(*tensors, *arguments)

    return call


def _plain(name: str, *arguments: Any) -> Function:
    def call(package: ModuleType, *tensors: Any) -> Any:
        return getattr(package, name)(*tensors, *arguments)

    return call


def products() -> Iterator[Case]:
    """Matrix products of several depths."""
    for k in (16, 257, 1024, 8192, 65536):
        yield f"mm 64 x {k} x 64", _plain("mm"), ((64, k), (k, 64))
    yield "mv 256 x 4096", _plain("mv"), ((256, 4096), (4096,))
    yield "bmm 8 x 64 x 512 x 64", _plain("bmm"), ((8, 64, 512), (8, 512, 64))
    yield "linear 32 x 1024 x 1000", _functional("linear"), ((32, 1024), (1000, 1024), (1000,))


def convolutions() -> Iterator[Case]:
    """Convolutions, plain, strided, grouped and depthwise."""
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = {
        "3 x 3": ((2, 64, 28, 28), (64, 64, 3, 3), (None, 1, 1)),
        "7 x 7, stride 2": ((2, 3, 64, 64), (64, 3, 7, 7), (None, 2, 3)),
        "1 x 1, 1024 channels": ((2, 1024, 14, 14), (256, 1024, 1, 1), ()),
        "depthwise": ((2, 96, 28, 28), (96, 1, 3, 3), (None, 1, 1, 1, 96)),
        "groups": ((2, 64, 28, 28), (128, 16, 3, 3), (None, 1, 1, 1, 4)),
    }
    for name, (x, weight, arguments) in shapes.items():
        yield f"conv2d {name}", _functional("conv2d", *arguments), (x, weight)


def norms() -> Iterator[Case]:
    """Normalisations and softmaxes."""
    shape = (32, 4096)
    yield "layer_norm 4096", _functional("layer_norm", (4096,)), (shape,)
    yield "rms_norm 4096", _functional("rms_norm", (4096,)), (shape,)
    yield "group_norm", _functional("group_norm", 8), ((4, 64, 32, 32),)
    yield "instance_norm", _functional("instance_norm"), ((4, 64, 32, 32),)
    batch = _functional("batch_norm", None, None, None, None, True)
    yield "batch_norm", batch, ((8, 64, 32, 32),)
    yield "softmax 32000", _functional("softmax", -1), ((16, 32000),)
    yield "log_softmax 32000", _functional("log_softmax", -1), ((16, 32000),)
    yield "logsumexp 32000", _plain("logsumexp", -1), ((16, 32000),)


def attentions() -> Iterator[Case]:
    """Causal attention."""
    for length in (128, 1024, 2048):
        shape = (1, 4, length, 64)
        yield f"attention {length}, size 64", _attention, (shape, shape, shape)


def sums() -> Iterator[Case]:
    """Reductions, long ones too."""
    yield "sum of 10^6", _plain("sum"), ((10**6,),)
    yield "mean along rows", _plain("mean", 0), ((4096, 256),)
    yield "var along rows", _plain("var", 0), ((4096, 256),)
    yield "norm of 10^6", _plain("norm"), ((10**6,),)
    yield "cumsum of 10^5", _plain("cumsum", 0), ((10**5,),)


def errors(result: Any, exact: Any) -> tuple[float, float]:
    """Root mean square and largest difference, over the root mean square of the exact result."""
    scale = float((exact * exact).mean() ** 0.5) or 1.0
    difference = (result.double() - exact).abs()
    return float((difference**2).mean() ** 0.5) / scale, float(difference.max()) / scale


def row(name: str, function: Function, shapes: tuple[tuple[int, ...], ...], dtype: str) -> Row:
    """The errors of one operation in one dtype."""
    import torch

    import flambeau

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(s, generator=generator).to(getattr(torch, dtype)) for s in shapes]
    exact = function(torch, *(x.double() for x in inputs))
    theirs = errors(function(torch, *inputs), exact)
    here = [flambeau.from_numpy(x.float().numpy()).to(getattr(flambeau, dtype)) for x in inputs]
    made = torch.from_numpy(function(flambeau, *here).double().numpy())
    ours = errors(made, exact)
    ratio = (ours[0] + 1e-12) / (theirs[0] + 1e-12)
    note = f"largest {ours[1]:.2e}, PyTorch {theirs[1]:.2e}"
    return Row(f"{name}, {dtype}", ours[0], theirs[0], ratio, 1, note)


def long_sums() -> list[Row]:
    """Sums over 10^8 elements, against the exact sum in float64."""
    import torch

    import flambeau

    rows = []
    values = torch.rand(10**8, generator=torch.Generator().manual_seed(0))
    here = flambeau.from_numpy(values.numpy())
    for name, other in (("sum", None), ("dot", values)):
        arguments = [] if other is None else [other]
        exact = float((values.double() * (1 if other is None else other.double())).sum())
        theirs = abs(float(getattr(torch, name)(values, *arguments)) - exact) / exact
        ours = abs(float(getattr(flambeau, name)(here, *[here for _ in arguments])) - exact) / exact
        ratio = (ours + 1e-12) / (theirs + 1e-12)
        rows.append(Row(f"{name} of 10^8, float32", ours, theirs, ratio))
    return rows


def main() -> None:
    """Measures all families in all dtypes."""
    families: dict[str, Callable[[], Iterator[Case]]] = {
        "products": products,
        "convolutions": convolutions,
        "norms": norms,
        "attention": attentions,
        "sums": sums,
    }
    tables = []
    for family, cases in families.items():
        rows = [row(*case, dtype) for case in cases() for dtype in DTYPES]
        tables.append((family, rows, 1.0))
    tables.append(("long sums", long_sums(), 1.0))
    publish("accuracy", tables, lambda value: f"{value:.2e}")
