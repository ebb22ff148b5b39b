"""`custom_op`: a Python function as an operator of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import _core
from flambeau.ir.lock import importing
from flambeau.library.operators import (
    EXPLICIT,
    REGISTRY,
    OpOverload,
    publish,
)
from flambeau.library.schemas import infer_schema, parse

# As PyTorch names devices; a kernel for an unavailable one is stored and never called.
DEVICES = frozenset(
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu "
    "mtia privateuseone".split()
)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes an operator of a function, which `compile` and transformations do not look into.

    Args:
        name: "namespace::name".
        fn: the function; None returns a decorator.
        mutates_args: names of the tensors that it writes; "unknown": all of them.
        device_types: of the tensors that it takes; None: any.
        schema: "(Tensor x, int n) -> Tensor"; None: from the function's annotations.
        tags: stored.

    Returns:
        A `CustomOpDef`.

    Raises:
        ValueError: the schema and `mutates_args` contradict each other, or an annotation is
            missing.

    Example:
        >>> @torch.library.custom_op("docs::scaled", mutates_args=())
        ... def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        ...     return torch.from_numpy(x.numpy() * by).to(x.dtype)
        >>> scaled(torch.ones(2))
        tensor([2., 2.])
    """

    def decorate(function: Callable[..., Any]) -> CustomOpDef:
        mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
        text = schema
        if text is None:
            text = infer_schema(function, mutates_args=mutated)
        definition = CustomOpDef(name, text, function, tags)
        if schema is not None:
            _check_mutations(definition, mutated)
        if device_types is None:
            definition._set_kernel(None, function)
        for device in [device_types] if isinstance(device_types, str) else device_types or ():
            definition._set_kernel(device, function)
        definition._publish()
        return definition

    return decorate if fn is None else decorate(fn)


def _check_mutations(definition: CustomOpDef, mutated: str | tuple[str, ...]) -> None:
    stated = {a.name for a in definition._opoverload._schema.arguments if a.is_write}
    if mutated != "unknown" and set(mutated) != stated:
        raise ValueError(
            f"Attempted to create a custom op with `mutates_args={mutated}` and `schema="
            f"{definition._schema}. The schema suggests that the op mutates {stated or '{}'} which "
            "is different from what was provided to us in `mutates_args`. Please make these "
            "consistent."
        )


