"""`torch.ops.prims`: primitives as operators, which graphs hold and programs call.

Each is a definition that is made from the primitive's form when it is first used, so it has Plans,
gradients, batches and nodes in recorded graphs as every operator has. Some of PyTorch's primitives
are public operators here; those names are the public operators.
"""

from __future__ import annotations

from typing import Any

from flambeau.core import install
from flambeau.decompositions.primitive_forms import FORMS, FURTHER, Form
from flambeau.language.definition import REGISTRY, OpDefinition, Options, Overload
from flambeau.library.schemas import parse
from flambeau.ops import aten

Value = Any  # an argument or a result of an operator

__all__ = ["NAMES", "PUBLIC", "Packet", "PrimitiveOverload", "packet"]

# PyTorch's primitives that are operators here, by the operator's key in the registry.
PUBLIC = {
    **{name: name for name in (
        "as_strided", "as_strided_scatter", "clone", "fmax", "fmin", "frexp", "gcd", "hypot",
        "isfinite", "reciprocal", "conj_physical",
        "view_as_real", "view_as_complex", "conj",
    )},
    **{name: f"special.{name}" for name in ("ndtri", "erfcx", "spherical_bessel_j0")},
    "view_of": "alias", "neg_view": "_neg_view", "bessel_i0": "i0", "bessel_i0e": "special.i0e",
    "bessel_i1": "special.i1", "bessel_i1e": "special.i1e",
    "bessel_j0": "special.bessel_j0", "bessel_j1": "special.bessel_j1",
}  # fmt: skip

_BY_NAME: dict[str, Form] = {form.name: form for form in FORMS.values()} | FURTHER


class Packet(aten.Packet):
    """A primitive: its only overload is `default`."""

    namespace = "prims"

    def _signatures(self) -> dict[str, tuple[str, ...]]:
        return {"default": ()}

    def _overload(self, name: str) -> aten.Overload:
        if name != "default":
            raise AttributeError(f"prims.{self.__name__} has no overload {name!r}")
        return PrimitiveOverload(self, name)

    def __reduce__(self) -> tuple[Value, ...]:
        return packet, (self.__name__,)


class PrimitiveOverload(aten.Overload):
    """A primitive as a graph's node calls it."""

    namespace = "prims"
    __module__ = "flambeau.ops.prims"

    @property
    def _schema(self) -> Value:
        """The signature: `name`, `overload_name`, `arguments`, `returns`."""
        form = _BY_NAME.get(self.overloadpacket.__name__)
        if form is None:
            return super()._schema
        text = aten.upstream_types(form.text)
        if "Tensor!" in text:  # the only result is the argument that is written
            text = text.replace("Tensor!", "Tensor(a!)").replace("-> Tensor", "-> Tensor(a!)")
        return parse(f"prims::{text}")


_packets: dict[str, Packet] = {}
NAMES: tuple[str, ...] = (*_BY_NAME, *(name for name in PUBLIC if PUBLIC[name] in REGISTRY))


def packet(name: str) -> Packet:
    """The primitive of a name.

    Args:
        name: in `torch.ops.prims`.

    Raises:
        AttributeError: there is none.
    """
    cached = _packets.get(name)
    if cached is not None:
        return cached
    if name in _BY_NAME:
        function = _operator(_BY_NAME[name])
    elif name in NAMES:
        function = REGISTRY[PUBLIC[name]].native
    else:
        raise AttributeError(f"'_OpNamespace' 'prims' object has no attribute '{name}'")
    return _packets.setdefault(name, Packet(name, function))


def _operator(form: Form) -> Value:
    """The native op of a form."""
    definition = OpDefinition(form.name, f"The primitive `{form.text}`.")
    stated: dict[str, Value] = {"where": ("ops.prims",), "view": form.view}
    if form.pointwise:
        stated["layout"] = "follow"
    overload = Overload(form.name, form.text, _body(form), Options(stated))
    definition.overloads.append(overload)
    definition.native = install._native_op(definition, form.name, "functional")
    install.DEFINITIONS[id(definition.native)] = definition
    return definition.native


def _body(form: Form) -> Value:
    def primitive(*values: Value) -> Value:
        return form.build(*values)

    return primitive


class Namespace:
    """The primitives by name, as `torch.ops.prims`."""

    def __getattr__(self, name: str) -> Packet:
        if name.startswith("__"):
            raise AttributeError(name)
        return packet(name)

    def __dir__(self) -> list[str]:
        return sorted(NAMES)

    def __repr__(self) -> str:
        return "<module 'torch.ops.prims'>"


namespace = Namespace()
