"""`torch.utils.cpp_extension`: functions in C++ on tensors, against this package's own headers.

`load` and `load_inline` compile sources that include `torch/extension.h` (`flambeau/include`: a
small tensor interface, whose methods call the operators of this package) and import the result.
Libraries are stored by a hash of everything that they depend on; processes that need the same one
wait for the first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from flambeau.compiler import toolchain
from flambeau.compiler.codegen.progress import Progress
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.torch_version import TorchVersion

__all__ = [  # noqa: F822 - BuildExtension is made when it is read
    "BuildExtension", "CUDAExtension", "CppExtension", "SyclExtension", "check_compiler_is_gcc",
    "check_compiler_ok_for_platform", "get_compiler_abi_compatibility_and_version",
    "get_cxx_compiler", "get_default_build_root", "include_paths", "is_ninja_available",
    "library_paths", "load", "load_inline", "remove_extension_h_precompiler_headers",
    "verify_ninja_availability",
]  # fmt: skip

CUDA_HOME = ROCM_HOME = SYCL_HOME = CUDNN_HOME = None
IS_HIP_EXTENSION = False
IS_WINDOWS, IS_MACOS, IS_LINUX = (sys.platform.startswith(s) for s in ("win", "darwin", "linux"))
LIB_EXT = ".so"
_INCLUDE = Path(__file__).parents[1] / "include"
_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-O2")
_LINK = ("-shared", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
_GPU_SUFFIXES = (".cu", ".cuh", ".sycl", ".hip")
_modules: dict[str, Any] = {}


def _no_gpu() -> NoReturn:
    raise OSError(
        "CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"
        "hint: extensions here run on the CPU: leave out CUDA sources, use CppExtension"
    )


# ------------------------------------------------------------------------------ the compiler
def get_cxx_compiler() -> str:
    """The C++ compiler: CXX, else the one that belongs to the C compiler of kernels."""
    return os.environ.get("CXX") or shlex.join(_compiler())


def _compiler() -> list[str]:
    chosen = os.environ.get("CXX")
    if chosen:
        return shlex.split(chosen)
    program, *arguments = toolchain.find().command
    if "ziglang" in arguments:
        return [program, *arguments[:-1], "c++"]
    folder, name = os.path.split(program)
    for c, cxx in (("clang", "clang++"), ("gcc", "g++"), ("cc", "c++")):
        other = os.path.join(folder, name.replace(c, cxx))
        if c in name and os.access(other, os.X_OK):
            return [other, *arguments]
    return ["c++"]


@functools.cache
def _version(compiler: str) -> str:
    """Returns the version text of a compiler; "" if it does not run."""
    with contextlib.suppress(OSError):
        result = subprocess.run(
            [*shlex.split(compiler), "--version"], capture_output=True, text=True, check=False
        )
        return result.stdout if result.returncode == 0 else ""
    return ""


def check_compiler_is_gcc(compiler: str) -> bool:
    """Whether a compiler is GNU's.

    Args:
        compiler: its command.
    """
    return "Free Software Foundation" in _version(compiler)


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Whether a command runs a C++ compiler.

    Args:
        compiler: its command.
    """
    return bool(_version(compiler))


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, TorchVersion]:
    """Whether extensions can be compiled, and the compiler's version.

    Args:
        compiler: its command.
    """
    numbers = [word for word in _version(compiler).split() if word[:1].isdigit() and "." in word]
    version = TorchVersion(numbers[0].split("-")[0] if numbers else "0.0.0")
    return check_compiler_ok_for_platform(compiler), version


def is_ninja_available() -> bool:
    """Whether the program ninja runs; extensions are compiled without it."""
    return bool(_version("ninja"))


def verify_ninja_availability() -> None:
    """Raises unless ninja runs.

    Raises:
        RuntimeError: it does not.
    """
    if not is_ninja_available():
        raise RuntimeError(
            "Ninja is required to load C++ extensions (pip install ninja to get it)\n"
            "hint: load and load_inline do without it"
        )


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Folders of headers.

    Args:
        device_type: "cpu".
        torch_include_dirs: whether to name them.

    Raises:
        OSError: another device.
    """
    if device_type != "cpu":
        _no_gpu()
    return [str(_INCLUDE)] if torch_include_dirs else []


def library_paths(
    device_type: str = "cpu", torch_include_dirs: bool = True,
    cross_target_platform: str | None = None,
) -> list[str]:  # fmt: skip
    """Folders of libraries to link: none, since extensions call operators through Python.

    Args:
        device_type: "cpu".
        torch_include_dirs, cross_target_platform: without effect.

    Raises:
        OSError: another device.
    """
    if device_type != "cpu":
        _no_gpu()
    return []


def remove_extension_h_precompiler_headers() -> None:
    """Returns: headers are not precompiled."""


# ------------------------------------------------------------------------------ builds
def get_default_build_root() -> str:
    """The folder of extensions: TORCH_EXTENSIONS_DIR, else one in the user's cache."""
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return os.path.realpath(chosen or Path(cache) / "torch_extensions")


