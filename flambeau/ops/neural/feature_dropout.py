"""Dropout of whole channels, and the kinds that keep mean and variance (alpha dropout).

A channel's mask is one draw for (N, C, 1, ...), as PyTorch's generator makes it (docs/random.md).
Sources: Tompson et al. 2015 (channels), Klambauer et al. 2017 (alpha).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core import install
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language.definition import function, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Generator, Scalar, Tensor
from flambeau.ops.neural.embedding import keep_mask, random_dropout
from flambeau.ops.random.random import drawn_like

_F = "nn.functional"
# -scale * alpha of SELU: what a dropped element becomes.
_SATURATION = 1.7580993408473766


def _noise_shape(x: Node, features: bool) -> tuple[Size, ...]:
    return (*x.shape[:2], *[1] * (x.ndim - 2)) if features else x.shape


@op(
    name="_feature_dropout",
    where="private",
    promote="keep",
    layout="follow",
    inplace=True,
    runtime="p",
    samples=lambda: [sample(T(2, 3, 4), 0.5)],
    pointwise=False,
)
def random_feature_dropout(input: Tensor, p: Scalar, generator: Generator | None = None) -> Tensor:
    """Each channel zeroed with probability p, the others divided by 1 - p (0 < p < 1)."""
    like = prims.full(0.0, _noise_shape(input, True), input.dtype)
    return input * keep_mask(like, p, generator)


@op(
    name="_alpha_dropout",
    where="private",
    promote="keep",
    layout="follow",
    inplace=True,
    runtime="p",
    samples=lambda: [sample(T(2, 3, 4), 0.5, False)],
)
def random_alpha_dropout(
    input: Tensor, p: Scalar, features: bool, generator: Generator | None = None
) -> Tensor:
    """Elements (or channels) set to SELU's saturation, then scaled and shifted back."""
    share = prims.cast(p, "f64") if isinstance(p, Node) else prims.full(p, (), "f64")
    keep_probability = 1.0 - share
    if features:
        shape = _noise_shape(input, features)
        noise = prims.random("bernoulli", shape, input.dtype, keep_probability, generator=generator)
    else:
        noise = drawn_like(input, "bernoulli", keep_probability, generator=generator, dense=True)
    spread = (share * (_SATURATION * _SATURATION) + 1.0) * keep_probability
    scale = 1.0 / prims.sqrt(spread)
    slope = prims.constant(scale * _SATURATION, noise)
    shift = (noise - 1.0) * slope + prims.constant(scale * _SATURATION * share, noise)
    return input * (noise * prims.constant(scale, noise)) + shift


def _checked(name: str, p: float, error: type[Exception] = ValueError) -> None:
    if not 0.0 <= p <= 1.0:
        problem = f"dropout probability has to be between 0 and 1, but got {p}"
        raise failure(error, name, problem, "0 <= p <= 1")


def _applied(x: Any, p: float, training: bool, inplace: bool, draw: Any, *arguments: Any) -> Any:
    """The result of a random op, or what p = 0 and p = 1 mean without a draw."""
    if not training or p == 0.0 or x.numel() == 0:
        return x
    if p == 1.0:
        nothing = x.new_zeros(())
        return x.mul_(nothing) if inplace else x * nothing
    return install.INPLACE[f"{draw.name}_"](x, p, *arguments) if inplace else draw(x, p, *arguments)


def _check_channels(name: str, x: Any, p: float, training: bool) -> None:
    if training and 0.0 < p and x.numel() and x.ndim < 2:
        problem = "Feature dropout requires at least 2 dimensions in the input"
        raise failure(RuntimeError, name, problem, "(N, C, *)")


def _samples(rank: int) -> Any:
    def make() -> Iterator[Sample]:
        yield sample(T(2, 3, *[4] * (rank - 2)), 0.5, True)
        yield sample(T(2, 3, *[4] * (rank - 2)), 0.5, False)

    return make


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2, 3, 4), 1.5, True), ValueError, "between 0 and 1")


_CHANNELS = "Tensor input, float p=0.5, bool training=True, bool inplace=False"


_TEXT = """Zeroes whole channels with probability p, scales the rest by 1 / (1 - p).

    Shape: `(N, C, *)` with {count} spatial dimension(s){others}.

    Args:
        training: the input itself is returned when False.
        inplace: writes into the input.

    Raises:
        ValueError: p is not in [0, 1].

    Example:
        >>> nn.functional.{name}(torch.ones({sizes}), 1.0).sum()
        tensor(0.)
    """


