"""Inner operators of sequences, nested and sparse tensors, attention and quantization."""

from __future__ import annotations

import pytest
import torch

import flambeau
from tests.parity.expressions import lines, names_of, plain

OPERANDS = """
aten = torch.ops.aten
x = torch.linspace(-2, 3, 12).reshape(3, 4); v = torch.linspace(-1, 1, 4); one = torch.ones(1)
image = torch.linspace(-1, 2, 200).reshape(2, 4, 5, 5)
log_probs = torch.linspace(-1, 1, 40).reshape(5, 2, 4).sin().log_softmax(2)
labels, joined = torch.tensor([[1, 2], [3, 3]]), torch.tensor([1, 2, 3])
lengths = ([5, 4], [2, 1])
state = aten._sobol_engine_initialize_state_(torch.zeros(3, 30, dtype=torch.int64), 3)
quasi = torch.zeros(3, dtype=torch.int64)
samples = torch.linspace(0.05, 4.0, 20); shapes = torch.linspace(0.3, 8.0, 5).unsqueeze(1)
parts = [torch.arange(6.0).reshape(3, 2), torch.arange(4.0).reshape(2, 2) + 10]
nested = torch.nested.nested_tensor(parts)
jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
padded = torch.linspace(0, 1, 24).reshape(2, 4, 3); offsets = torch.tensor([0, 3, 5])
rows = torch.arange(10.0).reshape(5, 2); dummy = aten._nested_get_jagged_dummy(jagged)
mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]]).bool()
flat, sizes = torch.arange(10.0), torch.tensor([[3, 2], [2, 2]])
strides, begins = torch.tensor([[2, 1], [2, 1]]), torch.tensor([0, 6])
coo = torch.tensor([[0.0, 1, 2], [3, 0, 4]]).to_sparse(); csr = coo.to_sparse_csr()
other = torch.tensor([[0.0, 0.1, 0.2], [0.3, 0, 0.4]]).to_sparse()
partly = torch.tensor([[0.0, 1, 0], [3, 2, 0]]).to_sparse()
index = (csr.crow_indices(), csr.col_indices())
none = torch.zeros(0, dtype=torch.int64)
q = torch.linspace(-2, 2, 160).reshape(2, 5, 16).sin()
heads = (16, 4, *[torch.linspace(-1, 1, n).cos().reshape(s) / 4 for n, s in (
    (768, (48, 16)), (48, (48,)), (256, (16, 16)), (16, (16,)))])
norms = [torch.linspace(0.5, 1, 16), torch.linspace(-0.1, 0.1, 16)] * 2
ffn = [torch.linspace(-1, 1, n).sin().reshape(s) / 4 for n, s in (
    (512, (32, 16)), (32, (32,)), (512, (16, 32)), (16, (16,)))]
pad = torch.tensor([[False, False, False, True, True], [False] * 5])
later = torch.ones(5, 5).triu(1).bool()
samples_of_q = torch.nested.nested_tensor([q[0], q[1, :3]])
qkv = torch.linspace(0, 1, 72).reshape(2, 3, 12)
zero = torch.zeros(1, dtype=torch.int32); scales = v.abs()
observed = (torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([0.1]), zero + 3)
codes = torch.arange(32 * 32, dtype=torch.int32).reshape(32, 32) % 16
four = torch.arange(256, dtype=torch.uint8)
steps, h0 = torch.linspace(-1, 1, 24).reshape(3, 2, 4), torch.linspace(-1, 1, 8).reshape(1, 2, 4)
lstm = [torch.linspace(-1, 1, n).reshape(s) for n, s in (
    (64, (16, 4)), (64, (16, 4)), (16, (16,)), (16, (16,)))]
glu, dglu = v[:2].expand(3, 2), v[2:].expand(3, 2)
"""
CALLS = """
aten._ctc_loss(log_probs, labels, *lengths)[0]; aten._ctc_loss(log_probs, joined, *lengths, 1)[0]
aten._ctc_loss(log_probs, labels, *lengths)[1][0]; aten._ctc_loss(log_probs, joined, *lengths)[1][1, :4, :3]
aten._ctc_loss.Tensor(log_probs, labels, torch.tensor([5, 4]), torch.tensor([2, 1]), 0, True)[0]
aten._ctc_loss(log_probs, labels, [5, 2], [2, 2], 0, True)[0]
aten._ctc_loss_backward(torch.tensor([1.0, 2]), log_probs, labels, *lengths, *aten._ctc_loss(log_probs, labels, *lengths), 0)
aten._sobol_engine_draw(quasi, 4, state, 3, 0, None)
aten._sobol_engine_draw(quasi + 5, 4, state, 3, 3, torch.float64)
aten._sobol_engine_draw(quasi, 0, state, 3, 3, torch.float32)
aten._sobol_engine_ff_(quasi.clone(), 4, state, 3, 2)
aten._sobol_engine_scramble_(state.clone(), torch.ones(3, 30, 30, dtype=torch.int64).tril(), 3)
aten._standard_gamma_grad(shapes, samples)
aten._dirichlet_grad(samples / 4.5, shapes, shapes + 1.5)
aten._batch_norm_impl_index(image, None, None, None, None, True, 0.1, 1e-5, True)
aten._batch_norm_impl_index(image, v, v, scales, scales, False, 0.1, 1e-5, True)
aten._remove_batch_dim(x, 1, 3, 0); aten.to_mkldnn_backward(x, x)
aten.mkldnn_convolution(image, image[:1, :, :2, :2], None, [0, 0], [2, 1], [1, 1], 1)
aten.mkldnn_rnn_layer(steps, *lstm, h0, h0, False, [], 2, 4, 1, True, False, False, False)[:3]
aten.mkldnn_rnn_layer(steps, *lstm, h0[0], h0[0], True, [], 2, 4, 1, True, False, False, False)[:3]
aten.set(x); aten.set(x, v); aten.set(x, x.untyped_storage()); aten.set(x, x.untyped_storage(), 2, [2, 2], [1, 2])
aten.glu_backward_jvp(aten.glu_backward(glu, x, 1), glu, x, dglu, x + 1, 1)
aten._upsample_lanczos2d_aa(image, [3, 3], False); aten._upsample_lanczos2d_aa(image, [8, 3], True)
aten._upsample_lanczos2d_aa_backward(torch.ones(2, 4, 3, 3), [3, 3], [2, 4, 5, 5], False)
torch.nn.functional.interpolate(image, scale_factor=1.7, mode='lanczos', antialias=True)
aten._scaled_mm_v2(x.to(torch.float8_e4m3fn), x.to(torch.float8_e4m3fn).T, [one], [0], [0], [one], [0], [0], None, torch.float32)
aten._ncf_unsqueeze(v, 3); aten._ncf_view(v, [4, 2, 2], 2)
aten._nested_tensor_size(nested); aten._nested_tensor_strides(nested)
aten._nested_tensor_storage_offsets(nested)
aten._nested_compute_contiguous_strides_offsets(sizes)
aten._nested_from_padded(padded, torch.tensor([[2, 3], [4, 3]]))
aten._nested_from_padded(image[:, :, :4], torch.tensor([[2, 20], [4, 20]]), True)
aten._nested_from_padded_and_nested_example(padded, nested)
aten._nested_select_backward(torch.ones(2, 2), nested, 0, 1)
aten._nested_select_backward(torch.ones(3, 2), nested, 0, -2)
aten._nested_sum_backward(torch.nested.nested_tensor([x[:3, :1], x[:2, :1]]), nested, [2], True)
aten._nested_sum_backward(torch.nested.nested_tensor([v[:3], v[:2]]), nested, [2], False)
aten._nested_tensor_from_mask(padded, mask); aten._nested_tensor_from_mask(padded, ~mask, False)
aten._nested_tensor_from_mask_left_aligned(padded, mask)
aten._nested_tensor_from_mask_left_aligned(padded, ~mask)
aten._nested_tensor_from_tensor_list([v, v[:2]]); aten._nested_tensor_from_tensor_list([v, v[:2]], torch.float64)
aten._nested_tensor_softmax_with_shape(torch.linspace(0, 1, 18).reshape(2, 1, 3, 3), nested)
aten._nested_view_from_buffer(flat, sizes, strides, begins)
aten._nested_view_from_buffer_copy(flat, sizes, torch.tensor([[1, 3], [2, 1]]), begins)
aten.nested_to_padded_tensor(nested, 0.0); aten.nested_to_padded_tensor(nested, 0.0, [2, 4, 4])
aten._nested_get_lengths(jagged); aten._nested_get_offsets(jagged)
aten._nested_get_max_seqlen(jagged); aten._nested_get_min_seqlen(jagged)
aten._nested_get_ragged_idx(jagged); aten._nested_get_values(jagged)
aten._nested_from_padded_tensor(padded, offsets, dummy)
aten._nested_from_padded_tensor(padded, offsets, dummy, 1, None, None, 5)
aten._nested_view_from_jagged(rows, offsets, dummy)
aten._nested_view_from_jagged(rows, offsets, dummy, torch.tensor([2, 1]))
aten._jagged_to_padded_dense_forward(rows, [offsets], [4], 7.0)
aten._jagged_to_padded_dense_forward(rows, [offsets], [2], 7.0)
aten._padded_dense_to_jagged_forward(padded, [offsets], 5)
aten._padded_dense_to_jagged_forward(padded[:, :, 0], [offsets])
aten._transform_bias_rescale_qkv(qkv, v.repeat(3), 2)
aten._transform_bias_rescale_qkv(torch.nested.nested_tensor([qkv[0], qkv[1, :2]]), v.repeat(3), 2)
aten._native_multi_head_attention(q, q, q, *heads)
aten._native_multi_head_attention(q, q, q, *heads, None, False)[0]
aten._native_multi_head_attention(q, q, q, *heads, pad, True, True, 1)
aten._native_multi_head_attention(q, q, q, *heads, later, True, False, 0)
aten._native_multi_head_attention(q, q + 1, q + 2, *heads, later[None, None].expand(2, 4, 5, 5), True, True, 2)
aten._native_multi_head_attention(samples_of_q, samples_of_q, samples_of_q, *heads)
aten._transformer_encoder_layer_fwd(q, *heads, False, False, 1e-5, *norms, *ffn)
aten._transformer_encoder_layer_fwd(q, *heads, True, True, 1e-5, *norms, *ffn, pad, 1)
aten._transformer_encoder_layer_fwd(samples_of_q, *heads, True, True, 1e-5, *norms, *ffn)
aten._fused_sdp_choice(image, image, image); aten._fused_sdp_choice(x, x, x)
aten._fused_sdp_choice(image, image, image, None, 0.5)
aten._fused_sdp_choice(image, image, image, image[:, :, :, :5])
aten._fused_sdp_choice(image, image[:1], image)
aten._coalesced(coo, False).is_coalesced(); aten._coalesced_(coo.clone(), False).is_coalesced()
aten._sparse_broadcast_to(coo, [2, 2, 3]); aten._sparse_broadcast_to(coo, [2, 2, 3]).is_coalesced()
aten._sparse_broadcast_to(torch.ones(1, 2, 1).to_sparse(), [2, 3, 2, 4])
aten._sparse_broadcast_to(torch.ones(2, 1, 1).to_sparse(), [2, 3, 4]).is_coalesced()
aten._sparse_broadcast_to(torch.ones(1, 2, 1).to_sparse(2), [3, 2, 4])
aten._sparse_compressed_tensor_unsafe(*index, csr.values(), [2, 3], layout=torch.sparse_csr)
aten._sparse_compressed_tensor_with_dims(0, 1, [2, 4, 3], [1, 2], torch.int32, layout=torch.sparse_bsr).values()
aten._sparse_coo_tensor_with_dims(2, 0, [2, 3], layout=torch.sparse_coo)
aten._sparse_coo_tensor_with_dims(1, 1, [2, 3], layout=torch.sparse_coo, dtype=torch.float64)
aten._sparse_csr_sum(csr, [0], True); aten._sparse_csr_sum(csr, [1], True, dtype=torch.float64)
aten._sparse_csr_sum(csr, [0, 1], True); aten._sparse_csr_prod(csr, [1], True)
aten._sparse_csr_prod(torch.tensor([[1, 2, 3], [0, 0, 0], [0, 1, 1]]).to_sparse_csr(), [0], True)
aten._sparse_csr_sum(torch.tensor([[1, 2, 3], [0, 0, 0], [0, 1, 1]]).to_sparse_csr(), [1], True)
aten._sparse_softmax_backward_data(other, torch.sparse.softmax(coo, 1), 1, coo)
aten._sparse_softmax_backward_data(partly, torch.sparse.softmax(coo, 0), 0, coo)
aten._sparse_log_softmax_backward_data(other, torch.sparse.log_softmax(coo, 1), 1, coo)
aten._sparse_sum_backward(torch.sparse.sum(coo, [0]), coo, [0])
aten._sparse_sum_backward(partly.to_dense()[0].to_sparse(), coo, [0])
aten._sparse_sum_backward(torch.tensor(2.0), coo, [0, 1])
aten._sparse_mask_projection(coo, partly); aten._sparse_mask_projection(coo, partly, True)
aten._sparse_mm_reduce_impl(csr, x, 'sum'); aten._sparse_mm_reduce_impl(csr, x, 'amax')
aten._sparse_mm_reduce_impl_backward(csr, x[:2], x, 'mean', none, [True, True])
aten._sparse_mm_reduce_impl_backward(csr, x[:2], x, 'sum', none, [True, False])
aten._sparse_mm_reduce_impl(csr, x.requires_grad_(), 'amax')[1]
aten._sparse_mm_reduce_impl(csr.requires_grad_(), x, 'amin')[1]
aten._sparse_mm_reduce_impl_backward(csr, x[:2], x, 'amax', torch.tensor([[1] * 4, [3] * 4]), [True, True])
aten.resize_as_sparse(coo, coo); aten.copy_sparse_to_sparse(coo, partly)
aten.copy_sparse_to_sparse_(coo.clone(), partly); aten.sparse_resize(coo, [4, 4], 2, 0)
aten.sparse_resize_and_clear(coo, [4, 4], 2, 0)
aten._validate_compressed_sparse_indices(True, *index, 2, 3, 4)
aten._validate_sparse_csr_tensor_args(*index, csr.values(), [2, 3])
aten._validate_sparse_csc_tensor_args(*index, csr.values(), [3, 2])
aten._validate_sparse_coo_tensor_args(coo._indices(), coo._values(), [2, 3])
aten._validate_sparse_compressed_tensor_args(*index, csr.values(), [2, 3], torch.sparse_csr)
aten._fake_quantize_learnable_per_tensor_affine(x, one / 4, one * 1.2, 0, 7, 2.0)
aten._fake_quantize_learnable_per_tensor_affine_backward(x, x, one / 4, one * 1.2, 0, 7, 2.0)
aten._fake_quantize_learnable_per_channel_affine(x, scales, v, 1, 0, 7, 2.0)
aten._fake_quantize_learnable_per_channel_affine_backward(x, x, scales, v, 1, 0, 7, 2.0)
aten._fused_moving_avg_obs_fq_helper_functional(x, one, one, *observed, 0.1, 0, 255, 0, False, False)
aten._fused_moving_avg_obs_fq_helper_functional(x, one, one, *observed, 0.1, -128, 127, 0, False, True)
aten._fused_moving_avg_obs_fq_helper_functional(x, one, one * 0, *observed, 0.1, 0, 255, 0, False, True)
aten._fused_moving_avg_obs_fq_helper_functional(x, one, one, *[t.repeat(3) for t in observed], 0.1, 0, 15, 0, True, False)
aten._fused_moving_avg_obs_fq_helper(x, one, one, *[t.clone() for t in observed], 0.1, 0, 255, 0)
aten.fused_moving_avg_obs_fake_quant(x, one * 0, one, *[t.clone() for t in observed], 0.1, 0, 255, 0)
aten.fused_moving_avg_obs_fake_quant(x, one, one, *[t[:0].clone() for t in observed], 0.1, 0, 255, 0, True)
aten._choose_qparams_per_tensor(x); aten._choose_qparams_per_tensor(x, True)
aten._choose_qparams_per_tensor(x * 0); aten._choose_qparams_per_tensor(torch.tensor([-1e-6, 2e-6]))
aten.choose_qparams_optimized(torch.linspace(-1, 1, 50)**3, 50, 200, 0.16, 4)
aten.choose_qparams_optimized(torch.linspace(-1, 2, 50)**5, 50, 200, 0.5, 2)
aten._saturate_weight_to_fp16(x * 1e5); aten._rowwise_prune(x, mask[0, :3], torch.int32)
aten._weight_int4pack_mm_for_cpu(x.repeat(1, 8), aten._convert_weight_to_int4pack_for_cpu(codes, 1), 32, torch.linspace(0.1, 1, 64).reshape(1, 32, 2))
aten._dyn_quant_pack_4bit_weight(four.reshape(16, 16), torch.linspace(0.1, 1, 16), v.repeat(4), 32, 32, 16)
aten._dyn_quant_matmul_4bit(x.repeat(1, 8), aten._dyn_quant_pack_4bit_weight(four.reshape(16, 16), torch.linspace(0.1, 1, 16), v.repeat(4), 32, 32, 16), 32, 32, 16)
aten._dyn_quant_matmul_4bit(x.repeat(1, 16), aten._dyn_quant_pack_4bit_weight(four.reshape(8, 32), torch.linspace(0.1, 1, 16).bfloat16(), None, 32, 64, 8), 32, 64, 8)
"""  # noqa: E501
REFUSED = """
aten._ctc_loss(log_probs, labels, [6, 4], [2, 1]); aten._ctc_loss(log_probs, labels, *lengths, 4)
aten._sobol_engine_draw(quasi.int(), 2, state, 3, 3, None)
aten._sobol_engine_draw(quasi, 2, state, 3, 3, torch.int32)
aten._standard_gamma_grad(samples.half(), samples.half())
aten._nested_from_padded(padded, torch.tensor([[2, 3], [5, 3]]))
aten._nested_tensor_from_mask(padded, ~mask)
aten._padded_dense_to_jagged_forward(padded, [torch.tensor([0, 5, 8])], 8)
aten._native_multi_head_attention(q, q[:, :3], q[:, :3], *heads)
aten._native_multi_head_attention(q, q, q, *heads, later)
aten._transformer_encoder_layer_fwd(q[0], *heads, True, True, 1e-5, *norms, *ffn)
aten._sparse_csr_sum(csr, [1], False); aten._sparse_sum_backward(torch.ones(3), coo, [0])
aten._sparse_coo_tensor_with_dims(1, 1, [2, 3])
aten._sparse_compressed_tensor_unsafe(*index, csr.values(), [2, 3])
aten._validate_compressed_sparse_indices(True, index[0] * 2, index[1], 2, 3, 4)
aten._validate_sparse_csr_tensor_args(*index, csr.values(), [3, 3])
aten._validate_sparse_coo_tensor_args(coo._indices(), coo._values(), [2, 2])
aten.fused_moving_avg_obs_fake_quant(x, one, one, *observed, 0.1, 0, 255, 1, True)
aten._rowwise_prune(x, mask[0, :3].int(), torch.int32); aten._saturate_weight_to_fp16(x.double())
aten._convert_weight_to_int4pack_for_cpu(codes[:15], 1)
torch.nn.functional.interpolate(image, 3, mode='lanczos')
torch.nn.functional.interpolate(image, 3, mode='lanczos', antialias=True, align_corners=True)
"""
# Of a function of `t`: gradients with respect to it, beside those of PyTorch.
DERIVED = """
aten._ctc_loss(t, labels, *lengths, 0, True)[0] : log_probs
aten._batch_norm_impl_index(t, v, v, None, None, True, 0.1, 1e-5, False)[0] : image
aten._fake_quantize_learnable_per_tensor_affine(t, one / 4, one, 0, 7, 2.0) : x
aten._fake_quantize_learnable_per_tensor_affine(x, t, one, 0, 7, 2.0) : one / 4
aten._fake_quantize_learnable_per_channel_affine(x, scales, t, 1, 0, 7, 2.0) : v
aten.fused_moving_avg_obs_fake_quant(t, one, one, *[y.clone() for y in observed], 0.1, 0, 255, 0) : x
aten._upsample_lanczos2d_aa(t, [3, 4], False) : image
aten._nested_from_padded(t, torch.tensor([[2, 3], [4, 3]])).to_padded_tensor(0.0) : padded
aten.mkldnn_rnn_layer(t, *lstm, h0, h0, False, [], 2, 4, 1, True, False, False, True)[0] : steps
aten.mkldnn_convolution(image, t, None, [0, 0], [2, 1], [1, 1], 1) : image[:1, :, :2, :2]
aten._sparse_mm_reduce_impl(csr, t, 'sum')[0] : x
"""  # noqa: E501
# Where a sample ends, PyTorch leaves the rest of the alignment's states undefined.
pytestmark = pytest.mark.filterwarnings("ignore")


