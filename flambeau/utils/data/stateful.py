"""`StatefulDataLoader`: a loader that continues in the middle of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flambeau as torch
from flambeau.utils.data.loader import DataLoader

__all__ = ["StatefulDataLoader"]


class StatefulDataLoader(DataLoader):
    """A `DataLoader` with `state_dict` and `load_state_dict`.

    The state is the number of batches that the pass has yielded and the state of the generator at
    its start, from which the order follows. A dataset or sampler with these two methods has its
    own state saved beside. To continue, batches before are skipped: loaded and dropped.

    Example:
        >>> loader = StatefulDataLoader(range(6), batch_size=2)
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> state = loader.state_dict()
        >>> again = StatefulDataLoader(range(6), batch_size=2)
        >>> again.load_state_dict(state)
        >>> list(again)
        [tensor([2, 3]), tensor([4, 5])]
    """

    _yielded = 0
    _finished = True
    _skipped = 0
    _start: Any = None
    _restored: Any = None

    @property
    def _source(self) -> Any:
        return torch.default_generator if self.generator is None else self.generator

    def _parts(self) -> dict[str, Any]:
        """Members that have a state of their own."""
        members = {"dataset": self.dataset, "sampler": self.sampler}
        return {
            name: member
            for name, member in members.items()
            if hasattr(member, "state_dict") and hasattr(member, "load_state_dict")
        }

    def state_dict(self) -> dict[str, Any]:
        """Where the present pass is; a pass that has ended counts as not begun."""
        return {
            "yielded": 0 if self._finished else self._yielded,
            "generator": None if self._finished else self._start,
            "parts": {name: member.state_dict() for name, member in self._parts().items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next pass continue where the saved one was."""
        self._restored = state_dict["generator"]
        parts = self._parts()
        for name, state in state_dict["parts"].items():
            parts[name].load_state_dict(state)
        own = "dataset" in state_dict["parts"] and self.num_workers == 0
        self._skipped = 0 if own else state_dict["yielded"]
        self._before = state_dict["yielded"] if own else 0

    _before = 0

    def __iter__(self) -> Iterator[Any]:
        if self._restored is not None:
            self._source.set_state(self._restored)
            self._restored = None
        self._start = self._source.get_state()
        self._yielded, self._before = self._before, 0
        self._finished = False
        skipped, self._skipped = self._skipped, 0
        return self._counted(super().__iter__(), skipped)

    def _counted(self, batches: Iterator[Any], skipped: int) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            self._yielded += 1
            if number >= skipped:
                yield batch
        self._finished = True
