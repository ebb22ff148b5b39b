"""Batching: a program over single samples becomes one over a batch of them.

A primitive's rule is in its record, or is that of its kind. A value that depends on the batch has
the batch as its first dimension; all others do not change and are computed once. The sums of a
batched primitive have the order of the single one (it depends on the summed length alone), so a
batch has the bits of a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flambeau import prims
from flambeau.ir.environment import current_environment, next_sequence
from flambeau.ir.node import Node, node, topological
from flambeau.ir.size import Size
from flambeau.prims.annotation import RULES as DERIVATIVES
from flambeau.prims.annotation import register_rule
from flambeau.prims.random import EACH
from flambeau.prims.record import PRIMITIVES, Batched, BatchRule, expand, next_axis, record_of

_PLACEHOLDER = 1 << 31  # first slot of the samples that a derivative rule is applied to

RANDOM_ERROR = (
    "vmap: called random operation while in randomness error mode. Please either use the "
    "'same' or 'different' randomness flags on vmap or perform the randomness operation out of "
    "vmap\nhint: vmap(..., randomness='different')"
)


def batch(
    outputs: Sequence[Node | None],
    batched_inputs: Mapping[Node, Node],
    extent: Size,
    randomness: str,
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
    values: dict[Node, tuple[Node, bool]] = {x: (y, True) for x, y in batched_inputs.items()}
    for current in topological(x for x in outputs if x is not None):
        if current in values:
            continue
        pairs = [values[x] for x in current.inputs]
        operands, flags = [x for x, _ in pairs], [flag for _, flag in pairs]
        if record_of(current).kind == "random":
            values[current] = _draw(Batched(current, operands, flags, extent), randomness)
        elif any(flags):
            values[current] = _rule_of(current.op)(Batched(current, operands, flags, extent)), True
        else:
            values[current] = current, False
    return [None if x is None else values[x] for x in outputs]


def _rule_of(name: str) -> BatchRule:
    """The batching rule of a primitive: its own, or that of its kind.

    Raises:
        NotImplementedError: it has none.
    """
    record = PRIMITIVES[name]
    rule = record.batch or KINDS.get(record.kind)
    if rule is None:
        raise NotImplementedError(
            f"[vmap] primitive {name} ({record.kind}) has no batching rule\n"
            "hint: loop over the samples"
        )
    return rule


# ------------------------------------------------------------------------------------ kinds


def _pointwise(b: Batched) -> Node:
    return node(b.node.op, b.all(), b.node.attributes, b.node.dtype, (b.extent, *b.node.shape))


KINDS: dict[str, BatchRule] = {
    "pointwise": _pointwise,
    "reduce": next_axis,
    "scan": next_axis,
}


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


def _batched_derivative(grad: Node, out: Node, *operands: Node) -> list[Node | None]:
    extent, flags = out.shape[0], (True, *out.attribute("flags"))
    batched_inputs: dict[Node, Node] = {}

    def sample(x: Node, flag: bool) -> Node:
        if not flag:
            return x
        single = prims.input_node(_PLACEHOLDER + len(batched_inputs), x.dtype, x.shape[1:], ())
        batched_inputs[single] = x
        return single

    everything = zip((out.inputs[0], *operands), flags, strict=True)
    singles = [sample(x, flag) for x, flag in everything]
    name, constants = out.attribute("single")
    current = node(name, singles, constants, out.dtype, out.shape[1:])
    batched_inputs[current] = out
    seed = sample(grad, True)
    rule = DERIVATIVES[current.attribute("rule")]
    gradients = list(rule(seed, current, *singles[1:]))
    values = batch(gradients, batched_inputs, extent, "error")
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
