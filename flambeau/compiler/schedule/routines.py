"""Launches of opaque values: native routines, whose operands are listed in the table of
`native/routines/routines.cpp`, and kernels of form "template".

Linear algebra and Fourier transforms are of the same kind; all operands and results are dense,
batches of row-major matrices, and all results are written whether used or not:

    name                   p (buffers)                               n (sizes)
    solve_<t>              a, b, out                                 batch, N, columns of b
    triangular_solve_<t>   a, b, out                    batch, N, columns, upper, adjointed, unit
    cholesky_<t>           a, factor, info(i32)                      batch, N
    lu_<t>                 a, packed, pivots(i32), order(i64), info(i32)   batch, M, N
    qr_<t>                 a, q, r                                   batch, M, N, complete
    geqrf_<t>              a, packed, tau                            batch, M, N
    ldl_<t>                a, packed, pivots(i32), info(i32)         batch, N, hermitian
    ldl_solve_<t>          packed, pivots, b, out        batch, N, N, columns of b, hermitian
    eigh_<t>, eig_<t>      a, values, vectors                        batch, N
    eigvalsh_<t>, eigvals_<t>   a, values                            batch, N
    svd_<t>                a, u, s, vh                               batch, M, N, full
    svdvals_<t>            a, s                                      batch, M, N
    least_squares_<t>      a, b, out, rank(i64), values    batch, M, N, columns of b, driver; rcond
    reflect_<t>            packed, tau, x, out   batch, M, N, length of tau, columns of x, adjointed
    pivot_order_i32        pivots, order(i64)                        batch, length of pivots, rows
    complex_product_<c64|c128>  x, out                               batch, length of x
    fft_<c64|c128>         x, out    outer, length, inner, inverse; factor of the results
    real_fft_<f32|f64>     x, out    outer, length, inner, inverse, whole; factor of the results
    half_fft_<c64|c128>    x, out    outer, length of out, inner, inverse; factor of the results
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.compiler.schedule import convolution
from flambeau.compiler.schedule.attention import attention, attention_backward
from flambeau.compiler.schedule.build import Memory, Place, Scalar
from flambeau.compiler.schedule.calls import Reads, RoutineCall
from flambeau.compiler.schedule.candidates import DEFAULT
from flambeau.compiler.schedule.prepare import number_of, routine_of
from flambeau.compiler.schedule.template_calls import template_call
from flambeau.compiler.templates import TEMPLATES
from flambeau.ir.dtypes import TABLE, UNSIGNED
from flambeau.ir.geometry import Shape, count
from flambeau.ir.node import ITEM_SIZE, Node, node
from flambeau.ir.size import mul, prod
from flambeau.prims.linear_algebra import DRIVERS
from flambeau.prims.linear_references import RESULTS
from flambeau.prims.random import EACH, INTEGERS, PLACE_ROWS
from flambeau.prims.record import PRIMITIVES, record_of
from flambeau.prims.routine import TIES


def routine_calls(values: list[Node], reads: Reads, choice: str = DEFAULT) -> list[RoutineCall]:
    """The launches, in order, that compute opaque values (several values only for the results of
    one routine); `choice` names one of the candidates of those that have some."""
    value = values[0]
    handler = HANDLERS.get(value.op)
    template = TEMPLATES.get(routine_of(value).name)
    if handler is None and template is not None:
        return [template_call(template, values, reads)]
    if handler is None and routine_of(value).arguments is not None:
        return [_declared(value, reads)]
    if handler is None:
        raise NotImplementedError(
            f"[{value.op}] has no native routine for {value.dtype}\n"
            "hint: express it with other primitives"
        )
    calls = handler(values, reads) if choice == DEFAULT else handler(values, reads, choice)
    return calls if isinstance(calls, list) else [calls]


def _declared(value: Node, reads: Reads) -> RoutineCall:
    """A launch whose arguments the record of its primitive states."""
    state = routine_of(value).arguments
    assert state is not None
    arguments = state(value)
    call = RoutineCall(arguments.function)
    if arguments.result_first:
        _result(call, value, reads)
    for number in range(len(value.inputs)):
        _operand(call, value, number, reads, number)
    if not arguments.result_first:
        _result(call, value, reads)
    call.sizes, call.work = list(arguments.sizes), arguments.work
    call.scalars = [("constant", scalar, True) for scalar in arguments.scalars]
    return call


def _operand(call: RoutineCall, value: Node, number: int, reads: Reads, view: int) -> Shape:
    """Adds operand `number`; returns the strides with which the routine sees it."""
    operand = value.inputs[number]
    place = reads(operand)
    strides: Shape
    strides, offset = value.attribute("views")[view]
    call.add(place.memory, mul(offset + place.offset, ITEM_SIZE[operand.dtype]))
    return strides


def _result(call: RoutineCall, value: Node, reads: Reads) -> Place:
    place = reads(value)
    call.add(place.memory, mul(place.offset, ITEM_SIZE[value.dtype]))
    return place


def _sort(values: list[Node], reads: Reads) -> RoutineCall:
    first = values[0]
    by_op = {v.op: v for v in values}
    sorted_values, indices = by_op.get("sort"), by_op.get("sort_indices")
    operand = first.inputs[0]
    call = RoutineCall(("argsort_" if sorted_values is None else "sort_") + operand.dtype)
    _operand(call, first, 0, reads, 0)
    if sorted_values is not None:
        _result(call, sorted_values, reads)
    if indices is not None:
        _result(call, indices, reads)
    else:  # the routine writes them all the same
        unused = node("s.unused", (), (("of", first),), "i64", first.shape)
        call.add(("temporary", unused))
    call.sizes = [count(first.shape[:-1]), first.shape[-1], int(first.attribute("descending"))]
    call.work = mul(count(first.shape), 20)
    return call


def _select(values: list[Node], reads: Reads) -> RoutineCall:
    """The elements of a range of positions of a sorted row, without sorting the others."""
    value = values[0]
    operand = value.inputs[0]
    call = RoutineCall(f"select_{operand.dtype}")
    _operand(call, value, 0, reads, 0)
    for result in ("values", "places"):
        output = next((v for v in values if v.attribute("result") == result), None)
        if output is None:
            call.add(("temporary", _unused_result(value, result)))
        else:
            _result(call, output, reads)
    [shape] = value.attribute("shapes")
    first, chosen = value.attribute("first"), value.attribute("count")
    order = [int(value.attribute("descending")), TIES.index(value.attribute("ties"))]
    call.sizes = [count(shape[:-1]), shape[-1], first, chosen, *order]
    call.work = mul(count(shape), 2)
    return call


def _of_same_bits(mode: str, dtype: str) -> str:
    """The dtype whose routine does the same to memory: writing moves bits, integers wrap."""
    if TABLE[dtype].plain or not (mode == "set" or (mode == "add" and dtype in UNSIGNED)):
        return dtype
    return {1: "u8", 2: "i16", 4: "i32", 8: "i64"}[TABLE[dtype].size]


def _scatter(values: list[Node], reads: Reads) -> RoutineCall:
    value = values[0]
    _, index, source = value.inputs
    mode = value.attribute("mode")
    call = RoutineCall(f"scatter_{mode}_{_of_same_bits(mode, value.dtype)}")
    place = _result(call, value, reads)
    strides_index = _operand(call, value, 1, reads, 0)
    strides_source = _operand(call, value, 2, reads, 1)
    shape = value.attribute("places")
    call.sizes = [value.ndim, value.attribute("axis"), *shape, *place.strides]
    call.sizes += [*strides_index, *strides_source]
    call.sizes.append(value.shape[value.attribute("axis")] if value.ndim else 1)
    call.work = mul(count(shape), 2)
    return call


def _put(values: list[Node], reads: Reads) -> RoutineCall:
    value = values[0]
    mode = value.attribute("mode", "add")
    dims = value.attribute("dims", (value.attribute("axis"),))
    source = len(value.inputs) - 1
    kind = "put" if "dims" in dict(value.attributes) else "take"
    call = RoutineCall(f"{kind}_{mode}_{_of_same_bits(mode, value.dtype)}")
    _result(call, value, reads)
    for number in (source, *(i for i in range(1, len(value.inputs)) if i != source)):
        _operand(call, value, number, reads, number - 1)
    outer, inner = count(value.shape[: dims[0]]), count(value.shape[dims[-1] + 1 :])
    places = count(value.attribute("places"))
    call.sizes = [places, outer, inner, len(dims), *(value.shape[d] for d in dims)]
    call.work = mul(prod((outer, places, inner)), 2)
    return call


_FLAGS = ("upper", "adjointed", "unit", "complete", "full_matrices", "hermitian")


def _linear_algebra(values: list[Node], reads: Reads) -> RoutineCall:
    value = values[0]
    shapes: tuple[Shape, ...] = value.attribute("shapes")
    call = RoutineCall(f"{value.op}_{value.inputs[0].dtype}")
    for number in range(len(value.inputs)):
        _operand(call, value, number, reads, number)
    for name in RESULTS.get(value.op, ("",)):
        output = next((v for v in values if v.attribute("result", "") == name), None)
        if output is None:
            call.add(("temporary", _unused_result(value, name)))
        else:
            _result(call, output, reads)
    rows, columns = shapes[0][-2:]
    square = routine_of(value).square
    call.sizes = [count(shapes[0][:-2]), rows, *(() if square else (columns,))]
    call.sizes.extend(shape[-1] for shape in shapes[1:])
    options: dict[str, Any] = dict(value.attributes)
    call.sizes.extend(int(options[flag]) for flag in _FLAGS if flag in options)
    if "driver" in options:
        call.sizes.append(DRIVERS.index(options["driver"]))
        call.scalars = [("constant", options["rcond"], True)]
    call.work = prod((count(shapes[0]), columns))
    return call


def _unused_result(value: Node, name: str) -> Node:
    """Represents an unread result: memory that the routine writes all the same."""
    operands = tuple(
        node("s.like", (), (), operand.dtype, shape)
        for operand, shape in zip(value.inputs, value.attribute("shapes"))
    )
    constants = dict(value.attributes) | {"result": name}
    dtype, shape = PRIMITIVES[value.op].infer(operands, constants)
    return node("s.unused", (), (("of", value), ("result", name)), dtype, shape)


_DISTRIBUTIONS = {
    "uniform": "random_uniform_{}",
    "normal": "random_normal_{}",
    "exponential": "random_exponential_{}",
    "cauchy": "random_cauchy_{}",
    "log_normal": "random_log_normal_{}",
    "geometric": "random_geometric_{}",
    "bernoulli": "random_bernoulli_{}",
    "integers": "random_randint_{}",
    "integers_from": "random_from_{}",
    "any_integer": "random_full_{}",
    "normal_sequential": "random_normal_sequential_{}",
    "poisson": "random_poisson_{}",
    "binomial": "random_binomial_{}",
    "standard_gamma": "random_standard_gamma_{}",
    "permutation": "randperm",
}


def _places(values: list[Node], reads: Reads) -> RoutineCall:
    """Draws of which only positions are saved, or draws from saved positions."""
    value = values[0]
    again = record_of(value).kind != "random"
    call = RoutineCall("kept_elements" if again else "random_places")
    _result(call, value, reads)
    if again:
        _operand(call, value, 0, reads, 0)
        call.scalars = [("constant", float(value.attribute("kept")), True)]
    else:
        call.add(("generator", value.attribute("generator")))
    draws = value.attribute("draws")
    call.sizes = [count(value.shape[:-2]), *draws, PLACE_ROWS]
    call.work = mul(count(value.shape[:-2]), prod(draws))
    return call


def _random(values: list[Node], reads: Reads) -> RoutineCall:
    value = values[0]
    distribution = value.attribute("distribution")
    if distribution == "places":
        return _places(values, reads)
    if distribution == "bernoulli_each":
        call = RoutineCall(f"random_bernoulli_from_{value.inputs[0].dtype}_{value.dtype}")
    elif distribution in _DISTRIBUTIONS:
        call = RoutineCall(_DISTRIBUTIONS[distribution].format(value.dtype))
    else:
        raise NotImplementedError(
            f"[random] no routine draws {distribution}\nhint: transform another distribution"
        )
    _result(call, value, reads)
    call.add(("generator", value.attribute("generator")))
    if distribution in EACH:
        for place in range(len(value.inputs)):
            _operand(call, value, place, reads, place)
    else:
        call.scalars = [_scalar(x, distribution not in INTEGERS) for x in value.inputs]
    call.sizes = [count(value.shape)]
    call.work = mul(count(value.shape), 4)
    return call


def _scalar(value: Node, as_float: bool) -> Scalar:
    """A scalar argument of a routine: a number, or a run-time number of the call."""
    leaf = number_of(value)
    if leaf is None:
        raise NotImplementedError(
            f"[random] a parameter is computed from tensors ({value!r})\n"
            "hint: pass numbers, or draw standard numbers and transform them"
        )
    if leaf.is_scalar:
        return "argument", leaf.attribute("slot"), as_float
    number = -leaf.inputs[0].attribute("value") if leaf.inputs else leaf.attribute("value")
    return "constant", float(number) if as_float else int(number), as_float


HANDLERS: dict[str, Callable[..., RoutineCall | list[RoutineCall]]] = {
    "attention": attention,
    "attention_backward": attention_backward,
    "convolution_input": convolution.places,
    "convolution_weight": convolution.weight,
    "sort": _sort,
    "sort_indices": _sort,
    "select": _select,
    "scatter": _scatter,
    "put_nd": _put,
    "take_add": _put,
    "random": _random,
    "kept_elements": _places,
    **dict.fromkeys(
        ("solve", "triangular_solve", "ldl_solve", "reflect", *RESULTS), _linear_algebra
    ),
}

__all__ = ["Memory", "RoutineCall", "routine_calls"]
