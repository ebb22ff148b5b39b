"""Turns definitions into what users call: native ops, `Tensor` methods, operators, namespaces.

Runs once, at the end of `import flambeau`, and must stay cheap: a native op is only a name that
loads its overloads when it is first used, and nothing is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flambeau import _core
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.language.definition import REGISTRY, OpDefinition, Overload

# Python operators and the definition each one calls; reflected ones are derived ops of their own.
OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift", "neg": "neg", "abs": "abs", "invert": "bitwise_not",
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "rsub": "rsub", "rtruediv": "_rdiv", "rfloordiv": "_rfloordiv", "rmod": "_rmod",
    "rpow": "_rpow", "rlshift": "_rlshift", "rrshift": "_rrshift",
    "rmatmul": "_rmatmul", "getitem": "_getitem", "setitem": "_setitem",
    "alias": "alias", "to_dtype": "to",
}  # fmt: skip
INPLACE_OPERATORS = {
    "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_",
    "ifloordiv": "floor_divide_", "imod": "remainder_", "ipow": "pow_", "iand": "bitwise_and_",
    "ior": "bitwise_or_", "ixor": "bitwise_xor_", "ilshift": "bitwise_left_shift_",
    "irshift": "bitwise_right_shift_",
}  # fmt: skip

ATTRIBUTES = {"T": "numpy_T", "H": "matrix_H", "mT": "_matrix_transpose", "mH": "adjoint",
              "real": "real", "imag": "imag"}  # fmt: skip
WRITTEN = ("real", "imag")  # attributes that may be assigned to: views whose elements are copied

# Names of operators that Python 2 had, and PyTorch still has.
OLD_OPERATORS = {
    "__div__": "__truediv__", "__rdiv__": "__rtruediv__", "__idiv__": "__itruediv__",
    "__long__": "__int__", "__nonzero__": "__bool__",
}  # fmt: skip

# Functions in Python that no mode and no `__torch_function__` can override.
NOT_OVERRIDABLE = frozenset(
    {"is_tensor", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state",
     "promote_types", "can_cast", "broadcast_shapes", "from_numpy", "from_dlpack"}
)  # fmt: skip

NAMESPACES: dict[str, dict[str, Any]] = {}
INPLACE: dict[str, Any] = {}
DEFINITIONS: dict[int, OpDefinition] = {}  # by their operators, which live for ever


Builder = Callable[[Overload, str], Callable[..., Any]]


_load_builder: list[Callable[[], Builder]] = []  # one entry, from `use_driver`


def use_driver(load: Callable[[], Builder]) -> None:
    """Sets the function that loads the driver's `builder`; the first call of an operator does.

    The package passes it, so that an import loads no driver, and this module knows none.
    """
    _load_builder[:] = [load]


def _native_overload(overload: Overload, variant: str) -> tuple[Any, ...]:
    arguments = tuple(
        a.native(variant == "inplace" and position == 0, a.name in overload.options.fits)
        for position, a in enumerate(overload.schema.arguments)
    )
    if overload.options.host:  # a signature that only Python can serve, beside native ones
        return (arguments, overload.body, ("python", *_out_flags(_served_out(overload))))
    builder = _load_builder[0]()
    flags: tuple[str, ...] = ()
    if variant == "functional":
        flags += _out_flags(overload.options.out)
    if overload.options.notes.get("any window"):  # the core checks the views' bounds
        flags += ("storage",)
    if overload.options.long_list and variant == "functional":
        flags += ("list:" + overload.options.long_list,)
    if overload.options.single_views:
        flags += ("single_views",)
    flags += _overlap_flags(overload)
    if overload.options.repeats:
        flags += ("repeats",)
    if overload.options.view or overload.options.returns_self:
        flags += ("view",)
    return (arguments, builder(overload, variant), flags)


def _overlap_flags(overload: Overload) -> tuple[str, ...]:
    pointwise = overload.options.layout in ("follow", "first")
    rule = overload.options.overlap or ("partial" if pointwise else "copy")
    if rule == "copy":
        return ()
    kind, *special = rule.split()
    if not special:
        return (f"overlap:{kind}",)
    names = [argument.name for argument in overload.schema.arguments]
    flags = (f"overlap:{kind}", f"overlap_of:{names.index(special[-1])}")
    return flags if special[0] == "*" else (*flags, "overlap_only")


def _out_flags(rule: bool | str) -> tuple[str, ...]:
    if not rule:
        return ()
    return ("cast",) if rule is True else (str(rule),)


def _served_out(overload: Overload) -> bool | str:
    """By what rule the core serves `out=` of a Python function, which knows nothing of it."""
    code = getattr(overload.body, "__code__", None)
    if code is None or "out" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return False
    return overload.options.out


def _native_op(definition: OpDefinition, name: str, variant: str) -> Any:
    op = _core.Op(name, _overloads(definition, variant))
    op.__doc__ = definition.__doc__
    return op


def _overloads(definition: OpDefinition, variant: str) -> Callable[[], list[tuple[Any, ...]]]:
    """Returns the overloads of a native op, before its first use."""

    def parsed() -> list[tuple[Any, ...]]:
        return [
            _native_overload(o, variant)
            for o in definition.overloads
            if variant == "functional" or o.options.inplace
        ]

    return parsed


def install_definition(definition: OpDefinition) -> None:
    """Makes one definition callable and publishes it in its namespaces."""
    options = definition.options
    names = (definition.name, *options.aliases)
    if all(o.options.host for o in definition.overloads):
        first = definition.overloads[0]
        asked = definition.name not in NOT_OVERRIDABLE
        overlap = first.options.overlap or "copy"
        definition.native = _core.shield(
            first.body, _served_out(first), asked, None, False, True, overlap
        )
    else:
        definition.native = _native_op(definition, definition.name, "functional")
    DEFINITIONS[id(definition.native)] = definition
    if options.autocast:
        definition.native.autocast = _cast_rule(options.autocast, definition.native)
    _publish(options.where, names, definition.native)
    if any(o.options.inplace for o in definition.overloads):
        native = _native_op(definition, definition.name + "_", "inplace")
        INPLACE[definition.name + "_"] = native
        _publish(options.where, tuple(n + "_" for n in names), native)


def wrong_argument(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns the error of a Python operator's call: the first argument that is no tensor."""
    definition = DEFINITIONS.get(id(op))
    if definition is None:
        return None
    schema = definition.overloads[0].schema
    named = [*zip((a.name for a in schema.arguments), args, strict=False), *kwargs.items()]
    kinds = {a.name: a.kind for a in schema.arguments}
    for name, value in named:
        if kinds.get(name) == "Tensor" and not _is_tensor_like(value):
            return (
                f"[{definition.name}] argument '{name}' must be Tensor, not "
                f"{type(value).__name__}\nhint: torch.tensor(...) makes one"
            )
    return None


