"""Forward derivatives of functions: `jvp`, and what is built from both modes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd.grad_mode import enable_grad
from flambeau.autograd.transforms.reverse import (
    Recording,
    _argnums,
    _detached,
    of_chosen,
    pull_back,
    released,
    variable,
    vjp,
)
from flambeau.autograd.transforms.vmap import vmap
from flambeau.autograd.transforms.wrappers import dual, entered, inside, is_at
from flambeau.runtime import boundaries
from flambeau.utils._pytree import tree_flatten, tree_unflatten


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Return func(*primals) and its derivative in the direction of the tangents.

    Args:
        func: takes tensors (or containers of them), returns tensors.
        primals: a tuple of arguments.
        tangents: a tuple of the same structure.
        strict: raise where an output does not depend on the inputs.
        has_aux: whether it returns (output, auxiliary); then auxiliary is returned third.

    Example:
        >>> torch.func.jvp(torch.sin, (torch.zeros(2),), (torch.ones(2),))
        (tensor([0., 0.]), tensor([1., 1.]))
    """
    _check_tuple("primals", primals)
    _check_tuple("tangents", tangents)
    flat, spec = tree_flatten(primals)
    moved, moved_spec = tree_flatten(tangents)
    if spec != moved_spec:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python "
            f"structure. For example, if primals is a tuple of 3 tensors, tangents also must be. "
            f"Got primals with structure {spec} and tangents with structure {moved_spec}\n"
            "hint: one tangent per primal"
        )
    with entered() as level:
        pairs = [_paired(level, x, t) for x, t in zip(flat, moved, strict=True)]
        result = func(*tree_unflatten(pairs, spec))
        aux: Any = None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise RuntimeError(
                    "jvp: output of function f should be a tuple: (output, aux) if has_aux is "
                    "True\nhint: return (output, aux)"
                )
            result, aux = result
        out, moved_out = _unpaired(level, result, strict)
        return (out, moved_out, _primals(level, aux)) if has_aux else (out, moved_out)


def _check_tuple(name: str, value: Any) -> None:
    if not isinstance(value, tuple):
        raise RuntimeError(
            f"jvp(f, primals, tangents): Expected {name} to be a tuple. E.g. it should be valid to "
            f"call f(*primals).\nhint: ({name},) for one argument"
        )
    if not value:
        raise RuntimeError(
            f"jvp(f, primals, tangents): Expected {name} to be a non-empty tuple of Tensors\n"
            "hint: give an argument"
        )


def _paired(level: Any, x: Any, t: Any) -> Any:
    for value, name in ((x, "primals"), (t, "tangents")):
        if not isinstance(value, _core.Tensor):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {name} to be Tensors, got type "
                f"{type(value)}\nhint: close over arguments that are none"
            )
    check_tangent(x, t)
    return dual(level, x, t)


def check_tangent(x: Any, t: Any) -> None:
    """Raises unless a tangent fits its primal value."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise ValueError(
            f"Expected primal to be floating point or complex, but got: {x.dtype}\n"
            "hint: convert it with .to(torch.float32)"
        )
    if tuple(x.shape) != tuple(t.shape):
        raise RuntimeError(
            f"Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(x.shape)} while the given "
            f"forward gradient is of size {list(t.shape)}.\nhint: a tangent has its primal's size"
        )
    if x.dtype != t.dtype:
        raise RuntimeError(
            f"[jvp] the tangent has dtype {t.dtype}, its primal {x.dtype}\n"
            "hint: convert the tangent"
        )


def _unpaired(level: Any, result: Any, strict: bool) -> tuple[Any, Any]:
    flat, spec = tree_flatten(result)
    values, tangents = [], []
    for y in flat:
        if not isinstance(y, _core.Tensor):
            raise RuntimeError(
                "jvp(f, primals, tangents): Expected f to be a function that returns Tensors, got "
                f"unsupported output of type {type(y)}\nhint: has_aux=True allows other results"
            )
        if is_at(y, level):
            values.append(y.value)
            tangents.append(y.tangent)
            continue
        if strict:
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the "
                "inputs. This is not allowed with strict=True.\nhint: strict=False gives zeros"
            )
        values.append(y)
        tangents.append(y.new_zeros(y.shape))
    return tree_unflatten(values, spec), tree_unflatten(tangents, spec)


def _primals(level: Any, tree: Any) -> Any:
    flat, spec = tree_flatten(tree)
    return tree_unflatten([x.value if is_at(x, level) else x for x in flat], spec)


# ------------------------------------------------------------------------------------ Jacobians


def _basis(tensors: Sequence[Any]) -> list[Any]:
    """Per tensor all unit vectors of the whole list: the rows of an identity, split and shaped."""
    counts = [x.numel() for x in tensors]
    total = sum(counts)
    basis = []
    start = 0
    for x, count in zip(tensors, counts, strict=True):
        rows = x.new_zeros((total, count))
        if count:
            rows.narrow(0, start, count).fill_diagonal_(1)
        basis.append(rows.view(total, *x.shape))
        start += count
    return basis


def _no_aux_check(name: str, value: Any) -> list[Any]:
    flat, _ = tree_flatten(value)
    for y in flat:
        if not isinstance(y, _core.Tensor):
            raise RuntimeError(
                f"{name}: Expected f to return tensors, got type {type(y)}\n"
                "hint: has_aux=True allows other results"
            )
    return flat


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `func`, by reverse mode.

    Args:
        func: takes tensors, returns tensors.
        argnums: positions of the arguments to derive by.
        has_aux: whether it returns (output, auxiliary); the result is then (Jacobian, auxiliary).
        chunk_size: how many rows are computed at once; None: all of them.

    Returns:
        A function whose results have the sizes of the output, then those of the argument.

    Example:
        >>> torch.func.jacrev(lambda x: x * x)(torch.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(
            "jacrev: `chunk_size` should be greater than 0.\nhint: None computes all rows at once"
        )

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _argnums("jacrev", argnums, len(args))

        pullback = vjp(
            of_chosen(func, chosen, args, kwargs), *(args[i] for i in chosen), has_aux=has_aux
        )
        out, back = pullback[0], pullback[1]
        outputs = _no_aux_check("jacrev", out)
        out_spec = tree_flatten(out)[1]
        rows = vmap(lambda *g: back(tree_unflatten(list(g), out_spec)), chunk_size=chunk_size)
        jacobians = rows(*_basis(outputs))
        flat, in_spec = tree_flatten(jacobians)
        blocks = _cut_rows(flat, outputs)
        results = [_first(argnums, tree_unflatten(block, in_spec)) for block in blocks]
        result = tree_unflatten(results, out_spec)
        return (result, pullback[2]) if has_aux else result

    return jacobian


def _first(argnums: Any, results: Any) -> Any:
    return results[0] if isinstance(argnums, int) else results


def _cut_rows(columns: Sequence[Any], outputs: Sequence[Any]) -> list[list[Any]]:
    """Per output, per input: the block of the Jacobian, with the output's sizes in front."""
    blocks = []
    start = 0
    for y in outputs:
        count = y.numel()
        blocks.append(
            [j.narrow(0, start, count).reshape(*y.shape, *tuple(j.shape)[1:]) for j in columns]
        )
        start += count
    return blocks


