"""Sizes of results as symbols: the operator's own program says them.

A call runs on the sizes of the example. Its program, traced as the compiler traces it, has the
sizes of its results in terms of the call's numbers; there the symbols of the operands are put in.
A condition that the program needs of its sizes becomes a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau._subclasses.traced_tensor import Geometry, TracedTensor, geometry_of
from flambeau.autograd.transforms.programs import program_of
from flambeau.decompositions import names
from flambeau.decompositions.inner import Inner
from flambeau.decompositions.programs import described
from flambeau.driver.specify import ABSENT, Specification
from flambeau.ir.failure import failure
from flambeau.ir.node import GraphOutput
from flambeau.ir.size import Size, SizeExpr, substitute
from flambeau.ir.size_program import substitute_condition
from flambeau.language.definition import REGISTRY
from flambeau.language.layout import contiguous_strides
from flambeau.ops import aten
from flambeau.runtime.symbolic import SymInt, is_symbolic, lowered, raised
from flambeau.utils import _python_dispatch
from flambeau.utils import _pytree as pytree

__all__ = ["Answering", "annotate", "compose", "registers_of", "special"]

Value = Any  # an argument or a result of an operator


class OverFakes(_python_dispatch.TorchDispatchMode):
    """A mode that gets operators on fakes in place of the fakes' class."""

    def __enter__(self) -> Value:
        self._types = _core.set_torch_function_enabled(False)  # of fakes, which come here instead
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        _core.set_torch_function_enabled(self._types)


class Answering(OverFakes):
    """A `with` block whose operators run on tensors without data.

    Args:
        fakes: the mode of these tensors.
    """

    def __init__(self, fakes: Value) -> None:
        super().__init__()
        self._fakes = fakes

    def __torch_dispatch__(
        self, func: Value, types: Value, args: tuple[Value, ...] = (), kwargs: Value = None
    ) -> Value:
        """Computes the geometry of an operator's results."""
        function = func.overloadpacket._function
        return fake_calls.answer(self._fakes, function, args, kwargs or {})


def annotate(mode: Value, func: Value, args: Value, kwargs: Value, result: Value) -> None:
    """Gives results the sizes that symbols say.

    Args:
        mode: of the fake tensors.
        func: the operator.
        args, kwargs: its arguments, with symbolic numbers as `lowered` gives them.
        result: what it gave.
    """
    results = [x for x in pytree.tree_leaves(result) if type(x) is TracedTensor]
    operands = pytree.tree_leaves((args, kwargs))
    symbolic = [x for x in operands if _is_symbolic(x)]
    results = [x for x in results if not any(x is y for y in operands)]
    if not results or not symbolic:
        return
    outputs = _outputs(mode.shape_env, func, args, kwargs)
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, _core.Tensor)]
    if outputs is None or len(outputs) != len(tensors):
        specialise(mode.shape_env, symbolic)
        return
    for tensor, geometry in zip(tensors, outputs, strict=True):
        if geometry is not None and any(tensor is x for x in results):
            attach(tensor, geometry)


def inherit(mode: Value, func: Value, args: Value, kwargs: Value, result: Value) -> None:
    """Gives results of a function without a program the sizes of an operand of the same geometry.

    Otherwise sizes are those of the example, which becomes a guard.
    """
    operands = pytree.tree_leaves((args, kwargs))
    symbolic = [x for x in operands if _is_symbolic(x)]
    tensors = [x for x in operands if isinstance(x, _core.Tensor)]
    for tensor in pytree.tree_leaves(result):
        plain = type(tensor) is not TracedTensor or tensor.geometry is not None
        if plain or not tensor.ndim or not symbolic or tuple(tensor.shape) == (0,):
            continue  # (0,): what batch_norm in eval mode does not compute
        alike = list({geometry_of(x): x for x in tensors if _alike(x, tensor)})
        if len(alike) == 1:
            attach(tensor, alike[0])
        else:
            specialise(mode.shape_env, symbolic)


def _alike(one: Value, other: Value) -> bool:
    with fake_calls.below():
        return (one.shape, one.stride(), one.storage_offset(), one.dtype) == (
            other.shape, other.stride(), other.storage_offset(), other.dtype,
        )  # fmt: skip


def attach(tensor: Value, geometry: Geometry) -> None:
    """Gives a tensor sizes, where these are no numbers."""
    parts = (*geometry.sizes, *geometry.strides, geometry.offset)
    if any(isinstance(x, SizeExpr) for x in parts):
        tensor.__dict__["geometry"] = geometry
        for extent in geometry.sizes:
            geometry.env.use(extent)


