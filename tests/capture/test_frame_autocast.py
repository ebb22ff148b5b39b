"""Tier 2 and `torch.autocast`: explained calls cast as eager mode does, inside of regions and out.

Each program runs on a model and on a copy of it, compiled and plain: results, gradients and
parameters are compared bit by bit after every call.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import _core, nn
from tests.capture.frames import explained, same, skips

LOWER = [torch.bfloat16, torch.float16]
Make = Callable[[Any], Callable[..., Any]]  # a function of a model


def model_of() -> Any:
    """A small model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def states() -> tuple[Any, ...]:
    """The state of autocast in this thread."""
    dtype = torch.get_autocast_dtype("cpu")
    depth = _core.autocast_nesting(0)
    return torch.is_autocast_enabled("cpu"), dtype, torch.is_autocast_cache_enabled(), depth


class Twins:
    """A function of a model, compiled, and the same of a copy of the model, plain."""

    def __init__(self, make: Make) -> None:
        self.models = [model_of(), model_of()]
        self.compiled, self.plain = torch.compile(make(self.models[0])), make(self.models[1])

    def run(self, seed: int = 0, *contexts: Callable[[], Any], times: int = 1) -> bool:
        """Calls of each in a region, and backward; whether all of them ran without Python."""
        torch.manual_seed(seed)
        x, y, before = torch.randn(4, 6), torch.randn(4, 3), self.compiled._hits
        results, inside, outside = [], [], states()
        for function in (self.compiled, self.plain):
            with ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context())
                results.append([function(x, y) for _ in range(times)])
                inside.append(states())
        assert inside[0] == inside[1] and states() == outside
        for values in results:
            losses = [v for v in values if v is not None and v.requires_grad]
            if losses:
                sum(losses).backward()  # type: ignore[union-attr]
        assert same(*results)
        pairs = zip(*(model.parameters() for model in self.models), strict=True)
        for a, b in pairs:
            assert same(a.detach(), b.detach())
            assert (a.grad is None) == (b.grad is None)
            assert a.grad is None or same(a.grad, b.grad)
        return bool(self.compiled._hits - before == times)

    def settle(self, *contexts: Callable[[], Any], times: int = 1) -> None:
        """Runs until calls run without Python."""
        skipped = [self.run(seed, *contexts, times=times) for seed in range(14)]
        assert skipped[-3:] == [True] * 3, self.compiled._reason


def inference(lower: Any) -> Make:
    """A forward pass without gradients."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            with torch.no_grad(), torch.autocast("cpu", lower):
                return model(x)

        return function

    return make


def loss(lower: Any) -> Make:
    """A loss, whose backward is elsewhere."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            with torch.amp.autocast("cpu", dtype=lower):
                predicted = model(x)
            return F.mse_loss(predicted.float(), y)

        return function

    return make


def twice(lower: Any) -> Make:
    """Two passes in one region share the casts of weights; the loss is a part of it."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            with torch.autocast("cpu", dtype=lower):
                return F.mse_loss(model(x) + model(x * 2), y)

        return function

    return make


def without_cache(lower: Any) -> Make:
    """Each use casts a weight."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            with torch.autocast("cpu", dtype=lower, cache_enabled=False):
                return (model(x) + model(x * 2)).sum()

        return function

    return make


def partly_off(lower: Any) -> Make:
    """A part of the region runs without autocast."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            with torch.autocast("cpu", dtype=lower):
                hidden = model[0](x)
                with torch.autocast("cpu", enabled=False):
                    hidden = model[1](hidden.float())
                return model[3](hidden).float().sum()

        return function

    return make


def decorated(lower: Any) -> Make:
    """The region is a decorator, whose object is outside of the function."""

    def make(model: Any) -> Any:
        @torch.autocast("cpu", dtype=lower)
        def function(x: Any, y: Any) -> Any:
            return F.cross_entropy(model(x), y.argmax(1))

        return function

    return make


def joined(lower: Any) -> Make:
    """Operators that are made of others, join or promote."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            with torch.autocast("cpu", dtype=lower):
                h = torch.cat([model[0](x), torch.ones(4, 2)], 1)
                h = torch.einsum("ij,kj->ik", h, h).softmax(-1)
                return torch.stack([h.norm(), h.to(lower).log1p().sum(), (h @ h).sum()]).sum()

        return function

    return make


