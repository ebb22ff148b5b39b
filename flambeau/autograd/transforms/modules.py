"""Modules and transformations: ensembles, functions without effects, batch norm without state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.autograd.transforms.vmap import _operator
from flambeau.ir.lock import late


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of several models, stacked by name.

    Args:
        models: of one class, in one mode; parameters of the same sizes.

    Returns:
        Two dictionaries for `functional_call` under `vmap`. The stacked parameters are leaves.

    Raises:
        RuntimeError: there is none, or they do not go together.
    """
    if not models:
        raise RuntimeError(
            "stack_module_state: Expected at least one model, got 0.\nhint: give a list of modules"
        )
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode.\n"
            "hint: call eval() or train() on all of them"
        )
    first = type(models[0])
    if not all(type(m) is first for m in models):
        raise RuntimeError(
            "stack_module_state: Expected all models to be of the same class.\n"
            "hint: stack the models of each class"
        )
    all_params = [dict(m.named_parameters()) for m in models]
    params = {name: _stacked(name, [p[name] for p in all_params]) for name in all_params[0]}
    all_buffers = [dict(m.named_buffers()) for m in models]
    buffers = {name: _operator("stack")([b[name] for b in all_buffers]) for name in all_buffers[0]}
    return params, buffers


def _stacked(name: str, tensors: Sequence[Any]) -> Any:
    """A leaf of all tensors."""
    requirements = {bool(t.requires_grad) for t in tensors}
    if len(requirements) != 1:
        raise RuntimeError(
            f"Expected {name} from each model to have the same .requires_grad\n"
            "hint: freeze the same parameters in all models"
        )
    stacked = _operator("stack")(list(tensors)).detach()
    return stacked.requires_grad_() if requirements.pop() else stacked


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function without writes in place, of the same results and effects on its arguments.

    A recorder inside of it, `make_fx` or a dispatch mode, sees no operator that writes: each
    computes a new tensor, and arguments that the function writes get their values by `copy_` at the
    end. Where nothing records, the function runs as it is.

    Args:
        func: any function of tensors.
        remove: "mutations", or "mutations_and_views": views are copies, too (`view_copy`).

    Raises:
        RuntimeError: `remove` is something else, or a tensor is written that is no argument.
        NotImplementedError: an argument is written whose memory another one shares, or an operator
            that writes has no form without.

    Example:
        >>> from flambeau.fx.experimental.proxy_tensor import make_fx
        >>> def f(x):
        ...     x[0].mul_(2)
        ...     return x + 1
        >>> graph = make_fx(torch.func.functionalize(f))(torch.ones(2, 2)).graph
        >>> [node.name for node in graph.nodes if node.op == "call_function"]
        ['select', 'mul', 'select_scatter', 'select_1', 'add', 'copy_']
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for `remove`. Valid "
            f"options are:\n     remove='mutations': removes all inplace and out= operators.\n"
            "     remove='mutations_and_views': removes all aliasing operators too, replacing them "
            f"with non-aliasing variants.\nhint: got {remove!r}"
        )
    copies = remove == "mutations_and_views"
    functional: Callable[..., Any] = late("flambeau._subclasses.functional_tensor").functionalized(
        func, copies
    )
    return functional


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Make every batch norm of a model use the statistics of its batch; returns the model.

    Under `vmap` running statistics, which all samples share, cannot be updated.
    """
    for module in root.modules():
        if type(module).__name__.endswith("BatchNorm") or hasattr(module, "track_running_stats"):
            if getattr(module, "running_mean", None) is not None:
                module.running_mean = None
                module.running_var = None
                module.num_batches_tracked = None
            module.track_running_stats = False
    return root