def _cut_columns(rows: Any, inputs: Sequence[Any]) -> list[Any]:
    """Per input: the block of one output's Jacobian, with the input's sizes behind."""
    parts, start = [], 0
    for x in inputs:
        block = rows.narrow(0, start, x.numel()).movedim(0, -1)
        parts.append(block.reshape(*tuple(rows.shape)[1:], *x.shape))
        start += x.numel()
    return parts


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Return the function that gives the Jacobian of `func`, by forward mode.

    Args:
        func: takes tensors, returns tensors.
        argnums: positions of the arguments to derive by.
        has_aux: whether it returns (output, auxiliary); the result is then (Jacobian, auxiliary).
        randomness: see `vmap`.

    Returns:
        A function whose results have the sizes of the output, then those of the argument.
    """

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _argnums("jacfwd", argnums, len(args))
        primals = tuple(args[i] for i in chosen)
        inputs, in_spec = tree_flatten(primals)
        aux: list[Any] = []

        def moved(*tangents: Any) -> Any:
            tangent_tree = tree_unflatten(list(tangents), in_spec)
            results = jvp(
                of_chosen(func, chosen, args, kwargs), primals, tangent_tree, has_aux=has_aux
            )
            aux[:] = results[2:]
            return results[1]

        columns = vmap(moved, randomness=randomness)(*_basis(inputs))
        flat, out_spec = tree_flatten(columns)
        blocks = (_cut_columns(j, inputs) for j in flat)
        results = [_first(argnums, tree_unflatten(block, in_spec)) for block in blocks]
        result = tree_unflatten(results, out_spec)
        return (result, _unbatched(aux[0])) if has_aux else result

    return jacobian


def _unbatched(tree: Any) -> Any:
    """Auxiliary results, which are the same for every direction."""
    flat, spec = tree_flatten(tree)
    return tree_unflatten([_sample(x) for x in flat], spec)


def _sample(x: Any) -> Any:
    from flambeau.autograd.transforms.wrappers import Wrapper

    if isinstance(x, Wrapper) and not x.level.open and x.level.extent is not None:
        return _sample(x.value[0])
    return x


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Return the function that gives the second derivatives of `func`: forward over reverse.

    Example:
        >>> torch.func.hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


@boundaries.immediate
def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return func(*primals) and its derivative there, as a linear function of tangents.

    `func` runs once: the derivative is the transpose of what its backward computes.
    """
    recording = Recording("linearize", func, primals, range(len(primals)), False)

    @boundaries.immediate
    def derivative(*tangents: Any) -> Any:
        flat, spec = tree_flatten(tuple(tangents))
        if spec != recording.spec:
            raise RuntimeError(
                f"[linearize] tangents have structure {spec}, the primals {recording.spec}\n"
                "hint: one tangent per primal"
            )
        for x, t in zip(recording.flat, flat, strict=True):
            if tuple(x.shape) != tuple(t.shape):
                raise RuntimeError(
                    f"[linearize] a tangent has sizes {list(t.shape)}, its primal {list(x.shape)}\n"
                    "hint: give tangents the sizes of the primals"
                )
        return tree_unflatten(transposed(recording, flat), recording.out_spec)

    return recording.released(recording.result), derivative


def transposed(recording: Recording, tangents: Sequence[Any]) -> list[Any]:
    """Tangents of outputs: the derivative of a vector-Jacobian product by its vector."""
    outputs = recording.outputs
    create = recording.others(outputs) or (
        recording.outer and any(x.requires_grad for x in tangents)
    )
    with enable_grad():
        seeds = [variable(y.new_zeros(y.shape), False) for y in outputs]
        grads = pull_back(outputs, recording.variables, seeds, True)
    pairs = [(g, t) for g, t in zip(grads, tangents, strict=True) if g is not None]
    tangents_of_outputs = pull_back([g for g, _ in pairs], seeds, [t for _, t in pairs], create)
    leaves = recording.leaves | {id(inside(x)) for x in seeds}
    return [
        y.new_zeros(y.shape) if t is None else released(t, leaves) if create else _detached(t)
        for t, y in zip(tangents_of_outputs, outputs, strict=True)
    ]
