"""Operators of PyTorch's inner library that are no public ones here: `torch.ops.aten._softmax`.

Each is computed by public operators. Its signature is PyTorch's, so that what calls it by name, a
dispatch mode or a program, meets the arguments that it expects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.core import install
from flambeau.decompositions import names
from flambeau.ir.lock import late
from flambeau.language.definition import REGISTRY
from flambeau.language.schema import REQUIRED, parse_schema

__all__ = ["TABLE", "Inner", "inner"]

Tensor = Any


class Inner:
    """An inner operator.

    Attributes:
        schema: its signature.
        run: computes it from the arguments in order.
        hosted: whether calls of the public operator of its name are calls of this one.
    """

    def __init__(self, text: str, run: Callable[..., Any]) -> None:
        self.schema = parse_schema(text)
        self.run = run
        self.__name__ = self.schema.name
        self.__doc__ = run.__doc__
        self.schemas = (text,)
        self.arguments = tuple(a.native() for a in self.schema.arguments)
        self.overloads = ((self.arguments, self.run, ()),)
        self.op = self
        self.tensors = [i for i, a in enumerate(self.arguments) if a.kind.startswith("Tensor")]
        self.mutates = any(a.mutated for a in self.arguments)
        self.random = False
        self.shared = self.hosted = False
        self.many = self.schema.returns_kind != "single"

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, list[Any], None]:
        """(0, the arguments in order, None): as of a native op.

        Raises:
            TypeError: they do not fit.
        """
        return 0, list(bound(self.schema, args, kwargs).values()), None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the operator; dispatch modes and types may handle the call first."""
        _, values, _ = self.bind(args, kwargs)
        call = late("flambeau.utils._python_dispatch")._call_inner
        if _core.is_autocast_enabled():  # inner operators are below it
            return _core.autocast_call(None, call, (self, values), {})
        return call(self, values)

    def results(self, values: Sequence[Any]) -> Any:
        """Results as the operator gives them, from one value each."""
        return tuple(values) if self.many else values[0]


