"""`DataLoader`: batches of a dataset, loaded here or by worker processes.

Seeds are drawn as PyTorch draws them, so the same seed gives PyTorch's order. Workers are fork
processes on Linux; each has one connection, over which it receives indices and returns batches
(see `transport`). Order, death of workers and shutdown are decided here, by the main process alone.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any

import flambeau as torch
from flambeau.ir.lock import late, loaded
from flambeau.profiler.session import record_function
from flambeau.utils.data.collate import default_collate, default_convert
from flambeau.utils.data.dataset import IterableDataset
from flambeau.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    draw_seed,
)
from flambeau.utils.data.transport import Channel, Closed, channel_pair
from flambeau.utils.data.worker import Failure, Fetcher, Job, run

__all__ = ["DataLoader"]

_FIXED = frozenset("batch_size batch_sampler sampler drop_last dataset persistent_workers".split())
_PATIENCE = 5.0  # seconds a worker has to finish its item at shutdown


def _problem(text: str, hint: str = "see the DataLoader's arguments") -> ValueError:
    return ValueError(f"[DataLoader] {text}\nhint: {hint}")


class DataLoader:
    """Iterates over a dataset in batches.

    Args:
        dataset: map-style (`__getitem__`, `__len__`) or an `IterableDataset`.
        batch_size: items per batch; None turns batching off.
        shuffle: a new random order in every pass.
        sampler: an order of indices instead of `shuffle`.
        batch_sampler: an order of lists of indices instead of all four of the above.
        num_workers: processes that load; 0 loads in this process.
        collate_fn: makes a batch of a list of items.
        pin_memory, pin_memory_device: without effect on CPUs.
        drop_last: no smaller batch at the end.
        timeout: seconds to wait for a worker; 0 waits forever.
        worker_init_fn: called with the worker's number in each worker, after seeding.
        multiprocessing_context: a start method or a context; fork where it exists.
        generator: draws orders and the base seed of the workers.
        prefetch_factor: batches loaded in advance per worker; 2 when None.
        persistent_workers: workers stay for the next pass.
        in_order: batches come in the sampler's order; else as soon as they are ready.

    Raises:
        ValueError: options that exclude each other.

    Example:
        >>> for batch in DataLoader(torch.arange(4), batch_size=2):
        ...     print(batch)
        tensor([0, 1])
        tensor([2, 3])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self._settings = _pipe_settings(dataset)
        if self._settings is not None:
            dataset = self._settings.apply_shuffle_settings(dataset, shuffle)
        self.dataset = dataset
        self.num_workers, self.timeout = num_workers, timeout
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.generator, self.in_order = worker_init_fn, generator, in_order
        self.persistent_workers = persistent_workers
        self.prefetch_factor = self._checked_workers(prefetch_factor)
        self.multiprocessing_context = multiprocessing_context
        self._iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._iterable else _DatasetKind.Map
        self._IterableDataset_len_called: int | None = None
        self._check_orders(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler = self._default_sampler(shuffle) if sampler is None else sampler
        batches = None if batch_size is None else BatchSampler(self.sampler, batch_size, drop_last)
        self.batch_sampler = batches if batch_sampler is None else batch_sampler
        default = default_collate if self._auto_collation else default_convert
        self.collate_fn = default if collate_fn is None else collate_fn
        self._iterator: _MultiProcessingDataLoaderIter | None = None
        self._initialized = True
        self.check_worker_number_rationality()

    def _checked_workers(self, prefetch_factor: int | None) -> int | None:
        if self.num_workers < 0:
            raise _problem(
                "num_workers option should be non-negative; use num_workers=0 to disable "
                "multiprocessing."
            )
        if self.timeout < 0:
            raise _problem("timeout option should be non-negative")
        if self.num_workers == 0:
            if prefetch_factor is not None:
                raise _problem(
                    "prefetch_factor option could only be specified in multiprocessing. let "
                    "num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to "
                    "None."
                )
            if self.persistent_workers:
                raise _problem("persistent_workers option needs num_workers > 0")
            return None
        if prefetch_factor is not None and prefetch_factor < 0:
            raise _problem("prefetch_factor option should be non-negative")
        return 2 if prefetch_factor is None else prefetch_factor

    def _check_orders(
        self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        if self._iterable:
            order = None if self._settings is not None else shuffle or None
            options = {"shuffle": order, "sampler": sampler, "batch_sampler": batch_sampler}
            for name, value in options.items():
                if value is not None:
                    raise _problem(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but "
                        f"got {name}={value}",
                        "the dataset itself decides its order",
                    )
        if sampler is not None and shuffle:
            raise _problem("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise _problem(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    "and drop_last"
                )
        elif batch_size is None and drop_last:
            raise _problem(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )

    def _default_sampler(self, shuffle: Any) -> Any:
        if self._iterable:
            return _InfiniteConstantSampler()
        if shuffle:
            return RandomSampler(self.dataset, generator=self.generator)
        return SequentialSampler(self.dataset)

    @property
    def multiprocessing_context(self) -> Any:
        """The context workers are started in."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is None:
            self._context = None
            return
        if self.num_workers == 0:
            raise _problem(
                "multiprocessing_context can only be used with multi-process loading (num_workers "
                "> 0), but got num_workers=0"
            )
        if isinstance(context, str):
            methods = multiprocessing.get_all_start_methods()
            if context not in methods:
                raise _problem(
                    "multiprocessing_context option should specify a valid start method in "
                    f"{methods!r}, but got multiprocessing_context={context!r}"
                )
            context = multiprocessing.get_context(context)
        self._context = context

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_initialized"):
            raise _problem(
                f"{name} attribute should not be set after DataLoader is initialized",
                "make another DataLoader",
            )
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used.",
                stacklevel=3,
            )
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> Iterator[Any]:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()  # type: ignore[return-value]
        if self._iterator is None or self._iterator.broken:
            self._iterator = self._get_iterator()  # type: ignore[assignment]
        else:
            self._iterator.restart(self)
        return self._iterator  # type: ignore[return-value]

    def check_worker_number_rationality(self) -> None:
        """Warns if more workers are requested than this process has CPUs to run on."""
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        available = available or os.cpu_count()
        if not self.num_workers or (available and self.num_workers <= available):
            return
        warnings.warn(
            f"This DataLoader will create {self.num_workers} worker processes in total, and this "
            f"process may use {available or 'an unknown number of'} CPUs: loading can become slow "
            f"or stop\nhint: num_workers <= {available or 1}",
            stacklevel=3,
        )

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def seed_pipes(self) -> int | None:
        """Seeds what draws in a data pipe for the next pass; the seed that all workers share."""
        if self._settings is None or not self._iterable:
            return None
        shared = draw_seed(self.generator)
        source = torch.Generator()
        source.manual_seed(shared)
        self._settings.apply_random_seed(self.dataset, source)
        return shared

    def job(self, base_seed: int, number: int) -> Job:
        """Returns the job of worker `number`."""
        return Job(
            self.dataset,
            self._iterable,
            self._auto_collation,
            self.collate_fn,
            self.drop_last,
            base_seed,
            self.worker_init_fn,
            number,
            self.num_workers,
        )


def _pipe_settings(dataset: Any) -> Any:
    """The module of settings where a dataset is a data pipe, else None."""
    pipes = loaded("flambeau.utils.data.datapipes.datapipe")
    if pipes is None or not isinstance(dataset, (pipes.IterDataPipe, pipes.MapDataPipe)):
        return None
    return late("flambeau.utils.data.graph_settings")


class _DatasetKind:
    """How a loader reads its dataset: by index, or as a stream."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> Fetcher:
        """An object whose `fetch(index)` makes a batch."""
        stream = iter(dataset) if kind == _DatasetKind.Iterable else None
        return Fetcher(dataset, auto_collation, collate_fn, drop_last, stream)


class _InfiniteConstantSampler(Sampler[None]):
    """The sampler of streams, which know themselves when they end."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class _BaseDataLoaderIter:
    """One pass over a dataset, by whichever processes."""


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Loads in this process."""

    def __init__(self, loader: DataLoader) -> None:
        if loader.timeout:
            raise _problem("timeout needs num_workers > 0", "drop timeout")
        loader.seed_pipes()
        self._indices = iter(loader._index_sampler)
        self._loader = loader
        base_seed = draw_seed(loader.generator)  # drawn as with workers: equal streams after it
        self._fetcher = loader.job(base_seed, 0).fetcher()

    def __iter__(self) -> _SingleProcessDataLoaderIter:
        return self

    @record_function("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    def __next__(self) -> Any:
        return self._fetcher.fetch(next(self._indices))

    def __len__(self) -> int:
        return len(self._loader)


class _Worker:
    """A worker process, seen from the main process."""

    def __init__(
        self, loader: DataLoader, number: int, base_seed: int, others: list[_Worker]
    ) -> None:
        context = loader.multiprocessing_context or _default_context()
        mine, theirs = channel_pair()
        forked = context.get_start_method() == "fork"
        inherited = [mine, *(w.channel.end for w in others)] if forked else []
        self.channel = Channel(mine)
        self.process = context.Process(
            target=run, args=(theirs, inherited, loader.job(base_seed, number)), daemon=True
        )
        try:
            self.process.start()
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        self.tasks = 0  # sent and not yet answered in this pass
        self.waiting: deque[Any] = deque()  # not yet sent: the connection was full
        self.ended = False  # its part of a stream is exhausted

    def flush(self) -> None:
        """Sends the queued messages that the connection accepts."""
        while self.waiting and self.channel.writable():
            self.channel.send(self.waiting.popleft())


def _default_context() -> Any:
    methods = multiprocessing.get_all_start_methods()
    chosen = multiprocessing.get_start_method(allow_none=True)
    if chosen is None and "fork" in methods:
        chosen = "fork"
    return multiprocessing.get_context(chosen)


def _shut_down(workers: list[_Worker]) -> None:
    """Ends workers: politely, then not."""
    for worker in workers:
        worker.channel.close()
    limit = time.monotonic() + _PATIENCE
    for worker in workers:
        worker.process.join(max(0.0, limit - time.monotonic()))
    for worker in workers:
        if worker.process.is_alive():
            worker.process.terminate()
    for worker in workers:
        worker.process.join(1.0)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
    workers.clear()


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """One pass over a dataset by worker processes (several passes when they persist).

    Batches are numbered in the sampler's order. `_owner` says which worker has an unfinished
    number, `_ready` holds batches that arrived before their turn.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._timeout, self._in_order = loader.timeout, loader.in_order
        self._persistent = loader.persistent_workers
        self._ahead = max(loader.prefetch_factor or 0, 1)
        self._loader = loader
        self.broken = False
        self._epoch = 0
        loader.seed_pipes()
        indices = iter(loader._index_sampler)
        base_seed = draw_seed(loader.generator)
        self._workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _shut_down, self._workers)
        try:
            for number in range(loader.num_workers):
                self._workers.append(_Worker(loader, number, base_seed, self._workers))
        except BaseException:
            self._stop()
            raise
        loader.seed_pipes()  # PyTorch draws a second seed here, which workers do not see
        self._begin(indices)

    def _begin(self, indices: Iterator[Any]) -> None:
        self._indices: Iterator[Any] | None = indices
        self._next_sent = self._next_given = 0
        self._turn = 0
        self._owner: dict[int, _Worker] = {}
        self._ready: dict[int, tuple[str, Any]] = {}
        for worker in self._workers:
            worker.tasks, worker.ended = 0, False
            worker.waiting.clear()
        for _ in range(self._ahead * len(self._workers)):
            self._request()

    def restart(self, loader: DataLoader) -> None:
        """A new pass; answers to an abandoned one are dropped when they arrive."""
        shared = loader.seed_pipes()
        indices = iter(loader._index_sampler)  # workers are not reseeded, as in PyTorch
        self._epoch += 1
        for worker in self._workers:
            self._send(worker, ("resume", shared))
        self._begin(indices)

    def __iter__(self) -> _MultiProcessingDataLoaderIter:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    @record_function("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    def __next__(self) -> Any:
        try:
            return self._advance()
        except StopIteration:
            if not self._persistent:
                self._stop()
            raise
        except BaseException:
            if not self._persistent or self.broken:
                self._stop()
            raise

    def _advance(self) -> Any:
        while True:
            self._skip_ended()
            if self._next_given in self._ready:
                kind, content = self._ready.pop(self._next_given)
                self._next_given += 1
                return self._given(kind, content)
            if not self._owner:
                raise StopIteration
            number, kind, content = self._receive()
            if kind == "end":
                continue
            if not self._in_order:
                self._ready.pop(number, None)
                return self._given(kind, content)
            self._ready[number] = (kind, content)

    def _skip_ended(self) -> None:
        """Passes numbers that will never be answered."""
        while self._next_given < self._next_sent:
            if self._next_given in self._owner or self._next_given in self._ready:
                return
            self._next_given += 1

    def _given(self, kind: str, content: Any) -> Any:
        self._request()
        if kind == "failure":
            assert isinstance(content, Failure)
            content.reraise()
        return content

    def _request(self) -> None:
        """Requests the next batch of the worker whose turn it is."""
        if self._indices is None:
            return
        worker = self._chosen()
        if worker is None:
            return
        try:
            index = next(self._indices)
        except StopIteration:
            self._indices = None
            return
        self._owner[self._next_sent] = worker
        worker.tasks += 1
        worker.waiting.append(("task", self._epoch, self._next_sent, index))
        self._next_sent += 1
        try:
            worker.flush()
        except Closed:
            self._died(worker)

    def _chosen(self) -> _Worker | None:
        active = [w for w in self._workers if not w.ended]
        if not active:
            return None
        if not self._in_order:
            return min(active, key=lambda w: w.tasks)
        while True:
            worker = self._workers[self._turn % len(self._workers)]
            self._turn += 1
            if not worker.ended:
                return worker

    def _send(self, worker: _Worker, message: Any) -> None:
        try:
            worker.channel.send(message)
        except Closed:
            self._died(worker)

    def _receive(self) -> tuple[int, str, Any]:
        """The next answer of any worker in this pass."""
        limit = time.monotonic() + self._timeout if self._timeout else None
        while True:
            self._flush()
            channels = {w.channel: w for w in self._workers}
            remaining = None if limit is None else max(0.0, limit - time.monotonic())
            pending = any(w.waiting for w in self._workers)
            ready = wait(list(channels), 0.01 if pending and remaining is None else remaining)
            if not ready:
                if limit is not None and time.monotonic() >= limit:
                    self.broken = True
                    raise RuntimeError(
                        f"[DataLoader] DataLoader timed out after {self._timeout} seconds\n"
                        "hint: raise timeout, or look what the dataset waits for"
                    )
                continue
            answer = self._answer(channels[ready[0]])  # type: ignore[index]
            if answer is not None:
                return answer

    def _flush(self) -> None:
        for worker in self._workers:
            try:
                worker.flush()
            except Closed:
                self._died(worker)

    def _answer(self, worker: _Worker) -> tuple[int, str, Any] | None:
        try:
            epoch, number, kind, content = worker.channel.receive()
        except Closed:
            self._died(worker)
        if epoch != self._epoch or number not in self._owner:
            return None
        del self._owner[number]
        worker.tasks -= 1
        if kind == "end":
            worker.ended = True
            worker.waiting.clear()
            self._owner = {n: w for n, w in self._owner.items() if w is not worker}
            self._request()
        return number, kind, content

    def _died(self, worker: _Worker) -> None:
        """Raises for a worker whose connection broke."""
        self.broken = True
        worker.process.join(1.0)
        dead = [w.process for w in self._workers if w is worker or not w.process.is_alive()]
        pids = ", ".join(str(process.pid) for process in dead)
        causes = ", ".join(_cause(process.exitcode) for process in dead)
        raise RuntimeError(
            f"[DataLoader] DataLoader worker (pid(s) {pids}) exited unexpectedly: {causes}\n"
            "hint: a worker that is killed often ran out of memory; num_workers=0 shows errors here"
        ) from None

    def _stop(self) -> None:
        if self.broken:  # nobody waits for items that will not be used
            for worker in self._workers:
                worker.process.terminate()
        self.broken = True
        self._indices = None
        self._finalizer()


def _cause(code: int | None) -> str:
    if code is None:
        return "it closed its connection"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
