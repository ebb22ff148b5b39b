"""`Overload.tags`: properties of operators, computed from their definitions.

Whether an operator is pointwise, draws numbers or writes in place follows from its definition.
Which overloads PyTorch counts as core ATen, the set that exporters agree on, follows from nothing:
it is a list.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from flambeau.core import install
from flambeau.language.definition import REGISTRY, OpDefinition
from flambeau.ops import aten
from flambeau.runtime.tags import Tag

Value = Any  # an argument or a result of an operator

__all__ = ["is_core", "is_core_name", "tags_of"]

# Core ATen of PyTorch 2.13: operators, with their overloads where these are not the default alone.
_CORE = """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward
    _embedding_bag _fft_c2r _fft_r2c _local_scalar_dense _log_softmax
    _native_batch_norm_legit(default,no_stats) _native_batch_norm_legit_no_training
    _pdist_forward _softmax _to_copy abs acos acosh adaptive_avg_pool1d add(Scalar,Tensor) addmm
    alias amax amin any(default,dim,dims) arange(start_step) argmax argmin as_strided asin asinh
    atan atan2(default,out) atanh avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d
    bitwise_and(Scalar,Tensor) bitwise_not bitwise_or(Scalar,Tensor) bitwise_xor(Scalar,Tensor)
    bmm cat ceil clamp(Tensor,default) clone col2im constant_pad_nd convolution
    convolution_backward copy cos cosh cumsum diagonal
    div(Scalar,Scalar_mode,Tensor,Tensor_mode) elu embedding embedding_dense_backward
    empty(memory_format) empty_strided eq(Scalar,Tensor) erf exp expand expm1 fill(Scalar) flip
    floor fmod(Scalar,Tensor) full full_like gather ge(Scalar,Tensor) gelu grid_sampler_2d
    gt(Scalar,Tensor) hardtanh index(Tensor) index_put index_select isinf isnan
    le(Scalar,Tensor) leaky_relu log log10 log1p log2 logical_and logical_not logical_or
    logical_xor lt(Scalar,Tensor) masked_scatter max(dim) max_pool2d_with_indices
    max_pool2d_with_indices_backward max_pool3d_with_indices maximum mean(default,dim) min(dim)
    minimum mm mul(Scalar,Tensor) native_dropout native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward ne(Scalar,Tensor) neg nonzero permute
    pow(Scalar,Tensor_Scalar,Tensor_Tensor) prod(default,dim_int) rand randn randperm reciprocal
    reflection_pad1d reflection_pad2d reflection_pad3d relu remainder(Scalar,Tensor) repeat
    replication_pad2d replication_pad3d resize_ round rsqrt scalar_tensor scatter(src,value)
    scatter_add scatter_reduce(two) select(int) select_scatter sigmoid sign sin sinh
    slice(Tensor) slice_scatter sort split_with_sizes sqrt squeeze(dim,dims) sub(Scalar,Tensor)
    sum(dim_IntList) sym_is_contiguous sym_numel sym_size(int) sym_storage_offset
    sym_stride(int) tan tanh topk trunc unsqueeze upsample_bilinear2d(vec)
    upsample_nearest2d(vec) var(correction,dim) view where(self)
