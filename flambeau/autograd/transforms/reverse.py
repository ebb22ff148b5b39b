"""Reverse derivatives of functions: `vjp`, `grad`, on the tape that `backward` uses.

The arguments of a transformed function become variables of their own, so that nested derivatives
never mix. Inside of other transformations a variable is a variable for every sample (a batch of
them) and a value with its tangent; gradients then come as batches and with tangents.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd.grad_mode import enable_grad, is_grad_enabled
from flambeau.autograd.transforms.wrappers import (
    Level,
    Wrapper,
    batched,
    dual,
    highest,
    inside,
    is_at,
    levels,
    spread,
)
from flambeau.runtime import boundaries
from flambeau.utils._pytree import tree_flatten, tree_unflatten

Tensors = Sequence[Any]


# ------------------------------------------------------------------------------------ variables


def variable(x: Any, outer: bool) -> Any:
    """A tensor of this value that requires a gradient.

    Args:
        x: the value.
        outer: whether derivatives may be taken from outside.
    """
    return _variable(x, [*levels()], outer)


def _variable(x: Any, inside: list[Level], outer: bool) -> Any:
    while inside:
        level = inside.pop()
        if level.extent is not None:
            return batched(level, _variable(spread(level, x), inside, outer))
        if is_at(x, level):
            return dual(level, _variable(x.value, inside, outer), x.tangent)
    with enable_grad():
        if outer and x.requires_grad:
            return x.view_as(x)
        leaf = x.detach().requires_grad_()
        leaf._hidden = True
        return leaf


class _Running(threading.local):
    """Per thread: the variables of functions that are being called, by identity."""

    def __init__(self) -> None:
        self.leaves: list[set[int]] = []


_running = _Running()


def _is_other(leaf: Any, mine: set[int]) -> bool:
    """Whether somebody else may ask for derivatives by a leaf: not by a variable that is done."""
    if id(leaf) in mine:
        return False
    hidden = "_hidden" in leaf.__dict__
    return not hidden or any(id(leaf) in others for others in _running.leaves)


def _bottoms(values: Any) -> list[Any]:
    """All tensors of the tape that values stand for."""
    bottoms: list[Any] = []
    for x in values:
        if isinstance(x, Wrapper):
            inner = [x.value] if x.level.extent is not None else [x.value, x.tangent]
            bottoms += _bottoms(inner)
        elif isinstance(x, _core.Tensor):
            bottoms.append(x)
    return bottoms


def reaches_others(results: Tensors, leaves: set[int]) -> bool:
    """Whether results depend on a leaf of the tape that is not among those given."""
    stack = []
    for x in _bottoms(results):
        if x.grad_fn is not None:
            stack.append(x.grad_fn)
        elif x.requires_grad and _is_other(x, leaves):
            return True
    seen = set()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        variable = getattr(current, "variable", None)
        if variable is not None and _is_other(variable, leaves):
            return True
        stack.extend(node for node, _ in current.next_functions if node is not None)
    return False


def released(x: Any, leaves: set[int]) -> Any:
    """A result without a history that only leads to the variables."""
    if not isinstance(x, _core.Tensor) or reaches_others([x], leaves):
        return x
    return _detached(x)


def _detached(x: Any) -> Any:
    if not isinstance(x, Wrapper):
        return x.detach() if x.requires_grad else x
    if x.level.extent is not None:
        return batched(x.level, _detached(x.value))
    return dual(x.level, _detached(x.value), _detached(x.tangent))


# ------------------------------------------------------------------------------------ pulling back


def pull_back(outputs: Tensors, inputs: Tensors, cotangents: Tensors, create: bool) -> list[Any]:
    """Gradients of inputs, given those of outputs; None where there is none.

    Args:
        outputs: what is differentiated.
        inputs: variables.
        cotangents: one per output; they may belong to transformations that began later.
        create: record the derivation itself.
    """
    level = highest(outputs, inputs)
    if level is None:
        return _on_tape(outputs, inputs, cotangents, create)
    if level.extent is None:
        return _pull_duals(level, outputs, inputs, cotangents, create)
    gradients_inside = pull_back(
        [spread(level, x) for x in outputs],
        [spread(level, x) for x in inputs],
        [_strip(level, x) for x in cotangents],
        create,
    )
    return [None if g is None else _wrap(level, g) for g in gradients_inside]


def _on_tape(outputs: Tensors, inputs: Tensors, cotangents: Tensors, create: bool) -> list[Any]:
    pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    roots = tuple(y for y, _ in pairs)
    grads = tuple(g for _, g in pairs)
    return list(_core.run_backward(roots, grads, True, create, tuple(inputs), True, False))


def gradients(
    outputs: Tensors, grads: Tensors, inputs: Tensors, create: bool, unused: bool
) -> list[Any]:
    """`autograd.grad` of tensors inside of transformations."""
    seeds = []
    for y, g in zip(outputs, grads, strict=True):
        if g is None and y.numel() != 1:
            raise RuntimeError(
                "[grad] grad can be implicitly created only for scalar outputs\n"
                "hint: pass grad_outputs=, or reduce the output to one element"
            )
        seeds.append(y.new_ones(y.shape) if g is None else g)
    results = pull_back(outputs, inputs, seeds, create)
    if not unused and any(g is None for g in results):
        raise RuntimeError(
            "[grad] One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior.\nhint: allow_unused=True"
        )
    return results


def _strip(level: Level, x: Any) -> Any:
    """The batch of a level, also where later transformations are around it."""
    if isinstance(x, Wrapper) and x.level.depth > level.depth:
        if x.level.extent is None:
            return dual(x.level, _strip(level, x.value), _strip(level, x.tangent))
        inner = x.value
        if highest([inner]) is None or not _has(level, inner):
            return batched(x.level, inner.unsqueeze(1).expand(-1, level.extent, *x.shape))
        return batched(x.level, _strip(level, inner).transpose(0, 1))
    return spread(level, x)


def _has(level: Level, x: Any) -> bool:
    while isinstance(x, Wrapper):
        if x.level is level:
            return True
        x = x.value
    return False


def _wrap(level: Level, x: Any) -> Any:
    """The inverse of `_strip`."""
    if isinstance(x, Wrapper) and x.level.depth > level.depth:
        if x.level.extent is None:
            return dual(x.level, _wrap(level, x.value), _wrap(level, x.tangent))
        return batched(x.level, _wrap(level, x.value.transpose(0, 1)))
    return batched(level, x)


def _pull_duals(
    level: Level, outputs: Tensors, inputs: Tensors, cotangents: Tensors, create: bool
) -> list[Any]:
    """A gradient and its tangent: mixed derivatives commute."""
    plain = [x.value if is_at(x, level) else x for x in inputs]
    values = [y.value if is_at(y, level) else y for y in outputs]
    parts = [_parts(level, g) for g in cotangents]
    primal = pull_back(values, plain, [g for g, _ in parts], create)
    roots, seeds = [], []
    for y, (g, moved) in zip(outputs, parts, strict=True):
        if is_at(y, level):
            roots.append(y.tangent)
            seeds.append(g)
            if moved is not None:
                roots.append(y.value)
                seeds.append(moved)
        elif moved is not None:
            roots.append(y)
            seeds.append(moved)
    tangents = pull_back(roots, plain, seeds, create) if roots else [None] * len(inputs)
    result = []
    for g, t in zip(primal, tangents, strict=True):
        if t is None:
            result.append(g)
        else:
            value = t.new_zeros(t.shape) if g is None else g
            result.append(_with_tangent(level, value, t))
    return result


def _parts(level: Level, g: Any) -> tuple[Any, Any]:
    """A cotangent's value and tangent at a level, also where later ones are around it."""
    if is_at(g, level):
        return g.value, g.tangent
    if isinstance(g, Wrapper) and g.level.depth > level.depth and _has(level, g):
        if g.level.extent is None:
            value, tangent = _parts(level, g.value), _parts(level, g.tangent)
            moved = None if value[1] is None else value[1]
            return dual(g.level, value[0], tangent[0]), moved
        inner, moved = _parts(level, g.value)
        return batched(g.level, inner), None if moved is None else batched(g.level, moved)
    return g, None


