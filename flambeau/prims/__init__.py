"""The primitives: typed constructor functions, and the helpers op bodies are written with.

Constructors are strict (equal dtypes, equal shapes); node operators (`a + b`) broadcast and take
Python numbers. Records are in `flambeau.prims.record.PRIMITIVES`, one module per kind.
"""

from flambeau.prims.annotation import register_rule, stop_gradient, with_derivative
from flambeau.prims.create import (
    contiguous_strides,
    full,
    full_like,
    input_node,
    iota,
    scalar_node,
    size,
    zeros_like,
)
from flambeau.prims.helpers import (
    broadcast_all,
    broadcast_shapes,
    broadcast_to,
    constant,
    install_operators,
    squeeze,
    sum_to_shape,
    transpose,
    unsqueeze,
)
from flambeau.prims.index import check_index, gather, index_nd, take
from flambeau.prims.pointwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitcast,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    ceil,
    complex,
    conj,
    copysign,
    cos,
    cosh,
    digamma,
    div,
    eq,
    erf,
    erfc,
    erfinv,
    exp,
    exp2,
    expm1,
    floor,
    floor_div,
    fmod,
    ge,
    gt,
    imag,
    isinf,
    isnan,
    le,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    neg,
    nextafter,
    pow,
    real,
    remainder,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    sub,
    tan,
    tanh,
    trigamma,
    trunc,
    where,
)
from flambeau.prims.random import random
from flambeau.prims.record import NOT_DIFFERENTIABLE, PRIMITIVES, Primitive, bind
from flambeau.prims.reduce import all_ as all
from flambeau.prims.reduce import any_ as any
from flambeau.prims.reduce import argmax, argmin, reduce_dims, spread, sum
from flambeau.prims.reduce import max_ as max
from flambeau.prims.reduce import min_ as min
from flambeau.prims.reduce import prod_ as prod
from flambeau.prims.routine import matmul, sort
from flambeau.prims.scan import cummax, cummin, cumprod, cumsum, extreme_index, linear_scan
from flambeau.prims.scatter import put_nd, scatter, take_add
from flambeau.prims.shape import (
    Read,
    as_strided,
    broadcast,
    cat,
    dilate,
    flip,
    overlap_add,
    pad,
    permute,
    reshape,
    slice,
    windows,
)

install_operators()
