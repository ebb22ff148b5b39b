"""The worker process of a `DataLoader`, and the transport of its errors."""

from __future__ import annotations

import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import flambeau as torch
from flambeau.ir.lock import late, loaded
from flambeau.utils.data.transport import Channel, Closed

__all__ = ["Failure", "WorkerInfo", "get_worker_info"]


@dataclass(frozen=True)
class WorkerInfo:
    """The identity of a worker process.

    Attributes:
        id: 0 to num_workers - 1.
        num_workers: of the loader.
        seed: the worker's: the loader's base seed + id.
        dataset: the worker's copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The `WorkerInfo` inside of a worker process, None in the main process."""
    return _info


class Failure:
    """An exception of a worker as text, to be raised again in the main process."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind: type[BaseException] | None = type(error)
        self.name = type(error).__name__
        self.where = where
        self.text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if _local(type(error)):
            self.kind = None

    def reraise(self) -> None:
        """Raises an exception of the same type, whose message holds the worker's traceback."""
        message = f"Caught {self.name} {self.where}.\nOriginal {self.text}"
        if self.kind is KeyError:  # it shows the repr of its text
            raise KeyError(_Lines(message))
        try:
            error = self.kind(message) if self.kind is not None else RuntimeError(message)
        except Exception:  # a constructor that takes other arguments
            raise RuntimeError(message) from None
        raise error


class _Lines(str):
    """A text whose repr is itself: with its lines, where a KeyError shows it."""

    def __repr__(self) -> str:
        return str(self)


def _local(kind: type) -> bool:
    """Whether the main process could not find this class by its name."""
    attribute: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        attribute = getattr(attribute, part, None)
    return attribute is not kind


@dataclass(frozen=True)
class Fetcher:
    """Turns an index (or a list of them) of the sampler into a batch."""

    dataset: Any
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    stream: Iterator[Any] | None

    def fetch(self, index: Any) -> Any:
        """The batch; StopIteration at the end of a stream."""
        if self.stream is not None:
            return self._from_stream(index)
        if not self.batched:
            return self.collate_fn(self.dataset[index])
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate_fn(self.dataset.__getitems__(index))
        return self.collate_fn([self.dataset[i] for i in index])

    def _from_stream(self, index: Any) -> Any:
        assert self.stream is not None
        if not self.batched:
            return self.collate_fn(next(self.stream))
        items = []
        for _ in index:
            try:
                items.append(next(self.stream))
            except StopIteration:
                break
        if not items or (self.drop_last and len(items) < len(index)):
            raise StopIteration
        return self.collate_fn(items)


@dataclass(frozen=True)
class Job:
    """All a worker needs to know; travels to it when it is started."""

    dataset: Any
    iterable: bool
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], Any] | None
    number: int
    count: int

    def fetcher(self) -> Fetcher:
        """A fetcher at the start of the dataset."""
        stream = iter(self.dataset) if self.iterable else None
        return Fetcher(self.dataset, self.batched, self.collate_fn, self.drop_last, stream)


def generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four 32-bit numbers that seed NumPy in a worker process."""
    from numpy.random import SeedSequence

    entropy = (worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0)
    return [int(number) for number in SeedSequence(entropy).generate_state(4)]


def _seed(job: Job) -> int:
    seed = job.base_seed + job.number
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(generate_state(job.base_seed, job.number))
    return seed


def _prepared(job: Job) -> tuple[Fetcher | None, Failure | None]:
    """The fetcher, or the failure that the first batch will report."""
    global _info
    try:
        seed = _seed(job)
        _info = WorkerInfo(job.number, job.count, seed, job.dataset)
        pipes = loaded("flambeau.utils.data.datapipes.datapipe")
        if pipes is not None and isinstance(job.dataset, (pipes.IterDataPipe, pipes.MapDataPipe)):
            settings = late("flambeau.utils.data.graph_settings")
            group = settings.SHARDING_PRIORITIES.MULTIPROCESSING
            settings.apply_sharding(job.dataset, job.count, job.number, group)
        if job.init_fn is not None:
            job.init_fn(job.number)
        return job.fetcher(), None
    except Exception as error:
        return None, Failure(error, f"in DataLoader worker process {job.number}")


def _answer(job: Job, fetcher: Fetcher, index: Any) -> tuple[str, Any]:
    try:
        return "data", fetcher.fetch(index)
    except StopIteration as error:
        if job.iterable:
            return "end", None
        return "failure", Failure(error, f"in DataLoader worker process {job.number}")
    except Exception as error:
        return "failure", Failure(error, f"in DataLoader worker process {job.number}")


def run(end: socket.socket, inherited: list[socket.socket], job: Job) -> None:
    """The worker's main loop: batches for indices, until the loader hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what Ctrl-C means
    for other in inherited:
        other.close()
    torch.set_num_threads(1)
    channel = Channel(end)
    fetcher, failure = _prepared(job)
    try:
        while True:
            message = channel.receive()
            if message[0] == "resume":
                fetcher, failure = _again(job, failure, message[1])
                continue
            _, epoch, number, index = message
            kind, content = "failure", failure
            if failure is None and fetcher is not None:
                kind, content = _answer(job, fetcher, index)
            failure = None
            _reply(channel, job, (epoch, number, kind, content))
            del message, content
    except Closed:
        pass


def _again(
    job: Job, failure: Failure | None, shared_seed: int | None
) -> tuple[Fetcher | None, Failure | None]:
    """A new pass over the dataset in a worker that stays."""
    if failure is not None:
        return None, failure
    try:
        if shared_seed is not None:  # of a data pipe
            source = torch.Generator()
            source.manual_seed(shared_seed)
            late("flambeau.utils.data.graph_settings").apply_random_seed(job.dataset, source)
        return job.fetcher(), None
    except Exception as error:
        return None, Failure(error, f"in DataLoader worker process {job.number}")


def _reply(channel: Channel, job: Job, reply: tuple[Any, ...]) -> None:
    try:
        channel.send(reply)
    except Closed:
        raise
    except Exception as error:  # a batch that cannot be pickled
        failure = Failure(error, f"in DataLoader worker process {job.number}")
        channel.send((*reply[:2], "failure", failure))
