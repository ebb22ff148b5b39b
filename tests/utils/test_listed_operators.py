"""`torch.ops.aten` has every name of PyTorch's; those that are not computed have a reason."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.ops import aten

# PyTorch's own CPU build raises for most of them, too; those that it computes are marked with *.
REASONS = {
    "cuDNN, cuFFT, cuSPARSELt": """
        _cslt_compress _cslt_sparse_mm _cslt_sparse_mm_search _cudnn_attention_backward
        _cudnn_attention_forward _cudnn_ctc_loss _cudnn_init_dropout_state _cudnn_rnn
        _cudnn_rnn_backward _cudnn_rnn_flatten_weight _cufft_clear_plan_cache
        _cufft_get_plan_cache_max_size _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size
        _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward _spsolve
        cudnn_affine_grid_generator cudnn_affine_grid_generator_backward cudnn_batch_norm
        cudnn_batch_norm_backward cudnn_convolution cudnn_convolution_add_relu
        cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler
        cudnn_grid_sampler_backward""",
    "CUDA's own kernels, and streams of random numbers on a GPU": """
        _conv_depthwise2d _convert_weight_to_int4pack _efficient_attention_backward
        _efficient_attention_forward _fill_mem_eff_dropout_mask_ _flash_attention_backward
        _flash_attention_forward _flash_attention_forward_no_dropout_inplace _fused_dropout
        _mixed_dtypes_linear _philox_key_fold_in _philox_key_split _philox_normal _philox_normal_
        _philox_uniform _philox_uniform_ _scaled_grouped_mm _scaled_grouped_mm_v2
        _sparse_semi_structured_addmm _sparse_semi_structured_apply
        _sparse_semi_structured_apply_dense _sparse_semi_structured_linear
        _sparse_semi_structured_mm _sparse_semi_structured_tile _to_sparse_semi_structured
        _triton_multi_head_attention _triton_scaled_dot_attention _weight_int4pack_mm
        _weight_int4pack_mm_with_scales_and_zeros batch_norm_backward_elemt
        batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_stats conv_depthwise3d""",
    "MIOpen": """
        miopen_batch_norm miopen_batch_norm_backward miopen_convolution
        miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose
        miopen_ctc_loss miopen_depthwise_convolution miopen_rnn miopen_rnn_backward""",
    "Apple's MPS, XLA": """
        _copy_from _copy_from_and_resize _lstm_mps _mps_convolution _mps_convolution_transpose
        _propagate_xla_data lstm_mps_backward mps_convolution_backward
        mps_convolution_transpose_backward""",
    "other back ends: PyTorch's function raises until a back end replaces it": """
        _scaled_dot_product_fused_attention_overrideable
        _scaled_dot_product_fused_attention_overrideable_backward
        convolution_backward_overrideable convolution_overrideable""",
    "NNPACK, which PyTorch uses on ARM": "_nnpack_spatial_convolution",
    "oneDNN's storage format": """
        _mkldnn_reshape _mkldnn_transpose _mkldnn_transpose_ mkldnn_adaptive_avg_pool2d
        mkldnn_adaptive_avg_pool2d_backward mkldnn_linear mkldnn_linear_backward
        mkldnn_linear_backward_input mkldnn_linear_backward_weights mkldnn_max_pool2d
        mkldnn_max_pool2d_backward mkldnn_max_pool3d mkldnn_max_pool3d_backward
        mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight""",
    "tensors of quantized dtypes *": """
        _empty_affine_quantized _empty_per_channel_affine_quantized
        _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor empty_quantized
        int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
        q_zero_point qscheme quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic
        quantized_batch_norm quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d""",
    "matrices that FBGEMM packed *": """
        _wrapped_linear_prepack _wrapped_quantized_linear_prepacked fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
        fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix quantized_gru
        quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_rnn_relu_cell
        quantized_rnn_tanh_cell""",
    "remote references and distributed autograd": """
        confirmed_by_owner dist_backward get_gradients is_owner local_value owner owner_name
        to_here""",
    "copies of views that PyTorch has no kernel for, or refuses": """
        _fw_primal_copy _make_dual_copy _nested_get_values_copy _nested_view_from_jagged_copy
        _sparse_broadcast_to_copy""",
    "tests of PyTorch's own dispatcher *": """
        _foobar _test_ambiguous_defaults _test_autograd_multiple_dispatch
        _test_autograd_multiple_dispatch_view _test_autograd_multiple_dispatch_view_copy
        _test_check_tensor _test_functorch_fallback _test_optional_filled_intlist
        _test_optional_floatlist _test_optional_intlist _test_parallel_materialize
        _test_serialization_subcmul _test_string_default _test_warn_in_autograd""",
}
inner = torch.ops.aten


def test_every_name_resolves():
    names = dir(inner)
    assert len(names) == 1730
    assert all(getattr(inner, name).overloads() for name in names)


def test_what_is_not_computed_has_a_reason():
    names = [name for text in REASONS.values() for name in text.split()]
    assert len(names) == len(set(names))
    absent = {name for name in dir(inner) if aten.is_absent(getattr(inner, name))}
    assert absent == set(names)


def test_absent_operators_say_so():
    with pytest.raises(NotImplementedError, match=r"\[aten._foobar\]"):
        inner._foobar(torch.ones(1))


def test_public_names_of_the_compiler():
    assert {"compile", "reset", "disable", "is_compiling"} <= set(dir(torch.compiler))
    assert "compile" in dir(torch._inductor) and "reset" in dir(torch._dynamo)


# ------------------------------------------------------------------------------ alignment
def _alignment(**options):
    x = torch.linspace(-1, 1, 40).reshape(5, 2, 4).log_softmax(2)
    targets = torch.tensor([[1, 2], [3, 3]])
    return inner._ctc_loss(x.requires_grad_(), targets, [5, 2], [2, 2], **options), x, targets


def test_alignment_loss_is_the_public_one():
    (losses, alpha), x, targets = _alignment()
    public = torch.nn.functional.ctc_loss(x, targets, (5, 2), (2, 2), reduction="none")
    assert torch.equal(losses, public) and losses[1].isinf()
    assert alpha.shape == (2, 5, 5) and alpha.is_contiguous()


def test_alignment_loss_that_is_infinite_has_no_gradient():
    (losses, _), x, _ = _alignment(zero_infinity=True)
    assert losses[1].isinf()
    (grad,) = torch.autograd.grad(losses[0] + losses[1], x)
    assert torch.isfinite(grad).all() and (grad[:, 1] == 0).all()


def test_gradient_of_the_alignment_loss_is_that_of_the_tape():
    (losses, alpha), x, targets = _alignment()
    (expected,) = torch.autograd.grad(losses[0], x)
    arguments = (x.detach(), targets, [5, 2], [2, 2], losses.detach(), alpha.detach(), 0)
    grad = inner._ctc_loss_backward(torch.tensor([1.0, 0.0]), *arguments)
    assert torch.equal(grad[:, 0], expected[:, 0]) and not grad.requires_grad


# ------------------------------------------------------------------------------ samples
def test_points_continue_a_sequence():
    engine = torch.quasirandom.SobolEngine(3, scramble=True, seed=5)
    first, following = engine.draw(3), engine.draw(4)
    state, start = engine.sobolstate, engine.shift.clone()
    points, last = inner._sobol_engine_draw(start, 6, state, 3, 0, None)
    assert torch.equal(points, torch.cat([first, following])[1:]) and torch.equal(
        last, engine.quasi
    )
    assert torch.equal(inner._sobol_engine_ff_(start, 6, state, 3, 0), engine.quasi)


def test_direction_numbers_are_those_of_the_engine():
    zeros = torch.zeros(4, 30, dtype=torch.int64)
    assert inner._sobol_engine_initialize_state_(zeros, 4) is zeros
    assert torch.equal(zeros, torch.quasirandom.SobolEngine(4).sobolstate)
    eye = torch.zeros(4, 30, 30, dtype=torch.int64)
    assert torch.equal(inner._sobol_engine_scramble_(zeros.clone(), eye, 4), zeros)
    with pytest.raises(RuntimeError, match="Long"):
        inner._sobol_engine_initialize_state_(torch.zeros(4, 30), 4)


def _slopes(ppf, probability, shapes, *others, step=1e-5):
    """Derivatives of quantiles by the shape."""
    ends = [[ppf(probability, a * (1 + e), *others) for a in shapes] for e in (step, -step)]
    slopes = [(high - low) / (2 * a * step) for high, low, a in zip(*ends, shapes, strict=True)]
    return torch.tensor(slopes, dtype=torch.float64)


def test_derivatives_of_samples_are_those_of_quantiles():
    stats = pytest.importorskip("scipy.stats")
    shapes = [0.05, 0.3, 1.0, 4.0, 60.0]
    for probability in (0.03, 0.4, 0.9):
        samples = [stats.gamma.ppf(probability, a) for a in shapes]
        expected = _slopes(stats.gamma.ppf, probability, shapes)
        a, x = (torch.tensor(v, dtype=torch.float64) for v in (shapes, samples))
        ours = inner._standard_gamma_grad(a, x)
        torch.testing.assert_close(ours, expected, rtol=2e-4, atol=0)


@pytest.mark.parametrize("other", [0.2, 1.0, 7.5, 300.0])
def test_derivatives_of_dirichlet_samples_are_those_of_quantiles(other):
    stats = pytest.importorskip("scipy.stats")
    shapes = [0.2, 1.0, 4.0, 60.0]
    for probability in (0.03, 0.4, 0.9):
        samples = [stats.beta.ppf(probability, a, other) for a in shapes]
        expected = _slopes(stats.beta.ppf, probability, shapes, other)
        a, x = (torch.tensor(v, dtype=torch.float64) for v in (shapes, samples))
        ours = inner._dirichlet_grad(x, a, a + other) * (1 - x)
        torch.testing.assert_close(ours, expected, rtol=2e-4, atol=0)


# ------------------------------------------------------------------------------ nested tensors
def test_nested_tensors_of_dense_ones():
    dense = torch.arange(24.0).reshape(2, 4, 3).requires_grad_()
    sizes = torch.tensor([[2, 3], [4, 3]])
    nested = inner._nested_from_padded(dense, sizes)
    assert torch.equal(nested.unbind()[0], dense[0, :2])
    assert torch.equal(inner._nested_tensor_size(nested), sizes)
    strides, offsets = inner._nested_compute_contiguous_strides_offsets(sizes)
    again = inner._nested_view_from_buffer(nested.values(), sizes, strides, offsets)
    assert torch.equal(again.unbind()[1], dense[1])
    again.values().sum().backward()
    assert dense.grad[0, 2:].sum() == 0 and dense.grad.sum() == 18
    with pytest.raises(RuntimeError, match="does not fit"):
        inner._nested_from_padded(dense, torch.tensor([[5, 3], [1, 3]]))


def test_jagged_tensors_and_their_dense_form():
    offsets = torch.tensor([0, 3, 5])
    values = torch.arange(10.0).reshape(5, 2)
    dummy = inner._nested_get_jagged_dummy(torch.ones(1))
    nested = inner._nested_view_from_jagged(values, offsets, dummy)
    assert inner._nested_get_values(nested) is values
    assert inner._nested_get_max_seqlen(nested).shape == (3, 0)
    dense = inner._jagged_to_padded_dense_forward(values, [offsets], [4], -1.0)
    assert dense.shape == (2, 4, 2) and (dense[1, 2:] == -1).all()
    assert torch.equal(inner._padded_dense_to_jagged_forward(dense, [offsets], 5), values)
    with pytest.raises(RuntimeError, match="length 3"):
        inner._padded_dense_to_jagged_forward(dense[:, :2], [offsets], 5)


# ------------------------------------------------------------------------------ attention
def _weights(width):
    torch.manual_seed(3)
    shapes = [(3 * width, width), (3 * width,), (width, width), (width,)]
    return [torch.randn(shape) / 4 for shape in shapes]


def test_nested_attention_is_that_of_the_samples():
    rows, weights = torch.randn(2, 5, 16), _weights(16)
    nested = torch.nested.nested_tensor([rows[0], rows[1, :3]])
    result, _ = inner._native_multi_head_attention(
        nested, nested, nested, 16, 4, *weights, None, False
    )
    for sample in (rows[:1], rows[1:, :3]):
        alone, _ = inner._native_multi_head_attention(sample, sample, sample, 16, 4, *weights)
        part = result.unbind()[0 if sample.shape[1] == 5 else 1]
        torch.testing.assert_close(part, alone[0])


def test_encoder_layer_is_the_module():
    module = torch.nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=True)
    x, attention = torch.randn(2, 5, 16), module.self_attn
    norms = [p for n in (module.norm1, module.norm2) for p in (n.weight, n.bias)]
    linears = [p for n in (module.linear1, module.linear2) for p in (n.weight, n.bias)]
    own = (attention.in_proj_weight, attention.in_proj_bias, *attention.out_proj.parameters())
    layer = inner._transformer_encoder_layer_fwd
    result = layer(x, 16, 4, *own, False, True, 1e-5, *norms, *linears)
    torch.testing.assert_close(result, module(x))
    result.sum().backward()
    assert attention.in_proj_weight.grad is not None


# ------------------------------------------------------------------------------ quantization
def test_learned_scales_get_gradients():
    x = torch.linspace(-2, 3, 12).reshape(3, 4)
    scale, point = torch.full((4,), 0.25).requires_grad_(), torch.ones(4, requires_grad=True)
    result = inner._fake_quantize_learnable_per_channel_affine(x, scale, point, 1, 0, 7, 2.0)
    result.sum().backward()
    backward = inner._fake_quantize_learnable_per_channel_affine_backward
    _, by_scale, by_point = backward(torch.ones(3, 4), x, scale, point, 1, 0, 7, 2.0)
    assert torch.equal(scale.grad, by_scale) and torch.equal(point.grad, by_point)


def test_weights_of_four_bits():
    torch.manual_seed(0)
    codes = torch.randint(0, 16, (32, 64), dtype=torch.int32)
    packed = inner._convert_weight_to_int4pack_for_cpu(codes, 1)
    assert packed.shape == (32, 32) and packed.dtype is torch.uint8
    parameters, x = torch.rand(2, 32, 2), torch.randn(3, 64)
    scale, zero = parameters.transpose(0, 1).repeat_interleave(32, 1).unbind(-1)
    expected = x @ ((codes - 8) * scale + zero).mT
    product = inner._weight_int4pack_mm_for_cpu(x, packed, 32, parameters)
    torch.testing.assert_close(product, expected)


# ------------------------------------------------------------------------------ gradients
def test_gradients_of_plain_tensors_require_none():
    x = torch.linspace(-2, 3, 4)
    assert not inner.silu_backward(x, x).requires_grad
    assert inner.silu_backward(x, x.clone().requires_grad_()).requires_grad


def test_gradients_carry_tangents():
    x, grad = torch.linspace(-2, 3, 4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    _, tangent = torch.func.jvp(lambda x: inner.silu_backward(grad, x), (x,), (grad,))
    numeric = (inner.silu_backward(grad, x + 1e-6) - inner.silu_backward(grad, x - 1e-6)) / 2e-6
    torch.testing.assert_close(tangent, numeric, rtol=1e-6, atol=1e-8)


def test_gates_of_fused_cells():
    torch.manual_seed(1)
    gates, hidden, hx = (torch.randn(3, n, dtype=torch.float64) for n in (6, 6, 2))
    operands = [x.requires_grad_() for x in (gates, hidden, hx)]
    result, workspace = inner._thnn_fused_gru_cell(*operands)
    assert workspace.shape == (3, 10)
    grad = torch.randn(3, 2, dtype=torch.float64)
    expected = torch.autograd.grad(result, operands, grad)
    ours = inner._thnn_fused_gru_cell_backward(grad, workspace.detach(), True)
    for one, other in zip(ours[:3], expected, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(ours[3], expected[0].sum(0))
