"""The one planner: from a program to its Plan, stored on disk, or traced, derived and compiled.

A program is a call of an operator, of a Graph that serves as one (a backward), or a recorded stream
with or without its backward. Where an earlier process stored the finished Plan
(`compiler/stored.py`), nothing is traced and nothing of the compiler is loaded; its Graph is traced
by `plan.graph()`. Else the program is traced to a Specification, and the Plan is stored once its
kernels exist. Everything here runs once per class of calls or streams.

What Python knows of a Plan hangs on the Plan alone: when the core's cache evicts it, it is gone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau import _core
from flambeau.compiler import debug, passes, stored
from flambeau.core import warned
from flambeau.driver.calls import Call, class_of, numbers_of, with_numbers
from flambeau.ir.lock import computed_once, fork_safe_lock, importing
from flambeau.ir.node import Graph
from flambeau.ir.plan import BackwardSpec, Execution, PlanSpec
from flambeau.language import promotion
from flambeau.language.definition import Overload
from flambeau.language.schema import ArgumentSpec
from flambeau.runtime import collection, logs, settings

if TYPE_CHECKING:
    from flambeau.compiler.pipeline import Portable
    from flambeau.driver.specify import Specification

# Plans that one signature stores in one process: more means static values that never repeat.
MAX_STORED = 64
_retracing = fork_safe_lock(level=0)  # who traces for another default dtype sets it for all threads


class Budget:
    """How many Plans of one signature this process stores."""

    def __init__(self) -> None:
        self.used = 0


class SourceCall(NamedTuple):
    """A call, and the source that traces it."""

    source: Source
    call: Call


class Program(NamedTuple):
    """Something that has a Plan.

    Attributes:
        specify: traces it for these values of its symbols.
        numbers: the present values of its symbols, in the order of the registers.
        budget: of the Plans of its signature.
        name: under what the Plan is stored; None: it is not.
        tuned: whether tunable calls are measured when the Plan is compiled.
        structure: the type of results with named fields.
        call: whose call it is of, if it is one.
        constants: makes the `_core.Constants` of a frozen program, of its description and what
            gives their Graph.
    """

    specify: Callable[[list[int]], Specification]
    numbers: list[int]
    budget: Budget
    name: stored.Name | None = None
    tuned: bool = False
    structure: Callable[[], Any] | None = None
    call: SourceCall | None = None
    constants: Callable[[PlanSpec, Callable[[], Graph]], object] | None = None


def plan_of(program: Program) -> Any:
    """The native Plan of a program."""
    stored_plan = None if program.name is None else stored.find(program.name, program.numbers)
    if stored_plan is not None:
        return native_plan(program, _Stored(program, stored_plan), stored_plan.spec)
    traced = _Traced(program)
    return native_plan(program, traced, traced.result.spec)


def native_plan(program: Program, source: _Traced | _Stored, spec: PlanSpec) -> Any:
    """The native Plan of a program; its gradients are another Graph, made into an op."""
    if settings.get("VERIFY"):
        with importing:
            from flambeau.ir.plan_grammar import verify_plan

        verify_plan(spec)
    constants = None
    if spec.constants is not None and program.constants is not None:
        constants = program.constants(spec, source.constants)
    return _core.Plan(
        spec,
        compile=source.compile,
        graph=source.graph,
        origin=source,
        call=program.call,
        backward=None if spec.backward is None else graph_op(spec.backward, source.backward),
        constants=constants,
        structure=program.structure() if program.structure and spec.returns == "named" else None,
    )


class _Traced:
    """A Plan whose program was traced here; stored once it is compiled."""

    def __init__(self, program: Program, numbers: list[int] | None = None) -> None:
        self.numbers = program.numbers if numbers is None else numbers
        self.tuned = program.tuned
        self.budget = program.budget
        before = warned.count()
        with collection.paused():
            self.result = program.specify(self.numbers)
        keeps = not self.result.spec.place and warned.count() == before
        self.name = program.name if keeps else None
        self.saved = False
        self.revision = passes.revision()

    def fingerprint(self) -> str | None:
        """Digest of the Graph."""
        return stored.fingerprint(self.result.graph)

    def graph(self) -> Graph:
        """The Graph."""
        return self.result.graph

    def constants(self) -> Graph:
        """The Graph of the constants of a frozen program."""
        assert self.result.constants is not None
        return self.result.constants

    def backward(self) -> Graph:
        """The Graph of the gradients."""
        assert self.result.backward is not None
        return self.result.backward

    def compile(self) -> Execution:
        """Compiles the Graph; the result is stored in terms that others understand."""
        with importing:
            from flambeau.compiler import pipeline

        if self.revision != passes.revision():  # the name is that of a program with other passes
            self.name = None
        graph, registers, choose = self.result.graph, self.result.registers, self._choose()
        execution, portable = pipeline.compile_portable(graph, registers, choose)
        self._save_later(portable)
        return execution

    def _choose(self) -> Any:
        """The chooser among candidates of tunable calls; None: the cost model."""
        if not self.tuned:
            return None
        with importing:
            from flambeau.driver.autotune import Tuner

        graph = self.result.graph
        return Tuner(graph.symbols, self.numbers, graph.notes.get("weights", ()))

    def save(self) -> None:
        """Stores the Plan, unless it is stored."""
        if not self.saved:
            self._save_later()

    def _save_later(self, portable: Callable[[], Portable] | None = None) -> None:
        """Stores the Plan, and what `portable` makes of a compiled one, when there is time."""
        if self.name is None or self._used_up():
            return
        self.saved = True
        stored.save_later(self.name, functools.partial(self._stored, portable))

    def _used_up(self) -> bool:
        return self.budget.used >= MAX_STORED and not stored.is_collecting()

    def _stored(self, portable: Callable[[], Portable] | None) -> stored.StoredPlan | None:
        """The Plan in the form that is stored; None: it has none."""
        result = self.result
        mark = self.fingerprint()
        spec = stored.marked(result.spec, backward=result.backward, constants=result.constants)
        if mark is None or spec is None or self._used_up():
            return None
        parts: tuple[Any, ...] = ()
        if portable is not None:
            execution, contents, baseline, codes = portable()
            place = stored.places_of if baseline is None else stored.unplaced
            places = place(contents)
            if places is None:
                return None
            parts = execution, places, baseline, codes
        self.budget.used += 1
        return stored.StoredPlan(self.numbers, spec, result.registers, mark, *parts)


class _Stored:
    """A Plan that an earlier process stored."""

    def __init__(self, program: Program, plan: stored.StoredPlan) -> None:
        self.program = program
        self.stored = plan
        self.default = promotion.default_dtype()
        self.revision = passes.revision()

    def fingerprint(self) -> str:
        """Digest of the Graph that is not traced yet."""
        return self.stored.fingerprint

    def save(self) -> None:
        """Does nothing: it is stored."""

    def graph(self) -> Graph:
        """The Graph, traced."""
        return self.traced.result.graph

    @computed_once
    def traced(self) -> _Traced:
        """The Plan, traced as it was when it was stored.

        Raises:
            RuntimeError: the trace is another one now.
        """
        with _retracing:
            present = promotion.default_dtype()
            promotion.set_default(self.default)
            try:
                traced = _Traced(self.program, self.stored.hints)
            finally:
                promotion.set_default(present)
        traced.saved = True
        spec, result = self.stored.spec, traced.result
        stored.checked(result.graph, self.stored.fingerprint, spec.name)
        if result.backward is not None and spec.backward is not None:
            stored.checked(result.backward, spec.backward.fingerprint, spec.name)
        if result.constants is not None and spec.constants is not None:
            stored.checked(result.constants, spec.constants.fingerprint, spec.name)
        return traced

    def constants(self) -> Graph:
        """The Graph of the constants of a frozen program, traced."""
        return self.traced.constants()

    def backward(self) -> Graph:
        """The Graph of the gradients, traced."""
        return self.traced.backward()

    def compile(self) -> Execution:
        """The launches that the earlier process compiled, with addresses of this one."""
        usable = stored.usable() and self.revision == passes.revision()
        execution = self._execution() if usable else None
        if execution is None:  # never run, kernels evicted, or the stages are observed
            return self.traced.compile()
        name = self.stored.spec.name
        text = f"{name}: a finished plan of an earlier run"
        debug.show(debug.PLANS, text)
        logs.emit("caching", text)
        return execution

    def _execution(self) -> Execution | None:
        """The stored execution; None if kernels are gone."""
        name = self.program.name
        if name is not None and self.stored.origin != "cache":
            return stored.shipped_execution(self.stored, name, self._compile_anew)
        return stored.execution_of(self.stored)

    def _compile_anew(self) -> Execution:
        return self.traced.compile()


# ------------------------------------------------------------------------------- ops


class Source:
    """Where the core gets the Plans of one op from: a definition, or a Graph used as one.

    Args:
        specify: traces a call.
        identity: text of everything that decides about that trace; None: nothing is stored.
        structure: the type of results with named fields.
        overload: the definition, where it is one.
        tuned: whether tunable calls are measured when a Plan is compiled.
    """

    def __init__(
        self,
        specify: Callable[[Call], Specification],
        identity: Callable[[], str | None],
        structure: Callable[[], Any] | None = None,
        overload: Overload | None = None,
        tuned: bool = False,
    ) -> None:
        self.specify = specify
        self.structure = structure
        self.overload = overload
        self.tuned = tuned
        self.budget = Budget()
        self._identity = identity

    @computed_once
    def identity(self) -> str | None:
        """Text of everything that decides about a trace, the call aside."""
        return self._identity()

    def build(self, call: Call) -> Any:
        """The Plan of a call: the build function of a native overload."""

        def specify(numbers: list[int]) -> Specification:
            return self.specify(call if numbers == present else with_numbers(call, numbers))

        present = numbers_of(call)
        name, own = self._name(call, present), SourceCall(self, call)
        return plan_of(
            Program(specify, present, self.budget, name, self.tuned, self.structure, own)
        )

    def _name(self, call: Call, numbers: list[int]) -> stored.Name | None:
        """The name under which the Plan of a call is stored."""
        if not stored.usable():
            return None
        identity, called = self.identity, class_of(call)
        if identity is None or called is None:
            return None
        sizes = [repr(numbers)] if self.tuned else []
        return stored.name_of(*conditions(self.tuned), *sizes, identity, called)


def conditions(tuned: bool) -> list[str]:
    """The conditions of a Plan beyond what it is of."""
    if not tuned:
        return []
    with importing:
        from flambeau.driver import autotune

    return [autotune.conditions()]


def graph_op(gradient: BackwardSpec, graph: Callable[[], Graph]) -> Any:
    """A Graph as a native op: it takes tensors, then integers, then numbers.

    Args:
        gradient: says what it takes.
        graph: gives the Graph, which may not have been traced yet.
    """
    name = gradient.op

    def specify(call: Call) -> Specification:
        with importing:
            from flambeau.driver.specify import specify_graph

        return specify_graph(graph(), name, call)

    def identity() -> str | None:
        mark = gradient.fingerprint or stored.fingerprint(graph())
        return None if mark is None else f"graph {name} {mark}"

    def overloads() -> list[tuple[Any, ...]]:
        tensors, integers, numbers = gradient.signature
        specs = [
            *(ArgumentSpec(f"x{slot}", "Tensor?", (None,)) for slot in range(tensors)),
            *(ArgumentSpec(integer, "SymInt", (0,)) for integer in integers),
            *(ArgumentSpec(f"c{slot}", "Scalar", (0,), runtime=True) for slot in range(numbers)),
        ]
        source = Source(specify, identity, tuned=gradient.tuned)
        return [(tuple(specs), source.build, ())]

    op = _core.Op(name, overloads)
    if gradient.once:
        op.once_differentiable = True
    return op
