"""The slow path of an op call: from a call that no cache of the core knows to its Plan.

Called by the native core when neither cache level knows a call's class. Where an earlier process
kept the finished Plan (`compiler/stored.py`), nothing is traced and nothing of the compiler is
loaded; its Graph is traced by `plan.graph()`. Else `driver/specify.py` traces the definition,
and the Plan is kept once its kernels exist. Everything here runs once per class of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau.compiler import debug, stored
from flambeau.core import warned
from flambeau.core.tensors import struct_sequence
from flambeau.driver.calls import Call, class_of, numbers_of, with_numbers
from flambeau.ir.lock import computed_once, fork_safe_lock, importing
from flambeau.ir.node import Graph
from flambeau.ir.plan import BackwardSpec, Execution, PlanSpec
from flambeau.language import promotion
from flambeau.language.definition import Overload
from flambeau.language.schema import ArgumentSpec
from flambeau.runtime import settings

if TYPE_CHECKING:
    from flambeau.driver.specify import Specification

# Plans that one signature keeps in one process: more means static values that never repeat.
MAX_KEPT = 64
# Options of a definition that decide about its programs.
_OPTIONS = ("promote", "participants", "layout", "view", "returns_self", "differentiable")
_retracing = fork_safe_lock(level=0)  # who traces for another default dtype sets it for all threads


# ------------------------------------------------------------------------------- who is called


class Source:
    """Where the core gets the Plans of one op from: a definition, or a Graph used as one.

    Args:
        specify: traces a call.
        identity: text of everything that decides about that trace; None: nothing is kept.
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
        self.kept = 0
        self._identity = identity

    @computed_once
    def identity(self) -> str | None:
        """Text of everything that decides about a trace, the call aside."""
        return self._identity()

    def build(self, call: Call) -> Any:
        """The Plan of a call: the build function of a native overload."""
        name = self._name(call)
        if name is not None:
            plan = stored.find(name, numbers_of(call))
            if plan is not None:
                return _Known(self, name, call, plan).plan()
        return _Traced(self, name, call).plan()

    def _name(self, call: Call) -> str | None:
        """Under what the Plan of a call is kept."""
        if not stored.usable():
            return None
        identity, called = self.identity, class_of(call)
        if identity is None or called is None:
            return None
        return stored.name_of(*self._conditions(call), identity, called)

    def _conditions(self, call: Call) -> list[str]:
        """Returns the conditions of a tuned Plan beyond its class."""
        if not self.tuned:
            return []
        with importing:
            from flambeau.driver.autotune import conditions

        return [conditions(), repr(numbers_of(call))]

    def make(self, spec: PlanSpec, backward: Callable[[], Graph], **live: Any) -> Any:
        """The native Plan of a specification."""
        if spec.returns == "named":
            assert self.structure is not None
            live["structure"] = self.structure()
        return native_plan(spec, backward, **live)


def builder(overload: Overload, variant: str) -> Callable[[Call], Any]:
    """The build function of one native overload.

    Args:
        overload: the definition.
        variant: "functional" or "inplace" (the result overwrites the first argument).
    """

    def specify(call: Call) -> Specification:
        with importing:
            from flambeau.driver.specify import specify_call

        return specify_call(overload, variant, call)

    def identity() -> str | None:
        body = overload.body
        if not body.__module__.startswith("flambeau."):
            return None  # the package's sources say nothing about it
        options = [getattr(overload.options, name) for name in _OPTIONS]
        where = (body.__module__, body.__qualname__)
        return repr((overload.text, overload._runtime, variant, where, options))

    return Source(specify, identity, lambda: struct_sequence_of(overload), overload).build


def struct_sequence_of(overload: Overload) -> Any:
    """The type of an overload's results, which have names."""
    prefix = "linalg_" if overload.options.where[0] == "linalg" else ""
    return struct_sequence(prefix + overload.name, overload.schema.returns)


def native_plan(spec: PlanSpec, backward: Callable[[], Graph], **live: Any) -> Any:
    """The Plan of a specification whose gradients are another Graph, made into an op.

    Args:
        spec: see `driver.specify.Specification`.
        backward: gives that Graph.
        live: objects that are no part of the specification, see `_core.Plan`.
    """
    if spec.backward is not None:
        live["backward"] = graph_op(spec.backward, backward)
    if settings.get("VERIFY"):
        with importing:
            from flambeau.ir.plan_grammar import verify_plan

        verify_plan(spec)
    return _core.Plan(spec, **live)


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


