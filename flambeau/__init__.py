"""Flambeau: PyTorch's public API over one small compiler. `import flambeau as torch`."""

import os as _os

if _os.environ.get("FLAMBEAU_NATIVE_DIR"):  # another build of the core, e.g. with sanitizers
    __path__.insert(0, _os.environ["FLAMBEAU_NATIVE_DIR"])

from flambeau import _core
from flambeau import ops as _ops  # noqa: F401 - defines every operator
from flambeau._core import (
    Generator,
    Size,
    Tensor,
    channels_last,
    channels_last_3d,
    contiguous_format,
    default_generator,
    device,
    dtype,
    finfo,
    get_default_device,
    get_num_threads,
    iinfo,
    layout,
    memory_format,
    preserve_format,
    set_default_device,
    set_num_threads,
    strided,
)
from flambeau.core import dtypes as _dtypes
from flambeau.core import tensor as _tensor
from flambeau.core.dtypes import get_default_dtype, set_default_dtype
from flambeau.core.install import install as _install
from flambeau.core.install import namespace as _namespace

for _ir_name, _public in _dtypes.PUBLIC_NAMES.items():
    globals()[_public] = _dtypes.DTYPE_OBJECTS[_ir_name]
half, float, double = _core.float16, _core.float32, _core.float64  # noqa: A001
short, int, long = _core.int16, _core.int32, _core.int64  # noqa: A001
cfloat, cdouble = _core.complex64, _core.complex128

_install()
_tensor.install()
globals().update(_namespace("torch"))

from flambeau import autograd, nn, optim  # noqa: E402 - they use the names above
from flambeau import compiler as compiler  # noqa: E402
from flambeau.autograd import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from flambeau.capture import regions as _regions  # noqa: E402
from flambeau.capture.regions import compile  # noqa: A004, E402

_regions.install()
