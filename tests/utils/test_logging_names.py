"""Names of `torch._logging` beside outputs (tests/capture/test_logs.py), small private names."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_small_names_of_logging():
    text = torch._logging.LazyString(lambda x: f"<{x}>", 3)
    assert str(text) == "<3>"
    names = {logger.name for logger in torch._logging.get_loggers()}
    assert {"torch", "torch._dynamo", "torch._inductor"} <= names


def test_private_names_in_use():
    from flambeau.distributions.utils import _sum_rightmost
    from flambeau.nn.utils.stateless import _reparametrize_module

    layer, weight = torch.nn.Linear(2, 1), torch.zeros(1, 2)
    with _reparametrize_module(layer, {"weight": weight}):
        assert layer.weight is weight
    assert layer.weight is not weight and _sum_rightmost(torch.ones(2, 3), 1).shape == (2,)
    torch.cuda.memory._record_memory_history(max_entries=10)
    with pytest.raises(AssertionError, match="CUDA"):
        torch.cuda.memory._snapshot()
    with pytest.raises(NotImplementedError, match="phones"):
        torch.LiteScriptModule()
    assert torch.version.rocm is None
