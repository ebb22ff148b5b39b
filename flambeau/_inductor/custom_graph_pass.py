"""`torch._inductor.custom_graph_pass`: base classes of passes of users."""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from flambeau.fx import Graph, GraphModule

__all__ = [
    "CustomGraphModulePass", "CustomGraphPass", "CustomGraphPassCallable", "CustomGraphPassType",
    "CustomInferenceAwareGraphPass", "CustomPassBase", "get_custom_graph_passes",
    "get_hash_for_files",
]  # fmt: skip


class CustomPassBase(ABC):
    """A pass with an identity."""

    @abstractmethod
    def uuid(self) -> object:
        """An identity: passes of one uuid do the same. None: the pass has none."""


class CustomGraphPass(CustomPassBase):
    """A pass over a graph.

    Example:
        >>> from torch._inductor.custom_graph_pass import CustomGraphPass
        >>> class Count(CustomGraphPass):
        ...     calls = 0
        ...     def __call__(self, graph):
        ...         self.calls += sum(node.op == "call_function" for node in graph.nodes)
        ...     def uuid(self):
        ...         return "count"
        >>> count = Count()
        >>> f = torch.compile(lambda x: x.sin() + 1, options={"post_grad_custom_pre_pass": count})
        >>> result = f(torch.ones(2))
        >>> count.calls
        2
    """

    @abstractmethod
    def __call__(self, graph: Graph) -> None:
        """Changes the graph."""


class CustomGraphModulePass(CustomPassBase):
    """A pass over a module."""

    @abstractmethod
    def __call__(self, gm: GraphModule) -> None:
        """Changes the module's graph."""


class CustomInferenceAwareGraphPass(CustomGraphPass):
    """A pass over a graph that depends on whether gradients follow."""

    @abstractmethod
    def __call__(self, graph: Graph, is_inference: bool) -> None:  # type: ignore[override]
        """Changes the graph.

        Args:
            graph: the graph.
            is_inference: whether it is of a call without gradients.
        """


CustomGraphPassCallable = CustomGraphPass | Callable[[Graph], None]
CustomGraphPassType = CustomGraphPassCallable | Sequence[CustomGraphPassCallable] | None


def get_custom_graph_passes(
    custom_pass: CustomGraphPassType,
) -> tuple[CustomGraphPassCallable, ...]:
    """The passes of a setting, which may be one, several or None."""
    if custom_pass is None:
        return ()
    return tuple(custom_pass) if isinstance(custom_pass, (list, tuple)) else (custom_pass,)  # type: ignore[arg-type]


@functools.lru_cache(1)
def get_hash_for_files(paths: tuple[str, ...], extra: str = "") -> bytes:
    """A digest of files, for `uuid`.

    Args:
        paths: of the files.
        extra: a further text.
    """
    digest = hashlib.sha256(extra.encode())
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.digest()
