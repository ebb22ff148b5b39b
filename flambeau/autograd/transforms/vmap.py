"""`vmap`: a function of one sample becomes one of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd.transforms.wrappers import batched, entered, is_at
from flambeau.ir.lock import loaded
from flambeau.utils._pytree import tree_flatten, tree_map, tree_unflatten

InDims = Any
OutDims = Any

_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: InDims = 0,
    out_dims: OutDims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return `func` mapped over a dimension of its arguments.

    Args:
        func: takes one sample; returns tensors, or containers of tensors.
        in_dims: per argument the dimension that counts the samples; None: the same for every
            sample. A container gives dimensions for the parts of an argument.
        out_dims: where results have that dimension; None: a result is the same for every sample.
        randomness: "error" refuses random draws, "different" draws for every sample, "same" once.
        chunk_size: how many samples are computed at once; None: all of them.

    Raises:
        ValueError: dimensions do not fit the arguments or the results.
        RuntimeError: `func` reads a value of a sample (`item()`, a branch), or draws random
            numbers under "error".

    Example:
        >>> dot = torch.func.vmap(torch.dot)
        >>> dot(torch.ones(2, 3), torch.arange(6.0).reshape(2, 3))
        tensor([ 3., 12.])
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. "
            f"Got {randomness}\nhint: randomness='different' draws for every sample"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(
            f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})\n"
            "hint: give the number of samples that fit into memory"
        )

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        steps = loaded("flambeau._functorch.vmap")
        if steps is not None and steps.are_replaced():
            return steps.run(func, in_dims, out_dims, randomness, args, kwargs)
        flat, spec, dims = _flat_inputs(func, in_dims, args)
        extent = _extent(flat, dims)
        run = functools.partial(_run, func, spec, dims, out_dims, randomness, kwargs=kwargs)
        if chunk_size is None or chunk_size >= extent:
            return run(flat, extent)
        return _in_chunks(func, run, flat, dims, extent, chunk_size, out_dims, randomness)

    return mapped


def _name(func: Any) -> str:
    return getattr(func, "__name__", None) or repr(func)


# ------------------------------------------------------------------------------------ inputs


def _flat_inputs(func: Any, in_dims: Any, args: Sequence[Any]) -> tuple[list[Any], Any, list[Any]]:
    where = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    if not isinstance(in_dims, (int, tuple, dict)):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}.\nhint: one dimension per argument"
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
            "are trying to vmap over a function with no inputs. The latter is unsupported.\n"
            "hint: arguments by name are not mapped over"
        )
    flat, spec = tree_flatten(tuple(args))
    dims = broadcast_prefix(in_dims, tuple(args))
    if dims is None:
        raise ValueError(
            f"{where}: in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}.\n"
            "hint: one dimension per argument"
        )
    return flat, spec, [_checked(where, d, x) for d, x in zip(dims, flat, strict=True)]


def broadcast_prefix(prefix: Any, tree: Any) -> list[Any] | None:
    """A leaf of `prefix` for every leaf of `tree`; None where their structures differ."""
    if prefix is None or isinstance(prefix, int):
        return [prefix] * len(tree_flatten(tree)[0])
    if isinstance(prefix, (tuple, list)):
        if not isinstance(tree, (tuple, list)) or len(prefix) != len(tree):
            return None
        pairs: Iterable[tuple[Any, Any]] = zip(prefix, tree, strict=True)
    elif isinstance(prefix, dict):
        if not isinstance(tree, dict) or prefix.keys() != tree.keys():
            return None
        pairs = [(prefix[key], tree[key]) for key in tree]
    else:
        return [prefix] * len(tree_flatten(tree)[0])
    leaves: list[Any] = []
    for part, subtree in pairs:
        dims = broadcast_prefix(part, subtree)
        if dims is None:
            return None
        leaves += dims
    return leaves


def _checked(where: str, dim: Any, x: Any) -> int | None:
    """The dimension of one input, not negative."""
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{where}: Got in_dim={dim} for an input but in_dim must be either an integer "
            "dimension or None.\nhint: None: the same for every sample"
        )
    if not isinstance(x, _core.Tensor):
        raise ValueError(
            f"{where}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot "
            "vmap over non-Tensor arguments, please use None as the respective in_dim\n"
            "hint: None: the same for every sample"
        )
    if not -x.dim() <= dim < x.dim():
        raise ValueError(
            f"{where}: Got in_dim={dim} for some input, but that input is a Tensor of "
            f"dimensionality {x.dim()} so expected in_dim to satisfy -{x.dim()} <= in_dim < "
            f"{x.dim()}.\nhint: None: the same for every sample"
        )
    return dim % int(x.dim())


def _extent(flat: Sequence[Any], dims: Sequence[int | None]) -> int:
    sizes = [x.shape[d] for x, d in zip(flat, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            "vmap: Expected at least one Tensor to vmap over\n"
            "hint: some in_dim must be the dimension that counts the samples"
        )
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension\nhint: check in_dims"
        )
    return int(sizes[0])


# ------------------------------------------------------------------------------------ the call


def _run(
    func: Callable[..., Any],
    spec: Any,
    dims: Sequence[int | None],
    out_dims: Any,
    randomness: str,
    flat: Sequence[Any],
    extent: int,
    kwargs: dict[str, Any],
) -> Any:
    with entered(extent, randomness) as level:
        samples = [
            x if d is None else batched(level, x.movedim(d, 0) if d else x)
            for x, d in zip(flat, dims, strict=True)
        ]
        result = func(*tree_unflatten(samples, spec), **kwargs)
        return _outputs(func, result, out_dims, level)


def _outputs(func: Any, result: Any, out_dims: Any, level: Any) -> Any:
    flat, spec = tree_flatten(result)
    where = f"vmap({_name(func)}, ...)"
    dims = _flat_out_dims(func, result, out_dims)
    results = []
    for x, dim in zip(flat, dims, strict=True):
        if x is not None and not isinstance(x, _core.Tensor) and dim is not None:
            raise ValueError(
                f"{where}: `{_name(func)}` must only return Tensors, got type {type(x)}. Did you "
                "mean to set out_dims= to None for output?\nhint: return tensors"
            )
        results.append(_joined(where, x, dim, level))
    return tree_unflatten(results, spec)


def _flat_out_dims(func: Any, result: Any, out_dims: Any) -> list[Any]:
    single = isinstance(result, _core.Tensor)
    if single and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = broadcast_prefix(out_dims, result)
    if dims is None or any(d is not None and not isinstance(d, int) for d in dims):
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible "
            f"with the structure of `outputs`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but outputs has structure {tree_flatten(result)[1]}.\n"
            "hint: one dimension per result"
        )
    return dims


def _joined(where: str, x: Any, dim: int | None, level: Any) -> Any:
    """A result over all samples."""
    inside = is_at(x, level)
    if dim is None:
        if inside:
            raise ValueError(
                f"{where}: `f` can not return a BatchedTensor when out_dim is None\n"
                "hint: a result of out_dims=None must be the same for every sample"
            )
        return x
    if x is None:
        return x
    if not -x.dim() - 1 <= dim <= x.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.dim() - 1}, {x.dim()}], but "
            f"got {dim})\nhint: check out_dims"
        )
    batch = x.value if inside else x.expand(level.extent, *x.shape)
    return batch.movedim(0, dim) if dim else batch


def _in_chunks(
    func: Any,
    run: Callable[..., Any],
    flat: Sequence[Any],
    dims: Sequence[int | None],
    extent: int,
    size: int,
    out_dims: Any,
    randomness: str,
) -> Any:
    parts = []
    draws = _operator("get_rng_state")() if randomness == "same" else None
    for start in range(0, extent, size):
        if draws is not None:  # the same numbers for all samples, whatever their chunk
            _operator("set_rng_state")(draws)
        count = min(size, extent - start)
        chunk = [
            x if d is None else x.narrow(d, start, count) for x, d in zip(flat, dims, strict=True)
        ]
        parts.append(run(chunk, count))
    leaves, spec = tree_flatten(parts[0])
    places = _flat_out_dims(func, parts[0], out_dims)
    columns = zip(*(tree_flatten(part)[0] for part in parts), strict=True)
    cat = _operator("cat")
    joined = [
        column[0] if d is None or column[0] is None else cat(list(column), d)
        for column, d in zip(columns, places, strict=True)
    ]
    del leaves
    return tree_unflatten(joined, spec)


def _operator(name: str) -> Any:
    from flambeau.core.install import namespace

    return namespace("torch")[name]


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """A container with `function` applied to its tensors."""
    return tree_map(lambda x: function(x) if isinstance(x, _core.Tensor) else x, tree)
