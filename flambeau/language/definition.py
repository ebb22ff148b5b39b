"""`@op`: the one definition of an operator, from which everything else about it is derived.

The decorated name is an `OpDefinition`. Called with IR nodes (inside another op's body) it inlines
its body; called with tensors it calls its native op. See docs/design.md § 8.

Importing the library records hundreds of definitions, of which a program uses a few: the schema is
derived from the body's annotations, or parsed from its text, when the operator is first called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import COMPUTE, PARTS
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, SizeExpr
from flambeau.language import promotion
from flambeau.language.schema import (
    REQUIRED,
    Argument,
    Schema,
    annotated_schema,
    parse_schema,
    returns_single,
    schema_name,
)

Body = Callable[..., Any]
REGISTRY: dict[str, OpDefinition] = {}

# The operands of the body that runs, as it sees them, and the dtypes in which they were given.
_given: ContextVar[Mapping[Node, str]] = ContextVar("given", default=MappingProxyType({}))


class View:
    """The result of a view op's body whose geometry is not a chain of view primitives.

    Attributes:
        node: the value, as a node.
        strides, offset: its geometry over the input's storage, in elements.
    """

    __slots__ = ("node", "offset", "strides")

    def __init__(self, node: Node, strides: tuple[Size, ...], offset: Size) -> None:
        self.node = node
        self.strides = strides
        self.offset = offset


class Dense:
    """A new result that is not row-major in memory.

    Attributes:
        node: the value.
        order: its dimensions from the outermost to the innermost.
    """

    __slots__ = ("node", "order")

    def __init__(self, node: Node, order: Sequence[int]) -> None:
        self.node = node
        self.order = tuple(order)


class Options:
    """Everything `@op` may state beside schema and body; see docs/design.md § 8.

    What a definition does not state stays the class's: an instance costs one small dictionary.

    Attributes:
        out: whether the call may be given `out=`. True, or "cast", casts the result where that
            loses no kind of number; one of `OUT_RULES` says what else `out` must be, or may. A
            tensor that is resized gets the strides of the result; with " contiguous" behind the
            rule those of a contiguous tensor, with " empty" only where it was empty the result's.
        long_list: the rule in `native/call/lists.cpp` by which long lists run without a Plan.
        fits: arguments whose number the result's dtype must be able to hold.
        saves_result: whether backward may read the results, which then must not be written.
        unsaved: arguments that backward does not read, so that they may be written after the call.
            Values that it needs of them are saved apart.
        single_views: results of a view op with several may be written in place.
        pointwise: whether each element of a result depends on the operands' elements at its
            position alone (random ones on none). None: where the layout follows the operands'.
        zero_preserving: whether a zero of the first operand becomes a zero, whatever the others.
        linear: whether f(a + b) is f(a) + f(b), up to rounding; zeros are preserved, too.
        composite: whether the body calls operators alone; modes and `grad_fn` see these.
        strict_index: whether negative indices are out of range.
        index_error: raised for an index out of range.
        overlap: what operands of an in-place call (or one with `out=`) may share with its target;
            one of `OVERLAP_RULES`, by default "partial" for pointwise ops, else "copy". A name
            after the rule is the only argument that it applies to, as expanded to the target;
            with "*" before the name the rule applies to the others, too.
        overlap_when: for which arguments of a call with `out=` the rule holds; in other calls
            operands are copied first. None: for all.
        varying: whether static integers vary from call to call: kernels then take them as
            arguments, so that no value needs one of its own.
        repeats: whether what is written may refer to one element several times, as an expanded
            tensor does: in place the elements that change are written; with `out=` only what is
            made from numbers may.
        autocast: what happens to operands under `torch.autocast`: one of `CAST_RULES`, or a
            function that is called instead, with the native operator and its arguments.
    """

    where: tuple[str, ...] = ("torch", "method")
    promote: str = "none"
    participants: tuple[str, ...] | None = None
    fits: tuple[str, ...] = ()
    layout: str = "contiguous"
    inplace: bool = False
    out: bool | str = False
    view: bool = False
    returns_self: bool = False
    host: bool = False
    long_list: str = ""
    varying: bool = False
    differentiable: bool = True
    saves_result: bool = True
    unsaved: tuple[str, ...] = ()
    single_views: bool = False
    pointwise: bool | None = None
    zero_preserving: bool = False
    linear: bool = False
    composite: bool = False
    strict_index: bool = False
    index_error: type[Exception] = IndexError
    overlap: str = ""
    overlap_when: Callable[..., bool] | None = None
    repeats: bool = False
    autocast: str | Callable[..., Any] = ""
    aliases: tuple[str, ...] = ()
    samples: Callable[[], Any] | None = None
    errors: Callable[[], Any] | None = None
    reference: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] | None = None
    notes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, stated: dict[str, Any]) -> None:
        if not OPTION_NAMES.issuperset(stated):
            unknown = sorted(set(stated) - OPTION_NAMES)
            raise TypeError(f"[op] unknown options {unknown}\nhint: one of {sorted(OPTION_NAMES)}")
        rule = stated.get("out", False)
        if isinstance(rule, str) and not _is_out_rule(rule):
            raise failure(TypeError, "op", f"unknown out={rule!r}", f"one of {OUT_RULES}")
        if (stated.get("overlap") or "copy").split()[0] not in OVERLAP_RULES:
            problem = f"unknown overlap={stated['overlap']!r}"
            raise failure(TypeError, "op", problem, f"one of {OVERLAP_RULES}")
        rule = stated.get("autocast", "")
        if not callable(rule) and rule not in CAST_RULES:
            raise failure(TypeError, "op", f"unknown autocast={rule!r}", f"one of {CAST_RULES}")
        self.__dict__.update(stated)

    @property
    def out_rule(self) -> str:
        """The name of the rule of `out=`, one of `OUT_RULES`; "" where there is none."""
        return "cast" if self.out is True else str(self.out or "").partition(" ")[0]

    @property
    def is_pointwise(self) -> bool:
        """Whether elements of a result depend on those at the same position alone."""
        return self.layout == "follow" if self.pointwise is None else self.pointwise

    @property
    def preserves_zeros(self) -> bool:
        """Whether zeros of the first operand become zeros."""
        return self.zero_preserving or self.linear


OPTION_NAMES = frozenset(Options.__annotations__)
# What `overlap` may be: "partial" refuses operands that share a part of the target's memory, "any"
# those that share all of it, too; "copy" copies operands first, "fill" also takes expanded targets.
OVERLAP_RULES = ("partial", "any", "copy", "fill")
# What `autocast` may be: "lower" casts operands to the region's dtype, "float32" lower ones to
# float32, "promote" all to the widest; "" leaves them alone.
CAST_RULES = ("", "lower", "float32", "promote")
# What `out` may state beside True and False: docs/design.md § 8 says what each means.
OUT_RULES = ("cast", "kind", "join", "truth", "any", "dtype", "exact", "separate")
# What may follow: when the target's strides are a contiguous tensor's though the result's are not.
OUT_STRIDES = ("contiguous", "empty")


def _is_out_rule(text: str) -> bool:
    name, _, strides = text.partition(" ")
    return name in OUT_RULES and (not strides or strides in OUT_STRIDES)


class Overload:
    """One signature of an operator with its body.

    Attributes:
        name: of the operator, for messages.
        body: what computes it.
        options: how.
    """

    __slots__ = ("_results", "_runtime", "_schema", "_text", "body", "name", "options")

    def __init__(
        self,
        name: str,
        text: str,
        body: Body,
        options: Options,
        runtime: str = "",
        results: str = "",
    ) -> None:
        self.name = name
        self.body = body
        self.options = options
        self._text = text
        self._runtime = runtime
        self._results = results
        self._schema: Schema | None = None

    @property
    def text(self) -> str:
        """The schema's text: as written, or as the body's annotations state it."""
        if not self._text:
            self._text = annotated_schema(self.body, self.name, self._results)
        return self._text

    def run(self, values: Sequence[Any]) -> Any:
        """Calls the body with its arguments in the schema's order."""
        code = getattr(self.body, "__code__", None)
        if code is None or not code.co_kwonlyargcount:
            return self.body(*values)
        count = code.co_argcount
        names = code.co_varnames[count : count + code.co_kwonlyargcount]
        return self.body(*values[:count], **dict(zip(names, values[count:], strict=False)))

    @property
    def schema(self) -> Schema:
        """The signature, parsed on first use.

        Raises:
            ValueError: the text does not follow the grammar.
        """
        if self._schema is None:
            self._schema = parse_schema(self.text, self._runtime)
        return self._schema

    def returns(self, count: int) -> str:
        """How a call gives `count` results; an argument may choose several where one is stated."""
        kind = self.schema.returns_kind
        return "tuple" if kind == "single" and count > 1 else kind