def _define(count: int) -> None:
    name = f"dropout{count}d"

    def body(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        _checked(name, p)
        rank = input.ndim
        if rank < 2:
            problem = f"Feature dropout requires at least 2 dimensions in the input, got {rank}"
            raise failure(RuntimeError, name, problem, "(N, C, *)")
        if rank not in (count + 1, count + 2):
            warnings.warn(
                f"[{name}] Received a {rank}-D input, which is not recommended. hint: "
                f"({'N, ' * (rank > count + 1)}C, *) with {count} spatial dimension(s)",
                stacklevel=2,
            )
        # A 3-D input of dropout2d is read as (N, C, L), as PyTorch does.
        batched = rank != count + 1 or count == 2
        x = input if batched else input.unsqueeze(0)
        result = _applied(x, p, training, inplace, random_feature_dropout)
        if inplace:
            return input
        return result if batched else result.squeeze(0)

    body.__name__ = name
    others = ", or `(C, *)`" if count != 2 else "; a 3-D input is (N, C, L)"
    sizes = ", ".join("2" * (count + 2))
    body.__doc__ = _TEXT.format(name=name, count=count, others=others, sizes=sizes)
    op(
        f"{name}({_CHANNELS}) -> Tensor",
        where=_F,
        host=True,
        samples=_samples(count + 2),
        errors=_errors,
    )(body)


for _count in (1, 2, 3):
    _define(_count)

_ALPHA = "Tensor input, float p=0.5, bool training=False, bool inplace=False"


@function(where=_F, samples=_samples(3), errors=_errors)
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """Dropout that keeps mean 0 and variance 1 of SELU activations.

    Source: Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Shape: any.

    Raises:
        ValueError: p is not in [0, 1].

    Example:
        >>> F.alpha_dropout(torch.ones(2), training=False)
        tensor([1., 1.])
    """
    _checked("alpha_dropout", p)
    return _applied(input, p, training, inplace, random_alpha_dropout, False)


@function(where=_F, samples=_samples(3), errors=_errors)
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """`alpha_dropout` of whole channels.

    Shape: `(N, C, *)`.

    Raises:
        ValueError: p is not in [0, 1].
        RuntimeError: fewer than 2 dimensions, in training.

    Example:
        >>> F.feature_alpha_dropout(torch.ones(1, 2, 3), training=False).shape
        torch.Size([1, 2, 3])
    """
    _checked("feature_alpha_dropout", p)
    _check_channels("feature_alpha_dropout", input, p, training)
    return _applied(input, p, training, inplace, random_alpha_dropout, True)


# ------------------------------------------------------------------------ PyTorch's inner forms

_INNER_TEXT = """{what}, scaled to keep the expectation, where `train`.

    Shape: {shape} -> the same; floating dtypes.

    Args:
        p: the probability.
        train: the input itself is returned when False.

    Raises:
        RuntimeError: p is not in [0, 1]{more}.

    Example:
        >>> torch.{name}(torch.ones(1, 2), 1.0, True)
        tensor([[0., 0.]])
    """
# what it draws, with which arguments, what it does.
_INNER: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "dropout": (random_dropout, (), "Zeroes elements with probability p"),
    "feature_dropout": (random_feature_dropout, (), "Zeroes whole channels with probability p"),
    "alpha_dropout": (random_alpha_dropout, (False,), "Saturates elements with probability p"),
    "feature_alpha_dropout": (
        random_alpha_dropout,
        (True,),
        "Saturates whole channels with probability p",
    ),
}


def _inner_samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 4), 0.5, True)
    yield sample(T(2, 3, 4), 0.5, False)
    yield sample(T(2, 3), 1.0, True)
    yield sample(T(0, 3), 0.5, True)


def _inner_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2, 3, 4), 1.5, True), RuntimeError, "between 0 and 1")
    yield ErrorSample(sample(T(2, 3), -0.5, False), RuntimeError, "between 0 and 1")


def _define_inner(name: str, inplace: bool) -> None:
    draw, arguments, what = _INNER[name]
    public = name + "_" * inplace

    def body(input: Any, p: float, train: bool) -> Any:
        _checked(public, p, RuntimeError)
        if name.startswith("feature"):
            _check_channels(public, input, p, train)
        return _applied(input, p, train, inplace, draw, *arguments)

    body.__name__ = public
    body.__doc__ = _INNER_TEXT.format(
        what=what + ", in place" * inplace,
        shape="`(N, C, *)`" if name.startswith("feature") else "any",
        more=", or there are no channels" if name.startswith("feature") else "",
        name=public,
    )
    first = "Tensor! self" if inplace else "Tensor input"
    op(
        f"{public}({first}, float p, bool train) -> Tensor",
        where="torch",
        host=True,
        samples=_inner_samples,
        errors=_inner_errors,
    )(body)


for _name in _INNER:
    _define_inner(_name, False)
    _define_inner(_name, True)
