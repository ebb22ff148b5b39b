"""Models whose packages are compared with eager mode, and a C++ program that runs packages."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package, aoti_load_package
from flambeau.export import Dim, export
from flambeau.nn import functional
from flambeau.utils import _pytree as pytree

INCLUDE = Path(torch.__file__).parent / "include"
B, T = Dim("b", min=1, max=64), Dim("t", min=2, max=40)


class Model(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], *children: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(children)

    def forward(self, *args: Any) -> Any:
        """Calls it."""
        return self.function(self.parts, *args)


class Case(NamedTuple):
    """A model, its example arguments, what varies, and shapes or arguments of other calls."""

    model: nn.Module
    args: tuple[Any, ...]
    shapes: Any = None
    others: Sequence[tuple[Any, ...]] = ()


def values(*shape: int) -> torch.Tensor:
    """Numbers of both signs."""
    return (torch.arange(float(torch.Size(shape).numel())) * 0.37 - 1).sin().reshape(shape)


def cases() -> dict[str, Case]:
    """By name."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    ids = torch.tensor([[1, 4, 2], [0, 3, 3]])
    shared = nn.Linear(3, 3)
    return {
        "linear": Case(
            nn.Linear(3, 4), (values(2, 3),), ({0: B},), [(values(n, 3),) for n in (1, 64)]
        ),
        "image": Case(
            nn.Sequential(*layers, *head),
            (values(2, 3, 8, 8),),
            ({0: B, 2: 2 * T},),
            [(values(n, 3, h, 8),) for n, h in ((1, 8), (5, 20))],
        ),
        "encoder": Case(
            encoder, (values(2, 5, 8),), ({0: B, 1: T},), [(values(1, 40, 8),), (values(7, 2, 8),)]
        ),
        "embedding": Case(
            nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3)),
            (ids,),
            ({0: B, 1: T},),
            [(ids[:1],), (ids.repeat(3, 2),)],
        ),
        "lstm": Case(
            nn.LSTM(3, 4, bidirectional=True), (values(5, 2, 3),), ({1: B},), [(values(5, 7, 3),)]
        ),
        "causal": Case(
            Model(lambda _, q: functional.scaled_dot_product_attention(q, q, q, is_causal=True)),
            (values(1, 2, 5, 8),),
            (({2: T},),),
            [(values(1, 2, 33, 8),)],
        ),
        "positions": Case(
            Model(
                lambda p, x: p[0](x) + torch.arange(x.shape[1]).unsqueeze(-1) * x.shape[0],
                nn.Linear(3, 3),
            ),
            (values(2, 5, 3),),
            (({0: B, 1: T},),),
            [(values(4, 9, 3),)],
        ),
        "shifted": Case(
            Model(lambda _, x, y: x[1:] + y),
            (values(6), values(5)),
            (({0: T + 1}, {0: T}),),
            [(values(9), values(8))],
        ),
        "numbers": Case(
            Model(
                lambda _, x: (
                    x * 0.1 + 3,
                    x.abs() ** 2.5,
                    x.clamp(-0.3, 0.7),
                    x.shape[0],
                    None,
                    "text",
                )
            ),
            (values(4, 3),),
            (({0: B},),),
            [(values(9, 3),)],
        ),
        "views": Case(
            Model(lambda _, x: (x.T, x.unflatten(0, (2, 2)), x.expand(2, 4, 3), x, x.sum())),
            (values(4, 3),),
        ),
        "dtypes": Case(
            Model(
                lambda _, x: (x.double().cumsum(0), x.half() + 1, x.bfloat16() * 2, x > 0, x.long())
            ),
            (values(4, 3),),
        ),
        "cross_entropy": Case(
            Model(lambda _, x, y: functional.cross_entropy(x, y)),
            (values(2, 5), torch.tensor([1, 4])),
        ),
        "tied": Case(nn.Sequential(shared, nn.GELU(), shared), (values(2, 3),)),
        "buffers": Case(nn.BatchNorm1d(3).train(), (values(4, 3),)),
        "without_gradients": Case(Model(_without_gradients), (values(4, 3),)),
    }


def _without_gradients(_: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = (x * 2).sin()
    return y + x.detach()


def packaged(model: nn.Module, args: tuple[Any, ...], shapes: Any = None, **options: Any) -> Any:
    """The package of a model, as a file in memory."""
    file = io.BytesIO()
    program = export(model, args, options.pop("kwargs", None), dynamic_shapes=shapes)
    aoti_compile_and_package(program, package_path=file, **options)
    file.seek(0)
    return file


def loaded(model: nn.Module, args: tuple[Any, ...], shapes: Any = None, **options: Any) -> Any:
    """The compiled model of a package."""
    return aoti_load_package(packaged(model, args, shapes, **options))


def copied(args: Any) -> Any:
    """The same arguments in memory of their own."""
    return pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, args)


def same(one: Any, other: Any) -> bool:
    """Whether results are equal bit by bit; integers are tensors in packages."""
    pairs = [pytree.tree_leaves(x, is_leaf=lambda x: x is None) for x in (one, other)]
    return len(pairs[0]) == len(pairs[1]) and all(map(_equal, *pairs))


def _equal(one: Any, other: Any) -> bool:
    if type(one) is int and isinstance(other, torch.Tensor):
        return other.dtype is torch.int64 and other.ndim == 0 and int(other) == one
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other) and one == other
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def built(source: str, folder: Path, *flags: str) -> Path:
    """A C++ program that includes `flambeau/package.h`."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    words = [compiler] if compiler else [*_zig(), "c++"]
    path = folder / "program.cpp"
    path.write_text(source)
    program = folder / "program"
    command = [
        *words,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        f"-I{INCLUDE}",
        str(path),
        "-o",
        str(program),
        "-ldl",
        "-pthread",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return program


def _zig() -> list[str]:
    import sys

    return [sys.executable, "-m", "ziglang"]
