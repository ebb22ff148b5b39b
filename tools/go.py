"""The verbs of ``./go``: each is one function, its docstring's first line is its help."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools import build_native
from tools.build_native import BUILD, ROOT, NativeBuildError
from tools.environment import (
    DEVELOPMENT,
    LIBRARIES,
    LIBRARIES_ORACLE,
    ORACLE,
    Environment,
    StepError,
    build_core,
    find_compiler,
    in_continuous_integration,
    prepare,
    prepare_libraries,
    say,
)

STRICTLY_TYPED = (
    "tools", "flambeau/ir", "flambeau/compiler", "flambeau/core", "flambeau/language",
    "flambeau/driver", "flambeau/derivation", "flambeau/serialization", "flambeau/capture",
)  # fmt: skip
TUTORIALS = "examples/tutorials"  # programs of users: checked against the package's types
# What `./go sanitize` runs: whatever drives the native core hard. (Processes that are killed prove
# nothing more under a sanitizer, and start slowly.)
SANITIZED: tuple[str, ...] = (
    "tests/sanitize",
    "tests/core",
    "tests/autograd",
    "tests/capture/test_frame.py",
    "tests/capture/test_frame_gradients.py",
    "tests/capture/test_frame_guards.py",
    "tests/capture/test_frame_step.py",
    "tests/capture/test_frame_writes.py",
    "tests/data",
    "tests/stress",
    "tests/profiler",
    "tests/compiler/test_scratch_guards.py",
    "tests/ops/test_fuzzed_indices.py",
    "tests/ops/test_index_bounds.py",
    "tests/ops/test_ordering.py",
    "tests/ops/test_prepacked.py",
)
SANITIZED += ("--ignore=tests/stress/test_cache_kill.py",)
# What `./go test --quick` runs: a little of everything, and nothing that compiles many kernels.
QUICK: tuple[str, ...] = (
    "tests/test_smoke.py",
    "tests/test_startup.py",
    "tests/test_mistakes.py",
    "tests/autograd",
    "tests/capture/test_compile_arguments.py",
    "tests/capture/test_regions.py",
    "tests/core/test_arguments.py",
    "tests/core/test_interop.py",
    "tests/core/test_tensor_object.py",
    "tests/func/test_vmap.py",
    "tests/ir",
    "tests/nn/test_module.py",
    "tests/ops/test_errors.py",
    "tests/serialization",
)
ALIAS_OPTION = "--torch-alias"  # of `./go wheel`
INTERRUPTED = 130  # the shell's status for a command stopped by Ctrl-C


def demo(arguments: list[str]) -> int:
    """Train the small GPT of examples/gpt; flags go to its train.py."""
    prepare(DEVELOPMENT)
    return execute(DEVELOPMENT, "examples/gpt/train.py", *arguments)


def test(arguments: list[str]) -> int:
    """Run the tests (--quick: a tenth of them); other arguments go to pytest."""
    prepare(DEVELOPMENT)
    if "--quick" in arguments:
        more = [argument for argument in arguments if argument != "--quick"]
        return execute(DEVELOPMENT, "-m", "pytest", "-q", *QUICK, *side_by_side(), *more)
    if arguments:
        return execute(DEVELOPMENT, "-m", "pytest", "-q", *arguments)
    say("the whole suite: some 10 minutes on 2 cores; ./go test --quick takes less than 2")
    parts = []
    for part, what in (("baseline", "without the C compiler"), ("compiled", "code generator")):
        say(f"tests, {what}")
        words = ["-m", "pytest", "-q", "--part", part, *side_by_side()]
        parts.append(execute(DEVELOPMENT, *words))
    return max(parts)


def bench(arguments: list[str]) -> int:
    """Run the benchmarks beside PyTorch, all or the named one (./go bench dispatch)."""
    prepare(ORACLE, plans=True)
    return execute(ORACLE, "-m", "bench", *arguments)


def parity(arguments: list[str]) -> int:
    """Compare with PyTorch: the tests of tests/parity, or third-party models (parity libraries)."""
    if arguments[:1] == ["libraries"]:
        prepare(DEVELOPMENT)
        prepare_libraries()
        pythons = ["--ours", str(LIBRARIES.python), "--reference", str(LIBRARIES_ORACLE.python)]
        return execute(DEVELOPMENT, "-m", "tests.libraries", *pythons, *arguments[1:])
    prepare(ORACLE)
    return execute(ORACLE, "-m", "pytest", "-q", "tests/parity", *(arguments or side_by_side()))


def lint(arguments: list[str]) -> int:
    """Check format, style and types of Python, C++ and kernels; --fix repairs what can be."""
    prepare(DEVELOPMENT)
    native = sorted(map(str, build_native.SOURCES.rglob("*.[ch]*")))
    typed = [package for package in STRICTLY_TYPED if (ROOT / package).is_dir()]
    fix = "--fix" in arguments
    checks: dict[str, list[str]] = {
        "ruff format": ["ruff", "format", *([] if fix else ["--check"]), "."],
        "ruff check": ["ruff", "check", *(["--fix"] if fix else []), "."],
        "clang-format": ["clang-format", *(["-i"] if fix else ["--dry-run", "-Werror"]), *native],
        "kernels": ["python", "-m", "tools.template_lint", *(["--fix"] if fix else [])],
        "mypy": ["mypy", *typed],
        "mypy tutorials": ["mypy", "--config-file=", "--follow-imports=silent", TUTORIALS],
        "pyright tutorials": ["pyright", "--pythonpath", str(DEVELOPMENT.python), TUTORIALS],
    }
    if not native:
        del checks["clang-format"]
    if not typed:
        del checks["mypy"]
    binaries = DEVELOPMENT.directory / "bin"
    results = {
        name: subprocess.run([binaries / words[0], *words[1:]], cwd=ROOT, check=False).returncode
        for name, words in checks.items()
    }
    results["clang-tidy"] = tidy(find_compiler(DEVELOPMENT)) if native else 0
    for name, status in results.items():
        say(f"{name}: {'failed' if status else 'ok'}")
    return int(any(results.values()))


def tidy(compiler: build_native.Compiler) -> int:
    """Run clang-tidy (.clang-tidy) over the units of the core, one process for each CPU core."""
    tool = str(DEVELOPMENT.directory / "bin" / "clang-tidy")
    flags = ["--", *build_native.code_flags(compiler)]

    def check(unit: Path) -> int:
        words = [tool, "--quiet", str(unit), *flags]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout or done.stderr)
        return done.returncode

    with ThreadPoolExecutor(cores()) as pool:
        return max(pool.map(check, build_native.sources()))


def sanitize(arguments: list[str]) -> int:
    """Run the tests of the core under Address- and UndefinedBehaviorSanitizer (--thread: races)."""
    prepare(DEVELOPMENT)
    compiler = find_compiler(DEVELOPMENT)
    kind = "thread" if arguments[:1] == ["--thread"] else "address"
    libraries = build_native.sanitizer_libraries(compiler, kind)
    if not libraries:
        say(f"{compiler.name} has no sanitizer libraries here; install gcc or clang")
        return int(in_continuous_integration())
    module = build_core(compiler, sanitize=kind)
    os.environ.update(FLAMBEAU_NATIVE_DIR=str(module.parent), LD_PRELOAD=" ".join(libraries))
    if kind == "thread":
        # Python itself is not instrumented: what it does between our calls is left out.
        os.environ["TSAN_OPTIONS"] = "ignore_noninstrumented_modules=1 die_after_fork=0"
        words = arguments[1:] or ["-m", "tests.stress.racing", "--seconds", "600"]
        fixed = ["setarch", "-R"] if shutil.which("setarch") else []  # its shadow needs the room
        return subprocess.call([*fixed, str(DEVELOPMENT.python), *words], cwd=ROOT)
    os.environ.update(
        ASAN_OPTIONS="detect_leaks=0",  # Python itself leaks on exit, by design
        UBSAN_OPTIONS="print_stacktrace=1",
        PYTHONMALLOC="malloc",  # pymalloc's arenas would hide overruns
    )
    chosen = arguments or (*SANITIZED, *side_by_side())
    return execute(DEVELOPMENT, "-m", "pytest", "-q", *chosen)


def targets(arguments: list[str]) -> int:
    """Compile for all processors of the architecture, and test what this one can run of it."""
    prepare(DEVELOPMENT, all_targets=True)
    tests = ["-m", "pytest", "-q", *side_by_side()]
    statuses = [execute(DEVELOPMENT, *tests, "tests/compiler/test_block_functions.py")]
    listing = "print(*(target.name for target in of_this_machine()))"
    program = f"from flambeau.compiler.targets import of_this_machine; {listing}"
    command = [str(DEVELOPMENT.python), "-c", program]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split()[1:]:
        say(f"operators on {name}, without the C compiler")
        os.environ["FLAMBEAU_TARGET"] = name
        statuses.append(
            execute(DEVELOPMENT, *tests, "--part", "baseline", "tests/ops/test_forward.py")
        )
    return max(statuses)


def side_by_side() -> list[str]:
    """The options of pytest for a whole suite: one process per core (a few chosen tests are sooner
    done in one)."""
    return ["-n", str(cores()), "--dist", "worksteal"]


def cores() -> int:
    """How many cores this process may use; of systems that do not tell (macOS), all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def docs(arguments: list[str]) -> int:
    """Build the documentation (docs/build.py) into build/docs."""
    prepare(DEVELOPMENT)
    return execute(DEVELOPMENT, "docs/build.py", *arguments)


