"""Translation units: the C text of kernels together with exactly the helpers they call.

Kernels call vector types' helpers and elementary functions by name, `fb_<stem>_<kind>x<lanes>`.
`render` looks every such name up, with what it calls in turn, and puts definitions before uses, so
that a unit holds nothing that it does not need: text costs compile time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Sequence

from flambeau.compiler.cache import blake2b
from flambeau.compiler.codegen.c.math import cmath, cmath_scalar
from flambeau.compiler.codegen.c.math.c_arithmetic import ARITHMETIC, TARGET_ARITHMETIC
from flambeau.compiler.codegen.c.math.c_minifloat import CONVERSIONS
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_helpers import (
    MEMORY,
    REDUCTION,
    TARGET_MEMORY,
    Builder,
    TargetBuilder,
)
from flambeau.compiler.codegen.c.printer.c_tiled import transpose
from flambeau.compiler.targets.description import Target

_LIBRARY: dict[str, Builder] = (
    MEMORY | REDUCTION | ARITHMETIC | CONVERSIONS | {"transpose": transpose}
)
_TARGET_LIBRARY: dict[str, TargetBuilder] = TARGET_MEMORY | TARGET_ARITHMETIC
_NAME = re.compile(r"\bfb_[a-z]\w*\b")
_PARTS = re.compile(r"fb_(?:as_|to_)?(\w+?)_?(?:([fiu]\d+))?x(\d+)$")
_OWN = re.compile(rf"\b{SYMBOL}(?=\(|_)")  # the kernel, and functions of its own: fb_kernel_*
_OWN_NAME = re.compile(rf"\b{SYMBOL}\w*")
_FUNCTION = re.compile(
    rf"^(?:FB_SHARED|static inline FB_ALWAYS) [\w ]+[ *](?P<name>{SYMBOL}_\w+)\("
    r"(?:[^\n]*\}|.*?\n\})\n",
    re.MULTILINE | re.DOTALL,
)
_LONG = 3000
_LANE_COUNTS = (1, 2, 4, 8, 16)

_HEAD = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if __has_builtin(__builtin_shufflevector)
#define FB_SHUFFLE(type, v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#define FB_SHUFFLE2(type, v, w, ...) __builtin_shufflevector(v, w, __VA_ARGS__)
#else
#define FB_SHUFFLE2(type, v, w, ...) \\
  __builtin_shuffle(v, w, (__typeof__((v) == (v))){__VA_ARGS__})
#define FB_SHUFFLE(type, v, ...) \\
  __builtin_shuffle(v, (__typeof__((v) == (v))){__VA_ARGS__})
#endif
#define FB_ALWAYS __attribute__((always_inline))
#define FB_LINKED __attribute__((visibility("hidden")))
#ifdef FB_OBJECT
#define FB_SHARED __attribute__((noinline, weak, visibility("hidden")))
#elif defined(__clang__)
#define FB_SHARED static __attribute__((noinline))
#else
#define FB_SHARED static __attribute__((noinline, noclone))
#endif
#define FB_PLAIN __asm__ volatile("")
#define FB_ALIGNED __attribute__((aligned(64)))
typedef union { double d; long long i; } fb_scalar;
typedef unsigned __int128 u128x1 __attribute__((aligned(8), may_alias));
"""


@functools.cache
def _prelude_definitions(lanes: int, target: Target) -> tuple[str, dict[str, str]]:
    """The prelude of a lane count: its types, and helper definitions by name."""
    types: list[str] = []
    definitions: dict[str, str] = {}
    pending: list[str] = []
    for line in _own_part(lanes, target):
        if pending or line.startswith("static inline"):
            pending.append(line)
            if line == "}" or (len(pending) == 1 and line.endswith("}")):
                text = "\n".join(pending) + "\n"
                definitions[_NAME.findall(pending[0])[0]] = text
                pending = []
        elif line.startswith("#define fb_"):
            definitions[_NAME.findall(line)[0]] = line + "\n"
        elif line.startswith("typedef"):
            types.append(line)
    vector = f"vector_size({16 * lanes})"
    if lanes > 1:
        types.append(
            f"typedef unsigned long long u128x{lanes} "
            f"__attribute__(({vector}, aligned(8), may_alias));"
        )
    return "\n".join(types) + "\n", definitions


