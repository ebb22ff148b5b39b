"""Finished plans on disk: what an earlier process traced, derived, scheduled and printed is read
back in a fraction of a millisecond.

A plan's key is a digest of everything that determines it: what it is a plan of (an
operator's definition and the class of its calls, or the programs of a recorded stream and how they
are wired), the target, the C compiler, and the package's own sources. Under one name there may be
several plans, each valid under guards of its own. A plan names its kernels by content and by their
own keys; where one of them was evicted the program is compiled as if nothing had been stored.

Every first call of an operator comes here, so this module loads nothing that traces or compiles.
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.compiler import cache, debug, machine, targets, tiers, toolchain
from flambeau.compiler.cache import blake2b
from flambeau.ir import lock
from flambeau.ir.plan import Execution, PlanSpec, packed, unpacked_execution, unpacked_spec
from flambeau.runtime import settings

if TYPE_CHECKING:
    from flambeau.ir.node import Graph

# Plans of one name: more means guards that never repeat.
MAX_PLANS = 8


class StoredPlan:
    """The parts of a plan in a form that another process can read.

    Args:
        hints: values of the symbols when it was traced.
        spec: the plan's description as plain data.
        registers: of the metadata program.
        fingerprint: of its graph.
        execution: what it compiles to, kernels by number; None: it was never run.
        kernels: (level, bundle, symbol, its key in each level) of each kernel; "" for the bundle
            and symbol of one that was on no disk when the plan was stored.
        baseline: what runs until the kernels of `execution` are compiled, its own by number, too.
        contents: the kernels to compile, as bytes.
    """

    def __init__(
        self,
        hints: list[int],
        spec: PlanSpec,
        registers: int,
        fingerprint: str = "",
        execution: Execution | None = None,
        kernels: Sequence[tuple[Any, ...]] = (),
        baseline: Execution | None = None,
        contents: Sequence[bytes] = (),
    ) -> None:
        self.hints = hints
        self.spec = spec
        self.registers = registers
        self.fingerprint = fingerprint
        self.execution = execution
        self.kernels = tuple(kernels)
        self.baseline = baseline
        self.contents = tuple(contents)

    def holds(self, numbers: list[int]) -> bool:
        """Whether the guards are true of these values of the symbols."""
        guards = self.spec.guards
        if not guards or numbers == self.hints:
            return True
        from flambeau.ir.size_program import run

        try:
            registers = run(self.spec.program, numbers)
        except ZeroDivisionError:
            return False
        return all(registers[guard] for guard in guards)

    def packed(self) -> tuple[Any, ...]:
        """Plain data, which `unpacked` reads."""
        fields: tuple[Any, ...] = packed(tuple(vars(self).values()))
        return fields

    @staticmethod
    def unpacked(fields: Sequence[Any]) -> StoredPlan:
        """The plan that was packed."""
        hints, spec, registers, fingerprint, execution, kernels, baseline, contents = fields
        run, before = (None if x is None else unpacked_execution(x) for x in (execution, baseline))
        return StoredPlan(
            list(hints), unpacked_spec(spec), registers, fingerprint, run, kernels, before, contents
        )


# ------------------------------------------------------------------------------- names


def usable() -> bool:
    """Whether plans may be loaded and saved: not while the stages of planning are observed."""
    if settings.get("VERIFY") or debug.observed():
        return False
    codegen = lock.loaded("flambeau.compiler.codegen")  # where it is not, it collects nothing
    return codegen is None or not codegen.collecting()


def name_of(*parts: str) -> str | None:
    """The key of what these texts identify; None where nothing may be stored."""
    environment = _environment(settings.get("TARGET"), settings.get("CC"))
    if environment is None:
        return None
    text = "\n".join((environment, settings.get("TIER"), *parts))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def fingerprint(graph: Graph) -> str | None:
    """Digest of a graph's text; None if it holds values without a stable text."""
    if "fingerprint" not in graph.notes:
        text = _text(graph)
        stable = " at 0x" not in text
        graph.notes["fingerprint"] = (
            blake2b(text.encode(), digest_size=16).hexdigest() if stable else None
        )
    mark: str | None = graph.notes["fingerprint"]
    return mark


def _text(graph: Graph) -> str:
    numbers: dict[Any, int] = {None: -1}
    lines = [repr((graph.symbols, graph.visible, graph.guards, graph.generators, graph.name))]
    for value in (*graph.nodes(), *graph.inputs, *graph.scalars):
        if value is not None and value not in numbers:
            operands = [numbers[i] for i in value.inputs]
            numbers[value] = len(numbers)
            lines.append(f"{value.op}{operands}{value.attributes}{value.dtype}{value.shape}")
    slots = [numbers[value] for value in (*graph.inputs, *graph.scalars)]
    outputs = [(numbers[o.node], o.strides, o.target, o.alias, o.offset) for o in graph.outputs]
    return "\n".join([*lines, repr((slots, outputs))])


@functools.cache
def _environment(target: str | None, compiler: str | None) -> str | None:
    """Returns the settings, by these names, that all plans of this process depend on."""
    try:
        stamp, built_by = _package_stamp(), toolchain.stamp()
    except (OSError, ValueError):  # files that come and go, a command that is none
        return None
    if stamp is None:
        return None
    local = targets.current()
    where = f"{machine.processor()} {machine.current()}"  # the cost models look at it
    return "\n".join((stamp, sys.version, local.name, repr(local.all_flags), built_by, where))


