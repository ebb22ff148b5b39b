"""Bytes that compiled programs move: against the least possible, and against eager mode."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.profiler import profile
from flambeau.reports import traffic

SIZE = 64 * 64 * 4  # bytes of a square tensor


def chain(x: Any, y: Any) -> Any:
    return ((x + 1) * y).tanh().exp() - x


def total(function: Any, *arguments: Any) -> int:
    """Bytes that a profile counts."""
    function(*arguments)
    with profile() as prof:
        function(*arguments)
    return sum(event.bytes for event in prof.events() if event.name.startswith("kernel::"))


def test_a_pointwise_chain_moves_a_third_of_eager_mode() -> None:
    x, y = torch.ones(64, 64), torch.ones(64, 64)
    report = torch.compiler.explain(chain, x, y)
    assert report.bytes_moved == report.bytes_least == 3 * SIZE
    # x + 1, tanh, exp: two each; mul and sub: three each
    assert report.bytes_eager == (3 * 2 + 2 * 3) * SIZE
    assert 3 * report.bytes_moved <= report.bytes_eager
    (launch,) = report.launches
    assert (launch.read, launch.written) == (2 * SIZE, SIZE)
    assert f"{3 * SIZE} bytes are the least possible" in str(report)
    assert f"{launch.name}: {2 * SIZE} bytes read, {SIZE} written" in str(report)


def test_profiles_count_the_same_bytes() -> None:
    x, y = torch.ones(64, 64), torch.ones(64, 64)
    report = torch.compiler.explain(chain, x, y)
    assert total(torch.compile(chain), x, y) == report.bytes_moved
    assert total(chain, x, y) == report.bytes_eager


@pytest.mark.parametrize(
    ("function", "read", "written"),
    [
        (lambda x: x[2:4] * 2, 2 * 64, 2 * 64),  # a part of an input is read
        (lambda x: x[:1].expand(64, 64) * 2, 64, 64 * 64),  # elements that repeat
        (lambda x: x.sum(1), 64 * 64, 64),
        (lambda x: x.add_(1), 64 * 64, 64 * 64),  # in place: read and written
        (lambda x: x[torch.tensor([1, 2])] + 1, 2 * 64 + 2 * 2, 2 * 64),  # rows that are looked up
    ],
)
def test_the_least(function: Any, read: int, written: int) -> None:
    report = torch.compiler.explain(function, torch.ones(64, 64))
    assert report.bytes_least == 4 * (read + written)
    assert report.bytes_moved >= report.bytes_least


def test_views_move_nothing() -> None:
    report = torch.compiler.explain(lambda x: x.T.reshape(-1, 1, 64)[:, 0] + 1, torch.ones(64, 64))
    assert report.bytes_eager == report.bytes_least == 2 * SIZE


def test_what_a_backward_needs_is_written() -> None:
    def step(x: Any) -> Any:
        return torch.softmax(x @ x.T, -1).square().sum()

    plain = torch.compiler.explain(step, torch.ones(64, 64))
    trained = torch.compiler.explain(step, torch.ones(64, 64, requires_grad=True))
    assert trained.bytes_least > plain.bytes_least
    assert trained.bytes_moved >= trained.bytes_least


def test_packed_weights_are_cached() -> None:
    weight = torch.nn.Parameter(torch.ones(64, 64))
    with torch.no_grad():
        report = torch.compiler.explain(lambda x: x @ weight, torch.ones(64, 64))
    packing = [launch for launch in report.launches if launch.packs]
    counted = sum(launch.moved for launch in report.launches if not launch.packs)
    assert packing and report.bytes_moved == counted


def test_equal_launches_are_listed_once() -> None:
    def layers(x: Any) -> Any:
        for _ in range(4):
            x = torch.softmax(x, -1).cumsum(0)
        return x

    report = torch.compiler.explain(layers, torch.ones(8, 8))
    lines = [line for line in str(report).splitlines() if "bytes read" in line]
    assert len(lines) < len(report.launches) and any(" x stream" in line for line in lines)


def test_writes_in_place_have_the_geometry_of_their_operands() -> None:
    report = torch.compiler.explain(lambda x: x.add_(1).mul_(2).sin(), torch.ones(64, 64))
    assert report.bytes_eager == 6 * SIZE and report.bytes_least == 3 * SIZE


def test_empty_tensors() -> None:
    report = torch.compiler.explain(lambda x: x * 2, torch.ones(0, 3))
    assert (report.bytes_moved, report.bytes_least, report.bytes_eager) == (0, 0, 0)


def test_figures_of_one_stream() -> None:
    from flambeau.capture import recording, stream

    with stream.watching() as reports:
        torch.compiler.reset()
        recording.record(chain, (torch.ones(3), torch.ones(3)), {})
    moved = traffic.of_report(reports[0])
    assert moved.bytes == moved.least == 36
