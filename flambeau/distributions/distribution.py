"""`Distribution`: shapes, checks of parameters and samples, and what follows from `log_prob`."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import flambeau as torch
from flambeau import Size, Tensor
from flambeau.distributions import constraints
from flambeau.distributions.utils import inherit_docs, is_tensor_like, lazy_property
from flambeau.ir.failure import failure

__all__ = ["Distribution"]


class Distribution:
    """Base of the distributions.

    Args:
        batch_shape: shape of the parameters: independent distributions, not identical ones.
        event_shape: shape of one sample of one of them.
        validate_args: check parameters and samples; None: as `set_default_validate_args` says.

    Raises:
        ValueError: a parameter outside `arg_constraints`.

    Example:
        >>> coins = torch.distributions.Bernoulli(torch.tensor([0.2, 0.5]))
        >>> coins.batch_shape, coins.event_shape, coins.sample((3,)).shape
        (torch.Size([2]), torch.Size([]), torch.Size([3, 2]))
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args: bool = __debug__
    # Attributes of the batch's shape, which `expand` expands; None: the class has its own expand.
    _parameters: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls) -> None:
        inherit_docs(cls)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check parameters and samples.

        Raises:
            ValueError: no bool.
        """
        if value not in (True, False):
            raise ValueError(f"[set_default_validate_args] expected a bool, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            arguments = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = "
                "{}` or initialize the distribution with `validate_args=False` to turn off "
                "validation.",
                stacklevel=4,
            )
            return
        for name, constraint in arguments.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (lazy and name not in vars(self)):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"[{type(self).__name__}] Expected parameter {name} ({type(value).__name__} of "
                    f"shape {tuple(value.shape)}) of distribution {self!r} to satisfy the "
                    f"constraint {constraint!r}, but found invalid values:\n{value}\n"
                    "hint: validate_args=False turns the check off"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded to another batch shape.

        Example:
            >>> torch.distributions.Normal(0.0, 1.0).expand((2,)).batch_shape
            torch.Size([2])
        """
        owner = next(
            (c for c in type(self).__mro__ if vars(c).get("_parameters") is not None), None
        )
        if owner is None:
            raise NotImplementedError(f"[{type(self).__name__}] has no expand")
        new = self._get_checked_instance(owner, _instance)
        shape = Size(batch_shape)
        for name in owner._parameters:
            if name in vars(self):
                setattr(new, name, vars(self)[name].expand(shape))
        return self._finish(new, owner, shape)

    def _finish(self, new: Any, owner: Any, batch_shape: Any, event_shape: Any = None) -> Any:
        """Ends an `expand`: shapes without a second check of the parameters."""
        event = self.event_shape if event_shape is None else event_shape
        Distribution.__init__(new, batch_shape, event, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Size:
        """Shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """Shape of a single sample."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """Names of the parameters with their constraints."""
        raise NotImplementedError(f"[{type(self).__name__}] has no arg_constraints")

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError(f"[{type(self).__name__}] has no support")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"[{type(self).__name__}] has no mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"[{type(self).__name__}] does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"[{type(self).__name__}] has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Samples of shape `sample_shape + batch_shape + event_shape`, without gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples that are differentiable functions of the parameters.

        Raises:
            NotImplementedError: `has_rsample` is False.
        """
        problem = "has no reparameterized samples"
        raise failure(NotImplementedError, f"{type(self).__name__}", problem, "use sample()")

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`, deprecated."""
        warnings.warn(
            "sample_n(n) will be deprecated. Use .sample((n,)) instead.", UserWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability at `value`.

        Raises:
            ValueError: a value outside the support, if arguments are validated.
        """
        raise NotImplementedError(f"[{type(self).__name__}] has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a sample of at most `value`."""
        raise NotImplementedError(f"[{type(self).__name__}] has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile: the inverse of `cdf`."""
        raise NotImplementedError(f"[{type(self).__name__}] has no icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension.

        Args:
            expand: repeat them over the batch; else the batch dimensions are 1.
        """
        raise NotImplementedError(f"[{type(self).__name__}] has no enumerate_support")

    def entropy(self) -> Tensor:
        """The (differential) entropy in nats."""
        raise NotImplementedError(f"[{type(self).__name__}] has no entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return torch.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        if not isinstance(sample_shape, Size):
            sample_shape = Size(sample_shape)
        return Size(sample_shape + self._batch_shape + self._event_shape)

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Values of a scalar event, shaped for `enumerate_support`."""
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    def _validate_sample(self, value: Any) -> None:
        name = type(self).__name__
        if not is_tensor_like(value):
            problem = f"the value argument to log_prob must be a Tensor, got {type(value).__name__}"
            raise failure(ValueError, name, problem, "torch.as_tensor(value)")
        start = len(value.size()) - len(self._event_shape)
        if value.size()[max(start, 0) :] != self._event_shape:
            raise ValueError(
                f"[{name}] the rightmost dimensions of the value must be the event shape: "
                f"{tuple(value.size())} against {tuple(self._event_shape)}"
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.size()), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"[{name}] the value does not broadcast with batch and event shape: "
                    f"{tuple(value.size())} against {tuple(expected)}"
                )
        self._check_support(value)

    def _check_support(self, value: Tensor) -> None:
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"[{type(self).__name__}] Expected value argument ({type(value).__name__} of shape "
                f"{tuple(value.shape)}) to be within the support ({support!r}) of the distribution "
                f"{self!r}, but found invalid values:\n{value}\n"
                "hint: validate_args=False turns the check off"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"[{type(self).__name__}] has an __init__ of its own, and so needs its own expand()"
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        own = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        shown = (f"{n}: {p if p.numel() == 1 else p.size()}" for n, p in own.items())
        return f"{type(self).__name__}({', '.join(shown)})"