@functools.cache
def _package_stamp() -> str | None:
    """Names, sizes and times of the package's files: cheaper than reading them.

    None where a file came here later than this process's copy of it may have been read.
    """
    package = os.path.dirname(os.path.dirname(__file__))
    core = str(sys.modules["flambeau._core"].__file__)
    files = sorted([*_sources(package), _state(core, os.stat(core))])
    began = vars(sys.modules["flambeau"])["_began"]
    if any(changed > began for *_, changed in files):
        return None
    return blake2b(repr(files).encode(), digest_size=16).hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, int, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield _state(entry.path, entry.stat())
            elif entry.name[0] != "_" and entry.is_dir():
                yield from _sources(entry.path)


def _state(path: str, state: os.stat_result) -> tuple[str, int, int, int]:
    # Installers may give files any time of modification, but not of change.
    return path, state.st_size, state.st_mtime_ns, state.st_ctime_ns


# ------------------------------------------------------------------------------- plans


def load(name: str) -> list[StoredPlan]:
    """The plans under a name that this machine still has."""
    content = cache.get_blob(name)
    if content is None:
        return []
    try:
        return [StoredPlan.unpacked(plan) for plan in marshal.loads(content)]
    except (ValueError, TypeError, EOFError):
        return []


def checked(graph: Graph, expected: str | None, name: str) -> Graph:
    """A graph that was traced again, if it equals the stored one.

    Raises:
        RuntimeError: the trace is another one now.
    """
    if fingerprint(graph) != expected:
        raise RuntimeError(
            f"[{name}] its stored plan is not what is traced now\n"
            "hint: flambeau.compiler.cache.clear() forgets it; please report this"
        )
    return graph


def marked(spec: PlanSpec, backward: Graph | None) -> PlanSpec | None:
    """A specification with the fingerprint of its backward; None if that has none."""
    if backward is None or spec.backward is None:
        return spec
    mark = fingerprint(backward)
    if mark is None:
        return None
    return spec._replace(backward=spec.backward._replace(fingerprint=mark))


def find(name: str, numbers: list[int]) -> StoredPlan | None:
    """The newest plan under a name whose guards hold."""
    return next((plan for plan in reversed(load(name)) if plan.holds(numbers)), None)


def save(name: str, plan: StoredPlan) -> None:
    """Stores a plan beside those of its name, in place of the one with the same guards.

    A plan with a value that cannot be serialised (an object of the user's, say) is not stored.
    """
    others = [other for other in load(name) if _guards(other) != _guards(plan)]
    plans = [*others, plan][-MAX_PLANS:]
    try:
        content = marshal.dumps([p.packed() for p in plans])
    except ValueError:
        return
    cache.put_blob(name, content)


def _guards(plan: StoredPlan) -> tuple[Any, Any]:
    return packed(plan.spec.program), packed(plan.spec.guards)


# ------------------------------------------------------------------------------- kernels


def places_of(kernels: Sequence[tuple[str, ...]]) -> list[tuple[Any, ...]] | None:
    """Where kernels lie that are known by these keys; None if one is on no disk."""
    places = [_place(keys) for keys in kernels]
    return None if None in places else [place for place in places if place is not None]


def unplaced(kernels: Sequence[tuple[str, ...]]) -> list[tuple[Any, ...]]:
    """The same of kernels that may be on no disk yet."""
    return [_place(keys) or (0, "", "", *keys) for keys in kernels]


def _place(keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    for number, level in enumerate(_levels()):
        for key in keys:
            entry = None if level is None else level.find(key)
            if entry is not None:
                return (number, *entry, *keys)
    return None


def execution_of(plan: StoredPlan) -> Execution | None:
    """The execution with the addresses of this process; None if a kernel is gone.

    While kernels are not compiled, and nobody is to wait for them, that on the baseline.
    """
    execution = _loaded(plan, plan.execution)
    if execution is not None or plan.baseline is None or tiers.policy() == "wait":
        return execution
    before = _loaded(plan, plan.baseline)
    if before is None or tiers.policy() == "never":
        return before
    pending = tiers.Pending(plan.contents, lambda: _loaded(plan, plan.execution))
    return before._replace(pending=pending)


def _loaded(plan: StoredPlan, execution: Execution | None) -> Execution | None:
    """An execution of a plan with the addresses of its kernels; None if one is on no disk."""
    if execution is None:
        return None
    handles: dict[int, tuple[int, str, Any]] = {}
    for launch in execution.launches:
        if launch.kernel is not None and launch.kernel not in handles:
            handle = _kernel(*plan.kernels[launch.kernel])
            if handle is None:
                return None
            handles[launch.kernel] = handle
    launches = [
        launch if launch.kernel is None else launch._replace(kernel=handles[launch.kernel][0])
        for launch in execution.launches
    ]
    return execution._replace(launches=launches, keepalive=[x[2] for x in handles.values()])


def _kernel(number: int, bundle: str, symbol: str, *keys: str) -> tuple[int, str, Any] | None:
    """Loads a kernel from its recorded cache level, or searches the other levels."""
    levels = _levels()
    level = levels[number]
    loaded = cache.load_symbol(level, bundle, symbol) if level and bundle else None
    for other in levels:
        for key in keys:
            if loaded is None and other is not None:
                loaded = cache.load(other, key)
    cache.statistics.hits += loaded is not None
    return loaded


def _levels() -> tuple[cache.Level | None, cache.Level]:
    return cache.prefilled_level(), cache.user_level()


__all__ = [
    "MAX_PLANS",
    "StoredPlan",
    "checked",
    "execution_of",
    "find",
    "fingerprint",
    "load",
    "marked",
    "name_of",
    "places_of",
    "save",
    "unplaced",
    "usable",
]
