"""`Fuzzer`: random parameters and tensors for benchmarks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as torch
from flambeau.ir.failure import failure

__all__ = ["FuzzedParameter", "FuzzedTensor", "Fuzzer", "ParameterAlias"]


class ParameterAlias:
    """A value of a distribution that refers to another parameter's value."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedParameter:
    """A random parameter.

    Args:
        name: of the parameter.
        minval, maxval: bounds, both included.
        distribution: "uniform", "loguniform", or values to probabilities.
        strict: values between the bounds are not rounded up to existing ones.

    Raises:
        ValueError, AssertionError: bounds missing, another distribution, probabilities that do not
            sum to one.
    """

    def __init__(
        self,
        name: str,
        minval: float | None = None,
        maxval: float | None = None,
        distribution: str | dict[Any, float] | None = None,
        strict: bool = False,
    ) -> None:
        self._name, self._minval, self._maxval = name, minval, maxval
        self.strict = strict
        if isinstance(distribution, dict):
            if not math.isclose(sum(distribution.values()), 1, abs_tol=1e-6):
                raise AssertionError("Distribution is not normalized")
        elif distribution not in ("uniform", "loguniform"):
            raise AssertionError(f"Unknown distribution: {distribution}")
        elif minval is None or maxval is None:
            raise ValueError("Numerical bounds must be set")
        self._distribution: Any = distribution

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self._name

    def sample(self, state: Any) -> Any:
        """A value, by a NumPy `RandomState`."""
        if isinstance(self._distribution, dict):
            values = list(self._distribution)
            index = state.choice(len(values), p=list(self._distribution.values()))
            return values[int(index)]
        low, high = self._minval, self._maxval
        assert low is not None and high is not None
        integral = isinstance(low, int) and isinstance(high, int)
        if self._distribution == "loguniform":
            value = float(2 ** state.uniform(low=math.log2(low), high=math.log2(high)))
            return round(value) if integral else value
        if integral:
            return int(state.randint(low=low, high=high + 1))
        return float(state.uniform(low=low, high=high))


