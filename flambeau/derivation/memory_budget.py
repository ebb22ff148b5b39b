"""Choice of the values that a backward computes again so that the saved ones fit a budget.

A budget of 1 saves the fewest bytes with which expensive values are computed once. A budget of 0
saves only what cannot be computed again (random draws, writes), and the inputs that are there
anyway. Between both, a 0-1 knapsack (Dantzig 1957) chooses which of these values stay saved: those
that take longest to compute again, in the bytes that are left. All others count as cheap, and the
fewest bytes are saved for them. A value that is computed again has the bits of the first time,
because every primitive has the same bits in every program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from flambeau.ir.failure import failure

T = TypeVar("T", bound=Hashable)
Solver = Callable[[Sequence[int], Sequence[float], int], list[int]]
_MAX_STATES = 4096  # of the exact solver: beyond, sizes are rounded up to so many steps


class Budget(NamedTuple):
    """The settings of `torch._functorch.config`.

    Attributes:
        fraction: of the bytes between the least and those of a budget of 1.
        estimator: how long values take to compute again: "flops", "profile" or "testing".
        solver: of the knapsack: "dp", "ilp", "greedy", "dp_knapsack_sliding_hirschberg".
    """

    fraction: float = 1.0
    estimator: object = "flops"
    solver: object = "dp"

    @property
    def full(self) -> bool:
        """Whether it limits nothing."""
        return self.fraction == 1

    def checked(self) -> Budget:
        """Returns the budget itself.

        Raises:
            RuntimeError: no such fraction, estimator or solver.
            NotImplementedError: a function in their place.
        """
        if not 0 <= self.fraction <= 1:
            problem = f"activation_memory_budget is {self.fraction}, not between 0 and 1"
            raise failure(RuntimeError, "memory budget", problem, "0.5 saves half of the bytes")
        _known("activation_memory_budget_runtime_estimator", self.estimator, ESTIMATORS)
        _known("activation_memory_budget_solver", self.solver, SOLVERS)
        return self


def _known(setting: str, value: object, names: Collection[str]) -> None:
    if callable(value) or value in ("dynamic_memory_budget_dp",):
        problem = f"{setting} takes none but the names of ways that are here"
        raise failure(NotImplementedError, "memory budget", problem, f"one of {', '.join(names)}")
    if value not in names:
        problem = f"{setting} is {value!r}"
        raise failure(RuntimeError, "memory budget", problem, f"one of {', '.join(names)}")


class Forward(NamedTuple, Generic[T]):
    """The part of a forward that its backward depends on.

    Attributes:
        fewest: (whether a value may be computed again) -> the values of fewest bytes from which
            the backward can compute what it reads.
        cheap: whether a value is computed again in any case.
        repeatable: whether computing it again gives the same value.
        operands: of a value.
        size: bytes of a value; 0 of one that is there anyway.
        runtime: time that computing a value takes, in any unit.
    """

    fewest: Callable[[Callable[[T], bool]], list[T]]
    cheap: Callable[[T], bool]
    repeatable: Callable[[T], bool]
    operands: Callable[[T], Iterable[T]]
    size: Callable[[T], int]
    runtime: Callable[[T], float]


def choose_within(forward: Forward[T], budget: Budget) -> list[T]:
    """Returns the values to save.

    Args:
        forward: the values.
        budget: how many bytes they may have.
    """
    most = forward.fewest(forward.cheap)
    if budget.full:
        return most
    least = forward.fewest(forward.repeatable)
    floor = _bytes(forward, least)
    room = int(budget.fraction * max(_bytes(forward, most) - floor, 0))
    spared = set(least)
    candidates = [x for x in most if forward.repeatable(x) and x not in spared]
    sizes = [forward.size(x) for x in candidates]
    again = _times_again(forward, candidates, {*most, *least})
    stored = {candidates[k] for k in SOLVERS[str(budget.solver)](sizes, again, room)}
    saved = forward.fewest(lambda x: x not in stored and forward.repeatable(x))
    fits = _bytes(forward, saved) <= floor + room
    return saved if fits else [*least, *(x for x in candidates if x in stored)]


def _bytes(forward: Forward[T], values: Iterable[T]) -> int:
    return sum(forward.size(x) for x in values)


def _times_again(forward: Forward[T], values: Sequence[T], saved: set[T]) -> list[float]:
    """The time to compute each value again from other saved ones."""
    return [sum(map(forward.runtime, _between(forward, x, saved))) for x in values]


def _between(forward: Forward[T], value: T, saved: set[T]) -> list[T]:
    """A value and what it depends on, up to saved values and to those that are there anyway."""
    done, stack = {value: None}, [value]
    while stack:
        for x in forward.operands(stack.pop()):
            if x not in done and x not in saved:
                done[x] = None
                stack.append(x)
    return list(done)


# ------------------------------------------------------------------------------- knapsack


def exactly(sizes: Sequence[int], values: Sequence[float], room: int) -> list[int]:
    """The items of most value that fit, by the list of undominated sums (Nemhauser and Ullmann
    1969).

    Args:
        sizes: of the items.
        values: of the items.
        room: for their sizes.

    Example:
        >>> from flambeau.derivation.memory_budget import exactly
        >>> exactly([6, 5, 5], [6.0, 5.0, 5.0], 10)
        [1, 2]
    """
    step = 1
    states: list[tuple[int, float, int]] = [(0, 0.0, -1)]  # size, value, last link
    links: list[tuple[int, int]] = []  # item, link before
    for item, (size, value) in enumerate(zip(sizes, values, strict=True)):
        if len(states) > _MAX_STATES:
            step = max(1, -(-room // _MAX_STATES))
        needed = -(-size // step) * step
        longer = []
        for used, total, link in states:
            if used + needed > room:
                break
            longer.append((used + needed, total + value, len(links)))
            links.append((item, link))
        states = _undominated(states, longer)
    chosen, link = [], states[-1][2]
    while link >= 0:
        item, link = links[link]
        chosen.append(item)
    return chosen[::-1]


def _undominated(
    first: list[tuple[int, float, int]], second: list[tuple[int, float, int]]
) -> list[tuple[int, float, int]]:
    """States of both lists of which no smaller one has as much value."""
    best, result = -1.0, []
    for state in sorted([*first, *second], key=lambda each: (each[0], -each[1])):
        if state[1] > best:
            best = state[1]
            result.append(state)
    return result


def greedily(sizes: Sequence[int], values: Sequence[float], room: int) -> list[int]:
    """The items of most value for their size, one after the other, as long as they fit."""
    order = sorted(range(len(sizes)), key=lambda k: -values[k] / max(sizes[k], 1))
    chosen = []
    for item in order:
        if sizes[item] <= room:
            room -= sizes[item]
            chosen.append(item)
    return sorted(chosen)


ESTIMATORS = ("flops", "profile", "testing")
SOLVERS: dict[str, Solver] = {
    "dp": exactly,
    "ilp": exactly,
    "dp_knapsack_sliding_hirschberg": exactly,
    "greedy": greedily,
}
