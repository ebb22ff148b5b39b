"""Calls a module with other tensors in place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flambeau._core import Tensor
from flambeau.nn.messages import problem

__all__ = ["functional_call"]


_ABSENT = object()  # what an attribute had before that only a call has


def _slot(module: Any, path: str) -> tuple[dict[str, Any], str]:
    """The dictionary that holds a parameter, buffer or other attribute, and its key there.

    Raises:
        KeyError: an empty name.
        TypeError: an attribute that is no tensor.
    """
    parent, _, name = path.rpartition(".")
    owner = module.get_submodule(parent)
    if not name:
        text = f"tensor name can't be empty string {path!r}"
        raise KeyError(problem("functional_call", text, "see named_parameters()"))
    for table in (owner._parameters, owner._buffers):
        if name in table:
            return table, name
    attribute = getattr(owner, name, None)
    if attribute is not None and not isinstance(attribute, Tensor):
        text = f"attribute `{path}`: {attribute} is not an instance of torch.Tensor"
        raise TypeError(problem("functional_call", text, "see named_parameters()"))
    return vars(owner), name


def _tied(module: Any) -> dict[str, set[str]]:
    """Names that share a tensor, by name."""
    names: dict[int, set[str]] = {}
    paths = [*module.named_parameters(remove_duplicate=False)]
    paths += module.named_buffers(remove_duplicate=False)
    for path, tensor in paths:
        names.setdefault(id(tensor), set()).add(path)
    return {path: group for group in names.values() for path in group}


def _with_ties(module: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tied names get the tensor that one of them is given."""
    groups = _tied(module)
    result = dict(tensors)
    for path, tensor in tensors.items():
        for other in groups.get(path, ()):
            if other in tensors and tensors[other] is not tensor:
                text = f"functional_call got multiple values for keys {sorted(groups[path])}"
                text += ", which are tied. Consider using tie_weights=False"
                raise ValueError(problem("functional_call", text, "give one of them"))
            result[other] = tensor
    return result


@contextmanager
def _replaced(module: Any, tensors: Mapping[str, Any], tie_weights: bool) -> Iterator[None]:
    """The module with other tensors, for the time of a `with` block."""
    given = _with_ties(module, tensors) if tie_weights else dict(tensors)
    before = []
    try:
        for path, tensor in given.items():
            if tensor is not None and not isinstance(tensor, Tensor):
                text = f"{path} is not a tensor: {type(tensor).__name__}"
                raise TypeError(problem("functional_call", text, "give tensors"))
            table, name = _slot(module, path)
            before.append((table, name, table.get(name, _ABSENT)))
            table[name] = tensor
        yield
    finally:
        for table, name, tensor in reversed(before):
            if tensor is _ABSENT:
                del table[name]
            else:
                table[name] = tensor


def functional_call(
    module: Any,
    parameters_and_buffers: Mapping[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module` with these tensors instead of its own.

    Args:
        parameters_and_buffers: tensors by dotted name.
        args: a tuple of arguments, or one argument.
        tie_weights: names that share a tensor share the given one.
        strict: every parameter and buffer must be given, and nothing else.

    Raises:
        RuntimeError: names are missing or unexpected (with `strict`).

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> w = {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}
        >>> nn.utils.stateless.functional_call(layer, w, torch.ones(1, 1))
        tensor([[1.]])
    """
    tensors = dict(parameters_and_buffers)
    if strict:
        _check_names(module, tensors, tie_weights)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _replaced(module, tensors, tie_weights):
        return module(*args, **(kwargs or {}))


def _check_names(module: Any, tensors: Mapping[str, Any], tie_weights: bool) -> None:
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    given = set(_with_ties(module, tensors)) if tie_weights else set(tensors)
    missing, unexpected = sorted(known - given), sorted(set(tensors) - known)
    parts = []
    if unexpected:
        parts.append("Unexpected key(s): " + ", ".join(map(repr, unexpected)) + ".")
    if missing:
        parts.append("Missing key(s): " + ", ".join(map(repr, missing)) + ".")
    if parts:
        text = f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(parts)
        raise RuntimeError(problem("functional_call", text, "strict=False allows this"))


def _reparametrize_module(
    module: Any, parameters_and_buffers: Mapping[str, Any], *, tie_weights: bool = False,
    strict: bool = False, stack_weights: bool = False,
) -> Any:  # fmt: skip
    """The module with other tensors, for the time of a `with` block, under PyTorch's name."""
    if strict:
        _check_names(module, parameters_and_buffers, tie_weights)
    return _replaced(module, parameters_and_buffers, tie_weights)
