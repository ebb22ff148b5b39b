"""PyTorch's names of public functions: what generated code says for them.

An operator that PyTorch has under several names is one object here; it is called by the name that
programs use most: the one of `nn.functional` if PyTorch has that one in Python, else the one of
`torch`.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import flambeau as torch
from flambeau.fx import _python_functions
from flambeau.ir.lock import late

_OWN, _UPSTREAM = "flambeau", "torch"

# Functions of nn.functional that PyTorch has in its native module, by their name there.
_NATIVE_LAYERS = {
    **{name: name for name in (
        "avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "one_hot",
        "scaled_dot_product_attention", "softplus", "softshrink",
    )},
    "logsigmoid": "log_sigmoid",
}  # fmt: skip

# Functions of torch that write their first argument: all others are methods only.
_IN_PLACE = frozenset(
    """abs_ acos_ acosh_ addmv_ alpha_dropout_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_
    as_strided_ asin_ asinh_ atan_ atanh_ ceil_ celu_ clamp_ clamp_max_ clamp_min_ clip_
    conj_physical_ cos_ cosh_ deg2rad_ detach_ dropout_ embedding_renorm_ erf_ erfc_ exp2_ exp_
    expm1_ feature_alpha_dropout_ feature_dropout_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_
    ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_
    resize_as_ resize_as_sparse_ round_ rrelu_ rsqrt_ selu_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_
    tan_ tanh_ threshold_ trunc_ xlogy_ zero_""".split()
)

_RANDOM = (
    "bernoulli", "binomial", "multinomial", "normal", "poisson", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "rrelu_", "alpha_dropout_",
)  # fmt: skip

_IN_PYTHON = {
    "broadcast_shapes": "torch.functional.broadcast_shapes",
    "einsum": "torch.functional.einsum",
}

# Home and prefix of PyTorch's native functions of a namespace.
_NATIVE_HOMES = {"linalg": "_linalg", "fft": "_fft", "special": "_special"}


def upstream(module: str) -> str:
    """PyTorch's name of one of our modules; other names as they are.

    Args:
        module: the name of a module.
    """
    if module == _OWN or module.startswith(f"{_OWN}."):
        return _UPSTREAM + module.removeprefix(_OWN)
    return module


def is_upstream(module: str) -> bool:
    """Whether a module's name is one of PyTorch's, or ours."""
    return module.split(".", 1)[0] in (_OWN, _UPSTREAM)


def _names_in(space: str, names: dict[str, Any]) -> dict[str, Any]:
    """Functions of one namespace by PyTorch's full name."""
    forms = _python_functions.forms()
    renamed = {}
    for name, value in names.items():
        candidates = [f"torch.functional.{name}", f"torch._lowrank.{name}", f"torch._lobpcg.{name}"]
        if space == "torch":
            homes = [full for full in candidates if full in forms]
            full = homes[0] if homes else _IN_PYTHON.get(name, f"torch.{name}")
        elif space == "torch.nn.functional" and name in _NATIVE_LAYERS:
            full = f"torch._C._nn.{_NATIVE_LAYERS[name]}"
        elif space == "torch.nn.functional" and name == "threshold":
            full = "torch.nn.functional._threshold"
        elif space == "torch.nn.functional" and name in _IN_PLACE:
            full = f"torch.{name}"
        else:
            full = f"{space}.{name}"
        renamed[full] = value
    return renamed


def _rank(full: str, value: Any) -> tuple[bool, ...]:
    """Ranks the names of a function; the smallest is preferred."""
    own = getattr(value, "__name__", "")
    return (
        full not in _python_functions.forms(),
        not full.startswith("torch._C._nn"),
        full.count(".") > 1,
        full.rsplit(".", 1)[-1] != own,
    )


@functools.cache
def _public() -> dict[int, tuple[str, Any]]:
    """Function's identity -> PyTorch's name and the function itself."""
    overrides = late("flambeau.overrides")
    table: dict[int, tuple[str, Any]] = {}
    for path, names in overrides._functions().items():
        space, _, home = path.rpartition(".")
        if space == "torch" and home in _NATIVE_HOMES:
            prefix = f"torch._C.{_NATIVE_HOMES[home]}.{home}_"
            renamed = {prefix + name: value for name, value in names.items()}
        else:
            renamed = _names_in(path, names)
        for full, value in renamed.items():
            if path == "torch" and full.endswith("_") and full[6:] not in _IN_PLACE:
                continue
            before = table.get(id(value))
            if before is None or _rank(full, value) < _rank(before[0], value):
                table[id(value)] = (full, value)
    return table


@functools.cache
def _method_names() -> dict[int, tuple[str, Any]]:
    overrides = late("flambeau.overrides")
    table: dict[int, tuple[str, Any]] = {}
    for name, value in overrides._methods().items():
        before = table.get(id(value))
        if before is None or name == getattr(value, "__name__", ""):
            table[id(value)] = (name, value)
    return table


def public_name(function: Any) -> str | None:
    """PyTorch's full name of one of our public functions.

    Args:
        function: any object.

    Returns:
        str: such as "torch.relu"; None if it is none of them.

    Example:
        >>> from flambeau.fx import _function_names
        >>> _function_names.public_name(torch.nn.functional.gelu)
        'torch._C._nn.gelu'
    """
    entry = _public().get(id(function))
    if entry is not None and entry[1] is function:
        return entry[0]
    method = _method_names().get(id(function))
    if method is not None and method[1] is function and isinstance(function, _operator_type()):
        return f"torch.Tensor.{method[0]}"
    if isinstance(function, types.FunctionType) and getattr(function, "__module__", None):
        home, name = upstream(function.__module__), function.__name__
        if home == "torch.linalg.eigenpairs" and name == "lobpcg":
            return "torch._lobpcg.lobpcg"
        if home.startswith("torch.runtime.") and getattr(torch, name, None) is function:
            return f"torch.{name}"
    return None


def _operator_type() -> type:
    return type(torch.relu)


def method_name(function: Any) -> str | None:
    """The name of a method of `Tensor`; None of other functions.

    Args:
        function: any object.
    """
    entry = _method_names().get(id(function))
    return entry[0] if entry is not None and entry[1] is function else None


def is_only_method(function: Any) -> bool:
    """Whether a function is a method of `Tensor` and no function of a namespace."""
    entry = _public().get(id(function))
    return (entry is None or entry[1] is not function) and method_name(function) is not None


@functools.cache
def _random_functions() -> frozenset[int]:
    return frozenset(id(getattr(torch, name)) for name in _RANDOM if hasattr(torch, name))


def draws_random_numbers(function: Any) -> bool:
    """Whether two equal calls of a public function differ.

    Args:
        function: the target of a node.
    """
    return id(function) in _random_functions()


def import_of(name: str) -> str:
    """The statement that imports our package, or a module of it, under PyTorch's name.

    Args:
        name: such as "torch" or "torch.fx._pytree as fx_pytree".
    """
    if sys.modules.get(_UPSTREAM) is torch:
        return f"import {name}"
    if name == _UPSTREAM:
        return f"import {_OWN} as {_UPSTREAM}"
    return f"import {_OWN}{name.removeprefix(_UPSTREAM)}"
