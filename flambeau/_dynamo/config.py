"""`torch._dynamo.config`: PyTorch's settings of `torch.compile`, with its defaults.

`disable` is read here: functions compiled while it is set run eagerly.
"""

import os as _os
import site as _site
import tempfile as _tempfile

from flambeau.runtime import config_modules as _config_modules


def default_debug_dir_root() -> str:
    """The directory of reports: below the working directory, or the one of temporary files."""
    where = _os.getcwd() if _os.access(_os.getcwd(), _os.W_OK) else _tempfile.gettempdir()
    return _os.path.join(where, "torch_compile_debug")


_config_modules.install(
    __name__,
    base_dir=(_site.getsitepackages() or [""])[0],
    debug_dir_root=default_debug_dir_root(),
)
