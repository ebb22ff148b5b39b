"""`torch._inductor`: PyTorch's private names of its code generation, as views of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from flambeau.ir.lock import late as _late
from flambeau.runtime import config_modules as _config_modules
from flambeau.runtime import missing as _missing

__all__ = [
    "aoti_compile_and_package", "aoti_load_package", "compile", "cudagraph_mark_step_begin",
    "list_mode_options", "list_options", "standalone_compile", "CompiledArtifact",
]  # fmt: skip

_Function = Callable[..., object]


def __dir__() -> list[str]:
    return sorted({*__all__, *_PARTS})


_TUNED: dict[str, Any] = {"max_autotune": True, "coordinate_descent_tuning": True}
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {
        "fallback_by_default": True,
        "selective_decompose": True,
        "reorder_for_peak_memory": False,
        "reorder_for_compute_comm_overlap": False,
        "triton.reorder_for_reducing_graph_partitions": False,
        "use_pre_grad_passes": False,
        "use_joint_graph_passes": False,
        "use_post_grad_passes": False,
        "use_dce": False,
        "allow_buffer_reuse": False,
    },
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": _TUNED,
    "max-autotune": {**_TUNED, "triton.cudagraphs": True},
}


def compile(  # noqa: A001 - PyTorch's name
    gm: Any, example_inputs: Any, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compiles a `GraphModule`.

    Args:
        gm: the module.
        example_inputs: without effect: programs hold for every size.
        options: as of `torch.compile`.
    """
    compiled: Callable[..., Any] = _late("flambeau.capture.regions").compile(gm, options=options)
    return compiled


def standalone_compile(
    gm: _Function,
    example_inputs: object,
    *,
    options: dict[str, object] | None = None,
    **others: object,
) -> _Function:
    """Compiles a `GraphModule` to an artifact that can be saved.

    Args:
        gm: the module.
        example_inputs: without effect: programs hold for every size.
        options: as of `torch.compile`.
        others: `dynamic_shapes`, `aot`, `donate_graph_module` and `fake_mode` of PyTorch; without
            effect.

    Returns:
        a `CompiledArtifact`: it is called as the module is.

    Raises:
        TypeError: another keyword.
    """
    unknown = others.keys() - {"dynamic_shapes", "aot", "donate_graph_module", "fake_mode"}
    if unknown:
        raise TypeError(f"standalone_compile() got an unexpected keyword argument {min(unknown)!r}")
    artifact: _Function = _late("flambeau._inductor.standalone").CompiledArtifact(gm, options)
    return artifact


def list_options() -> list[str]:
    """Names of `torch.compile(options=...)`."""
    return list(_config_modules.defaults()["torch._inductor.config"])


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """Options that a mode of `torch.compile` selects.

    Args:
        mode: its name; None gives a dict of all.
        dynamic: without effect.

    Raises:
        RuntimeError: there is none of this name.
    """
    if mode is None:
        return {name: dict(options) for name, options in _MODES.items()}
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    return dict(_MODES[mode])


def cudagraph_mark_step_begin() -> None:
    """Returns: there are no CUDA graphs whose memory could be used again."""


def aoti_compile_and_package(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises: programs are not compiled ahead of time into files.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "[aoti_compile_and_package] programs are not compiled into files\n"
        "hint: kernels are stored on disk by themselves; torch.jit.save stores programs"
    )


aoti_load_package = aoti_compile_and_package

_PARTS = ("compile_fx", "config", "cpp_builder", "custom_graph_pass", "decomposition", "exc",
          "pattern_matcher", "standalone", "utils")  # fmt: skip

__getattr__ = _missing.getter(
    __name__, {"CompiledArtifact": "flambeau._inductor.standalone"}, _PARTS
)
