"""Batching: a program over single samples becomes one over a batch of them.

One rule per kind of primitive, with exceptions by name where a kind has no common rule. A value
that depends on the batch has the batch as its first dimension; all others stay as they are, so
that what does not depend on the batch is computed once. The sums of a batched primitive have the
order of the single one (it depends on the summed length alone): a batch has the bits of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.environment import current_environment, next_sequence
from flambeau.ir.lock import importing
from flambeau.ir.node import Node, node, topological
from flambeau.ir.size import Size, prod
from flambeau.prims.annotation import RULES as DERIVATIVES
from flambeau.prims.annotation import register_rule
from flambeau.prims.random import EACH
from flambeau.prims.record import PRIMITIVES, bind

Rule = Callable[["Batched"], Node]

_PLACEHOLDER = 1 << 31  # slots of the samples that a derivative rule is asked about

RANDOM_ERROR = (
    "vmap: called random operation while in randomness error mode. Please either use the "
    "'same' or 'different' randomness flags on vmap or perform the randomness operation out of "
    "vmap\nhint: vmap(..., randomness='different')"
)


class Batched:
    """A node of the program over samples, with its operands as they are in the batch.

    Attributes:
        node: over one sample.
        operands: its operands; batched ones have the batch in front.
        flags: which of them are batched.
        extent: size of the batch.
    """

    __slots__ = ("extent", "flags", "node", "operands")

    def __init__(
        self, current: Node, operands: Sequence[Node], flags: Sequence[bool], extent: Size
    ) -> None:
        self.node = current
        self.operands = operands
        self.flags = flags
        self.extent = extent

    def attribute(self, name: str) -> Any:
        """A constant of the node."""
        return self.node.attribute(name)

    def all(self) -> list[Node]:
        """The operands, each with the batch in front."""
        return [
            x if flag else expand(x, self.extent)
            for x, flag in zip(self.operands, self.flags, strict=True)
        ]

    def same(self, *operands: Node, **changed: Any) -> Node:
        """The node's primitive on these operands, with some constants changed."""
        return bind(self.node.op, *operands, **(dict(self.node.attributes) | changed))


def expand(x: Node, extent: Size) -> Node:
    """Repeat a value for every sample."""
    return prims.broadcast(x, (extent, *x.shape), range(1, x.ndim + 1))


def batch(
    outputs: Sequence[Node | None], given: Mapping[Node, Node], extent: Size, randomness: str
) -> list[tuple[Node, bool] | None]:
    """The values of a program for a batch of samples.

    Args:
        outputs: of the program over one sample; None: absent.
        given: per batched input of that program, the batch.
        extent: number of samples.
        randomness: "error", "same" or "different".

    Returns:
        Per output the value, and whether it has a dimension for the batch.

    Raises:
        RuntimeError: a random draw under "error".
        NotImplementedError: a primitive has no rule.
    """
    values: dict[Node, tuple[Node, bool]] = {x: (y, True) for x, y in given.items()}
    for current in topological(x for x in outputs if x is not None):
        if current in values:
            continue
        found = [values[x] for x in current.inputs]
        operands, flags = [x for x, _ in found], [flag for _, flag in found]
        if current.op == "random":
            values[current] = _draw(Batched(current, operands, flags, extent), randomness)
        elif any(flags):
            values[current] = rule_of(current.op)(Batched(current, operands, flags, extent)), True
        else:
            values[current] = current, False
    return [None if x is None else values[x] for x in outputs]


def rule_of(name: str) -> Rule:
    """The batching rule of a primitive: its own, or that of its kind.

    Raises:
        NotImplementedError: it has none.
    """
    with importing:
        from flambeau.autograd.transforms.batching_routines import ROUTINES

    kind = PRIMITIVES[name].kind
    rule = RULES.get(name) or ROUTINES.get(name) or KINDS.get(kind)
    if rule is None:
        raise NotImplementedError(
            f"[vmap] primitive {name} ({kind}) has no batching rule\nhint: loop over the samples"
        )
    return rule


# ------------------------------------------------------------------------------------ kinds


def _pointwise(b: Batched) -> Node:
    return node(b.node.op, b.all(), b.node.attributes, b.node.dtype, (b.extent, *b.node.shape))


def _along_axis(b: Batched) -> Node:
    return b.same(*b.all(), axis=b.attribute("axis") + 1)


def _leading(b: Batched) -> Node:
    """Routines that count dimensions from the end take any batch in front."""
    return b.same(*b.all())


KINDS: dict[str, Rule] = {
    "pointwise": _pointwise,
    "reduce": _along_axis,
    "scan": _along_axis,
}

# ------------------------------------------------------------------------------------ shapes


