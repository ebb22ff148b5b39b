"""Values of a kernel as C statements: what is computed where, and how memory is addressed.

Each value has one home: row scope (scalars, once per row), k scope (scalars, once per step of the
k loop) or the innermost loop (vectors). `Values.emit` puts a definition into its home and hands
out names; a scalar used by vectors is broadcast in its home, outside of the loop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from flambeau.compiler.codegen.c.printer.c_index import NEAR, index_difference, lane_step
from flambeau.compiler.codegen.c.printer.c_runs import sources
from flambeau.compiler.codegen.c.printer.c_spelling import Speller
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, Lanes, round_bfloat16
from flambeau.ir import size as sizes
from flambeau.ir.dtypes import OPAQUE, UNSIGNED, minifloat_code
from flambeau.ir.kernel import (
    CARRY,
    CHECK_INDEX,
    CONST,
    INDEX,
    KEPT,
    LOAD,
    REDUCED,
    SCALAR,
    Kernel,
    decode_constant,
    value_expression,
)
from flambeau.ir.node import Node, topological
from flambeau.ir.size import Size
from flambeau.ir.spelling import spelling_of

# What a value varies along: r, k, or the runs of vectors in which comparisons do not change.
ON_R, ON_K, ON_RUNS = 1, 2, 4


def c_expression(expression: Size) -> str:
    """A size as a C expression that can be an operand."""
    text = sizes.stringify(expression, "c")
    return text if text.isalnum() else f"({text})"


@dataclass
class Scope:
    """A place where definitions go.

    Attributes:
        lanes: lane count of the values that live here.
        level: what values here may vary along (ON_R | ON_K | ON_RUNS).
        parent: the scope around it.
        indent: of its lines.
        lines: definitions so far.
        names: value (or other key) -> C name.
        active: lanes in use, a C expression; None: all of them.
    """

    lanes: Lanes
    level: int
    parent: Scope | None
    indent: str
    lines: list[str] = field(default_factory=list)
    names: dict[object, str] = field(default_factory=dict)
    active: str | None = None

    def add(self, line: str) -> None:
        """Appends one line of C."""
        self.lines.append(self.indent + line)

    def home(self, level: int) -> Scope:
        """The outermost scope where a value that varies along `level` can live."""
        scope, outer = self, self.parent
        while outer is not None and not level & ~outer.level:
            scope, outer = outer, outer.parent
        return scope


class Values:
    """Emits the values of one kernel."""

    def __init__(self, kernel: Kernel, lanes: Lanes) -> None:
        """Prepares for `kernel`, whose vectors have `lanes`."""
        self.kernel = kernel
        self.lanes = lanes
        self.scalars = Lanes(1, lanes.mask_bits)
        self.spellers = {1: Speller(self.scalars), lanes.count: Speller(lanes)}
        self.count = 0
        self.levels: dict[Node, int] = {}
        self.arrays: dict[str, str] = {}  # reduced or carried name -> C array over r
        self.kept: dict[str, str] = {}  # kept name -> pointer
        self.hoisted: dict[Node, str] = {}  # value of form "column" -> C array over r
        self.hidden: set[Node] = set()  # constants whose values C's compiler may not know
        self.uniform: frozenset[Node] = frozenset()  # comparisons that are scalars of a run
        self.set_levels(kernel.roots())
        self._hide_constants(kernel.roots())

    def new_name(self, prefix: str = "v") -> str:
        """A fresh C identifier."""
        self.count += 1
        return f"{prefix}{self.count}"

    def set_levels(self, roots: Iterable[Node]) -> None:
        """Finds out what every value varies along."""
        across = 0 if self.kernel.form == "row" else ON_R
        fixed = {KEPT.name: ON_R, REDUCED.name: across, CARRY.name: ON_R | ON_K}
        for node in topological(roots):
            level = fixed.get(node.op, 0)
            expression = value_expression(node)
            if expression is not None:
                free = sizes.free_symbols(expression)
                level |= (ON_R if "r" in free else 0) | (ON_K if "k" in free else 0)
            for operand in node.inputs:
                level |= self.levels[operand]
            if node in self.uniform:
                level = level & ~ON_R | ON_RUNS
            self.levels[node] = level

    @contextmanager
    def runs(self, uniform: Iterable[Node]) -> Iterator[None]:
        """In its block, these comparisons are the same in all lanes, and in a run of vectors."""
        levels, self.levels, self.uniform = self.levels, {}, frozenset(uniform)
        self.set_levels(self.kernel.roots())
        yield
        self.levels, self.uniform = levels, frozenset()

    def _hide_constants(self, roots: Iterable[Node]) -> None:
        """Finds the constants that meet only constants: 0 / 0 of a mean without elements. C's
        compiler would compute it, as a NaN of another sign than the processor's and baseline's."""
        fixed: set[Node] = set()
        for node in topological(roots):
            if CONST.matches(node):
                fixed.add(node)
            elif node.inputs and fixed.issuperset(node.inputs):
                fixed.add(node)
                self.hidden.update(operand for operand in node.inputs if CONST.matches(operand))

    # --------------------------------------------------------------------------- names

    def emit(self, roots: Iterable[Node], scope: Scope) -> None:
        """Defines `roots` and what they need, each in its home."""
        stack = [(root, False) for root in reversed(list(roots))]
        while stack:
            node, ready = stack.pop()
            home = scope.home(self.levels[node])
            if node in home.names or node in scope.names:
                continue
            if ready:
                home.names[node] = self._define(node, home)
                continue
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(self._operands(node)))

    def _operands(self, node: Node) -> Sequence[Node]:
        """The values that the definition of a value takes the names of."""
        if node in self.hoisted or node in self.uniform or self.comparison(node) is not None:
            return ()
        choice = self.choice(node)
        return node.inputs if choice is None else choice[0]

    def choice(self, node: Node) -> tuple[list[Node], list[Node]] | None:
        """Conditions and loads of a value that is one of several loads, chosen for whole vectors
        at a time: a choice of pointers."""
        if not spelling_of(node.op).selects or self.kernel.tiled or not self.levels[node] & ON_R:
            return None
        tree = sources(node)
        if tree is None:
            return None
        loads = [value for value in tree if LOAD.matches(value)]
        conditions = [value.inputs[0] for value in tree if not LOAD.matches(value)]
        if any(self.levels[condition] & ON_R for condition in conditions):
            return None
        dtypes = {self.kernel.parameters[load.attribute("parameter")][0] for load in loads}
        splits = [sizes.affine_in(load.attribute("index"), ("r",)) for load in loads]
        factors = {None if split is None else split[0].get("r", 0) for split in splits}
        alike = len(dtypes) == len(factors) == 1 and factors.isdisjoint((None, 0))
        return (conditions, loads) if alike else None

    def name(self, node: Node, scope: Scope) -> str:
        """C name of an emitted value, broadcast if it is a scalar and the scope has vectors."""
        if node in scope.names:
            return scope.names[node]
        home = scope.home(self.levels[node])
        text = home.names[node]
        if home.lanes.count == scope.lanes.count:
            return text
        key = ("splat", node)
        if key not in home.names:
            kind = scope.lanes.type(node.dtype)
            home.names[key] = name = self.new_name("s")
            splat = f"fb_splat_{kind}({text})" if node.dtype != "c128" else self._splat128(text)
            home.add(f"const {kind} {name} = {splat};")
        return home.names[key]

    def _splat128(self, name: str) -> str:
        count = self.lanes.count
        words = ", ".join([f"(u64x1){name}, (u64x1)({name} >> 64)"] * count)
        return f"(u128x{count}){{{words}}}"

    def _define(self, node: Node, home: Scope) -> str:
        expression = self._expression(node, home)
        name = self.new_name()
        if node in self.hidden:
            kind = home.lanes.type(node.dtype)
            home.add(f"const volatile {kind} {name}h = {expression};")
            expression = f"{name}h"
        home.add(f"const {home.lanes.type(node.dtype)} {name} = {expression};")
        return name

    def _expression(self, node: Node, home: Scope) -> str:
        if node in self.hoisted:
            return f"*({home.lanes.type(node.dtype)} *)({self.hoisted[node]} + c)"
        leaf = _LEAVES.get(node.op)
        if leaf is not None:
            return leaf(self, node, home)
        if node in self.uniform:
            return self._compare_in_run(node)
        compared = self.comparison(node)
        if compared is not None:
            return self._compare_indices(node.op, *compared, home)
        choice = self.choice(node)
        if choice is not None:
            return self._chosen(node, *choice, home)
        speller = self.spellers[home.lanes.count]
        return speller.spell(node, [self.name(operand, home) for operand in node.inputs])

    def stored(self, node: Node, dtype: str) -> Node:
        """The value to encode for a store: rounding to a half type happens when encoding."""
        if dtype in ("f16", "bf16") and spelling_of(node.op).converts and node.dtype == dtype:
            source = node.inputs[0]
            if source.dtype == "f32":
                return source
        return node

    def comparison(self, node: Node) -> tuple[Size, int] | None:
        """Difference and step of a comparison of indices that varies along r."""
        if self.kernel.tiled or self.lanes.count == 1 or not self.levels[node] & ON_R:
            return None
        return index_difference(node, self.lanes.count)

    def _compare_in_run(self, node: Node) -> str:
        """A comparison at the first r of a run."""
        compared = index_difference(node, 1)
        assert compared is not None
        return f"-(({sizes.stringify(compared[0], 'c')}) {_C_OPERATORS[node.op]} 0)"

    def _compare_indices(self, op: str, difference: Size, step: int, home: Scope) -> str:
        """A comparison with zero: what is far from it may as well be nearer."""
        count, mask = home.lanes.count, home.lanes.mask
        name = self.new_name("d")
        home.add(f"const long long {name} = {sizes.stringify(difference, 'c')};")
        near = f"{name} < -{NEAR} ? -{NEAR} : {name} > {NEAR} ? {NEAR} : {name}"
        steps = ", ".join(str(step * lane) for lane in range(count))
        lanes = f"fb_splat_{mask}x{count}({near}) + ({mask}x{count}){{{steps}}}"
        home.add(f"const {mask}x{count} {name}l = {lanes};")  # the comparison is a macro
        return f"({mask}x{count})fb_{op}_x{count}({name}l, 0)"

    # --------------------------------------------------------------------------- leaves

    def constant(self, text: str, dtype: str) -> str:
        """C constant of this dtype, from the text that kernels hold."""
        value = decode_constant(text, dtype)
        if dtype == "bool":
            return "-1" if value else "0"
        if isinstance(value, complex):
            return _complex_constant(value, dtype)
        if dtype in OPAQUE:
            return str(minifloat_code(float(value), dtype))
        if isinstance(value, float):
            return _float_constant(value, dtype)
        if dtype in UNSIGNED:
            return f"{value}{'ull' if dtype == 'u64' else 'u'}"
        if dtype == "i64":
            return f"(-{2**63 - 1}ll - 1)" if value == -(2**63) else f"{value}ll"
        return f"({value})" if value != -(2**31) else "(-2147483647 - 1)"

    def _constant(self, node: Node, home: Scope) -> str:
        return self.constant(node.attribute("value"), node.dtype)

    def _result(self, node: Node, home: Scope) -> str:
        return f"*({home.lanes.type(node.dtype)} *)({self.arrays[node.attribute('name')]} + c)"

    def _scalar(self, node: Node, home: Scope) -> str:
        slot = node.attribute("slot")
        kind = self.kernel.scalars[slot]
        field_name = f"x[{slot}].{'d' if kind == 'f64' else 'i'}"
        if node.dtype == "bool":
            return f"-({field_name} != 0)"
        return f"({self.scalars.type(node.dtype)}){field_name}"

    def _kept(self, node: Node, home: Scope) -> str:
        count = home.lanes.count
        kind = MEMORY_KIND[node.dtype]
        pointer = f"({self.kept[node.attribute('name')]} + r)"
        speller = self.spellers[count]
        return speller.decode(f"*(const {kind}x{count} *){pointer}", node.dtype)

    def _indices(self, node: Node) -> list[Node]:
        """The values bound to d0, d1, .."""
        return list(node.inputs[:-1] if node.attribute("masked") else node.inputs)

    def _scalar_index(self, expression: Size, indices: list[Node], home: Scope) -> str:
        renamed: dict[str, Size] = {
            f"d{i}": sizes.symbol(self.name(value, home)) for i, value in enumerate(indices)
        }
        return sizes.stringify(sizes.substitute(expression, renamed), "c")

    def base(self, parameter: int, offset_of: Size, scope: Scope, constant: bool) -> str:
        """Pointer to element `rest` (free of r) of a parameter, defined outside of the loop."""
        level = ON_K if "k" in sizes.free_symbols(offset_of) else 0
        home = scope.home(level)
        key = ("base", parameter, offset_of, constant)
        if key not in home.names:
            kind = MEMORY_KIND[self.kernel.parameters[parameter][0]]
            qualifier = "const " if constant else ""
            home.names[key] = name = self.new_name("b")
            offset = f" + {c_expression(offset_of)}" if offset_of != 0 else ""
            home.add(
                f"{qualifier}{kind}x1 *{name} = ({qualifier}{kind}x1 *)p[{parameter}]{offset};"
            )
        return home.names[key]

    def address(self, base: str, factor: Size) -> str:
        """Address of the vector's first element: base + factor * r."""
        if factor == 0:
            return base
        return f"{base} + r" if factor == 1 else f"{base} + {c_expression(factor)}*r"

    def _load(self, node: Node, home: Scope) -> str:
        parameter = node.attribute("parameter")
        dtype = self.kernel.parameters[parameter][0]
        count = home.lanes.count
        expression, indices = node.attribute("index"), self._indices(node)
        speller = self.spellers[count]
        if count == 1:
            memory = self._scalar_load(node, parameter, expression, indices, home)
            return self._guarded(node, speller.decode(memory, dtype), home)
        ordered = self._in_order(parameter, expression, indices, home)
        if ordered is None:
            base = self.base(parameter, 0, home, True)
            arguments = f"{base}, {self._index_vector(expression, indices, home)}"
            masked, text = "takeif", f"fb_takem_#({arguments}, {home.active or count})"
        else:
            arguments = f"{ordered[0]}, {c_expression(ordered[1])}"
            masked, text = "loadif", self._vector_load(*ordered, home)
        if not node.attribute("masked"):
            memory = text.replace("#", f"{MEMORY_KIND[dtype]}x{count}")
        else:
            memory = self._masked(node, masked, arguments, text, home)
        return speller.decode(memory, dtype)

    def _vector_load(self, pointer: str, factor: Size, home: Scope) -> str:
        """A vector from memory; # is replaced by its type."""
        if factor == 1:
            return (
                f"fb_loadm_#({pointer}, {home.active})"
                if home.active
                else f"*(const # *)({pointer})"
            )
        arguments = f"{pointer}, {c_expression(factor)}"
        return (
            f"fb_gatherm_#({arguments}, {home.active})"
            if home.active
            else f"fb_gather_#({arguments})"
        )

    def _in_order(
        self, parameter: int, expression: Size, indices: list[Node], home: Scope, load: bool = True
    ) -> tuple[str, Size] | None:
        """Address of a vector's first element and the step to the next; None if there is none."""
        names: dict[str, Size] = {}
        for i, value in enumerate(indices):
            place = home.home(self.levels[value])
            if place.lanes.count == 1:  # the same in all lanes
                names[f"d{i}"] = sizes.symbol(place.names[value])
            elif f"d{i}" in sizes.free_symbols(expression):
                return None
        expression = sizes.substitute(expression, names)
        split = None if names else sizes.affine_in(expression, ("r",))
        if split is not None:
            factor = split[0].get("r", 0)
            return self.address(self.base(parameter, split[1], home, load), factor), factor
        step = None if self.kernel.tiled else lane_step(expression, home.lanes.count)
        if step is None:
            return None
        return f"{self.base(parameter, 0, home, load)} + {c_expression(expression)}", step

    def _scalar_load(
        self, node: Node, parameter: int, expression: Size, indices: list[Node], home: Scope
    ) -> str:
        base = self.base(parameter, 0, home, True)
        return f"{base}[{self._scalar_index(expression, indices, home)}]"

    def _guarded(self, node: Node, loaded: str, home: Scope) -> str:
        """A scalar load, guarded by its mask: C's conditional does not read the other side."""
        if not node.attribute("masked"):
            return loaded
        other = self.constant(node.attribute("other"), node.dtype)
        return f"{self.name(node.inputs[-1], home)} ? {loaded} : {other}"

    def _masked(self, node: Node, stem: str, arguments: str, load: str, home: Scope) -> str:
        """A load of the lanes of a mask, by a helper; of all lanes or none if it is a scalar."""
        lanes, mask = home.lanes, node.inputs[-1]
        vector = f"{MEMORY_KIND[node.dtype]}x{lanes.count}"
        encoded = self.constant(node.attribute("other"), node.dtype)
        scalar = self.spellers[1].encode(
            f"(({self.scalars.type(node.dtype)}){encoded})", node.dtype
        )
        other = f"fb_splat_{vector}({scalar})"
        if vector.startswith("u128"):
            other = f"({vector}){{0}}"
        place = home.home(self.levels[mask])
        if place.lanes.count == 1:
            name = self.new_name()
            home.add(f"{vector} {name} = {other};")
            home.add(f"if ({place.names[mask]}) {name} = {load.replace('#', vector)};")
            return name
        active = home.active or lanes.count
        masked = f"{arguments}, {self.name(mask, home)}, {other}, {active}"
        return f"fb_{stem}{lanes.mask_bits}_{vector}({masked})"

    def _chosen(self, node: Node, conditions: list[Node], loads: list[Node], home: Scope) -> str:
        """One of several loads: from a pointer that is chosen where the conditions are computed."""
        level, bases = 0, dict[Node, str]()
        for condition in conditions:
            level |= self.levels[condition]
        for load in loads:
            split = sizes.affine_in(load.attribute("index"), ("r",))
            assert split is not None
            level |= ON_K if "k" in sizes.free_symbols(split[1]) else 0
            bases[load] = self.base(load.attribute("parameter"), split[1], home, True)
            factor = split[0]["r"]

        def text(value: Node) -> str:
            if value in bases:
                return bases[value]
            condition, first, second = value.inputs
            chooses = place.home(self.levels[condition]).names[condition]
            return f"{chooses} ? {text(first)} : ({text(second)})"

        place, key = home.home(level), ("chosen", node)
        dtype = self.kernel.parameters[loads[0].attribute("parameter")][0]
        kind = MEMORY_KIND[dtype]
        if key not in place.names:
            place.names[key] = name = self.new_name("b")
            place.add(f"const {kind}x1 *{name} = {text(node)};")
        memory = self._vector_load(self.address(place.names[key], factor), factor, home)
        count = home.lanes.count
        return self.spellers[count].decode(memory.replace("#", f"{kind}x{count}"), dtype)

    # --------------------------------------------------------------------------- indices

    def _index_value(self, node: Node, home: Scope) -> str:
        expression, indices = node.attribute("expression"), self._indices(node)
        if home.lanes.count == 1:
            return self._scalar_index(expression, indices, home)
        return self._index_vector(expression, indices, home)

    def _index_vector(self, expression: Size, indices: list[Node], home: Scope) -> str:
        """An index expression for every lane, as an i64 vector."""
        count = home.lanes.count
        names = [f"d{i}" for i in range(len(indices))]
        split = sizes.affine_in(expression, ("r", *names))
        if split is None:
            return self._index_by_lane(expression, indices, home)
        factors, others = split
        along_r = factors.get("r", 0)
        start = sizes.add(others, sizes.mul(along_r, sizes.symbol("r")))
        terms = [f"fb_splat_i64x{count}({sizes.stringify(start, 'c')})"]
        if along_r != 0:
            steps = ", ".join(map(str, range(count)))
            scale = "" if along_r == 1 else f" * (long long){c_expression(along_r)}"
            terms.append(f"(i64x{count}){{{steps}}}{scale}")
        for name, value in zip(names, indices):
            factor = factors.get(name, 0)
            if factor != 0:
                scale = "" if factor == 1 else f" * (long long){c_expression(factor)}"
                terms.append(f"{self.name(value, home)}{scale}")
        return "(" + " + ".join(terms) + ")"

    def _index_by_lane(self, expression: Size, indices: list[Node], home: Scope) -> str:
        count = home.lanes.count
        name, renamed = self.new_name("i"), {}
        home.add(f"union {{ i64x{count} v; i64x1 t[{count}]; }} {name};")
        for i, value in enumerate(indices):
            array = self.new_name("i")
            home.add(
                f"union {{ i64x{count} v; i64x1 t[{count}]; }} {array} = {{ "
                f"{self.name(value, home)} }};"
            )
            renamed[f"d{i}"] = array
        bindings = "".join(f"const long long {d} = {a}.t[l]; " for d, a in renamed.items())
        text = sizes.stringify(expression, "c")
        first = self.new_name("i")
        home.add(f"const long long {first} = r;")
        home.add(
            f"for (int l = 0; l < {count}; ++l) {{ const long long r = {first} + l; "
            f"{bindings}{name}.t[l] = {text}; (void)r; }}"
        )
        return f"{name}.v"

    def _check_index(self, node: Node, home: Scope) -> str:
        count = home.lanes.count
        error = self.base(node.attribute("parameter"), 0, home, False)
        extent = c_expression(node.attribute("size"))
        dimension = node.attribute("dimension", 0)
        active = home.active or str(count)
        value = self.name(node.inputs[0], home)
        check = "checkstrict" if node.attribute("strict") else "checkindex"
        return f"fb_{check}_i64x{count}({value}, {extent}, {dimension}, {error}, {active})"

    # --------------------------------------------------------------------------- stores

    def store(self, parameter: int, index: Size, value: Node, scope: Scope) -> None:
        """Emits one store of a value that `emit` has seen."""
        dtype = self.kernel.parameters[parameter][0]
        count, kind = scope.lanes.count, MEMORY_KIND[dtype]
        encoded = self.spellers[count].encode(self.name(self.stored(value, dtype), scope), dtype)
        if count == 1:
            base = self.base(parameter, 0, scope, False)
            scope.add(f"{base}[{sizes.stringify(index, 'c')}] = {encoded};")
            return
        active = scope.active or str(count)
        ordered = self._in_order(parameter, index, [], scope, load=False)
        if ordered is None:
            positions = self._index_vector(index, [], scope)
            base = self.base(parameter, 0, scope, False)
            scope.add(f"fb_givem_{kind}x{count}({base}, {positions}, {encoded}, {active});")
            return
        pointer, factor = ordered
        if factor == 1 and scope.active:
            scope.add(f"fb_storem_{kind}x{count}({pointer}, {encoded}, {active});")
        elif factor == 1:
            scope.add(f"*({kind}x{count} *)({pointer}) = {encoded};")
        else:
            stride = c_expression(factor)
            scope.add(f"fb_scatterm_{kind}x{count}({pointer}, {stride}, {encoded}, {active});")


