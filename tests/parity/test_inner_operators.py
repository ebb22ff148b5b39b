"""Operators under `torch.ops.aten` that are no public functions: schemas, tags and values."""

from __future__ import annotations

import functools

import pytest
import torch

import flambeau
from flambeau.library import aten_schemas
from tests.parity.expressions import lines, names_of, plain

OPERANDS = """
aten = torch.ops.aten
x = torch.linspace(-1.5, 2, 12).reshape(3, 4)
y = torch.linspace(2, -1, 12).reshape(3, 4) + 0.1
v, w3 = torch.linspace(0.1, 0.9, 4), torch.linspace(-1, 1, 3)
square = torch.tensor([[2.0, 1.0, 0.5], [0.3, 3.0, -1.0], [-0.2, 0.1, 1.5]])
spd = square @ square.mT
image = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4)
volume = torch.linspace(-1, 1, 128).reshape(1, 2, 4, 4, 4)
grid = torch.linspace(-0.9, 0.8, 24).reshape(2, 3, 2, 2)
grid3 = torch.linspace(-0.9, 0.8, 24).reshape(1, 2, 2, 2, 3)
token = torch.empty(())
ints, mask = torch.tensor([[6, 3], [1, 5]]), torch.tensor([[True, False, True, True]] * 3)
cx, gates = torch.linspace(-1, 1, 6).reshape(3, 2), torch.linspace(-2, 2, 24).reshape(3, 8)
gates3, hy = torch.linspace(-2, 2, 18).reshape(3, 6), torch.linspace(1, 2, 6).reshape(3, 2)
bias3, bias = torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 8)
params = [torch.linspace(-1, 1, n).reshape(s) for n, s in ((32, (8, 4)), (16, (8, 2)))]
rnn = [torch.linspace(-1, 1, n).reshape(s) for n, s in ((8, (2, 4)), (4, (2, 2)))]
gru = [torch.linspace(-1, 1, n).reshape(s) for n, s in ((24, (6, 4)), (12, (6, 2)))]
steps, h0 = torch.linspace(-1, 1, 24).reshape(2, 3, 4), torch.zeros(1, 3, 2)
rows = torch.tensor([0, 2, 1, 1, 3]); table = torch.linspace(-1, 1, 12).reshape(4, 3)
offsets, bags = torch.tensor([0, 2, 3]), torch.tensor([0, 0, 1, 2, 2])
bag_grad = torch.linspace(1, 2, 9).reshape(3, 3); none = torch.zeros(0, dtype=torch.int64)
sizes = torch.tensor([2, 1, 2]); mean, var = torch.linspace(-1, 1, 3), torch.linspace(0.5, 2, 3)
q = torch.linspace(-1, 1, 48).reshape(1, 2, 6, 4)
adam = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-6, amsgrad=False, maximize=False)
one = torch.tensor(3.0)
sparse = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]]).to_sparse()
"""  # noqa: E501
CALLS = """
aten.copy.default(x, y); aten.zero.default(x); aten.lift.default(x); aten.item.default(one)
aten.size.default(x); aten.size.int(x, 1); aten.stride.default(x); aten.stride.int(x, 0)
aten.dim.default(x); aten.storage_offset.default(x[1:]); aten.is_contiguous.default(x.mT)
aten.__and__.Scalar(ints, 3); aten.__or__.Tensor(ints, ints + 1); aten.__xor__.Scalar(ints, 2)
aten.__lshift__.Scalar(ints, 1); aten.__rshift__.Tensor(ints, ints // 3)
aten.__iand__.Scalar(ints, 3); aten.__ilshift__.Scalar(ints, 1); aten.__ior__.Tensor(ints, ints)
aten.__irshift__.Scalar(ints, 1); aten.__ixor__.Scalar(ints, 5)
aten._add_relu.Tensor(x, y, alpha=2); aten._add_relu_.Tensor(x, y)
aten._addmm_activation.default(v[:3], x, x.mT, use_gelu=True)
aten._addmm_activation.default(v[:3], x, x.mT, beta=2, alpha=0.5)
aten._assert_scalar.default(1, 'no'); aten._assert_async.msg(mask[0, 0], 'no')
aten._assert_tensor_metadata.default(x, [3, 4], [4, 1], torch.float32)
aten._functional_assert_async.msg(mask[0, 0], 'no', token) is None
aten._functional_sym_constrain_range.default(3, 1, 9, token) is None
aten.sym_constrain_range.default(3, min=1); aten.sym_constrain_range_for_size.default(3, max=5)
aten._unsafe_index.Tensor(x, [torch.tensor([0, 2]), None]); aten.nonzero_numpy.default(mask)
aten._unsafe_index_put.default(x, [torch.tensor([0, 2])], y[:2], True)
aten._index_put_impl_.default(x, [torch.tensor([0, 2])], y[:2])
aten._reshape_copy.default(x, [4, 3]); aten._reshape_alias.default(x, [4, 3], [3, 1])
aten._reshape_alias_copy.default(x, [4, 3], [3, 1]); aten._has_same_storage_numel.default(x, y)
aten.is_non_overlapping_and_dense.default(x.mT); aten.is_non_overlapping_and_dense.default(x[:, 1:])
aten.is_strides_like_format.default(image, torch.channels_last)
aten.is_strides_like_format.default(image.to(memory_format=torch.channels_last), torch.channels_last)
aten._debug_has_internal_overlap.default(x)
aten._debug_has_internal_overlap.default(v.expand(3, 4))
aten._infer_size.default([3, 1], [4]); aten._list_to_tensor.default([1, 2])
aten._tensor_to_list.default(rows.int()); aten._dim_arange.default(x, 1); aten.gelu_.default(x)
aten.gelu_.default(x, approximate='tanh'); aten._foreach_zero.default([x, y])
aten._foreach_copy.default([x, y], [y, x]); aten._foreach_powsum.Scalar([x, y], 3)
aten.linalg__powsum.default(x, 2, [1], True); aten._stack.default([x, y], 1)
aten._aminmax.default(x); aten._aminmax.dim(x, 1, True); aten._logcumsumexp.default(x, 1)
aten._trilinear.default(x, y, x, [], [], [], [1])
aten._compute_linear_combination.default(x, square); aten._conj_physical.default(x + 1j)
aten._neg_view_copy.default(x)
aten._cast_Int.default(x)
aten._new_zeros_with_same_feature_meta(x, y)
aten.flatten_dense_tensors.default([x, y]); aten.unflatten_dense_tensors(x.ravel(), [v, square[:2]])
aten._unique.default(rows); aten._unique.default(rows, True, True)
aten.unique_dim.default(ints, 0, True, True, True)
aten.unique_dim_consecutive.default(ints, 0, True)
aten.pad_sequence.default([v, v[:2]], True, 7.0); aten._shape_as_tensor.default(x)
aten.special_gammainc.default(x.abs(), y.abs()); aten.special_gammaincc.default(x.abs(), y.abs())
aten.special_gammaln.default(x); aten.special_psi.default(x); aten.special_softmax.default(x, 1)
aten.special_log_softmax.default(x, 0); aten._masked_softmax.default(x, mask, 1)
aten._fft_c2c.default(x + 1j, [0, 1], 0, True); aten._fft_c2c.default(x + 1j, [1], 2, False)
aten._fft_c2c.default(x + 1j, [1], 1, False); aten._fft_r2c.default(x, [0, 1], 1, True)
aten._fft_r2c.default(x, [1], 2, False); aten._fft_c2r.default(x + 1j, [1], 2, 6)
aten._fft_c2r.default(x + 1j, [0, 1], 0, 7); aten._linalg_det.default(square)
aten._linalg_slogdet.default(square); aten._linalg_solve_ex.default(square, x)
aten._linalg_eigh.default(spd)[0]; aten._linalg_eigh.default(spd, 'U', False)
aten._linalg_eigvals.default(spd); aten._linalg_svd.default(x)[1]
aten._linalg_svd.default(x, False, False); aten._lu_with_info.default(square)
aten._cholesky_solve_helper.default(x, torch.linalg.cholesky(spd), False)
aten.linalg_diagonal.default(square, offset=1); aten._euclidean_dist.default(x, y)
aten._cdist_forward.default(x, y, 2.0, None); aten._cdist_forward.default(x, y, 1.0, 2)
aten._cdist_backward.default(torch.ones(3, 3), x, y, 3.0, torch.cdist(x, y, 3.0))
aten._pdist_forward.default(x); aten._pdist_backward.default(w3, x, 2.0, torch.pdist(x))
aten._native_batch_norm_legit_no_training.default(image, mean, var, mean, var, 0.1, 1e-5)
aten._batch_norm_no_update.default(image, mean, var, mean, var, 0.1, 1e-5)
aten._batch_norm_with_update_functional.default(image, mean, var, mean, var, 0.1, 1e-5)
aten._native_batch_norm_legit_functional.default(image, mean, var, mean, var, True, 0.1, 1e-5)
aten.batch_norm_backward.default(image, image, mean, None, None, mean, var, True, 1e-5, [True] * 3, v)
aten._fused_rms_norm.default(x, [4], v, 1e-5); aten._fused_rms_norm.default(x, [4], None, None)
aten._weight_norm_interface.default(x, w3[:, None])
aten._weight_norm_interface.default(x, v[None], 1)
aten._weight_norm_interface_backward.default(y, x, w3[:, None], torch.norm_except_dim(x, 2, 0), 0)
aten._weight_norm_differentiable_backward(y, x, w3[:, None], torch.norm_except_dim(x, 2, 0), 0)
aten.lstm.input(steps, [h0, h0], params + [bias, bias], True, 1, 0.0, False, False, False)
aten.lstm.data(steps[0], torch.tensor([2, 1]), [h0[:, :2]] * 2, params, False, 1, 0.0, False, False)
aten.gru.input(steps, h0, gru + [bias3, bias3], True, 1, 0.0, False, False, False)
aten.rnn_tanh.input(steps, h0, rnn, False, 1, 0.0, False, False, False)
aten.rnn_relu.input(steps, h0, rnn, False, 1, 0.0, False, False, False)
aten.lstm_cell.default(steps[0], [h0[0], h0[0]], *params, bias, bias)
aten.gru_cell.default(steps[0], h0[0], *gru); aten.rnn_tanh_cell.default(steps[0], h0[0], *rnn)
aten._thnn_differentiable_lstm_cell_backward(hy, hy, gates, gates + 1, bias, bias, cx, cy)[0]
aten._thnn_differentiable_gru_cell_backward.default(hy, gates3, gates3 + 1, cx, bias3, bias3)
aten._pack_padded_sequence.default(steps, torch.tensor([2, 2, 1]), False)
aten._pack_padded_sequence_backward.default(steps.reshape(6, 4)[:5], [2, 3, 4], torch.tensor([3, 2]), False)
aten._pad_packed_sequence.default(steps.reshape(6, 4)[:5], torch.tensor([3, 2]), True, 0.0, -1)
aten._scaled_dot_product_attention_math.default(q, q, q + 1, None, 0.0, True)
aten._scaled_dot_product_attention_math.default(q, q, q + 1, mask[:1, :1].expand(6, 6), scale=0.3)
aten.slow_conv_dilated2d.default(image, image[:, :, :2, :2], [2, 2], None, [1, 1], [0, 0], [2, 2])
aten.slow_conv_transpose2d.default(image, image.mT[:1].expand(3, 3, 4, 4), [4, 4], None, [2, 1])
aten.thnn_conv2d.default(image, image[:, :, :2, :2], [2, 2], v[:2], [2, 2], [1, 1])
aten._slow_conv2d_forward.default(image, image[:, :, :2, :2], [2, 2], v[:2], [2, 2], [1, 1])
aten.slow_conv3d.default(volume, volume[:, :, :2, :2, :2], [2, 2, 2])
aten._slow_conv2d_backward.output_mask(image[:, :2, :3, :3], image, image[:, :, :2, :2], [2, 2], [1, 1], [0, 0], [True] * 3)
aten._convolution_mode.default(image, image[:, :, :2, :2], None, [1, 1], 'same', [1, 1], 1)
aten.conv_tbc_backward.default(steps[:, :, :2], steps, params[0].reshape(2, 4, 4)[:1, :, :2], v[:2], 0)
aten._pad_circular.default(image, [1, 1, 0, 2]); aten._pad_enum.default(image, [1, 1, 0, 2], 1)
aten.nll_loss_nd.default(x.log_softmax(1), rows[:3], None, 1, -100); aten.log_sigmoid.default(x)
aten.cross_entropy_loss.default(x, rows[:3], v, 2, 1, 0.1)
aten.glu_jvp.default(torch.nn.functional.glu(x, 1), x, y, 1)
aten.multilabel_margin_loss_forward.default(x, torch.tensor([[3, 1, -1, 0]] * 3), 1)
aten.multilabel_margin_loss_backward(one, x, torch.tensor([[3, 1, -1, 0]] * 3), 1, mask.float())[:, 2] * 0
aten.multi_margin_loss_backward.default(one, x, rows[:3], 1, 1.0, v, 1)
aten.rrelu_with_noise_backward.default(x, y, v.expand(3, 4), 0.1, 0.3, True, False)
aten.rrelu_with_noise_backward.default(x, y, v.expand(3, 4), 0.1, 0.3, False, False)
aten.rrelu_with_noise_functional.default(x, y, 0.1, 0.3, False)
aten.embedding_renorm.default(table, rows, 0.5, 2.0); aten.logit_backward.default(x, v.expand(3, 4))
aten.logit_backward.default(x, y, 0.2); aten.infinitely_differentiable_gelu_backward.default(x, y)
aten.unfold_backward.default(torch.ones(3, 2, 2), [3, 4], 1, 2, 2); aten.trace_backward(one, [3, 4])
aten.index_select_backward.default(x, [3, 5], 1, torch.tensor([0, 4, 4, 1]))
aten.masked_select_backward.default(torch.arange(9.0), x, mask)
aten.masked_scatter_backward.default(x, mask, [3, 4])
aten.value_selecting_reduction_backward.default(w3, 1, torch.tensor([0, 3, 1]), [3, 4], False)
aten.affine_grid_generator_backward.default(grid, [2, 3, 3, 2], False)
aten.embedding_backward.default(bag_grad[[0, 1, 2, 0, 1]], rows, 4, 1, True, False)
aten.cumprod_backward.default(x, y, 1, y.cumprod(1))
aten.cummaxmin_backward.default(x, y, y.cummax(1)[1], 1)
aten._segment_reduce_backward(w3, w3, torch.arange(5.0), 'sum', lengths=sizes)
aten.matrix_exp_backward.default(square / 3, spd); aten.max_pool3d_with_indices_backward(*pool3)
aten.adaptive_max_pool2d_backward.default(image[:, :, :2, :2], image, at2)
aten.adaptive_max_pool3d_backward.default(volume[:, :, :2, :2, :2], volume, at3)
aten.grid_sampler_2d_backward.default(image[:, :, :3, :2], image, grid, 0, 0, False, [True, True])
aten.grid_sampler_2d_backward.default(image[:, :, :3, :2], image, grid, 2, 1, True, [False, True])[1]
aten.grid_sampler_3d_backward.default(volume[..., :2, :2, :2], volume, grid3, 0, 1, True, [True, True])
aten._upsample_bilinear2d_aa_backward.default(image[:, :, :2, :2], [2, 2], [2, 3, 5, 5], False)
aten._upsample_bicubic2d_aa_backward.default(image[:, :, :2, :2], [2, 2], [2, 3, 5, 5], True)
aten._embedding_bag.default(table, rows, offsets, False, 1)
aten._embedding_bag_forward_only.default(table, rows, offsets, False, 2)[0]
aten._embedding_bag_backward(bag_grad, rows, offsets, bags, sizes, none, 4, False, 0, False, None)
aten._embedding_bag_backward(bag_grad, rows, offsets, bags, sizes, none, 4, False, 1, False, None)
aten._embedding_bag_dense_backward(bag_grad, often, bags, sizes, none, 4, True, 0, None)
aten._embedding_bag_dense_backward(bag_grad, rows, bags, sizes, best, 4, False, 2, None)
aten._embedding_bag_per_sample_weights_backward(bag_grad, table, rows, offsets, bags, 0)
aten._fused_adam.default([x], [y], [x * 0], [x * 0], [], [one - 1], **adam)
aten._fused_adamw.default([x], [y], [x * 0], [x * 0], [], [one - 1], **adam)
aten._fused_adam_.default([x], [y], [v.expand(3, 4).clone()], [x * x], [], [one], **adam), x
aten._amp_foreach_non_finite_check_and_unscale.default([x], torch.zeros(1), torch.tensor([0.5]))
aten._amp_update_scale.default(v[:1], torch.zeros(1, dtype=torch.int32), one[None], 2.0, 0.5, 3)
aten.fake_quantize_per_tensor_affine.default(x, 0.25, 1, 0, 7)
aten.fake_quantize_per_tensor_affine_cachemask.default(x, 0.25, 1, 0, 7)
aten.fake_quantize_per_channel_affine_cachemask(x, v, rows[:4].int(), 1, 0, 7)
aten.fake_quantize_per_tensor_affine_cachemask_backward.default(x, mask)
aten._to_dense.default(sparse); aten.dense_dim.default(sparse); aten.sparse_dim.default(sparse)
aten.is_coalesced.default(sparse)
aten._nnz.default(sparse)
aten._sparse_sum.dim(sparse, [0]).to_dense()
aten._sparse_mm.default(sparse, square); aten._sparse_softmax.int(sparse, 1).to_dense()
aten._spdiags.default(x, torch.tensor([0, 1, -1]), [4, 4]).to_dense()
aten._sparse_coo_tensor_unsafe.default(ints % 2, v[:2], [2, 2]).to_dense()
aten._grad_sum_to_size.default(x, [1, 4]); aten._size_if_not_equal.default([1], [1])
aten.Int.float(2.5); aten.Float.str('1.5'); aten.len.str('ab'); aten.floordiv.int(-7, 2)
aten.strip.default(' a '); aten.__contains__.int_list([1, 2], 2); aten.join.default(',', ['a', 'b'])
aten.find.default('hello', 'l', 0, -1); aten.__range_length.default(0, 7, 2); aten.ord.default('a')
aten.sorted.int([3, 1]); aten.splitlines.default('a b'); aten.replace.default('aab', 'a', 'c', 1)
aten._weight_int8pack_mm.default(wide.bfloat16(), ints.repeat(16, 16).to(torch.int8), row.bfloat16())
"""  # noqa: E501
# `often`: PyTorch divides by the count of another row if rows behind that occur once (`rows`).
# `wide`, `row`: of sizes that its kernel does not read beyond.
OPERANDS += """
often = torch.tensor([0, 2, 1, 3, 3])
wide, row = x.repeat(1, 8), torch.linspace(0.1, 0.9, 32)
g4 = (gates + gates + 1 + bias + bias).chunk(4, 1)
cy = g4[1].sigmoid() * cx + g4[0].sigmoid() * g4[2].tanh()
y2, at2 = torch.nn.functional.adaptive_max_pool2d(image, 2, return_indices=True)
y3, at3 = torch.nn.functional.adaptive_max_pool3d(volume, 2, return_indices=True)
pool3 = (volume[..., :2, :2, :2], volume, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, at3)
best = torch.tensor([[0, 2, 0], [1, 1, 1], [1, 3, 3]])
"""
pytestmark = pytest.mark.filterwarnings("ignore")


