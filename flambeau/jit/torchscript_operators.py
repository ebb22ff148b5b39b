"""The operators that code of PyTorch's TorchScript archives may call: a closed list.

`torch.add` is the operator of tensors where an argument is a tensor, and Python's arithmetic where
none is. Numbers stand for dtypes, layouts, memory formats and reductions.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from flambeau import _core
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.jit.verifier import _REFUSED_METHODS
from flambeau.language.dtypes import DTYPE_OBJECTS

_NUMBERS = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 8: "c32",
    9: "c64", 10: "c128", 11: "bool", 15: "bf16",
}  # fmt: skip
_DTYPES = {number: DTYPE_OBJECTS[name] for number, name in _NUMBERS.items()}
_CODES = {dtype: number for number, dtype in _DTYPES.items()}
_FORMATS = (
    _core.contiguous_format, _core.preserve_format, _core.channels_last, _core.channels_last_3d,
)  # fmt: skip
_REDUCTIONS = ("none", "mean", "sum")
_REFUSED = _REFUSED_METHODS | {
    "from_file", "load", "save", "set_", "resize_", "resize_as_", "compile", "vmap", "frombuffer",
    "_make_wrapper_subclass", "as_strided_scatter",
}  # fmt: skip


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, _core.Tensor)


def to_int(value: Any) -> int:
    """A whole number."""
    return int(value)


def to_float(value: Any) -> float:
    """A number."""
    return float(value)


def to_bool(value: Any) -> bool:
    """A truth value."""
    return bool(value)


def _dtype(value: Any) -> Any:
    return _DTYPES[value] if type(value) is int else value


def item(values: Any, index: Any) -> Any:
    """An element of a list, a tuple, a dict or a text."""
    if not isinstance(values, (list, tuple, dict, str)):
        raise failure(RuntimeError, "jit", f"{type(values).__name__} has no elements", "a list")
    return values[index]


def set_item(values: Any, index: Any, value: Any) -> Any:
    """Sets an element of a list or a dict."""
    if not isinstance(values, (list, dict)):
        raise RuntimeError(f"[jit] elements of {type(values).__name__} cannot be set\nhint: a list")
    values[index] = value
    return values


# ------------------------------------------------------------------------------ tensors
@functools.cache
def _of_tensors(name: str) -> Callable[..., Any] | None:
    if name in _REFUSED or name.startswith("__"):
        return None
    if name in _RECURRENT:
        return functools.partial(_run, name, getattr(late("flambeau"), name))
    try:
        packet = getattr(late("flambeau.ops.aten"), name)
    except AttributeError:
        return None
    return functools.partial(_run, name, packet)


_RECURRENT = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
                       "_assert_async".split())  # fmt: skip
_LISTS = frozenset("split chunk unbind split_with_sizes tensor_split unsafe_chunk meshgrid "
                   "unsafe_split broadcast_tensors hsplit vsplit dsplit".split())  # fmt: skip
_DTYPE_PLACES = {"softmax": 2, "log_softmax": 2, "cumsum": 2, "cumprod": 2, "full": 2,
                 "_softmax": 9}  # fmt: skip
_LOSSES = {
    "mse_loss": 2, "l1_loss": 2, "smooth_l1_loss": 2, "huber_loss": 2, "nll_loss": 3,
    "nll_loss_nd": 3, "cross_entropy_loss": 3, "binary_cross_entropy": 3, "kl_div": 2,
    "binary_cross_entropy_with_logits": 4,
}  # fmt: skip
_NOT_NEEDED = ("layout", "pin_memory", "non_blocking", "implicit", "path")


def _run(name: str, packet: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator of tensors with its numbers translated."""
    for key in _NOT_NEEDED:
        kwargs.pop(key, None)
    if "dtype" in kwargs:
        kwargs["dtype"] = _dtype(kwargs["dtype"])
    if type(kwargs.get("memory_format")) is int:
        kwargs["memory_format"] = _FORMATS[kwargs["memory_format"]]
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    place = _DTYPE_PLACES.get(name, len(args))
    if place < len(args):
        args = (*args[:place], _dtype(args[place]), *args[place + 1 :])
    result = packet(*args, **kwargs)
    return list(result) if name in _LISTS else result


