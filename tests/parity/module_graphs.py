"""Calls of common layers and operators, as text, whose graphs are compared with PyTorch's.

Each is an expression of `torch`, `nn`, `F`, `index` (of classes) and its operands x, y, z, w.
"""

from __future__ import annotations

from typing import Any

A, B, V = (3, 4), (3, 4), (3,)
IMAGE = (1, 2, 8, 8)

CASES: dict[str, tuple[tuple[int, ...], ...]] = {
    # products
    "nn.Linear(4, 5)(x)": (A,),
    "nn.Linear(4, 5, bias=False)(x)": (A,),
    "nn.Linear(4, 5, bias=False)(x).sum()": ((2, 3, 4),),
    "nn.Linear(4, 5)(x).mean()": ((2, 3, 4),),
    "F.linear(x, y, z)": ((4,), (5, 4), (5,)),
    "F.linear(x.transpose(0, 1), y, z)": ((3, 2, 4), (5, 4), (5,)),
    "x @ y": (A, (4, 5)),
    "torch.matmul(x, y)": ((2, 3, 4), (2, 4, 5)),
    "torch.matmul(x, y) * 1": ((2, 3, 4), (4, 5)),
    "torch.matmul(x, y) + 1": (A, (4,)),
    "torch.matmul(x, y) / 1": ((4,), (4,)),
    "torch.matmul(x, y) - 1": ((4,), (4, 5)),
    "torch.matmul(x, y) ** 2": ((2, 3, 4), (2, 2, 4, 5)),
    "torch.bmm(x, y)": ((2, 3, 4), (2, 4, 5)),
    "torch.baddbmm(x, y, z)": ((2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "torch.addmm(x, y, z)": ((5,), (3, 4), (4, 5)),
    "torch.outer(x, y)": ((3,), (4,)),
    # convolutions and images
    "nn.Conv1d(2, 3, 3)(x)": ((1, 2, 8),),
    "nn.Conv2d(2, 3, 3)(x)": (IMAGE,),
    "nn.Conv2d(2, 3, 3)(x[0])": (IMAGE,),
    "nn.Conv3d(2, 3, 3)(x)": ((1, 2, 5, 5, 5),),
    "nn.Conv2d(2, 3, 3, padding='same')(x)": (IMAGE,),
    "nn.Conv2d(2, 3, 4, padding='same')(x)": (IMAGE,),
    "nn.ConvTranspose2d(2, 3, 3)(x)": (IMAGE,),
    "nn.MaxPool2d(2)(x)": (IMAGE,),
    "nn.MaxPool1d(2)(x)": ((1, 2, 4),),
    "nn.AvgPool2d(2)(x)": (IMAGE,),
    "nn.AvgPool1d(2)(x)": ((1, 2, 4),),
    "nn.AdaptiveAvgPool2d(1)(x)": (IMAGE,),
    "nn.AdaptiveAvgPool2d(2)(x)": (IMAGE,),
    "nn.Upsample(scale_factor=2)(x)": (IMAGE,),
    "nn.Upsample(scale_factor=2, mode='bilinear')(x)": (IMAGE,),
    "nn.ZeroPad2d(1)(x)": (IMAGE,),
    "nn.ReflectionPad2d(1)(x)": (IMAGE,),
    "nn.Unfold(2)(x)": (IMAGE,),
    "nn.PixelShuffle(2)(x)": ((1, 4, 2, 2),),
    "nn.ChannelShuffle(2)(x)": ((1, 4, 2, 2),),
    # norms
    "nn.BatchNorm1d(4)(x)": (A,),
    "nn.BatchNorm2d(2)(x)": (IMAGE,),
    "nn.BatchNorm2d(2).eval()(x)": (IMAGE,),
    "nn.LayerNorm(4)(x)": (A,),
    "nn.GroupNorm(2, 4)(x)": ((3, 4, 5),),
    "nn.InstanceNorm2d(2)(x)": (IMAGE,),
    "nn.RMSNorm(4)(x)": (A,),
    "nn.LocalResponseNorm(2)(x)": ((1, 4, 5, 5),),
    "F.normalize(x)": (A,),
    # activations
    "nn.ReLU()(x)": (A,),
    "F.relu(x * 2, inplace=True)": (A,),
    "nn.GELU()(x)": (A,),
    "nn.SiLU()(x)": (A,),
    "nn.Sigmoid()(x)": (A,),
    "nn.Tanh()(x)": (A,),
    "nn.LeakyReLU()(x)": (A,),
    "nn.ELU()(x)": (A,),
    "nn.SELU()(x)": (A,),
    "nn.CELU()(x)": (A,),
    "nn.Hardtanh()(x)": (A,),
    "nn.ReLU6()(x)": (A,),
    "nn.Hardswish()(x)": (A,),
    "nn.Hardsigmoid()(x)": (A,),
    "nn.Mish()(x)": (A,),
    "nn.Softplus()(x)": (A,),
    "nn.Softsign()(x)": (A,),
    "nn.Softshrink()(x)": (A,),
    "nn.Hardshrink()(x)": (A,),
    "nn.Tanhshrink()(x)": (A,),
    "nn.LogSigmoid()(x)": (A,),
    "nn.Threshold(0.1, 2.0)(x)": (A,),
    "nn.PReLU()(x)": (A,),
    "nn.GLU()(x)": (A,),
    "nn.Softmax(1)(x)": (A,),
    "nn.LogSoftmax(1)(x)": (A,),
    "F.softmax(x, 1, dtype=torch.float64)": (A,),
    "F.softmin(x, 1)": (A,),
    "F.dropout(x, 0.5)": (A,),
    # look-ups, attention, recurrence
    "F.embedding(index, x)": ((5, 3),),
    "F.scaled_dot_product_attention(x, y, z)": ((1, 2, 3, 4),) * 3,
    "F.scaled_dot_product_attention(x, y, z, is_causal=True)": ((1, 2, 3, 4),) * 3,
    "nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)(x)": ((2, 3, 4),),
    "nn.LSTMCell(3, 4)(x)": ((2, 3),),
    "nn.GRUCell(3, 4)(x)": ((2, 3),),
    "nn.RNNCell(3, 4)(x)": ((2, 3),),
    "nn.LSTM(3, 4)(x)[0]": ((2, 1, 3),),
    "nn.MultiheadAttention(4, 2)(x, x, x)[0]": ((3, 2, 4),),
    # losses
    "F.cross_entropy(x, index)": (A,),
    "F.cross_entropy(x, index, label_smoothing=0.1)": (A,),
    "F.cross_entropy(x, torch.ones(3, 4))": (A,),
    "F.cross_entropy(x, torch.zeros(1, 2, 2).long())": ((1, 3, 2, 2),),
    "F.nll_loss(x, index)": (A,),
    "F.mse_loss(x, y)": (A, B),
    "F.l1_loss(x, y)": (A, B),
    "F.smooth_l1_loss(x, y)": (A, B),
    "F.huber_loss(x, y)": (A, B),
    "F.binary_cross_entropy(x.sigmoid(), torch.ones(3, 4))": (A,),
    "F.binary_cross_entropy_with_logits(x, torch.ones(3, 4))": (A,),
    "F.kl_div(x, torch.ones(3, 4), reduction='batchmean')": (A,),
    "F.cosine_embedding_loss(x, y, torch.ones(3))": (A, B),
    "F.triplet_margin_loss(x, y, z)": (A, A, A),
    "F.margin_ranking_loss(x, y, torch.ones(3))": (V, V),
    "F.cosine_similarity(x, y)": (A, B),
    "F.pairwise_distance(x, y)": (A, B),
    # element by element
    "x + y": (A, (4,)),
    "x - y": (A, B),
    "x * y": (A, B),
    "x / y": (A, B),
    "x * 2": (A,),
    "x + 1": (A,),
    "1 - x": (A,),
    "1 / x": (A,),
    "2 ** x": (A,),
    "x ** 2": (A,),
    "x ** y": (A, B),
    "-x": (A,),
    "x.exp() + x.abs().log() + x.abs().sqrt()": (A,),
    "x.clamp(0, 1)": (A,),
    "x.clamp(min=0)": (A,),
    "torch.max(x, y)": (A, B),
    "torch.where(x > 0, x, y)": (A, B),
    "x.masked_fill(x > 0, 0.0)": (A,),
    "torch.lerp(x, y, 0.3)": (A, B),
    "torch.addcmul(x, y, z)": (A, A, A),
    "(x * 1).add_(1)": (A,),
    "(x * 1).mul_(y)": (A, B),
    # reductions
    "x.sum()": (A,),
    "x.sum(1)": (A,),
    "x.mean()": (A,),
    "x.mean(1, keepdim=True)": (A,),
    "x.var(1)": (A,),
    "x.std()": (A,),
    "x.norm()": (A,),
    "torch.linalg.vector_norm(x, dim=1)": (A,),
    "x.max()": (A,),
    "x.max(1)[0]": (A,),
    "x.amax(1)": (A,),
    "x.prod(1)": (A,),
    "x.cumsum(1)": (A,),
    "x.logsumexp(1)": (A,),
    "x.median(1)[0]": (A,),
    # layouts, parts, joins
    "x.view(4, 3)": (A,),
    "x.t().reshape(-1)": (A,),
    "x.flatten(1)": ((2, 3, 4),),
    "x.permute(1, 0)": (A,),
    "x.transpose(0, 1)": (A,),
    "x.T": (A,),
    "x.mT": (A,),
    "x.t().contiguous()": (A,),
    "x.unsqueeze(0).squeeze(0)": (V,),
    "x.expand(2, 3)": (V,),
    "x.repeat(2, 1)": (A,),
    "x.flip(0)": (A,),
    "x.roll(1)": (A,),
    "x.tril()": ((3, 3),),
    "x.diagonal()": ((3, 3),),
    "torch.diag(x)": (V,),
    "x.double()": (A,),
    "x.bfloat16().float()": (A,),
    "x.clone()": (A,),
    "torch.cat([x, y], 1)": (A, (3, 2)),
    "torch.stack([x, y])": (A, B),
    "torch.hstack([x, y])": (V, V),
    "torch.vstack([x, y])": (V, V),
    "x.split(2, 1)": (A,),
    "x.split([1, 3], 1)": (A,),
    "x.chunk(2, 1)": (A,),
    "x.unbind(0)": (A,),
    "torch.tensor_split(x, 2)": (A,),
    "torch.broadcast_tensors(x, y)": (V, (2, 1)),
    "torch.meshgrid(x, y, indexing='ij')": ((2,), (3,)),
    "x[1]": (A,),
    "x[:, 1:]": (A,),
    "x[1:, 0, None]": (A,),
    "x[index]": (A,),
    "x[x > 0]": (A,),
    "x.gather(1, index[:, None])": (A,),
    "x.index_select(0, index)": (A,),
    "x.topk(2)[0]": (A,),
    "x.sort()[0]": (A,),
    "torch.zeros(3, 4).copy_(x)": (A,),
}

# What differs, and why.
KNOWN: dict[str, str] = {
    "nn.LSTM(3, 4)(x)[0]": "a layer's steps are one Function here; PyTorch calls oneDNN's layer",
    "nn.MultiheadAttention(4, 2)(x, x, x)[0]": "heads are products of four dimensions here",
}


LAYER = "a layer's steps are one operator here; PyTorch composes them, or calls oneDNN's layer"
SEEN_OTHERWISE: dict[str, str] = {
    "nn.LSTM(3, 4)(x)[0]": LAYER,
    "nn.LSTMCell(3, 4)(x)": LAYER,
    "nn.GRUCell(3, 4)(x)": LAYER,
    "nn.RNNCell(3, 4)(x)": LAYER,
    "nn.MultiheadAttention(4, 2)(x, x, x)[0]": KNOWN["nn.MultiheadAttention(4, 2)(x, x, x)[0]"],
    "nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)(x)": (
        "query, key and value are parts of one product here, not copies of them"
    ),
    "x.prod(1)": "its gradient is one operator here",
    "x ** y": "its gradient is one operator here",
    "torch.matmul(x, y) ** 2": "one batch is transposed to see whether it folds there",
}

# Entries of the operator database, by prefix, whose graphs differ, and why.
OTHERWISE = ""
# transforms, norms and products of matrices are one operator each here
OTHERWISE += """
stft matrix_exp einsum svd svd_lowrank pca_lowrank normal kron inner tensordot logdet norm.nuc
fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn fft.ifft
fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.fftshift
fft.ifftshift linalg.vecdot linalg.cond linalg.matrix_power linalg.multi_dot linalg.norm
linalg.norm.subgradients_at_zero linalg.matrix_norm linalg.vander linalg.tensorinv
linalg.tensorsolve
"""
# masked, sparse and nested tensors are composed of other operators here
OTHERWISE += """
sparse.sampled_addmm sparse.mm.reduce to_sparse masked.sum masked.amax masked.amin masked.mean
masked.var masked.std masked.normalize
"""
# steps of pooling, resampling and attention share one program here
OTHERWISE += """
nn.functional.linear_cross_entropy nn.functional.linear_cross_entropy.chunked
nn.functional.linear_cross_entropy.chunked_none _native_batch_norm_legit _batch_norm_with_update
nn.functional.cosine_similarity nn.functional.adaptive_avg_pool1d
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
nn.functional.adaptive_max_pool3d nn.functional.instance_norm nn.functional.local_response_norm
nn.functional.pad.circular nn.functional.interpolate.area _upsample_bilinear2d_aa
nn.functional.multilabel_soft_margin_loss nn.functional.fractional_max_pool2d
nn.functional.fractional_max_pool3d nn.functional.max_unpool1d nn.functional.max_unpool1d.grad
nn.functional.max_unpool2d nn.functional.max_unpool2d.grad nn.functional.max_unpool3d
nn.functional.max_unpool3d.grad nn.functional.bilinear nn.functional.rrelu
torch.ops.aten._safe_softmax.default nn.functional.scaled_dot_product_attention
nn.functional.triplet_margin_with_distance_loss native_dropout_backward nn.functional.dropout2d
nn.functional.dropout3d nn.functional.feature_alpha_dropout.with_train
nn.functional.multi_head_attention_forward nn.functional.grid_sample grid_sampler_2d
grid_sampler_3d nn.functional.ctc_loss nn.functional.cosine_embedding_loss
nn.functional.gaussian_nll_loss nn.functional.hinge_embedding_loss
nn.functional.poisson_nll_loss
"""
# statistics and others that PyTorch composes of many operators are one here
OTHERWISE += """
combinations cartesian_prod cholesky sum_to_size conj_physical corrcoef cov diff gradient
meshgrid.variadic_tensors meshgrid.list_of_tensors quantile nanquantile as_strided_scatter
as_strided_copy
nextafter round.decimals_0 __rdiv__ __rsub__ ravel bfloat16 double float half cdouble cfloat
chalf squeeze.multiple squeeze_copy trapz trapezoid cumulative_trapezoid nanmean
repeat_interleave special.ndtr
"""


def run(expression: str, library: Any, operands: list[Any]) -> Any:
    """The value of an expression in one of the libraries."""
    scope = dict(zip("xyzw", operands, strict=False))
    scope |= {"torch": library, "nn": library.nn, "F": library.nn.functional}
    scope["index"] = library.tensor([0, 1, 2])
    return eval(expression, scope)


def split(expression: str) -> tuple[str, str]:
    """A layer and its call: ("nn.Linear(4, 5)", "w(x)"); "None" where there is no layer."""
    if not expression.startswith("nn."):
        return "None", expression
    end = expression.index(")(") + 1
    return expression[:end], "w" + expression[end:]
