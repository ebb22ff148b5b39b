"""PyTorch's names of logs, mapped to `FLAMBEAU_DEBUG`, and small private names."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau.runtime import settings

PROGRAM = """
import flambeau as torch
torch.compile(lambda x: (x + 1).sum().item())(torch.ones(3))
"""


@pytest.fixture(autouse=True)
def level():
    with settings.override(DEBUG=0):
        yield


def test_names_set_the_level():
    for expected, names in (
        (4, {"output_code": True}),
        (2, {"graph_code": True, "graph_breaks": True}),
        (1, {"dynamo": logging.INFO}),
        (2, {"dynamo": logging.DEBUG}),
        (0, {"all": logging.WARNING, "guards": False}),
    ):
        torch._logging.set_logs(**names)
        assert settings.get("DEBUG") == expected, names
    assert settings.logs_level("unknown") == 0


def test_the_environment_variable_of_pytorch():
    def printed(**variables):
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables
        )
        assert result.returncode == 0, result.stderr
        return "item() after" in result.stderr

    import os

    env = {k: v for k, v in os.environ.items() if k not in ("TORCH_LOGS", "FLAMBEAU_DEBUG")}
    assert printed(**env, TORCH_LOGS="graph_breaks")
    assert not printed(**env, TORCH_LOGS="graph_breaks", FLAMBEAU_DEBUG="0")


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