def _is_symbolic(value: Value) -> bool:
    if isinstance(value, _core.Tensor):
        return value.__dict__.get("geometry") is not None
    return is_symbolic(value) or raised(value) is not value


def specialise(env: Value, values: Sequence[Value]) -> None:
    """Guards that sizes are those of the example."""
    for value in values:
        if isinstance(value, _core.Tensor):
            for extent in geometry_of(value).sizes:
                env.guard_value(extent)
        else:
            env.guard_value(raised(value).node.expr)


def _outputs(env: Value, func: Value, args: Value, kwargs: Value) -> list[Geometry | None] | None:
    """The geometry of each result; None: nothing says it."""
    number, values, out = func.bind(args, kwargs)
    program = program_of(func, number)
    if out is not None or program.host or not hasattr(program.build, "__self__"):
        return None
    call = described(program, values)
    with _core.no_grad():
        specification = program.source.specify(call)
    registers = registers_of(env, program, values)
    graph = specification.graph
    if len(registers) != len(graph.symbols):
        return None
    sizes = dict(zip(graph.symbols, registers, strict=True))
    for guard in graph.guards:
        env.assume(substitute_condition(guard, sizes))
    return _placed(env, specification, sizes)


def _placed(
    env: Value, specification: Specification, sizes: dict[str, Size]
) -> list[Geometry | None]:
    graph = specification.graph
    outputs = [x for x in graph.outputs[: graph.visible] if x.node is not ABSENT]
    return [_geometry(env, output, sizes) for output in outputs]


def _geometry(env: Value, output: GraphOutput, sizes: dict[str, Size]) -> Geometry | None:
    if output.target is not None or output.strides is None:
        return None  # an operand
    return Geometry(
        tuple([env.resolve(substitute(x, sizes)) for x in output.node.shape]),
        tuple([env.resolve(substitute(x, sizes)) for x in output.strides]),
        env.resolve(substitute(output.offset, sizes)),
        env,
    )


def registers_of(env: Value, program: Value, values: Sequence[Value]) -> list[Size]:
    """The call's numbers in the order in which its program has them."""
    registers: list[Size] = []
    for tensor in pytree.tree_leaves(list(values)):
        if isinstance(tensor, _core.Tensor):
            geometry = geometry_of(tensor)
            registers += [_told_apart(env, x) for x in (*geometry.sizes, *geometry.strides)]
            registers.append(geometry.offset)
    for argument, value in zip(program.arguments, values, strict=True):
        numbers = [x for x in pytree.tree_leaves([value]) if type(x) is not bool]
        if argument.kind.startswith("SymInt"):
            registers += [_size(x) for x in numbers if isinstance(x, int)]
        elif not argument.runtime and argument.kind != "Scalar":
            for x in numbers:
                if raised(x) is not x:
                    env.guard_value(raised(x).node.expr)
    return registers


def _told_apart(env: Value, value: Size) -> Size:
    """A size or stride; those of 0 and 1 in the example are numbers in the call's program."""
    small = isinstance(value, SizeExpr) and env.value(value, True) in (0, 1)
    return int(env.guard_value(value)) if small else value


def _size(number: int) -> Size:
    symbolic = raised(number)
    if not is_symbolic(symbolic):
        return number
    expression: Size = symbolic.node.expr
    return expression


# ------------------------------------------------------------------------------ composed
def compose(mode: Value, func: Value, args: Value, kwargs: Value) -> Value:
    """The result of an operator that calls others; NotImplemented: it calls none.

    Args:
        mode: of the fake tensors.
        func: the operator.
        args, kwargs: its arguments.
    """
    if isinstance(func, Inner):
        _, values, _ = func.bind(args, kwargs)
        with mode:
            result = func.run(*values)
        if (
            func.__name__ not in names.HOSTED
        ):  # the operators that it calls have sizes; gradients lose their type
            return pytree.tree_map(lambda x: _faked(mode, func, args, kwargs, x), result)
    elif fake_calls.is_hosted(func):
        with mode:
            result = aten.definition_of(func).overloads[0].body(*args, **kwargs)
    else:
        result = _hosted(mode, func, args, kwargs)
        if result is NotImplemented:
            return result
    inherit(mode, func, args, kwargs, result)
    return result


