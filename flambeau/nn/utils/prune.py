"""Pruning: parameters some of whose elements are held at zero by a mask (LeCun et al. 1990).

A pruned parameter `weight` becomes `weight_orig`, which is learnt, and a buffer `weight_mask`; the
attribute `weight` is their product, computed anew before each forward pass.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.nn.messages import problem
from flambeau.nn.parameter import Parameter

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


def _hooks_of(module: Any, name: str) -> list[tuple[int, BasePruningMethod]]:
    """Pruning methods of one parameter, with the keys of their hooks."""
    return [
        (key, hook)
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
    ]


class BasePruningMethod(ABC):
    """How a mask is computed; an instance is the forward pre-hook of a pruned module.

    Subclasses define `compute_mask` and `PRUNING_TYPE`: "unstructured" (single elements),
    "structured" (whole slices) or "global".
    """

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        """Sets the pruned parameter anew."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """A mask of the shape of `t`, which is zero where `default_mask` is."""

    def apply_mask(self, module: Any) -> Any:
        """The parameter times its mask."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            text = f"Module {module} has to be pruned"
            raise AssertionError(problem("prune", text, "call apply first"))
        original = getattr(module, name + "_orig")
        return getattr(module, name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prunes a parameter; one that is pruned already gets both masks.

        Args:
            module: has the parameter.
            name: of the parameter.
            args, kwargs: of the constructor.
            importance_scores: decide instead of the values; of the same shape.
        """
        earlier = _hooks_of(module, name)
        if len(earlier) > 1:
            text = f"Avoid adding multiple pruning hooks to the same tensor {name} of {module}"
            raise AssertionError(problem("prune", text, "use a PruningContainer"))
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        if earlier:
            key, old = earlier[0]
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            del module._forward_pre_hooks[key]
            method = container
        tensor = getattr(module, name + "_orig") if earlier else getattr(module, name)
        scores = tensor if importance_scores is None else importance_scores
        if scores.shape != tensor.shape:
            text = "importance_scores should have the same shape as parameter "
            raise AssertionError(problem("prune", f"{text}{name} of {module}", "pass such scores"))
        mask = getattr(module, name + "_mask") if earlier else torch.ones_like(tensor)
        mask = method.compute_mask(scores, default_mask=mask)
        if not earlier:
            if not isinstance(tensor, Parameter):
                tensor = Parameter(tensor)
            module.register_parameter(name + "_orig", tensor)
            del module._parameters[name]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A pruned copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            text = "importance_scores should have the same shape as tensor t"
            raise AssertionError(problem("prune", text, "pass such scores"))
        mask = torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Any) -> None:
        """Makes the pruned values the parameter again."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            text = f"Module {module} has to be pruned before pruning can be removed"
            raise AssertionError(problem("prune", text, "call apply first"))
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter: each prunes what those before it left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
            self.add_pruning_method(args[0])
            return
        methods = tuple(args[0]) if len(args) == 1 else args
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Adds a method of the same parameter.

        Raises:
            TypeError: no method.
            ValueError: of another parameter.
        """
        if method is not None and not isinstance(method, BasePruningMethod):
            text = f"{type(method)} is not a BasePruningMethod subclass"
            raise TypeError(problem("prune", text, "pass a pruning method"))
        name = getattr(self, "_tensor_name", None)
        if method is not None and name is not None and name != method._tensor_name:
            text = f"Can only add pruning methods acting on the parameter named '{name}' to "
            text += f"PruningContainer {self}. Found '{method._tensor_name}'"
            raise ValueError(problem("prune", text, "use a container per parameter"))
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of the last method, applied to what is not pruned yet."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            axis = method.dim + t.dim() if method.dim < 0 else method.dim
            others = [d for d in range(t.dim()) if d != axis]
            left = tuple([slice(None)] * axis + [mask.sum(dim=others) != 0])
        elif method.PRUNING_TYPE == "global":
            left = tuple([slice(None)] * t.dim())
        else:
            text = f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}"
            raise ValueError(problem("prune", text, "unstructured, structured or global"))
        partial = method.compute_mask(t[left], default_mask=mask[left])
        result = mask.clone()
        result[left] = partial.to(dtype=mask.dtype)
        return result


class Identity(BasePruningMethod):
    """Prunes nothing: gives a parameter a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random: a number of them, or a fraction between 0 and 1."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero at elements with the largest random numbers."""
        count = _checked_count(self.amount, t.nelement())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[torch.topk(torch.rand_like(t).view(-1), k=count).indices] = 0
        return mask


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of smallest magnitude: a number of them, or a fraction."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero at the smallest magnitudes."""
        count = _checked_count(self.amount, t.nelement())
        mask = default_mask.clone()
        if count:
            smallest = torch.topk(torch.abs(t).view(-1), k=count, largest=False).indices
            mask.view(-1)[smallest] = 0
        return mask


class RandomStructured(BasePruningMethod):
    """Prunes slices along one dimension at random: a number of them, or a fraction."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero in slices with the smallest random numbers."""
        _check_structured(t, self.dim)
        channels = t.shape[self.dim]
        count = _checked_count(self.amount, channels)
        if not count:
            return default_mask
        drawn = torch.rand(channels)
        kept = drawn > torch.kthvalue(drawn, k=count).values
        return _slices(t, self.dim, kept) * default_mask.to(dtype=t.dtype)


class LnStructured(BasePruningMethod):
    """Prunes the slices along one dimension whose norm is smallest.

    Args:
        amount: a number of slices, or a fraction.
        n: of the norm: a number, "fro" or "nuc".
        dim: the dimension.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Any) -> Any:
        """Zero in slices of the smallest norm."""
        _check_structured(t, self.dim)
        channels = t.shape[self.dim]
        count = _checked_count(self.amount, channels)
        if not count:
            return default_mask
        axis = self.dim + t.dim() if self.dim < 0 else self.dim
        norms = torch.norm(t, p=self.n, dim=[d for d in range(t.dim()) if d != axis])
        kept = torch.zeros(channels, dtype=torch.bool)
        kept[torch.topk(norms, k=channels - count, largest=True).indices] = True
        return _slices(t, self.dim, kept) * default_mask.to(dtype=t.dtype)

    @classmethod
    def apply(  # type: ignore[override]
        cls,
        module: Any,
        name: str,
        amount: Any,
        n: Any,
        dim: int,
        importance_scores: Any = None,
    ) -> Any:
        """Prunes a parameter, see `BasePruningMethod.apply`."""
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Any) -> Any:
        """Both masks."""
        if default_mask.shape != self.mask.shape:
            text = f"masks of shapes {tuple(default_mask.shape)} and {tuple(self.mask.shape)}"
            raise AssertionError(problem("prune", text, "pass a mask of the parameter's shape"))
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def _check_amount(amount: Any) -> None:
    hint = "a float between 0 and 1, or a number of elements"
    if not isinstance(amount, numbers.Real):
        raise TypeError(problem("prune", f"Invalid type for amount: {amount}", hint))
    whole = isinstance(amount, numbers.Integral)
    if amount < 0 or (not whole and amount > 1.0):
        text = f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
        raise ValueError(problem("prune", text + "integer", hint))


def _checked_count(amount: Any, size: int) -> int:
    """How many of `size` are pruned."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if amount > size:
        text = f"amount={amount} should be smaller than the number of parameters to prune={size}"
        raise ValueError(problem("prune", text, "prune fewer"))
    return int(amount)


def _check_structured(t: Tensor, dim: int) -> None:
    if t.dim() <= 1:
        text = "Structured pruning can only be applied to multidimensional tensors. Found tensor "
        text += f"of shape {tuple(t.shape)} with {t.dim()} dims"
        raise ValueError(problem("prune", text, "use an unstructured method"))
    if dim >= t.dim():
        text = f"Invalid index {dim} for tensor of size {tuple(t.shape)}"
        raise IndexError(problem("prune", text, "an existing dimension"))


def _slices(t: Tensor, dim: int, kept: Any) -> Any:
    """A mask of the shape of `t` that is one in some slices."""
    shape = [1] * t.dim()
    shape[dim] = -1
    return kept.to(t.dtype).view(shape).expand_as(t)


def identity(module: Any, name: str) -> Any:
    """Gives a parameter a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes random elements of a parameter; returns the module.

    Example:
        >>> m = random_unstructured(torch.nn.Linear(2, 3), "weight", amount=1)
        >>> int(m.weight_mask.sum())
        5
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prunes the elements of smallest magnitude (or score); returns the module."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes random slices along `dim`; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Any:
    """Prunes the slices along `dim` of smallest n-norm; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prunes where a mask is zero; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prunes several parameters as if they were one.

    Args:
        parameters: pairs (module, name).
        pruning_method: an unstructured method.
        importance_scores: (module, name) to scores that decide instead of the values.
        kwargs: of the method, `amount` above all.

    Raises:
        TypeError: other types, or a method that is not unstructured.
    """
    if not isinstance(parameters, Iterable):
        text = "global_unstructured(): parameters is not an Iterable"
        raise TypeError(problem("prune", text, "pass pairs (module, name)"))
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        text = "global_unstructured(): importance_scores must be of type dict"
        raise TypeError(problem("prune", text, "pass (module, name) to scores"))
    pairs = list(parameters)
    tensors = [scores.get((m, n), getattr(m, n)) for m, n in pairs]
    masks = [getattr(m, n + "_mask", torch.ones_like(getattr(m, n))) for m, n in pairs]
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        text = 'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
        text += f"{pruning_method} of type {method.PRUNING_TYPE}"
        raise TypeError(problem("prune", text, "L1Unstructured, say"))
    container = PruningContainer(method)
    mask = container.compute_mask(
        torch.cat([tensor.detach().reshape(-1) for tensor in tensors]),
        torch.cat([mask.reshape(-1) for mask in masks]),
    )
    begin = 0
    for module, name in pairs:
        parameter = getattr(module, name)
        end = begin + parameter.numel()
        custom_from_mask(module, name, mask=mask[begin:end].view_as(parameter))
        begin = end


def is_pruned(module: Any) -> bool:
    """Whether a module, or one inside of it, has a pruned parameter."""
    hooks = (hook for part in module.modules() for hook in part._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)


def remove(module: Any, name: str) -> Any:
    """Makes the pruned values of a parameter the parameter; returns the module.

    Raises:
        ValueError: it is not pruned.
    """
    hooks = _hooks_of(module, name)
    if not hooks:
        text = f"Parameter '{name}' of module {module} has to be pruned before pruning can be "
        raise ValueError(problem("prune", text + "removed", "see is_pruned"))
    key, method = hooks[0]
    method.remove(module)
    del module._forward_pre_hooks[key]
    return module
