"""From a cluster to its Kernel and the call that launches it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.compiler.schedule.axes import Accesses, Axes, choose
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.domain import Domain
from flambeau.compiler.schedule.fusion_roots import EXPENSIVE, LOAD_COST, is_reduction
from flambeau.compiler.schedule.members import Member
from flambeau.ir import kernel as k
from flambeau.ir.geometry import Shape, address
from flambeau.ir.kernel import REDUCE_BLOCK
from flambeau.ir.node import ITEM_SIZE, Attributes, Node, node, topological
from flambeau.ir.schedule_grammar import BLOCKS, CHECK, MEMBER, REF, member
from flambeau.ir.size import (
    Size,
    SizeExpr,
    floordiv,
    free_symbols,
    maximum,
    mul,
    prod,
    substitute,
    symbol,
)
from flambeau.ir.size_core import from_terms, is_non_negative, rebuild
from flambeau.prims.record import record_of

# ("input", slot), ("output", number), ("temporary", node), ("error", (kind of exception, message))
Memory = tuple[str, int | tuple[str, str] | Node]
Scalar = tuple[str, Any, bool]  # ("argument", slot, as float) or ("constant", value, as float)
CHUNK_ELEMENTS = 8192  # aimed at per chunk
COST_PER_NANOSECOND = 32
COMMON_NUMBERS = frozenset({0.0, 0.5, 1.0, 2.0})  # of every program: part of the kernel's text
LIFTED_LIMIT = 8
FLOATS, INTEGERS = ("f32", "f64"), ("i32", "i64")
FIXED_LIMIT = 2  # integers that vary are at least so large
FIXED_INTEGERS = frozenset({-1, 0, 1, REDUCE_BLOCK})


class InPlaceConflict(Exception):
    """Kernels would overwrite what is still to be read; the `slots` need a copy that comes last."""

    def __init__(self, slots: Iterable[int]) -> None:
        self.slots = tuple(slots)
        super().__init__(*self.slots)


@dataclass(frozen=True)
class Place:
    """Where a value is written or read: memory, strides and offset in elements."""

    memory: Memory
    strides: Shape
    offset: Size = 0


@dataclass
class Call:
    """A kernel with the arguments of one launch; sizes are size expressions.

    For profiles: `flops`, `elements` (points of the loops), and `traffic`, per buffer how many
    bytes a point reads or writes at most.
    """

    kernel: k.Kernel
    memory: list[Memory]
    sizes: list[Size]
    scalars: list[Scalar]
    chunks: Size
    work: Size
    scratch: Size
    flops: Size
    elements: Size
    traffic: list[int]


class Sizes:
    """Size arguments: every part of an expression that no loop changes becomes one n*.

    Args:
        first: how many others come before.
        varying: whether integers become arguments, too.
    """

    def __init__(self, first: int = 0, varying: bool = False) -> None:
        self.first = first
        self.varying = varying
        self.arguments: dict[Size, Size] = {}
        self._memo: dict[Size, Size] = {}

    def argument(self, expression: Size, varying: bool = False) -> Size:
        """An invariant as a constant or size symbol."""
        if isinstance(expression, int):
            varying = varying or self.varying
            if not varying or expression in FIXED_INTEGERS:
                return expression
        number = self.arguments.get(expression)
        if number is None:
            least = 0 if is_non_negative(expression) else -(1 << 62)
            if isinstance(expression, int) and expression > 0:
                least = min(FIXED_LIMIT, expression)
            number = symbol(f"n{self.first + len(self.arguments)}", minimum=least)
            self.arguments[expression] = number
        return number

    def abstract(self, expression: Size, loops: frozenset[str]) -> Size:
        """The expression over loop symbols and size arguments only."""
        if isinstance(expression, int):
            return self.argument(expression)
        result = self._memo.get(expression)
        if result is None:
            result = self._memo[expression] = self._abstract(expression, loops)
        return result

    def _abstract(self, expression: SizeExpr, loops: frozenset[str]) -> Size:
        if loops.isdisjoint(free_symbols(expression)):
            return self.argument(expression)
        if expression.kind == "symbol":
            return symbol(expression.name)
        if expression.kind != "sum":
            operands = tuple([self.abstract(o, loops) for o in expression.operands])
            return rebuild(expression.kind, operands)
        invariants: dict[tuple[SizeExpr, ...], dict[tuple[SizeExpr, ...], int]] = {}
        for monomial, factor in expression.terms.items():
            looping = tuple(a for a in monomial if not loops.isdisjoint(free_symbols(a)))
            others = tuple(a for a in monomial if loops.isdisjoint(free_symbols(a)))
            terms = invariants.setdefault(looping, {})
            terms[others] = terms.get(others, 0) + factor
        total: Size = 0
        for looping in sorted(invariants, key=lambda atoms: [a.key for a in atoms]):
            part = self.argument(from_terms(invariants[looping]))
            total = total + prod([part, *(self.abstract(a, loops) for a in looping)])
        return total


class Builder:
    """Builds the kernel of one cluster.

    Args:
        cluster: values and domain.
        stores: per stored member the buffers and indices that it is written to.
        reads: where the memory of a fusion root is.
        varying: whether the integers of the program vary from call to call.
    """

    def __init__(
        self,
        cluster: Cluster,
        stores: dict[Node, list[Place]],
        reads: dict[Node, Place],
        varying: bool = False,
    ) -> None:
        assert cluster.domain is not None
        self.domain: Domain = cluster.domain
        self.members: Mapping[Node, Member] = cluster.members
        self.stores = stores
        self.reads = reads
        self.parts = cluster.parts
        self.sizes = Sizes(varying=varying)
        self.parameters: dict[Memory, list[str]] = {}  # -> [dtype, access]
        self.scalars: dict[int | Node, str] = {}  # by slot, or by the constant
        self.lifted: frozenset[Node] = frozenset()
        self.names: dict[Node, str] = {}  # reductions and scans
        self.final: dict[Node, Node] = {}
        self.levels: dict[Node, int] = {}
        self.cost = 0
        self.operations = 0  # arithmetic per point
        self.point_bytes: dict[Memory, int] = {}

    def build(self) -> Call | None:
        """The call; None where nothing is left to do (a value already is where it belongs)."""
        roots = self._roots()
        self._collect(roots)
        self.lifted = _numbers_of_calls(self.order, self.sizes.varying)
        self.axes = choose(self.accesses)
        self._name_axes()
        self._check_in_place()
        statements = self._statements()
        if not statements:
            return None
        return self._call(statements)

    # ----------------------------------------------------------------------------- collecting

    def _roots(self) -> list[Node]:
        """Stored members; those that would only write what is there already are dropped."""
        stores = {}
        for value, places in self.stores.items():
            left = [p for p in places if not self._is_there(value, p)]
            if left:
                stores[value] = left
        self.stores = stores
        return list(stores)

    def _position(self, value: Node, place: Place) -> Size:
        index = self.domain.position(value.shape, self.members[value].level)
        return address(index, place.strides, place.offset)

    def _is_there(self, value: Node, place: Place) -> bool:
        expression = self.members[value].value
        if not REF.matches(expression) or expression.inputs or is_reduction(value):
            return False
        target = expression.attribute("target")
        if target in self.members or self.reads[target].memory != place.memory:
            return False
        return self._address(expression) == self._position(value, place)

    def _address(self, reference: Node) -> Size:
        place = self.reads[reference.attribute("target")]
        return address(reference.attribute("index"), place.strides, place.offset)

    def _collect(self, roots: Iterable[Node]) -> None:
        """Finds every value used, operands first, and all addresses."""
        accesses = Accesses(self.domain)
        order: list[Node] = []
        seen: set[Node] = set()
        stack: list[tuple[Node, bool]] = []
        for value in reversed(list(roots)):
            stack.append((self._entry(value), False))
        while stack:
            current, expanded = stack.pop()
            if expanded:
                order.append(current)
                continue
            if current in seen:
                continue
            seen.add(current)
            stack.append((current, True))
            stack.extend((i, False) for i in reversed(self._below(current)))
        self.order = order
        for value in order:
            if REF.matches(value) and value.attribute("target") not in self.members:
                accesses.loads.append(self._address(value))
            elif k.INDEX.matches(value):
                accesses.others.append(value.attribute("expression"))
        for value in roots:
            level = self.members[value].level
            listed = accesses.stores if level == "full" else accesses.others
            listed.extend(self._position(value, p) for p in self.stores[value])
        self.accesses = accesses

    def _entry(self, value: Node) -> Node:
        """The abstract value that represents a member."""
        if is_reduction(value):
            return member(value)
        return self.members[value].value

    def _below(self, value: Node) -> tuple[Node, ...]:
        if MEMBER.matches(value):
            return (self.members[value.attribute("target")].value,)
        if REF.matches(value):
            target = value.attribute("target")
            if target in self.members:
                return (self._entry(target),)
        return value.inputs

    # ----------------------------------------------------------------------------- axes

    def _name_axes(self) -> None:
        """Kernel symbols for the axes; merged axes step with the factor of their last one."""
        axes: Axes = self.axes
        self.symbols: dict[str, Size] = {}
        for number, group in enumerate(axes.rows):
            self.symbols[group[-1]] = symbol(f"p{number}")
        if axes.inner:
            self.symbols[axes.inner[-1]] = symbol("r")
        if axes.reduced:
            self.symbols[self.domain.special] = symbol("k")
        count = len(axes.rows)
        self.loops = frozenset(
            {"r", "k", *(f"p{i}" for i in range(count)), *(f"d{i}" for i in range(8))}
        )
        self._rewritten: dict[Size, Size] = {}

    def _rewrite(self, expression: Size) -> Size:
        if isinstance(expression, int):
            return self.sizes.argument(expression)
        result = self._rewritten.get(expression)
        if result is None:
            result = self._rewritten[expression] = self._rewrite_new(expression)
        return result

    def _rewrite_new(self, expression: SizeExpr) -> Size:
        affine = self.accesses.affine(expression)
        if affine is None:
            return self.sizes.abstract(substitute(expression, self.symbols), self.loops)
        factors, offset = affine
        total: Size = 0
        for name in self.domain.axes:
            if name in factors and name in self.symbols:
                total = total + self.sizes.argument(factors[name]) * self.symbols[name]
        if self.parts and isinstance(offset, int):  # kernels of other parts differ in nothing else
            return total + self.sizes.argument(offset, varying=True)
        return total + self.sizes.abstract(offset, self.loops)

    def _extent(self, group: list[str]) -> Size:
        extent = prod(self.domain.axes[name] for name in group)
        return self._rewrite(extent)

    # ----------------------------------------------------------------------------- in place

    def _check_in_place(self) -> None:
        """Written memory that is also read must be read at the very element written."""
        written: dict[Memory, set[Size]] = {}
        for value, places in self.stores.items():
            for place in places:
                written.setdefault(place.memory, set()).add(self._position(value, place))
        for value in self.order:
            if not REF.matches(value) or value.attribute("target") in self.members:
                continue
            memory = self.reads[value.attribute("target")].memory
            addresses = written.get(memory)
            if addresses is not None and addresses != {self._address(value)}:
                assert isinstance(memory[1], int)
                raise InPlaceConflict([memory[1]])

    # ----------------------------------------------------------------------------- values

    def _parameter(self, memory: Memory, dtype: str, access: str) -> int:
        entry = self.parameters.get(memory)
        if entry is None:
            self.parameters[memory] = [dtype, access]
        elif access not in entry[1]:
            entry[1] = "rw"
        return list(self.parameters).index(memory)

    def _finish_values(self) -> None:
        """Kernel values of everything collected, with the pass each is available from."""
        final, levels = self.final, self.levels
        for value in self.order:
            element = self._final(value)
            final[value] = element
            if element not in levels:
                if k.REDUCED.matches(element):
                    continue  # set where it was made
                levels[element] = max((levels[i] for i in element.inputs), default=0)

    def _final(self, value: Node) -> Node:
        special = _FINAL.get(value.op)
        if special is not None:
            return special(self, value)
        record = record_of(value)
        self.cost += record.cost if record.kind != "none" else 1
        self.operations += record.spelling is None or not record.spelling.moves
        return node(value.op, self._inputs(value), value.attributes, value.dtype)

    def _inputs(self, value: Node) -> tuple[Node, ...]:
        return tuple([self.final[i] for i in value.inputs])

    def _read(self, value: Node) -> Node:
        target = value.attribute("target")
        if target in self.members:
            return self.final[self._entry(target)]
        return self._load(value, target)

    def _index(self, value: Node) -> Node:
        return k.index(self._rewrite(value.attribute("expression")), self._inputs(value))

    def _argument(self, value: Node) -> Node:
        return self._scalar(value.attribute("slot"), value.dtype)

    def _constant(self, value: Node) -> Node:
        if value not in self.lifted:
            return value
        number = self._scalar(value, "f64" if value.dtype in FLOATS else "i64")
        if number.dtype == value.dtype:
            return number
        return node("cast", (number,), (("dtype", value.dtype),), value.dtype)

    def _scalar(self, key: int | Node, dtype: str) -> Node:
        """A run-time number of the program, or a constant that the launch hands over."""
        self.scalars.setdefault(key, dtype)
        scalar = k.scalar(list(self.scalars).index(key), dtype)
        self.levels[scalar] = 0
        return scalar

    def _check_index(self, value: Node) -> Node:
        """An index that is wrapped, and reported to an error buffer where it is outside."""
        self.cost += LOAD_COST
        message = value.attribute("message") or (
            f"[{value.attribute('name')}] index {{value}} is out of range for a dimension of size "
            "{size}\nhint: indices lie in [-size, size)"
        )
        error = value.attribute("error", "index")
        packed: Attributes = (
            ("dimension", value.attribute("dimension", 0)),
            ("parameter", self._parameter(("error", (error, message)), "error", "w")),
            ("size", self.sizes.argument(value.attribute("size"))),
        )
        if value.attribute("strict"):
            packed = (*packed, ("strict", True))
        return k.CHECK_INDEX(self._inputs(value), packed, "i64")

    def _load(self, value: Node, target: Node) -> Node:
        self.cost += LOAD_COST
        inputs = self._inputs(value)
        mask = None
        if value.attribute("masked"):
            *others, mask = inputs
            inputs = tuple(others)
        memory = self.reads[target].memory
        parameter = self._parameter(memory, target.dtype, "r")
        self.point_bytes[memory] = self.point_bytes.get(memory, 0) + ITEM_SIZE[target.dtype]
        other = k.encode_constant(0, target.dtype)
        position = self._rewrite(self._address(value))
        return k.load(parameter, position, target.dtype, inputs, mask, other)

    def _result(self, value: Node) -> Node:
        """A reduction's or scan's result inside the kernel."""
        target = value.attribute("target")
        name = f"a{len(self.names)}"
        self.names[target] = name
        self.cost += 1
        self.operations += 1
        operand = self.final[self.members[target].value]
        level = self.levels[operand]
        if self.domain.kind == "scan":
            element = k.carry(name, target.dtype)
            self.levels[element] = level
        else:
            element = k.reduced(name, target.dtype)
            self.levels[element] = level + 1
        return element

    # ----------------------------------------------------------------------------- statements

    def _statements(self) -> list[k.Statement]:
        self._finish_values()
        stores = self._stores()
        if not stores:
            return []
        kind = self.domain.kind
        if kind == "map":
            return [k.Pass(tuple(s for _, _, s in stores))]
        if kind == "scan":
            scans = tuple(self._operation(t) for t in self.names)
            return [k.ScanPass(scans, tuple(s for _, _, s in stores))]
        reductions: dict[int, list[k.Reduction]] = {}
        for target in self.names:
            operation = self._operation(target)
            reductions.setdefault(self.levels[operation[2]], []).append(operation)
        last = max([*reductions, *(level for full, level, _ in stores if full)], default=0)
        points: dict[int, list[k.Store]] = {}
        once: list[k.Store] = []
        memory = list(self.parameters)
        for full, level, store in stores:
            if not full:
                once.append(store)
                continue
            # Memory of the caller may be read under another name too: write it last.
            in_place = memory[store[0]][0] == "input"
            points.setdefault(last if in_place else level, []).append(store)
        self._check_once(points, once, memory)
        passes = [
            (tuple(reductions.get(level, ())), tuple(points.get(level, ())))
            for level in range(last + 1)
            if level in reductions or level in points
        ]
        if self.axes.form == "column":
            body: list[k.Statement] = [k.ReducePass(reduced, stored) for reduced, stored in passes]
            return [*body, k.Pass(tuple(once))] if once else body
        body = keep_expensive_values([k.Pass(stored, reduced) for reduced, stored in passes])
        return [*body, k.RowStores(tuple(once))] if once else body

    def _check_once(
        self, points: dict[int, list[k.Store]], once: list[k.Store], memory: list[Memory]
    ) -> None:
        """Row stores come last: they must not load what the passes overwrite."""
        written = {s[0] for stores in points.values() for s in stores}
        written = {p for p in written if memory[p][0] == "input"}
        if not written:
            return
        for value in topological([store[2] for store in once]):
            if k.LOAD.matches(value) and value.attribute("parameter") in written:
                slot = memory[value.attribute("parameter")][1]
                assert isinstance(slot, int)
                raise InPlaceConflict([slot])

    def _stores(self) -> list[tuple[bool, int, k.Store]]:
        """(at every point?, earliest pass, store) per destination."""
        stores = []
        for value, places in self.stores.items():
            element = self.final[self._entry(value)]
            full = self.members[value].level == "full"
            for place in places:
                parameter = self._parameter(place.memory, value.dtype, "w")
                position = self._rewrite(self._position(value, place))
                stores.append((full, self.levels[element], (parameter, position, element)))
        return stores

    def _operation(self, target: Node) -> k.Reduction:
        operation = target.attribute("op") if BLOCKS.matches(target) else target.op
        if self.domain.kind == "scan":
            operation = "linear" if operation == "linear_scan" else operation[3:]
        return self.names[target], operation, self.final[self.members[target].value]

    # ----------------------------------------------------------------------------- the call

    def _call(self, body: list[k.Statement]) -> Call:
        axes = self.axes
        rows = tuple(self._extent(group) for group in axes.rows)
        inner, reduce = self._inner_and_reduced()
        sizes = list(self.sizes.arguments)
        chunked = not (axes.form == "map" and not rows)
        kernel = k.Kernel(
            form=axes.form,
            parameters=tuple((dtype, access) for dtype, access in self.parameters.values()),
            size_count=len(sizes) + chunked,
            scalars=tuple(self.scalars.values()),
            rows=rows,
            inner=inner,
            body=tuple(body),
            reduce=reduce,
            tiled=axes.tiled,
        )
        if chunked:
            sizes.append(self._rows_per_chunk())
        scalars = [handed_over(key, dtype) for key, dtype in self.scalars.items()]
        elements = mul(self.domain.numel, self.cost + 1)
        return Call(
            kernel,
            list(self.parameters),
            sizes,
            scalars,
            k.chunk_count(kernel, sizes),
            floordiv(elements, COST_PER_NANOSECOND),
            k.scratch_bytes(kernel, sizes),
            mul(self.domain.numel, self.operations),
            self.domain.numel,
            self._traffic(),
        )

    def _inner_and_reduced(self) -> tuple[Size, Size]:
        """The extents of r and of k."""
        special = self._rewrite(self.domain.special_extent) if self.domain.special else 1
        if self.axes.form == "row":
            return special, 1
        inner = self._extent(self.axes.inner) if self.axes.inner else 1
        return inner, special if self.axes.form in ("column", "scan") else 1

    def _traffic(self) -> list[int]:
        """See `Call`."""
        traffic = []
        for memory, (dtype, _) in self.parameters.items():
            size = 0 if dtype == "error" else ITEM_SIZE[dtype]
            traffic.append(max(self.point_bytes.get(memory, 0), size))
        return traffic

    def _rows_per_chunk(self) -> Size:
        """So many rows that a chunk has about `CHUNK_ELEMENTS` elements."""
        axes = self.axes
        inner = prod(self.domain.axes[name] for name in axes.inner)
        if self.domain.blocked:
            return 2
        if axes.form in ("column", "scan"):
            per_row = mul(self.domain.special_extent, k.COLUMN_BLOCK)
        elif axes.tiled:
            per_row = mul(inner, k.TILE_BLOCK)
        else:
            per_row = inner
        return maximum(1, floordiv(CHUNK_ELEMENTS, maximum(1, per_row)))


# Lowering of nodes that are no primitives.
_FINAL: dict[str, Callable[[Builder, Node], Node]] = {
    REF.name: Builder._read,
    MEMBER.name: Builder._result,
    CHECK.name: Builder._check_index,
    k.INDEX.name: Builder._index,
    k.SCALAR.name: Builder._argument,
    k.CONST.name: Builder._constant,
}

# ------------------------------------------------------------------------------- keeping


def keep_expensive_values(body: list[k.Statement]) -> list[k.Statement]:
    """Lets a later pass read expensive values that an earlier one computed."""
    if len(body) < 2:
        return body
    keeper = _Keeper()
    return keeper.run([s for s in body if isinstance(s, k.Pass)])


class _Keeper:
    def __init__(self) -> None:
        self.first: dict[Node, int] = {}  # pass that computes a value first
        self.costs: dict[Node, int] = {}
        self.varies: dict[Node, bool] = {}
        self.kept: dict[Node, tuple[str, int]] = {}

    def run(self, body: list[k.Pass]) -> list[k.Statement]:
        """The passes with resident vectors added and later uses replaced."""
        replaced: list[k.Pass] = []
        for number, statement in enumerate(body):
            memo: dict[Node, Node] = {}
            reductions = tuple(
                (name, op, self._use(v, number, memo)) for name, op, v in statement.reductions
            )
            stores = tuple((p, i, self._use(v, number, memo)) for p, i, v in statement.stores)
            replaced.append(k.Pass(stores, reductions))
        keeps: dict[int, list[k.Keep]] = {}
        for value, (name, number) in self.kept.items():
            keeps.setdefault(number, []).append((name, self.computed[number][value]))
        return [
            k.Pass(s.stores, s.reductions, tuple(keeps.get(i, ()))) for i, s in enumerate(replaced)
        ]

    computed: dict[int, dict[Node, Node]]

    def _use(self, root: Node, number: int, memo: dict[Node, Node]) -> Node:
        """The value as this pass computes it."""
        if not hasattr(self, "computed"):
            self.computed = {}
        self.computed[number] = memo
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            value, expanded = stack.pop()
            if value in memo:
                continue
            if not expanded:
                if self._is_kept(value, number):
                    memo[value] = k.kept(self.kept[value][0], value.dtype)
                    continue
                stack.append((value, True))
                stack.extend((i, False) for i in value.inputs)
                continue
            inputs = tuple([memo[i] for i in value.inputs])
            same = inputs == value.inputs
            memo[value] = value if same else node(value.op, inputs, value.attributes, value.dtype)
            self._note(value, number)
        return memo[root]

    def _is_kept(self, value: Node, number: int) -> bool:
        if value in self.kept:
            return self.kept[value][1] < number
        first = self.first.get(value, number)
        if first >= number or not self.varies[value] or self.costs[value] < EXPENSIVE:
            return False
        self.kept[value] = (f"v{len(self.kept)}", first)
        return True

    def _note(self, value: Node, number: int) -> None:
        if value in self.first:
            return
        self.first[value] = number
        expression = k.value_expression(value)
        varies = k.KEPT.matches(value) or (
            isinstance(expression, SizeExpr) and "r" in free_symbols(expression)
        )
        self.varies[value] = varies or any(self.varies.get(i, True) for i in value.inputs)
        own = LOAD_COST if k.LOAD.matches(value) else record_of(value).cost
        cost = own + sum(
            LOAD_COST if i in self.kept else self.costs.get(i, 0) for i in value.inputs
        )
        self.costs[value] = cost if self.varies[value] else 0


def _numbers_of_calls(values: Sequence[Node], varying: bool) -> frozenset[Node]:
    """Constants that a kernel takes as arguments: calls with other numbers then share it.

    Where there are many, they are the coefficients of a formula, the same in every call.
    """
    dtypes = (*FLOATS, *INTEGERS) if varying else FLOATS
    numbers = [v for v in values if k.CONST.matches(v) and v.dtype in dtypes and not _is_common(v)]
    limit = 8 * LIFTED_LIMIT if varying else LIFTED_LIMIT
    return frozenset(numbers) if len(numbers) <= limit else frozenset()


def _is_common(constant: Node) -> bool:
    number = _number(constant)
    return not math.isfinite(number) or abs(number) in COMMON_NUMBERS


def _number(constant: Node) -> float | int:
    text: str = constant.attribute("value")
    return float.fromhex(text) if constant.dtype in FLOATS else int(text)


def handed_over(key: int | Node, dtype: str) -> Scalar:
    """A kernel's scalar: a slot's number, or the value of a lifted constant."""
    if isinstance(key, Node):
        return ("constant", _number(key), dtype == "f64")
    return ("argument", key, dtype == "f64")
