"""The interface of a template's kernel (`compiler/templates/interface.py`) as C declarations.

    fb_kernel_<group>    struct of the members of a group of size arguments
    fb_kernel_sizes      struct of the size arguments, in order
    fb_kernel_buffers    struct of pointers to the buffers, in order
    fb_kernel_scalars    struct of the run-time numbers, in order
    fb_kernel_arrays     struct of pointers to the arrays of scratch memory
    fb_kernel_scratch    the arrays in a worker's scratch memory, for some sizes

The text of a template defines `fb_kernel_chunks`, which takes these structs;
`complete` puts declarations in front of it and `fb_kernel` behind it.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.templates.interface import Interface
from flambeau.ir.size import free_symbols, stringify

_ENTRY = """\

void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin,
    long long end, char *scratch) {
  fb_kernel_chunks((const fb_kernel_buffers *)p, (const fb_kernel_sizes *)n,
      (const fb_kernel_scalars *)x, begin, end, scratch);
}
"""
_SCALARS = {"f64": "double", "i64": "long long", "bool": "long long"}


def complete(interface: Interface, *texts: str) -> str:
    """The C text of a kernel: declarations, the template's texts, the entry."""
    scalars = [(_SCALARS[dtype], name) for name, dtype in interface.scalars]
    buffers = [
        (f"{'const ' * (b.access == 'r')}{MEMORY_KIND[b.dtype]}x1", f"*{b.name}")
        for b in interface.buffers
    ]
    declarations = [
        *_sizes(interface),
        _struct("buffers", buffers),
        _struct("scalars", scalars or [("double", "none")]),
    ]
    if interface.scratch:
        declarations.append(_scratch(interface))
    return "".join([*declarations, *texts, _ENTRY])


def _struct(name: str, members: list[tuple[str, str]]) -> str:
    """A struct of members (type, declarator)."""
    lines = [
        f"  {kind} {', '.join(declarator for _, declarator in run)};\n"
        for kind, run in groupby(members, itemgetter(0))
    ]
    return f"typedef struct {{\n{''.join(lines)}}} fb_kernel_{name};\n"


def _sizes(interface: Interface) -> list[str]:
    groups = dict.fromkeys(a.group for a in interface.sizes if a.group is not None)
    structs = [_struct(g.name, [("long long", member) for member in g.members]) for g in groups]
    members = []
    for argument in interface.sizes:
        kind = "long long" if argument.group is None else f"fb_kernel_{argument.group.name}"
        extent = "" if argument.count is None else f"[{argument.count}]"
        members.append((kind, f"{argument.name}{extent}"))
    return [*structs, _struct("sizes", members)]


def _scratch(interface: Interface) -> str:
    """`fb_kernel_arrays` and `fb_kernel_scratch`."""
    arrays = interface.scratch
    types = [f"{MEMORY_KIND[array.dtype]}x1" for array in arrays]
    used = {name for array in arrays[:-1] for name in free_symbols(array.count)}
    lines = [f"  const long long {name} = n->{name};" for name in sorted(used)]
    place = "scratch"
    for array, kind, previous in zip(arrays, types, (None, *arrays)):
        if previous is not None:
            place = f"a.{previous.name} + ({stringify(previous.count + interface.gap, 'c')})"
        if array.alignment:
            last = array.alignment - 1
            place = f"((unsigned long long)({place}) + {last}) & ~{last}ull"
        lines.append(f"  a.{array.name} = ({kind} *)({place});")
    members = [(kind, f"*{array.name}") for kind, array in zip(types, arrays)]
    return _struct("arrays", members) + "\n".join(
        [
            "static inline FB_ALWAYS fb_kernel_arrays fb_kernel_scratch(char *scratch,",
            "    const fb_kernel_sizes *n) {",
            "  fb_kernel_arrays a;",
            *lines,
            "  return a;",
            "}",
            "",
        ]
    )


__all__ = ["complete"]
