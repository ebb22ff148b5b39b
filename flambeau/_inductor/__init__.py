"""`torch._inductor`: PyTorch's private names of its code generation, as views of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.ir.lock import late as _late
from flambeau.runtime import config_modules as _config_modules
from flambeau.runtime import missing as _missing

__all__ = [
    "aot_compile", "aoti_compile_and_package", "aoti_load_package", "compile",
    "cudagraph_mark_step_begin", "list_mode_options", "list_options", "standalone_compile",
    "CompiledArtifact",
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


def aoti_compile_and_package(
    exported_program: object,
    _deprecated_unused_args: object = None,
    _deprecated_unused_kwargs: object = None,
    *,
    package_path: object = None,
    inductor_configs: dict[str, object] | None = None,
) -> str:
    """Compiles an exported program into a file that runs without Python.

    The package has the weights and a library of machine code for this processor. Python runs it by
    `aoti_load_package`, C++ by `flambeau/include/flambeau/package.h`. Results are those of eager
    mode, bit for bit, for all sizes that the program was exported for.

    Args:
        exported_program: of `torch.export.export`.
        package_path: the file, which ends with `.pt2`, or a binary file object; None: a new file in
            the folder for temporary files.
        inductor_configs: options of `torch.compile`; "aot_inductor.metadata" is a dict of texts
            that the package has, too; others have no effect.

    Returns:
        the path.

    Raises:
        AssertionError: it is no exported program, or the path does not end with `.pt2`.
        NotImplementedError: the program sorts, scatters, draws random numbers, branches on data,
            calls custom operators, or has an operator that makes a varying size constant.

    Example:
        >>> import io
        >>> from torch._inductor import aoti_compile_and_package, aoti_load_package
        >>> batch = torch.export.Dim("batch", min=1, max=64)
        >>> model = nn.Linear(2, 3).eval()
        >>> program = torch.export.export(model, (torch.ones(2, 2),), dynamic_shapes=({0: batch},))
        >>> file = io.BytesIO()  # or a path
        >>> _ = aoti_compile_and_package(program, package_path=file)
        >>> _ = file.seek(0)
        >>> compiled, x = aoti_load_package(file), torch.randn(5, 2)
        >>> torch.equal(compiled(x), model(x))
        True
    """
    packages = _late("flambeau._inductor.package")
    path: str = packages.compiled(exported_program, package_path, inductor_configs or {})
    return path


def aoti_load_package(
    path: object, run_single_threaded: bool = False, device_index: int = -1
) -> _Function:
    """Loads what `aoti_compile_and_package` wrote.

    A package has machine code: it must come from where you trust.

    Args:
        path: the file, or a binary file object.
        run_single_threaded: whether one thread runs the model.
        device_index: without effect: models run on the CPU.

    Returns:
        an `AOTICompiledModel`: it is called as the exported module is.

    Raises:
        RuntimeError: the file is damaged, no package, or for another processor.
        NotImplementedError: PyTorch wrote it.
    """
    packages = _late("flambeau._inductor.package")
    model: _Function = packages.load_package(path, run_single_threaded=run_single_threaded)
    return model


def aot_compile(
    gm: object,
    args: tuple[object, ...],
    kwargs: dict[str, object] | None = None,
    *,
    options: dict[str, object] | None = None,
) -> str:
    """Compiles a module for arguments of these sizes into a file that runs without Python.

    Args:
        gm: the module.
        args, kwargs: example arguments, whose sizes become constants.
        options: as `inductor_configs` of `aoti_compile_and_package`.

    Returns:
        the path of a package.
    """
    program = _late("flambeau.export").export(gm, args, kwargs)
    return aoti_compile_and_package(program, inductor_configs=options)


_PARTS = ("compile_fx", "config", "cpp_builder", "custom_graph_pass", "decomposition", "exc",
          "package", "pattern_matcher", "standalone", "utils")  # fmt: skip

__getattr__ = _missing.getter(
    __name__, {"CompiledArtifact": "flambeau._inductor.standalone"}, _PARTS
)