class OpDefinition:
    """A public operator: its overloads, its documentation and (once installed) its native callable.

    Attributes:
        name: public name.
        overloads: tried in order.
        native: the `_core.Op`, set by `core.install`.
    """

    def __init__(self, name: str, doc: str | None) -> None:
        self.name = name
        self.__name__ = name
        self.__doc__ = doc
        self.overloads: list[Overload] = []
        self.native: Any = None

    @property
    def options(self) -> Options:
        """Options of the first overload."""
        return self.overloads[0].options

    def overload(
        self, schema: str = "", *, runtime: str = "", results: str = "", **options: Any
    ) -> Callable[[Body], OpDefinition]:
        """Adds a further signature; options not given are those of the first one."""

        def decorate(body: Body) -> OpDefinition:
            stated = Options(vars(self.options) | _split_names(options))
            self.overloads.append(Overload(self.name, schema, body, stated, runtime, results))
            return self

        return decorate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inlines the body when given nodes, else calls the native op."""
        if _has_node(args) or _has_node(kwargs.values()):
            return self._inline(args, kwargs)
        return self.native(*args, **kwargs)

    def _inline(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        mismatch: TypeError | None = None
        for overload in self.overloads:
            try:
                bound = bind_arguments(overload.schema, args, kwargs)
            except TypeError as error:
                mismatch = error
                continue
            if overload.options.host:
                return overload.run(bound)
            results = evaluate(overload, bound)
            values = [r.node if isinstance(r, (View, Dense)) else r for r in results]
            return values[0] if overload.returns(len(values)) == "single" else tuple(values)
        raise mismatch or failure(TypeError, self.name, "has no signature", "define one with @op")


def _has_node(values: Any) -> bool:
    return any(
        isinstance(v, Node) or (isinstance(v, (list, tuple)) and _has_node(v)) for v in values
    )


def _split_names(given: dict[str, Any]) -> dict[str, Any]:
    for name in ("where", "participants", "fits", "unsaved", "aliases", "dtypes"):
        value = given.get(name)
        if isinstance(value, str):
            given[name] = tuple(value.split())
    return given


# The options that a kind of operators has in common; a definition may state others. `inplace=True`
# is for methods, `out=True` for operators of one result.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "pointwise": {"promote": "default", "layout": "follow", "inplace": True, "out": True},
    "elementary": {"promote": "float", "layout": "follow", "inplace": True, "out": True},
    "reduction": {"promote": "keep", "out": "exact"},
    "loss": {"where": "nn.functional", "promote": "keep", "autocast": "float32"},
    "image": {"promote": "keep", "layout": "images"},
    "matrix": {"where": "linalg", "out": "exact", "autocast": "float32"},
    "product": {"out": "exact", "autocast": "lower"},
    "copy": {"where": "torch", "out": "exact", "varying": True},
    "scatter": {"inplace": True, "out": "exact", "overlap": "any"},
    "join": {"where": "torch", "out": "join", "overlap": "any", "autocast": "promote"},
    "creation": {"where": "torch", "differentiable": False, "out": True},
    "step": {"where": "private", "promote": "keep", "differentiable": False},
}


def _options(single: bool, kind: str, stated: dict[str, Any]) -> Options:
    """Those of the kind, and those that the definition states; strings split."""
    if kind not in KINDS:
        raise failure(TypeError, "op", f"unknown kind {kind!r}", f"one of {sorted(KINDS)}")
    options = _split_names({**KINDS[kind], **stated})
    if "inplace" not in stated and not (single and "method" in options.get("where", Options.where)):
        options.pop("inplace", None)
    if "out" not in stated and options.get("out") is True and not single:
        options.pop("out", None)
    return Options(options)


def op(
    schema: str = "",
    *,
    name: str = "",
    kind: str = "",
    runtime: str = "",
    results: str = "",
    **options: Any,
) -> Callable[[Body], OpDefinition]:
    """Defines an operator; see docs/design.md § 8 for the options.

    Args:
        schema: the signature, for bodies whose annotations do not state it (see
            `language.schema`).
        name: of the operator, where it is not the body's.
        kind: one of `KINDS`, which bundles options.
        runtime: space-separated names of run-time scalars.
        results: names of the results, where they are a struct sequence.
        options: see `Options`.

    Raises:
        TypeError: the kind, or an option, is unknown.
        ValueError: the name is taken.
    """

    def decorate(body: Body) -> OpDefinition:
        chosen = _options(returns_single(schema, body), kind, options)
        home = "" if "torch" in chosen.where or "method" in chosen.where else chosen.where[0] + "."
        public = name or schema_name(schema) or body.__name__
        key = home + public
        if key in REGISTRY:
            raise failure(ValueError, "op", f"{key} is defined twice", f"use {key}.overload(...)")
        definition = OpDefinition(public, body.__doc__)
        definition.overloads.append(Overload(public, schema, body, chosen, runtime, results))
        REGISTRY[key] = definition
        return definition

    return decorate


def function(**options: Any) -> Callable[[Body], OpDefinition]:
    """Defines a function without a program, as PyTorch has it in Python above its operators."""
    return op(host=True, **options)


def bind_arguments(schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments in schema order with defaults filled, for calls inside bodies."""
    arguments = schema.arguments
    positional = [a for a in arguments if not a.keyword_only]
    if len(args) > len(positional):
        if positional and positional[-1].kind in ("int[]", "SymInt[]"):
            last = len(positional) - 1
            args = (*args[:last], tuple(args[last:]))
        else:
            raise TypeError(f"[{schema.name}] takes {len(positional)} arguments, got {len(args)}")
    values: dict[str, Any] = dict(zip((a.name for a in positional), args, strict=False))
    for name, value in kwargs.items():
        if name in values or all(a.name != name for a in arguments):
            problem = f"unexpected argument {name!r}"
            raise failure(TypeError, schema.name, problem, "see its signature")
        values[name] = value
    return [_checked(schema.name, a, values.get(a.name, a.default)) for a in arguments]