def _own_part(lanes: int, target: Target) -> list[str]:
    """Lines that define one lane count; those of 2 lanes come with the prelude of 4."""
    text = cmath.prelude(max(lanes, 4) if lanes > 1 else 1, target)
    marker = f"#define FB_PRELUDE_X{lanes}\n"
    own = text[text.index(marker) + len(marker) :]
    return own.split("#ifndef FB_PRELUDE_X")[0].split("\n")


@functools.cache
def definition(name: str, target: Target) -> str | None:
    """C text of one helper or elementary function; None if the name is something else.

    Small ones are always inlined: left to itself the compiler decides by the size of the unit, so
    that a kernel's speed would depend on its neighbours.
    """
    text = _find(name, target)
    if text is None or len(text) > _LONG:
        return text
    return text.replace("static inline ", "static inline FB_ALWAYS ")


def _find(name: str, target: Target) -> str | None:
    parts = _PARTS.match(name)
    if parts is None or int(parts[3]) not in _LANE_COUNTS:
        return None
    lanes = int(parts[3])
    text = _prelude_definitions(lanes, target)[1].get(name)
    if text is not None:
        return text
    stem, kind = name[3:].rsplit("_", 1)[0], parts[2]
    if kind and stem in _LIBRARY:
        return _LIBRARY[stem](kind, lanes)
    if kind and stem in _TARGET_LIBRARY:
        return _TARGET_LIBRARY[stem](kind, lanes, target)
    if kind and stem in cmath_scalar.FUNCTIONS:
        return cmath_scalar.function_source(stem, kind, lanes)
    if kind and stem in cmath.FUNCTIONS:
        try:
            return cmath.function_source(stem, kind, lanes)
        except KeyError:
            raise NotImplementedError(
                f"[codegen] no C text for {stem!r} of {kind}\nhint: compute it in another dtype"
            ) from None
    return None


def helpers(texts: Iterable[str], target: Target) -> list[str]:
    """Definitions of everything that `texts` call, callees first."""
    ordered: list[str] = []
    done: set[str] = set()
    stack = [(name, False) for text in texts for name in _NAME.findall(text)]
    stack.reverse()
    while stack:
        name, ready = stack.pop()
        if ready:
            text = definition(name, target)
            assert text is not None
            ordered.append(text)
            continue
        if name in done:
            continue
        done.add(name)
        text = definition(name, target)
        if text is None:
            continue
        stack.append((name, True))
        stack.extend((inner, False) for inner in _NAME.findall(text) if inner not in done)
    return ordered


def _shared_apart(text: str, shared: dict[str, str]) -> str:
    """A kernel's text less those of its functions that other kernels of the unit may call too.

    Panels of products are packed, and few rows multiplied, by functions that many kernels have in
    common and that take the compiler most of its time. A function that is marked FB_SHARED is never
    inlined, so that a kernel's speed does not depend on its neighbours; it and the small ones that
    it calls are known by their text, if that names nothing else of the kernel's own.

    Args:
        text: of `print_kernel`.
        shared: definitions by name; new ones are added, callees first.
    """
    if "FB_SHARED" not in text:
        return text
    functions = {match["name"]: match[0] for match in _FUNCTION.finditer(text)}
    marked = [name for name, body in functions.items() if body.startswith("FB_SHARED")]
    reached = set()
    while marked:
        name = marked.pop()
        reached.add(name)
        marked += (_own_names(functions[name]) & functions.keys()) - reached
    renamed: dict[str, str] = {}
    for name, body in functions.items():
        if name not in reached:
            continue
        callees = tuple((own, renamed[own]) for own in _own_names(body) if own in renamed)
        if _own_names(body) == {name, *dict(callees)}:
            renamed[name], shared_text = _shared_function(name, body, callees)
            shared[renamed[name]] = shared_text
            text = text.replace(body, "")
    return _OWN_NAME.sub(lambda own: renamed.get(own[0], own[0]), text)


