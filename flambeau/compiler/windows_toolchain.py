"""Command lines of the three C compilers of Windows: cl, clang-cl and icx-cl.

Flambeau does not run on Windows yet: nothing here starts a process. Kernels use GCC's vector types,
which clang-cl and Intel's icx-cl compile; Microsoft's cl compiles plain C and extensions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flambeau.compiler.targets import COMMON_FLAGS, Target

__all__ = ["COMPILERS", "WindowsCompiler", "compiler", "file_name"]

# `/fp:precise` forbids contraction for clang-cl only with the flag behind it; icx-cl's default
# is fast arithmetic, cl's contracts nothing under it.
_ALWAYS = ("/nologo", "/MD", "/O2", "/fp:precise", "/GS-", "/w")
# Flags of GCC's command line without a meaning on Windows, or covered by `/O2`, `/GS-`, `/arch:`.
_COVERED = ("-O2", "-fPIC", "-fno-stack-protector")
_EXTENSIONS = {"library": ".dll", "module": ".pyd", "object": ".obj"}


class _Dialect(NamedTuple):
    """The flags in which one compiler differs.

    Attributes:
        openmp: its flags.
        runtime: import libraries of its OpenMP.
        passes_flags: whether `/clang:` passes flags of GCC's form.
    """

    openmp: tuple[str, ...]
    runtime: tuple[str, ...]
    passes_flags: bool


COMPILERS: dict[str, _Dialect] = {
    "cl": _Dialect(("/openmp", "/openmp:experimental"), (), False),
    "clang-cl": _Dialect(("/openmp",), ("libomp",), True),
    "icx-cl": _Dialect(("/Qiopenmp",), ("libiomp5md",), True),
}


class WindowsCompiler(NamedTuple):
    """A compiler of Windows.

    Attributes:
        command: the program: a name or a path.
        dialect: what it accepts.
    """

    command: str
    dialect: _Dialect

    def flags(self, target: Target, openmp: bool = False) -> list[str]:
        """Flags that choose the code: the counterparts of GCC's for a target.

        Args:
            target: an instruction set.
            openmp: whether pragmas of OpenMP are obeyed.

        Raises:
            NotImplementedError: for a target of another processor.
        """
        if target.machines and "x86_64" not in target.machines:
            raise NotImplementedError(
                f"[codegen] no command line of Windows for target {target.name!r}\n"
                "hint: avx512, avx2 or generic"
            )
        flags = list(_ALWAYS)
        if target.flags:
            flags.append("/arch:AVX512" if "-mavx512f" in target.flags else "/arch:AVX2")
        if self.dialect.passes_flags:
            passed = [flag for flag in COMMON_FLAGS if flag not in _COVERED]
            passed += [flag for flag in target.flags if flag.startswith("-mprefer")]
            flags += [f"/clang:{flag}" for flag in passed]
        else:
            flags.append("/std:c11")
        return flags + list(self.dialect.openmp if openmp else ())

    def command_line(
        self,
        sources: Sequence[str],
        target: Target,
        output: str,
        *,
        objects: Sequence[str] = (),
        exports: Sequence[str] = (),
        include_dirs: Sequence[str] = (),
        library_dirs: Sequence[str] = (),
        libraries: Sequence[str] = (),
        openmp: bool = False,
    ) -> list[str]:
        """Arguments of one run of the compiler.

        Args:
            sources: paths of C files.
            target: an instruction set.
            output: the file, named by `file_name`. Its extension says what is made.
            objects: paths of object files that the library contains, too.
            exports: functions that the library exports.
            include_dirs: folders of headers.
            library_dirs: folders of import libraries.
            libraries: import libraries without their extension.
            openmp: whether pragmas of OpenMP are obeyed.

        Raises:
            ValueError: `output` has another extension.
            NotImplementedError: for a target of another processor.

        Example:
            >>> from flambeau.compiler import windows_toolchain
            >>> from flambeau.compiler.targets import TARGETS
            >>> cl = windows_toolchain.compiler("cl")
            >>> print(*cl.command_line(["a.c"], TARGETS["generic"], "a.obj")[-4:])
            /c /TC a.c /Foa.obj
        """
        line = [self.command, *self.flags(target, openmp)]
        line += [f"/I{_path(folder)}" for folder in include_dirs]
        compiled = ["/TC", *map(_path, sources)]
        if output.endswith(_EXTENSIONS["object"]):
            return [*line, "/c", *compiled, f"/Fo{_path(output)}"]
        if not output.endswith((_EXTENSIONS["library"], _EXTENSIONS["module"])):
            raise ValueError(
                f"[codegen] a compiler of Windows cannot make {output!r}\n"
                f"hint: {', '.join(_EXTENSIONS.values())}"
            )
        runtime = self.dialect.runtime if openmp else ()
        linked = [f"/LIBPATH:{_path(folder)}" for folder in library_dirs]
        linked += [f"{name}.lib" for name in (*libraries, *runtime)]
        linked += [f"/EXPORT:{name}" for name in exports]
        inputs = [*compiled, *map(_path, objects)]
        return [*line, *inputs, f"/Fe{_path(output)}", "/LD", "/link", *linked]


def compiler(command: str) -> WindowsCompiler:
    r"""The compiler that a command runs, by the name of its program.

    Args:
        command: a name or path, with or without ".exe".

    Raises:
        ValueError: the program is none of `COMPILERS`.

    Example:
        >>> from flambeau.compiler import windows_toolchain
        >>> windows_toolchain.compiler(r"C:\LLVM\bin\clang-cl.exe").dialect.openmp
        ('/openmp',)
    """
    name = _path(command).rsplit("\\", 1)[-1].lower().removesuffix(".exe")
    if name not in COMPILERS:
        raise ValueError(
            f"[codegen] {command!r} is no compiler of Windows\nhint: {', '.join(COMPILERS)}"
        )
    return WindowsCompiler(command, COMPILERS[name])


def file_name(stem: str, kind: str) -> str:
    """The name of what is made.

    Args:
        stem: the name without its extension.
        kind: "library" (kernels), "module" (an extension module of Python) or "object".
    """
    return stem + _EXTENSIONS[kind]


def _path(path: str) -> str:
    """A path that does not begin as an option does."""
    return path.replace("/", "\\")
