"""Finds the data pipes that a data pipe is built from."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]

DataPipe = IterDataPipe | MapDataPipe
DataPipeGraph = dict[int, Any]


def _inside(value: Any, seen: set[int]) -> list[Any]:
    """Pipes that an attribute holds, directly or in containers and helper objects."""
    if isinstance(value, (IterDataPipe, MapDataPipe)):
        return [value]
    if isinstance(value, dict):
        values: Any = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        values = value
    elif type(value).__module__.startswith(("flambeau.utils.data", "torch.utils.data")):
        values = vars(value).values() if hasattr(value, "__dict__") else ()
    else:
        return []
    if id(value) in seen:
        return []
    seen.add(id(value))
    return [pipe for each in values for pipe in _inside(each, seen)]


def _graph(pipe: Any, above: frozenset[int]) -> DataPipeGraph:
    if id(pipe) in above:
        return {}
    above |= {id(pipe)}
    parts: DataPipeGraph = {}
    for value in vars(pipe).values():
        for part in _inside(value, set()):
            parts.update(_graph(part, above))
    return {id(pipe): (pipe, parts)}


def traverse_dps(datapipe: Any) -> DataPipeGraph:
    """A pipe's id to the pipe and, likewise, what it is made of.

    Raises:
        RuntimeError: no data pipe.
    """
    if not isinstance(datapipe, (IterDataPipe, MapDataPipe)):
        raise RuntimeError(
            f"Expected `IterDataPipe` or `MapDataPipe`, but {type(datapipe)} is found"
        )
    return _graph(datapipe, frozenset())


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> DataPipeGraph:
    """The same under an older name."""
    return traverse_dps(datapipe)
