"""Flambeau: PyTorch's public API over one small compiler. `import flambeau as torch`."""

import os as _os

if _os.environ.get("FLAMBEAU_NATIVE_DIR"):  # another build of the core, e.g. with sanitizers
    __path__.insert(0, _os.environ["FLAMBEAU_NATIVE_DIR"])

from flambeau import _core
from flambeau._core import Size, Tensor, device, dtype
from flambeau.core import dtypes as _dtypes
from flambeau.core.dtypes import get_default_dtype, set_default_dtype
from flambeau.core.install import install as _install
from flambeau.core.install import namespace as _namespace
from flambeau import ops  # noqa: F401  isort: skip

for _ir_name, _public in _dtypes.PUBLIC_NAMES.items():
    globals()[_public] = _dtypes.DTYPE_OBJECTS[_ir_name]
half, float, double, bfloat16 = float16, float32, float64, bfloat16  # noqa: F821, A001
short, int, long = int16, int32, int64  # noqa: F821, A001
cfloat, cdouble = complex64, complex128  # noqa: F821

_install()
globals().update(_namespace("torch"))
