"""The modes behind `export`: calls become nodes before operators call others.

`make_fx` records the operators that a call consists of. An exported program shows the calls that a
model makes (`aten.linear`, `aten.lstm`), so each call is answered when it arrives: calls of native
operators at the dispatch mode, calls of functions in Python at a function mode. A function that
PyTorch has no operator for is run, and its own calls arrive.
"""

from __future__ import annotations

import contextlib
import inspect
import types as python_types
from collections.abc import Mapping, Sequence
from typing import Any

import flambeau as torch
from flambeau._subclasses import fake_calls
from flambeau._subclasses.symbolic_calls import made
from flambeau.autograd.transforms.programs import program_of
from flambeau.export._grad_mode import GRAD_MODE
from flambeau.fx.experimental._control_flow import Lifting
from flambeau.fx.experimental._operator_trace import OperatorMode, OperatorTracer
from flambeau.fx.node import Node
from flambeau.library import aten_schemas
from flambeau.ops import aten
from flambeau.overrides import TorchFunctionMode
from flambeau.runtime.symbolic import has_symbols, is_symbolic
from flambeau.utils import _python_dispatch as dispatch
from flambeau.utils import _pytree as pytree

__all__ = ["CallMode", "CallTracer", "FunctionCalls"]

Value = Any  # an argument or a result of an operator
Call = tuple[Value, tuple[Value, ...], dict[str, Value]]

# PyTorch's names of operators that functions in Python call with their own arguments.
_OPERATORS = {
    "cross_entropy": "cross_entropy_loss", "tensor_split": "", "nll_loss": "nll_loss_nd",
    "logsigmoid": "log_sigmoid", "dropout1d": "feature_dropout", "dropout2d": "feature_dropout",
    "dropout3d": "feature_dropout",
}  # fmt: skip
# Losses whose operands PyTorch broadcasts before it calls the operator.
_BROADCAST = ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss")
# PyTorch's names of arguments of operators, by ours.
_NAMES = {"training": ("train",), "input": ("self", "data"), "p": ("dropout",), "dim": ("dims",),
          "normalized_shape": ("shape",)}  # fmt: skip
# Arguments of functions in Python that say nothing where they have these values.
_SILENT = {"inplace": False, "requires_grad": False, "_stacklevel": 3, "size_average": None,
           "reduce": None, "out": None, "return_indices": False}  # fmt: skip
# Arguments that PyTorch's functions in Python fill in.
_FILLED = {"cudnn_enabled": False, "cudnn_enable": False}
# Methods that convert to a dtype.
_CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
          "int": "int32", "long": "int64", "short": "int16", "char": "int8", "byte": "uint8",
          "bool": "bool"}  # fmt: skip
# Operators whose results have the sizes of their first argument.
_SAME_SIZES = ("group_norm", "layer_norm", "rms_norm", "instance_norm", "batch_norm", "softmax",
               "log_softmax")  # fmt: skip
# Operators whose calls switch gradients off themselves.
_WITHOUT_GRADIENTS = ("aten.detach.default", "aten.item.default")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


class CallTracer(OperatorTracer):
    """A tracer whose nodes remember the modules that were running.

    Attributes:
        modules: key, path and class of each module that is running.
        gradients: whether gradients are enabled where the program makes its call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.modules: dict[str, tuple[str, str]] = {}
        self.gradients = torch.is_grad_enabled()

    def create_node(self, kind: str, *args: Value, **kwargs: Value) -> Node:
        """Adds a node."""
        node = super().create_node(kind, *args, **kwargs)
        if kind not in ("placeholder", "output"):
            node.meta["nn_module_stack"] = dict(self.modules)
            hidden = kind == "call_function" and str(node.target) in _WITHOUT_GRADIENTS
            node.meta[GRAD_MODE] = self.gradients if hidden else torch.is_grad_enabled()
        return node


class CustomCalls(OperatorMode):
    """Records operators of users (`torch.library`) as they are called."""

    _tracks = False
    _call: Call | None = None

    def _operator(self, op: Value, args: Value, kwargs: Value) -> Call | None:
        """The operator to record for a call, and its arguments; None: its own calls."""
        return _custom(op, args)

    def _called(self, op: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """Records a call; NotImplemented where there is no operator to record."""
        call = self._operator(op, args, kwargs)
        if call is None:
            return NotImplemented
        func, positional, named = call
        if func._opname in _BROADCAST and len(args) > 1:
            pair = self._broadcast(list(args[:2]))
            args, positional = (*pair, *args[2:]), (*pair, *positional[2:])
        with dispatch._pop_mode_temporarily():
            self._call = op, args, kwargs
            try:
                return self.__torch_dispatch__(func, (), positional, named)
            finally:
                self._call = None

    def _run(self, func: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        call, self._call = self._call, None
        if call is not None:
            op, args, kwargs = call
            args, kwargs = pytree.tree_map(self._fake, (args, kwargs))
        if func._opname.startswith(("adaptive_avg_pool", "adaptive_max_pool")):
            pooled = self._pooled(func, *pytree.tree_map(self._fake, (args, kwargs)))
            if pooled is not None:
                return pooled
        if call is None:
            return super()._run(func, args, kwargs)
        with unguarded(self.fakes.shape_env, func):
            return fake_calls.answer(self.fakes, op, args, kwargs)

    def _pooled(self, func: Value, args: Value, kwargs: Value) -> Value:
        """A pooled tensor without data, whose last sizes are arguments; None: they are not."""
        if (
            kwargs
            or len(args) != 2
            or func._overloadname != "default"
            or not has_symbols(args[0].shape)
        ):
            return None
        count = int(func._opname[-2])
        sizes = [args[1]] * count if isinstance(args[1], int) else list(args[1])
        pairs = zip(sizes, args[0].shape[-count:], strict=True)
        shape = [*args[0].shape[:-count], *[x if n is None else n for n, x in pairs]]
        device = getattr(args[0], "fake_device", args[0].device)
        return made(self.fakes, shape, args[0].dtype, device)

    def _broadcast(self, tensors: list[Value]) -> Value:
        with dispatch._pop_mode_temporarily():
            func = torch.ops.aten.broadcast_tensors.default
            return self.__torch_dispatch__(func, (), (tensors,))


class _Calls(CustomCalls):
    """Records each call as the operator that PyTorch has for it."""

    def _operator(self, op: Value, args: Value, kwargs: Value) -> Call | None:
        """The operator that PyTorch has for a call, and its arguments; None: it has none."""
        return operator_of(op, args, kwargs)

    def _detached(self, tensor: Value) -> Value:
        """A new tensor of the program's data."""
        return torch.ops.aten.detach_.default(tensor)

    def _number(self, func: Value, args: tuple[Value, ...]) -> Value:
        """A symbol for the only element of a tensor."""
        return super()._number(torch.ops.aten.item.default, args)


