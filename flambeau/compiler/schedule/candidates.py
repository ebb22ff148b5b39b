"""The tunable calls that have candidates, and the choice among those.

A template declares its candidates by name, beside the code that cuts it in tiles: the first name is
the choice of its cost model. None of them changes a bit of a result. `schedule` takes the first
ones; who measures (`driver/autotune.py`) hands it a function that chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from flambeau.compiler.schedule import attention, convolution_blocking, product_cut
from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.ir.node import Graph, Node

DEFAULT = "default"
# Names of an operation's candidates.
CANDIDATES: Mapping[str, Sequence[str]] = {
    "matmul": product_cut.CANDIDATES,
    "convolution": convolution_blocking.CANDIDATES,
    "convolution_input": convolution_blocking.CANDIDATES,
    "convolution_weight": convolution_blocking.CANDIDATES,
    "attention": tuple(attention.FORWARD),
    "attention_backward": tuple(attention.BACKWARD),
}


class TunableCall(NamedTuple):
    """A call that has candidates.

    Attributes:
        graph: of which it is a part.
        value: one of its results.
        make: its launches, in order, by the name of a candidate.
    """

    graph: Graph
    value: Node
    make: Callable[[str], list[RoutineCall]]


class Choose(Protocol):
    """Chooses among candidates.

    Attributes:
        values: of the program's symbols, at the first call.
    """

    values: Mapping[str, int]

    def __call__(self, tunable: TunableCall, /) -> str:
        """The name of one of `CANDIDATES[tunable.value.op]`."""