class CustomOpDef:
    """An operator made by `custom_op`: called, it runs.

    Args:
        qualname: "namespace::name".
        schema: without a name.
        fn: its first kernel.
        tags: stored.
    """

    def __init__(self, qualname: str, schema: str, fn: Callable[..., Any], tags: Any) -> None:
        namespace, name = qualname.split("::")
        self._qualname, self._namespace, self._name = qualname, namespace, name
        self._schema = schema
        self._init_fn = fn
        self._tags = list(tags) if isinstance(tags, (tuple, list)) else [tags] if tags else []
        self._opoverload = OpOverload(parse(qualname + schema), self._tags)
        self._opoverload.custom = self
        self._opoverload.__doc__ = self.__doc__ = fn.__doc__ or "An operator made by custom_op."
        self.__name__ = name
        self.__wrapped__ = fn
        self._registered_autograd: Callable[..., Any] | None = None

    def _publish(self) -> None:
        packet = REGISTRY.get(self._qualname)
        old = packet.variants.get("default") if packet is not None else None
        publish(self._opoverload, replace=old is not None and old.custom is not None)

    @property
    def name(self) -> str:
        """Its name in its namespace."""
        return self._name

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator; see `OpOverload`."""
        return self._opoverload(*args, **kwargs)

    # -------------------------------------------------------------------------------- rules

    def register_kernel(
        self,
        device_types: str | Sequence[str] | None,
        fn: Callable[..., Any] | None = None,
        /,
    ) -> Callable[..., Any]:
        """Adds the function that runs for tensors of these devices (None: of all others)."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            devices: Sequence[str | None] = (
                [device_types] if isinstance(device_types, str) else device_types or [None]
            )
            for device in devices:
                self._set_kernel(device, function)
            return function

        return register if fn is None else register(fn)

    def _set_kernel(self, device: str | None, function: Callable[..., Any]) -> None:
        if device is not None and device not in DEVICES:
            raise RuntimeError(
                f"Expected one of {', '.join(sorted(DEVICES))} device type at start of device "
                f"string: {device}\nhint: 'cpu'"
            )
        self._opoverload.kernels[EXPLICIT if device is None else device.upper()] = function

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Adds the function that infers the results' sizes, dtypes and strides.

        It takes tensors without data and returns such.
        """
        self._opoverload.fake = fn
        return fn

    def register_torch_dispatch(
        self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Not supported yet.

        Raises:
            NotImplementedError: always.
        """
        raise no_dispatch()

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Adds the derivative's formula.

        Args:
            backward: (ctx, *gradients of the results) -> gradients of the arguments.
            setup_context: (ctx, inputs, output): saves on ctx what `backward` needs.

        Raises:
            RuntimeError: the operator writes its arguments.
        """
        set_autograd(self._opoverload, backward, setup_context, repr(self))

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Adds how batches are computed: (info, in_dims, *args) -> (results, out_dims)."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._opoverload.vmap_rule = function
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> Any:
        """Casts floating-point inputs to a dtype where autocast is on: see `register_autocast`."""
        return set_autocast(self._opoverload, device_type, cast_inputs)

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Turns a device's own kernel off (or on) in a block; the one for all devices then runs."""
        disabled = self._opoverload.disabled
        before = device_type in disabled
        _toggle(disabled, device_type, not enabled)
        try:
            yield
        finally:
            _toggle(disabled, device_type, before)


def _toggle(names: set[str], name: str, enabled: bool) -> None:
    if enabled:
        names.add(name)
    else:
        names.discard(name)


def set_autocast(operator: Any, device_type: str, dtype: Any) -> Callable[..., Any]:
    """Sets the rule of autocast of an operator; rules of other devices than the CPU have no effect.

    Args:
        operator: the OpOverload.
        device_type: whose autocast is meant.
        dtype: of floating-point inputs, but for float64.
    """
    with importing:
        from flambeau.amp import autocast_mode

    if not autocast_mode.is_autocast_available(device_type):
        raise ValueError(f"[register_autocast] {device_type!r} has no autocast\nhint: 'cpu'")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with autocast_mode.autocast(device_type, enabled=False):
            operands = autocast_mode._cast(args, device_type, dtype)
            options = {k: autocast_mode._cast(v, device_type, dtype) for k, v in kwargs.items()}
            return operator.native(*operands, **options)

    if device_type == "cpu":
        set_rule(operator, kernel)
    return kernel


def set_rule(operator: Any, kernel: Callable[..., Any]) -> None:
    """Sets the function that is called in place of an operator where autocast is on."""
    operator.native.autocast = kernel
    _core.forget_explanations()


def no_dispatch() -> NotImplementedError:
    """Raises for queries of rules for modes and subclasses."""
    return NotImplementedError(
        "[register_torch_dispatch] rules of single operators for modes and subclasses do not exist "
        "yet\nhint: handle the operator in the class's __torch_dispatch__"
    )


def set_autograd(
    op: OpOverload, backward: Callable[..., Any], setup: Callable[..., Any] | None, shown: str
) -> None:
    """Gives an operator its derivative's formula.

    Raises:
        RuntimeError: the operator writes its arguments.
        NotImplementedError: it takes tensors by name only.
    """
    schema = op._schema
    if not schema.is_functional:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {shown} with schema "
            f"{schema}. Please create a functional operator and register an autograd formula for "
            "that."
        )
    if any(a.kwarg_only and a.is_tensor for a in schema.arguments):
        raise NotImplementedError(
            f"register_autograd with kwarg-only Tensor args. In the original definition of the op, "
            f"please make your tensors not kwarg-only. Got: {schema}"
        )
    op.backward, op.setup_context = backward, setup