def flat(value):
    """Tensors and other values of a result, in order; nested and sparse ones as their parts."""
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in flat(part)]
    if not isinstance(value, (torch.Tensor, flambeau.Tensor)):
        return [value]
    layout = str(value.layout).removeprefix("torch.")
    if value.is_nested:
        return [layout, *flat(value.unbind())]
    if layout == "sparse_coo":
        return [layout, tuple(value.shape), value._indices(), value._values()]
    if layout == "sparse_csr":
        index = (value.crow_indices(), value.col_indices())
        return [layout, tuple(value.shape), *index, value.values()]
    return [value]


@pytest.mark.parametrize("call", lines(CALLS))
def test_same_result(call):
    ours, theirs = (flat(eval(call, names_of(m, OPERANDS))) for m in (flambeau, torch))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert str(a.dtype) == str(b.dtype) and tuple(a.shape) == tuple(b.shape)
        assert a.stride() == b.stride()
        # PyTorch's gradient of a Dirichlet sample is an approximation.
        precision = 2e-3 if "_dirichlet_grad" in call or "_gamma_grad" in call else 2e-5
        torch.testing.assert_close(plain(a), b.detach(), rtol=precision, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("call", lines(REFUSED))
def test_same_exception(call):
    kinds = []
    for library in (flambeau, torch):
        with pytest.raises(Exception) as caught:  # noqa: B017, PT011 - the types are compared
            eval(call, names_of(library, OPERANDS))
        kinds.append(caught.type)
    assert issubclass(kinds[0], kinds[1])


@pytest.mark.parametrize("text", DERIVED.strip().splitlines())
def test_same_gradient(text):
    call, _, operand = text.partition(" : ")
    gradients = []
    for library in (flambeau, torch):
        names = names_of(library, OPERANDS)
        names["t"] = eval(operand, names).detach().clone().requires_grad_()
        result = eval(call, names)
        factors = library.linspace(0.5, 1.5, result.numel()).reshape(result.shape)
        (result * factors).sum().backward()
        gradients.append(names["t"].grad)
    torch.testing.assert_close(plain(gradients[0]), gradients[1], rtol=2e-5, atol=2e-5)
