"""The records of helper functions: one for each text in a `.c.in` file of this folder.

A helper is called `fb_<stem>_<kind>x<lanes>` (`fb_<stem>_x<lanes>`, if it is for all kinds). Its
record states the file and the section that hold its text, for which kinds and lane counts that is,
and the names that it is filled in with beyond those that all texts may use (`library`). Which other
helpers it needs is what its text calls. A file that is not named here declares its helpers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flambeau.compiler.codegen.c.printer.c_reductions import OPERATORS, identity
from flambeau.compiler.codegen.c.template import SUFFIX, Condition, Value, declared
from flambeau.compiler.targets.description import Target
from flambeau.ir.dtypes import MINIFLOATS, Minifloat
from flambeau.ir.kernel import TILE_BLOCK

Names = Mapping[str, Value]
Native = Callable[[Target, str, int], "tuple[str, Value] | None"]

FLOATS = ("f32", "f64")
INTEGERS = tuple(f"{letter}{bits}" for letter in "iu" for bits in (8, 16, 32, 64))
NUMBERS = FLOATS + INTEGERS
MEMORY = (*NUMBERS, "u128")

PITCH = TILE_BLOCK + 16  # rows of transposed tiles start in different sets of the cache


@dataclass(frozen=True)
class Helper:
    """The record of a helper function.

    Attributes:
        file: the name of its `.c.in` file.
        section: the name of its text there.
        kinds: of the elements that it is for; (""): it is for all.
        one: whether it is for one lane.
        many: whether it is for vectors.
        names: what its text is filled in with.
        names_of: names that depend on kind and lanes, of which a text uses some.
        native: the target's instruction, as C, and when it can be used.
    """

    file: str
    section: str
    kinds: tuple[str, ...]
    one: bool
    many: bool
    names: Names
    names_of: Callable[[str, int], Names] | None
    native: Native | None

    def covers(self, kind: str, lanes: int) -> bool:
        """Whether it is for this kind and lane count."""
        return kind in self.kinds and (self.one if lanes == 1 else self.many)


HELPERS: dict[str, list[Helper]] = {}


def _define(
    stems: str,
    file: str,
    kinds: Iterable[str],
    section: str = "",
    names: Names | None = None,
    *,
    one: bool = True,
    many: bool = True,
    names_of: Callable[[str, int], Names] | None = None,
    native: Native | None = None,
) -> None:
    """Records helpers: each has a section of its name, or all share one."""
    for stem in stems.split():
        place, filled = (file, section or stem, tuple(kinds)), names or {}
        record = Helper(*place, one, many, filled, names_of, native)
        HELPERS.setdefault(stem, []).append(record)


# ------------------------------------------------------------------------------- instructions


def _instruction(operation: str, kind: str = "", **operands: str) -> Native:
    """The target's instruction for an operation on vectors of the helper's kind, or another."""

    def native(target: Target, own: str, lanes: int) -> tuple[str, Value] | None:
        instruction = target.instruction(operation, kind or own, lanes)
        if instruction is None:
            return None
        text = instruction(**operands) if instruction.text != "loop" else ""
        return text, Condition("#ifndef __clang__") if instruction.gcc else 1

    return native


_ACTIVE = "(1u << m) - 1u"  # bits of the active lanes, where these are not all


def _either(*natives: Native) -> Native:
    """The first one that a target has."""
    return lambda *place: next((n for native in natives if (n := native(*place))), None)


def _masked_load(mask: str) -> Native:
    """A load of the lanes whose mask is set, among the active ones."""

    def native(target: Target, kind: str, lanes: int) -> tuple[str, Value] | None:
        between = target.instruction("between", kind, lanes)
        if between is not None and kind[1:] == mask[1:]:
            others = f"(~on & ({mask}x{lanes})other)"
            return f"(({mask}x{lanes}){between(p='p', inside='on')} | {others})", 1
        load = target.instruction("load", kind, lanes)
        bits = target.instruction("bits", mask, lanes)
        if load is None or bits is None:
            return None
        active = f"__builtin_expect(m >= {lanes}, 1) ? ~0u : {_ACTIVE}"
        text = load(p="p", other="other", bits=bits(mask="mask", active=active))
        return text, Condition("#ifndef __clang__") if bits.gcc else 1

    return native


# ------------------------------------------------------------------------------- vectors

_define("lt le gt ge eq ne", "vectors", ("",))
_define("as to splat", "vectors", NUMBERS)
_define("widen", "vectors", ("f64",), one=False, native=_instruction("widen", a="a"))
_define("select", "vectors", NUMBERS, native=_instruction("select", mask="mask", a="a", b="b"))
_define("blend", "vectors", NUMBERS)
_define("horner abs copysign one_nan", "vectors", FLOATS)
_define("fma", "vectors", FLOATS, native=_instruction("fma", a="a", b="b", c="c"))
for _name in ("sqrt", "rint", "floor", "ceil", "trunc"):
    _elementwise = {"elementwise": "roundeven" if _name == "rint" else _name}
    _native = _instruction(_name, a="a")
    _define(_name, "vectors", FLOATS, "round", _elementwise, native=_native)
for _name, _wins in (("min", "lt"), ("max", "gt")):
    _native = _instruction(_name, a="a", b="b")
    _define(_name, "vectors", FLOATS, "extremum", {"wins": _wins}, native=_native)
_define("any", "vectors", ("i32", "i64"), native=_instruction("any", mask="mask"))
_define("pick", "vectors", NUMBERS, one=False)
_define("cselect", "vectors", ("u128",))

# ------------------------------------------------------------------------------- functions

_define("exp_series exp exp2 expm1 log_series log1p tanh sigmoid erf", "float32", ("f32",))
_define("trig_slow", "float32", ("f32",), many=False)
for _name, _natural, _decimal in (("log", 1, 0), ("log2", 0, 0), ("log10", 0, 1)):
    _define(_name, "float32", ("f32",), "log", {"natural": _natural, "decimal": _decimal})
for _name, _cosine in (("sin", 0), ("cos", 1)):
    _define(_name, "float32", ("f32",), "trig", {"cosine": _cosine})

_INNER = "tan asin acos atan sinh cosh asinh acosh atanh erfc"
_LIBRARY = f"exp exp2 expm1 log log2 log10 log1p sin cos erf {_INNER}"
_define(_LIBRARY, "float64", ("f64",), "library")
_define("atan2 pow", "float64", ("f64",), "library_two")
_define("lgamma quotient sigmoid tanh erfinv digamma", "float64", ("f64",))
_define("erfinv_one", "float64", ("f64",), many=False)
_define("rsqrt fmod nextafter", "float64", FLOATS)

_define(f"{_INNER} erfinv lgamma digamma", "wide", ("f32",), "widen", {"halves": (0, 1)})
_define("atan2 pow", "wide", ("f32",), "widen_two", {"halves": (0, 1)})
for _name, _minus_one in (("core_exp", 0), ("core_expm1", 1)):
    _define(_name, "wide", ("f64",), "core_exp", {"minus_one": _minus_one})
for _name in f"exp_series log_series sin_pi log log1p atan2 pow {_INNER}".split():
    _define(f"core_{_name}", "wide", ("f64",))
_define("core_erfinv core_lgamma core_digamma", "wide", ("f64",))

_define("chebyshev polynomial zeta_add zeta_right zeta_one", "special", ("f64",), many=False)
_define("gamma_phi gamma_density gamma_series gamma_fraction", "gamma", ("f64",), many=False)
_define("gamma_small gamma_uniform gamma_part", "gamma", ("f64",), many=False)
_define("igamma_one igammac_one", "gamma", ("f64",), many=False)
_define("zeta igamma igammac", "special", FLOATS, "by_number")
_define("orthogonal_polynomial", "special", FLOATS)

FUNCTIONS: dict[str, int] = {
    **dict.fromkeys(f"{_LIBRARY} lgamma digamma erfinv tanh sigmoid rsqrt".split(), 1),
    **dict.fromkeys("sqrt floor ceil trunc rint".split(), 1),
    **dict.fromkeys("atan2 pow fmod nextafter".split(), 2),
}
"""The elementary functions, of which both precisions have one: number of operands."""

# ------------------------------------------------------------------------------- integers

# Of the quotient q and the remainder r of whole vectors.
_RESULTS = {
    "ifloordiv": "q + wrong",
    "itruncdiv": "q",
    "iremainder": "r + (b & wrong)",
    "ifmod": "r",
}


def _division(name: str) -> Callable[[str, int], Names]:
    def names(kind: str, lanes: int) -> Names:
        by_doubles = name in _RESULTS and kind in ("i32", "i64")
        return {
            "by_doubles": by_doubles,
            "long": kind == "i64",
            "floors": "wrong" in _RESULTS.get(name, ""),
            "remains": _RESULTS.get(name) != "q",
            "result": _RESULTS.get(name, ""),
            "general": kind != "i32" or not by_doubles,
        }

    return names


for _name in (*_RESULTS, "ipow"):
    _define(_name, "integer", INTEGERS, many=False)
    _define(_name, "integer", INTEGERS, "by_lane", one=False, names_of=_division(_name))
_define("shl shr iabs", "integer", INTEGERS)
_define("sign", "integer", NUMBERS)
_define("remainder floor_div", "integer", FLOATS)

# ------------------------------------------------------------------------------- conversions

_HALF = ("u16", "f32")  # conversions to half types are named after their result or their operand
_define("frombf16", "conversion", ("u16",))
_define("tobf16", "conversion", _HALF)
_define("fromf16", "conversion", ("u16",), native=_instruction("from_half", "f32", a="a"))
_define("tof16", "conversion", _HALF, native=_instruction("to_half", "f32", a="a"))
for _name in ("f16", "bf16"):
    _define(f"next{_name}", "conversion", ("f32",), "next_half", {"half_type": _name})


def _to_integer(bits: int) -> Callable[[str, int], Names]:
    least = f"(-{(1 << (bits - 1)) - 1}{'ll' if bits == 64 else ''} - 1)"
    top_bit = f"0x{1 << (bits - 1):x}{'ull' if bits == 64 else 'u'}"

    def names(kind: str, lanes: int) -> Names:
        own: Names = {"wide": f"i{bits}x{lanes}", "unsigned_wide": f"u{bits}x{lanes}"}
        limits: Names = {"least": least, "top_bit": top_bit, "beyond": kind == "f64" and bits == 32}
        return {**own, **limits, "to_bits": bits, "bound": f"({kind}x1)0x1p{bits - 1}"}

    return names


for _bits in (32, 64):
    _define(f"toint{_bits}", "conversion", FLOATS, "toint", names_of=_to_integer(_bits))
    _define(f"tounsigned{_bits}", "conversion", FLOATS, "tounsigned", names_of=_to_integer(_bits))


def _define_minifloat(name: str, form: Minifloat) -> None:
    """Records the conversions of a float8 type."""
    drop = 23 - form.mantissa
    unit = 24 - form.bias - form.mantissa  # exponent of what rounds a subnormal result
    add = ((1 << (drop - 1)) - 1 - ((127 - form.bias) << 23)) & 0xFFFFFFFF
    decoded: dict[str, Value] = {"scale": 127 - form.bias, "infinite": form.infinite}
    encoded: dict[str, Value] = {
        "rounding": f"0x{add:x}u",
        "unit": unit,
        "offset": f"0x{(unit + 127) << 23:x}u",
        "over": form.largest + (form.infinite or form.one_zero),
        "least_normal": f"0x{(128 - form.bias) << 23:x}u",
    }
    both: Names = {"drop": drop, "largest": form.largest, "one_zero": form.one_zero}
    if form.signed:
        _define(f"from{name}", "conversion", ("u8",), "from_float8", {**decoded, **both})
        _define(f"to{name}", "conversion", ("u8",), "to_float8", {**encoded, **both})
    else:
        _define(f"from{name}", "conversion", ("u8",), "from_power")
        _define(f"to{name}", "conversion", ("u8",), "to_power")


for _name, _form in MINIFLOATS.items():
    _define_minifloat(_name, _form)

# ------------------------------------------------------------------------------- memory

_between = _instruction("between", p="p", inside="on")
_load = _instruction("load", p="p", other="{0}", bits=_ACTIVE)
_define("loadm", "memory", MEMORY, native=_either(_between, _load))
_define("storem", "memory", MEMORY, native=_instruction("store", p="p", v="v", bits=_ACTIVE))
_define("loadpart storepart gather gatherm gatherpart scatterm", "memory", MEMORY)
_define("takem takepart givem", "memory", MEMORY)
for _bits in (32, 64):
    _masks = {"mask_bits": _bits}
    _native = _masked_load(f"i{_bits}")
    for _name in ("takeif", "loadifpart"):
        _define(f"{_name}{_bits}", "memory", MEMORY, _name, _masks)
    _define(f"loadif{_bits}", "memory", MEMORY, "loadif", _masks, native=_native)
for _name, _strict in (("checkindex", 0), ("checkstrict", 1)):
    _define(_name, "memory", ("i64",), "check", {"strict": _strict})


def _rounds() -> Value:
    """The steps of transposing 8 rows of 8: the names of two results and of their two operands."""
    names, steps = [f"a{i}" for i in range(8)], []
    for base in (0, 8, 16):
        results = [f"b{base + i}" for i in range(8)]
        for i in range(4):
            steps.append((results[2 * i], results[2 * i + 1], names[i], names[i + 4]))
        names = results
    return steps


# The texts that transpose 8 rows of 8: rows are loaded, interleaved in rounds, and stored.
TRANSPOSED: Names = {
    "rows": range(8),
    "rounds": _rounds(),
    "columns": [(i, f"b{16 + i}") for i in range(8)],
}
_define("transpose", "memory", MEMORY, names={**TRANSPOSED, "pitch": PITCH}, many=False)

# ------------------------------------------------------------------------------- reductions


def _order(operation: str) -> Callable[[str, int], Names]:
    def names(kind: str, lanes: int) -> Names:
        bits = int(kind[1:])
        quiet = 0x1FF << (bits - 10) if bits == 32 else 0xFFF << (bits - 13)
        suffix = "ll" if bits == 64 else ""
        number = quiet if operation == "max" else -quiet - 1
        return {"nan": f"{number}{suffix}", "magnitude": f"{(1 << (bits - 1)) - 1}{suffix}"}

    return names


def _tree(kind: str, lanes: int) -> Names:
    """The steps of a tree: the vectors that are combined, then rotations of the last one."""
    folds, step = [], 32 // lanes // 2
    while step:
        folds += [(i, i + step) for i in range(step)]
        step //= 2
    rotations, step = [], lanes // 2
    while step:
        rotations.append(", ".join(str((lane + step) % lanes) for lane in range(lanes)))
        step //= 2
    return {"folds": folds, "rotations": rotations}


def _identity_of(operation: str) -> Callable[[str, int], Names]:
    return lambda kind, lanes: {"identity": identity(operation, kind)}


_define("tail", "reduction", NUMBERS)
for _name, _wins in (("max", "gt"), ("min", "lt")):
    _define(_name, "reduction", INTEGERS, "running", {"wins": _wins})
    _define(f"order{_name}", "reduction", FLOATS, "order", names_of=_order(_name))
    _define(f"unorder{_name}", "reduction", FLOATS, "unorder", names_of=_order(_name))
    _define(f"arg{_name}", "reduction", NUMBERS, "arg", {"wins": _wins})
    _define(f"treearg{_name}", "reduction", NUMBERS, "arg_tree", {"wins": _wins})
for _name, _operator in OPERATORS.items():
    _names: Names = {"operation": _name, "operator": _operator}
    _kinds = NUMBERS if _name in ("sum", "prod") else INTEGERS
    _define(f"tree{_name}", "reduction", _kinds, "tree", _names, names_of=_tree)
    _starts = _identity_of(_name)
    _define(f"push{_name}", "reduction", _kinds, "push", _names, many=False, names_of=_starts)

_FOLDER = Path(__file__).parent
_RECORDED = {"unit", *(helper.file for records in HELPERS.values() for helper in records)}
for _path in sorted(_FOLDER.glob(f"*{SUFFIX}")):
    _file = _path.name.removesuffix(SUFFIX)
    if _file not in _RECORDED:
        for _name, _kinds in declared(_path.read_text()).items():
            _define(_name, _file, _kinds)
