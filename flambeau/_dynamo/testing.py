"""`torch._dynamo.testing`: helpers of tests of compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau._dynamo.utils import same
from flambeau.ir.lock import late
from flambeau.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from flambeau.fx import GraphModule

_Compiled = Callable[..., object]

__all__ = [
    "AotEagerAndRecordGraphs", "CompileCounter", "CompileCounterWithBackend",
    "EagerAndRecordGraphs", "InductorAndRecordGraphs", "extract_graph", "normalize_gm",
    "rand_strided", "reduce_to_scalar_loss", "requires_bwd_pass", "reset_rng_state", "same",
]  # fmt: skip


class CompileCounter:
    """A backend that counts graphs and their calls, and returns the graphs uncompiled.

    Example:
        >>> from torch._dynamo.testing import CompileCounter
        >>> counter = CompileCounter()
        >>> compiled = torch.compile(lambda x: x.sin() + 1, backend=counter)
        >>> _ = compiled(torch.ones(2)), compiled(torch.zeros(2))
        >>> counter.frame_count, counter.op_count
        (1, 2)
    """

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        return gm.forward

    def clear(self) -> None:
        """Starts again at 0."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """As `CompileCounter`; the graphs are compiled.

    Args:
        backend: a name.
    """

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return late("flambeau._dynamo.backends.registry").lookup_backend(self.backend)(
            gm, example_inputs
        )


class EagerAndRecordGraphs:
    """A backend that stores graphs and returns them uncompiled.

    Attributes:
        graphs: the graphs, in order.

    Example:
        >>> from torch._dynamo.testing import EagerAndRecordGraphs
        >>> backend = EagerAndRecordGraphs()
        >>> _ = torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(2))
        >>> [node.name for node in backend.graphs[0].graph.nodes if node.op != "output"]
        ['l_x_', 'sin', 'add']
    """

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[object]) -> _Compiled:
        self.graphs.append(gm)
        return gm.forward


class AotEagerAndRecordGraphs(EagerAndRecordGraphs):
    """As `EagerAndRecordGraphs`, with the graphs of forward and backward.

    Attributes:
        fw_graphs, bw_graphs: those graphs, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fw_graphs: list[GraphModule] = []
        self.bw_graphs: list[GraphModule] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[object]) -> _Compiled:
        self.graphs.append(gm)
        aot = late("flambeau._dynamo.backends.common").aot_autograd
        forward, backward = _stored_in(self.fw_graphs), _stored_in(self.bw_graphs)
        compiled: _Compiled = aot(fw_compiler=forward, bw_compiler=backward)(gm, example_inputs)
        return compiled


def _stored_in(graphs: list[GraphModule]) -> Callable[[GraphModule, Sequence[object]], _Compiled]:
    """A compiler that stores graphs and returns them as they are."""

    def compiler(graph: GraphModule, inputs: Sequence[object]) -> _Compiled:
        graphs.append(graph)
        return graph

    return compiler


class InductorAndRecordGraphs(EagerAndRecordGraphs):
    """As `EagerAndRecordGraphs`; the graphs are compiled."""

    def __call__(self, gm: GraphModule, example_inputs: Sequence[object]) -> _Compiled:
        self.graphs.append(gm)
        compiled: _Compiled = late("flambeau._inductor").compile(gm, example_inputs)
        return compiled


def extract_graph(
    fn: _Compiled, *args: object, **kwargs: object
) -> tuple[object, list[GraphModule], list[GraphModule]]:
    """Calls a function with a backend that stores its graphs.

    Returns:
        the result, the graphs, and those of the forward.
    """
    backend = AotEagerAndRecordGraphs()
    result = late("flambeau.capture.regions").compile(fn, backend=backend)(*args, **kwargs)
    return result, backend.graphs, backend.fw_graphs


def normalize_gm(gm_str: str) -> str:
    """The text of a graph module without comments, for comparisons."""
    lines = [line for line in gm_str.splitlines() if not line.lstrip().startswith("#")]
    return "\n".join(line.split("  # ")[0].rstrip() for line in lines) + "\n"


def requires_bwd_pass(out: object) -> bool:
    """Whether a tensor, or one of a list or tuple of them, requires a gradient."""
    return any(getattr(leaf, "requires_grad", False) for leaf in tree_leaves(out))


def reduce_to_scalar_loss(out: object) -> object:
    """The mean of the tensors' sums divided by their sizes: a number to differentiate."""
    import flambeau as torch

    leaves = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
    return sum(x.sum() / x.numel() for x in leaves) / len(leaves)


def rand_strided(
    size: Sequence[int], stride: Sequence[int], dtype: Any = None, device: Any = "cpu",
    extra_size: int = 0,
) -> Any:  # fmt: skip
    """A random tensor with these strides.

    Args:
        size, stride: of the tensor.
        dtype: float32 where it is None.
        device: of the tensor.
        extra_size: elements behind the last one.
    """
    import flambeau as torch

    dtype = dtype or torch.float32
    needed = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + extra_size
    if dtype.is_floating_point or dtype.is_complex:
        buffer = torch.randn(needed, device=device).to(dtype)
    else:
        buffer = torch.randint(0, 2 if dtype == torch.bool else 10, (needed,), device=device)
        buffer = buffer.to(dtype)
    return torch.as_strided(buffer, tuple(size), tuple(stride))


def reset_rng_state(use_xla: bool = False) -> None:
    """Seeds the generators of Python, NumPy and PyTorch with 1337."""
    import random
    import sys

    import flambeau as torch

    torch.manual_seed(1337)
    random.seed(1337)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(1337)