def wheel(arguments: list[str]) -> int:
    """Build a wheel, kernels included, into dist/; with --torch-alias one named "torch" as well."""
    prepare(DEVELOPMENT)
    if ALIAS_OPTION in arguments:
        arguments = [word for word in arguments if word != ALIAS_OPTION]
        status = execute(DEVELOPMENT, "-m", "tools.alias_wheel", "dist")
        if status:
            return status
    for leftover in [*BUILD.glob("lib*"), *BUILD.glob("bdist*")]:
        shutil.rmtree(leftover)  # setuptools would pack files that are gone from the checkout
    options = ["-qq", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist"]
    status = execute(DEVELOPMENT, "-m", "pip", "wheel", *options, *arguments, ".")
    for path in sorted((ROOT / "dist").glob("*.whl")):
        say(f"{path.relative_to(ROOT)} ({path.stat().st_size / 1e6:.1f} MB)")
    return status


def build(arguments: list[str]) -> int:
    """Only prepare: environment, native core, kernels (--all-targets: of all processors)."""
    prepare(DEVELOPMENT, all_targets="--all-targets" in arguments)
    say(f"ready: {DEVELOPMENT.python.relative_to(ROOT)}")
    return 0


def clean(arguments: list[str]) -> int:
    """Remove all that ./go made, the environments too."""
    made = [DEVELOPMENT.directory, ORACLE.directory, BUILD, ROOT / "dist"]
    made += [ROOT / "flambeau" / name for name in ("_kernels", "_baseline")]
    made += ROOT.glob("*.egg-info")
    made += [ROOT / f".{tool}_cache" for tool in ("pytest", "ruff", "mypy")]
    for directory in made:
        shutil.rmtree(directory, ignore_errors=True)
    for binary in (ROOT / "flambeau").glob("_core*.so"):
        binary.unlink()
    return 0


VERBS: tuple[Callable[[list[str]], int], ...] = (
    demo,
    test,
    bench,
    parity,
    lint,
    sanitize,
    targets,
    docs,
    wheel,
    build,
    clean,
)


def usage() -> str:
    """Explain ``./go`` from the docstrings of its verbs."""
    lines = [f"  {verb.__name__:10}{(verb.__doc__ or '').splitlines()[0]}" for verb in VERBS]
    return "\n".join(
        [
            "usage: ./go VERB [arguments]",
            "",
            *lines,
            "",
            "Every verb first brings .venv, the native core and the kernel cache up to date.",
            "It needs Python 3.11 or newer; without a C++ compiler it installs one (ziglang).",
        ]
    )


def execute(environment: Environment, *words: str) -> int:
    """Run the environment's Python on *words* and return its exit status."""
    command = [str(environment.python), *words]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(words: list[str]) -> int:
    """Run one verb, say how long it took, and return its exit status."""
    verbs = {verb.__name__: verb for verb in VERBS}
    if not words or words[0] in {"help", "-h", "--help"}:
        print(usage())
        return 0
    if words[0] not in verbs:
        print(f"[go] no such verb: {words[0]}\n\n{usage()}", file=sys.stderr)
        return 2
    started = time.monotonic()
    try:
        status = verbs[words[0]](words[1:])
    except (NativeBuildError, StepError) as error:
        print(error, file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = INTERRUPTED
    outcome = "done" if status == 0 else f"failed (status {status})"
    say(f"{words[0]} {outcome} in {time.monotonic() - started:.1f} s")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