def _broadcast(b: Batched) -> Node:
    dimensions = (0, *(d + 1 for d in b.attribute("dimensions")))
    return prims.broadcast(b.operands[0], (b.extent, *b.node.shape), dimensions)


def _reshape(b: Batched) -> Node:
    return prims.reshape(b.operands[0], (b.extent, *b.node.shape))


def _permute(b: Batched) -> Node:
    return prims.permute(b.operands[0], (0, *(d + 1 for d in b.attribute("order"))))


def _one_dimension(b: Batched) -> Node:
    return b.same(*b.all(), dimension=b.attribute("dimension") + 1)


def _flip(b: Batched) -> Node:
    return b.same(b.operands[0], dimensions=tuple(d + 1 for d in b.attribute("dimensions")))


def _pad(b: Batched) -> Node:
    x, fill = b.operands
    low, high = (0, *b.attribute("low")), (0, *b.attribute("high"))
    x = x if b.flags[0] else expand(x, b.extent)
    if not b.flags[1]:
        return b.same(x, fill, low=low, high=high)
    empty = prims.full(0, (), x.dtype)
    padded = b.same(x, empty, low=low, high=high)
    truth = prims.full(True, x.shape, "bool")
    inside = bind("pad", truth, prims.full(False, (), "bool"), low=low, high=high)
    return prims.where(inside, padded, prims.broadcast(fill, padded.shape, (0,)))


def _as_strided(b: Batched) -> Node:
    [x] = b.operands
    strides = (prod(x.shape[1:]), *b.attribute("strides"))
    return prims.as_strided(x, (b.extent, *b.node.shape), strides, b.attribute("offset"))


# ------------------------------------------------------------------------------------ places


def _numbers(b: Batched, shape: Sequence[Size], place: int = 0) -> Node:
    """The number of the sample, at every place of a value."""
    return prims.iota(tuple(shape), place)


def _gather(b: Batched) -> Node:
    x, index = b.all()
    return prims.gather(x, index, b.attribute("axis") + 1)


def _front(x: Node, start: int, count: int) -> Node:
    """Dimensions start .. start + count behind the batch, before all others."""
    moved = range(start, start + count)
    return prims.permute(x, (0, *moved, *(d for d in range(1, x.ndim) if d not in moved)))


def _back(x: Node, count: int, start: int) -> Node:
    """The inverse of `_front`: count dimensions behind the batch go to `start`."""
    rest = [*range(1 + count, x.ndim)]
    before, after = rest[: start - 1], rest[start - 1 :]
    return prims.permute(x, (0, *before, *range(1, 1 + count), *after))


def _read(b: Batched, x: Node, indices: Sequence[Node], first: int) -> Node:
    """x[..., indices, ...] at dimensions from `first` on, all of them batched."""
    count, rank = len(indices), indices[0].ndim - 1
    numbers = _numbers(b, indices[0].shape)
    picked = prims.index_nd(
        _front(x, first + 1, count), (numbers, *indices), tuple(range(count + 1))
    )
    return _back(picked, rank, first + 1)


def _take(b: Batched) -> Node:
    (x, index), axis = b.operands, b.attribute("axis")
    if not b.flags[1]:
        return prims.take(x, index, axis + 1)
    if b.flags[0]:
        return _read(b, x, (index,), axis)
    found = prims.take(x, index, axis)  # the batch lies where the index stands
    rest = [d for d in range(found.ndim) if d != axis]
    return prims.permute(found, (axis, *rest))


def _index_nd(b: Batched) -> Node:
    dims = b.attribute("dims")
    if not any(b.flags[1:]):
        x, *indices = b.operands
        return prims.index_nd(x, indices, tuple(d + 1 for d in dims))
    if not b.flags[0]:
        x = b.operands[0]
        places = [
            i if flag else expand(i, b.extent)
            for i, flag in zip(b.operands[1:], b.flags[1:], strict=True)
        ]
        found = prims.index_nd(x, places, dims)
        rest = [d for d in range(found.ndim) if d != dims[0]]
        return prims.permute(found, (dims[0], *rest))
    x, *indices = b.all()
    return _read(b, x, indices, dims[0])


def _scatter(b: Batched) -> Node:
    base, index, source = b.all()
    return prims.scatter(base, index, source, b.attribute("axis") + 1, b.attribute("mode"))


def _put(b: Batched, indices_flag: bool, dims: Sequence[int], mode: str) -> Node:
    base, *indices, source = b.all()
    if not indices_flag:
        return prims.put_nd(base, b.operands[1:-1], source, tuple(d + 1 for d in dims), mode)
    count, rank, first = len(indices), indices[0].ndim - 1, dims[0]
    places = (_numbers(b, indices[0].shape), *indices)
    written = prims.put_nd(
        _front(base, first + 1, count),
        places,
        _front(source, first + 1, rank),
        tuple(range(count + 1)),
        mode,
    )
    return _back(written, count, first + 1)


