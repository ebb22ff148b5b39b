"""`aot_autograd`: a backend from compilers of graphs of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.fx import GraphModule
from flambeau.ir.lock import importing

__all__ = ["aot_autograd"]


class AotAutograd:
    """A backend that splits a graph into forward and backward, of operators, before it compiles.

    Args:
        options: of `aot_module_simplified`.
    """

    __name__ = "compiler_fn"

    def __init__(self, **options: Any) -> None:
        if "fw_compiler" not in options:
            raise AssertionError("fw_compiler must be provided")
        self.kwargs = options

    def __call__(
        self, gm: GraphModule, example_inputs: Sequence[Any], **options: Any
    ) -> Callable[..., Any]:
        """Compiles a graph."""
        with importing:
            from flambeau._functorch.aot_autograd import aot_module_simplified

        return aot_module_simplified(gm, example_inputs, **self.kwargs)


def aot_autograd(**kwargs: Any) -> AotAutograd:
    """A backend of `torch.compile` from compilers of graphs of operators.

    Args:
        kwargs: `fw_compiler`, `bw_compiler`, `inference_compiler`, `partition_fn`,
            `decompositions`: see `torch._functorch.aot_autograd.aot_function`.

    Example:
        >>> from torch._dynamo.backends.common import aot_autograd
        >>> def show(module, inputs):
        ...     print([n.name for n in module.graph.nodes if n.op == "call_function"])
        ...     return module
        >>> f = torch.compile(lambda x: torch.relu(x) + 1, backend=aot_autograd(fw_compiler=show))
        >>> f(torch.ones(2))
        ['relu', 'add']
        tensor([2., 2.])
    """
    return AotAutograd(**kwargs)
