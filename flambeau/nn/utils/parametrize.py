"""Parametrizations: a parameter that is computed from others, each time it is read.

The module gets a class of its own with a property in place of the tensor; what is learnt lives in
`module.parametrizations.<name>.original` (`original0`, ... when there are several).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau._core import Tensor
from flambeau.autograd import no_grad
from flambeau.nn.messages import problem
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip


class _Cache:
    """Values computed inside `cached()`."""

    depth = 0
    values: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside the block each parametrized tensor is computed only once."""
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values = {}


def _check_same(before: Tensor, after: Any, unsafe: bool) -> None:
    if unsafe:
        return
    for name in ("dtype", "shape"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            text = (
                "Registering a parametrization may not change the "
                f"{name} of the tensor, unless `unsafe` flag is enabled.\n"
                f"unparametrized {name}: {old}\nparametrized {name}: {new}"
            )
            raise ValueError(problem("register_parametrization", text, "unsafe=True"))


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and what they start from.

    Args:
        modules: the parametrizations.
        original: the tensor they replace.
        unsafe: do not check that dtype and shape stay.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Any], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            text = "ParametrizationList requires one or more modules."
            raise ValueError(problem("ParametrizationList", text, "give at least one"))
        super().__init__(modules)
        self.unsafe = unsafe
        start = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        start = module.right_inverse(start)
                    except NotImplementedError:  # the parameter starts as the value itself
                        continue
        if not isinstance(start, (Tensor, Sequence)):
            text = "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...)."
            raise ValueError(problem("ParametrizationList", text, f"Got {type(start).__name__}"))
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if self.is_tensor else len(start)
        if self.is_tensor:
            self._keep("original", original if start is original else start, original)
        else:
            for position, part in enumerate(start):
                self._keep(f"original{position}", part, original)
        if not unsafe:
            with no_grad():
                _check_same(original, self(), unsafe)

    def _keep(self, name: str, tensor: Any, original: Tensor) -> None:
        if isinstance(original, Parameter):
            if not isinstance(tensor, Parameter):
                tensor = Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())
            tensor.requires_grad_(original.requires_grad)
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)

    def _originals(self) -> tuple[Any, ...]:
        if self.is_tensor:
            return (self.original,)
        return tuple(getattr(self, f"original{i}") for i in range(self.ntensors))

    def right_inverse(self, value: Any) -> None:
        """Changes what is learnt so that the computed tensor becomes `value`.

        Raises:
            RuntimeError: a parametrization has no `right_inverse`.
        """
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    text = f"parametrization {type(module).__name__} does not implement "
                    text += "right_inverse."
                    raise RuntimeError(problem("right_inverse", text, "define it"))
                value = module.right_inverse(value)
            for target, part in zip(self._originals(), (value,) if self.is_tensor else value):
                target.set_(part) if target.shape != part.shape else target.copy_(part)

    def forward(self) -> Any:
        """The computed tensor."""
        modules = list(self)
        value = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value


def _inject_class(module: Any) -> None:
    """Gives the module a class of its own, in which properties can be defined."""
    cls = type(module)

    def default_deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        replica = self.__new__(self.__class__)
        memo[id(self)] = replica
        replica.__dict__ = copy.deepcopy(self.__dict__, memo)
        return replica

    def getstate(self: Any) -> Any:
        text = "Serialization of parametrized modules is only supported through state_dict()."
        raise RuntimeError(problem("pickle", text, "torch.save(module.state_dict(), ...)"))

    members: dict[str, Any] = {"__getstate__": getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = default_deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Any, tensor_name: str) -> None:
    def compute(self: Any) -> Any:
        return self.parametrizations[tensor_name]()

    def get(self: Any) -> Any:
        if not _Cache.depth:
            return compute(self)
        key = (id(self), tensor_name)
        if key not in _Cache.values:
            _Cache.values[key] = compute(self)
        return _Cache.values[key]

    def change(self: Any, value: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, change))


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Makes a parameter or buffer the result of `parametrization(original)`.

    Args:
        module: whose tensor.
        tensor_name: which one.
        parametrization: a module; with `right_inverse(value)` the tensor keeps its value.
        unsafe: do not check that dtype and shape stay.

    Raises:
        ValueError: there is no such tensor, or dtype or shape change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        text = (
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
        raise ValueError(problem("register_parametrization", text, "see named_parameters()"))
    return module


def _append(module: Any, tensor_name: str, parametrization: Any, unsafe: bool) -> None:
    """One more parametrization of a tensor that has some."""
    known = module.parametrizations[tensor_name]
    if not unsafe:
        with no_grad():
            value = getattr(module, tensor_name)
            _check_same(value, parametrization(value), unsafe)
    if hasattr(parametrization, "right_inverse"):
        with no_grad():
            known.right_inverse(parametrization.right_inverse(getattr(module, tensor_name)))
    known.append(parametrization)
    known.unsafe |= unsafe


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a module (or one of its tensors) is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    if tensor_name is None:
        return len(parametrizations) > 0
    return tensor_name in parametrizations


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Makes a parametrized tensor an ordinary one.

    Args:
        leave_parametrized: keep the computed value; otherwise the original one.

    Raises:
        ValueError: it is not parametrized, or there are several originals to choose from.
    """
    if not is_parametrized(module, tensor_name):
        text = f"Module {module} does not have a parametrization on {tensor_name}"
        raise ValueError(problem("remove_parametrizations", text, "see is_parametrized()"))
    known = module.parametrizations[tensor_name]
    originals = known._originals()
    original = originals[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach().clone()
        learnt = any(isinstance(part, Parameter) for part in originals)
        wanted = any(part.requires_grad for part in originals)
        original = Parameter(value, requires_grad=wanted) if learnt else value
    elif not known.is_tensor:
        text = (
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
        raise ValueError(problem("remove_parametrizations", text, "leave_parametrized=True"))
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """The class a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Any, to_module: Any, tensor_name: str | None = None
) -> Any:
    """Parametrizes `to_module` as `from_module` is, with copies of its parameters."""
    if not is_parametrized(from_module):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, copy.deepcopy(source.original))
        for parametrization in source:
            register_parametrization(to_module, name, copy.deepcopy(parametrization))
        target = to_module.parametrizations[name]
        with no_grad():
            for mine, theirs in zip(target._originals(), source._originals()):
                mine.copy_(theirs)
    return to_module
