"""Operators that users define: what `torch.ops.<namespace>.<name>` finds, and how a call runs.

A call passes the layers that an operator of the package passes, in the same order: subclasses and
modes (called by the native core), transformations, gradients, then the kernel of the tensors'
device - or, for tensors without data, the function that infers the results' sizes; or, in a
recorded region, one opaque node of its program (`opaque.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_data
from flambeau.core.install import hand_over, stands_in
from flambeau.ir.lock import importing, late, loaded
from flambeau.language.schema import ArgumentSpec
from flambeau.library.schemas import NATIVE_KINDS, FunctionSchema
from flambeau.utils._pytree import tree_leaves

Tensor = Any
EXPLICIT, IMPLICIT = "COMPOSITEEXPLICITAUTOGRAD", "COMPOSITEIMPLICITAUTOGRAD"
_NUMBERS = {
    "int": (int,),
    "SymInt": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Scalar": (int, float, complex),
    "str": (str,),
    "ScalarType": (_core.dtype, int),
    "Device": (_core.device, str),
}


class OpOverload:
    """One signature of an operator; called, it runs.

    Attributes:
        namespace: "mylib".
        kernels: by dispatch key ("CPU", "CompositeExplicitAutograd" ...).
        fake: infers the results' sizes, where it is registered.
        backward, setup_context: the derivative's formula, where it is registered.
        vmap_rule: how batches are computed, where it is registered.
        custom: the `CustomOpDef` it belongs to, if any.
    """

    def __init__(self, schema: FunctionSchema, tags: Sequence[Any] = ()) -> None:
        self._schema = schema
        self._name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        self._overloadname = schema.overload_name or "default"
        self.namespace, _, self._opname = schema.name.partition("::")
        self.__name__ = f"{self._opname}.{self._overloadname}"
        self.__qualname__ = self._name
        self.__module__ = f"flambeau.ops.{self.namespace}"
        self.tags = list(tags)
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.fake: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.vmap_rule: Callable[..., Any] | None = None
        self.disabled: set[str] = set()
        self.custom: Any = None
        self.function: Any = None  # the autograd.Function made of it
        self.native = _core.Op(self.name(), self._overloads)

    # -------------------------------------------------------------------------------- names

    def name(self) -> str:
        """ "namespace::name", or "namespace::name.overload"."""
        return self._name

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"
        )

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __hash__(self) -> int:
        return hash(self._name)

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """All overloads of its name."""
        return REGISTRY[self._schema.name]

    @property
    def op(self) -> OpOverload:
        """The operator itself, for code that looks for a function behind it."""
        return self

    @property
    def is_view(self) -> bool:
        """Whether results share memory with arguments."""
        return self._schema.is_view

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether a kernel was registered under this key."""
        return str(key).rpartition(".")[2].upper() in self.kernels

    # -------------------------------------------------------------------------------- calls

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator.

        Raises:
            RuntimeError: the arguments do not fit the schema.
            NotImplementedError: there is no kernel for the tensors' device.
        """
        if stands_in(args):
            return hand_over(self, args, kwargs)
        return self.native(*self.bind(args, kwargs))

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Arguments in the schema's order, defaults filled in.

        Raises:
            RuntimeError: one is missing, unknown, too many or of another type.
        """
        schema = self._schema
        names = [a.name for a in schema.arguments]
        open_count = sum(not a.kwarg_only for a in schema.arguments)
        if len(args) > open_count:
            raise RuntimeError(
                f"{schema.name}() expected at most {open_count} argument(s) but received "
                f"{len(args)} argument(s). Declaration: {schema}"
            )
        bound = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise RuntimeError(
                    f"Unknown keyword argument '{name}' for operator '{schema.name}'. "
                    f"Schema: {schema}"
                )
            if name in bound:
                raise RuntimeError(
                    f"{schema.name}() got multiple values for argument '{name}'. "
                    f"Declaration: {schema}"
                )
            bound[name] = value
        values = []
        for place, argument in enumerate(schema.arguments):
            if argument.name in bound:
                value = bound[argument.name]
                self._check(place, argument, value)
            elif argument.has_default_value():
                value = argument.default_value
            else:
                raise RuntimeError(
                    f"{schema.name}() is missing value for argument '{argument.name}'. "
                    f"Declaration: {schema}"
                )
            values.append(value)
        return values

    def _check(self, place: int, argument: Any, value: Any) -> None:
        kind = argument.type
        if _fits(kind, value):
            return
        type_name = type(value).__name__
        raise RuntimeError(
            f"{self._schema.name}() Expected a value of type '{kind}' for argument "
            f"'{argument.name}' but instead found type '{type_name}'.\nPosition: {place}\n"
            f"Value: {value!r}\nDeclaration: {self._schema}"
        )

    def _overloads(self) -> list[tuple[Any, ...]]:
        arguments = tuple(
            ArgumentSpec(a.name, NATIVE_KINDS.get(a.type.replace("(", ""), "object"))
            for a in self._schema.arguments
        )
        return [(arguments, self.run, ("python",))]

    def run(self, *values: Any) -> Any:
        """The call below subclasses and modes: transformations, gradients, then the kernel."""
        values = tuple([list(v) if type(v) is tuple else v for v in values])
        tensors = flat_tensors(values)
        if _wrapped(tensors):
            return self._run_wrapped(values, tensors)
        composite = self.kernels.get(IMPLICIT)
        if composite is not None and not self._is_meta(tensors):
            return invoke(composite, self._schema, values)
        tracked = _core.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if tracked and "AUTOGRAD" in self.kernels:
            return invoke(self.kernels["AUTOGRAD"], self._schema, values)
        if tracked and (self.backward is not None or self.custom is not None):
            if self._schema.is_functional:
                return self._differentiable(values)
            with _core.no_grad():
                return self.compute(values)
        return self.compute(values)

    def _run_wrapped(self, values: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
        with importing:
            from flambeau.autograd.transforms.wrappers import highest

        level = highest(tensors)
        assert level is not None
        composite = self.kernels.get(IMPLICIT)
        if composite is not None and (level.extent is None or self.vmap_rule is None):
            return invoke(composite, self._schema, values)
        if level.extent is None and self.backward is None:
            raise RuntimeError(
                f"[{self}] Trying to use forward AD with {self} that does not support it because "
                "no autograd formula was registered.\n"
                "hint: register_autograd: its transpose is the forward rule"
            )
        if self._schema.is_mutable and self.vmap_rule is None:
            raise RuntimeError(
                f"Batching rule not implemented for {self._schema.name}; the fallback path doesn't "
                "work on out= or view ops.\nhint: register_vmap"
            )
        return self._differentiable(values)

    def _differentiable(self, values: Sequence[Any]) -> Any:
        with importing:
            from flambeau.library.autograd import apply

        return apply(self, values)

    # -------------------------------------------------------------------------------- kernels

    def compute(self, values: Sequence[Any]) -> Any:
        """The results, by the kernel of the tensors' device.

        Raises:
            NotImplementedError: there is none.
        """
        tensors = flat_tensors(values)
        if self._is_meta(tensors):
            return self._compute_fake(values)
        if _core.is_recording() and self.fake is not None and tensors:
            with importing:
                from flambeau.library import opaque

            record = opaque.record(self, values)
            if record is not None:
                return record.value
        return self.compute_now(values)

    def compute_now(self, values: Sequence[Any]) -> Any:
        """The results of the kernel of the tensors' device, which runs now."""
        tensors = flat_tensors(values)
        device = tensors[0].device.type if tensors else str(_core.get_default_device())
        result = invoke(self.kernel(device.partition(":")[0]), self._schema, values)
        if self.custom is not None:
            self._check_aliases(tensors, result)
        for argument, value in zip(self._schema.arguments, values, strict=True):
            if argument.is_write and value is not None:
                for written in value if isinstance(value, list) else [value]:
                    written._bump_version()
        return result

    def kernel(self, device: str) -> Callable[..., Any]:
        """The kernel for a device.

        Raises:
            NotImplementedError: there is none.
        """
        own = self.kernels.get(device.upper())
        if own is not None and device not in self.disabled:
            return own
        kernel = self.kernels.get(EXPLICIT) or self.kernels.get(IMPLICIT)
        if kernel is None:
            keys = ", ".join(sorted(self.kernels)) or "none"
            raise NotImplementedError(
                f"[{self._schema.name}] Could not run '{self._name}' with arguments from the "
                f"'{device.upper()}' backend. '{self._name}' is only available for these backends: "
                f"[{keys}]\nhint: register_kernel, or impl, for {device!r}"
            )
        return kernel

    def _is_meta(self, tensors: Sequence[Tensor]) -> bool:
        if _in_fake_mode(tensors):
            return True
        if tensors:
            return any(not has_data(t) for t in tensors)
        return str(_core.get_default_device()) == "meta"

    def shape_function(self) -> Callable[..., Any]:
        """Returns the function that computes the results' sizes.

        Raises:
            RuntimeError, NotImplementedError: nothing was registered.
        """
        function = self.fake or self.kernels.get("META") or self.kernels.get(IMPLICIT)
        if function is None and self.custom is None:
            function = self.kernels.get(EXPLICIT)
        if function is not None:
            return function
        if self.custom is not None:
            raise RuntimeError(
                f"There was no fake impl registered for {self.custom!r}. This is necessary for "
                "torch.compile/export/fx tracing to work. Please use "
                f"`{self.custom.name}.register_fake` to add an fake impl."
            )
        raise NotImplementedError(
            f"{self._schema.name}: attempted to run this operator with Meta tensors, but there was "
            "no fake impl or Meta kernel registered.\nhint: torch.library.register_fake"
        )

    def _compute_fake(self, values: Sequence[Any]) -> Any:
        from flambeau.library.fake import FakeModeContext, MetaContext, entered

        function = self.shape_function()
        kind = FakeModeContext if _in_fake_mode(flat_tensors(values)) else MetaContext
        with entered(kind(self)):
            return invoke(function, self._schema, values)

    def _check_aliases(self, tensors: Sequence[Tensor], result: Any) -> None:
        """Results are new memory: programs that hold the operator rely on it."""
        results = flat_tensors(result if isinstance(result, (tuple, list)) else [result])
        if _core.is_recording():
            repeated = len({id(x) for x in (*tensors, *results)}) < len(
                {id(x) for x in tensors}
            ) + len(results)
        else:
            seen = {_memory(t) for t in tensors if t.numel()}
            repeated = False
            for x in results:
                if x.numel() and has_data(x):
                    place = _memory(x)
                    repeated = repeated or place in seen
                    seen.add(place)
        if repeated:
            raise RuntimeError(
                f"{self._opname}: The output of this custom operator (1) must not also be an input "
                "to this custom operator and (2) may not alias any inputs to this custom operator "
                "or other returns. The most common way to trigger this error is if we have y = "
                "custom_op(x) and y and x are the same Tensor. Please instead return a clone of "
                "the offending output tensor(s) (e.g. return x.clone()) or refactor the custom "
                "operator to not return y."
            )


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def invoke(function: Callable[..., Any], schema: FunctionSchema, values: Sequence[Any]) -> Any:
    """Calls a function that takes a schema's arguments, those behind `*` by name."""
    named = {a.name: v for a, v in zip(schema.arguments, values, strict=True) if a.kwarg_only}
    return function(*values[: len(values) - len(named)], **named)


def flat_tensors(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, those of lists included."""
    return [leaf for leaf in tree_leaves(list(values)) if isinstance(leaf, _core.Tensor)]


def _wrapped(tensors: Sequence[Tensor]) -> bool:
    wrappers = loaded("flambeau.autograd.transforms.wrappers")
    return wrappers is not None and any(isinstance(t, wrappers.Wrapper) for t in tensors)


def _in_fake_mode(tensors: Sequence[Tensor]) -> bool:
    """Whether a call is about tensors of `FakeTensorMode`, which have no data."""
    fakes = loaded("flambeau._subclasses.fake_tensor")
    if fakes is None:
        return False
    if tensors:
        return any(isinstance(t, fakes.FakeTensor) for t in tensors)
    return fakes.fake_calls.active_mode() is not None


def _fits(kind: str, value: Any) -> bool:
    """Whether a value may be given for an argument of this kind."""
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("]"):
        inner = kind.rpartition("[")[0]
        if isinstance(value, (list, tuple)):
            return all(_fits(inner, item) for item in value)
        return not kind.endswith("[]") and _fits(inner, value)  # `int[2]` takes a number
    if kind == "Tensor":
        return isinstance(value, _core.Tensor)
    if kind in ("int", "SymInt") and isinstance(value, float):
        return False
    return isinstance(value, _NUMBERS.get(kind, object))


# ------------------------------------------------------------------------------------ look-up


class OpOverloadPacket:
    """All signatures of one name; a call takes the first that fits.

    Attributes:
        variants: overloads by name, "default" for the one without.
    """

    def __init__(self, name: str) -> None:
        self._qualified_op_name = name
        self.namespace, _, self.__name__ = name.partition("::")
        self.__module__ = f"flambeau.ops.{self.namespace}"
        self.variants: dict[str, OpOverload] = {}

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def overloads(self) -> list[str]:
        """Names of the signatures."""
        return list(self.variants)

    def __iter__(self) -> Iterator[str]:
        return iter(self.variants)

    def __getattr__(self, name: str) -> OpOverload:
        variant = self.__dict__.get("variants", {}).get(name)
        if variant is None:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
        overload: OpOverload = variant
        return overload

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator."""
        if stands_in(args):
            return hand_over(self, args, kwargs)
        variants = list(self.variants.values())
        failure: RuntimeError | None = None
        for overload in variants:
            try:
                values = overload.bind(args, kwargs)
            except RuntimeError as error:
                failure = failure or error
                continue
            return overload.native(*values)
        raise failure or RuntimeError(f"[{self}] has no signature\nhint: Library.define")


class OpNamespace:
    """The operators of one namespace, by name; those of a module of this name, too."""

    def __init__(self, name: str, module: Any = None) -> None:
        self.name = name
        self.__name__ = f"flambeau.ops.{name}"
        self._module = module

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}' from 'torch.ops'>"

    def __dir__(self) -> list[str]:
        prefix = self.name + "::"
        names = {key.removeprefix(prefix) for key in REGISTRY if key.startswith(prefix)}
        if self._module is not None:
            names.update(name for name in dir(self._module) if not name.startswith("__"))
        return sorted(names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dir__())

    def __getattr__(self, name: str) -> Any:
        packet = REGISTRY.get(f"{self.name}::{name}")
        if packet is not None and packet.variants:
            return packet
        if self._module is not None and hasattr(self._module, name):
            return getattr(self._module, name)
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")


REGISTRY: dict[str, OpOverloadPacket] = {}


def publish(overload: OpOverload, replace: bool = False) -> OpOverload:
    """Makes an operator known to `torch.ops`.

    Raises:
        RuntimeError: the name is taken.
    """
    name = overload._schema.name
    packet = REGISTRY.setdefault(name, OpOverloadPacket(name))
    if overload._overloadname in packet.variants and not replace:
        raise RuntimeError(
            f"Tried to register an operator ({overload._schema}) with the same name and overload "
            "name multiple times. Each overload's schema should only be registered with a single "
            "call to def().\nhint: another overload name"
        )
    packet.variants[overload._overloadname] = overload
    open_namespace(overload.namespace)
    return overload


def open_namespace(name: str) -> Any:
    """Puts a namespace under `torch.ops`, and returns it."""
    from flambeau import ops

    present = vars(ops).get(name)
    if name == "higher_order" and present is None:
        present = late("flambeau._higher_order_ops.operators")
    if not isinstance(present, OpNamespace) and name != "aten":
        present = OpNamespace(name, present)
        setattr(ops, name, present)
    return present


def retract(overload: OpOverload) -> None:
    """Forgets an operator."""
    packet = REGISTRY.get(overload._schema.name)
    if packet is not None and packet.variants.get(overload._overloadname) is overload:
        del packet.variants[overload._overloadname]


def find(op: Any) -> OpOverload:
    """The operator of a name ("namespace::name.overload"), an operator or a definition.

    Raises:
        RuntimeError: there is none of this name.
        ValueError: the name has no namespace.
    """
    if isinstance(op, OpOverload):
        return op
    if isinstance(op, OpOverloadPacket):
        return next(iter(op.variants.values()))
    definition = getattr(op, "_opoverload", None)
    if definition is not None:
        custom_overload: OpOverload = definition
        return custom_overload
    if not isinstance(op, str):
        raise ValueError(f"[library] got {type(op).__name__}\nhint: 'namespace::name'")
    name, _, overload = check_name(op).partition(".")
    packet = REGISTRY.get(name)
    if packet is None or (overload or "default") not in packet.variants:
        raise RuntimeError(f"operator {op} does not exist")
    return packet.variants[overload or "default"]


def check_name(qualname: str) -> str:
    """The name, if it has the form "namespace::name".

    Raises:
        ValueError: it has not.
    """
    if qualname.count("::") != 1:
        raise ValueError(
            'Expected `qualname` to be of the form "namespace::name", but got '
            f"{qualname}. The qualname passed to the torch.library APIs must consist of a "
            "namespace and a name, e.g. aten::sin"
        )
    return qualname
