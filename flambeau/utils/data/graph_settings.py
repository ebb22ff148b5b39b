"""Settings of all pipes that a data pipe is made of: shuffling, seeds, shards."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch
from flambeau.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from flambeau.utils.data.graph import DataPipe, DataPipeGraph, traverse_dps

__all__ = [
    "apply_random_seed",
    "apply_sharding",
    "apply_shuffle_seed",
    "apply_shuffle_settings",
    "get_all_graph_pipes",
]


def get_all_graph_pipes(graph: DataPipeGraph) -> list[Any]:
    """The pipes of a graph, each once."""
    pipes: dict[int, Any] = {}

    def collect(level: DataPipeGraph) -> None:
        for number, (pipe, parts) in level.items():
            if number not in pipes:
                pipes[number] = pipe
                collect(parts)

    collect(graph)
    return list(pipes.values())


def _has_methods(pipe: Any, *names: str) -> bool:
    return all(callable(getattr(type(pipe), name, None)) for name in names)


def apply_sharding(
    datapipe: DataPipe,
    num_of_instances: int,
    instance_id: int,
    sharding_group: Any = SHARDING_PRIORITIES.DEFAULT,
) -> DataPipe:
    """Divides the stream at each pipe that has a method `apply_sharding`.

    Raises:
        RuntimeError: two such pipes on one way.
    """

    def visit(level: DataPipeGraph, above: Any) -> None:
        for pipe, parts in level.values():
            here = above
            if _has_methods(pipe, "apply_sharding"):
                if above is not None:
                    raise RuntimeError(
                        "Sharding twice on a single pipeline is likely unintended and will cause "
                        f"data loss. Sharding already applied to {above} while trying to apply to "
                        f"{pipe}"
                    )
                pipe.apply_sharding(num_of_instances, instance_id, sharding_group)
                here = pipe
            visit(parts, here)

    visit(traverse_dps(datapipe), None)
    return datapipe


def apply_shuffle_settings(datapipe: DataPipe, shuffle: bool | None = None) -> DataPipe:
    """Turns the pipes that shuffle on or off; appends one where there is none and `shuffle`."""
    if shuffle is None:
        return datapipe
    pipes = get_all_graph_pipes(traverse_dps(datapipe))
    shufflers = [pipe for pipe in pipes if _has_methods(pipe, "set_shuffle", "set_seed")]
    if not shufflers and shuffle:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at "
            "the end. Be aware that the default buffer size might not be sufficient for your task.",
            stacklevel=2,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for shuffler in shufflers:
        shuffler.set_shuffle(shuffle)
    return datapipe


def apply_shuffle_seed(datapipe: DataPipe, rng: Any) -> DataPipe:
    """The former name of `apply_random_seed`."""
    return apply_random_seed(datapipe, rng)


def apply_random_seed(datapipe: DataPipe, rng: Any) -> DataPipe:
    """Seeds each pipe that has a method `set_seed` from a generator."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if _has_methods(pipe, "set_seed"):
            pipe.set_seed(int(torch.empty((), dtype=torch.int64).random_(generator=rng).item()))
    return datapipe
