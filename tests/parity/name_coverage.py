"""Which of PyTorch's public functions exist in Flambeau, by name: a part of docs/coverage.md.

`python -m tests.parity.name_coverage`, in the parity environment, computes that part alone anew.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.parity import page_sections

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
SPACES = (
    "", "Tensor", "nn.functional", "linalg", "fft", "special", "signal.windows", "masked", "func",
    "nn.init", "autograd.functional", "autograd.forward_ad", "sparse", "nested", "random",
    "overrides", "library",
)  # fmt: skip
# Why a name is missing, by the first pattern that fits the whole of it.
REASONS = {
    "belongs to one device or vendor's library": (
        r"(cudnn|miopen|mkldnn|fbgemm|profiler_allow)_\w+|is_vulkan_available|to_mkldnn|ipu|mtia|xpu"
        r"|record_stream|batch_norm_(stats|elemt|gather_\w+|backward_(elemt|reduce))|spsolve"
        r"|(\w+_)?autocast_(gpu|ipu|xla)_\w+|is_autocast_(ipu|xla)_enabled|init_num_threads"
        r"|to_sparse_semi_structured|get_device_module"
    ),
    "quantization": (
        r"(fake_)?quantize\w*|dequantize|int_repr|q_\w+|qscheme|empty_quantized"
        r"|choose_qparams_optimized|fused_moving_avg_obs_fake_quant"
    ),
    "automatic mixed precision": r"\w*autocast\w*",
    "TorchScript": (
        r"import_ir_module\w*|parse_\w+|merge_type_\w+|unify_type_list|fork|wait|boolean_dispatch"
    ),
    "control flow and symbols of export": r"cond|while_loop|sym_\w+",
    "helper of PyTorch's own modules": (
        r"classproperty|get_file_path|prepare_\w+|compiled_with_\w+|assert_int_or_pair|\w+_generator"
        r"|(has|handle)_torch_function\w*|get_default_nowrap_functions|redispatch_function"
    ),
}


def holder(library: Any, space: str) -> Any:
    """The module or class of a dotted name."""
    for part in filter(None, space.split(".")):
        library = getattr(library, part)
    return library


def functions(library: Any, space: str) -> list[str]:
    """Names of a namespace's public functions; of tensors also of their attributes."""
    place = holder(library, space)
    found = []
    for name in dir(place):
        value = getattr(place, name, None) if not name.startswith("_") else None
        origin = getattr(value, "__module__", None) or "torch"
        if space == "Tensor" and not name.startswith("_"):
            found.append(name)
        elif inspect.isroutine(value) and origin.split(".")[0] == "torch":
            found.append(name)
    return found


def reason(name: str) -> str:
    """Why a name is missing."""
    fitting = (why for why, names in REASONS.items() if re.fullmatch(names, name))
    return next(fitting, "not built yet")


def section() -> list[str]:
    """The page's lines about names."""
    import torch

    import flambeau

    table = ["| namespace | exist | of | % |", "| --- | --: | --: | --: |"]
    missing: dict[str, list[str]] = defaultdict(list)
    for space in SPACES:
        names, ours = functions(torch, space), holder(flambeau, space)
        there = [name for name in names if hasattr(ours, name)]
        shown = f"torch.{space}" if space else "torch"
        share = f"{100 * len(there) / len(names):.1f}"
        table.append(f"| {shown} | {len(there)} | {len(names)} | {share} |")
        for name in sorted(set(names) - set(there)):
            missing[reason(name)].append(f"`{shown}.{name}`".replace("`torch.Tensor", "`Tensor"))
    lists = [f"- {why}: {', '.join(missing[why])}" for why in sorted(missing)]
    return ["## Public functions by name\n", *table, "", "Missing, by reason:\n", *lists]


if __name__ == "__main__":
    PAGE.write_text(page_sections.replaced(PAGE.read_text(), section()))
