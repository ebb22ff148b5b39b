"""Compiles ``native/**/*.cpp`` into the extension module ``flambeau._core``.

This is the only place that knows how the C++ core is built: ``./go`` calls it for the checkout,
``setup.py`` for wheels. It uses the standard library alone, and keeps one object file per source
under ``build/objects``, named by the content it was made from, so that a change of one file
recompiles one object and a change of nothing compiles nothing.

A sanitizer build is another module, in ``build/sanitize-address`` (which finds undefined behaviour,
too) or ``build/sanitize-thread``. The package loads it in place of its own when the environment
names its directory: ``FLAMBEAU_NATIVE_DIR=build/sanitize-address`` (``flambeau/__init__.py`` puts
that directory first on ``flambeau.__path__``).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tools.jobs import Jobs

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "native"
BUILD = ROOT / "build"
EXTENSION: str = "_core" + sysconfig.get_config_var("EXT_SUFFIX")
PARALLEL_COMPILES = 2  # a translation unit takes up to 1 GB; a laptop should stay usable

CODE_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fno-math-errno",
    "-ffp-contract=off",  # no silent FMA: the promise about numbers depends on it
    "-fvisibility=hidden",
    "-pthread",
)
SANITIZE_FLAGS = {
    "": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}
# A thread that asks for the GIL of an interpreter that ends is unwound by `pthread_exit`. Frames
# without exception tables are left as C frames are; with them, every destructor on the way would
# give up its reference without the GIL, a crash. So only units that never hold a reference while
# Python may run are built with exceptions: those that must survive a `std::bad_alloc`.
NO_EXCEPTIONS_FLAGS = ("-fno-exceptions", "-fasynchronous-unwind-tables")
UNITS_THAT_CATCH = frozenset({"allocator", "growth", "threads"})
# What most units read first, and half of the time that they take. One whose optimisation is set by
# a pragma must read it before all else. Sanitizer builds do without: they find missing includes.
PRECOMPILED = "call/op_internal.h"
NEEDED_FOR_PRECOMPILED, BARS_PRECOMPILED = SOURCES / "core.h", SOURCES / "routines/variants.h"
WARNING_FLAGS = ("-Wall", "-Wextra")  # not part of an object's name: they change no code
# Units that take 3 to 15 s, the longest first: one of them that began last would leave a core idle.
LONG = (
    "routines_sort", "routines_scatter", "routines_eigen", "routines_linear", "fourier_avx512",
    "routines_least_squares", "fourier_avx2", "routines_indefinite", "routines_lapack",
    "fourier_baseline", "routines_lapack_spectra",
)  # fmt: skip

_LOCAL_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# What a call of an operator passes through. GCC optimises these as one unit when it links, 5 s: a
# twentieth of a small call was calls from one of them to the next. (Their objects have their own
# machine code too, for a linker that cannot.)
OF_A_CALL = frozenset({
    "arena", "attribute_override", "autocast", "cpu", "describe", "device", "devices", "dtype",
    "fork", "indexing", "lists", "modes", "op", "op_arguments", "op_cache", "op_former",
    "op_override", "op_values", "operators", "override", "plan", "plan_cache", "plan_run",
    "plan_watch", "prepacked", "size", "size_run", "storage", "tape", "tensor",
    "tensor_attributes", "tier",
})  # fmt: skip
AS_ONE = ("-flto", "-ffat-lto-objects")
LINK_AS_ONE = ("-flto=2", "-Wno-alloc-size-larger-than")

OLDER_GLIBC = SOURCES / "runtime" / "older_glibc.cpp"  # what it names FB_FIRST_VERSION is wrapped
_WRAPPED = re.compile(r"^FB_FIRST_VERSION\((\w+)\)$", re.MULTILINE)


class NativeBuildError(RuntimeError):
    """The core could not be built; the message is complete and meant for the user."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command that starts it and the text by which it identifies itself."""

    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        """What to call it in a message: the first line of its version."""
        return f"{'zig, ' if self.is_zig else ''}{self.version.splitlines()[0]}"

    @property
    def is_zig(self) -> bool:
        """Whether this is the compiler of the ``ziglang`` wheel, which has no sanitizers."""
        return "ziglang" in self.command

    @property
    def is_gcc(self) -> bool:
        """Whether this is GCC (clang and zig both identify themselves as clang)."""
        return "clang" not in self.version and not self.is_zig


class _Unit(NamedTuple):
    source: Path
    object: Path
    flags: tuple[str, ...]  # beside those of all units


def find_compiler(python: str = sys.executable) -> Compiler | None:
    """Return ``$CXX``, else a system compiler, else the ``ziglang`` wheel of *python*."""
    candidates = [os.environ.get("CXX", "").split(), ["g++"], ["clang++"], ["c++"]]
    for command in candidates:
        if command and shutil.which(command[0]):
            return _identify(command)
    if python != sys.executable or importlib.util.find_spec("ziglang"):
        return _identify([python, "-m", "ziglang", "c++"])
    return None


