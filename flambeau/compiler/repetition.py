"""Finds what repeats in a program: runs of equal steps, such as the layers of a deep model.

A program is a sequence of items, each with a token (all about it that layers share) and the
positions of the earlier items that it reads. A *run* is a part of the sequence whose tokens are
periodic. A deep model has several: layers forward, backward in the opposite order, updates of
their parameters. They are tied where items of one read items of another, which gives each period a
*coordinate*, the number of its layer, whatever the direction of its run. Between two coordinates
(`low`, `high`) the program is *uniform*: each item reads the items of its layer, of neighbours at
the same distance, or the same items outside of all runs.

This module knows neither graphs nor schedules: `equal_layers` describes both as sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

WINDOW = 6  # tokens that are looked up to find an earlier period
CANDIDATES = 8  # earlier positions of a window that are tried


class Run(NamedTuple):
    """A periodic part of a sequence: `periods` times `period` items from `start` on."""

    start: int
    period: int
    periods: int

    @property
    def end(self) -> int:
        """The position behind its last whole period."""
        return self.start + self.period * self.periods


class Located(NamedTuple):
    """Where an item of a run is: the run's number, the place in a period, the coordinate."""

    run: int
    offset: int
    coordinate: int


class Direction(NamedTuple):
    """Coordinates of a run's periods: `sign * period + base`."""

    sign: int
    base: int


def runs_of(tokens: Sequence[int], least: int) -> list[Run]:
    """The longest periodic parts, in order, without overlap.

    Args:
        tokens: one per item; equal numbers are equal items.
        least: how many periods a run has at least.
    """
    seen: dict[tuple[int, ...], list[int]] = {}
    spans: dict[int, tuple[int, int]] = {}
    runs: list[Run] = []
    position = 0
    while position + WINDOW <= len(tokens):
        earlier = seen.setdefault(tuple(tokens[position : position + WINDOW]), [])
        run = _run_at(tokens, position, earlier[-CANDIDATES:], spans)
        earlier.append(position)
        position += 1
        if run is not None and run.periods >= least:
            runs = [*(other for other in runs if other.end <= run.start), run]
            position = max(position, run.end)
    return runs


