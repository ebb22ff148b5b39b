"""Memory that a region writes to in place, and what reads it there: Python, others, threads.

A recorded write to a tensor that was there before runs later. Whoever reads the memory before that
has to find what eager mode would have written.
"""

from __future__ import annotations

import copy
import ctypes
import io
import math
import operator
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch


def _pair() -> Any:
    return torch.tensor([1.0, 2.0])


def _number() -> Any:
    return torch.tensor(1.0)


def _count() -> Any:
    return torch.tensor(1)


def _saved(x: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save({"x": x}, file, **options)
    file.seek(0)
    return torch.load(file)["x"].tolist()


def _at_address(address: int) -> list[float]:
    return list((ctypes.c_float * 2).from_address(address))


def _in_thread(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(read(x)))
        thread.start()
        thread.join()
        return found

    return run


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.scale = x.item()
        return x * ctx.scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.scale


def _in_hook(x: Any) -> Any:
    found: list[Any] = []
    y = torch.ones((), requires_grad=True) * 2
    y.register_hook(lambda gradient: found.append(x.item()))
    y.backward()
    return found


def _in_inference(x: Any) -> Any:
    with torch.inference_mode():
        return x.item()


READS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "item": (_number, lambda x: x.item()),
    "tolist": (_pair, lambda x: x.tolist()),
    "float": (_number, float),
    "int": (_count, int),
    "bool": (lambda: torch.tensor(-6.0), bool),
    "complex": (_number, complex),
    "is_nonzero": (lambda: torch.tensor(-6.0), lambda x: x.is_nonzero()),
    "index": (_count, operator.index),
    "range": (_count, lambda x: list(range(x))),
    "slice": (_count, lambda x: torch.arange(20)[:x].tolist()),
    "place": (_count, lambda x: torch.arange(20)[x].item()),
    "format": (_number, lambda x: f"{x:.2f}"),
    "repr": (_pair, repr),
    "math": (_number, math.sqrt),
    "list": (_pair, lambda x: [v.item() for v in x]),
    "in": (_pair, lambda x: 8.0 in x),
    "deepcopy": (_pair, lambda x: copy.deepcopy(x).tolist()),
    "pickle": (_pair, lambda x: pickle.loads(pickle.dumps(x)).tolist()),
    "save": (_pair, _saved),
    "save old": (_pair, lambda x: _saved(x, _use_new_zipfile_serialization=False)),
    "share": (_pair, lambda x: x.share_memory_().tolist()),
    "storage": (_pair, lambda x: x.storage().tolist()),
    "bytes": (_pair, lambda x: bytes(x.untyped_storage())),
    "address": (_pair, lambda x: _at_address(x.data_ptr())),
    "address of storage": (_pair, lambda x: _at_address(x.untyped_storage().data_ptr())),
    "numpy": (_pair, lambda x: x.numpy().tolist()),
    "array": (_pair, lambda x: np.asarray(x).tolist()),
    "dlpack": (_pair, lambda x: np.from_dlpack(x).tolist()),
    "tensor": (_pair, lambda x: torch.tensor(x).tolist()),
    "nested": (_number, lambda x: torch.tensor([x, x]).tolist()),
    "full": (_number, lambda x: torch.full((2,), x).tolist()),
    "alpha": (_number, lambda x: torch.add(torch.ones(2), 1, alpha=x.item()).tolist()),
    "equal": (_pair, lambda x: torch.equal(x, torch.tensor([7.0, 8.0]))),
    "nonzero": (_pair, lambda x: (x > 7.5).nonzero().tolist()),
    "mask": (_pair, lambda x: x[x > 7.5].tolist()),
    "repeats": (_count, lambda x: torch.arange(2).repeat_interleave(x).tolist()),
    "view": (_count, lambda x: tuple(torch.arange(14).view(x, -1).shape)),
    "data": (_pair, lambda x: x.data.tolist()),
    "of a view": (_pair, lambda x: x[1:].tolist()),
    "function": (_number, lambda x: _Scale.apply(x).item()),
    "hook": (_number, _in_hook),
    "inference": (_number, _in_inference),
    "region": (_number, lambda x: torch.compile(lambda y: y.item() + y)(x).item()),
    "disabled": (_number, lambda x: torch.compiler.disable(lambda y: y.item())(x)),
    "thread": (_pair, _in_thread(lambda x: x.tolist())),
    "operator in a thread": (_pair, _in_thread(lambda x: (x + 1).tolist())),
    "region in a thread": (_pair, _in_thread(torch.compile(lambda x: (x + 1).tolist()))),
    "write in a thread": (_pair, _in_thread(lambda x: x.add_(1).tolist())),
}


Make, Read = Callable[[], Any], Callable[[Any], Any]


def _local(make: Make, read: Read) -> tuple[Any, tuple[Any, ...]]:
    def program() -> Any:
        x = make()
        x.add_(6)
        return read(x), x.mul_(2).tolist()

    return program, ()


def _given(make: Make, read: Read) -> tuple[Any, tuple[Any, ...]]:
    def program(x: Any) -> Any:
        x.add_(6)
        return read(x), x.mul_(2).tolist()

    return program, (make(),)


def _closed_over(
    make: Callable[[], Any], read: Callable[[Any], Any]
) -> tuple[Any, tuple[Any, ...]]:
    x = make()

    def program() -> Any:
        x.add_(6)
        return read(x), x.mul_(2).tolist()

    return program, ()


def _by_a_view(make: Make, read: Read) -> tuple[Any, tuple[Any, ...]]:
    def program(x: Any) -> Any:
        x.view(-1)[:1].add_(6)
        x.view(-1)[-1:].add_(0)
        return read(x), x.mul_(2).tolist()

    return program, (make(),)


@pytest.mark.parametrize("written", [_local, _given, _closed_over, _by_a_view])
@pytest.mark.parametrize("name", READS)
def test_reads(name: str, written: Any) -> None:
    make, read = READS[name]
    expected, arguments = written(make, read)
    program, same_arguments = written(make, read)
    assert torch.compile(program)(*same_arguments) == expected(*arguments)


def test_initialised_parameters() -> None:
    def program() -> Any:
        weight = torch.empty(2, 2)
        torch.nn.init.constant_(weight, 3.0)
        torch.nn.init.eye_(weight)
        return weight.tolist()

    assert torch.compile(program)() == [[1.0, 0.0], [0.0, 1.0]]
