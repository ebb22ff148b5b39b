"""`torch.return_types`: the types of results with named fields, under PyTorch's names.

An operator's schema names the fields of its results; the type is made when somebody needs it, here
or at the first call. `linalg_svd` belongs to `torch.linalg.svd`, `svd` to `torch.svd`. A call with
`out=` returns the same type, so `svd_out` is another name of `svd`.

Example:
    >>> found = torch.max(torch.tensor([[1, 5], [4, 2]]), dim=1)
    >>> isinstance(found, torch.return_types.max)
    True
    >>> torch.return_types.max((3, 4)).indices
    4
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from flambeau.driver.dispatch import struct_sequence_of
from flambeau.language.definition import REGISTRY, Overload
from flambeau.ops.reduction.histograms import points_result
from flambeau.utils._pytree import register_pytree_node

__all__ = ["all_return_types", "pytree_register_structseq"]  # noqa: F822 - made on demand

_PREFIX, _OUT = "linalg_", "_out"


def _named(key: str) -> Overload | None:
    """The first overload of an operator whose results have names."""
    overloads = REGISTRY[key].overloads if key in REGISTRY else ()
    return next((o for o in overloads if o.schema.returns_kind == "named"), None)


def _overload(name: str) -> Overload | None:
    """Returns the overload whose return type has a name."""
    operator = name.removesuffix(_OUT)
    if not operator.startswith(_PREFIX):
        named = _named(operator)
    else:
        operator = operator.removeprefix(_PREFIX)
        shared = _named(operator)  # one definition for `torch.slogdet` and `torch.linalg.slogdet`
        if shared is not None and "linalg" not in shared.options.where:
            shared = None
        named = _named(f"linalg.{operator}") or shared
    if named is not None and name.endswith(_OUT) and not named.options.out:
        return None
    return named


def _names() -> Iterator[str]:
    yield "histogramdd"
    for key in REGISTRY:
        overload = _named(key)
        if overload is None or key.startswith("private."):  # a part of other operators
            continue
        names = [key.replace("linalg.", _PREFIX)]
        if not key.startswith("linalg.") and "linalg" in overload.options.where:
            names.append(_PREFIX + key)
        for name in names:
            yield name
            if overload.options.out:
                yield name + _OUT


@cache
def _all() -> list[Any]:
    kinds = {name: __getattr__(name) for name in sorted(_names())}
    return list(dict.fromkeys(kinds.values()))


def __getattr__(name: str) -> Any:
    if name == "all_return_types":
        return _all()
    if name == "histogramdd":
        return points_result()
    overload = None if name.startswith("_") else _overload(name)
    if overload is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kind = globals()[name] = struct_sequence_of(overload)
    return kind


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_names()})


def pytree_register_structseq(cls: type) -> None:
    """Makes a type of this kind a container of `torch.utils._pytree`; those here are already.

    Args:
        cls: a type that is called with a sequence of its fields, such as `time.struct_time`.
    """
    register_pytree_node(cls, lambda value: (list(value), None), lambda items, _: cls(items))
