"""Kullback-Leibler divergences: the integral of p log(p / q), in closed form by pair of classes.

Exponential families: Nielsen and Nock 2010; beta, gamma, Dirichlet: Penny 2001; others follow
from E_p[log p] - E_p[log q].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions.distribution import Distribution

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}
_KL_MEMOIZE: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for `kl_divergence` of two classes; a decorator.

    The closest registered pair of base classes is called.

    Raises:
        TypeError: no class of distributions.

    Example:
        >>> class Point(Distribution): ...
        >>> @register_kl(Point, Point)
        ... def points(p, q):
        ...     return torch.tensor(0.0)
    """
    for each in (type_p, type_q):
        if not isinstance(each, type):  # not only subclasses: Pyro has a base class of its own
            raise TypeError(f"[register_kl] expected a Distribution class, got {each!r}")

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return enter


def _dispatch(type_p: type, type_q: type) -> Any:
    """The function of the closest pair of base classes, or NotImplemented."""
    pairs = [
        (type_p.__mro__.index(p), type_q.__mro__.index(q), p, q)
        for p, q in _KL_REGISTRY
        if issubclass(type_p, p) and issubclass(type_q, q)
    ]
    if not pairs:
        return NotImplemented
    left = min(pairs, key=lambda pair: (pair[0], pair[1]))
    right = min(pairs, key=lambda pair: (pair[1], pair[0]))
    first, second = _KL_REGISTRY[left[2:]], _KL_REGISTRY[right[2:]]
    if first is not second:
        names = f"{left[2].__name__}, {left[3].__name__}"
        others = f"{right[2].__name__}, {right[3].__name__}"
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({names}) or ({others})",
            RuntimeWarning,
            stacklevel=3,
        )
    return first


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), of the batch shape.

    Raises:
        NotImplementedError: no function is registered for the pair.

    Example:
        >>> from flambeau.distributions import Normal
        >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
        tensor(0.5000)
    """
    pair = type(p), type(q)
    if pair not in _KL_MEMOIZE:
        _KL_MEMOIZE[pair] = _dispatch(*pair)
    function = _KL_MEMOIZE[pair]
    if function is NotImplemented:
        raise NotImplementedError(
            f"[kl_divergence] no KL({pair[0].__name__} || {pair[1].__name__}) is registered\n"
            "hint: register_kl adds one; or average p.log_prob(x) - q.log_prob(x) over samples"
        )
    return function(p, q)


def infinite_like(tensor: Tensor) -> Tensor:
    """Infinities in the shape of a tensor.

    Example:
        >>> infinite_like(torch.ones(1))
        tensor([inf])
    """
    return torch.full_like(tensor, torch.inf)
