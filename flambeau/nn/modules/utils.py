"""Sizes that may be given as one number: repeated per dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any


def ntuple(value: Any, count: int) -> tuple[Any, ...]:
    """A tuple of `count` numbers: the value itself, or the number repeated."""
    if isinstance(value, Iterable):
        return tuple(value)
    return tuple(repeat(value, count))


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes tuples of `n` numbers."""

    def parse(x: Any) -> tuple[Any, ...]:
        return ntuple(x, n)

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Iterable[Any], n: int) -> tuple[Any, ...]:
    """Each value `n` times, last value first: the order in which `pad` wants dimensions."""
    return tuple(value for value in reversed(tuple(t)) for _ in range(n))


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """Sizes with None replaced by the last of `defaults`."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"[utils] Input dimension should be at least {len(out_size) + 1}\n"
                         "hint: give fewer sizes")  # fmt: skip
    known = defaults[-len(out_size) :]
    return [value if value is not None else default for value, default in zip(out_size, known)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Strips a prefix from the keys of a state dict, in place: "module." of DataParallel, say."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    for key in list(metadata or ()):
        if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)  # type: ignore[index]
