"""How calls of PyTorch's functions that are written in Python appear in a graph.

A function of PyTorch that is written in Python passes its first arguments by position, the others
by name, defaults included. A native one passes the arguments as the caller wrote them. Graphs
reproduce this difference, so that a program's graph has the same text here.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

_NN_FUNCTIONAL = """
_threshold: input threshold value | inplace=False
adaptive_avg_pool2d: input output_size |
adaptive_avg_pool3d: input output_size |
adaptive_max_pool1d: input output_size | return_indices=False
adaptive_max_pool1d_with_indices: input output_size | return_indices=False
adaptive_max_pool2d: input output_size | return_indices=False
adaptive_max_pool2d_with_indices: input output_size | return_indices=False
adaptive_max_pool3d: input output_size | return_indices=False
adaptive_max_pool3d_with_indices: input output_size | return_indices=False
affine_grid: theta size | align_corners=None
alpha_dropout: input | p=0.5 training=False inplace=False
batch_norm: input running_mean running_var | weight=None bias=None training=False momentum=0.1
    eps=1e-05
binary_cross_entropy: input target | weight=None size_average=None reduce=None reduction='mean'
binary_cross_entropy_with_logits: input target | weight=None size_average=None reduce=None
    reduction='mean' pos_weight=None
celu: input | alpha=1.0 inplace=False
cosine_embedding_loss: input1 input2 target | margin=0 size_average=None reduce=None
    reduction='mean'
cross_entropy: input target | weight=None size_average=None ignore_index=-100 reduce=None
    reduction='mean' label_smoothing=0.0
ctc_loss: log_probs targets input_lengths target_lengths | blank=0 reduction='mean'
    zero_infinity=False
dropout1d: input | p=0.5 training=True inplace=False
dropout2d: input | p=0.5 training=True inplace=False
dropout3d: input | p=0.5 training=True inplace=False
dropout: input | p=0.5 training=True inplace=False
elu: input | alpha=1.0 inplace=False
embedding: input weight | padding_idx=None max_norm=None norm_type=2.0 scale_grad_by_freq=False
    sparse=False
embedding_bag: input weight | offsets=None max_norm=None norm_type=2 scale_grad_by_freq=False
    mode='mean' sparse=False per_sample_weights=None include_last_offset=False padding_idx=None
feature_alpha_dropout: input | p=0.5 training=False inplace=False
fold: input output_size kernel_size | dilation=1 padding=0 stride=1
fractional_max_pool2d: input kernel_size | output_size=None output_ratio=None return_indices=False
    _random_samples=None
fractional_max_pool2d_with_indices: input kernel_size | output_size=None output_ratio=None
    return_indices=False _random_samples=None
fractional_max_pool3d: input kernel_size | output_size=None output_ratio=None return_indices=False
    _random_samples=None
fractional_max_pool3d_with_indices: input kernel_size | output_size=None output_ratio=None
    return_indices=False _random_samples=None
gaussian_nll_loss: input target var | full=False eps=1e-06 reduction='mean'
glu: input | dim=-1
grid_sample: input grid | mode='bilinear' padding_mode='zeros' align_corners=None
group_norm: input num_groups | weight=None bias=None eps=1e-05
gumbel_softmax: logits | tau=1 hard=False eps=1e-10 dim=-1
hardsigmoid: input | inplace=False
hardswish: input | inplace=False
hardtanh: input | min_val=-1.0 max_val=1.0 inplace=False
hinge_embedding_loss: input target | margin=1.0 size_average=None reduce=None reduction='mean'
huber_loss: input target | reduction='mean' delta=1.0 weight=None
instance_norm: input | running_mean=None running_var=None weight=None bias=None
    use_input_stats=True momentum=0.1 eps=1e-05
interpolate: input | size=None scale_factor=None mode='nearest' align_corners=None
    recompute_scale_factor=None antialias=False