def _faked(mode: Value, func: Value, args: Value, kwargs: Value, value: Value) -> Value:
    """A fake tensor in place of one that the engine made."""
    if not isinstance(value, _core.Tensor) or isinstance(value, FakeTensor):
        return value
    place = fake_calls.common_device(func, pytree.tree_leaves((args, kwargs)))
    fake = fake_calls.adopted(mode, value, place)
    inherit(mode, func, args, kwargs, fake)
    return fake


def _hosted(mode: Value, func: Value, args: Value, kwargs: Value) -> Value:
    """The result of an overload in Python."""
    if not isinstance(func, _core.Op) or "out" in kwargs:
        return NotImplemented
    number, values, _ = _python_dispatch.bound(func, args, kwargs)
    program = program_of(func, number)
    if not program.host:
        return NotImplemented
    positional, named = _python_dispatch._arguments(program, values, every=True)
    with mode:
        return program.build(*positional, **named)


# ------------------------------------------------------------------------------ sizes of data
def special(mode: Value, name: str, args: Value, kwargs: Value) -> Value:
    """The result of an operator whose sizes are arguments or data; NotImplemented: no such one.

    Args:
        mode: of the fake tensors.
        name: the operator's.
        args, kwargs: its arguments.
    """
    if name in _RESHAPED and args and _is_symbolic(args[0]):
        return _reshaped(mode, name, args, kwargs)
    rule = _SPECIAL.get(name)
    return NotImplemented if rule is None else rule(mode, *args, **kwargs)


_RESHAPED = ("t_", "transpose_", "squeeze_", "unsqueeze_", "swapdims_", "swapaxes_",
             "data.__set__")  # fmt: skip


def _reshaped(mode: Value, name: str, args: Value, kwargs: Value) -> Value:
    """A call that changes the sizes of its tensor: they are those of the view it becomes."""
    if name == "data.__set__":
        problem = "`x.data = y` changes sizes that are symbols"
        raise failure(NotImplementedError, "make_fx", problem, "compute a new tensor")
    view = getattr(_core.Tensor, name.removesuffix("_"))
    geometry = geometry_of(fake_calls.answer(mode, view, args, kwargs))
    with fake_calls.below():
        result = getattr(_core.Tensor, name)(*lowered(args), **lowered(kwargs))
    result.__dict__["geometry"] = geometry
    return result


def made(
    mode: Value, sizes: Sequence[Value], dtype: Value, device: Value,
    strides: Sequence[Value] | None = None,
) -> Value:  # fmt: skip
    """A new tensor of symbolic sizes."""
    expressions = tuple([x.node.expr if isinstance(x, SymInt) else int(x) for x in sizes])
    steps: Sequence[Size] = contiguous_strides(expressions)
    if strides is not None:
        steps = [x.node.expr if isinstance(x, SymInt) else int(x) for x in strides]
    with fake_calls.below():
        hollow = _core.tensor_empty_strided(
            tuple(map(int, lowered(tuple(sizes)))),
            tuple([_example(mode.shape_env, x) for x in steps]),
            dtype or _core.get_default_dtype(), "meta",
        )  # fmt: skip
    place = _core.get_default_device() if device is None else fake_calls.indexed(device)
    fake = fake_calls.adopted(mode, hollow, place)
    attach(fake, Geometry(expressions, tuple(steps), 0, mode.shape_env))
    return fake


def snapshot(tensor: Value) -> Value:
    """A tensor of the same sizes that nothing else writes or reshapes."""
    geometry = geometry_of(tensor)
    with fake_calls.below():
        hollow = _core.tensor_empty_strided(
            tuple(tensor.shape), tensor.stride(), tensor.dtype, "meta"
        )
    fake = fake_calls.adopted(tensor.fake_mode, hollow, tensor.fake_device)
    attach(fake, geometry)
    return fake


def _place(tensor: Value) -> Value:
    """Where a tensor pretends to be; a gradient on its way knows of no such place."""
    return tensor.fake_device if isinstance(tensor, FakeTensor) else _core.get_default_device()


def _example(env: Value, value: Size) -> int:
    return value if isinstance(value, int) else int(env.value(value, True))


def _sizes(size: Value) -> tuple[Value, ...]:
    if len(size) == 1 and isinstance(size[0], (list, tuple)):
        return tuple(size[0])
    return tuple(size)


def _empty(
    mode: Value, *sizes: Value, size: Value = None, dtype: Value = None, device: Value = None,
    **options: Value,
) -> Value:  # fmt: skip
    return made(mode, _sizes(sizes if size is None else (size,)), dtype, device)


