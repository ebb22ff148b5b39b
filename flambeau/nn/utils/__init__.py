"""Helpers around modules: gradient clipping, packed sequences, parametrizations."""

from flambeau.nn.utils import parametrizations, parametrize, rnn, stateless
from flambeau.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from flambeau.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from flambeau.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from flambeau.nn.utils.init import skip_init
from flambeau.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from flambeau.nn.utils.normed import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from flambeau.runtime import missing as _missing

# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__, submodules=("prune",))