def _float_constant(value: float, dtype: str) -> str:
    single = dtype != "f64"
    if dtype == "bf16":
        value = round_bfloat16(value)
    if value != value:
        return '__builtin_nanf("")' if single else '__builtin_nan("")'
    if value in (float("inf"), float("-inf")):
        text = "__builtin_inff()" if single else "__builtin_inf()"
        return f"-{text}" if value < 0 else text
    if dtype == "f16":
        try:
            value = struct.unpack("<e", struct.pack("<e", value))[0]
        except OverflowError:
            return "-__builtin_inff()" if value < 0 else "__builtin_inff()"
    elif dtype == "f32":
        return f"(float){value.hex()}"
    return value.hex() + ("f" if single else "")


def _complex_constant(value: complex, dtype: str) -> str:
    if dtype == "c32":
        real, imaginary = struct.unpack("<HH", struct.pack("<ee", value.real, value.imag))
        return f"0x{imaginary << 16 | real:x}u"
    if dtype == "c64":
        real, imaginary = struct.unpack("<II", struct.pack("<ff", value.real, value.imag))
        return f"0x{imaginary << 32 | real:x}ull"
    low, high = struct.unpack("<QQ", struct.pack("<dd", value.real, value.imag))
    return f"((u128x1)0x{high:x}ull << 64 | 0x{low:x}ull)"


_C_OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

# Values that only kernels have; all others are spelled from their operands.
_LEAVES: dict[str, Callable[[Values, Node, Scope], str]] = {
    LOAD.name: Values._load,
    CONST.name: Values._constant,
    INDEX.name: Values._index_value,
    SCALAR.name: Values._scalar,
    REDUCED.name: Values._result,
    CARRY.name: Values._result,
    KEPT.name: Values._kept,
    CHECK_INDEX.name: Values._check_index,
}