def _identify(command: Sequence[str]) -> Compiler | None:
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return Compiler(tuple(command), result.stdout) if result.returncode == 0 else None


def sources() -> list[Path]:
    """List the translation units of the core, those first that take long."""
    units = sorted(SOURCES.rglob("*.cpp"))
    return sorted(units, key=lambda unit: LONG.index(unit.stem) if unit.stem in LONG else len(LONG))


def build(
    output: Path,
    compiler: Compiler | None = None,
    *,
    sanitize: str = "",
    warnings_are_errors: bool = False,
    without_symbols: bool = False,
    jobs: Jobs | None = None,
) -> bool:
    """Bring the module *output* up to date; return whether anything had to be done.

    Args:
        output: where the module is written.
        compiler: by default the one that `find_compiler` finds.
        sanitize: "address" or "thread" for a sanitizer build.
        warnings_are_errors: whether a warning ends the build.
        without_symbols: whether the module is linked without names of its functions, which
            debuggers read: half a megabyte that no user of a wheel needs.
        jobs: what the compilers run in; by default two at a time.

    Raises:
        NativeBuildError: no compiler, no sources, or a compile or link error.
    """
    compiler = compiler or find_compiler()
    if compiler is None:
        raise NativeBuildError(
            "[build] no C++ compiler: looked for $CXX, g++, clang++, c++ and the ziglang wheel\n"
            "hint: pip install ziglang"
        )
    units = sources()
    if not units:
        raise NativeBuildError(f"[build] nothing to compile: {SOURCES} holds no .cpp file")
    flags = code_flags(compiler, sanitize)
    own_flags = [_unit_flags(unit, compiler, sanitize) for unit in units]
    objects = [
        _object_path(unit, compiler, [*flags, *own])
        for unit, own in zip(units, own_flags, strict=True)
    ]
    link = _link_command(compiler, flags, objects, bool(sanitize))
    if without_symbols:
        link.append("-Wl,-s")
    link_key = digest(" ".join(link), compiler.version)
    stamp = BUILD / "objects" / f"linked-{digest(str(output.resolve()))}"
    if output.exists() and stamp.exists() and stamp.read_text() == link_key:
        return False

    warnings = (*WARNING_FLAGS, "-Werror") if warnings_are_errors else WARNING_FLAGS
    units_made = map(_Unit, units, objects, own_flags)
    stale = [unit for unit in units_made if not unit.object.exists()]
    (BUILD / "objects").mkdir(parents=True, exist_ok=True)
    command = [*compiler.command, *flags, *warnings]
    with (
        tempfile.TemporaryDirectory(dir=BUILD / "objects") as scratch,
        contextlib.nullcontext(jobs) if jobs else Jobs(PARALLEL_COMPILES, "native core") as pool,
    ):
        worthwhile = compiler.is_gcc and not sanitize and len(stale) > 2 * PARALLEL_COMPILES
        _compile_all(stale, command, Path(scratch) if worthwhile else None, pool)
    output.parent.mkdir(parents=True, exist_ok=True)
    _run_into(output, link, f"link {output.name}")
    stamp.write_text(link_key)
    return True


def sanitizer_libraries(compiler: Compiler, sanitize: str = "address") -> list[str]:
    """Return the libraries that must be preloaded for a sanitizer build; empty if it has none.

    The C++ library is among them because AddressSanitizer looks for ``__cxa_throw`` when it
    starts, and Python itself does not link it.
    """
    if compiler.is_zig:
        return []
    if compiler.is_gcc:
        sanitizers = {"address": ["libasan.so", "libubsan.so"], "thread": ["libtsan.so"]}
        names = [*sanitizers[sanitize], "libstdc++.so.6"]
    else:
        machine = os.uname().machine
        kind = {"address": "asan", "thread": "tsan"}[sanitize]
        names = [f"libclang_rt.{kind}-{machine}.so", "libstdc++.so.6"]
    paths = [_print_file_name(compiler, name) for name in names]
    return paths if all(os.path.isabs(path) for path in paths) else []