def bound(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a call by name, in the order of the schema.

    Raises:
        TypeError: they do not fit.
    """
    arguments = schema.arguments
    positional = [a for a in arguments if not a.keyword_only]
    values = dict(zip([a.name for a in positional], args, strict=False)) | kwargs
    missing = [a.name for a in arguments if a.default is REQUIRED and a.name not in values]
    if missing or len(args) > len(positional) or len(values) > len(arguments):
        raise TypeError(
            f"[{schema.name}] the arguments do not fit the signature\n"
            f"hint: {', '.join(missing) or 'fewer arguments'}"
        )
    return {a.name: values.get(a.name, a.default) for a in arguments}


TABLE: dict[str, Inner] = {}


def inner(
    signature: str, shared: bool = False, hosted: bool = False
) -> Callable[[Callable[..., Any]], Inner]:
    """Defines an inner operator from its signature.

    Args:
        signature: in the grammar of `language/schema.py`.
        shared: whether a public operator of that name, with these arguments, is the same.
        hosted: see `Inner`.
    """

    def define(run: Callable[..., Any]) -> Inner:
        operator = Inner(signature, run)
        operator.shared, operator.hosted = shared, hosted
        TABLE[operator.__name__] = operator
        return operator

    return define


def public(name: str) -> Any:
    """A public operator by its name with namespace: "linalg.det"."""
    home, _, short = name.rpartition(".")
    return install.namespace(home or "torch")[short]


# ------------------------------------------------------------------------------ composed in Python
for _hosted in names.HOSTED:
    _homes = (_hosted, f"nn.functional.{_hosted}", f"ops.aten.{_hosted}")
    _definition = next((REGISTRY[name] for name in _homes if name in REGISTRY), None)
    if _definition is not None and _definition.options.host:
        _overload = _definition.overloads[0]
        inner(_overload.text)(_overload.body)


# ------------------------------------------------------------------------------ layouts, dtypes
@inner(
    "_to_copy(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, "
    "bool? pin_memory=None, bool non_blocking=False, memory_format? memory_format=None) -> Tensor"
)
def _to_copy(
    self: Tensor, dtype: Any, layout: Any, device: Any, pin_memory: Any, non_blocking: Any,
    memory_format: Any,
) -> Tensor:  # fmt: skip
    options = {} if memory_format is None else {"memory_format": memory_format}
    place = device or self.device
    return self.to(place, dtype or self.dtype, non_blocking, copy=True, **options)


@inner("_unsafe_view(Tensor self, SymInt[] size) -> Tensor")
def _unsafe_view(self: Tensor, size: Any) -> Tensor:
    return self.view(size)


@inner("clone(Tensor self, *, memory_format? memory_format=None) -> Tensor", shared=True)
def _clone(self: Tensor, memory_format: Any) -> Tensor:
    return self.clone() if memory_format is None else self.clone(memory_format=memory_format)


@inner("squeeze_(Tensor! self, int[]? dim=None) -> Tensor", hosted=True)
def _squeeze_(self: Tensor, dim: Any) -> Tensor:
    return _core.Tensor.squeeze_(self, *(() if dim is None else (dim,)))


@inner("unsqueeze_(Tensor! self, int dim) -> Tensor", hosted=True)
def _unsqueeze_(self: Tensor, dim: int) -> Tensor:
    return _core.Tensor.unsqueeze_(self, dim)


@inner("transpose_(Tensor! self, int dim0, int dim1) -> Tensor", hosted=True)
def _transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    return _core.Tensor.transpose_(self, dim0, dim1)


inner(
    "as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) "
    "-> Tensor",
    hosted=True,
)(REGISTRY["as_strided_copy"].overloads[0].body)

_CREATION = "dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=None"


@inner(f"empty(SymInt[] size, *, {_CREATION}, memory_format? memory_format=None) -> Tensor")
def _empty(size: Any, dtype: Any, layout: Any, device: Any, *options: Any) -> Tensor:
    return public("empty")(tuple(size), dtype=dtype, device=device)


@inner(f"empty_like(Tensor self, *, {_CREATION}, memory_format? memory_format=None) -> Tensor")
def _empty_like(self: Tensor, dtype: Any, layout: Any, device: Any, *options: Any) -> Tensor:
    return public("empty_like")(self, dtype=dtype, device=device)


@inner(f"new_empty(Tensor self, SymInt[] size, *, {_CREATION}) -> Tensor")
def _new_empty(self: Tensor, size: Any, dtype: Any, layout: Any, device: Any, pin: Any) -> Tensor:
    return _core.Tensor.new_empty(self, tuple(size), dtype=dtype, device=device)


@inner(
    "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
    shared=True,
)
def _index_put(self: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool) -> Tensor:
    places: list[Any] = []
    for index in indices:  # a mask selects the indices where it is true
        mask = index is not None and index.dtype in (_core.bool, _core.uint8)
        places += index.nonzero(as_tuple=True) if mask else [index]
    return public("index_put")(self, places, values, accumulate)


@inner("index(Tensor self, Tensor?[] indices) -> Tensor", shared=True)
def _index(self: Tensor, indices: Sequence[Any]) -> Tensor:
    return self[tuple([slice(None) if x is None else x for x in indices])]


@inner("unsafe_split(Tensor self, SymInt split_size, int dim=0) -> (Tensor...)", shared=True)
def _unsafe_split(self: Tensor, split_size: int, dim: int) -> list[Tensor]:
    return [part.clone() for part in self.split(split_size, dim)]  # each may be written


@inner("_local_scalar_dense(Tensor self) -> Tensor")
def _local_scalar_dense(self: Tensor) -> Any:
    return self.item()


@inner("nonzero(Tensor self) -> Tensor", shared=True)
def _nonzero(self: Tensor) -> Tensor:
    return self.nonzero()


@inner(
    "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, "
    "bool return_counts=False) -> (Tensor, Tensor, Tensor)"
)
def _unique2(self: Tensor, sorted: bool, inverse: bool, counts: bool) -> tuple[Tensor, ...]:  # noqa: A002
    results = public("unique")(self, sorted, inverse, counts)
    parts = iter(results if isinstance(results, tuple) else (results,))
    empty = _core.Tensor.new_zeros(self, (0,), dtype=_core.int64)
    return tuple([next(parts) if shown else empty for shown in (True, inverse, counts)])


@inner("lift_fresh(Tensor self) -> Tensor")
def _lift_fresh(self: Tensor) -> Tensor:
    return self


# ------------------------------------------------------------------------------ activations
_NOISE = "Tensor noise, Scalar lower=0.125, Scalar upper=0.3333333333333333"


@inner("lift_fresh_copy(Tensor self) -> Tensor")
def _lift_fresh_copy(self: Tensor) -> Tensor:
    return self.clone()


@inner(f"rrelu_with_noise(Tensor self, {_NOISE}) -> Tensor")
def _rrelu_with_noise(self: Tensor, noise: Tensor, lower: float, upper: float) -> Tensor:
    return public("rrelu")(self, lower, upper)


@inner(f"rrelu_with_noise_(Tensor! self, {_NOISE}) -> Tensor")
def _rrelu_with_noise_(self: Tensor, noise: Tensor, lower: float, upper: float) -> Tensor:
    return public("rrelu_")(self, lower, upper)


@inner("_softmax(Tensor self, int dim, bool half_to_float) -> Tensor")
def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return public("softmax")(self, dim, dtype=_core.float32 if half_to_float else None)


@inner("_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor")
def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return public("log_softmax")(self, dim, dtype=_core.float32 if half_to_float else None)


@inner("log_sigmoid_forward(Tensor self) -> (Tensor, Tensor)")
def _log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    return public("nn.functional.logsigmoid")(self), _new_empty(self, (0,))


@inner("_prelu_kernel(Tensor self, Tensor weight) -> Tensor")
def _prelu_kernel(self: Tensor, weight: Tensor) -> Tensor:
    return public("where")(self > 0, self, weight * self)


@inner(
    "_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, "
    "bool deterministic, bool cudnn_enabled, bool allow_tf32=True) -> Tensor"
)
def _convolution(*arguments: Any) -> Tensor:
    return public("convolution")(*arguments[:9])


# ------------------------------------------------------------------------------ losses
_REDUCTIONS = ("none", "mean", "sum")


def _nll(
    self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    loss = public("nn.functional.nll_loss")(
        self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction]
    )
    counted = (target != ignore_index).to(self.dtype)
    if weight is not None:
        counted = counted * weight[target.clamp(0, len(weight) - 1)]
    total = counted.sum() if reduction else self.new_zeros(())
    return loss, total


_NLL = "(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index)"
for _name in ("nll_loss_forward", "nll_loss2d_forward"):
    inner(f"{_name}{_NLL} -> (Tensor, Tensor)")(_nll)


def _loss(name: str, *extra: str) -> None:
    """A public loss whose reduction is a number."""
    options = "".join(f", {text}" for text in extra)

    def run(self: Tensor, target: Tensor, *values: Any) -> Tensor:
        keys = [text.split("=")[0].split()[-1] for text in ("int reduction=1", *extra)]
        named = dict(zip(keys, values, strict=True))
        named["reduction"] = _REDUCTIONS[named["reduction"]]
        return public(f"nn.functional.{name}")(self, target, **named)

    inner(f"{name}(Tensor self, Tensor target, int reduction=1{options}) -> Tensor")(run)


_loss("mse_loss")
_loss("smooth_l1_loss", "float beta=1.0")
_loss("huber_loss", "float delta=1.0")
_loss("soft_margin_loss")


@inner(
    "binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) "
    "-> Tensor"
)
def _binary_cross_entropy(self: Tensor, target: Tensor, weight: Any, reduction: int) -> Tensor:
    return public("nn.functional.binary_cross_entropy")(
        self, target, weight, reduction=_REDUCTIONS[reduction]
    )


@inner(
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, "
    "Tensor? pos_weight=None, int reduction=1) -> Tensor"
)
def _binary_cross_entropy_with_logits(
    self: Tensor, target: Tensor, weight: Any, pos_weight: Any, reduction: int
) -> Tensor:
    return public("nn.functional.binary_cross_entropy_with_logits")(
        self, target, weight, pos_weight=pos_weight, reduction=_REDUCTIONS[reduction]
    )


# ------------------------------------------------------------------------------ attention
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


@inner(
    f"{FLASH}(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, "
    "*, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor)"
)
def _flash_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool, attn_mask: Any,
    scale: float | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    result = public("nn.functional.scaled_dot_product_attention")(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return result, _new_empty(query, query.shape[:3], dtype=_core.float32)


# ------------------------------------------------------------------------------ images
def _images(name: str, arguments: str, mode: str, aligned: bool) -> None:
    """`interpolate` under the name of its mode."""

    def run(self: Tensor, output_size: Any, *values: Any) -> Tensor:
        corners = {"align_corners": values[0]} if aligned else {}
        scales = [s for s in values[aligned:] if s is not None]
        where = {"scale_factor": scales} if scales else {"size": tuple(output_size)}
        return public("nn.functional.interpolate")(self, mode=mode, **where, **corners)

    inner(f"{name}(Tensor self, SymInt[] output_size{arguments}) -> Tensor")(run)


SCALES = {
    1: ", float? scales=None",
    2: ", float? scales_h=None, float? scales_w=None",
    3: ", float? scales_d=None, float? scales_h=None, float? scales_w=None",
}
for _rank, _text in SCALES.items():
    _images(f"upsample_nearest{_rank}d", _text, "nearest", False)
    _images(f"_upsample_nearest_exact{_rank}d", _text, "nearest-exact", False)
for _mode, _rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)):
    _images(f"upsample_{_mode}{_rank}d", ", bool align_corners" + SCALES[_rank], _mode, True)


def _max_pool(rank: int) -> None:
    def run(self: Tensor, *windows: Any) -> Any:
        pool = public(f"nn.functional.max_pool{rank}d")
        return pool(self, *[w if w else None for w in windows[:2]], *windows[2:], True)

    inner(
        f"max_pool{rank}d_with_indices(Tensor self, int[] kernel_size, int[] stride=[], "
        "int[] padding=0, int[] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)"
    )(run)


_max_pool(2)
_max_pool(3)


def _padding(name: str, mode: str) -> None:
    def run(self: Tensor, padding: Any) -> Tensor:
        return public("nn.functional.pad")(self, tuple(padding), mode=mode)

    inner(f"{name}(Tensor self, SymInt[] padding) -> Tensor")(run)


def _adaptive(rank: int) -> None:
    def run(self: Tensor, output_size: Any) -> Tensor:
        return public(f"nn.functional.adaptive_avg_pool{rank}d")(self, tuple(output_size))

    inner(f"_adaptive_avg_pool{rank}d(Tensor self, SymInt[] output_size) -> Tensor")(run)


for _rank in (1, 2, 3):
    _padding(f"reflection_pad{_rank}d", "reflect")
    _padding(f"replication_pad{_rank}d", "replicate")
    if _rank > 1:
        _adaptive(_rank)


@inner(
    "im2col(Tensor self, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor"
)
def _im2col(self: Tensor, *windows: Any) -> Tensor:
    return public("nn.functional.unfold")(self, *windows)


@inner(
    "col2im(Tensor self, SymInt[] output_size, int[] kernel_size, int[] dilation, int[] padding, "
    "int[] stride) -> Tensor"
)
def _col2im(self: Tensor, output_size: Any, *windows: Any) -> Tensor:
    return public("nn.functional.fold")(self, tuple(output_size), *windows)


from flambeau.decompositions import inner_gradients, inner_writes  # noqa: E402, F401 - theirs
