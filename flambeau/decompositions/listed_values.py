"""Inner operators that convert, copy, fill, check or combine values, made of public ones."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from flambeau.autograd import forward_ad
from flambeau.decompositions.listed import listed
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ops.linear.factorisations import LinAlgError

__all__: list[str] = []

Tensor = Any
Value = Any


# ------------------------------------------------------------------------------ checks
@listed("_functional_assert_async.msg")
def _functional_assert_async(self: Tensor, message: str, token: Tensor) -> Tensor:
    torch._assert_async(self, message)
    return token.clone()


@listed("_assert_scalar")
def _assert_scalar(self: Value, message: str) -> None:
    if not self:
        raise RuntimeError(message)


@listed("_functional_assert_scalar")
def _functional_assert_scalar(self: Value, message: str, token: Tensor) -> Tensor:
    _assert_scalar(self, message)
    return token.clone()


@listed("_assert_tensor_metadata")
def _assert_tensor_metadata(
    a: Tensor, size: Value, stride: Value, dtype: Value, device: Value, layout: Value
) -> None:
    pairs = {
        "sizes": (size, list(a.shape)), "strides": (stride, list(a.stride())),
        "dtype": (dtype, a.dtype), "device": (device, a.device), "layout": (layout, a.layout),
    }  # fmt: skip
    for what, (expected, value) in pairs.items():
        if expected is not None and expected != value:
            problem = f"Tensor {what} mismatch! Expected: {expected}, Got: {value}"
            hint = "another tensor, or other numbers in the assertion"
            raise failure(RuntimeError, "_assert_tensor_metadata", problem, hint)


@listed("_functional_sym_constrain_range")
def _constrain(size: Value, least: Value, greatest: Value, token: Tensor) -> Tensor:
    torch.sym_constrain_range(size, min=least, max=greatest)
    return token.clone()


@listed("_functional_sym_constrain_range_for_size")
def _constrain_size(size: Value, least: Value, greatest: Value, token: Tensor) -> Tensor:
    torch.sym_constrain_range_for_size(size, min=least, max=greatest)
    return token.clone()


@listed("_linalg_check_errors")
def _linalg_check_errors(info: Tensor, name: str, is_matrix: bool) -> None:
    if bool((info != 0).any()):
        numbers = info.reshape(-1).tolist()
        place = next(i for i, number in enumerate(numbers) if number)
        where = "" if is_matrix else f"(Batch element {place}): "
        problem = f"{where}the factorization of the matrix failed with info {numbers[place]}"
        raise failure(LinAlgError, name, problem, "a matrix of full rank")


@listed("_make_dep_token")
def _make_dep_token(*options: Value) -> Tensor:
    return torch.empty(())


@listed("_print")
def _print(text: str) -> None:
    print(text, end="")


# ------------------------------------------------------------------------------ geometry
@listed("size")
def _size(self: Tensor) -> Value:
    return list(self.shape)


@listed("size.int")
def _size_at(self: Tensor, dim: int) -> Value:
    return self.size(dim)


@listed("stride")
def _stride(self: Tensor) -> Value:
    return list(self.stride())


@listed("stride.int")
def _stride_at(self: Tensor, dim: int) -> Value:
    return self.stride(dim)


@listed("lift")
def _lift(self: Tensor) -> Tensor:
    return self


@listed("_lazy_clone")
def _lazy_clone(self: Tensor) -> Tensor:
    return self.clone()


@listed("_reshape_alias")
def _reshape_alias(self: Tensor, size: Value, stride: Value) -> Tensor:
    return self.as_strided(size, stride)


@listed("_reshape_alias_copy")
def _reshape_alias_copy(self: Tensor, size: Value, stride: Value) -> Tensor:
    return self.as_strided(size, stride).clone(memory_format=torch.contiguous_format)


@listed("_reshape_copy")
def _reshape_copy(self: Tensor, size: Value) -> Tensor:
    return self.reshape(tuple(size)).clone(memory_format=torch.contiguous_format)


@listed("_reshape_from_tensor")
def _reshape_from_tensor(self: Tensor, shape: Tensor) -> Tensor:
    return self.reshape(shape.tolist())


@listed("_resize_output_")
def _resize_output_(self: Tensor, size: Value, device: Value) -> Tensor:
    return self.resize_(tuple(size))


@listed("_resize_output")
def _resize_output(self: Tensor, size: Value, device: Value) -> Tensor:
    return self.clone().resize_(tuple(size))


@listed("_debug_has_internal_overlap")
def _debug_has_internal_overlap(self: Tensor) -> int:
    if _is_non_overlapping_and_dense(self):
        return 0
    pairs = zip(self.shape, self.stride(), strict=True)
    return 1 if any(size > 1 and stride == 0 for size, stride in pairs) else 2


@listed("is_non_overlapping_and_dense")
def _is_non_overlapping_and_dense(self: Tensor) -> bool:
    step = 1
    pairs = zip(self.stride(), self.shape, strict=True)
    for stride, size in sorted((stride, size) for stride, size in pairs if size != 1):
        if size == 0:
            return True
        if stride != step:
            return False
        step *= size
    return True


@listed("is_strides_like_format")
def _is_strides_like_format(self: Tensor, memory_format: Value) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if memory_format is not formats.get(self.ndim) or 0 in self.shape:
        return False
    order, least = (1, *reversed(range(2, self.ndim)), 0), 0
    for dim in order:
        stride, size = self.stride(dim), self.shape[dim]
        if stride < least or stride == 0 or (dim == 0 and least == self.stride(1)):
            return False
        least = stride * max(size, 1)
    return True


@listed("sym_is_contiguous")
def _sym_is_contiguous(self: Tensor, memory_format: Value) -> bool:
    return bool(self.is_contiguous())


@listed("_has_same_storage_numel")
def _has_same_storage_numel(self: Tensor, other: Tensor) -> bool:
    sizes = [x.untyped_storage().nbytes() // x.element_size() for x in (self, other)]
    return bool(sizes[0] == sizes[1])


@listed("_has_compatible_shallow_copy_type")
def _has_compatible_shallow_copy_type(self: Tensor, other: Tensor) -> bool:
    return bool(self.layout is other.layout)


@listed("_is_zerotensor", "_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor",
        "_use_cudnn_rnn_flatten_weight", "cudnn_is_acceptable", "is_vulkan_available",
        "_nnpack_available", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor")  # fmt: skip
def _never(*arguments: Value) -> bool:
    return False


# ------------------------------------------------------------------------------ numbers
@listed("_list_to_tensor")
def _list_to_tensor(self: Value) -> Tensor:
    return torch.tensor(self, dtype=torch.int32)


@listed("_tensor_to_list")
def _tensor_to_list(self: Tensor) -> Value:
    return self.tolist()


@listed("_infer_size")
def _infer_size(a: Value, b: Value) -> Value:
    return list(torch.broadcast_shapes(a, b))


@listed("_grad_sum_to_size")
def _grad_sum_to_size(self: Tensor, size: Value) -> Tensor:
    return self if size is None else self.sum_to_size(size)


@listed("_size_if_not_equal")
def _size_if_not_equal(self_size: Value, other_size: Value) -> Value:
    return None if list(self_size) == list(other_size) else self_size


@listed("_dim_arange")
def _dim_arange(like: Tensor, dim: int) -> Tensor:
    return torch.arange(like.shape[dim])


@listed("nonzero_numpy")
def _nonzero_numpy(self: Tensor) -> Value:
    return list(self.nonzero(as_tuple=True))


@listed("_efficientzerotensor")
def _efficientzerotensor(
    size: Value, dtype: Value, layout: Value, device: Value, pin: Value
) -> Tensor:
    return torch.zeros(tuple(size), dtype=dtype, device=device)


@listed("_new_zeros_with_same_feature_meta")
def _new_zeros_with_same_feature_meta(self: Tensor, other: Tensor, batches: int) -> Tensor:
    return self.new_zeros((*self.shape[:batches], *other.shape))


# ------------------------------------------------------------------------------ copies
@listed("_conj_copy", "_conj_physical")
def _conj_copy(self: Tensor) -> Tensor:
    return torch.conj_physical(self)


@listed("_neg_view_copy")
def _neg_view_copy(self: Tensor) -> Tensor:
    return -self


@listed("_foreach_copy")
def _foreach_copy(self: Value, source: Value, non_blocking: bool) -> Value:
    copies = [torch.empty_like(x) for x in self]
    torch._foreach_copy_(copies, source, non_blocking)
    return copies


@listed("_foreach_zero")
def _foreach_zero(self: Value) -> Value:
    return [torch.zeros_like(x) for x in self]


@listed("_to_cpu")
def _to_cpu(tensors: Value) -> Value:
    return [x.cpu() for x in tensors]


@listed("_stack")
def _stack(tensors: Value, dim: int) -> Tensor:
    return torch.stack(tensors, dim)


@listed("flatten_dense_tensors")
def _flatten(tensors: Value) -> Tensor:
    return _flatten_dense_tensors(tensors)


@listed("unflatten_dense_tensors")
def _unflatten(flat: Tensor, tensors: Value) -> Value:
    return list(_unflatten_dense_tensors(flat, tensors))


@listed("_index_put_impl_")
def _index_put_impl_(
    self: Tensor, indices: Value, values: Tensor, accumulate: bool, unsafe: bool
) -> Tensor:
    return self.index_put_(indices, values, accumulate)


@listed("_unsafe_index.Tensor")
def _unsafe_index(self: Tensor, indices: Value) -> Tensor:
    return self[tuple([slice(None) if x is None else x for x in indices])]


@listed("_unsafe_index_put", "_index_put_impl")
def _unsafe_index_put(
    self: Tensor, indices: Value, values: Tensor, accumulate: bool, *unsafe: bool
) -> Tensor:
    return late("flambeau.ops.aten").index_put.default(self, indices, values, accumulate)


@listed("set", "set.source_Tensor", "set.source_Storage", "set.source_Storage_storage_offset",
        "set.source_Tensor_storage_offset")  # fmt: skip
def _set(self: Tensor, *source: Value) -> Tensor:
    copy = self.clone()
    return copy.set_(*source) if source else copy.set_()


@listed("to_mkldnn_backward")
def _to_mkldnn_backward(grad: Tensor, input: Tensor) -> Tensor:  # noqa: A002
    return grad.to_dense(input.dtype)


# ------------------------------------------------------------------------------ fills
def _drawn(name: str, *overloads: str) -> None:
    """A method that fills a tensor with draws, as a function of the tensor."""

    def run(self: Tensor, *values: Value) -> Tensor:
        draw = getattr(torch.empty_like(self), f"{name}_")
        return draw(*[x for x in values[:-1] if x is not None], generator=values[-1])

    listed(*(overloads or (name,)))(run)


_drawn("cauchy")
_drawn("log_normal")
_drawn("geometric")
_drawn("random", "random.from", "random.to", "random")


@listed("gelu_")
def _gelu_(self: Tensor, approximate: str) -> Tensor:
    return self.copy_(torch.nn.functional.gelu(self, approximate=approximate))


def _no_grad(name: str) -> None:
    def run(tensor: Tensor, *values: Value) -> Tensor:
        with torch.no_grad():
            return getattr(tensor, f"{name}_")(*[x for x in values if x is not None])

    listed(f"_no_grad_{name}_")(run)


for _name in ("fill", "normal", "uniform", "zero"):
    _no_grad(_name)


# ------------------------------------------------------------------------------ arithmetic
@listed("_add_relu.Tensor", "_add_relu.Scalar")
def _add_relu(self: Tensor, other: Value, alpha: Value) -> Tensor:
    return torch.relu(torch.add(self, other, alpha=alpha))


@listed("_add_relu_.Tensor", "_add_relu_.Scalar")
def _add_relu_(self: Tensor, other: Value, alpha: Value) -> Tensor:
    return torch.relu_(self.add_(other, alpha=alpha))


@listed("_addmm_activation")
def _addmm_activation(
    self: Tensor, mat1: Tensor, mat2: Tensor, beta: Value, alpha: Value, use_gelu: bool
) -> Tensor:
    total = torch.addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    return torch.nn.functional.gelu(total) if use_gelu else torch.relu(total)


@listed("_aminmax")
def _aminmax(self: Tensor) -> Value:
    return tuple(torch.aminmax(self))


@listed("_aminmax.dim")
def _aminmax_dim(self: Tensor, dim: int, keepdim: bool) -> Value:
    return tuple(torch.aminmax(self, dim=dim, keepdim=keepdim))


@listed("_logcumsumexp")
def _logcumsumexp(self: Tensor, dim: int) -> Tensor:
    return torch.logcumsumexp(self, dim)


def _helper(name: str) -> None:
    def run(self: Tensor, values: Tensor, indices: Tensor, dim: int) -> None:
        results = getattr(torch, name)(self, dim)
        values.copy_(results[0])
        indices.copy_(results[1])

    listed(f"_{name}_helper")(run)


_helper("cummax")
_helper("cummin")


@listed("_compute_linear_combination")
def _compute_linear_combination(input: Tensor, coefficients: Tensor) -> Tensor:  # noqa: A002
    return torch.tensordot(coefficients, input, dims=1)


def _powers(self: Tensor, order: Value, dim: Value, keepdim: bool, dtype: Value) -> Tensor:
    wide = self if dtype is None else self.to(dtype)
    return (wide.abs() ** order).sum(dim, keepdim)


listed("linalg__powsum")(_powers)


@listed("_foreach_powsum.Scalar")
def _foreach_powsum(self: Value, order: Value, dtype: Value) -> Value:
    return [_powers(x, order, None, False, dtype) for x in self]


@listed("_masked_scale")
def _masked_scale(self: Tensor, mask: Tensor, scale: float) -> Tensor:
    return self * mask.to(self.dtype) * scale


@listed("_trilinear")
def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Value, expand2: Value, expand3: Value,
    summed: Value, unroll_dim: int,
) -> Tensor:  # fmt: skip
    total: Tensor = None
    for operand, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for dim in sorted(dims):
            operand = operand.unsqueeze(dim)
        total = operand if total is None else total * operand
    return total.sum(tuple(summed)) if summed else total


@listed("_histogramdd_from_bin_cts")
def _histogramdd(self: Tensor, bins: Value, limits: Value, weight: Value, density: bool) -> Tensor:
    return torch.histogramdd(self, bins, range=limits, weight=weight, density=density)[0]


# ------------------------------------------------------------------------------ sets
@listed("_unique")
def _unique(self: Tensor, sorted: bool, inverse: bool) -> Value:  # noqa: A002
    values, places = torch.unique(self, sorted, True)
    return values, places if inverse else places.new_empty((0,))


@listed("unique_dim")
def _unique_dim(self: Tensor, dim: int, sorted: bool, inverse: bool, counts: bool) -> Value:  # noqa: A002
    return torch.unique(self, sorted, True, True, dim)


@listed("unique_dim_consecutive")
def _unique_dim_consecutive(self: Tensor, dim: int, inverse: bool, counts: bool) -> Value:
    return torch.unique_consecutive(self, True, True, dim)


# ------------------------------------------------------------------------------ gradients
@listed("_backward")
def _backward(self: Tensor, inputs: Value, gradient: Value, again: Value, create: bool) -> None:
    self.backward(gradient, again, create, inputs)


@listed("grad")
def _grad(outputs: Value, inputs: Value, grads: Value, again: Value, *flags: bool) -> Value:
    grad = late("flambeau.autograd").grad
    return list(grad(outputs, inputs, grads, again, flags[0], allow_unused=flags[1]))


@listed("_fw_primal")
def _fw_primal(self: Tensor, level: int) -> Tensor:
    return forward_ad.unpack_dual(self).primal


@listed("_make_dual")
def _make_dual(primal: Tensor, tangent: Tensor, level: int) -> Tensor:
    return forward_ad.make_dual(primal, tangent)


@listed("_unpack_dual")
def _unpack_dual(dual: Tensor, level: int) -> Value:
    return tuple(forward_ad.unpack_dual(dual))


# ------------------------------------------------------------------------------ special functions
@listed("special_gammainc")
def _gammainc(self: Tensor, other: Tensor) -> Tensor:
    return torch.igamma(self, other)


@listed("special_gammaincc")
def _gammaincc(self: Tensor, other: Tensor) -> Tensor:
    return torch.igammac(self, other)


@listed("special_gammaln")
def _gammaln(self: Tensor) -> Tensor:
    return torch.lgamma(self)


@listed("special_psi")
def _psi(self: Tensor) -> Tensor:
    return torch.digamma(self)


@listed("special_softmax")
def _special_softmax(self: Tensor, dim: int, dtype: Value) -> Tensor:
    return torch.softmax(self, dim, dtype=dtype)


@listed("special_log_softmax")
def _special_log_softmax(self: Tensor, dim: int, dtype: Value) -> Tensor:
    return torch.log_softmax(self, dim, dtype=dtype)
