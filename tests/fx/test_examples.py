"""Examples of docstrings run; the alias gives the same graphs; names that a program may import."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import flambeau as torch
import flambeau.fx
from flambeau import nn

MODULES = [each.name for each in pkgutil.walk_packages(flambeau.fx.__path__, "flambeau.fx.")]

ALIAS = """
import torch, torch.fx._symbolic_trace
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.node import map_arg
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)) + 1
traced = torch.fx.symbolic_trace(Model())
print(traced.code)
print(torch.fx.Tracer().is_leaf_module(traced.linear, ""), type(traced.graph).__module__)
"""


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    module = importlib.import_module(name)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
    space = {"torch": torch, "nn": nn, "__name__": "__main__"}
    for test in finder.find(module, name, globs=space):
        for example in test.examples:
            example.source = example.source.replace("from torch.", "from flambeau.")
        runner.run(test)
    assert runner.failures == 0


def test_under_the_alias():
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "-c", ALIAS], capture_output=True, text=True, check=True
    )
    assert "gelu = torch._C._nn.gelu(linear);  linear = None" in done.stdout
    assert done.stdout.strip().endswith("True torch.fx.graph")


def test_parameters_are_looked_up_without_a_walk_each():
    """A trace walks the parameters of the root once, whatever their number."""

    class Many(nn.Module):
        walks = 0

        def __init__(self):
            super().__init__()
            self.values = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(50))

        def named_parameters(self, *args, **kwargs):
            type(self).walks += 1
            return super().named_parameters(*args, **kwargs)

        def forward(self, x):
            for value in self.values:
                x = x + value
            return x

    model = Many()
    traced = flambeau.fx.symbolic_trace(model)
    assert len(traced.graph.find_nodes(op="get_attr")) == 50
    assert Many.walks == 1
