"""`torch._inductor.config`: PyTorch's settings of its code generation, with its defaults.

`max_autotune`, `max_autotune_gemm`, `combo_kernels` and `freezing` are read here: functions
compiled while one of the first three is set measure their kernels at the first call, and those
compiled while `freezing` is set take weights as constants under `no_grad`, and modules lose those
that programs own while `freezing_discard_parameters` is set, too. Passes of the user are called.
The rest is stored.
"""

import os as _os

from flambeau.runtime import config_modules as _config_modules
from flambeau.runtime import settings as _settings


def decide_compile_threads() -> int:
    """How many C compilers run at once."""
    return _settings.get("COMPILE_JOBS") or _os.cpu_count() or 1


_config_modules.install(
    __name__,
    **{"cutlass.cutlass_dir": "", "cuda.cutlass_dir": "", "xpu.cutlass_dir": ""},
    compile_threads=decide_compile_threads(),
)
