"""Passes of users over the compiler's own programs, and lowerings of primitives.

A pass before fusion changes the tensor graph (grammar 1) of every program that is compiled, of one
operator or of a region; a pass after fusion changes its kernels (grammar 2). What a pass returns is
verified. Programs made with a pass are never used without it, nor the reverse: a change of the list
forgets all plans of the process, and names of stored plans contain the keys of the passes.

This module is loaded with the first operator, so it loads nothing that compiles by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from flambeau.ir.failure import failure
from flambeau.ir.lock import importing
from flambeau.runtime import forget_programs

if TYPE_CHECKING:
    from flambeau.compiler.schedule import Schedule
    from flambeau.ir.kernel import Kernel
    from flambeau.ir.node import Graph, Node

__all__ = ["PassError", "Registration", "lowering", "register", "registered", "rewrite"]

Place = Literal["before", "after"]
Rule = Callable[["Node"], "Node | None"]
Function = Callable[..., Any]


class PassError(ValueError):
    """A pass returned a program that is none, or not one of the same inputs and results."""


class Registration:
    """A registered pass: a handle, a `with` block that ends with its removal, and the function.

    Args:
        function: the pass.
        place: "before" or "after" fusion.
        name: for reports.
        key: identifies what the pass does; None: nothing does.
    """

    def __init__(self, function: Function, place: Place, name: str, key: str | None) -> None:
        self.function, self.place, self.name, self.key = function, place, name, key
        _registered.append(self)
        _changed()

    def remove(self) -> None:
        """Removes the pass; further calls change nothing."""
        if self in _registered:
            _registered.remove(self)
            _changed()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def __call__(self, program: object) -> object:
        """Calls the function."""
        result: object = self.function(program)
        return result

    def __repr__(self) -> str:
        return f"<pass {self.name!r} {self.place} fusion>"


_registered: list[Registration] = []
_revision = 0


def _changed() -> None:
    global _revision
    _revision += 1
    forget_programs()


@overload
def register(
    function: Function,
    *,
    before: Literal["fusion"] | None = None,
    after: Literal["fusion"] | None = None,
    name: str | None = None,
    key: str | None = None,
) -> Registration: ...


@overload
def register(
    function: None = None,
    *,
    before: Literal["fusion"] | None = None,
    after: Literal["fusion"] | None = None,
    name: str | None = None,
    key: str | None = None,
) -> Callable[[Function], Registration]: ...


def register(
    function: Function | None = None,
    *,
    before: Literal["fusion"] | None = None,
    after: Literal["fusion"] | None = None,
    name: str | None = None,
    key: str | None = None,
) -> Registration | Callable[[Function], Registration]:
    """Registers a pass: a decorator, or a function that returns the handle.

    Before fusion a pass is a function from `Graph` to `Graph`, of the same inputs and results; it
    gets the simplified graph, and its result is simplified again. After fusion it is a function
    from the list of kernels, in the order of their launches, to a list of as many; a kernel may
    compute other values, and loads and stores elements that the one in its place does.

    Args:
        function: the pass; None gives a decorator.
        before, after: "fusion"; one of both.
        name: for reports; by default the function's.
        key: a text that identifies what the pass does, a version say. Plans are stored on disk, and
            found there, only if all passes have one.

    Returns:
        Registration: a handle with `remove()`, which `with` calls at the end of its block.

    Raises:
        ValueError: neither or both of `before` and `after`, or another value.

    Example:
        >>> from flambeau import prims
        >>> from flambeau.compiler import passes
        >>> def sine(value):
        ...     return prims.sin(*value.inputs) if value.op == "cos" else None
        >>> with passes.register(lambda graph: passes.rewrite(graph, sine), before="fusion"):
        ...     torch.equal(torch.cos(torch.ones(3)), torch.sin(torch.ones(3)))
        True
    """
    if {before, after} != {"fusion", None}:
        problem = f"before={before!r} and after={after!r}"
        raise failure(ValueError, "passes.register", problem, 'one of both is "fusion"')
    place: Place = "before" if before is not None else "after"

    def decorate(function: Function) -> Registration:
        title = str(name or getattr(function, "__qualname__", repr(function)))
        return Registration(function, place, title, key)

    return decorate if function is None else decorate(function)


def lowering(
    primitive: str, *, name: str | None = None, key: str | None = None
) -> Callable[[Function], Registration]:
    """A decorator that registers what a primitive is, in terms of others, before fusion.

    Args:
        primitive: its name.
        name: for reports; by default the function's.
        key: as of `register`.

    Returns:
        the decorator, of a function that takes the operands, and the primitive's constants by name,
        and returns a value of the same dtype and shape. It gives a `Registration`.

    Raises:
        ValueError: there is no primitive of this name.

    Example:
        >>> from flambeau import prims
        >>> from flambeau.compiler import passes
        >>> @passes.lowering("sigmoid")
        ... def by_tanh(x):
        ...     half = prims.full(0.5, x.shape, x.dtype)
        ...     return prims.tanh(x * half) * half + half
        >>> torch.sigmoid(torch.zeros(2))
        tensor([0.5000, 0.5000])
        >>> by_tanh.remove()
    """
    with importing:
        from flambeau.compiler.simplify import require_primitive
    require_primitive(primitive)

    def decorate(function: Function) -> Registration:
        def run(graph: Graph) -> Graph:
            with importing:
                from flambeau.compiler.simplify import lowered
            return lowered(graph, primitive, function)

        title = name or f"lowering of {primitive}"
        return Registration(run, "before", title, key)

    return decorate


@overload
def rewrite(program: Graph, rule: Rule) -> Graph: ...


@overload
def rewrite(program: Kernel, rule: Rule) -> Kernel: ...


def rewrite(program: Graph | Kernel, rule: Rule) -> Graph | Kernel:
    """A program whose values are replaced, operands first.

    Args:
        program: a graph or a kernel.
        rule: from a value, with its new operands, to one that takes its place, or None.

    Returns:
        a program of the same kind; the same one where no rule applies.
    """
    with importing:
        from flambeau.compiler import simplify
        from flambeau.ir.kernel import Kernel
    if isinstance(program, Kernel):
        return simplify.rewritten_kernel(program, rule)
    return simplify.rewritten(program, lambda value: rule(value) or value)


def registered() -> list[Registration]:
    """The passes, in the order in which they run."""
    return list(_registered)


# ------------------------------------------------------------------------------- for the compiler


def revision() -> int:
    """A number that changes with the list of passes."""
    return _revision


def mark() -> str | None:
    """A text that identifies the passes, empty without any; None: one of them has no key."""
    keys = [each.key for each in _registered]
    if None in keys:
        return None
    return repr([(each.place, each.key) for each in _registered]) if keys else ""


def before_fusion(graph: Graph) -> Graph:
    """A simplified graph after the passes before fusion.

    Raises:
        PassError: a pass returned something else than a graph of the same inputs and results.
    """
    for each in _at("before"):
        with importing:
            from flambeau.compiler.pass_checks import require_graph
        changed = each.function(graph)
        require_graph(each.name, graph, changed)
        graph = changed
    return graph


def after_fusion(schedule: Schedule) -> Schedule:
    """A schedule after the passes after fusion.

    Raises:
        PassError: a pass returned something else than kernels of the same memory.
    """
    for each in _at("after"):
        with importing:
            from flambeau.compiler.pass_checks import with_kernels
        kernels = [launch.kernel for launch in schedule.launches if launch.kernel is not None]
        schedule = with_kernels(each.name, schedule, each.function(list(kernels)))
    return schedule


def _at(place: Place) -> list[Registration]:
    return [each for each in _registered if each.place == place]
