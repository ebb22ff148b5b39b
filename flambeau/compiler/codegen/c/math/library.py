"""Helper functions as C text: elementary functions, memory access, reductions, conversions.

There is one implementation of each elementary function. Eager and compiled kernels, vector bodies
and scalar tails all call it, so that a value never depends on where it was computed: for every lane
count and compiler the result has the same bits. float32 functions are within 1.5 ulp everywhere
(most within 1); float64 functions within 2 ulp, mostly by calling the C library lane by lane.

`definition` gives the text of a helper and the names of those that it calls; `definitions` those of
everything that some names need, callees first. The files are read when they are first needed.

All texts may use

    $V $I $U            the vector type of the helper's kind, and the integer types of its width
    $T $IT $UT          likewise of one element
    $name               the helper's stem
    $kind $bits $lanes $half    the kind, its bits, the lane count and half of that
    $at                 "[l]" for vectors, "" for one lane
    $minus              what turns a comparison into a mask: "-" for one lane
    $f                  the suffix of the C library's functions and constants
    $sign_bit $magnitude_bits   of the kind's floats
    $steps $strided $indexed    lists: 0, 1, ..; p[0 * s], p[1 * s], ..; p[i[0]], p[i[1]], ..
    $clamped            as $strided, but no lane behind `last`
    $words $all_words   a mask in words of 64 bits: how many, and all of them
    $instruction        the target's instruction, under `//$ if native`

and as conditions `scalar` (one lane), `signed`, `unsigned`, `float`, `double`, `opaque` (u128),
`native`, `loops` (the instruction is what the compiler makes of a loop over the lanes), `masks`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from flambeau.compiler.codegen.c.math.records import HELPERS, NUMBERS, Helper
from flambeau.compiler.codegen.c.template import SUFFIX, Template, Value, helpers
from flambeau.compiler.targets.description import Target

FOLDER = Path(__file__).parent
_NUMBERS = "float,double,signed char,short,int,long long"
_UNSIGNED = ",unsigned char,unsigned short,unsigned,unsigned long long"
C_TYPES = dict(zip(NUMBERS, (_NUMBERS + _UNSIGNED).split(",")))
_TYPE = re.compile(f"(?:{'|'.join([*C_TYPES, 'u128'])})x\\d+")
_CALL = re.compile(r"fb_[a-z]\w*x\d+")
_OWN = ("fb_kernel", "fb_shared")  # names that begin so are functions of kernels


class Definition(NamedTuple):
    """The C text of a helper, the names of those that it calls, and the types that it uses."""

    text: str
    needs: tuple[str, ...]
    types: frozenset[str]


def parse(name: str) -> tuple[str, str, int] | None:
    """Stem, kind ("" for all) and lanes of a helper's name; None if it is none."""
    stem, _, vector = name[3:].rpartition("_")
    kind, separator, lanes = vector.rpartition("x")
    if not separator or not lanes.isdecimal() or name.startswith(_OWN):
        return None
    return stem, kind, int(lanes)


def find(stem: str, kind: str, lanes: int) -> Helper:
    """The record of a helper.

    Raises:
        NotImplementedError: there is none.
    """
    for helper in HELPERS.get(stem, ()):
        if helper.covers(kind, lanes):
            return helper
    raise NotImplementedError(
        f"[codegen] no C text for {stem!r} of {kind}x{lanes}\nhint: compute it in another dtype"
    )


@functools.cache
def load(file: str) -> dict[str, Template]:
    """The texts of a file of this folder, by section."""
    path = FOLDER / f"{file}{SUFFIX}"
    return helpers(path.name, path.read_text())


@functools.cache
def definition(name: str, target: Target) -> Definition | None:
    """A helper's text and needs; None if the name is not a helper's.

    Raises:
        NotImplementedError: no helper has this name.
    """
    parts = parse(name)
    if parts is None:
        return None
    stem, kind, lanes = parts
    helper = find(stem, kind, lanes)
    own = helper.names_of(kind, lanes) if helper.names_of else {}
    native = helper.native(target, kind, lanes) if helper.native else None
    instruction, usable = native or ("", 0)
    loops = native is not None and not instruction
    chosen = {"name": stem, "instruction": instruction, "native": usable, "loops": loops}
    common = {**_names(kind, lanes), **chosen, "masks": target.masks, **own}
    calls: dict[str, None] = {}
    text = load(helper.file)[helper.section].render(helper.names, common, calls)
    needs = tuple(call for call in calls if call != name and parse(call) is not None)
    return Definition(text, needs, types_in(text))