class FuzzedTensor:
    """A random tensor, perhaps a view with gaps or with permuted dimensions.

    Args:
        name: of the tensor.
        size: numbers or names of parameters.
        steps: of slices, likewise.
        probability_contiguous: of a tensor without permuted dimensions.
        min_elements, max_elements, max_allocation_bytes: bounds; other draws are dropped.
        dim_parameter: names the number of dimensions, which cuts `size`.
        roll_parameter: names by how much dimensions are rotated.
        dtype: of the tensor.
        cuda: not supported.
        tensor_constructor: makes the tensor of size and dtype.
    """

    def __init__(
        self,
        name: str,
        size: tuple[str | int, ...],
        steps: tuple[str | int, ...] | None = None,
        probability_contiguous: float = 0.5,
        min_elements: int | None = None,
        max_elements: int | None = None,
        max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None,
        roll_parameter: str | None = None,
        dtype: Any = torch.float32,
        cuda: bool = False,
        tensor_constructor: Callable[..., Any] | None = None,
    ) -> None:
        if cuda:
            raise failure(AssertionError, "FuzzedTensor", "no CUDA devices", "cuda=False")
        self._name, self._size, self._steps = name, size, steps
        self._probability_contiguous = probability_contiguous
        self._min_elements, self._max_elements = min_elements, max_elements
        self._max_allocation_bytes = max_allocation_bytes
        self._dim_parameter, self._roll_parameter = dim_parameter, roll_parameter
        self._dtype = dtype
        self._tensor_constructor = tensor_constructor

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self._name

    @staticmethod
    def default_tensor_constructor(size: Any, dtype: Any, **kwargs: Any) -> Any:
        """Normal numbers, or integers below 127."""
        if dtype.is_floating_point or dtype.is_complex:
            return torch.rand(size=size, dtype=dtype)
        return torch.randint(1, 127, size=size, dtype=dtype)

    def _sizes(self, params: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and steps of the slices."""
        dims = params[self._dim_parameter] if self._dim_parameter else len(self._size)

        def resolved(values: tuple[Any, ...]) -> tuple[int, ...]:
            sizes = [params.get(v, v) if isinstance(v, str) else v for v in values[:dims]]
            return tuple(int(v) for v in sizes + [1] * (dims - len(sizes)))

        return resolved(self._size), resolved(self._steps or ())

    def _make_tensor(self, params: dict[str, Any], state: Any) -> Any:
        size, steps = self._sizes(params)
        allocation = tuple(n * step for n, step in zip(size, steps, strict=True))
        make = self._tensor_constructor or self.default_tensor_constructor
        dims = len(size)
        raw = make(size=allocation, dtype=self._dtype, **params)
        order = tuple(range(dims))
        if dims > 1 and state.rand() > self._probability_contiguous:
            order = tuple(int(i) for i in state.permutation(dims))
            raw = make(size=tuple(allocation[i] for i in order), dtype=self._dtype, **params)
            inverse = [order.index(i) for i in range(dims)]
            raw = raw.permute(inverse)
        if self._roll_parameter is not None:
            shift = params[self._roll_parameter] % dims
            raw = raw.permute(tuple((i + shift) % dims for i in range(dims)))
        view = raw[tuple(slice(None, None, step) for step in steps)]
        properties = {
            "numel": int(view.numel()),
            "order": order,
            "steps": steps,
            "is_contiguous": view.is_contiguous(),
            "dtype": str(self._dtype),
        }
        return view, properties

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        """Whether a draw is within the bounds."""
        size, steps = self._sizes(params)
        elements = math.prod(size)
        stored = math.prod(n * step for n, step in zip(size, steps, strict=True))
        small = self._min_elements is not None and elements < self._min_elements
        large = self._max_elements is not None and elements > self._max_elements
        limit = self._max_allocation_bytes
        heavy = limit is not None and stored * self._dtype.itemsize > limit
        return not (small or large or heavy)


class Fuzzer:
    """Draws parameters and tensors.

    Args:
        parameters: `FuzzedParameter`s, or lists of them.
        tensors: `FuzzedTensor`s, or lists of them.
        constraints: functions of the parameters; draws for which one is false are dropped.
        seed: of the draws.

    Raises:
        ValueError: a name occurs twice.
    """

    def __init__(
        self,
        parameters: list[Any],
        tensors: list[Any],
        constraints: list[Callable[..., bool]] | None = None,
        seed: int | None = None,
    ) -> None:
        import numpy

        seed = int(numpy.random.RandomState().randint(0, 2**32 - 1, dtype=numpy.int64)) if (
            seed is None
        ) else seed  # fmt: skip
        self._seed = seed
        self._parameters = self._unpacked(parameters, FuzzedParameter)
        self._tensors = self._unpacked(tensors, FuzzedTensor)
        self._constraints = constraints or ()
        names = [each.name for each in (*self._parameters, *self._tensors)]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"Duplicate names: {sorted(repeated)}")
        self._rejections = self._draws = 0

    @staticmethod
    def _unpacked(values: list[Any], kind: type) -> tuple[Any, ...]:
        lists = [v if isinstance(v, (list, tuple)) else [v] for v in values]
        return tuple(each for one in lists for each in one if isinstance(each, kind))

    @property
    def rejection_rate(self) -> float:
        """Share of the draws that were dropped."""
        return self._rejections / self._draws if self._draws else 0.0

    def _parameters_of(self, state: Any) -> dict[str, Any]:
        while True:
            self._draws += 1
            params = {p.name: p.sample(state) for p in self._parameters}
            for name, value in params.items():
                while isinstance(value, ParameterAlias):
                    value = params[value.alias_to]
                params[name] = value
            fits = all(constraint(**params) for constraint in self._constraints)
            if fits and all(tensor.satisfies_constraints(params) for tensor in self._tensors):
                return params
            self._rejections += 1

    def take(self, n: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """`n` draws: tensors, their properties, parameters."""
        import numpy

        state = numpy.random.RandomState(self._seed)
        torch.manual_seed(int(state.randint(low=0, high=2**63, dtype=numpy.int64)))
        for _ in range(n):
            params = self._parameters_of(state)
            fuzzed = {t.name: t._make_tensor(params, state) for t in self._tensors}
            tensors = {name: value for name, (value, _) in fuzzed.items()}
            properties = {name: value for name, (_, value) in fuzzed.items()}
            yield tensors, properties, params