"""


@functools.cache
def _core() -> frozenset[str]:
    names = []
    for name, overloads in re.findall(r"(\w+)(?:\(([^)]*)\))?", _CORE):
        names += [f"{name}.{overload}" for overload in (overloads or "default").split(",")]
    return frozenset(names)


def is_core(overload: Value) -> bool:
    """Whether an overload of `torch.ops.aten` belongs to core ATen.

    Args:
        overload: of an operator.
    """
    return overload.namespace == "aten" and is_core_name(overload.__name__)


def is_core_name(name: str) -> bool:
    """Whether an overload of this name ("add.Tensor") belongs to core ATen.

    Args:
        name: of an overload.
    """
    return name in _core()


# Operators whose results' sizes, or values in Python, depend on the data of their operands.
_DATA_SIZES = frozenset(
    """argwhere.default bincount.default index.Tensor linalg_lstsq.default masked_select.default
    nonzero.default one_hot.default repeat_interleave.Tensor unique_consecutive.default
    unique_dim.default _unique.default _unique2.default""".split()
)
_DATA_VALUES = frozenset(
    "_local_scalar_dense.default allclose.default equal.default item.default".split()
)
# Operators that PyTorch composes and that may return, or write, an operand.
_MAYBE_ALIASING = frozenset(
    """alpha_dropout atleast_1d atleast_2d atleast_3d batch_norm cartesian_prod conj_physical
    dropout feature_alpha_dropout feature_dropout unsafe_chunk""".split()
)
_EXACT_STRIDES = frozenset({"_scaled_mm"})
# Overloads that return their results in arguments, beside those whose names say "out".
_TARGETS = frozenset(
    """values dim_max dim_min dim_values values_stable grad_input U X a Q OutTensor OutScalar_Self
    OutScalar_Other""".split()
)
# Families of definitions that reduce dimensions to one element each.
_REDUCING = frozenset(
    f"flambeau.ops.reduction.{family}" for family in "reduce extremes linalg_norms variance".split()
)
# Of these families, operators that do not, or not by themselves.
_NOT_REDUCING = frozenset("cdist dist linalg_matrix_norm linalg_norm renorm renorm_".split())
_WRITES_GEOMETRY = "flambeau.ops.shape.inplace_views"
# Gradients that PyTorch computes in one pointwise kernel; here they are derived from operators.
_POINTWISE_GRADIENTS = frozenset(
    f"{name}_backward" for name in "gelu sigmoid silu tanh threshold".split()
)


@functools.cache
def _by_name() -> dict[str, OpDefinition]:
    definitions = list(reversed(REGISTRY.values()))
    other = {name: each for each in definitions for name in each.options.aliases}
    return other | {aten.inner_name(each): each for each in definitions}


def _definition(overload: Value) -> OpDefinition | None:
    """The definition behind an operator, or behind the operator of which it is an in-place form."""
    function = overload.overloadpacket._function
    definition = install.DEFINITIONS.get(id(function))
    if definition is None:
        definition = _by_name().get(overload.overloadpacket.__name__.rstrip("_"))
    return definition


def _is_inplace(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _draws(overload: Value, definition: OpDefinition | None) -> bool:
    texts = getattr(overload.overloadpacket._function, "schemas", ())
    drawing = "generator" in " ".join(texts).replace("_generator", "")
    noisy = "dropout" in overload.__name__ or overload.__name__.startswith("rrelu")
    attends = overload.__name__.startswith("_scaled_dot_product_flash")
    gradient = "_backward" in overload.__name__
    return (drawing or noisy or attends or "multinomial" in overload.__name__) and not gradient


def _is_pointwise(overload: Value, definition: OpDefinition | None) -> bool:
    name = overload.overloadpacket.__name__
    if name in _POINTWISE_GRADIENTS:
        return True
    if definition is None:
        return False
    arguments = [a for each in definition.overloads for a in each.schema.arguments]
    makes = any(argument.kind in ("device?", "generator?") for argument in arguments)
    if overload._overloadname == "other":  # of max and min, which reduce in their other forms
        return True
    return definition.options.is_pointwise and not makes


def _is_reduction(overload: Value, definition: OpDefinition | None) -> bool:
    if definition is None or overload.overloadpacket.__name__ in _NOT_REDUCING:
        return False
    module = definition.overloads[0].body.__module__
    return module in _REDUCING and overload._overloadname != "other"


def _changes_geometry(overload: Value, definition: OpDefinition | None) -> bool:
    """Whether an operator makes its argument show other memory, or in another shape."""
    if not _is_inplace(overload.overloadpacket.__name__) or definition is None:
        return False
    module = definition.overloads[0].body.__module__
    return module == _WRITES_GEOMETRY or definition.options.view


def _is_view_copy(name: str) -> bool:
    base = _by_name().get(name.removesuffix("_copy"))
    named = name.endswith("_copy") and name not in ("_to_copy", "index_copy")
    return name == "slice_scatter" or (named and (base is None or not _is_inplace(base.name)))


@functools.cache
def tags_of(overload: Value) -> tuple[Tag, ...]:
    """The tags of an overload, in the order of their names.

    Args:
        overload: of `torch.ops.aten`, or a primitive.
    """
    name, full = overload.overloadpacket.__name__, overload.__name__
    definition = _definition(overload)
    facts = {
        Tag.pt2_compliant_tag: True,
        Tag.core: is_core(overload),
        Tag.pointwise: _is_pointwise(overload, definition),
        Tag.reduction: _is_reduction(overload, definition),
        Tag.nondeterministic_seeded: _draws(overload, definition),
        Tag.inplace: _is_inplace(name),
        Tag.inplace_view: _changes_geometry(overload, definition),
        Tag.view_copy: _is_view_copy(name),
        Tag.out: "out" in overload._overloadname.split("_") or overload._overloadname in _TARGETS,
        Tag.dynamic_output_shape: full in _DATA_SIZES,
        Tag.data_dependent_output: full in _DATA_VALUES,
        Tag.maybe_aliasing_or_mutating: full.removesuffix(".default") in _MAYBE_ALIASING,
        Tag.needs_exact_strides: name in _EXACT_STRIDES,
    }
    return tuple(sorted((tag for tag, holds in facts.items() if holds), key=lambda tag: tag.name))