kl_div: input target | size_average=None reduce=None reduction='mean' log_target=False
l1_loss: input target | size_average=None reduce=None reduction='mean'
layer_norm: input normalized_shape | weight=None bias=None eps=1e-05
leaky_relu: input | negative_slope=0.01 inplace=False
linear_cross_entropy: input linear_weight target | linear_bias=None weight=None reduction='mean'
    ignore_index=None label_smoothing=0.0 options=None
local_response_norm: input size | alpha=0.0001 beta=0.75 k=1.0
log_softmax: input | dim=None _stacklevel=3 dtype=None
lp_pool1d: input norm_type kernel_size | stride=None ceil_mode=False
lp_pool2d: input norm_type kernel_size | stride=None ceil_mode=False
lp_pool3d: input norm_type kernel_size | stride=None ceil_mode=False
margin_ranking_loss: input1 input2 target | margin=0 size_average=None reduce=None
    reduction='mean'
max_pool1d: input kernel_size | stride=None padding=0 dilation=1 ceil_mode=False
    return_indices=False
max_pool1d_with_indices: input kernel_size | stride=None padding=0 dilation=1 ceil_mode=False
    return_indices=False
max_pool2d: input kernel_size | stride=None padding=0 dilation=1 ceil_mode=False
    return_indices=False
max_pool2d_with_indices: input kernel_size | stride=None padding=0 dilation=1 ceil_mode=False
    return_indices=False
max_pool3d: input kernel_size | stride=None padding=0 dilation=1 ceil_mode=False
    return_indices=False
max_pool3d_with_indices: input kernel_size | stride=None padding=0 dilation=1 ceil_mode=False
    return_indices=False
max_unpool1d: input indices kernel_size | stride=None padding=0 output_size=None
max_unpool2d: input indices kernel_size | stride=None padding=0 output_size=None
max_unpool3d: input indices kernel_size | stride=None padding=0 output_size=None
mish: input | inplace=False
mse_loss: input target | size_average=None reduce=None reduction='mean' weight=None
multi_head_attention_forward: query key value embed_dim_to_check num_heads in_proj_weight
    in_proj_bias bias_k bias_v add_zero_attn dropout_p out_proj_weight out_proj_bias |
    training=True key_padding_mask=None need_weights=True attn_mask=None is_causal=False
    use_separate_proj_weight=False q_proj_weight=None k_proj_weight=None v_proj_weight=None
    static_k=None static_v=None average_attn_weights=True
multi_margin_loss: input target | p=1 margin=1.0 weight=None size_average=None reduce=None
    reduction='mean'
multilabel_margin_loss: input target | size_average=None reduce=None reduction='mean'
multilabel_soft_margin_loss: input target | weight=None size_average=None reduce=None
    reduction='mean'
nll_loss: input target | weight=None size_average=None ignore_index=-100 reduce=None
    reduction='mean'
normalize: input | p=2.0 dim=1 eps=1e-12 out=None
pad: input pad | mode='constant' value=None
poisson_nll_loss: input target | log_input=True full=False size_average=None eps=1e-08 reduce=None
    reduction='mean'
relu6: input | inplace=False
relu: input | inplace=False
rms_norm: input normalized_shape | weight=None eps=None
rrelu: input | lower=0.125 upper=0.3333333333333333 training=False inplace=False
selu: input | inplace=False
silu: input | inplace=False
smooth_l1_loss: input target | size_average=None reduce=None reduction='mean' beta=1.0
soft_margin_loss: input target | size_average=None reduce=None reduction='mean'
softmax: input | dim=None _stacklevel=3 dtype=None
softmin: input | dim=None _stacklevel=3 dtype=None
softsign: input |
tanhshrink: input |
triplet_margin_loss: anchor positive negative | margin=1.0 p=2 eps=1e-06 swap=False
    size_average=None reduce=None reduction='mean'
triplet_margin_with_distance_loss: anchor positive negative | distance_function=None margin=1.0
    swap=False reduction='mean'