@functools.cache
def _names(kind: str, lanes: int) -> dict[str, Value]:
    """The names that all texts may use."""
    scalar = lanes == 1
    names: dict[str, Value] = {
        "lanes": lanes,
        "half": max(1, lanes // 2),
        "scalar": scalar,
        "at": "" if scalar else "[l]",
        "minus": "-" if scalar else "",
        "steps": ", ".join(map(str, range(lanes))),
        "strided": ", ".join(f"p[{lane} * s]" for lane in range(lanes)),
        "clamped": ", ".join(f"p[({lane} < last ? {lane} : last) * s]" for lane in range(lanes)),
        "indexed": ", ".join(f"p[i[{lane}]]" for lane in range(lanes)),
    }
    if not kind:
        return names
    bits = int(kind[1:])
    suffix, words = "ull" if bits == 64 else "u", bits * lanes // 64
    for letter, own in (("", kind), ("I", f"i{bits}"), ("U", f"u{bits}")):
        names[letter or "V"], names[f"{letter}T"] = f"{own}x{lanes}", f"{own}x1"
    return names | {
        "kind": kind,
        "bits": bits,
        "f": "f" if kind == "f32" else "",
        "sign_bit": f"0x{1 << (bits - 1):x}{suffix}",
        "magnitude_bits": f"0x{(1 << (bits - 1)) - 1:x}{suffix}",
        "words": words,
        "all_words": " | ".join(f"u.words[{i}]" for i in range(words)),
        "signed": kind[0] == "i",
        "unsigned": kind[0] == "u",
        "float": kind[0] == "f",
        "double": kind == "f64",
        "opaque": kind == "u128",
    }


def names_of(lanes: int) -> list[str]:
    """The names of all helpers of a lane count."""
    return [
        f"fb_{stem}_{kind}x{lanes}"
        for stem, records in HELPERS.items()
        for helper in records
        for kind in helper.kinds
        if helper.covers(kind, lanes)
    ]


def definitions(names: Iterable[str], target: Target) -> list[Definition]:
    """Helpers and all that they need, callees first."""
    ordered: dict[str, Definition] = {}
    seen: set[str] = set()
    stack = [(name, False) for name in names]
    stack.reverse()
    while stack:
        name, complete = stack.pop()
        entry = definition(name, target)
        if entry is None:
            continue
        if complete:
            ordered[name] = entry
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack.extend((need, False) for need in entry.needs if need not in seen)
    return list(ordered.values())


def calls_in(text: str) -> tuple[str, ...]:
    """The names in a C text that can be helpers', in order."""
    return tuple(dict.fromkeys(_CALL.findall(text)))


def types_in(text: str) -> frozenset[str]:
    """The names of the types that a C text uses."""
    return frozenset(_TYPE.findall(text))


@functools.lru_cache(maxsize=256)
def head(types: frozenset[str]) -> str:
    """The beginning of a translation unit that uses some types."""
    pairs = sorted(tuple(name.split("x")) for name in types)
    numbers = dict.fromkeys(kind for kind, _ in pairs)
    return load("unit")["unit"].render(
        {
            "numbers": [(f"{kind}x1", C_TYPES[kind]) for kind in numbers if kind != "u128"],
            "vectors": [_vector(kind, int(lanes)) for kind, lanes in pairs if lanes != "1"],
            "opaque": "u128" in numbers,
        }
    )


def _vector(kind: str, lanes: int) -> Value:
    """The name of a vector type, its elements, their alignment, and its size."""
    size = int(kind[1:]) // 8
    if kind == "u128":
        return f"u128x{lanes}", C_TYPES["u64"], 8, size * lanes
    return f"{kind}x{lanes}", f"{kind}x1", size, size * lanes