def unguarded(env: Value, func: Value) -> contextlib.AbstractContextManager[Value]:
    """A `with` block without guards for an operator whose results have the sizes of its input.

    Its program has conditions on sizes that choose how it is computed, which each call does again.
    """
    name = getattr(func, "_opname", "")
    return env.suppress_guards() if env and name in _SAME_SIZES else contextlib.nullcontext()


class _LiftingCalls(_Calls, Lifting):
    """The same in a function that an operator takes."""


class CallMode(_Calls):
    """Records the calls of a program.

    Args:
        tracer: owns the graph.
        fakes: the mode of tensors without data.
    """

    lifting = _LiftingCalls  # of functions that operators take

    def __init__(self, tracer: OperatorTracer, fakes: Value) -> None:
        super().__init__(tracer, {}, fakes)


class FunctionCalls(TorchFunctionMode):
    """Brings calls of functions in Python to the dispatch mode, which sees native operators."""

    def __torch_function__(
        self, func: Value, types: Value, args: tuple[Value, ...] = (), kwargs: Value = None
    ) -> Value:
        """Records a call, or runs the function and records its calls."""
        kwargs = kwargs or {}
        mode = dispatch._get_current_dispatch_mode()
        if isinstance(mode, _Calls) and isinstance(mode.tracer, CallTracer):
            mode.tracer.gradients = torch.is_grad_enabled()
        body = getattr(func, "__wrapped__", None)
        if not isinstance(body, python_types.FunctionType) or not isinstance(mode, _Calls):
            return func(*args, **kwargs)
        if func.__name__ != "tensor":
            result = mode._called(func, args, kwargs)
            if result is not NotImplemented:
                return result
        with self:
            return body(*args, **kwargs)


# ------------------------------------------------------------------------------ calls


