"""no_grad, enable_grad, set_grad_enabled, inference_mode."""

import asyncio
import threading

import pytest

import flambeau as torch


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64).requires_grad_()


def test_blocks_nest_and_restore():
    x = leaf(1, 2)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    with pytest.raises(ValueError, match="mine"), torch.no_grad():
        raise ValueError("mine")
    assert torch.is_grad_enabled()


def test_one_guard_entered_twice():
    guard = torch.no_grad()
    with guard:
        with guard:
            pass
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_set_grad_enabled():
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    with torch.set_grad_enabled(False):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_decorators():
    @torch.no_grad()
    def called():
        return torch.is_grad_enabled()

    @torch.no_grad
    def bare():
        return torch.is_grad_enabled()

    @torch.set_grad_enabled(False)
    def other():
        return torch.is_grad_enabled()

    @torch.inference_mode
    def inference():
        return torch.is_inference_mode_enabled()

    assert torch.is_grad_enabled()
    assert (called(), bare(), other(), inference()) == (False, False, False, True)
    assert called.__name__ == "called"


def test_decorated_generators_switch_at_every_step():
    @torch.no_grad()
    def generator():
        received = yield torch.is_grad_enabled()
        try:
            yield received, torch.is_grad_enabled()
        except ValueError:
            yield "caught", torch.is_grad_enabled()

    steps = generator()
    assert next(steps) is False
    assert torch.is_grad_enabled()
    assert steps.send("hello") == ("hello", False)
    assert steps.throw(ValueError()) == ("caught", False)
    assert torch.is_grad_enabled()


def test_decorated_coroutines_and_classes():
    @torch.no_grad()
    async def coroutine():
        return torch.is_grad_enabled()

    @torch.no_grad()
    class Holder:
        def __init__(self):
            self.enabled = torch.is_grad_enabled()

    assert asyncio.run(coroutine()) is False
    assert Holder().enabled is False


def test_modes_belong_to_the_thread():
    found = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: found.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert found == [True]


def test_inference_mode():
    ordinary = torch.tensor([1.0, 2.0])
    with torch.inference_mode():
        x = torch.tensor([1.0, 2.0], dtype=torch.float64)
        assert torch.is_inference_mode_enabled()
        assert (x * 2).is_inference()
        x.add_(1)
        ordinary.add_(1)
        assert not ordinary.view(2, 1).is_inference()
    assert x.is_inference()
    assert not ordinary.is_inference()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * leaf(1, 2)
    with pytest.raises(RuntimeError, match="requires_grad=True on inference tensor"):
        x.requires_grad_()
    assert (x.clone() * leaf(1, 2)).requires_grad


def test_inference_mode_off():
    with torch.inference_mode(), torch.inference_mode(False):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