@functools.lru_cache(maxsize=512)
def _own_names(body: str) -> frozenset[str]:
    return frozenset(_OWN_NAME.findall(body))


@functools.lru_cache(maxsize=512)
def _shared_function(name: str, body: str, callees: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    """Name and definition of a shared function, whose callees are renamed already."""
    names = dict(callees)
    plain = _OWN_NAME.sub(lambda own: names.get(own[0], own[0]), body)
    digest = blake2b(plain.encode(), digest_size=6).hexdigest()
    renamed = f"fb_shared_{digest}{name.removeprefix(SYMBOL)}"
    return renamed, plain.replace(f"{name}(", f"{renamed}(")


def render(kernels: Sequence[tuple[str, str]], target: Target) -> str:
    """One translation unit.

    Args:
        kernels: (symbol, text of `print_kernel`) of each.
        target: whose instructions helpers use.
    """
    shared: dict[str, str] = {}
    bodies = [_OWN.sub(symbol, _shared_apart(text, shared)) for symbol, text in kernels]
    return _unit(list(shared.values()), bodies, target)


def separate(text: str) -> tuple[str, dict[str, str]]:
    """A kernel's own text, and the definitions of its functions that others share, by name."""
    shared: dict[str, str] = {}
    return _shared_apart(text, shared), shared


def render_linked(
    kernels: Sequence[tuple[str, str]], functions: dict[str, str], target: Target
) -> str:
    """A translation unit that is linked with the objects of its shared functions.

    Args:
        kernels: (symbol, own text as of `separate`) of each.
        functions: definitions of shared functions that they call, by name.
        target: whose instructions helpers use.
    """
    bodies = [_OWN.sub(symbol, text) for symbol, text in kernels]
    return _unit(_declared(functions, ()), bodies, target)


def objects_of(functions: dict[str, str]) -> list[str]:
    """The shared functions by object: names, separated by spaces. What does one thing (packing,
    the micro-kernels of a tile) is one object, whichever kernel it is found in."""
    objects: dict[str, list[str]] = {}
    for name, text in functions.items():
        if text.startswith("FB_SHARED"):
            objects.setdefault(name.split("_")[3], []).append(name)
    return [" ".join(names) for names in objects.values()]


def render_functions(functions: dict[str, str], names: Sequence[str], target: Target) -> str:
    """A translation unit of some shared functions, to be compiled to an object."""
    return "#define FB_OBJECT\n" + _unit(_declared(functions, names), [], target)


def _declared(functions: dict[str, str], defined: Collection[str]) -> list[str]:
    """Shared functions, most of which are defined elsewhere; small ones are inlined."""
    return [
        f"FB_LINKED {text.partition('{')[0].removeprefix('FB_SHARED').strip()};\n"
        if text.startswith("FB_SHARED") and name not in defined
        else text
        for name, text in functions.items()
    ]


def _unit(shared: list[str], bodies: list[str], target: Target) -> str:
    """A translation unit of functions and of kernels that call them."""
    definitions = helpers([*shared, *bodies], target) + shared
    used = "\n".join([*definitions, *bodies])
    widths = {int(lanes) for lanes in re.findall(r"\b[fiu]\d+x(\d+)\b", used)} | {1}
    types = [_prelude_definitions(lanes, target)[0] for lanes in sorted(widths)]
    scalars = "".join(
        f"typedef {c} _c_{kind};\n"
        for kind, c in (
            ("f32", "float"), ("f64", "double"), ("i8", "signed char"), ("u8", "unsigned char"),
            ("i16", "short"), ("u16", "unsigned short"), ("i32", "int"), ("u32", "unsigned int"),
            ("i64", "long long"), ("u64", "unsigned long long"),
        )
    )  # fmt: skip
    return "\n".join([_HEAD + scalars, *types, *definitions, *bodies])
