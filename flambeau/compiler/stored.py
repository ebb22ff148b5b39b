"""Finished plans on disk: what an earlier process traced, derived, scheduled and printed is read
back in a fraction of a millisecond.

A plan's key is a digest of everything that determines it: what it is a plan of (an
operator's definition and the class of its calls, or the programs of a recorded stream and how they
are wired), the target, the C compiler, and the package's own sources. Under one name there may be
several plans, each valid under guards of its own. A plan names its kernels by content and by their
own keys; where one of them was evicted the program is compiled as if nothing had been stored.

Behind the user's plans are those that came with the package (`shipped`), which start on the
baseline: they are valid on every machine, and are stored as the user's own once their kernels are
compiled.

Every first call of an operator comes here, so this module loads nothing that traces or compiles.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flambeau.compiler import (
    cache,
    debug,
    machine,
    passes,
    postponed,
    shipped,
    targets,
    tiers,
    toolchain,
)
from flambeau.compiler.cache import blake2b
from flambeau.ir import lock
from flambeau.ir.plan import Execution, PlanSpec, changed, packed, unpacked_execution, unpacked_spec
from flambeau.runtime import settings

if TYPE_CHECKING:
    from flambeau.ir.node import Graph

Place = tuple[int, str, str, str]  # level, bundle, symbol, digest
Origin = Literal["cache", "package", "elsewhere"]  # of a plan
# Plans of one name: more means guards that never repeat.
MAX_PLANS = 8
FORMAT = 2  # marshal's last one without references: equal parts are equal bytes, and compress


class StoredPlan(NamedTuple):
    """The parts of a plan in a form that another process can read.

    Attributes:
        hints: values of the symbols when it was traced.
        spec: the plan's description as plain data.
        registers: of the metadata program.
        fingerprint: of its graph.
        execution: what it compiles to, kernels by number; None: it was never run. Packed while
            there is a baseline, which runs first; the package's file has its changes to that.
        kernels: (level, bundle, symbol, digest) of each kernel; "" for the bundle and symbol of
            one that was on no disk then. The package's file has numbers of digests.
        baseline: what runs until those are compiled, its own kernels by number, too; the package's
            file has numbers of block programs.
        contents: the kernels to compile, as bytes; of the package's plans their numbers.
        origin: "cache", the user's; "package", which begins on the baseline; "elsewhere", the
            package's as well, whose better code this machine would plan differently.
    """

    hints: list[int]
    spec: PlanSpec
    registers: int
    fingerprint: str = ""
    execution: Sequence[object] | None = None
    kernels: Sequence[Any] = ()
    baseline: Execution | None = None
    contents: Sequence[Any] = ()
    origin: Origin = "cache"

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
        """Plain data, which `unpacked` reads; where it comes from is no part of it."""
        fields: tuple[Any, ...] = packed(self[:-1])
        return fields

    @classmethod
    def unpacked(cls, fields: Sequence[Any], origin: Origin = "cache") -> StoredPlan:
        """The plan that was packed."""
        plan = cls(*fields)
        execution, kernels, baseline = plan.execution, plan.kernels, plan.baseline
        if origin != "cache":
            kernels = [(*k[:3], shipped.digest_at(k[3])) for k in kernels]
            execution = execution if baseline is None else changed(baseline, execution)
        if baseline is not None:
            baseline = unpacked_execution(baseline, shipped.block_program)
        elif execution is not None:
            execution = unpacked_execution(execution)
        hints, spec = list(plan.hints), unpacked_spec(plan.spec)
        return cls(hints, spec, *plan[2:4], execution, kernels, baseline, plan.contents, origin)


_collected: dict[str, list[StoredPlan]] | None = None  # instead of the cache, see `collecting`


# ------------------------------------------------------------------------------- names


def usable() -> bool:
    """Whether plans may be loaded and saved: not while the stages of planning are observed, or a
    pass of the user has no key."""
    if settings.get("VERIFY") or debug.observed() or passes.mark() is None:
        return False
    codegen = lock.loaded("flambeau.compiler.codegen")  # where it is not, it collects nothing
    return codegen is None or not codegen.collecting()


class Name(NamedTuple):
    """A plan's name.

    Attributes:
        own: the key in the user's cache: it depends on the machine, the compiler, the files.
        text: what the plan is of, whatever plans it.
    """

    own: str
    text: str


def name_of(*parts: str) -> Name | None:
    """The name of what these texts identify; None where nothing may be stored."""
    environment = _environment(settings.get("TARGET"), settings.get("CC"))
    if environment is None:
        return None
    text = "\n".join((*parts, mark) if (mark := passes.mark()) else parts)
    own = "\n".join((environment, settings.get("TIER"), text))
    return Name(blake2b(own.encode(), digest_size=16).hexdigest(), text)


def fingerprint(graph: Graph) -> str | None:
    """Digest of a graph's text; None if it holds values without a stable text."""
    if "fingerprint" not in graph.notes:
        text = _text(graph)
        stable = " at 0x" not in text
        graph.notes["fingerprint"] = (
            blake2b(text.encode(), digest_size=10).hexdigest() if stable else None
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
        stamp, built_by = shipped.package_stamp(), toolchain.stamp()
    except (OSError, ValueError):  # files that come and go, a command that is none
        return None
    if stamp is None:
        return None
    local = targets.current()
    where = f"{machine.processor()} {machine.current()}"  # the cost models look at it
    return "\n".join((stamp, sys.version, local.name, repr(local.all_flags), built_by, where))


# ------------------------------------------------------------------------------- plans


def load(name: Name) -> list[StoredPlan]:
    """The plans under a name that this machine still has."""
    postponed.finish(name.own)
    return _load(name)


def _load(name: Name) -> list[StoredPlan]:
    if _collected is not None:
        return _collected.get(name.text, [])
    content = cache.get_blob(name.own)
    return [] if content is None else _read(content, "cache")


def _read(content: bytes, origin: Origin) -> list[StoredPlan]:
    """The plans of bytes; none where they are damaged."""
    try:
        return [StoredPlan.unpacked(plan, origin) for plan in marshal.loads(content)]
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


def marked(spec: PlanSpec, **parts: Graph | None) -> PlanSpec | None:
    """A specification with the fingerprints of its parts, "backward" and "constants"; None if one
    has none."""
    for name, graph in parts.items():
        part = getattr(spec, name)
        if graph is None or part is None:
            continue
        mark = fingerprint(graph)
        if mark is None:
            return None
        spec = spec._replace(**{name: part._replace(fingerprint=mark)})
    return spec


def find(name: Name, numbers: list[int]) -> StoredPlan | None:
    """The newest plan under a name whose guards hold; else the package's."""
    own = next((plan for plan in reversed(load(name)) if plan.holds(numbers)), None)
    if own is not None or tiers.policy() == "wait" or settings.get("TIER") != "compiled":
        return own
    entry = shipped.find(name.text)
    if entry is None:
        return None
    plans = _read(entry[0], "package" if entry[1] else "elsewhere")
    return next((plan for plan in reversed(plans) if plan.holds(numbers)), None)


@contextlib.contextmanager
def collecting() -> Iterator[dict[str, list[StoredPlan]]]:
    """Plans are collected in a dict, by their names' texts, instead of the cache."""
    global _collected
    before, _collected = _collected, {}
    try:
        yield _collected
    finally:
        _collected = before


def is_collecting() -> bool:
    """Whether plans are collected, however many there are."""
    return _collected is not None


def save_later(name: Name, make: Callable[[], StoredPlan | None]) -> None:
    """Stores a plan when there is time to make it, if it still goes where it would go now."""
    present = _surroundings()

    def store() -> None:
        try:
            if _surroundings() == present and (plan := make()) is not None:
                save(name, plan)
        except Exception as error:
            debug.show(debug.PLANS, f"a plan is not stored: {error}")
            raise

    if _collected is None:
        postponed.add(name.own, store)
    else:
        store()


def _surroundings() -> tuple[Any, ...]:
    """The settings that decide where a plan is stored, and which kernels are its own."""
    values = [settings.get(name) for name in ("CACHE_DIR", "TARGET", "CC", "TIER")]
    return (*values, _collected is None)


def save(name: Name, plan: StoredPlan) -> None:
    """Stores a plan beside those of its name, in place of the one with the same guards.

    A plan with a value that cannot be serialised (an object of the user's, say) is not stored.
    """
    others = [other for other in _load(name) if _guards(other) != _guards(plan)]
    plans = [*others, plan][-MAX_PLANS:]
    try:
        content = written(plans)
    except ValueError:
        return
    if _collected is None:
        cache.put_blob(name.own, content)
    else:
        _collected[name.text] = plans


def written(plans: Iterable[StoredPlan]) -> bytes:
    """Plans as bytes.

    Raises:
        ValueError: one has a value that cannot be serialised.
    """
    return marshal.dumps([plan.packed() for plan in plans], FORMAT)


def _guards(plan: StoredPlan) -> tuple[Any, Any]:
    return packed(plan.spec.program), packed(plan.spec.guards)


# ------------------------------------------------------------------------------- kernels


def places_of(kernels: Sequence[str]) -> list[Place] | None:
    """Where kernels of these digests lie; None if one is on no disk."""
    places = [_place(content) for content in kernels]
    return None if None in places else [place for place in places if place is not None]


def unplaced(kernels: Sequence[str]) -> list[Place]:
    """The same of kernels that may be on no disk yet."""
    return [_place(content) or (0, "", "", content) for content in kernels]


def _place(content: str) -> Place | None:
    for number, level, key in _entries(content):
        entry = level.find(key)
        if entry is not None:
            return (number, *entry, content)
    return None


def _entries(content: str) -> Iterator[tuple[int, cache.Level, str]]:
    """The levels that may hold a kernel: number, level, and the kernel's key there."""
    for number, level in enumerate(_levels()):
        if level is not None and (identity := _identity(number)) is not None:
            yield number, level, toolchain.key_of(content, targets.current(), identity)


def _identity(number: int) -> str | None:
    """The compiler of a level's kernels."""
    return toolchain.identity() if number else toolchain.prefilled_identity()


def execution_of(plan: StoredPlan) -> Execution | None:
    """The execution with the addresses of this process; None if a kernel is gone.

    While kernels are not compiled, and nobody is to wait for them, that on the baseline.
    """
    execution = _loaded(plan, plan.execution)
    if execution is not None or plan.baseline is None or tiers.policy() == "wait":
        return execution
    return _before(plan, tiers.Pending(plan.contents, lambda: _loaded(plan, plan.execution)))


def _before(plan: StoredPlan, pending: tiers.Pending) -> Execution | None:
    """The execution of a plan until its kernels are compiled."""
    before = _loaded(plan, plan.baseline or plan.execution)
    if before is None or tiers.policy() == "never":
        return before
    return before._replace(pending=pending)


def shipped_execution(
    plan: StoredPlan, name: Name, compile_anew: Callable[[], Execution]
) -> Execution | None:
    """That of a plan of the package.

    Nobody looks for its kernels before it is hot: a plan that has them is the user's own.

    Args:
        plan: the plan.
        name: under what it is stored once its kernels are compiled.
        compile_anew: traces and plans it for this machine.
    """
    if plan.origin == "elsewhere":
        return _before(plan, tiers.Replanned(compile_anew))
    if plan.baseline is None:
        return _loaded(plan, plan.execution)

    def assemble() -> Execution | None:
        execution = _loaded(plan, plan.execution)
        places = places_of([content for *_, content in plan.kernels])
        if execution is not None and places is not None:
            save(name, plan._replace(kernels=places, baseline=None, contents=(), origin="cache"))
        return execution

    return _before(plan, tiers.Pending(plan.contents, assemble))


def _loaded(plan: StoredPlan, execution: Sequence[object] | None) -> Execution | None:
    """An execution of a plan with the addresses of its kernels; None if one is on no disk."""
    if execution is None:
        return None
    ready = execution if isinstance(execution, Execution) else unpacked_execution(execution)
    handles: dict[int, tuple[int, str, Any]] = {}
    for launch in ready.launches:
        if launch.kernel is not None and launch.kernel not in handles:
            handle = _kernel(*plan.kernels[launch.kernel])
            if handle is None:
                return None
            handles[launch.kernel] = handle
    launches = [
        launch if launch.kernel is None else launch._replace(kernel=handles[launch.kernel][0])
        for launch in ready.launches
    ]
    return ready._replace(launches=launches, keepalive=[x[2] for x in handles.values()])


def _kernel(number: int, bundle: str, symbol: str, content: str) -> tuple[int, str, Any] | None:
    """Loads a kernel from its recorded cache level, or searches the levels."""
    level = _levels()[number]
    loaded = cache.load_symbol(level, bundle, symbol) if level and bundle else None
    if loaded is None:
        entries = (cache.load(level, key) for _, level, key in _entries(content))
        loaded = next((entry for entry in entries if entry is not None), None)
    cache.statistics.hits += loaded is not None
    return loaded


def _levels() -> tuple[cache.Level | None, cache.Level]:
    return cache.prefilled_level(), cache.user_level()
