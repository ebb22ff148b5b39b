"""`torch._refs.nn.functional`: references of functions of layers."""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.references import names_among, reference

_UPSTREAM = """
    alpha_dropout celu celu_ channel_shuffle dropout elu elu_ gelu glu group_norm hardshrink
    hardtanh hinge_embedding_loss huber_loss l1_loss layer_norm leaky_relu log_softmax
    margin_ranking_loss mish mish_ mse_loss nll_loss pairwise_distance pdist
    poisson_nll_loss prelu relu relu6 selu selu_ smooth_l1_loss softmax softmin softplus
    softshrink tanhshrink threshold threshold_ triplet_margin_loss
""".split()

__all__ = names_among(_UPSTREAM, "nn.functional")


def __getattr__(name: str) -> Any:
    """The reference of an operator."""
    return reference(__name__, name, __all__, "nn.functional")