def _with_tangent(level: Level, value: Any, tangent: Any) -> Any:
    """A dual of a level, below wrappers of later ones."""
    later = highest([value, tangent])
    if later is None or later.depth < level.depth:
        return dual(level, value, tangent)
    if later.extent is None:
        parts = [_parts(later, x) for x in (value, tangent)]
        first = _with_tangent(level, parts[0][0], parts[1][0])
        moved = [p if p is not None else v.new_zeros(v.shape) for v, p in parts]
        return dual(later, first, _with_tangent(level, moved[0], moved[1]))
    return batched(later, _with_tangent(level, spread(later, value), spread(later, tangent)))


# ----------------------------------------------------------------------------------- derivation


def of_chosen(
    func: Callable[..., Any], chosen: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """The function as one of the arguments at the positions *chosen*; the others are fixed."""

    def chosen_func(*values: Any) -> Any:
        arguments = list(args)
        for i, value in zip(chosen, values, strict=True):
            arguments[i] = value
        return func(*arguments, **kwargs)

    return chosen_func


class Recording:
    """A function's call on variables, ready to be differentiated.

    Args:
        func: the function.
        args: its arguments; containers are allowed.
        chosen: which of them become variables.
        has_aux: whether it returns (output, auxiliary).
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        chosen: Sequence[int],
        has_aux: bool,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.outer = is_grad_enabled()
        flat, self.spec = tree_flatten(tuple(args[i] for i in chosen))
        self.places = [i for i, x in enumerate(flat) if isinstance(x, _core.Tensor)]
        for x in flat:
            _check_input(name, x)
        self.flat = flat
        self.variables = [variable(flat[i], self.outer) for i in self.places]
        self.leaves = {id(x) for x in map(inside, self.variables) if x.is_leaf}
        handed = list(flat)
        for i, x in zip(self.places, self.variables, strict=True):
            handed[i] = x
        primals_inside = tree_unflatten(handed, self.spec)
        _running.leaves.append(self.leaves)
        try:
            with enable_grad():
                result = of_chosen(func, chosen, args, kwargs or {})(*primals_inside)
        finally:
            _running.leaves.pop()
        self.aux: Any = None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise RuntimeError(
                    f"{name}: output of function f should be a tuple: (output, aux) if has_aux is "
                    "True\nhint: return (output, aux)"
                )
            result, self.aux = result
        self.result = result
        self.outputs, self.out_spec = tree_flatten(result)

    def others(self, values: Tensors) -> bool:
        """Whether an outer transformation may differentiate the values."""
        if not self.outer:
            return False
        return len(self.leaves) < len(self.variables) or reaches_others(values, self.leaves)

    def released(self, tree: Any) -> Any:
        """Values as the caller gets them."""
        flat, spec = tree_flatten(tree)
        release = released if self.outer else lambda x, _: _plain(x)
        return tree_unflatten([release(x, self.leaves) for x in flat], spec)

    def gradients(self, cotangents: Tensors, create: bool) -> list[Any]:
        """Per variable its gradient; zeros where there is none."""
        gradients = pull_back(self.outputs, self.variables, cotangents, create)
        return [
            x.new_zeros(x.shape) if g is None else g
            for g, x in zip(gradients, self.variables, strict=True)
        ]

    def arranged(self, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients in the structure of the chosen arguments."""
        flat: list[Any] = [None] * len(self.flat)
        for i, g in zip(self.places, grads, strict=True):
            flat[i] = g
        gradients: tuple[Any, ...] = tree_unflatten(flat, self.spec)
        return gradients


def _plain(x: Any) -> Any:
    return _detached(x) if isinstance(x, _core.Tensor) else x


def _check_input(name: str, x: Any) -> None:
    if not isinstance(x, _core.Tensor):
        raise ValueError(
            f"{name}: Expected all inputs to be Tensors, got {type(x)}\n"
            "hint: choose the arguments to derive by with argnums"
        )
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(
            f"{name}: only Tensors of floating point and complex dtype can require gradients, got "
            f"{x.dtype}\nhint: convert it with .to(torch.float32)"
        )


@boundaries.immediate
def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return func(*primals) and the function that takes cotangents back to the primals.

    Args:
        func: takes tensors (or containers of them), returns tensors.
        primals: where it is differentiated.
        has_aux: whether it returns (output, auxiliary); then auxiliary is returned third.

    Example:
        >>> out, back = torch.func.vjp(torch.sin, torch.zeros(2))
        >>> back(torch.ones(2))
        (tensor([1., 1.]),)
    """
    recording = Recording("vjp", func, primals, range(len(primals)), has_aux)
    for x in recording.outputs:
        if not isinstance(x, _core.Tensor):
            raise RuntimeError(
                "vjp(f, *primals): Expected f to be a function that has non-empty output, got "
                f"output of type {type(x)}\nhint: return tensors"
            )

    @boundaries.immediate
    def back(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        cotangent_tree = cotangents[0] if len(cotangents) == 1 else cotangents
        flat, spec = tree_flatten(cotangent_tree)
        if len(flat) != len(recording.outputs):
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {spec}, primal output: "
                f"{recording.out_spec}\nhint: one cotangent per output"
            )
        _check_cotangents(recording.outputs, flat)
        create = is_grad_enabled() and (
            recording.others(recording.outputs) or any(x.requires_grad for x in _bottoms(flat))
        )
        if create_graph is not None:
            create = create_graph
        grads = recording.gradients(flat, create)
        gradients_in_order = recording.arranged(
            [released(g, recording.leaves) for g in grads] if create else grads
        )
        return gradients_in_order

    out = recording.released(recording.result)
    return (out, back, recording.released(recording.aux)) if has_aux else (out, back)


def _check_cotangents(outputs: Tensors, cotangents: Tensors) -> None:
    for y, g in zip(outputs, cotangents, strict=True):
        if not isinstance(g, _core.Tensor):
            raise RuntimeError(
                f"vjp: Expected cotangents to be Tensors, got {type(g)}\n"
                "hint: one tensor per output"
            )
        if tuple(y.shape) != tuple(g.shape):
            raise RuntimeError(
                f"Mismatch in shape: grad_output has a shape of {g.shape} and output has a shape "
                f"of {y.shape}.\nhint: a cotangent has its output's shape"
            )


def _argnums(name: str, argnums: Any, count: int) -> list[int]:
    chosen = (argnums,) if isinstance(argnums, int) and not isinstance(argnums, bool) else argnums
    if not isinstance(chosen, tuple) or not all(isinstance(i, int) for i in chosen):
        raise RuntimeError(
            f"argnums must be int or Tuple[int, ...], got: {type(argnums)}\n"
            "hint: positions of the arguments to derive by"
        )
    if not chosen:
        raise RuntimeError("argnums must be non-empty\nhint: argnums=0")
    for i in chosen:
        if not -count <= i < count:
            raise RuntimeError(
                f"Got argnum={i}, but only {count} positional inputs\n"
                "hint: arguments by name are not derived by"
            )
    positions = [i % count for i in chosen]
    if len(set(positions)) != len(positions):
        raise RuntimeError(
            f"argnums elements must be unique: Got duplicate argnums {argnums}\n"
            "hint: name every argument once"
        )
    return positions


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that gives the gradient of `func` and its value.

    Args:
        func: returns one number (a tensor without dimensions).
        argnums: positions of the arguments to derive by.
        has_aux: whether it returns (output, auxiliary); the result is then
            (gradient, (output, auxiliary)).
    """

    @functools.wraps(func)
    @boundaries.immediate
    def derived(*args: Any, **kwargs: Any) -> Any:
        chosen = _argnums("grad", argnums, len(args))
        recording = Recording("grad_and_value", func, args, chosen, has_aux, kwargs)
        out = recording.result
        if not isinstance(out, _core.Tensor):
            raise RuntimeError(
                "grad_and_value(f)(*args): Expected f(*args) to return a single tensor, got type "
                f"{type(out)}\nhint: has_aux=True allows other results"
            )
        if out.dim() != 0:
            raise RuntimeError(
                "grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor "
                f"with {out.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?\n"
                "hint: reduce it with sum() or mean()"
            )
        create = recording.others([out])
        grads = recording.gradients([out.new_ones(())], create)
        gradients_in_order = recording.arranged(
            [released(g, recording.leaves) for g in grads] if create else grads
        )
        value = recording.released(out)
        first = gradients_in_order[0] if isinstance(argnums, int) else gradients_in_order
        return (first, (value, recording.released(recording.aux))) if has_aux else (first, value)

    return derived


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that gives the gradient of `func`.

    Args:
        func: returns one number (a tensor without dimensions).
        argnums: positions of the arguments to derive by.
        has_aux: whether it returns (output, auxiliary); the result is then (gradient, auxiliary).

    Example:
        >>> torch.func.grad(torch.sin)(torch.tensor(0.0))
        tensor(1.)
    """
    derived = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        gradients_of_chosen, value = derived(*args, **kwargs)
        return (gradients_of_chosen, value[1]) if has_aux else gradients_of_chosen

    return gradient