def _put_nd(b: Batched) -> Node:
    return _put(b, any(b.flags[1:-1]), b.attribute("dims"), b.attribute("mode"))


def _take_add(b: Batched) -> Node:
    axis = b.attribute("axis")
    if not b.flags[1]:
        base, _, source = b.all()
        return prims.take_add(base, b.operands[1], source, axis + 1)
    return _put(b, True, (axis,), "add")


# ------------------------------------------------------------------------------------ random draws


def _draw(b: Batched, randomness: str) -> tuple[Node, bool]:
    if randomness == "error":
        raise RuntimeError(RANDOM_ERROR)
    distribution = b.attribute("distribution")
    if randomness == "same":
        if any(b.flags):
            raise RuntimeError(
                "vmap: Expected the parameters of a random operation to be unbatched: a batched "
                "input cannot have the same randomness\nhint: vmap(..., randomness='different')"
            )
        return b.node, False
    if distribution == "permutation":
        return _permutations(b), True
    if distribution in EACH:
        operands = b.all()
    elif any(b.flags):
        raise NotImplementedError(
            f"[vmap] {distribution} with a parameter per sample is not supported\n"
            "hint: draw standard numbers, then scale them"
        )
    else:
        operands = list(b.operands)
    return b.same(*operands, shape=(b.extent, *b.node.shape)), True


def _permutations(b: Batched) -> Node:
    """One draw after the other: a permutation is no array of independent numbers."""
    environment = current_environment()
    count = b.extent if isinstance(b.extent, int) else environment.specialise(b.extent)
    draws = [b.node, *(b.same(sequence=next_sequence()) for _ in range(count - 1))]
    return prims.cat([prims.unsqueeze(x, 0) for x in draws], 0)


# ------------------------------------------------------------------------------------ derivatives


def _with_derivative(b: Batched) -> Node:
    """A value whose rule is asked about one sample, and its answer batched."""
    value, *operands = b.operands
    if not b.flags[0]:
        value = expand(value, b.extent)
    return bind(
        "with_derivative",
        value,
        *operands,
        rule="batched",
        single=(b.node.op, b.node.attributes),
        flags=tuple(b.flags[1:]),
    )


def _batched_derivative(grad: Node, out: Node, *operands: Node) -> list[Node | None]:
    extent, flags = out.shape[0], (True, *out.attribute("flags"))
    given: dict[Node, Node] = {}

    def sample(x: Node, flag: bool) -> Node:
        if not flag:
            return x
        single = prims.input_node(_PLACEHOLDER + len(given), x.dtype, x.shape[1:], ())
        given[single] = x
        return single

    everything = zip((out.inputs[0], *operands), flags, strict=True)
    singles = [sample(x, flag) for x, flag in everything]
    name, constants = out.attribute("single")
    current = node(name, singles, constants, out.dtype, out.shape[1:])
    given[current] = out
    seed = sample(grad, True)
    rule = DERIVATIVES[current.attribute("rule")]
    found = list(rule(seed, current, *singles[1:]))
    values = batch(found, given, extent, "error")
    results: list[Node | None] = []
    for item, flag in zip(values, flags[1:], strict=True):
        if item is None:
            results.append(None)
            continue
        value, is_batched = item
        if flag and not is_batched:
            value = expand(value, extent)
        elif is_batched and not flag:
            value = prims.sum(value, axis=0)
        elif not flag:  # every sample gives the same gradient
            value = prims.sum(expand(value, extent), axis=0)
        results.append(value)
    return results


register_rule("batched", _batched_derivative)

RULES: dict[str, Rule] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _one_dimension,
    "flip": _flip,
    "pad": _pad,
    "cat": _one_dimension,
    "windows": _one_dimension,
    "as_strided": _as_strided,
    "gather": _gather,
    "take": _take,
    "index_nd": _index_nd,
    "check_index": _pointwise,
    "scatter": _scatter,
    "put_nd": _put_nd,
    "take_add": _take_add,
    "sort": _along_axis,
    "sort_indices": _along_axis,
    "fft": _along_axis,
    "real_fft": _along_axis,
    "half_fft": _along_axis,
    "select": _leading,
    "with_derivative": _with_derivative,
    **dict.fromkeys(
        "solve triangular_solve ldl_solve cholesky lu ldl qr geqrf eigh eigvalsh eig eigvals svd "
        "svdvals least_squares reflect pivot_order complex_product".split(),
        _leading,
    ),
}
