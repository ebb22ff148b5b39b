"""`Library`, `define`, `impl`, `register_*`: operators put together piece by piece."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.library.definitions import (
    DEVICES,
    CustomOpDef,
    custom_op,
    no_dispatch,
    set_autocast,
    set_autograd,
    set_rule,
)
from flambeau.library.operators import (
    EXPLICIT,
    IMPLICIT,
    OpOverload,
    check_name,
    find,
    open_namespace,
    publish,
    retract,
)
from flambeau.library.schemas import parse

_RESERVED = ("prim",)
_KEYS = frozenset({"AUTOGRAD", "AUTOGRADCPU", "AUTOGRADCUDA", "META", EXPLICIT, IMPLICIT})
_AUTOCAST = "AUTOCAST"  # beginning of keys whose functions run where autocast is on
_defined: set[str] = set()  # namespaces that have a library of kind "DEF"
_kept: list[Any] = []  # what was defined without a library lives as long as the process


class Library:
    """A set of operators of one namespace, or of kernels for them.

    Args:
        ns: the namespace.
        kind: "DEF" (defines it; once), "FRAGMENT" (adds to it) or "IMPL" (adds kernels only).
        dispatch_key: of kernels that name none.

    Raises:
        ValueError: the kind is unknown or the namespace is reserved.
        RuntimeError: a second "DEF".

    Example:
        >>> library = torch.library.Library("docs_library", "DEF")
        >>> library.define("twice(Tensor x) -> Tensor")
        'twice'
        >>> library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")
        >>> torch.ops.docs_library.twice(torch.ones(2))
        tensor([2., 2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind in ("DEF", "FRAGMENT"):
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if kind == "DEF":
            if ns in _defined:
                raise RuntimeError(
                    "Only a single TORCH_LIBRARY can be used to register the namespace "
                    f"{ns}; please put all of your definitions in a single TORCH_LIBRARY block.\n"
                    "hint: Library(ns, 'FRAGMENT')"
                )
            _defined.add(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._ops: list[OpOverload] = []
        self._undo: list[Callable[[], None]] = []
        open_namespace(ns)

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Adds an operator: "name.overload(arguments) -> results"; returns its name.

        Raises:
            RuntimeError: the schema cannot be read, or the name is taken.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL":
            raise RuntimeError(
                "[Library] a library of kind 'IMPL' defines no operators\nhint: kind='FRAGMENT'"
            )
        chosen = list(tags) if isinstance(tags, (tuple, list)) else [tags]
        op = OpOverload(parse(f"{self.ns}::{schema.strip()}"), chosen)
        self._ops.append(publish(op))
        return op._opname

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Adds the function that computes an operator of this namespace.

        Args:
            op_name: "name", "name.overload", or the operator.
            fn: takes the schema's arguments.
            dispatch_key: "CPU", "Meta", "Autograd", "CompositeExplicitAutograd", or
                "CompositeImplicitAutograd" (made of other operators, so everything else follows).
            with_keyset: not supported.
            allow_override: whether an older function may be replaced.

        Raises:
            RuntimeError: the key is unknown, or there is a function already.
            TypeError: `fn` cannot be called.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        if with_keyset:
            raise NotImplementedError(
                "[Library.impl] dispatch key sets do not exist\nhint: with_keyset=False"
            )
        op = self._find(op_name)
        key = (dispatch_key or self.dispatch_key or IMPLICIT).upper()
        if key.startswith(_AUTOCAST):
            if key.removeprefix(_AUTOCAST) in ("", "CPU"):
                set_rule(op, fn)
            return
        if key not in _KEYS and key.lower() not in DEVICES:
            raise RuntimeError(f"could not parse dispatch key: {dispatch_key}")
        key = "AUTOGRAD" if key.startswith("AUTOGRAD") else key
        if key in op.kernels and not allow_override:
            raise RuntimeError(
                "This is not allowed since there's already a kernel registered from python "
                f"overriding {op._opname}'s behavior for {dispatch_key} dispatch key and {self.ns} "
                "namespace."
            )
        before = op.kernels.get(key)
        op.kernels[key] = fn
        self._undo.append(functools.partial(_restore, op.kernels, key, fn, before))

    def _find(self, op_name: Any) -> OpOverload:
        if isinstance(op_name, str) and "::" not in op_name:
            op_name = f"{self.ns}::{op_name}"
        if isinstance(op_name, str) and op_name.startswith("aten::"):
            raise NotImplementedError(
                "[Library.impl] the package's own operators have no kernels that could be replaced"
                "\nhint: __torch_function__, or an operator of a namespace of your own"
            )
        op = find(op_name)
        if op.namespace != self.ns:
            raise RuntimeError(
                f"[Library.impl] {op} is no operator of {self.ns}\nhint: Library('{op.namespace}')"
            )
        return op

    def fallback(self, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Not supported.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "[Library.fallback] operators of the package have no dispatch keys\n"
            "hint: a TorchFunctionMode sees every operator"
        )

    def _register_fake(self, op_name: Any, fn: Any, _stacklevel: int = 1, **options: Any) -> None:
        register_fake(self._find(op_name), fn, lib=self, **options)

    def _destroy(self) -> None:
        """Takes back what this library added."""
        for undo in reversed(self._undo):
            undo()
        for op in self._ops:
            retract(op)
        self._undo, self._ops = [], []
        if self.kind == "DEF":
            _defined.discard(self.ns)


def _restore(kernels: dict[str, Any], key: str, mine: Any, before: Any) -> None:
    if kernels.get(key) is not mine:
        return
    if before is None:
        del kernels[key]
    else:
        kernels[key] = before


# ------------------------------------------------------------------------------------ functions


def define(
    qualname: Any, schema: str, *args: Any, lib: Library | None = None, tags: Any = ()
) -> Any:
    """Adds an operator without a kernel.

    Args:
        qualname: "namespace::name"; or a `Library`, then returns a decorator of its kernel.
        schema: "(Tensor x) -> Tensor".
        lib: that owns it.
        tags: stored.

    Raises:
        ValueError: the name or the schema has not this form.

    Example:
        >>> torch.library.define("docs::negated", "(Tensor x) -> Tensor")
        >>> torch.library.impl("docs::negated", "default", lambda x: -x)
        >>> torch.ops.docs.negated(torch.ones(1))
        tensor([-1.])
    """
    if isinstance(qualname, Library):
        name = qualname.define(schema, *args, tags=tags)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(name, function)
            return function

        return decorate
    namespace, name = check_name(qualname).split("::")
    if not schema.lstrip().startswith("("):
        raise ValueError(
            "define(qualname, schema, ...): expected schema to look like e.g. "
            f'"(Tensor x) -> Tensor" but got "{schema}"'
        )
    owner = lib or Library(namespace, "FRAGMENT")
    if lib is None:
        _kept.append(owner)
    owner.define(name + schema, tags=tags)
    return None


def impl(
    qualname: Any,
    types: str | Sequence[str] = "",
    func: Any = None,
    *,
    lib: Library | None = None,
) -> Any:
    """Adds the function that computes an operator on some devices.

    Args:
        qualname: "namespace::name"; or a `Library`, then `types` is a name and `func` a key.
        types: "cpu", "default" (any device) ..., or several.
        func: takes the schema's arguments; None returns a decorator.
        lib: that owns it.

    Raises:
        RuntimeError: the device is unknown, or the operator is.
    """
    if isinstance(qualname, Library):

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(types, function, func or "")
            return function

        return decorate
    devices = [types] if isinstance(types, str) else list(types)
    keys = [_key(name) for name in devices]

    def register(function: Callable[..., Any]) -> Any:
        namespace = check_name(qualname).partition("::")[0]
        owner = lib or Library(namespace, "FRAGMENT")
        if lib is None:
            _kept.append(owner)
        for key in keys:
            owner.impl(qualname, function, key)

    if func is None:
        return register
    register(func)
    return None


def _key(name: str) -> str:
    if name == "default":
        return EXPLICIT
    if name not in DEVICES:
        raise RuntimeError(
            f"Expected one of {', '.join(sorted(DEVICES))} device type at start of device string: "
            f"{name}\nhint: 'cpu'"
        )
    return name


def register_kernel(
    op: Any,
    device_types: str | Sequence[str] | None,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """Adds the function that runs for tensors of these devices (None: any).

    Args:
        op: "namespace::name", an operator, or a definition.
        device_types: "cpu" ...
        func: None returns a decorator.
        lib: that owns it.
    """
    if isinstance(op, CustomOpDef):
        return op.register_kernel(device_types, func)
    overload = find(op)
    types = "default" if device_types is None else device_types
    return impl(overload.name(), types, func, lib=lib)


def register_fake(
    op: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """Adds the function that infers the results' sizes, dtypes and strides.

    Args:
        op: "namespace::name", an operator, or a definition.
        func: takes tensors without data and returns such; None returns a decorator.
        lib: that owns it.
        allow_override: whether an older function may be replaced.

    Raises:
        RuntimeError: there is one already and it may not be replaced, or no such operator.
    """
    overload = find(op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if overload.fake is not None and not allow_override:
            raise RuntimeError(
                f"register_fake(...): the operator {overload._schema.name} already has a fake impl "
                "registered.\nhint: allow_override=True"
            )
        overload.fake = function
        return function

    return register if func is None else register(func)


def impl_abstract(
    qualname: Any, func: Any = None, *, lib: Library | None = None, _stacklevel: int = 1
) -> Any:
    """The old name of `register_fake`."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:
    """Adds an operator's derivative.

    Args:
        op: "namespace::name", an operator, or a definition.
        backward: (ctx, *gradients of the results) -> gradients of the arguments.
        setup_context: (ctx, inputs, output): saves on ctx what `backward` needs.
        lib: that owns it.

    Raises:
        RuntimeError: the operator writes its arguments, or does not exist.
    """
    overload = find(op)
    set_autograd(overload, backward, setup_context, str(overload.custom or overload))


def register_vmap(
    op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Adds how an operator computes batches.

    Args:
        op: "namespace::name", an operator, or a definition.
        func: (info, in_dims, *args) -> (results, out_dims); `info.batch_size` samples. None
            returns a decorator.
        lib: that owns it.
    """
    overload = find(op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        overload.vmap_rule = function
        return function

    return register if func is None else register(func)


def register_torch_dispatch(
    op: Any,
    torch_dispatch_class: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """Not supported yet.

    Raises:
        NotImplementedError: always.
    """
    raise no_dispatch()


def register_autocast(
    op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> Any:
    """Casts floating-point inputs of an operator to a dtype where autocast is on.

    Args:
        op: "namespace::name", an operator, or a definition.
        device_type: whose autocast is meant.
        cast_inputs: the dtype; the operator then runs without autocast.
        lib: that owns it.

    Raises:
        TypeError: `device_type` is no str.
    """
    return set_autocast(find(op), device_type, cast_inputs)


class Kernel:
    """A function that computes an operator, found by `get_kernel`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def call_boxed(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls it; the key set has no meaning here."""
        return self._function(*args, **kwargs)


def get_kernel(op: Any, dispatch_key: Any) -> Kernel:
    """The function that was registered for a dispatch key.

    Raises:
        RuntimeError: there is none.
    """
    overload = find(op)
    key = str(dispatch_key).rpartition(".")[2].upper()
    if key not in overload.kernels:
        raise RuntimeError(
            f"[get_kernel] {overload} has no kernel for {dispatch_key}\nhint: one of "
            f"{', '.join(sorted(overload.kernels))}"
        )
    return Kernel(overload.kernels[key])


def fallthrough_kernel() -> None:
    """Represents "no kernel" when a library is filled.

    Raises:
        NotImplementedError: it is called.
    """
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """An operator whose function launches Triton kernels: `custom_op`, until a kernel is launched.

    A function that takes another way on a CPU, or `register_kernel("cpu")`, makes it work there.

    Args:
        name: "namespace::name".
        fn: the function; None returns a decorator.
        mutates_args: names of the tensors that it writes.
        schema: "(Tensor x, int n) -> Tensor"; None: from the function's annotations.

    Returns:
        A `CustomOpDef`.
    """
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Callable[..., Any], /) -> Any:
    """Not supported: there is no GPU target yet.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "[wrap_triton] Triton kernels cannot run: there is no GPU target yet\n"
        "hint: torch.library.custom_op around any Python function"
    )
