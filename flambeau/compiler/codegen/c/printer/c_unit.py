"""Translation units: the C text of kernels together with exactly the helpers they call.

Kernels call helper functions by name, `fb_<stem>_<kind>x<lanes>`. `render` puts the definitions of
these in front, with those of all that they need (`math.library`), and the types in use: a unit
holds nothing else, since text costs compile time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence

from flambeau.compiler.cache import blake2b
from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.targets.description import Target

_OWN = re.compile(rf"\b{SYMBOL}(?=\(|_)")  # the kernel, and functions of its own: fb_kernel_*
_OWN_NAME = re.compile(rf"\b{SYMBOL}\w*")
_FUNCTION = re.compile(
    rf"^(?:FB_SHARED|static inline FB_ALWAYS) [\w ]+[ *](?P<name>{SYMBOL}_\w+)\("
    r"(?:[^\n]*\}|.*?\n\})\n",
    re.MULTILINE | re.DOTALL,
)
_STRUCT = re.compile(
    rf"^typedef struct {{\n.*?\n}} (?P<name>{SYMBOL}_\w+);\n", re.MULTILINE | re.DOTALL
)


def _shared_apart(text: str, shared: dict[str, str]) -> str:
    """A kernel's text less those of its functions that other kernels of the unit may call too.

    Panels of products are packed, and few rows multiplied, by functions that many kernels have in
    common and that take the compiler most of its time. A function that is marked FB_SHARED is never
    inlined, so that a kernel's speed does not depend on its neighbours; it and the small ones that
    it calls, and structs, are known by their text, if that names nothing else of the kernel's own.

    Args:
        text: of `print_kernel`.
        shared: definitions by name; new ones are added, callees first.
    """
    if "FB_SHARED" not in text:
        return text
    functions = {m["name"]: m[0] for form in (_STRUCT, _FUNCTION) for m in form.finditer(text)}
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
    return renamed, re.sub(rf"\b{name}\b", renamed, plain)


def render(kernels: Sequence[tuple[str, str]], target: Target) -> str:
    """One translation unit.

    Args:
        kernels: (symbol, text of `print_kernel`) of each.
        target: whose instructions helpers use.
    """
    shared: dict[str, str] = {}
    apart = [(symbol, _shared_apart(text, shared)) for symbol, text in kernels]
    return _unit(list(shared.values()), apart, target)


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
    return _unit(_declared(functions, ()), kernels, target)


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


def _unit(shared: list[str], kernels: Sequence[tuple[str, str]], target: Target) -> str:
    """A translation unit of functions and of kernels that call them, under their symbols."""
    calls = library.calls_in("\n".join([*shared, *(text for _, text in kernels)]))
    body = "\n".join([*shared, *(_OWN.sub(symbol, text) for symbol, text in kernels)])
    helpers = library.definitions(calls, target)
    types = library.types_in(body).union(*(helper.types for helper in helpers))
    return "\n".join([library.head(types), *(helper.text for helper in helpers), body])