def _command(name: str, flags: Sequence[str], folders: Sequence[str]) -> list[str]:
    paths = [*include_paths(), sysconfig.get_paths()["include"], *folders]
    return [
        *_compiler(), f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(f"-I{path}" for path in paths), *_FLAGS, *flags,
    ]  # fmt: skip


def _key(command: Sequence[str], sources: Sequence[str], libraries: Sequence[str]) -> str:
    """A hash of what a library is made of: texts, headers, command, compiler, interpreter."""
    state = hashlib.blake2b(digest_size=12)
    parts = [*command, *libraries, _version(shlex.join(_compiler())), sys.version]
    files = [*map(Path, sources), *sorted(_INCLUDE.rglob("*.h"))]
    for folder in (Path(flag[2:]) for flag in command if flag.startswith("-I")):
        if folder != _INCLUDE and not folder.is_relative_to(sys.base_prefix):
            files += sorted(folder.glob("*.h*"))
    for part in [*(part.encode() for part in parts), *(file.read_bytes() for file in files)]:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """A `with` block that one process at a time is in; a process that dies leaves no lock."""
    with open(path, "a") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _built(
    name: str, sources: Sequence[str], flags: Sequence[str], libraries: Sequence[str],
    folders: Sequence[str], directory: str | None, verbose: bool,
) -> str:  # fmt: skip
    """The library of some sources, compiled unless it is there.

    Raises:
        RuntimeError: the compiler fails; its messages are part of the text.
    """
    command = _command(name, flags, folders)
    root = Path(directory or Path(get_default_build_root()) / name)
    library = root / _key(command, sources, libraries) / f"{name}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with _locked(library.parent / "lock"):
        if library.exists():
            return str(library)
        handle, temporary = tempfile.mkstemp(dir=library.parent, suffix=".tmp")
        os.close(handle)
        words = [*command, *sources, *_LINK, *libraries, "-o", temporary]
        if verbose:
            print(shlex.join(words), file=sys.stderr)
        with Progress(lambda: f"extension {name!r}"):
            result = subprocess.run(words, capture_output=True, text=True, check=False)
        if result.returncode:
            os.unlink(temporary)
            raise RuntimeError(f"Error building extension '{name}': {result.stdout}{result.stderr}")
        os.replace(temporary, library)
    return str(library)