def _loss(name: str, public: str, place: int) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        values = list(args)
        names = _LOSS_ARGUMENTS[public]
        if place < len(values):
            values[place] = _REDUCTIONS[values[place]]
        named = dict(zip(names, values[2:], strict=False))
        return getattr(late("flambeau.nn.functional"), public)(*values[:2], **named)

    return function


_LOSS_ARGUMENTS = {
    "mse_loss": ("reduction",), "l1_loss": ("reduction",), "smooth_l1_loss": ("reduction", "beta"),
    "huber_loss": ("reduction", "delta"), "nll_loss": ("weight", "reduction", "ignore_index"),
    "cross_entropy": ("weight", "reduction", "ignore_index", "label_smoothing"),
    "binary_cross_entropy": ("weight", "reduction"), "kl_div": ("reduction", "log_target"),
    "binary_cross_entropy_with_logits": ("weight", "pos_weight", "reduction"),
}  # fmt: skip


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.to`: a dtype, a device, or another tensor."""
    target = next((a for a in args if is_tensor(a)), None)
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    if target is not None:
        return x.to(target)
    for value in args[:2]:
        if isinstance(value, (str, _core.device)):
            device = value
        elif type(value) is int:
            dtype = value
    if device is not None:
        x = x.to(device)
    return x if dtype is None else x.to(_dtype(dtype))


def _slice(x: Any, *args: Any) -> Any:
    """`torch.slice` of a tensor, a list or a text."""
    if not is_tensor(x):
        start, end, step = (*args, None, None, None)[:3]
        return x[slice(start, end, step)]
    dim, start, end, step = (*args, *(0, None, None, 1)[len(args) :])
    key: list[Any] = [slice(None)] * x.dim()
    key[dim] = slice(start, end, step)
    return x[tuple(key)]


def _size(x: Any, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else int(x.shape[dim])


def _index(x: Any, indices: Any) -> Any:
    return x[tuple(slice(None) if index is None else index for index in indices)]


def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if any(index is None for index in indices):
        x[tuple(slice(None) if index is None else index for index in indices)] = values
        return x
    return x.index_put_(tuple(indices), values, accumulate)


def _convolution(x: Any, weight: Any, bias: Any, *settings: Any) -> Any:
    return late("flambeau").convolution(x, weight, bias, *settings[:6])


def _upsample(mode: str) -> Callable[..., Any]:
    def function(x: Any, size: Any, *options: Any) -> Any:
        aligned = options[0] if mode not in ("nearest", "nearest-exact") else None
        scales = options[-1] if options and isinstance(options[-1], list) else None
        interpolate = late("flambeau.nn.functional").interpolate
        return interpolate(x, size, None if size else scales, mode, aligned)

    return function


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    positive = scale * x.clamp(min=0)
    if scale == input_scale == 1.0:
        return late("flambeau.nn.functional").elu(x, alpha)
    return positive + scale * alpha * (late("flambeau").expm1((x * input_scale).clamp(max=0)))


def _number_to_tensor(value: Any) -> Any:
    return late("flambeau").tensor(value)


def _raise(message: str, kind: str | None = None) -> NoReturn:
    """Raises the exception that code names."""
    name = (kind or "builtins.RuntimeError").rpartition(".")[2]
    if kind is None and message.startswith("AssertionError"):
        name = "AssertionError"
    kind_of_error = getattr(builtins, name, RuntimeError)
    fits = isinstance(kind_of_error, type) and issubclass(kind_of_error, Exception)
    raise (kind_of_error if fits else RuntimeError)(message)


def _format(text: str, *values: Any) -> str:
    """A text with values in its braces, in their order."""
    parts = text.split("{}")
    filled = [part + str(value) for part, value in zip(parts, values, strict=False)]
    return "".join(filled) + "{}".join(parts[len(filled) :])


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, stacklevel=2)


# ------------------------------------------------------------------------------ numbers and lists
def _arithmetic(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Python's function of numbers, or the operator of tensors."""

    def both(*args: Any, **kwargs: Any) -> Any:
        if kwargs or any(map(is_tensor, args)) or len(args) > 2:
            of_tensors = _of_tensors(name)
            if of_tensors is None:
                return function(*args)
            return of_tensors(*args, **kwargs)
        return function(*args)

    return both


def _extreme(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def both(*args: Any, **kwargs: Any) -> Any:
        if any(map(is_tensor, args)):
            return _of_tensors(name)(*args, **kwargs)  # type: ignore[misc]
        return function(*args)

    return both


def _in_list(method: str) -> Callable[..., Any]:
    def call(values: Any, *args: Any) -> Any:
        if not isinstance(values, (list, dict)):
            raise failure(RuntimeError, "jit", f"{method} of {type(values).__name__}", "a list")
        result = getattr(values, method)(*args)
        return list(result) if method in ("keys", "values", "items") else result

    return call


def _of_text(method: str) -> Callable[..., Any]:
    def call(text: Any, *args: Any) -> Any:
        if not isinstance(text, str):
            raise failure(RuntimeError, "jit", f"{method} of {type(text).__name__}", "a text")
        return getattr(text, method)(*args)

    return call


def _len(values: Any) -> int:
    return int(values.shape[0]) if is_tensor(values) else len(values)


def _round_down(x: float) -> int:
    return math.floor(x)


def _copy(value: Any, *args: Any) -> Any:
    return value.copy() if isinstance(value, (list, dict)) else value


def _contains(values: Any, value: Any) -> bool:
    return value in values


def _list_of(values: Any) -> list[Any]:
    return list(values)


_ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "remainder": operator.mod, "pow": operator.pow,
    "neg": operator.neg, "abs": abs, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "floor": _round_down,
    "ceil": math.ceil, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "sin": math.sin,
    "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "round": round, "log2": math.log2,
    "log10": math.log10, "log1p": math.log1p, "atan": math.atan, "fmod": math.fmod,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "isnan": math.isnan,
}  # fmt: skip


def _autocast(*device: str) -> bool:
    return bool(late("flambeau").is_autocast_enabled(*device))


def _encoder_layer(src: Any, *values: Any) -> Any:
    """PyTorch's fused layer of a transformer's encoder, in inference.

    Args:
        src: (batch, length, size).
        values: size, heads, weights of the projections in and out, whether GELU, whether norms come
            first, epsilon, weights of both norms and both linear layers, mask and its kind.
    """
    size, heads, gelu, first, eps = values[0], values[1], values[6], values[7], values[8]
    mask = values[17] if len(values) > 17 else None
    if mask is not None:
        raise NotImplementedError(
            "[jit.load] the fused encoder layer with a mask is not in Flambeau\n"
            "hint: call it outside of torch.no_grad(): the layer's plain code runs"
        )
    F = late("flambeau.nn.functional")  # noqa: N806 - as everywhere

    def attention(x: Any) -> Any:
        projected = F.linear(x, values[2], values[3]).unflatten(-1, (3, heads, size // heads))
        q, k, v = projected.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        return F.linear(mixed, values[4], values[5])

    def feed_forward(x: Any) -> Any:
        inner = F.linear(x, values[13], values[14])
        return F.linear(F.gelu(inner) if gelu else F.relu(inner), values[15], values[16])

    def norm(x: Any, at: int) -> Any:
        return F.layer_norm(x, [size], values[at], values[at + 1], eps)

    if first:
        src = src + attention(norm(src, 9))
        return src + feed_forward(norm(src, 11))
    src = norm(src + attention(src), 9)
    return norm(src + feed_forward(src), 11)


_PLAIN: dict[str, Callable[..., Any]] = {
    "any": _extreme(any, "any"), "all": _extreme(all, "all"), "sum": _extreme(sum, "sum"),
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "__and__": _arithmetic(operator.and_, "bitwise_and"),
    "__or__": _arithmetic(operator.or_, "bitwise_or"),
    "__xor__": _arithmetic(operator.xor, "bitwise_xor"),
    "__lshift__": _arithmetic(operator.lshift, "bitwise_left_shift"),
    "__rshift__": _arithmetic(operator.rshift, "bitwise_right_shift"),
    "__not__": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not,
    "__contains__": _contains, "__getitem__": item, "_set_item": set_item, "len": _len,
    "list": _list_of, "dict": dict, "copy": _copy, "format": _format, "warn": _warn,
    "size": _size, "dim": lambda x: x.dim(), "numel": lambda x: x.numel(),
    "item": lambda x: x.item(), "is_floating_point": lambda x: x.is_floating_point(),
    "is_complex": lambda x: x.is_complex(), "stride": lambda x, *d: x.stride(*d),
    "to": _to, "slice": _slice, "index": _index, "index_put_": _index_put, "type_as": _to,
    "_convolution": _convolution, "elu": _elu, "max": _extreme(max, "max"),
    "min": _extreme(min, "min"), "upsample_nearest1d": _upsample("nearest"),
    "upsample_nearest2d": _upsample("nearest"), "upsample_nearest3d": _upsample("nearest"),
    "upsample_linear1d": _upsample("linear"), "upsample_bilinear2d": _upsample("bilinear"),
    "upsample_bicubic2d": _upsample("bicubic"), "upsample_trilinear3d": _upsample("trilinear"),
    "device": _core.device, "is_grad_enabled": _core.is_grad_enabled,
    "is_scripting": lambda: True,
    "requires_grad": lambda x: x.requires_grad, "is_autocast_enabled": _autocast,
    "is_autocast_cpu_enabled": lambda: _autocast("cpu"),
    **{name: _in_list(name) for name in ("append", "extend", "insert", "clear", "reverse", "keys",
                                         "values", "items", "get", "pop", "update")},
    **{name: _of_text(name) for name in ("lower", "upper", "strip", "startswith", "endswith",
                                         "join", "find", "rstrip", "lstrip", "title")},
    **{name: _arithmetic(function, name) for name, function in _ARITHMETIC.items()},
    **{name: _loss(name, name.replace("_nd", "").replace("cross_entropy_loss", "cross_entropy"),
                   place) for name, place in _LOSSES.items()},
}  # fmt: skip
_PRIM: dict[str, Callable[..., Any]] = {
    "RaiseException": _raise, "NumToTensor": _number_to_tensor, "dtype": lambda x: _CODES[x.dtype],
    "device": lambda x: x.device, "layout": lambda x: 0, "shape": _size, "abs": _PLAIN["abs"],
    "min": _PLAIN["min"], "max": _PLAIN["max"], "is_cuda": lambda x: False,
    "is_cpu": lambda x: x.device.type == "cpu", "is_meta": lambda x: x.is_meta,
    "is_nested": lambda x: x.is_nested, "is_sparse": lambda x: x.is_sparse,
    "is_quantized": lambda x: False, "is_mkldnn": lambda x: False, "is_mps": lambda x: False,
    "is_xla": lambda x: False, "is_xpu": lambda x: False, "is_vulkan": lambda x: False,
    "requires_grad": lambda x: x.requires_grad, "unchecked_unwrap_optional": lambda x: x,
    "data": lambda x: x.detach(), "itemsize": lambda x: x.element_size(),
    "type": lambda x: _core.device(x).type, "index": lambda x: _core.device(x).index,
    "ndim": lambda x: x.dim(),
    "unchecked_cast": lambda x: x, "T": lambda x: x.T, "mT": lambda x: x.mT,
    "rangelist": lambda n: list(range(n)),
}  # fmt: skip


def find(path: str) -> Callable[..., Any] | None:
    """The operator of a path in an archive's code, `torch.add` or `ops.prim.dtype`; or None.

    Example:
        >>> from flambeau.jit.torchscript_operators import find
        >>> find("torch.add")(2, 3), find("torch.load")
        (5, None)
    """
    space, _, name = path.rpartition(".")
    if space == "ops.prim":
        return _PRIM.get(name)
    if space in ("torch", "ops.aten"):
        return _PLAIN.get(name) or _of_tensors(name)
    if space.startswith("ops."):
        packet = late("flambeau.library.operators").REGISTRY.get(f"{space[4:]}::{name}")
        return packet if packet is not None and packet.variants else None
    return None
