"""`torch._functorch.vmap`: the steps of `vmap`, which packages replace for their containers.

`vmap` runs its own steps unless one of the three below has been replaced; then it runs these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import Tensor, vmap
from flambeau._C._functorch import _add_batch_dim, _remove_batch_dim, is_batchedtensor
from flambeau.autograd.transforms.vmap import (
    _extent,
    _flat_inputs,
    _flat_out_dims,
    _name,
    broadcast_prefix,
)
from flambeau.autograd.transforms.wrappers import entered
from flambeau.runtime import missing as _missing
from flambeau.utils._pytree import (
    TreeSpec,
    _broadcast_to_and_flatten,
    tree_flatten,
    tree_map_,
    tree_unflatten,
)

__all__ = [
    "Tensor", "TreeSpec", "_add_batch_dim", "_broadcast_to_and_flatten", "_create_batched_inputs",
    "_get_name", "_maybe_remove_batch_dim", "_process_batched_inputs", "_remove_batch_dim",
    "_unwrap_batched", "_validate_and_get_batch_size", "broadcast_prefix", "in_dims_t",
    "is_batchedtensor", "out_dims_t", "tree_flatten", "tree_map_", "tree_unflatten", "vmap",
]  # fmt: skip

in_dims_t = int | tuple[Any, ...]
out_dims_t = int | tuple[int, ...]

_get_name = _name


def _validate_and_get_batch_size(dims: Sequence[int | None], flat: Sequence[Any]) -> int:
    """The number of samples of flat arguments."""
    return _extent(flat, dims)


def _process_batched_inputs(
    in_dims: Any, args: Any, func: Callable[..., Any]
) -> tuple[int, list[Any], list[Any], Any]:
    """Number of samples, dimensions, flat arguments and their structure."""
    flat, spec, dims = _flat_inputs(func, in_dims, args)
    return _extent(flat, dims), dims, flat, spec


def _create_batched_inputs(
    flat_in_dims: Sequence[int | None], flat_args: Sequence[Any], vmap_level: int, args_spec: Any
) -> Any:
    """The arguments of one sample."""
    samples = [
        x if dim is None else _add_batch_dim(x, dim, vmap_level)
        for dim, x in zip(flat_in_dims, flat_args, strict=True)
    ]
    return tree_unflatten(samples, args_spec)


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """All samples of one result.

    Raises:
        ValueError: a result per sample under `out_dim=None`, or a result that is no tensor.
    """
    if out_dim is None:
        if is_batchedtensor(batched_output):
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None\n"
                "hint: a result of out_dims=None must be the same for every sample"
            )
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type "
            f"{type(batched_output)}. Did you mean to set out_dims= to None for output?\n"
            "hint: return tensors"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _unwrap_batched(
    batched_outputs: Any,
    out_dims: Any,
    vmap_level: int,
    batch_size: int,
    func: Callable[..., Any],
) -> Any:
    """The results of all samples."""
    flat, spec = tree_flatten(batched_outputs)
    dims = _flat_out_dims(func, batched_outputs, out_dims)
    joined = [
        _maybe_remove_batch_dim(_name(func), x, vmap_level, batch_size, dim)
        for x, dim in zip(flat, dims, strict=True)
    ]
    return tree_unflatten(joined, spec)


_STEPS = ("_process_batched_inputs", "_create_batched_inputs", "_unwrap_batched")
_OWN = tuple(globals()[name] for name in _STEPS)


def are_replaced() -> bool:
    """Whether a package has put a function of its own in the place of a step."""
    return tuple(globals()[name] for name in _STEPS) != _OWN


def run(
    func: Callable[..., Any],
    in_dims: Any,
    out_dims: Any,
    randomness: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """One call of a mapped function by the steps of this module, as they are now."""
    extent, dims, flat, spec = _process_batched_inputs(in_dims, args, func)
    with entered(extent, randomness) as level:
        samples = _create_batched_inputs(dims, flat, level.depth, spec)
        result = func(*samples, **kwargs)
        return _unwrap_batched(result, out_dims, level.depth, extent, func)


globals()["__getattr__"] = _missing.getter(__name__)
