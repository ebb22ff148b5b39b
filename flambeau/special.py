"""`torch.special`: special functions, under the names of `scipy.special`.

Operators whose home is "special" are published here, with PyTorch's aliases of those in `torch`.
"""

from __future__ import annotations

from flambeau.core.install import namespace as _namespace

_ALIASES = {
    "expit": "sigmoid", "gammaln": "lgamma", "psi": "digamma", "softmax": "softmax",
    "log_softmax": "log_softmax", "exp2": "exp2", "expm1": "expm1", "log1p": "log1p",
    "gammainc": "igamma", "gammaincc": "igammac",
}  # fmt: skip
globals().update({_name: _namespace("torch")[_target] for _name, _target in _ALIASES.items()})
globals().update(_namespace("special"))
__all__ = sorted({*_ALIASES, *_namespace("special")})