unfold: input kernel_size | dilation=1 padding=0 stride=1
"""

_FUNCTIONAL = """
atleast_1d: *tensors |
atleast_2d: *tensors |
atleast_3d: *tensors |
block_diag: *tensors |
broadcast_tensors: *tensors |
cartesian_prod: *tensors |
cdist: x1 x2 | p=2.0 compute_mode='use_mm_for_euclid_dist_if_necessary'
chain_matmul: *matrices |
lu: A | pivot=True get_infos=False out=None
meshgrid: *tensors | indexing=None
norm: input | p='fro' dim=None keepdim=False out=None dtype=None
split: tensor split_size_or_sections | dim=0
stft: input n_fft | hop_length=None win_length=None window=None center=True pad_mode='reflect'
    normalized=False onesided=None return_complex=None align_to_window=None
tensordot: a b | dims=2 out=None
unique: input | sorted=True return_inverse=False return_counts=False dim=None
unique_consecutive: input | return_inverse=False return_counts=False dim=None
unravel_index: indices | shape='REQ'
"""

_LOWRANK = """
pca_lowrank: A | q=None center=True niter=2
svd_lowrank: A | q=6 niter=2 M=None
"""

_LOBPCG = """
lobpcg: A | k=None B=None X=None n=None iK=None niter=None tol=None largest=None method=None
    tracker=None ortho_iparams=None ortho_fparams=None ortho_bparams=None
"""

_HOMES = {
    "torch.nn.functional": _NN_FUNCTIONAL,
    "torch.functional": _FUNCTIONAL,
    "torch._lowrank": _LOWRANK,
    "torch._lobpcg": _LOBPCG,
}

_ORDER = {  # where the signature has another order than the recorded arguments
    "torch.nn.functional.l1_loss": ("size_average", "reduce", "reduction", "weight"),
    "torch.nn.functional.multi_head_attention_forward": (
        "training", "key_padding_mask", "need_weights", "attn_mask", "use_separate_proj_weight",
        "q_proj_weight", "k_proj_weight", "v_proj_weight", "static_k", "static_v",
        "average_attn_weights", "is_causal",
    ),
}  # fmt: skip


class Form(NamedTuple):
    """How the arguments of a function are recorded."""

    positional: tuple[str, ...]  # "*tensors" alone: all positional arguments as they are
    named: dict[str, Any]  # with defaults, in the order in which they are recorded
    order: tuple[str, ...]  # of the named ones in the signature


@functools.cache
def forms() -> dict[str, Form]:
    """The functions by PyTorch's name."""
    table = {}
    for home, text in _HOMES.items():
        for line in text.replace("\n    ", " ").strip().splitlines():
            name, _, arguments = line.partition(": ")
            positional, _, named = arguments.partition("|")
            defaults = {}
            for entry in named.split():
                key, _, value = entry.partition("=")
                defaults[key] = ast.literal_eval(value)
            full = f"{home}.{name}"
            order = _ORDER.get(full, tuple(defaults))
            table[full] = Form(tuple(positional.split()), defaults, order)
    return table


def recorded(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call as PyTorch records them.

    Args:
        name: PyTorch's name of the function.
        function: the function, for messages.
        args: positional arguments of the call.
        kwargs: arguments by name.
    """
    form = forms().get(name)
    if form is None:
        return args, kwargs
    if form.positional[0].startswith("*"):
        return args, {**form.named, **kwargs}
    options = dict(kwargs)
    values = list(args[: len(form.positional)])
    for missing in form.positional[len(values) :]:
        if missing not in options:
            raise TypeError(f"{name.rsplit('.', 1)[-1]}() missing argument: {missing!r}")
        values.append(options.pop(missing))
    named = {**form.named, **dict(zip(form.order, args[len(form.positional) :], strict=False))}
    named.update(
        {key: value for key, value in options.items() if key in named or value is not None}
    )
    return tuple(values), named