def _checked(name: str, argument: Argument, value: Any) -> Any:
    if value is REQUIRED:
        raise failure(TypeError, name, f"missing argument {argument.name!r}", "see its signature")
    kind = argument.kind
    if kind in ("Tensor", "Tensor[]") and value is None:
        raise TypeError(f"[{name}] argument {argument.name!r} must be a tensor, got None")
    is_node = isinstance(value, Node)
    if kind == "Tensor" and not is_node:
        raise TypeError(f"[{name}] argument {argument.name!r} must be a tensor, got {value!r}")
    if is_node and not (argument.is_tensor or kind.startswith("Scalar")):
        raise TypeError(f"[{name}] argument {argument.name!r} must be {kind}, got a tensor")
    if kind.endswith(("int[]", "Int[]", "Int[]?", "int[]?")) and isinstance(value, (int, SizeExpr)):
        return (value,)
    if kind == "int" and isinstance(value, (float, str, list, tuple)):
        raise TypeError(f"[{name}] argument {argument.name!r} must be an int, got {value!r}")
    return value


def _participants(overload: Overload, arguments: Sequence[Any]) -> list[tuple[str, str]]:
    chosen = overload.options.participants
    found: list[tuple[str, str]] = []
    for argument, value in zip(overload.schema.arguments, arguments, strict=True):
        takes_part = argument.is_tensor or argument.kind.startswith("Scalar")
        if value is None or not takes_part or (chosen and argument.name not in chosen):
            continue
        for item in value if isinstance(value, (list, tuple)) else (value,):
            found.append(_participant(item))
    return found