def _empty_like(
    mode: Value, tensor: Value, dtype: Value = None, device: Value = None, **options: Value
) -> Value:
    dense = tensor.is_contiguous()
    return made(
        mode, tensor.shape, dtype or tensor.dtype, device or _place(tensor),
        None if dense else tensor.stride(),
    )  # fmt: skip


def _new_empty(
    mode: Value, tensor: Value, *sizes: Value, size: Value = None, dtype: Value = None,
    device: Value = None, **options: Value,
) -> Value:  # fmt: skip
    shape = _sizes(sizes if size is None else (size,))
    return made(mode, shape, dtype or tensor.dtype, device or _place(tensor))


def _slice(
    mode: Value, tensor: Value, dim: int = 0, start: Value = None, end: Value = None,
    step: Value = 1,
) -> Value:  # fmt: skip
    """A slice whose symbolic ends count from the front."""
    extent = tensor.shape[dim]
    ends = [extent + x if isinstance(x, SymInt) and bool(x < 0) else x for x in (start, end)]
    operands = (tensor, dim, *ends, step)
    return fake_calls.run(mode, REGISTRY["slice"].native, operands, {})


def _counted(mode: Value) -> SymInt:
    count: SymInt = mode.shape_env.create_unbacked_size()
    return count


def _nonzero(mode: Value, tensor: Value, as_tuple: bool = False) -> Value:
    if as_tuple:
        return NotImplemented
    return made(mode, (_counted(mode), tensor.ndim), _core.int64, _place(tensor))


def _masked_select(mode: Value, tensor: Value, mask: Value) -> Value:
    return made(mode, (_counted(mode),), tensor.dtype, _place(tensor))


def _index(mode: Value, tensor: Value, indices: Sequence[Value]) -> Value:
    """`x[mask]` and its like: a mask is one index per dimension."""
    places: list[Value] = []
    for index in indices:
        mask = index is not None and index.dtype in (_core.bool, _core.uint8)
        if mask:
            count = _counted(mode)
            places += [made(mode, (count,), _core.int64, _place(index)) for _ in range(index.ndim)]
        else:
            places.append(index)
    return fake_calls.run(mode, REGISTRY["index"].native, (tensor, places), {})


def _unique(
    mode: Value, tensor: Value, sorted: bool = True, return_inverse: bool = False,  # noqa: A002
    return_counts: bool = False, dim: int | None = None,
) -> Value:  # fmt: skip
    count, shape = _counted(mode), list(tensor.shape)
    inverse = tensor.shape
    if dim is None:
        shape = [count]
    else:
        inverse = [shape[dim]]
        shape[dim] = count
    results = [made(mode, shape, tensor.dtype, _place(tensor))]
    if return_inverse:
        results.append(made(mode, inverse, _core.int64, _place(tensor)))
    if return_counts:
        results.append(made(mode, [count], _core.int64, _place(tensor)))
    return results[0] if len(results) == 1 else tuple(results)


def _unique2(
    mode: Value,
    tensor: Value,
    sorted: bool = True,
    inverse: bool = False,
    counts: bool = False,  # noqa: A002
) -> Value:
    results = iter(pytree.tree_leaves(_unique(mode, tensor, sorted, inverse, counts)))
    empty = made(mode, (0,), _core.int64, _place(tensor))
    return tuple([next(results) if shown else empty for shown in (True, inverse, counts)])


def _arange(mode: Value, *numbers: Value, **options: Value) -> Value:
    """A range whose ends are symbolic integers."""
    values = [*numbers] + [options.pop(k) for k in ("start", "end", "step") if k in options]
    if not all(isinstance(x, (int, SymInt)) for x in values):
        return NotImplemented
    if not any(isinstance(x, SymInt) for x in values):
        return NotImplemented
    start, end, step = {1: (0, *values, 1), 2: (*values, 1), 3: tuple(values)}[len(values)]
    count = end - start if step == 1 else -(-(end - start) // step)
    return made(mode, (count,), options.get("dtype") or _core.int64, options.get("device"))


_SPECIAL: dict[str, Callable[..., Value]] = {
    "empty": _empty, "empty_like": _empty_like, "new_empty": _new_empty, "nonzero": _nonzero,
    "masked_select": _masked_select, "index": _index, "unique": _unique, "_unique2": _unique2,
    "arange": _arange, "slice": _slice,
}  # fmt: skip
