"""The C compiler that kernels go through: finding it, knowing its version, running it.

Any of gcc, clang or `cc` will do, else the `ziglang` wheel's `python -m ziglang cc`. Querying a
compiler's version starts a process, so it is cached on disk under its path, size and time.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.compiler import cache
from flambeau.compiler.cache import blake2b
from flambeau.runtime import settings

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from flambeau.compiler.targets import Target

LINK_FLAGS = ("-shared", "-nostartfiles", "-w", "-x", "c", "-")
OBJECT_FLAGS = ("-c", "-w", "-x", "c", "-")
INSTALL = "pip install flambeau[compiler]"


class CompileError(RuntimeError):
    """The C compiler rejected a kernel, which is a bug of Flambeau; its source is retained."""


class Compiler(NamedTuple):
    """A C compiler.

    Attributes:
        command: the program and its leading arguments.
        identity: family, version and the user's own flags; part of every kernel's key.
    """

    command: tuple[str, ...]
    identity: str

    @property
    def is_zig(self) -> bool:
        """Whether this is the `ziglang` wheel's compiler, which takes other target flags."""
        return "ziglang" in self.command

    def flags(self, target: Target) -> list[str]:
        """Flags that choose the code."""
        flags = list(target.all_flags)
        if self.is_zig:
            flags = [f for f in flags if not f.startswith(("-mprefer", "-fno-asynchronous"))]
        if "clang" in self.identity or self.is_zig:
            flags = [f for f in flags if f not in target.gcc_flags]
            flags.append("-Wno-unknown-warning-option")
        return flags

    def compile(
        self,
        source: str,
        target: Target,
        output: str | Path,
        objects: Sequence[str] = (),
        link: bool = True,
    ) -> None:
        """Compiles C text to a shared library.

        Args:
            source: the text.
            target: what it is compiled for.
            output: the file.
            objects: paths of object files that the library holds, too.
            link: False for an object file instead.

        Raises:
            CompileError: with the path of the source, which is retained, and the compiler's output.
        """
        how = (*LINK_FLAGS, "-lm") if link else OBJECT_FLAGS
        command = [*self.command, *self.flags(target), *objects, *how]
        result = _run([*command, "-o", str(output)], source)
        if result.returncode == 0 and os.path.exists(output):
            return
        import shlex

        name = blake2b(source.encode(), digest_size=8).hexdigest()
        path = cache.directory() / "failed" / f"{name}.c"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        said = "\n".join(result.stderr.strip().splitlines()[:12])
        example = [*self.command, *self.flags(target), *OBJECT_FLAGS]
        raise CompileError(
            f"[codegen] the C compiler failed ({result.returncode}): {path}\n{said}\n"
            f"hint: run `{shlex.join(example)} -o kernel.o < {path}`; please report the file"
        )

    def link(self, objects: Sequence[str], target: Target, output: str | Path) -> None:
        """Makes a shared library of object files.

        Raises:
            CompileError: with what the compiler said.
        """
        how = ["-shared", "-nostartfiles", "-w", *objects, "-lm", "-o", str(output)]
        result = _run([*self.command, *self.flags(target), *how], "")
        if result.returncode or not os.path.exists(output):
            said = "\n".join(result.stderr.strip().splitlines()[:12])
            raise CompileError(
                f"[codegen] the C compiler failed to link kernels ({result.returncode})\n{said}\n"
                "hint: set FLAMBEAU_CC to another C compiler; please report this"
            )


def _run(command: list[str], source: str) -> subprocess.CompletedProcess[str]:
    import subprocess

    return subprocess.run(
        command, input=source, capture_output=True, text=True, close_fds=False, check=False
    )


@functools.cache
def find() -> Compiler:
    """The compiler: FLAMBEAU_CC, else the first of gcc, clang, cc, `python -m ziglang cc`.

    Raises:
        RuntimeError: where there is none.
    """
    located = _locate()
    if located is None:
        chosen = settings.get("CC")
        raise RuntimeError(
            f"[codegen] no C compiler found{f': {chosen}' if chosen else ''}\n"
            f"hint: `{INSTALL}`, or install gcc or clang, or set FLAMBEAU_CC"
        )
    command, file = located
    identity = _identity(command, file)
    if "ziglang" not in command:
        identity = " ".join((identity, *command[1:]))
    return Compiler(command, identity)


def identity() -> str | None:
    """Returns the compiler's identity; None where there is no compiler."""
    return None if _locate() is None else find().identity


@functools.cache
def prefilled_identity() -> str | None:
    """The identity of the compiler that built the package's kernels; None: they may not be used."""
    if " " in (settings.get("CC") or "").strip():
        return None  # flags of the user's: the kernels that came with the package lack them
    level = cache.prefilled_level()
    return None if level is None else level.compiler()


def key_of(content: str, target: Target, identity: str) -> str:
    """A kernel's key in the cache, for a target and a compiler.

    Args:
        content: digest of what is compiled (`codegen.content_of`).
        target: what it is compiled for.
        identity: of the compiler.
    """
    digest = _settings_digest(target, identity).copy()
    digest.update(content.encode())
    return str(digest.hexdigest())


@functools.cache
def _settings_digest(target: Target, identity: str) -> Any:
    """Hash state of everything but the kernel."""
    text = "\n".join([target.name, *target.all_flags, *LINK_FLAGS, identity])
    return blake2b(text.encode(), digest_size=16)


def stamp() -> str:
    """Returns a stamp that identifies the compiler without running it; "" where there is none."""
    located = _locate()
    return "" if located is None else _stamp_of(*located)


def _locate() -> tuple[tuple[str, ...], str] | None:
    """Command of the compiler, and the file whose time says whether it is still the same one."""
    chosen = settings.get("CC")
    commands: list[tuple[str, ...]] = [("gcc",), ("clang",), ("cc",)]
    if chosen:
        import shlex

        commands = [tuple(shlex.split(chosen))]
    for command in commands:
        path = _which(command[0])
        if path is not None:
            return (path, *command[1:]), path
    if not chosen:
        import importlib.util

        wheel = importlib.util.find_spec("ziglang")
        if wheel is not None and wheel.origin is not None:
            return (sys.executable, "-m", "ziglang", "cc"), wheel.origin
    return None


def _stamp_of(command: tuple[str, ...], file: str) -> str:
    real = os.path.realpath(file)
    state = os.stat(real)
    return f"compiler {command} {real} {state.st_size} {state.st_mtime_ns}"


def _which(name: str) -> str | None:
    """Path of a program (as `shutil.which`, whose import costs more than the search)."""
    folders = [""] if os.sep in name else os.environ.get("PATH", "/usr/bin:/bin").split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _identity(command: tuple[str, ...], file: str) -> str:
    """Family and version, remembered under the file's path, size and time."""
    key = blake2b(_stamp_of(command, file).encode(), digest_size=16).hexdigest()
    cached = cache.get_blob(key)
    if cached is not None:
        return cached.decode()
    import shlex
    import subprocess

    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    first = (result.stdout or result.stderr).splitlines()
    if result.returncode != 0 or not first:
        raise RuntimeError(
            f"[codegen] {shlex.join(command)} --version gives no version, exit status "
            f"{result.returncode}: {result.stderr.strip()[:200]!r}\n"
            "hint: set FLAMBEAU_CC to a working C compiler"
        )
    identity = ("zig " if "ziglang" in command else "") + first[0].strip()
    cache.put_blob(key, identity.encode())
    return identity