def _imported(name: str, path: str, is_python_module: bool) -> Any:
    if path not in _modules:
        if is_python_module:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            _modules[path] = module
        else:
            import ctypes

            _modules[path] = ctypes.PyDLL(path)
    return _modules[path] if is_python_module else None


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Compiles C++ sources, unless that was done before, and imports them.

    Args:
        name: of the module; `TORCH_EXTENSION_NAME` in the sources.
        sources: files.
        extra_cflags, extra_ldflags, extra_include_paths: for the compiler.
        extra_cuda_cflags, extra_sycl_cflags: without effect.
        build_directory: where libraries are stored, in a folder per content.
        verbose: whether the command is shown.
        with_cuda, with_sycl: must not be True.
        is_python_module: False: the sources only define operators (`TORCH_LIBRARY`).
        is_standalone: must be False.
        keep_intermediates: without effect; there are none.

    Returns:
        the module; None where `is_python_module` is False.

    Raises:
        RuntimeError: the compiler fails.
        OSError: CUDA or SYCL sources.
    """
    files = [os.fspath(s) for s in ([sources] if isinstance(sources, (str, Path)) else sources)]
    if with_cuda or with_sycl or any(file.endswith(_GPU_SUFFIXES) for file in files):
        _no_gpu()
    if is_standalone:
        problem = "programs of their own are not built: extensions call operators through Python"
        raise failure(NotImplementedError, "load", problem, "is_standalone=False")
    path = _built(
        name, [os.path.abspath(file) for file in files], extra_cflags or (), extra_ldflags or (),
        extra_include_paths or (), build_directory, verbose,
    )  # fmt: skip
    return _imported(name, path, is_python_module)


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: Any = None,
    sycl_sources: Any = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """As `load`, of C++ in strings.

    Args:
        name: of the module.
        cpp_sources: the texts; `torch/extension.h` is included.
        cuda_sources, sycl_sources: must be empty.
        functions: names of functions to bind, with their docstrings if it is a dict.
        no_implicit_headers: whether the texts include all headers themselves.
        extra_cflags, extra_ldflags, extra_include_paths, build_directory, verbose, with_cuda,
            with_sycl, is_python_module: as of `load`.
        extra_cuda_cflags, extra_sycl_cflags, with_pytorch_error_handling, keep_intermediates,
            use_pch: without effect.

    Returns:
        the module; None where `is_python_module` is False.
    """
    if cuda_sources or sycl_sources:
        _no_gpu()
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    lines = [] if no_implicit_headers else ["#include <torch/extension.h>"]
    lines += texts
    if functions is not None:
        named = [functions] if isinstance(functions, str) else functions
        pairs = named.items() if isinstance(named, dict) else ((each, each) for each in named)
        lines += ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
        lines += [f'm.def("{each}", &{each}, R"flambeau({text})flambeau");' for each, text in pairs]
        lines += ["}"]
    root = Path(build_directory or Path(get_default_build_root()) / name)
    root.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    source = root / f"main_{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.cpp"
    if not source.exists():
        temporary = root / f"{source.name}.{os.getpid()}"
        temporary.write_text(text)
        os.replace(temporary, source)
    return load(
        name, [str(source)], extra_cflags=extra_cflags, extra_ldflags=extra_ldflags,
        extra_include_paths=extra_include_paths, build_directory=build_directory, verbose=verbose,
        with_cuda=with_cuda, with_sycl=with_sycl, is_python_module=is_python_module,
    )  # fmt: skip


# ------------------------------------------------------------------------------ setuptools
def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """A `setuptools.Extension` with the headers of this package; `BuildExtension` compiles it.

    Args:
        name: of the module.
        sources: files.
        args, kwargs: further arguments of `setuptools.Extension`.
    """
    import setuptools

    kwargs["include_dirs"] = [*kwargs.get("include_dirs", ()), *include_paths()]
    kwargs["language"] = "c++"
    flags = kwargs.pop("extra_compile_args", [])
    flags = flags.get("cxx", []) if isinstance(flags, dict) else flags
    macro = f"-DTORCH_EXTENSION_NAME={name.rpartition('.')[2]}"
    kwargs["extra_compile_args"] = [*_FLAGS, macro, *flags]
    return setuptools.Extension(name, list(sources), *args, **kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802
    """Raises OSError: there is no CUDA."""
    _no_gpu()


def SyclExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802
    """Raises OSError: there is no SYCL."""
    _no_gpu()


@functools.cache
def _build_extension() -> type:
    """The command, made when it is first read: its base is setuptools'."""
    build_ext = _build_ext()

    class BuildExtension(build_ext):  # type: ignore[misc, valid-type]
        """The `build_ext` command of packages with a `CppExtension`."""

        @classmethod
        def with_options(cls, **options: Any) -> type:
            """This command; options (`use_ninja` and others) change nothing.

            Args:
                options: PyTorch's.
            """
            return cls

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            for option in ("use_ninja", "no_python_abi_suffix"):
                kwargs.pop(option, None)
            super().__init__(*args, **kwargs)

        def build_extensions(self) -> None:
            """Compiles, by the compiler that `load` uses too."""
            for extension in self.extensions:
                if any(source.endswith(_GPU_SUFFIXES) for source in extension.sources):
                    _no_gpu()
            self.compiler.set_executables(
                compiler_so=_compiler(), compiler_so_cxx=_compiler(),
                linker_so=[*_compiler(), *_LINK], linker_so_cxx=[*_compiler(), *_LINK],
            )  # fmt: skip
            super().build_extensions()

    return BuildExtension


def _build_ext() -> Any:
    """Setuptools' command."""
    from setuptools.command.build_ext import build_ext

    return build_ext


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":
        return _build_extension()
    late("flambeau.runtime.missing").refuse(__name__, name)