def _run_at(
    tokens: Sequence[int],
    position: int,
    earlier: Sequence[int],
    spans: dict[int, tuple[int, int]],
) -> Run | None:
    """The longest run in which a position repeats one of some earlier ones.

    Args:
        tokens: one per item.
        position: the position.
        earlier: positions that begin with the same tokens.
        spans: first and last end of the latest part with a period, by the period.
    """
    period, end = 0, position
    for start in reversed(earlier):
        candidate = position - start
        if spans.get(candidate, (0, 0))[1] <= position:
            spans[candidate] = _span(tokens, position, candidate)
        stop = spans[candidate][1]
        if stop > end:
            period, end = candidate, stop
    if not period:
        return None
    start = spans[period][0]
    return Run(start, period, (end - start) // period)


def _span(tokens: Sequence[int], position: int, period: int) -> tuple[int, int]:
    """The ends of the part around a position in which items equal those a period before."""
    stop, start = position, position - period
    while stop < len(tokens) and tokens[stop] == tokens[stop - period]:
        stop += 1
    while start and tokens[start - 1] == tokens[start - 1 + period]:
        start -= 1
    return start, stop


class Repetition:
    """The runs of a sequence that are tied to each other, and where they are uniform.

    Attributes:
        runs: all runs; those that are not tied have no direction.
        directions: of the tied runs, by number.
        low: the first coordinate of the uniform part.
        high: the coordinate behind it.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        reads: Sequence[Sequence[int]],
        least: int,
    ) -> None:
        self.runs = runs_of(tokens, least)
        self._reads = reads
        self._numbers = [-1] * len(tokens)
        for number, run in enumerate(self.runs):
            self._numbers[run.start : run.end] = [number] * (run.end - run.start)
        self._middles = [(run.periods - 1) // 2 for run in self.runs]
        self._ties = self._tied()
        self.directions = self._directed()
        self.low, self.high = self._uniform()

    def locate(self, position: int) -> Located | None:
        """Where an item is; None: in no tied run."""
        number = self._numbers[position]
        direction = self.directions.get(number)
        if direction is None:
            return None
        run = self.runs[number]
        period, offset = divmod(position - run.start, run.period)
        return Located(number, offset, direction.sign * period + direction.base)

    def coordinates(self) -> list[int | None]:
        """The coordinate of each item; None: it is in no tied run."""
        coordinates: list[int | None] = [None] * len(self._numbers)
        for number, (sign, base) in self.directions.items():
            run = self.runs[number]
            for period in range(run.periods):
                start = run.start + period * run.period
                coordinates[start : start + run.period] = [sign * period + base] * run.period
        return coordinates

    def position(self, run: int, offset: int, coordinate: int) -> int | None:
        """The item of a run at a place of the period of a coordinate; None: there is none."""
        direction, items = self.directions[run], self.runs[run]
        period = (coordinate - direction.base) * direction.sign
        if not 0 <= period < items.periods:
            return None
        return items.start + period * items.period + offset

    def is_uniform(self, coordinate: int) -> bool:
        """Whether a layer is in the uniform part."""
        return self.low <= coordinate < self.high

    # ------------------------------------------------------------------ ties

    def _period(self, position: int) -> tuple[int, int, int]:
        """The run of an item, its place in the period, and the period."""
        number = self._numbers[position]
        if number < 0:
            return -1, position, 0
        run = self.runs[number]
        period, offset = divmod(position - run.start, run.period)
        return number, offset, period

    def _tied(self) -> dict[int, dict[int, tuple[int, int]]]:
        """Per run the runs that it reads: period p reads period `sign * p + distance`.

        A run whose items read others at no fixed distance is none.
        """
        while True:
            ties = {number: self._reads_of(number) for number in set(self._numbers) if number >= 0}
            wrong = [number for number, tie in ties.items() if tie is None]
            if not wrong:
                return {number: tie for number, tie in ties.items() if tie is not None}
            for number in wrong:
                run = self.runs[number]
                self._numbers[run.start : run.end] = [-1] * (run.end - run.start)

    def _reads_of(self, number: int) -> dict[int, tuple[int, int]] | None:
        run, middle = self.runs[number], self._middles[number]
        ties: dict[int, tuple[int, int]] = {}
        first = run.start + middle * run.period
        for position in range(first, first + run.period):
            for one, other in zip(self._reads[position], self._reads[position + run.period]):
                if one == other:
                    continue
                owner, offset, period = self._period(one)
                same, place, following = self._period(other)
                sign = following - period
                if owner < 0 or (owner, offset) != (same, place) or abs(sign) != 1:
                    return None
                ties.setdefault(owner, (sign, period - sign * middle))
        return ties

    def _directed(self) -> dict[int, Direction]:
        """Directions of the runs that are tied to the longest."""
        if not self._ties:
            return {}
        longest = max(self._ties, key=lambda n: self.runs[n].end - self.runs[n].start)
        directions = {longest: Direction(1, 0)}
        waiting = list(directions)
        while waiting:
            number = waiting.pop()
            for other, direction in self._neighbours(number, directions[number]):
                if other not in directions:
                    directions[other] = direction
                    waiting.append(other)
        return directions

    def _neighbours(self, number: int, direction: Direction) -> Iterator[tuple[int, Direction]]:
        """The runs that a run is tied to, with coordinates such that what is read has its
        reader's."""
        for owner, (sign, distance) in self._ties[number].items():
            following = direction.sign * sign
            yield owner, Direction(following, direction.base - following * distance)
        for reader, ties in self._ties.items():
            if number in ties:
                sign, distance = ties[number]
                yield (
                    reader,
                    Direction(direction.sign * sign, direction.base + direction.sign * distance),
                )

    # ------------------------------------------------------------------ uniformity

    def _uniform(self) -> tuple[int, int]:
        """The coordinates between which all tied runs are uniform."""
        low, high = -(1 << 30), 1 << 30
        for number, (sign, base) in self.directions.items():
            first, last = self._uniform_periods(number)
            ends = sign * first + base, sign * last + base
            low, high = max(low, min(ends)), min(high, max(ends) + 1)
        return (low, max(low, high)) if self.directions else (0, 0)

    def _uniform_periods(self, number: int) -> tuple[int, int]:
        """The first and the last period of a run around its middle that read as that does."""
        run, middle = self.runs[number], self._middles[number]
        before, after = middle, run.periods - 1 - middle
        center = run.start + middle * run.period
        for position in range(center, center + run.period):
            before = self._reach(position, -run.period, before, run.period)
            after = self._reach(position, run.period, after, run.period)
        return middle - before, middle + after

    def _reach(self, center: int, step: int, limit: int, period: int) -> int:
        """How many steps from an item on, at most a limit, equal items read alike."""
        reads, direction = self._reads[center], 1 if step > 0 else -1
        strides = [(y - x) * direction for x, y in zip(reads, self._reads[center + period])]
        owners = [self._numbers[x] if stride else None for x, stride in zip(reads, strides)]
        expected = list(reads)
        for count in range(limit):
            position = center + step * (count + 1)
            expected = [x + stride for x, stride in zip(expected, strides)]
            if expected != list(self._reads[position]):
                return count
            if any(o is not None and self._numbers[x] != o for x, o in zip(expected, owners)):
                return count
        return limit
