"""Scaled dot-product attention (Vaswani et al. 2017) as primitives that no kernel has to spell out.

    attention           operands query [B, H, L, E], key [B, K, S, E], value [B, K, S, V] and, if
                        any, mask [B, H, L, S] (bool: True attends; or added to the scores); K
                        divides H. Attributes scale, causal ("none", "upper": query i sees keys
                        0..i, "lower": 0..i + S - L). Results: "out" [B, H, L, V], and [B, H, L]:
                        "top", the largest score of a query, -inf where it sees nothing; "sum",
                        that of exp(score - top); "lse", top + log(sum), +inf where it sees nothing.
                        With attribute `kept`, each weight survives dropout with this probability
                        and is divided by it, the others are 0. The last operand holds states of the
                        generator (`random_places`) to recompute the draws, [B, H, L, S].
    attention_backward  operands grad [B, H, L, V], query, key, value, out, top, sum and, if any,
                        mask and states; results "query", "key", "value": their gradients.

A query that sees no key gives zeros. Half types compute in f32, and so do top, sum and lse. The
matrix of weights is never stored: the backward computes it again from top and sum (Dao et al. 2022;
from lse alone, one rounded number, weights would be less exact than PyTorch's). The gradients of
top, of sum, of a mask and of the backward itself, which few programs need, are formulas in
primitives and do store it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.ir.environment import same_shape, same_size
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, known_equal
from flambeau.prims import pointwise, reduce, shape
from flambeau.prims.common import FLOATS, Gradients, Type, check_count, check_dtype, show
from flambeau.prims.create import full, full_like, iota, zeros_like
from flambeau.prims.random import kept_elements, numpy_kept, sample_place
from flambeau.prims.record import (
    Addressing,
    Batched,
    Primitive,
    Routine,
    any_strides,
    bind,
    register,
)
from flambeau.prims.routine import matmul

RESULTS = {
    "attention": ("out", "top", "sum", "lse"),
    "attention_backward": ("query", "key", "value"),
}
Samples = Iterator[tuple[list[Any], dict[str, Any]]]


def compute_dtype(dtype: str) -> str:
    """The dtype that scores and sums have."""
    return "f64" if dtype == "f64" else "f32"


# ------------------------------------------------------------------------------------ type rules


def _check_operands(name: str, query: Node, key: Node, value: Node, mask: tuple[Node, ...]) -> None:
    check_dtype(name, query, FLOATS)
    for x in (key, value):
        check_dtype(name, x, frozenset({query.dtype}))
    fits = (
        query.ndim == key.ndim == value.ndim == 4
        and same_size(query.shape[0], key.shape[0])
        and same_size(query.shape[3], key.shape[3])
        and same_shape(key.shape[:3], value.shape[:3])
    )
    if not fits:
        raise ValueError(
            f"[{name}] query {show(query.shape)}, key {show(key.shape)} and value "
            f"{show(value.shape)} do not fit\nhint: (B, H, L, E), (B, K, S, E), (B, K, S, V)"
        )
    for x in mask:
        check_dtype(name, x, FLOATS | {"bool"})
        if not same_shape(x.shape, (*query.shape[:3], key.shape[2])):
            raise ValueError(
                f"[{name}] mask {show(x.shape)} does not fit query {show(query.shape)} and key "
                f"{show(key.shape)}\nhint: broadcast it to (B, H, L, S)"
            )


def _split(operands: Sequence[Any], constants: Any) -> tuple[list[Any], list[Any]]:
    """The operands without the generator's states, and the states if there are any."""
    cut = len(operands) - ("kept" in constants)
    return list(operands[:cut]), list(operands[cut:])


def _check_places(name: str, places: list[Node], query: Node) -> None:
    for x in places:
        check_dtype(name, x, frozenset({"i32"}))
        if x.ndim != 4 or not same_shape(x.shape[:2], query.shape[:2]):
            raise ValueError(
                f"[{name}] places {show(x.shape)} do not fit query {show(query.shape)}\n"
                "hint: random_places of (B, H) matrices"
            )


