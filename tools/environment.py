"""The checkout's virtual environments, and the steps that make the package in them importable.

Two environments: ``.venv`` for everything, ``.venv-oracle`` for what compares with PyTorch, which
is never a dependency. Each step leaves a stamp of what it was made from, so that a second run
costs a few file reads.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools import build_native
from tools.build_native import BUILD, ROOT, Compiler, NativeBuildError

BLOCK_FUNCTIONS = ROOT / "flambeau" / "_baseline"
BUILDERS = (
    "build_package", "build_baseline", "build_native", "dtype_header", "jobs", "without_core",
)  # fmt: skip
COMPILED_SOURCES = ("flambeau/compiler", "flambeau/ir", "flambeau/prims", "flambeau/driver")


class StepError(RuntimeError):
    """A step of the set-up failed; the message says which, the output above it says why."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment: where it is, what pip installs, the files that decide about it."""

    directory: Path
    requirements: tuple[str, ...]
    inputs: tuple[Path, ...]

    @property
    def python(self) -> Path:
        """The interpreter of this environment."""
        return self.directory / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """The file that holds the fingerprint of the last complete installation."""
        return self.directory / "installed"

    def fingerprint(self) -> str:
        """Digest everything that would make another installation necessary."""
        base = f"{sys.version}\n{sys.base_prefix}\n{ROOT}\n{self.requirements}\n"
        return _digest(base, self.inputs)

    def create(self) -> None:
        """Make the bare environment, from nothing if Python or the checkout's place changed."""
        identity = f"{sys.version}\n{sys.base_prefix}\n{ROOT}\n"
        origin = self.directory / "origin"
        if origin.exists() and origin.read_text() == identity:
            return
        say(f"creating {self.directory.name} (Python {sys.version.split()[0]})")
        shutil.rmtree(self.directory, ignore_errors=True)
        run([sys.executable, "-m", "venv", self.directory], "create the environment")
        self.pip("setuptools>=77", "wheel")
        origin.write_text(identity)

    @property
    def complete(self) -> bool:
        """Whether all that is needed is installed."""
        return self.stamp.exists() and self.stamp.read_text() == self.fingerprint()

    def install_requirements(self) -> None:
        """Install what the package and its tests depend on."""
        if not self.complete:
            say(f"installing requirements into {self.directory.name} (first time, or they changed)")
            self.pip(*self.requirements)

    def install_checkout(self) -> None:
        """Install the checkout itself, editable, with its native core in place."""
        if self.complete:
            return
        # "compat" puts the checkout on sys.path; the default is an import hook, slower and
        # unseen by type checkers.
        compat = "--config-settings=editable_mode=compat"
        self.pip("--no-build-isolation", "--no-deps", compat, "-e", ".")
        self.stamp.write_text(self.fingerprint())

    def has(self, package: str) -> bool:
        """Whether *package* is installed here."""
        return any(self.directory.glob(f"lib/python*/site-packages/{package}"))

    def pip(self, *arguments: str) -> None:
        """Run ``pip install``, showing errors only."""
        options = ["-qq", "--no-input", "--disable-pip-version-check"]
        run([self.python, "-m", "pip", "install", *options, *arguments], "pip install")


def _required(*extras: str) -> tuple[str, ...]:
    """What the package depends on, alone and with some of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return (*project.get("dependencies", ()), *(word for name in extras for word in optional[name]))


_PROJECT = (ROOT / "pyproject.toml", ROOT / "setup.py")
_ORACLE_FILES = (ROOT / "tests/parity/requirements.txt", ROOT / "bench/requirements.txt")

DEVELOPMENT = Environment(ROOT / ".venv", _required("test", "lint", "examples"), _PROJECT)
ORACLE = Environment(
    ROOT / ".venv-oracle",
    (*_required(), *(word for file in _ORACLE_FILES for word in ("-r", str(file)))),
    (*_PROJECT, *_ORACLE_FILES),
)
_LIBRARIES = ROOT / "tests/libraries/requirements.txt"
LIBRARIES, LIBRARIES_ORACLE = (
    Environment(BUILD / "libraries" / name, ("--no-deps", "-r", str(_LIBRARIES)), files)
    for name, files in (("ours", (_LIBRARIES,)), ("oracle", (_LIBRARIES, *_ORACLE_FILES)))
)


def prepare_libraries() -> None:
    """Bring the two environments of third-party libraries up to date; the second has PyTorch."""
    with _one_at_a_time():
        for environment in (LIBRARIES, LIBRARIES_ORACLE):
            if environment.complete:
                continue
            environment.create()
            environment.install_requirements()
            if environment is LIBRARIES_ORACLE:
                torch = _ORACLE_FILES[0].read_text().splitlines()
                environment.pip(*(line for line in torch if line.startswith("torch==")))
            environment.stamp.write_text(environment.fingerprint())


def prepare(environment: Environment, *, plans: bool = False, all_targets: bool = False) -> None:
    """Bring *environment* and what is compiled up to date.

    Args:
        environment: which.
        plans: whether to make the package's plans, too.
        all_targets: whether to compile for all targets of the architecture, as wheels are, and not
            only for this machine's.
    """
    with _one_at_a_time():
        environment.create()
        compiler = find_compiler(environment)
        with ThreadPoolExecutor(1) as aside:  # pip waits for the network most of the time
            requirements = aside.submit(environment.install_requirements)
            build_compiled(environment, compiler, all_targets)
            requirements.result()
        environment.install_checkout()
        write_bytecode(environment)
        if plans:
            ship_plans(environment)


def find_compiler(environment: Environment) -> Compiler:
    """Return a system compiler, or the ``ziglang`` wheel's, installing that if need be."""
    compiler = build_native.find_compiler()
    if compiler is None:
        if not environment.has("ziglang"):
            say("no C++ compiler on PATH: installing the ziglang wheel and using that")
            environment.pip("ziglang")
        compiler = build_native.find_compiler(str(environment.python))
    if compiler is None:
        raise NativeBuildError("[build] the ziglang compiler does not start on this machine")
    return compiler


