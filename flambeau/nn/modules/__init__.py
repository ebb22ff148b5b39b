"""The layers, a module per family; `Module` itself is in `module`."""

from flambeau.nn.modules import (
    activation,
    adaptive,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    lazy,
    linear,
    linear_cross_entropy,
    loss,
    module,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
    utils,
)

_FAMILIES = (
    activation, adaptive, batchnorm, channelshuffle, container, conv, distance, dropout, flatten,
    fold, instancenorm, linear, linear_cross_entropy, loss, normalization, padding, pixelshuffle,
    pooling, rnn, sparse, transformer, upsampling,
)  # fmt: skip
Module = module.Module

__all__ = ["Module"]
for _family in _FAMILIES:
    for _name in _family.__all__:
        globals()[_name] = getattr(_family, _name)
    __all__ += _family.__all__
# PyTorch defines the class in `loss`.
loss.LinearCrossEntropyLoss = linear_cross_entropy.LinearCrossEntropyLoss