def _infer_attention(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    tensors, places = _split(operands, constants)
    check_count("attention", tuple(tensors), max(3, min(4, len(tensors))))
    query, key, value, *mask = tensors
    _check_operands("attention", query, key, value, tuple(mask))
    _check_places("attention", places, query)
    if constants["result"] != "out":
        return compute_dtype(query.dtype), query.shape[:3]
    return query.dtype, (*query.shape[:3], value.shape[3])


def _infer_backward(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    tensors, places = _split(operands, constants)
    check_count("attention_backward", tuple(tensors), max(7, min(8, len(tensors))))
    grad, query, key, value, out, top, total, *mask = tensors
    _check_operands("attention_backward", query, key, value, tuple(mask))
    _check_places("attention_backward", places, query)
    fits = same_shape(grad.shape, out.shape)
    fits = fits and all(same_shape(x.shape, query.shape[:3]) for x in (top, total))
    if not fits or not same_shape(out.shape, (*query.shape[:3], value.shape[3])):
        raise ValueError(
            f"[attention_backward] gradient {show(grad.shape)}, result {show(out.shape)}, top "
            f"{show(top.shape)} and sum {show(total.shape)} do not fit\n"
            "hint: they are those of one attention"
        )
    like = {"query": query, "key": key, "value": value}[constants["result"]]
    return like.dtype, like.shape


# ------------------------------------------------------------------------------------ formulas


def _turned(x: Node) -> Node:
    return shape.permute(x, (0, 1, 3, 2))


def _columns(values: Node, like: Node) -> Node:
    """values[B, H, L] at every column of a [B, H, L, *] value."""
    return shape.broadcast(values, like.shape, (0, 1, 2))


def _row_sums(x: Node) -> Node:
    return reduce.sum(x, axis=3)


def repeat_heads(x: Node, heads: Size) -> Node:
    """Each head of [B, K, *, *] for the heads of the query that it serves."""
    batch, groups, *trailing = x.shape
    if known_equal(groups, heads):
        return x
    wide = (batch, groups, floordiv(heads, groups), *trailing)
    return shape.reshape(shape.broadcast(x, wide, (0, 1, 3, 4)), (batch, heads, *trailing))


def _sum_heads(x: Node, groups: Size) -> Node:
    """The transpose of `repeat_heads`."""
    batch, heads, *trailing = x.shape
    if known_equal(groups, heads):
        return x
    wide = (batch, groups, floordiv(heads, groups), *trailing)
    return reduce.sum(shape.reshape(x, wide), axis=2)


def masked_scores(query: Node, key: Node, mask: Node | None, scale: float, causal: str) -> Node:
    """Scores of every query and key, -inf where the key is not seen; heads are equal."""
    scores = matmul(query, _turned(key)) * scale
    hidden = full_like(-math.inf, scores)
    if causal != "none":
        last: Node = iota(scores.shape, 2, "i64")
        if causal == "lower":
            last = last + (key.shape[2] - query.shape[2])
        scores = pointwise.where(pointwise.le(iota(scores.shape, 3, "i64"), last), scores, hidden)
    if mask is None:
        return scores
    if mask.dtype == "bool":
        return pointwise.where(mask, scores, hidden)
    return scores + pointwise.cast(mask, scores.dtype)


class _Formula:
    """The matrices of one attention, in its compute dtype, and gradients by them."""

    def __init__(self, y: Node, operands: tuple[Node, ...], top: Node, total: Node) -> None:
        own, self.places = _split(operands, dict(y.attributes))
        query, key, value, *mask = own
        self.operands = tuple(own)
        self.dtype = compute_dtype(query.dtype)
        self.heads, self.kept = query.shape[1], key.shape[1]
        self.scale: float = y.attribute("scale")
        self.query = pointwise.cast(query, self.dtype)
        self.key = repeat_heads(pointwise.cast(key, self.dtype), self.heads)
        self.value = repeat_heads(pointwise.cast(value, self.dtype), self.heads)
        scores = masked_scores(
            self.query, self.key, mask[0] if mask else None, self.scale, y.attribute("causal")
        )
        none = pointwise.eq(total, full_like(0, total))
        base = pointwise.where(none, full_like(math.inf, top), top)
        factor = pointwise.where(none, full_like(0, total), full_like(1, total) / total)
        self.scores = scores
        shifted = pointwise.exp(scores - _columns(base, scores))
        self.weights = shifted * _columns(factor, scores)
        self.factors: Node | None = None
        if self.places:
            keep_probability, draws = y.attribute("kept"), (query.shape[2], key.shape[2])
            drawn = kept_elements(self.places[0], draws, keep_probability)
            ones = full_like(1.0 / keep_probability, scores)
            self.factors = pointwise.where(drawn, ones, zeros_like(scores))

    def dropped(self, x: Node) -> Node:
        """A matrix like the weights with dropout applied."""
        return x if self.factors is None else x * self.factors

    def by_scores(self, g: Node) -> tuple[Node, Node]:
        """Gradients by query and (repeated) key, given that by the scores."""
        scaled = g * self.scale
        return matmul(scaled, self.key), matmul(_turned(scaled), self.query)

    def back(self, query: Node, key: Node, value: Node | None, scores: Node) -> list[Node | None]:
        """Gradients in the operands' own dtypes and shapes."""
        own = self.operands
        gradients = [
            pointwise.cast(query, own[0].dtype),
            pointwise.cast(_sum_heads(key, self.kept), own[1].dtype),
            None if value is None else pointwise.cast(_sum_heads(value, self.kept), own[2].dtype),
        ]
        if len(own) == 4:
            is_bool = own[3].dtype == "bool"
            gradients.append(None if is_bool else pointwise.cast(scores, own[3].dtype))
        return [*gradients, *(None for _ in self.places)]


# ------------------------------------------------------------------------------------ derivatives


def _attention_rule(g: Node, y: Node, *operands: Node) -> Gradients:
    result = y.attribute("result")
    constants = dict(y.attributes)
    top, total = (
        bind("attention", *operands, **(constants | {"result": name})) for name in ("top", "sum")
    )
    tensors, places = _split(operands, constants)
    query, key, value, *mask = tensors
    if result in ("top", "sum"):
        return _extremes(g, y, operands, top, total)
    if result == "lse":
        gradients = _by_rows(g, y, operands, top, total)
    else:
        packed = (g, query, key, value, y, top, total, *mask, *places)
        gradients = [
            bind("attention_backward", *packed, **(constants | {"result": name}))
            for name in RESULTS["attention_backward"]
        ]
    if mask and mask[0].dtype == "bool":
        gradients.append(None)
    elif mask:
        out = y if result == "out" else None
        gradients.append(_mask_gradient(g, y, operands, (out, top, total)))
    return [*gradients, *(None for _ in places)]


def _extremes(
    g: Node, y: Node, operands: tuple[Node, ...], top: Node, total: Node
) -> list[Node | None]:
    """Gradients of the largest score (that of equal ones is shared) or of sum."""
    formula = _Formula(y, operands, top, total)
    scores, zeros = formula.scores, zeros_like(formula.scores)
    # Kernels scale the query before the product: their top may round to none of these scores.
    is_top = pointwise.eq(scores, _columns(reduce.max_(scores, axis=3), scores))
    hot = pointwise.where(is_top, full_like(1, scores), zeros)
    hot = hot / _columns(_row_sums(hot), hot)
    if y.attribute("result") == "sum":
        of_scores = _columns(g * total, hot) * (formula.weights - hot)
    else:
        of_scores = _columns(g, hot) * hot
    # A row that sees nothing has equal scores of -inf.
    none = _columns(pointwise.eq(total, full_like(0, total)), of_scores)
    of_scores = pointwise.where(none, zeros, of_scores)
    query, key = formula.by_scores(of_scores)
    return formula.back(query, key, zeros_like(formula.value), of_scores)


def _by_rows(
    factor: Node, y: Node, operands: tuple[Node, ...], top: Node, total: Node
) -> list[Node | None]:
    """Gradients of query, key and value where that of a score is its weight times a factor of its
    row: those of attention to zeros whose results were minus the factors."""
    constants = dict(y.attributes)
    query, key, value, *mask = _split(operands, constants)[0]
    constants.pop("kept", None)  # of no meaning here: values are zeros
    column = (*query.shape[:3], 1)
    grad = full(1, column, query.dtype)
    zeros = full(0, (*value.shape[:3], 1), value.dtype)
    out = pointwise.cast(shape.reshape(-factor, column), query.dtype)
    packed = (grad, query, key, zeros, out, top, total, *mask)
    gradients: list[Node | None] = [
        bind("attention_backward", *packed, **(constants | {"result": name}))
        for name in ("query", "key")
    ]
    return [*gradients, zeros_like(value)]


def _mask_gradient(
    g: Node, y: Node, operands: tuple[Node, ...], results: tuple[Node | None, Node, Node]
) -> Node:
    """The scores' gradient, given that of the result, or (out is None) of lse."""
    out, top, total = results
    formula = _Formula(y, operands, top, total)
    if out is None:
        of_mask = formula.weights * _columns(g, formula.weights)
    else:
        g, out = (pointwise.cast(x, formula.dtype) for x in (g, out))
        change = formula.dropped(matmul(g, _turned(formula.value)))
        of_mask = formula.weights * (change - _columns(_row_sums(g * out), change))
    return pointwise.cast(of_mask, operands[3].dtype)


def _backward_rule(g: Node, y: Node, *operands: Node) -> Gradients:
    """dS = P (M dP - D), dP = grad V^T, D = rowsum(grad out), M the factors of dropout; then by
    P = exp(S - top) / sum."""
    grad, query, key, value, out, top, total, *tail = operands
    formula = _Formula(y, (query, key, value, *tail), top, total)
    dtype, weights = formula.dtype, formula.weights
    g, outer, out_wide = (pointwise.cast(x, dtype) for x in (g, grad, out))
    change = formula.dropped(matmul(outer, _turned(formula.value)))
    change = change - _columns(_row_sums(outer * out_wide), change)
    by_scores = weights * change
    of_query = of_key = of_grad = None
    if y.attribute("result") == "value":
        wide = repeat_heads(g, formula.heads)
        by_weights = formula.dropped(matmul(outer, _turned(wide)))
        of_grad = matmul(formula.dropped(weights), wide)
        return _second(formula, operands, by_weights, (None, None, of_grad, None, None))
    if y.attribute("result") == "query":
        scaled = g * formula.scale
        by_change = matmul(scaled, _turned(formula.key))
        of_key = matmul(_turned(by_scores), scaled)
    else:
        scaled = repeat_heads(g, formula.heads) * formula.scale
        by_change = matmul(formula.query, _turned(scaled))
        of_query = matmul(by_scores, scaled)
    by_dot = by_change * weights
    rows = _columns(_row_sums(by_dot), outer)
    by_drop = formula.dropped(by_dot)
    of_grad = matmul(by_drop, formula.value) - rows * out_wide
    of_value = matmul(_turned(by_drop), outer)
    partial = (of_query, of_key, of_grad, of_value, -(rows * outer))
    return _second(formula, operands, by_change * change, partial)


def _second(
    formula: _Formula,
    operands: tuple[Node, ...],
    by_weights: Node,
    partial: tuple[Node | None, ...],
) -> Gradients:
    """All gradients of a backward, given that by the weights and the shares known already."""
    of_query, of_key, of_grad, of_value, of_out = partial
    by_scores = by_weights * formula.weights
    query, key = formula.by_scores(by_scores)
    query = query if of_query is None else query + of_query
    key = key if of_key is None else key + of_key
    gradients = formula.back(query, key, of_value, by_scores)
    assert of_grad is not None
    out, by_top = operands[4], -_row_sums(by_scores)
    return [
        pointwise.cast(of_grad, operands[0].dtype),
        *gradients[:3],
        None if of_out is None else pointwise.cast(of_out, out.dtype),
        by_top,
        by_top / operands[6],
        *gradients[3:],
    ]


# ------------------------------------------------------------------------------------ references


def _numpy_parts(arrays: list[Any], constants: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Scores, and query, key and value with as many heads."""
    import numpy

    query, key, value, *mask = _split(arrays, constants)[0]
    key, value = (numpy.repeat(x, query.shape[1] // x.shape[1], axis=1) for x in (key, value))
    scores = query @ key.swapaxes(2, 3) * constants["scale"]
    length, seen = scores.shape[2:]
    offset = {"none": seen, "upper": 0, "lower": seen - length}[constants["causal"]]
    visible = numpy.arange(seen) <= numpy.arange(length)[:, None] + offset
    if mask and mask[0].dtype == bool:
        visible = visible & mask[0]
    elif mask:
        scores = scores + mask[0]
    return numpy.where(visible, scores, -numpy.inf), query, key, value


def _numpy_factors(arrays: list[Any], constants: dict[str, Any], scores: Any) -> Any:
    """Returns the factors by which dropout multiplies the weights."""
    places = _split(arrays, constants)[1]
    if not places:
        return 1.0
    keep_probability = constants["kept"]
    return numpy_kept(places[0], scores.shape[2:], keep_probability) / keep_probability


def _numpy_attention(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    scores, _, _, value = _numpy_parts(arrays, constants)
    top = scores.max(axis=3, keepdims=True, initial=-numpy.inf)
    weights = numpy.exp(scores - numpy.where(numpy.isinf(top), 0, top))
    sums = weights.sum(axis=3, keepdims=True)
    if constants["result"] != "out":
        with numpy.errstate(divide="ignore"):
            lse = numpy.where(sums == 0, numpy.inf, top + numpy.log(sums))
        return {"top": top, "sum": sums, "lse": lse}[constants["result"]][..., 0]
    factors = _numpy_factors(arrays, constants, scores)
    return weights * factors / numpy.where(sums == 0, 1, sums) @ value


def _numpy_backward(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    grad, query, key, value, out, top, total, *tail = arrays
    groups = key.shape[1]
    scores, query, key, value = _numpy_parts([query, key, value, *tail], constants)
    factors = _numpy_factors(tail, constants, scores)
    weights = numpy.exp(scores - top[..., None]) / total[..., None]
    change = factors * (grad @ value.swapaxes(2, 3)) - (grad * out).sum(axis=3, keepdims=True)
    by_scores = weights * change * constants["scale"]
    if constants["result"] == "query":
        return by_scores @ key
    pairs = {"key": (by_scores, query), "value": (weights * factors, grad)}
    left, right = pairs[constants["result"]]
    gradient = left.swapaxes(2, 3) @ right
    return gradient.reshape(gradient.shape[0], groups, -1, *gradient.shape[2:]).sum(axis=2)


def _numbers(*sizes: int, seed: float) -> Any:
    """Nested lists of unlike numbers between -1 and 1."""

    def build(place: int, depth: int) -> Any:
        if depth == len(sizes):
            return math.sin(3.7 * place + seed)
        return [build(place * sizes[depth] + i, depth + 1) for i in range(sizes[depth])]

    return build(1, 0)


def _attention_samples() -> Samples:
    query, key, value = (
        _numbers(1, 2, 3, 2, seed=0.3),
        _numbers(1, 2, 4, 2, seed=1.9),
        _numbers(1, 2, 4, 3, seed=2.6),
    )
    shared = [_numbers(1, 1, 4, 2, seed=0.7), _numbers(1, 1, 4, 3, seed=1.1)]
    mask = _numbers(1, 2, 3, 4, seed=5.0)
    visible = [[[[i != j for j in range(4)] for i in range(3)]] * 2]
    for result in RESULTS["attention"]:
        for operands, causal in (
            ([query, key, value], "none"),
            ([query, key, value], "upper"),
            ([query, *shared], "lower"),
            ([query, key, value, mask], "none"),
            ([query, *shared, visible], "none"),
        ):
            yield operands, {"scale": 0.8, "causal": causal, "result": result}
    places = [[[sample_place(0, 613)], [sample_place(1, 0)]]]  # the first one needs new words
    dropped = {"scale": 0.8, "causal": "upper", "kept": 0.6, "result": "out"}
    yield [query, key, value, mask, places], dropped


def _backward_samples() -> Samples:
    grad, out = _numbers(1, 2, 3, 3, seed=4.1), _numbers(1, 2, 3, 3, seed=0.2)
    top = [[[1.2, 1.5, 0.9], [1.4, 1.0, 1.3]]]
    total = [[[1.5, 2.5, 1.1], [1.7, 1.2, 3.1]]]
    samples = list(_attention_samples())
    for operands, constants in (*samples[:5], samples[-1]):
        query, key, value, *mask = operands
        for result in RESULTS["attention_backward"]:
            yield [grad, query, key, value, out, top, total, *mask], constants | {"result": result}


def _batch(b: Batched) -> Node:
    """All operands have samples first."""
    operands = [shape.fold(x, 0) for x in b.all()]
    return shape.unfold(b.same(*operands), 0, b.extent, b.node.shape[0])


def _result(value: Node) -> Addressing:
    return "strided" if value.ndim == 4 else "dense"


for _name, _infer, _rule, _reference, _samples in (
    ("attention", _infer_attention, _attention_rule, _numpy_attention, _attention_samples),
    ("attention_backward", _infer_backward, _backward_rule, _numpy_backward, _backward_samples),
):
    register(
        Primitive(
            _name,
            "routine",
            _infer,
            _rule,
            routine=Routine(_name, any_strides, _result, tuned=True),
            cost=256,
            reference=_reference,
            samples=_samples,
            batch=_batch,
        )
    )


def attention(
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None = None,
    scale: float = 1.0,
    causal: str = "none",
    places: Node | None = None,
    kept: float = 1.0,
    result: str = "out",
) -> Node:
    """softmax(query key^T * scale + mask) value; see the module's page for the operands."""
    operands = [x for x in (query, key, value, mask, places) if x is not None]
    dropout = {} if places is None else {"kept": kept}
    return bind("attention", *operands, scale=scale, causal=causal, result=result, **dropout)


def lse(query: Node, key: Node, scale: float = 1.0) -> Node:
    """log(sum(exp(query key^T * scale))) over the keys, [B, H, L], scores not stored."""
    value = full(0, (*key.shape[:3], 0), key.dtype)
    return bind("attention", query, key, value, scale=scale, causal="none", result="lse")