def build_core(compiler: Compiler, *, sanitize: str = "") -> Path:
    """Compile ``native/`` in place, or its sanitizer build, and return the module's path."""
    directory = BUILD / f"sanitize-{sanitize}" if sanitize else ROOT / "flambeau"
    output = directory / build_native.EXTENSION
    strict = in_continuous_integration() and compiler.is_gcc
    built = build_native.build(output, compiler, sanitize=sanitize, warnings_are_errors=strict)
    if built:
        say(f"built {output.relative_to(ROOT)} with {compiler.name}")
    return output


def write_bytecode(environment: Environment) -> None:
    """Compile the package's Python files, which makes a start five times as fast.

    Python would do it on the first import, but not where PYTHONDONTWRITEBYTECODE is set.
    """
    command: list[str | Path] = [environment.python, "-m", "compileall", "-q", "flambeau"]
    run(command, "compile the package to bytecode")


def build_compiled(environment: Environment, compiler: Compiler, all_targets: bool) -> None:
    """Bring core, block functions and templates' variants up to date, side by side."""
    stamp, key = BLOCK_FUNCTIONS / "sources", _sources_key(compiler)
    everything, own = f"{key} all", f"{key} {_digest(_processor(), [])}"
    current = {everything} if all_targets else {everything, own}
    if stamp.exists() and stamp.read_text() in current:
        build_core(compiler)  # the others are as their sources are
        return
    say("compiling the native core, the block functions and the templates' variants")
    strict = in_continuous_integration() and compiler.is_gcc
    options = [*(["--strict"] if strict else []), *([] if all_targets else ["--own-target"])]
    run([environment.python, "-m", "tools.build_package", *options], "compile the package")
    stamp.write_text(everything if all_targets else own)


def _processor() -> str:
    """Name what this processor can do: the target that is compiled for follows from it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith("flags")), platform.machine())


def _sources_key(compiler: Compiler) -> str:
    """Digest what decides about block functions and variants."""
    builders = [ROOT / "tools" / f"{name}.py" for name in BUILDERS]
    files = [*builders, *_sources(COMPILED_SOURCES, {".py", ".in"})]
    return _digest(compiler.version, files)


def _sources(folders: Iterable[str], suffixes: set[str]) -> list[Path]:
    """The files of some folders, by their endings."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return [path for path in found if path.suffix in suffixes]


def ship_plans(environment: Environment) -> None:
    """Plan what a new process usually asks for, unless that is done for the present sources."""
    command: list[str | Path] = [
        environment.python,
        "-m",
        "tools.ship_plans",
        "--unless-current",
    ]
    run(command, "plan the usual operators")


def in_continuous_integration() -> bool:
    """Whether this is a build server, where warnings and missing tools are failures."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"[go] {line}", flush=True)


def run(command: Iterable[str | Path], what: str, **environment: str) -> None:
    """Run *command* in the checkout with *environment* added, and raise if it fails.

    Raises:
        StepError: the command's exit status was not 0.
    """
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=ROOT, env=os.environ | environment, check=False)
    if result.returncode:
        shown = " ".join(words)
        raise StepError(f"[go] {what} failed (status {result.returncode})\ncommand: {shown}")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold the checkout's lock, so that two commands started together do not build twice."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another ./go in this checkout")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(text: str, files: Iterable[Path]) -> str:
    hasher = hashlib.sha256(text.encode())
    for file in files:
        hasher.update(f"\0{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return hasher.hexdigest()
