"""`PassManager`: runs passes in an order that fits constraints, until nothing changes."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

import flambeau as torch
from flambeau.fx._compatibility import compatibility
from flambeau.fx.passes.infra.pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

logger = logging.getLogger(__name__)

Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


@compatibility(is_backward_compatible=False)
def pass_result_wrapper(fn: Pass) -> Pass:
    """A pass that returns a `PassResult`, of one that returns a module or None.

    Args:
        fn: the pass.
    """
    if fn is None:
        return None

    @wraps(fn)
    def wrapped(gm: Any) -> PassResult:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        if isinstance(result, PassResult):
            return result
        if isinstance(result, torch.nn.Module):
            return PassResult(result, True)
        raise TypeError(f"[pass_result_wrapper] a pass returned {type(result)}\n"
                        "hint: return a PassResult, a module or None")  # fmt: skip

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def _validate_pass_schedule_constraint(constraint: Constraint, passes: list[Pass]) -> None:
    for i, first in enumerate(passes):
        for j, second in enumerate(passes[i + 1 :], i + 1):
            if not constraint(first, second):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {first} before {second} but "
                    f"found {first} at index {i} and {second} at index{j} in pass list."
                )


def _topological_sort_passes(passes: list[Pass], constraints: list[Constraint]) -> list[Pass]:
    """An order in which no constraint is violated."""
    if not constraints:
        return passes
    after: dict[Pass, list[Pass]] = {each: [] for each in passes}
    count: dict[Pass, int] = dict.fromkeys(passes, 0)
    for first in passes:
        for second in passes:
            if first is not second and not all(holds(first, second) for holds in constraints):
                after[second].append(first)
                count[first] += 1
    visited: dict[Pass, bool] = dict.fromkeys(passes, False)
    ready = deque(each for each in passes if count[each] == 0)
    ordered: list[Pass] = []
    while ready:
        each = ready.popleft()
        ordered.append(each)
        visited[each] = True
        for following in after[each]:
            count[following] -= 1
            if count[following] == 0 and not visited[following]:
                ready.append(following)
    cycle = [each for each in passes if count[each] != 0]
    if cycle:
        raise RuntimeError(f"Circular dependency detected within the following passes: {cycle}")
    return ordered


@compatibility(is_backward_compatible=False)
def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """A constraint: one pass runs before another.

    Args:
        this: the earlier one.
        that: the later one.
    """

    def depends_on(a: Pass, b: Pass) -> bool:
        return a != that or b != this

    return depends_on


@compatibility(is_backward_compatible=False)
class PassManager:
    """Runs passes, as often as they change something, at most `steps` times.

    Args:
        passes: the passes.
        constraints: functions of two passes; False: the first must not come before the second.
        steps: how often all passes are run.
        run_checks_after_each_pass: whether the checks run after every pass, or at the end alone.
        suppress_check_failures: whether `requires` and `ensures` are left out.
    """

    passes: list[Pass]
    constraints: list[Constraint]
    _validated: bool = False
    steps: int = 1

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Pass) -> None:
        """Adds a pass at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Adds a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """Raises RuntimeError if the order of the passes violates a constraint."""
        if self._validated:
            return
        for constraint in self.constraints:
            _validate_pass_schedule_constraint(constraint, self.passes)
        self._validated = True

    def solve_constraints(self) -> None:
        """Puts the passes in an order that violates no constraint."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[..., Any]) -> None:
        """Sets the check that runs after passes.

        Args:
            check: a function of the module, which raises.

        Raises:
            ValueError: it does not take one argument called module.
        """
        parameters = list(inspect.signature(check).parameters.values())
        if len(parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check  # type: ignore[method-assign]

    def check(self, module: torch.nn.Module) -> None:
        """Checks a module after a pass; the default checks nothing."""

    def __call__(self, module: torch.nn.Module) -> PassResult:
        """Runs the passes.

        Args:
            module: the module.

        Returns:
            PassResult: the module after them.
        """
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        modified_at_all = False
        for _ in range(self.steps):
            modified = False
            for number, each in enumerate(self.passes):
                module, changed = self._run(each, number, module)
                modified = modified or changed
                if self.run_checks_after_each_pass:
                    self.check(module)
            modified_at_all = modified_at_all or modified
            if not modified:
                break
        return PassResult(module, modified_at_all)

    def _run(self, each: Pass, number: int, module: Any) -> tuple[Any, bool]:
        name = each.__name__ if inspect.isfunction(each) else type(each).__name__
        logger.debug("Running pass '%s'", name)
        try:
            result = each(module)
            if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                raise TypeError(
                    f"The result of the pass {name} should be type PassResult."
                    "Please wrap it with pass_result_wrapper()"
                )
        except Exception as error:
            earlier = [
                p.__name__ if inspect.isfunction(p) else type(p).__name__
                for p in self.passes[:number]
            ]
            text = f"An error occurred when running the '{name}' pass after the following passes: "
            text += str(earlier)
            raise Exception(text) from error  # noqa: TRY002
        changed = result.modified
        if isinstance(result.graph_module, torch.fx.GraphModule):
            result.graph_module.recompile()
        if self.run_checks_after_each_pass:
            self.check(result.graph_module)
        return result.graph_module, changed