def caught(lower: Any) -> Make:
    """An error leaves a region, and is handled."""

    def make(model: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            try:
                with torch.autocast("cpu", dtype=lower):
                    hidden = model[0](x)
                    raise ValueError("left")
            except ValueError:
                return (hidden @ hidden.T).float().sum() + model(x).sum()

        return function

    return make


@pytest.mark.parametrize("lower", LOWER, ids=str)
@pytest.mark.parametrize(
    "program",
    [inference, loss, twice, without_cache, partly_off, decorated, joined, caught],
)
def test_regions_have_the_bits_of_eager_mode(program: Any, lower: Any) -> None:
    Twins(program(lower)).settle()


def plain_loss(model: Any) -> Any:
    """No region of its own."""
    return lambda x, y: F.mse_loss(model(x).float(), y)


def region() -> Any:
    """A region around calls."""
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("times", [1, 3])
def test_regions_around_calls_share_their_casts(times: int, mode: Any) -> None:
    Twins(plain_loss).settle(region, mode, times=times)


def test_code_of_the_region_sees_the_casts_of_explained_calls() -> None:
    """A cast that is shared adds gradients in the lower dtype, two casts in float32."""
    twins = Twins(plain_loss)
    twins.settle(region)
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    before = twins.compiled._hits
    for model, function in zip(twins.models, (twins.compiled, twins.plain), strict=True):
        model.zero_grad()
        with region():
            (function(x, y) + model(x * 3).float().sum()).backward()
    assert twins.compiled._hits > before
    for a, b in zip(*(model.parameters() for model in twins.models), strict=True):
        assert same(a.grad, b.grad)


def test_casts_to_another_dtype_are_shared() -> None:
    """A region inside of one around the calls, whose casts stay until that one ends."""
    twins = Twins(loss(torch.float16))
    twins.settle(region, times=1)
    twins.settle(region, times=2)
    with region():
        torch.manual_seed(0)
        x, y = torch.randn(4, 6), torch.randn(4, 3)
        for function, model in zip((twins.compiled, twins.plain), twins.models, strict=True):
            model.zero_grad()
            with torch.no_grad():
                function(x, y)
            (function(x, y) + function(x * 2, y)).backward()
    for a, b in zip(*(model.parameters() for model in twins.models), strict=True):
        assert same(a.grad, b.grad)


def test_casts_of_code_before_are_inputs() -> None:
    twins = Twins(plain_loss)

    @contextmanager
    def warmed() -> Iterator[None]:
        with region():
            for model in twins.models:
                model(torch.ones(1, 6))
            yield

    twins.settle(warmed)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_weights_that_change_within_a_region(mode: Any) -> None:
    twins, x, y = Twins(plain_loss), torch.ones(4, 6), torch.ones(4, 3)
    for _ in range(8):
        before, losses = twins.compiled._hits, []
        for function, model in zip((twins.compiled, twins.plain), twins.models, strict=True):
            model.zero_grad()
            with region(), mode():
                losses.append([function(x, y)])
                with torch.no_grad():
                    model[0].weight.mul_(0.5)
                losses[-1] += [function(x, y), function(x, y)]
            if mode is torch.enable_grad:
                sum(losses[-1][1:]).backward()
        assert same(*losses)
        for a, b in zip(*(m.parameters() for m in twins.models), strict=True):
            assert a.grad is None or same(a.grad, b.grad)
    assert twins.compiled._hits == before + 3


def test_the_mode_around_a_call_is_a_guard() -> None:
    twins = Twins(plain_loss)
    twins.settle()
    assert not twins.run(0, region)
    twins.settle(region)
    half = lambda: torch.autocast("cpu", torch.float16)  # noqa: E731
    assert not twins.run(0, half)
    twins.settle(half)
    assert not twins.run(0, lambda: torch.autocast("cpu", cache_enabled=False))
    assert twins.run()
    assert twins.run(0, region)
    assert twins.run(0, half)


def test_the_dtype_of_the_thread_is_a_guard() -> None:
    def function(x: Any) -> Any:
        with torch.autocast("cpu"):
            return x @ x

    x = torch.randn(3, 3)
    compiled = explained(function, x)
    assert compiled(x).dtype == torch.bfloat16
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        result, skipped = skips(compiled, x)
        assert not skipped and result.dtype == torch.float16
    finally:
        torch.set_autocast_dtype("cpu", torch.bfloat16)
    assert skips(compiled, x)[1]


def test_state_is_read() -> None:
    def function(x: Any) -> Any:
        on = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return x * 2, on, torch.is_autocast_cache_enabled()

    x = torch.ones(2)
    compiled = explained(function, x)
    with region():
        assert same(compiled(x), function(x))
    assert same(compiled(x), function(x))


def test_a_dry_run_that_ends_early_leaves_no_state() -> None:
    import random

    def function(x: Any) -> Any:
        with torch.autocast("cpu", torch.float16, cache_enabled=False):
            random.random()
            return x @ x

    def left(x: Any) -> Any:
        torch.set_autocast_enabled("cpu", True)
        return x + 1

    before, x = states(), torch.ones(2, 2)
    compiled = torch.compile(function)
    for _ in range(6):
        compiled(x)
    assert not compiled._explanations and compiled._reason
    assert states() == before
    compiled = torch.compile(left)
    for _ in range(6):
        compiled(x)
        assert torch.is_autocast_enabled("cpu")
        torch.set_autocast_enabled("cpu", False)
    assert "autocast" in compiled._reason
    assert states() == before


def test_casts_that_stay_without_a_region() -> None:
    """Entries of the cache that a call would drop lead to tier 1."""
    twins = Twins(loss(torch.bfloat16))
    twins.settle()
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    torch.set_autocast_enabled("cpu", True)
    for model in twins.models:
        model(x)
    torch.set_autocast_enabled("cpu", False)
    result, skipped = skips(twins.compiled, x, y)
    assert not skipped and same(result, twins.plain(x, y))
    assert skips(twins.compiled, x, y)[1]


def test_regions_that_are_objects_of_users() -> None:
    shared = torch.autocast("cpu", torch.bfloat16)

    def function(x: Any) -> Any:
        with shared:
            y = x @ x
            with shared:
                y = y @ x
        return y, x @ x

    x = torch.randn(3, 3)
    compiled = explained(function, x)
    assert same(compiled(x), function(x))
    with shared:
        assert same(compiled(x), function(x))
    shared.fast_dtype = torch.float16
    result, skipped = skips(compiled, x)
    assert not skipped and same(result, function(x))


def test_a_region_that_is_left_in_another_order() -> None:
    def function(x: Any) -> Any:
        first, second = torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", torch.float16)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        y = x @ x
        second.__exit__(None, None, None)
        z = x @ x
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", torch.bfloat16)
        return y, z

    x = torch.randn(3, 3)
    before, expected = states(), function(x)
    compiled = explained(function, x)
    assert same(compiled(x), expected)
    assert states() == before


def test_each_thread_has_its_mode() -> None:
    twins = Twins(plain_loss)
    twins.settle(region)
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    results: list[Any] = []
    with region():
        thread = threading.Thread(target=lambda: results.append(twins.compiled(x, y)))
        thread.start()
        thread.join()
        results.append(twins.compiled(x, y))
    assert same(results[0], twins.plain(x, y))
    with region():
        assert same(results[1], twins.plain(x, y))


def test_rules_that_are_registered_later() -> None:
    library = torch.library.Library("frame_autocast", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
    double = torch.ops.frame_autocast.double

    def function(x: Any) -> Any:
        with torch.autocast("cpu"):
            return double(x)

    x = torch.ones(3)
    compiled = torch.compile(function)
    for _ in range(6):
        assert compiled(x).dtype == torch.float32
    torch.library.register_autocast("frame_autocast::double", "cpu", torch.bfloat16)
    for _ in range(6):
        assert same(compiled(x), function(x))
        assert compiled(x).dtype == torch.bfloat16


def test_guards_name_the_casts() -> None:
    twins = Twins(loss(torch.bfloat16))
    twins.settle()
    lines = torch.compiler.explain(twins.compiled, torch.ones(4, 6), torch.ones(4, 3)).guards
    assert "autocast has no cached casts" in "\n".join(map(str, lines))


def test_steps_of_mixed_precision() -> None:
    models = [model_of(), model_of()]
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in models]

    def step_of(model: Any, optimizer: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(model(x).float(), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    plain, step = (step_of(m, o) for m, o in zip(models, optimizers, strict=True))
    compiled = torch.compile(step)
    for seed in range(14):
        torch.manual_seed(seed)
        x, y = torch.randn(4, 6), torch.randn(4, 3)
        result, skipped = skips(compiled, x, y)
        assert same(result, plain(x, y))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            assert same(a.detach(), b.detach()) and a._version == b._version
    assert skipped, compiled._reason
    assert copy.deepcopy(states()) == (False, torch.bfloat16, True, 0)