def _participant(value: Any) -> tuple[str, str]:
    if not isinstance(value, Node):
        return promotion.number_dtype(type(value)), "number"
    if value.is_scalar:
        dtype = promotion.default_dtype() if value.dtype == "f64" else value.dtype
        return dtype, "number"
    return value.dtype, "tensor" if value.shape else "zero_dim"


def _converted(value: Any, dtype: str) -> Any:
    if isinstance(value, Node):
        return prims.cast(value, dtype)
    if isinstance(value, (list, tuple)):
        return [_converted(v, dtype) for v in value]
    return value


def _widened(value: Any) -> Any:
    """Half nodes become float32, complex32 complex64: the arithmetic inside an op."""
    if isinstance(value, Node) and value.dtype in COMPUTE:
        return prims.cast(value, COMPUTE[value.dtype])
    if isinstance(value, (list, tuple)) and _has_node(value):
        return [_widened(v) for v in value]
    return value


def evaluate(overload: Overload, arguments: Sequence[Any]) -> list[Any]:
    """Runs a body on nodes under the definition's promotion rule.

    Args:
        overload: the signature.
        arguments: in schema order; tensors and run-time numbers as nodes.

    Returns:
        The results as nodes (or `View`s, or `Dense`s) in their final dtypes.
    """
    mode = overload.options.promote
    if mode == "none":
        return _run(overload, arguments, arguments)
    if mode == "keep":
        first = next((a for a in _flat(arguments) if isinstance(a, Node) and not a.is_scalar), None)
        half = first.dtype if first is not None and first.dtype in COMPUTE else None
        results = _run(overload, arguments, [_widened(a) for a in arguments])
        return (
            results if half is None else [_final(r, lambda r: _narrowed(r, half)) for r in results]
        )
    common = promotion.result_type(_participants(overload, arguments))
    if mode == "float" and promotion.CATEGORY[common] < 2:
        common = promotion.default_dtype()
    inner = promotion.compute_dtype(common)
    chosen = overload.options.participants
    converted = [
        _converted(value, inner) if chosen is None or argument.name in chosen else _widened(value)
        for argument, value in zip(overload.schema.arguments, arguments, strict=True)
    ]
    results = _run(overload, arguments, converted)
    final = "bool" if mode == "bool" else common
    return [_final(r, lambda r: _converted(r, _kept_real(r, final))) for r in results]


