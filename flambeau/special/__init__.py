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
_MISSING = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u "
    "chebyshev_polynomial_v chebyshev_polynomial_w erfcx gammainc gammaincc hermite_polynomial_h "
    "hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l legendre_polynomial_p "
    "modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w "
    "spherical_bessel_j0 zeta"
)
globals().update(_absent("special", _MISSING, "convert with .numpy() and use scipy.special"))
for _name, _target in _ALIASES.items():
    if _target in _namespace("torch"):
        globals()[_name] = _namespace("torch")[_target]
globals().update(_namespace("special"))
__all__ = sorted(
    {*_MISSING.split(), *(n for n in (*_ALIASES, *_namespace("special")) if n in globals())}
)
