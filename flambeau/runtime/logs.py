"""Logs of the compiler, kind by kind: `TORCH_LOGS` and `torch._logging.set_logs`.

A *component* (`dynamo`, `inductor` ...) is a group of loggers with a level; an *artifact*
(`graph_breaks`, `output_code` ...) is one kind of output that is on or off. Names, levels and
loggers are PyTorch's; each artifact says here what it shows of this compiler, nothing where its
subject does not exist in it. All of it goes through Python's loggers to the standard error stream.

Where nothing is switched on, nothing of this costs more than a look at an empty set: `logging` is
imported by the first message.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from flambeau.ir.lock import late
from flambeau.runtime import settings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40  # levels of `logging`
ROOT = "torch"

_SYMBOLS = ("torch.fx.experimental.symbolic_shapes", "torch.fx.experimental.sym_node",
            "torch.fx.experimental.recording")  # fmt: skip
# Components, and the loggers that have their level.
COMPONENTS: dict[str, tuple[str, ...]] = {
    "torch": (ROOT,),
    "dynamo": ("torch._dynamo", *_SYMBOLS),
    "aot": ("torch._functorch.aot_autograd", "torch._functorch._aot_autograd"),
    "inductor": ("torch._inductor", "torch._inductor.cudagraph_trees"),
    "dynamic": _SYMBOLS,
    "async_compile": ("torch._inductor.async_compile",),
    "autograd": ("torch.autograd",),
    "cache": ("torch._inductor.remote_cache",),
    "fake_tensor": ("torch._subclasses.fake_tensor",),
    "distributed": ("torch.distributed",),
    "c10d": ("torch.distributed.distributed_c10d", "torch.distributed.rendezvous"),
    "ddp": ("torch.nn.parallel.distributed",),
    "pp": ("torch.distributed.pipelining",),
    "fsdp": ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"),
    "dtensor": ("torch.distributed._tensor", "torch.distributed.tensor"),
    "onnx": ("torch.onnx",),
    "native_dsl": ("torch._native",),
    "export": ("torch._dynamo", "torch.export", *_SYMBOLS),
}


class Artifact(NamedTuple):
    """One kind of output.

    Attributes:
        module: whose logger it goes to.
        shows: what it shows here; "" for what this compiler does not have.
        with_component: whether the module's level DEBUG switches it on.
    """

    module: str
    shows: str = ""
    with_component: bool = False


_DYNAMO, _AOT, _INDUCTOR = "torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor"
_SHAPES = _SYMBOLS[0]
_ABSENT = (
    "annotation auto_chunker compiled_autograd compiled_autograd_verbose compute_dependencies "
    "cudagraph_static_inputs cudagraphs custom_format_test_artifact ddp_graphs graph_code_verbose "
    "graph_region_expansion hierarchical_compile incremental loop_ordering loop_tiling "
    "node_runtime_estimation not_implemented onnx_diagnostics overlap overlap_scheduling "
    "side_effects sym_node trace_bytecode trace_shape_events trace_source bytecode "
    "aot_graphs_effects"
)
ARTIFACTS: dict[str, Artifact] = {
    **dict.fromkeys(_ABSENT.split(), Artifact(_DYNAMO)),
    "graph_breaks": Artifact(_DYNAMO, "lines at which a region has to run, and why", True),
    "recompiles": Artifact(_DYNAMO, "why a function is compiled again", True),
    "recompiles_verbose": Artifact(_DYNAMO, "the same against every program that it has"),
    "guards": Artifact(_DYNAMO, "under what conditions calls run without their Python", True),
    "verbose_guards": Artifact(_DYNAMO, "as guards"),
    "graph": Artifact(_DYNAMO, "the recorded operators", True),
    "trace_call": Artifact(_DYNAMO, "as graph"),
    "graph_code": Artifact(_DYNAMO, "the traced program as Python", True),
    "graph_sizes": Artifact(_DYNAMO, "sizes of its inputs and results", True),
    "aot_graphs": Artifact(_AOT, "the forward and the backward program as Python", True),
    "aot_joint_graph": Artifact(_AOT, "both before they are divided", True),
    "pre_grad_graphs": Artifact(_INDUCTOR, "as graph_code", True),
    "post_grad_graphs": Artifact(_INDUCTOR, "the simplified program as Python", True),
    "ir_pre_fusion": Artifact(_INDUCTOR, "its values with their destinations"),
    "ir_post_fusion": Artifact(_INDUCTOR, "which values share a kernel, in order"),
    "fusion": Artifact(_INDUCTOR, "which values share a kernel, and why others do not"),
    "schedule": Artifact(_INDUCTOR, "launches, buffers, each kernel as a loop program"),
    "output_code": Artifact(_INDUCTOR, "the C of all kernels, and the file that it is in"),
    "kernel_code": Artifact(_INDUCTOR, "the C of each kernel"),
    "perf_hints": Artifact(_INDUCTOR, "what costs time: copies, kernels apart, runs in loops"),
    "autotuning": Artifact(_INDUCTOR, "times of the candidates that were measured"),
    "benchmarking": Artifact(_INDUCTOR, "as autotuning"),
    "caching": Artifact(_INDUCTOR, "plans that an earlier process stored"),
    "inductor_metrics": Artifact(_INDUCTOR, "bytes that a program moves"),
}
# Artifacts that are texts of the compiler's stages: no stage may be skipped for them.
STAGES = frozenset(
    "graph graph_code trace_call graph_sizes aot_graphs aot_joint_graph pre_grad_graphs "
    "post_grad_graphs ir_pre_fusion ir_post_fusion fusion schedule output_code kernel_code "
    "perf_hints inductor_metrics".split()
)


class State(NamedTuple):
    """The outputs that are switched on.

    Attributes:
        levels: of loggers, by name.
        artifacts: names of those that are on.
    """

    levels: Mapping[str, int] = {}
    artifacts: frozenset[str] = frozenset()


_changed: list[Callable[[], None]] = []  # called when other outputs are on
_current = State()
_on: frozenset[str] = frozenset()  # artifacts that are on, also those of a component at DEBUG


def on(*names: str) -> bool:
    """Whether one of these artifacts is shown."""
    return bool(_on) and not _on.isdisjoint(names)


def stages() -> bool:
    """Whether texts of the compiler's stages are shown."""
    return bool(_on) and not _on.isdisjoint(STAGES)