def _print_file_name(compiler: Compiler, name: str) -> str:
    command = [*compiler.command, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def code_flags(compiler: Compiler, sanitize: str = "") -> list[str]:
    """Return the flags that decide what the code of any unit means."""
    flags = [*CODE_FLAGS, f"-I{sysconfig.get_path('include')}", f"-I{SOURCES}"]
    if sanitize:
        flags += [*SANITIZE_FLAGS[sanitize], "-fno-omit-frame-pointer", "-O1", "-g"]
        if not compiler.is_gcc:
            flags.append("-shared-libsan")
    if compiler.is_zig:
        flags.append("-mcpu=baseline")  # zig would otherwise build for this very machine
    return flags


def _unit_flags(unit: Path, compiler: Compiler, sanitize: str) -> tuple[str, ...]:
    if unit.stem in UNITS_THAT_CATCH:
        return ()
    as_one = compiler.is_gcc and not sanitize
    return (*NO_EXCEPTIONS_FLAGS, *(AS_ONE if as_one and unit.stem in OF_A_CALL else ()))


def _link_command(
    compiler: Compiler, flags: Sequence[str], objects: Sequence[Path], sanitized: bool
) -> list[str]:
    as_one = LINK_AS_ONE if compiler.is_gcc and not sanitized else ()
    command = [*compiler.command, *flags, *as_one, *map(str, objects)]
    if sys.platform == "darwin":
        return [*command, "-bundle", "-undefined", "dynamic_lookup"]
    wrapped = [] if sanitized or not _links_with_glibc() else wrapped_functions()
    return [*command, "-shared", "-ldl", *(f"-Wl,--wrap={name}" for name in wrapped)]


def wrapped_functions() -> list[str]:
    """List the functions of the C library that the core calls in their first version."""
    return _WRAPPED.findall(OLDER_GLIBC.read_text())


def _links_with_glibc() -> bool:
    return platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"


def _object_path(unit: Path, compiler: Compiler, flags: Sequence[str]) -> Path:
    contents = [path.read_bytes() for path in _with_headers(unit)]
    elsewhere = [flag for flag in flags if flag != f"-I{SOURCES}"]  # checkouts share objects
    key = digest(compiler.version, *compiler.command, *elsewhere, *contents)
    return BUILD / "objects" / f"{unit.stem}-{key}.o"


def _with_headers(unit: Path) -> list[Path]:
    """Return *unit* and every header of the project that it includes, directly or not."""
    found = {unit: None}  # a dict keeps the order of discovery
    pending = [unit]
    while pending:
        for name in _LOCAL_INCLUDE.findall(pending.pop().read_bytes()):
            header = SOURCES / os.fsdecode(name)
            if header.exists() and header not in found:
                found[header] = None
                pending.append(header)
    return list(found)


def digest(*parts: str | bytes) -> str:
    """Return a short name of some contents."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()[:20]


def _precompile(directory: Path, command: Sequence[str]) -> Path:
    """Compile the header that most units share; return what they are to include in its place."""
    header = directory / Path(PRECOMPILED).name
    shutil.copyfile(SOURCES / PRECOMPILED, header)
    one = [*command, *NO_EXCEPTIONS_FLAGS, "-w", "-x", "c++-header", str(SOURCES / PRECOMPILED)]
    _run_into(header.with_name(f"{header.name}.gch"), one, f"precompile {PRECOMPILED}")
    return header


def _reads_precompiled(unit: _Unit) -> bool:
    headers = _with_headers(unit.source)
    others = unit.source.stem in UNITS_THAT_CATCH or unit.source.stem in OF_A_CALL
    allowed = not others and BARS_PRECOMPILED not in headers
    return allowed and NEEDED_FOR_PRECOMPILED in headers


def _compile_all(
    stale: Sequence[_Unit], command: Sequence[str], scratch: Path | None, jobs: Jobs
) -> None:
    """Compile every stale unit, even after one has failed: all errors are worth seeing at once.

    Those that read the precompiled header, which is made in the folder *scratch*, come after it.
    """

    def compile_one(unit: _Unit, header: Path | None = None) -> str:
        first = ["-include", str(header)] if header else []
        try:
            one = [*command, *unit.flags, *first, "-c", str(unit.source)]
            _run_into(unit.object, one, str(unit.source.relative_to(SOURCES.parent)))
        except NativeBuildError as error:
            return str(error)
        return ""

    header = jobs.submit(_precompile, scratch, command) if scratch else None
    readers = [unit for unit in stale if header and _reads_precompiled(unit)]
    results = [jobs.submit(compile_one, unit) for unit in stale if unit not in readers]
    if header:
        made = header.result()
        results += [jobs.submit(compile_one, unit, made) for unit in readers]
    errors = [error for error in (result.result() for result in results) if error]
    if errors:
        raise NativeBuildError("\n".join(errors))


def _run_into(target: Path, command: Sequence[str], what: str) -> None:
    """Run a compiler that writes *target*; a half-written or mapped file is never overwritten."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    result = subprocess.run(
        [*command, "-o", str(partial)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        partial.unlink(missing_ok=True)
        shown = " ".join([*command, "-o", str(target)])
        raise NativeBuildError(f"[build] {what} failed:\n{result.stdout}\ncommand: {shown}")
    if result.stdout.strip():
        print(result.stdout, file=sys.stderr, end="")
    partial.replace(target)
