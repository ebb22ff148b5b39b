"""The op table: every sampled signature of every operator, and how to call it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import flambeau
from flambeau.language.definition import REGISTRY, OpDefinition, Overload
from flambeau.language.samples import Sample


@dataclass(frozen=True)
class Entry:
    """An operator with samples.

    Attributes:
        key: its name in the registry.
        definition: the operator.
        overloads: those of its signatures that bring samples of their own.
    """

    key: str
    definition: OpDefinition
    overloads: tuple[Overload, ...]

    @property
    def function(self) -> Any:
        """What users call."""
        return self.definition.native

    def samples(self, count: int | None = None) -> Iterator[Sample]:
        """The samples of all signatures, at most `count` of each."""
        for overload in self.overloads:
            yield from islice(overload.options.samples(), count)

    @property
    def random(self) -> bool:
        """Whether the results depend on a generator."""
        return any(a.kind == "generator?" for o in self.definition.overloads
                   for a in o.schema.arguments) or self.key in DRAWING  # fmt: skip

    @property
    def mutating(self) -> bool:
        """Whether a call changes one of its arguments."""
        return any(a.mutated for o in self.definition.overloads for a in o.schema.arguments)


# Operators that draw random numbers without an argument for the generator.
DRAWING = frozenset(
    "nn.functional.dropout private._dropout private._feature_dropout private._alpha_dropout "
    "native_dropout "
    "nn.functional.dropout1d nn.functional.dropout2d nn.functional.dropout3d alpha_dropout "
    "dropout dropout_ feature_dropout feature_dropout_ alpha_dropout_ feature_alpha_dropout_ "
    "feature_alpha_dropout rand_like randn_like randint_like _standard_gamma "
    "nn.functional.feature_alpha_dropout nn.functional.alpha_dropout "
    "private._attention_with_sums nn.functional.scaled_dot_product_attention".split()
)
# Results are storage that nobody wrote.
UNINITIALISED = frozenset("empty empty_like empty_strided new_empty new_empty_strided".split())


def _own_samples(definition: OpDefinition) -> tuple[Overload, ...]:
    """Signatures with samples; those that only inherited the first one's are left out."""
    seen: set[int] = set()
    found = []
    for overload in definition.overloads:
        make = overload.options.samples
        if make is not None and id(make) not in seen:
            seen.add(id(make))
            found.append(overload)
    return tuple(found)


TABLE = {
    key: Entry(key, definition, _own_samples(definition))
    for key, definition in REGISTRY.items()
    if _own_samples(definition)
}


def public_name(key: str) -> str | None:
    """The dotted name below the package, or None for operators that are not public."""
    definition = REGISTRY[key]
    for home in definition.options.where:
        if home == "torch":
            return definition.name
        if home != "method" and home != "private":
            return f"{home}.{definition.name}"
    return f"Tensor.{definition.name}" if "method" in definition.options.where else None


def resolve(library: Any, dotted: str) -> Any:
    """The object of this name in a library, or None."""
    found = library
    for part in dotted.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def seed() -> None:
    """Random operators start from the same state in every run of a check."""
    flambeau.manual_seed(20261120)