def operator_of(op: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Call | None:
    """The overload of PyTorch's library that a call means, and its arguments; None: none.

    Args:
        op: a native operator, or a function in Python.
        args, kwargs: of the call.
    """
    custom = _custom(op, args)
    if custom is not None:
        return custom
    if isinstance(op, torch._core.Op):
        return _native(op, args, kwargs)
    name = _OPERATORS.get(op.__name__, op.__name__)
    definition = aten.definition_of(op)
    if definition is not None:
        name = aten.inner_name(definition.overloads[0])
    if not name or not aten_schemas.is_listed(name) or aten.is_absent(aten.__getattr__(name)):
        return None
    if name == "einsum":
        return _einsum(args)
    if name in _RECURRENT and len(args) == 9:
        overload = "data" if isinstance(args[3], list | tuple) else "input"
        listed = tuple([list(x) if isinstance(x, tuple) else x for x in args])
        return getattr(aten.__getattr__(name), overload), listed, {}
    try:
        bound = inspect.signature(op).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    if any(parameter.kind in (2, 4) for parameter in bound.signature.parameters.values()):
        return None
    return _of_names(name, bound.arguments)


def _custom(op: Value, args: Sequence[Value]) -> Call | None:
    """A user's operator, whose native one gets all arguments in order."""
    overload = fake_calls._custom(op)
    if overload is None:
        return None
    named = {a.name: x for a, x in zip(overload._schema.arguments, args, strict=True)}
    call = _arguments(overload._schema, named)
    assert call is not None
    return overload, *call


def _native(op: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Call | None:
    number, values, out = dispatch.bound(op, args, kwargs)
    if out is not None:
        return None
    program = program_of(op, number)
    if op.__name__ in _CASTS and len(values) == 1:
        dtype = getattr(torch, _CASTS[op.__name__])
        return aten.__getattr__("to").dtype, (values[0], dtype), {}
    func = aten.overload_of(program.op, program.arguments, values)
    named = {a.name: value for a, value in zip(program.arguments, values, strict=True)}
    named = {k: v for k, v in named.items() if k not in _SILENT or v != _SILENT[k]}
    name = _OPERATORS.get(func._opname, func._opname)
    entry = aten_schemas.entry(name, func._overloadname)
    if entry is None:
        return _of_names(name, named) if name and aten_schemas.is_listed(name) else None
    if entry.is_out or entry.scripted:
        return None
    schema = aten_schemas.read(entry)
    many = len(schema.returns) > 1 or any(x.type.endswith("]") for x in schema.returns)
    if many != dispatch._is_many(program):
        return None  # an operator of another number of results
    call = _arguments(schema, named)
    if call is None:
        return func, *dispatch._arguments(program, values)
    if not _fits(schema, call) and name not in aten._WRAPPED_NUMBERS:
        texts = any(isinstance(x, str) for x in call[0])
        return _of_names(name, named) or (None if texts else (func, *call))
    return getattr(aten.__getattr__(name), entry.overload), *call


def _einsum(args: tuple[Value, ...]) -> Call | None:
    if not args or not isinstance(args[0], str):
        return None
    operands = args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    return aten.__getattr__("einsum").default, (args[0], list(operands)), {}


def _of_names(name: str, values: Mapping[str, Value]) -> Call | None:
    """The first overload of an operator with arguments of these names."""
    values = {k: v for k, v in values.items() if k not in _SILENT or v != _SILENT[k]}
    for entry in aten_schemas.entries(name).values():
        if entry.is_out or entry.scripted or entry.overload.startswith("Dimname"):
            continue
        schema = aten_schemas.read(entry)
        call = _arguments(schema, values)
        if call is not None and _fits(schema, call):
            return getattr(aten.__getattr__(name), entry.overload), *call
    return None


def _fits(schema: Value, call: tuple[Sequence[Value], Value]) -> bool:
    """Whether values have the kinds that a schema names."""
    for argument, value in zip(schema.arguments, call[0], strict=False):
        tensor = argument.type.removesuffix("?") == "Tensor"
        if isinstance(value, str) and not argument.type.startswith("str"):
            return False
        if value is None:
            if not argument.type.endswith("?"):
                return False
        elif tensor != isinstance(value, torch.Tensor):
            return False
        elif argument.type == "str" and not isinstance(value, str):
            return False
    return True


def _arguments(
    schema: Value, values: Mapping[str, Value]
) -> tuple[tuple[Value, ...], dict[str, Value]] | None:
    """Arguments of a schema without those at the end that are the default; None: they misfit."""
    names = [a.name for a in schema.arguments]
    renamed = {_name(k, names): v for k, v in values.items()}
    positional: list[Value] = []
    named: dict[str, Value] = {}
    count = 0
    for argument in schema.arguments:
        default = argument.default_value if argument.has_default_value() else NotImplemented
        value = renamed.pop(argument.name, _FILLED.get(argument.name, default))
        if value is NotImplemented:
            return None
        value, default = (_of_kind(argument, x) for x in (value, default))
        plain = value is default or (type(value) is type(default) and _equal(value, default))
        if not argument.kwarg_only:
            positional.append(value)
            count = count if plain else len(positional)
        elif not plain:
            named[argument.name] = value
    if any(value is not None for value in renamed.values()):
        return None
    return tuple(positional[:count]), named


def _equal(value: Value, default: Value) -> bool:
    plain = (bool, int, float, str)
    if isinstance(value, list):
        return len(value) == len(default) and all(map(_equal, value, default))
    return isinstance(value, plain) and type(value) is type(default) and value == default


def _of_kind(argument: Value, value: Value) -> Value:
    """A value as the schema has it: a list of sizes where that is one, a number for a name."""
    kind = argument.type.removesuffix("?")
    if kind.endswith("]") and value is not NotImplemented and value is not None:
        if isinstance(value, tuple):
            value = list(value)
        count = kind.rpartition("[")[2][:-1]
        single = value[0] if isinstance(value, list) and len(value) == 1 else value
        if count.isdigit() and (isinstance(single, int | float) or is_symbolic(single)):
            return [single] * int(count)
        return [value] if isinstance(value, int) or is_symbolic(value) else value
    if argument.name == "reduction" and isinstance(value, str):
        return _REDUCTIONS.get(value, value)
    return value


def _name(name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    return next((other for other in _NAMES.get(name, ()) if other in names), name)
