"""Transforms: invertible functions of tensors with the logarithm of their Jacobian determinant.

>>> t = ComposeTransform([ExpTransform(), AffineTransform(1.0, 2.0)])
>>> t(torch.tensor(0.0)), t.inv(torch.tensor(3.0))
(tensor(3.), tensor(0.))
"""

from flambeau.distributions.basic_transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    _clipped_sigmoid,  # noqa: F401 - PyTorch's own name
    _InverseTransform,  # noqa: F401 - PyTorch's own name
    identity_transform,
)
from flambeau.distributions.matrix_transforms import (
    CatTransform,
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
