"""`torch.special`: special functions, under the names of `scipy.special`.

Operators whose home is "special" are published here, with PyTorch's aliases of those in `torch`.
Functions that are not here yet exist and raise `NotImplementedError`.
"""

from __future__ import annotations

from flambeau.core.install import absent as _absent
from flambeau.core.install import namespace as _namespace

_ALIASES = {
    "expit": "sigmoid", "gammaln": "lgamma", "psi": "digamma", "softmax": "softmax",
    "log_softmax": "log_softmax", "exp2": "exp2", "expm1": "expm1", "log1p": "log1p",
}  # fmt: skip
_MISSING = "gammainc gammaincc"
globals().update(_absent("special", _MISSING, "convert with .numpy() and use scipy.special"))
for _name, _target in _ALIASES.items():
    if _target in _namespace("torch"):
        globals()[_name] = _namespace("torch")[_target]
globals().update(_namespace("special"))
__all__ = sorted(
    {*_MISSING.split(), *(n for n in (*_ALIASES, *_namespace("special")) if n in globals())}
)
