"""`PassBase` and `PassResult`: a pass with conditions before and after it."""

from __future__ import annotations

import abc
from collections import namedtuple
from typing import Any

from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


@compatibility(is_backward_compatible=False)
class PassResult(namedtuple("PassResult", ["graph_module", "modified"])):  # noqa: PYI024
    """The result of a pass.

    Attributes:
        graph_module: the module after it.
        modified: whether it changed something.
    """

    __slots__ = ()

    def __new__(cls, graph_module: Any, modified: bool) -> PassResult:
        """A pair."""
        return super().__new__(cls, graph_module, modified)


@compatibility(is_backward_compatible=False)
class PassBase(abc.ABC):
    """Base class of passes: define `call`; `requires` and `ensures` check before and after.

    Example:
        >>> from torch.fx.passes.infra.pass_base import PassBase, PassResult
        >>> class Nothing(PassBase):
        ...     def call(self, graph_module):
        ...         return PassResult(graph_module, False)
        >>> Nothing()(torch.fx.symbolic_trace(lambda x: x)).modified
        False
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Checks, runs, checks."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """The pass itself.

        Args:
            graph_module: the module.
        """

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - optional
        """Raises if the pass cannot run on a module."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027 - optional
        """Raises if the module is not as it should be after the pass."""