def _final(result: Any, finish: Callable[[Any], Any]) -> Any:
    """A body's result in the dtype that users see, wherever it lies in memory."""
    if isinstance(result, Dense):
        return Dense(finish(result.node), result.order)
    return result if result is None else finish(result)


def _run(overload: Overload, given: Sequence[Any], converted: Sequence[Any]) -> list[Any]:
    """The results of a body, which may ask what its operands were before they were converted."""
    outer = _given.get()
    pairs = zip(_flat(given), _flat(converted), strict=True)
    token = _given.set(
        {
            after: outer.get(before, before.dtype)
            for before, after in pairs
            if isinstance(after, Node)
        }
    )
    try:
        return _as_list(overload.run(converted))
    finally:
        _given.reset(token)


def given_dtype(x: Node) -> str:
    """The dtype of an operand of the body that runs, as the caller gave it.

    For bodies that round as PyTorch does, in the operand's dtype, or that insist on equal dtypes:
    the driver widens half types, and promotes. An operator inside the body of another asks for
    what the outer one was given. A sample to which a batch was added is the operand still; what a
    body cast by itself is not.
    """
    known = _given.get()
    while x not in known and x.op == "reshape":
        x = x.inputs[0]
    return known.get(x, x.dtype)


def _kept_real(result: Any, dtype: str) -> str:
    """The final dtype of a result: a norm or a distance of complex numbers is real."""
    real = isinstance(result, Node) and promotion.CATEGORY[result.dtype] == 2
    return promotion.PARTS.get(dtype, dtype) if real else dtype


def _narrowed(value: Any, half: str) -> Any:
    """A result of computing with `half` numbers in a wider dtype, in the dtype users see."""
    if not isinstance(value, Node):
        return value
    if value.dtype == COMPUTE[half]:
        return prims.cast(value, half)
    return prims.cast(value, PARTS[half]) if half in PARTS and value.dtype == "f32" else value


def _flat(values: Sequence[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        out.extend(_flat(value) if isinstance(value, (list, tuple)) else [value])
    return out


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]
