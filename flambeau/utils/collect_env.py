"""`torch.utils.collect_env`: what a report of a bug should say of the machine and its packages."""

from __future__ import annotations

import locale
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import flambeau as torch

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main", "pretty_str", "run"]

PIP_PATTERNS = ("mypy", "flake8", "onnx", "torch", "numpy", "flambeau", "safetensors")
Run = Callable[[Any], tuple[int, str, str]]


class SystemEnv(NamedTuple):
    """The result of `get_env_info`."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    gcc_version: str | None
    clang_version: str | None
    cmake_version: str | None
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    cuda_runtime_version: str | None
    nvidia_driver_version: str | None
    nvidia_gpu_models: str | None
    cudnn_version: str | None
    is_xpu_available: str
    pip_version: str
    pip_packages: str
    conda_packages: str | None
    cpu_info: str


def run(command: Any) -> tuple[int, str, str]:
    """Runs a command: its status, output and errors; status 127 where it is not installed."""
    try:
        done = subprocess.run(
            command, capture_output=True, shell=isinstance(command, str), check=False
        )
    except FileNotFoundError:
        return 127, "", f"Command {command!r} not found"
    encoding = locale.getpreferredencoding()
    texts = [text.decode(encoding, "replace").strip() for text in (done.stdout, done.stderr)]
    return done.returncode, texts[0], texts[1]


def run_and_read_all(run_lambda: Run, command: Any) -> str | None:
    """A command's output, or None where it fails."""
    status, output, _ = run_lambda(command)
    return output if status == 0 else None


def run_and_parse_first_match(run_lambda: Run, command: Any, regex: str) -> str | None:
    """The first group of a regular expression in a command's output, or None."""
    match = re.search(regex, run_and_read_all(run_lambda, command) or "")
    return match[1] if match else None


def run_and_return_first_line(run_lambda: Run, command: Any) -> str | None:
    """The first line of a command's output, or None."""
    output = run_and_read_all(run_lambda, command)
    return output.split("\n")[0] if output is not None else None


def get_gcc_version(run_lambda: Run) -> str | None:
    """Returns the version of `gcc`."""
    return run_and_parse_first_match(run_lambda, ["gcc", "--version"], r"gcc (.*)")


def get_clang_version(run_lambda: Run) -> str | None:
    """Returns the version of `clang`."""
    return run_and_parse_first_match(run_lambda, ["clang", "--version"], r"clang version (.*)")


def get_cmake_version(run_lambda: Run) -> str | None:
    """Returns the version of `cmake`."""
    return run_and_parse_first_match(run_lambda, ["cmake", "--version"], r"cmake (.*)")


def get_nvidia_driver_version(run_lambda: Run) -> str | None:
    """Returns the version of NVIDIA's driver, or None."""
    return run_and_parse_first_match(run_lambda, ["nvidia-smi"], r"Driver Version: (.*?) ")


def get_gpu_info(run_lambda: Run) -> str | None:
    """Names of NVIDIA's GPUs, or None."""
    output = run_and_read_all(run_lambda, ["nvidia-smi", "-L"])
    return re.sub(r" \(UUID: .+?\)", "", output) if output else None


def get_running_cuda_version(run_lambda: Run) -> str | None:
    """Returns the version of the CUDA tools, or None."""
    return run_and_parse_first_match(run_lambda, ["nvcc", "--version"], r"release .+ V(.*)")


def get_platform() -> str:
    """`sys.platform`, without a version."""
    return "".join(letter for letter in sys.platform if not letter.isdigit())


def get_os(run_lambda: Run) -> str:
    """Name and machine of the operating system."""
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = platform.system()
    return f"{name} ({platform.machine()})"


def get_libc_version() -> str:
    """Returns the version of the C library."""
    return "-".join(platform.libc_ver()) if get_platform() == "linux" else "N/A"


def get_cpu_info(run_lambda: Run) -> str:
    """Returns the output of `lscpu`, or the processor's name."""
    return run_and_read_all(run_lambda, ["lscpu"]) or platform.processor()


def get_pip_packages(run_lambda: Run, patterns: Any = None) -> tuple[str, str]:
    """Installed packages of interest, a line each."""
    prefixes = PIP_PATTERNS if patterns is None else patterns
    packages = {
        f"{each.metadata['Name']}=={each.version}"
        for each in metadata.distributions()
        if any(pattern in (each.metadata["Name"] or "").lower() for pattern in prefixes)
    }
    return "pip3", "\n".join(sorted(packages))


def get_conda_packages(run_lambda: Run, patterns: Any = None) -> str | None:
    """Packages of conda, or None."""
    return run_and_read_all(run_lambda, [os.environ.get("CONDA_EXE", "conda"), "list"])


def get_env_info() -> SystemEnv:
    """Everything."""
    pip_version, packages = get_pip_packages(run)
    return SystemEnv(
        torch_version=str(torch.__version__),
        is_debug_build="False",
        cuda_compiled_version="None",
        gcc_version=get_gcc_version(run),
        clang_version=get_clang_version(run),
        cmake_version=get_cmake_version(run),
        os=get_os(run),
        libc_version=get_libc_version(),
        python_version=f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)",
        python_platform=platform.platform(),
        is_cuda_available=str(torch.cuda.is_available()),
        cuda_runtime_version=get_running_cuda_version(run),
        nvidia_driver_version=get_nvidia_driver_version(run),
        nvidia_gpu_models=get_gpu_info(run),
        cudnn_version=None,
        is_xpu_available=str(torch.xpu.is_available()),
        pip_version=pip_version,
        pip_packages=packages,
        conda_packages=get_conda_packages(run),
        cpu_info=get_cpu_info(run),
    )


_TITLES = {
    "torch_version": "PyTorch version", "is_debug_build": "Is debug build",
    "cuda_compiled_version": "CUDA used to build PyTorch", "os": "\nOS",
    "gcc_version": "GCC version", "clang_version": "Clang version",
    "cmake_version": "CMake version", "libc_version": "Libc version",
    "python_version": "\nPython version", "python_platform": "Python platform",
    "is_cuda_available": "Is CUDA available", "cuda_runtime_version": "CUDA runtime version",
    "nvidia_gpu_models": "GPU models and configuration",
    "nvidia_driver_version": "Nvidia driver version", "cudnn_version": "cuDNN version",
    "is_xpu_available": "Is XPU available", "cpu_info": "\nCPU",
    "pip_packages": "\nVersions of relevant libraries", "conda_packages": "Conda packages",
}  # fmt: skip


def pretty_str(envinfo: SystemEnv) -> str:
    """As text, a line (or a block) each."""
    lines = []
    for field, title in _TITLES.items():
        value = getattr(envinfo, field)
        text = "Could not collect" if value is None else str(value)
        if field in ("cpu_info", "pip_packages"):
            text = "\n" + text
        lines.append(f"{title}: {text}".replace(": \n", ":\n"))
    return "\n".join(lines) + "\n"


def get_pretty_env_info() -> str:
    """Everything, as text."""
    return pretty_str(get_env_info())


def main() -> None:
    """`python -m torch.utils.collect_env`."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
