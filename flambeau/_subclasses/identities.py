"""Facts that modes store per tensor, also of those that the engine hands back as other objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from flambeau import _core
from flambeau.ir.lock import late

__all__ = ["Identities"]

Tensor = Any
Entry = TypeVar("Entry")


class Identities(Generic[Entry]):
    """Entries of tensors.

    A tensor that a backward reads again is another object of the same memory. Its entry is the
    newest of that memory.
    """

    def __init__(self) -> None:
        self._by_object: dict[int, tuple[Tensor, Entry]] = {}
        self._by_memory: dict[tuple[object, ...], tuple[Tensor, Entry]] = {}
        self._changes: list[tuple[dict[Tensor, Tensor], object, tuple[Tensor, Entry] | None]] = []

    def set(self, tensor: Tensor, entry: Entry) -> None:
        """Lets a tensor, which stays alive so that its identity does, have an entry from now on."""
        self._set(self._by_object, id(tensor), (tensor, entry))
        memory = memory_of(tensor)
        if memory is not None:
            self._set(self._by_memory, memory, (tensor, entry))

    def _set(self, entries: dict[Tensor, Tensor], key: object, pair: tuple[Tensor, Entry]) -> None:
        self._changes.append((entries, key, entries.get(key)))
        entries[key] = pair

    def mark(self) -> int:
        """The number of changes so far, for `revert`."""
        return len(self._changes)

    def revert(self, mark: int, chosen: Callable[[Entry], bool]) -> None:
        """Tensors with chosen entries get the entries that they had at a mark."""
        for entries, key, before in reversed(self._changes[mark:]):
            pair = entries.get(key)
            if pair is None or not chosen(pair[1]):
                continue
            if before is None:
                del entries[key]
            else:
                entries[key] = before

    def find(self, tensor: Tensor) -> Entry | None:
        """The entry of a tensor, if any."""
        pair = self._by_object.get(id(tensor)) or self._by_memory.get(memory_of(tensor) or ())
        return None if pair is None else pair[1]

    def original(self, tensor: Tensor) -> Tensor:
        """The object that has the entry of a tensor; without one, the tensor."""
        pair = self._by_object.get(id(tensor)) or self._by_memory.get(memory_of(tensor) or ())
        return tensor if pair is None else pair[0]


def memory_of(tensor: Tensor) -> tuple[object, ...] | None:
    """Identity of what a tensor shows; None: its memory is not one storage's."""
    fakes = late("flambeau._subclasses.fake_tensor").FakeTensor.__subclasses__()
    fakes.append(late("flambeau._subclasses.fake_tensor").FakeTensor)
    plain = (_core.Tensor, late("flambeau.nn.parameter").Parameter, *fakes)  # none of the user's
    if type(tensor) not in plain or tensor.layout is not _core.strided:
        return None
    with late("flambeau._subclasses.fake_calls").below():
        storage = tensor.untyped_storage()._cdata
        return storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