def active() -> bool:
    """Whether anything is switched on."""
    return bool(_on or _current.levels)


def level_of(component: str) -> int:
    """The level of a component's first logger."""
    return max_level(COMPONENTS[component][0])


def max_level(logger: str) -> int:
    """The level of a logger: its own, or that of the nearest one above."""
    while logger:
        if logger in _current.levels:
            return _current.levels[logger]
        logger = logger.rpartition(".")[0]
    return WARNING


def when_changed(listener: Callable[[], None]) -> None:
    """Calls `listener` whenever other outputs are switched on or off."""
    _changed.append(listener)


# ------------------------------------------------------------------------------- messages


def user_line() -> str:
    """The innermost line outside this package, as "file:line"."""
    path, line = _user_place()
    return f"{path}:{line}" if line else "<unknown>"


def is_user_code(path: str) -> bool:
    """Whether a file is none of the package, nor frozen."""
    return not path.startswith(_PACKAGE) and not path.startswith("<frozen")


def _user_place() -> tuple[str, int]:
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_user_code(name):
            return name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "<unknown>", 0


def emit(artifact: str, text: str) -> None:
    """Logs a text of an artifact, with the user's line, if the artifact is shown."""
    if artifact in _on:
        module = ARTIFACTS[artifact].module
        _log(f"{module}.__{artifact}", DEBUG, text)


def note(component: str, text: str) -> None:
    """Logs a line of a component, with the user's line, if its level is INFO or below."""
    if _current.levels and level_of(component) <= INFO:
        _log(COMPONENTS[component][0], INFO, text)


