"""`functional_call` of `torch.func`: it adds up several mappings of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.utils import stateless


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module` with these tensors instead of its own.

    Args:
        module: any module.
        parameter_and_buffer_dicts: tensors by dotted name; a mapping, or several that add up.
        args: a tuple of arguments, or one argument.
        kwargs: keyword arguments.
        tie_weights: names that share a tensor in the module share the one passed for either.
        strict: every parameter and buffer must be passed, and nothing else.

    Raises:
        RuntimeError: names are missing or unexpected (with `strict`).
        ValueError: a name is in several of the mappings, or there are no mappings.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> weights = [{"weight": torch.ones(1, 1)}, {"bias": torch.zeros(1)}]
        >>> torch.func.functional_call(layer, weights, torch.ones(1, 1))
        tensor([[1.]])
    """
    dictionaries = parameter_and_buffer_dicts
    tensors: dict[str, Any] = {}
    if not isinstance(dictionaries, (Mapping, Sequence)):
        text = (
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
        )
        raise ValueError(problem("functional_call", f"{text}{type(dictionaries)}", "a dict"))
    for mapping in (dictionaries,) if isinstance(dictionaries, Mapping) else dictionaries:
        repeated = tensors.keys() & mapping.keys()
        if repeated:
            text = f"{sorted(repeated)} appeared in multiple dictionaries; behavior of "
            text += "functional call is ambiguous"
            raise ValueError(problem("functional_call", text, "give each name once"))
        tensors.update(mapping)
    return stateless.functional_call(
        module, tensors, args, kwargs, tie_weights=tie_weights, strict=strict
    )