def flat(value):
    """Tensors and other values of a result, in order."""
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in flat(part)]
    return [value]


@functools.cache
def operands(library):
    """Shared by all calls: what one writes, it writes in both libraries."""
    return names_of(library, OPERANDS)


@pytest.mark.parametrize("call", lines(CALLS))
def test_same_result(call):
    ours, theirs = (flat(eval(call, operands(m))) for m in (flambeau, torch))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            assert str(a.dtype) == str(b.dtype)
            torch.testing.assert_close(plain(a), b.detach(), rtol=2e-5, atol=2e-5)
        else:
            assert a == b


def test_the_table_is_that_of_pytorch():
    """Names, overloads in their order, schemas, tags."""
    count = 0
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        name, overload = schema.name[6:], schema.overload_name or "default"
        ours = getattr(getattr(flambeau.ops.aten, name), overload)
        theirs = getattr(getattr(torch.ops.aten, name), overload)
        assert str(ours._schema) == str(schema)
        assert [t.name for t in ours.tags] == sorted(t.name for t in theirs.tags)
        count += 1
    assert count == sum(len(aten_schemas.entries(name)) for name in aten_schemas.names())
    for name in dir(torch.ops.aten):
        if isinstance(getattr(torch.ops.aten, name), torch._ops.OpOverloadPacket):
            overloads = getattr(torch.ops.aten, name).overloads()
            assert getattr(flambeau.ops.aten, name).overloads() == overloads