def _log(name: str, level: int, text: str) -> None:
    late("flambeau.runtime.log_output").write(name, level, text.rstrip("\n"), *_user_place())


# ------------------------------------------------------------------------------- switching


def switch(state: State) -> None:
    """Shows these outputs from now on, and no others."""
    global _current, _on
    _current = state
    by_level = {
        name
        for name, artifact in ARTIFACTS.items()
        if artifact.with_component and max_level(artifact.module) <= DEBUG
    }
    _on = state.artifacts | by_level
    names = {f"{ARTIFACTS[name].module}.__{name}" for name in _on}
    late("flambeau.runtime.log_output").configure(state.levels, names)
    for listener in _changed:
        listener()


def switched() -> State:
    """The outputs that are switched on."""
    return _current


# ------------------------------------------------------------------------------- TORCH_LOGS


def switch_by_environment() -> None:
    """Shows what `TORCH_LOGS` names, if it is set.

    Raises:
        ValueError: it names something unknown, or is "help".
    """
    text = settings.logs_variable("")
    if text:
        switch(parse(text))


def parse(text: str) -> State:
    """The outputs that a text of the form of `TORCH_LOGS` names.

    Args:
        text: names of components, artifacts and modules, separated by commas. A component or module
            has the level INFO, with `+` DEBUG, with `-` ERROR.

    Raises:
        ValueError: it names something unknown, or is "help".

    Example:
        >>> parse("+dynamo,graph_breaks").artifacts
        frozenset({'graph_breaks'})
    """
    if text in ("help", "+help"):
        raise ValueError(_help(text == "+help"))
    names = [name.strip() for name in text.split(",")]
    levels: dict[str, int] = {}
    artifacts: set[str] = set()
    for name in names:
        bare, level = name.lstrip("+-"), {"+": DEBUG, "-": ERROR}.get(name[:1], INFO)
        if bare in ARTIFACTS:
            artifacts.add(bare)
            continue
        loggers = loggers_of(bare) if re.fullmatch(r"[+-]?[\w.]+", name) else ()
        if not loggers:
            raise ValueError(_invalid(text))
        levels.update(dict.fromkeys(loggers, level))
    return State(levels, frozenset(artifacts))


def loggers_of(name: str) -> Iterable[str]:
    """The loggers of a component, of `all`, or of a module that can be imported; else none."""
    if name == "all":
        name = ROOT
    if name in COMPONENTS:
        return COMPONENTS[name]
    return (name,) if _is_module(name) else ()


def _is_module(name: str) -> bool:
    from importlib.util import find_spec

    own = "flambeau" + name.removeprefix(ROOT) if name.startswith(ROOT + ".") else name
    try:
        return find_spec(own) is not None
    except (ImportError, ValueError):
        return False


def _invalid(text: str) -> str:
    valid = ", ".join(sorted({"all", *COMPONENTS, *ARTIFACTS}))
    return (
        f"\nInvalid log settings: {text}, must be a comma separated list of fully\n"
        "qualified module names, registered log names or registered artifact names.\n"
        'For more info on various settings, try TORCH_LOGS="help"\n'
        f"Valid settings:\n{valid}\n"
    )


def _help(everything: bool) -> str:
    shown = {name: x for name, x in ARTIFACTS.items() if everything or x.shows}
    names = ["all", *sorted(COMPONENTS)]
    names += [f"{name:<30}{shown[name].shows or 'nothing here'}" for name in sorted(shown)]
    return (
        "\nTORCH_LOGS: names of components, artifacts and modules, separated by commas.\n"
        '  TORCH_LOGS="+dynamo,aot": level DEBUG for one component, INFO for another\n'
        '  TORCH_LOGS="-inductor": level ERROR\n'
        '  TORCH_LOGS="graph_breaks,output_code": two artifacts\n'
        "TORCH_LOGS_OUT: a file that gets the logs, too.\n"
        "TORCH_LOGS_FORMAT: a format of Python's logging, or short.\n"
        "Names ('+help' lists those without output, too):\n  " + "\n  ".join(names) + "\n"
    )
