"""Graph modules whose source PyTorch may make late; here it is made at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.fx.graph_module import GraphModule

_use_lazy_graph_module_flag = False
_force_skip_lazy_graph_module_flag = False


def _make_graph_module(
    *args: Any, graph_module_cls: type[GraphModule] | None = None, **kwargs: Any
) -> GraphModule:
    """A graph module.

    Args:
        args: arguments of `GraphModule`.
        graph_module_cls: a subclass to make.
        kwargs: arguments by name.
    """
    return (graph_module_cls or GraphModule)(*args, **kwargs)


def _get_graph_module_cls() -> type[GraphModule]:
    """The class of new graph modules."""
    return GraphModule


@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """A `with` block that changes nothing: source is made at once."""
    yield


@contextlib.contextmanager
def _force_skip_lazy_graph_module() -> Iterator[None]:
    """A `with` block that changes nothing: source is made at once."""
    yield


class _LazyGraphModule(GraphModule):
    """A graph module; its source is made at once."""

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> GraphModule:
        """The module itself."""
        return gm

    @staticmethod
    def force_recompile(gm: GraphModule) -> None:
        """Makes the source anew."""
        gm.recompile()

    def real_recompile(self) -> None:
        """Makes the source anew."""
        self.recompile()
