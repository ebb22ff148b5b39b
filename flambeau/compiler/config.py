"""`torch.compiler.config`: PyTorch's public settings of `torch.compile`, with its defaults."""

from flambeau.runtime import config_modules as _config_modules

_config_modules.install(__name__)