# ------------------------------------------------------------------------------- their plans


class _Traced:
    """A Plan whose call was traced here; kept under `name` once it is compiled."""

    kept = False

    def __init__(self, source: Source, name: str | None, call: Call) -> None:
        self.source = source
        self.call = call
        before = warned.count()
        self.made = source.specify(call)
        keeps = not self.made.spec.place and warned.count() == before
        self.name = name if keeps else None

    def fingerprint(self) -> str | None:
        """Digest of the Graph, see `stored.fingerprint`."""
        return stored.fingerprint(self.made.graph)

    def plan(self) -> Any:
        """The native Plan."""
        result = self.made
        return self.source.make(
            result.spec, self._backward, graph=result.graph, compile=self._compile, origin=self
        )

    def _backward(self) -> Graph:
        assert self.made.backward is not None
        return self.made.backward

    def _compile(self) -> Execution:
        keep = None if self.name is None else self.keep
        numbers = numbers_of(self.call) if self.source.tuned else None
        return compile_and_keep(self.made.graph, self.made.registers, keep, numbers)

    def keep(
        self, execution: Execution | None = None, kernels: Sequence[tuple[Any, ...]] = ()
    ) -> None:
        """Keeps the plan for the next process; without an execution that is compiled there."""
        result, name = self.made, self.name
        if name is None or self.source.kept >= MAX_KEPT or (self.kept and execution is None):
            return
        self.kept = True
        mark, spec = self.fingerprint(), stored.marked(result.spec, result.backward)
        if mark is None or spec is None:
            return
        self.source.kept += 1
        numbers = numbers_of(self.call)
        plan = stored.StoredPlan(numbers, spec, result.registers, mark, execution, kernels)
        stored.save(name, plan)


class _Known:
    """A Plan that an earlier process kept."""

    def __init__(self, source: Source, name: str, call: Call, plan: stored.StoredPlan) -> None:
        self.source = source
        self.name = name
        self.known = plan
        self.call = with_numbers(call, plan.hints)
        self.default = promotion.default_dtype()

    def fingerprint(self) -> str:
        """Digest of the Graph that is not traced yet."""
        return self.known.fingerprint

    def keep(self) -> None:
        """It is kept."""

    def plan(self) -> Any:
        """The native Plan."""
        return self.source.make(
            self.known.spec, self._backward, graph=self._graph, compile=self._compile, origin=self
        )

    def _graph(self) -> Graph:
        return self.traced.made.graph

    @computed_once
    def traced(self) -> _Traced:
        """The plan, traced as it was when it was kept.

        Raises:
            RuntimeError: the trace is another one now.
        """
        with _retracing:
            present = promotion.default_dtype()
            promotion.set_default(self.default)
            try:
                traced = _Traced(self.source, self.name, self.call)
            finally:
                promotion.set_default(present)
        traced.kept = True
        spec, result = self.known.spec, traced.made
        stored.checked(result.graph, self.known.fingerprint, spec.name)
        if result.backward is not None and spec.backward is not None:
            stored.checked(result.backward, spec.backward.fingerprint, spec.name)
        return traced

    def _backward(self) -> Graph:
        return self.traced._backward()

    def _compile(self) -> Execution:
        execution = stored.execution_of(self.known) if stored.usable() else None
        if execution is None:  # never run, kernels evicted, or somebody wants to see the stages
            return self.traced._compile()
        name = self.known.spec.name
        debug.show(debug.PLANS, f"{name}: a finished plan of an earlier run")
        return execution


def compile_and_keep(
    graph: Graph,
    registers: int,
    keep: Callable[[Execution, Sequence[tuple[Any, ...]]], None] | None,
    tune_for: list[int] | None = None,
) -> Execution:
    """Compiles a graph; what came of it is handed to `keep`, in terms that others understand.

    Args:
        graph: the program.
        registers: of the plan's metadata program.
        keep: see above.
        tune_for: values of the graph's symbols for which candidates are measured; None: not at all.
    """
    with importing:
        from flambeau.compiler import pipeline

    choose = None
    if tune_for is not None:
        with importing:
            from flambeau.driver.autotune import Tuner

        choose = Tuner(graph.symbols, tune_for, graph.notes.get("weights", ()))
    if keep is None:
        return pipeline.compile_graph(graph, registers, choose)
    execution, portable, keys = pipeline.compile_portable(graph, registers, choose)
    kernels = stored.places_of(keys)
    if kernels is not None:
        keep(portable, kernels)
    return execution