def _is_tensor_like(value: Any) -> bool:
    return isinstance(value, _core.Tensor) or hasattr(type(value), "__torch_function__")


def _cast_rule(rule: str | Callable[..., Any], native: Any) -> str | Callable[..., Any]:
    return rule if isinstance(rule, str) else partial(rule, native)


def _publish(where: tuple[str, ...], names: tuple[str, ...], native: Any) -> None:
    for home in where:
        for name in names:
            if home == "method":
                setattr(_core.Tensor, name, native)
            else:
                NAMESPACES.setdefault(home, {})[name] = native


def operator_named(key: str, inplace: bool) -> Any:
    """The operator of a key in the registry, or its in-place form, named after the definition."""
    return INPLACE[key] if inplace else REGISTRY[key].native


def _reduced(op: Any) -> Any:
    """How `pickle` takes an operator: where it was said to stand, else by its definition.

    Raises:
        TypeError: no definition has it.
    """
    name: str = op.__name__
    if "__module__" in vars(op):
        return op.__qualname__
    if INPLACE.get(name) is op:
        return operator_named, (name, True)
    for key, definition in REGISTRY.items():
        if definition.native is op:
            return operator_named, (key, False)
    problem = f"the operator {name!r} has no definition that could be found again"
    raise failure(
        TypeError, "pickle", problem, "set its __module__ and __qualname__ to where it stands"
    )


def install() -> None:
    """Publishes every definition and connects Python's operators."""
    for definition in REGISTRY.values():
        if definition.native is None:
            install_definition(definition)
    for operator, name in OPERATORS.items():
        if name in REGISTRY:
            _core.set_operator(operator, REGISTRY[name].native)
    _install_subscript()
    _install_attributes()
    for operator, name in INPLACE_OPERATORS.items():
        if name in INPLACE:
            _core.set_operator(operator, INPLACE[name])
    for old, name in OLD_OPERATORS.items():
        setattr(_core.Tensor, old, getattr(_core.Tensor, name))
    _core.Op.__reduce__ = _reduced
    _core.Op.__signature__ = property(lambda op: late("flambeau.core.signatures").signature_of(op))


def _install_subscript() -> None:
    """Keys of integers and slices are read natively; all others by the Python definitions."""
    if "_getitem" not in REGISTRY:
        return
    names = ("_basic_index", "index", "fill", "copy_", "_getitem", "_setitem")
    view, index, _, copy, getitem, setitem = (REGISTRY[name].native for name in names)
    subscript = _core.subscript(view, index, INPLACE["fill_"], copy, getitem, setitem)
    _core.set_operator("getitem", subscript)
    _core.set_operator("setitem", subscript)
    REGISTRY["_getitem"].native = subscript


def _install_attributes() -> None:
    """Attributes of tensors that an operator computes: `T`, `mT`, `real` ..."""
    for name, key in ATTRIBUTES.items():
        if key in REGISTRY:
            native = REGISTRY[key].native
            write = _writer(native) if name in WRITTEN else None
            _core.add_attribute(name, native, write, native.__doc__)


def _writer(view: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    def write(tensor: Any, value: Any) -> None:
        target = view(tensor)
        if isinstance(value, _core.Tensor):
            target.copy_(value)
        else:
            target.fill_(value)

    return write


def absent(space: str, names: str, instead: str) -> dict[str, Callable[..., Any]]:
    """Functions of PyTorch's namespace *space* that are not there: they raise when called.

    So a program fails at the call, not at the import.

    Args:
        space: "linalg", "special" ...
        names: space separated.
        instead: the hint: what to do.
    """
    return {name: _refusal(f"torch.{space}.{name}", name, instead) for name in names.split()}


def _refusal(path: str, name: str, instead: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise failure(NotImplementedError, name, f"{path} is not supported yet", f"{instead}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not supported yet: raises NotImplementedError."
    return function


def namespace(home: str) -> dict[str, Any]:
    """Name → callable of everything whose home is `home` ("torch", "nn.functional", ...)."""
    return NAMESPACES.get(home, {})


def stands_in(args: Sequence[Any]) -> bool:
    """Whether an argument is no tensor but brings `__torch_function__`: a traced value, say.

    Args:
        args: positional arguments of a call.
    """
    return any(
        hasattr(type(value), "__torch_function__") and not isinstance(value, _core.Tensor)
        for value in args
    )


def hand_over(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result that such arguments give for a call.

    Args:
        function: the function that was called.
        args: its positional arguments.
        kwargs: its arguments by name.
    """
    return _core.handle_torch_function(function, args, tuple(args), kwargs)
