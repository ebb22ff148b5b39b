"""Containers: modules and parameters in sequences and dictionaries."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections import abc as container_abcs
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from flambeau._core import Tensor
from flambeau.nn.messages import problem, typename
from flambeau.nn.modules.module import Module, _addindent
from flambeau.nn.parameter import Parameter

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _position(op: str, index: Any, length: int) -> int:
    """A non-negative position."""
    position = operator.index(index)
    if not -length <= position < length:
        raise IndexError(problem(op, f"index {position} is out of range", f"length is {length}"))
    return position % length


class _Numbered(Module):
    """Submodules whose names are their positions."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _renumber(self, modules: Iterable[Any]) -> None:
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}

    def insert(self, index: int, module: Any) -> Any:
        """Puts a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: Any) -> Any:
        """Takes a module (or a slice of them) out."""
        found = self[key]  # type: ignore[index]
        del self[key]  # type: ignore[attr-defined]
        return found


class Container(Module):
    """Modules under names; deprecated: every module can do this."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in "
            "`nn.Module`. Subclass that instead.",
            FutureWarning,
            stacklevel=2,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


class Sequential(_Numbered):
    """Modules called one after the other.

    Args:
        *args: modules, or one OrderedDict of names and modules.

    Example:
        >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())(torch.zeros(1, 2)).shape
        torch.Size([1, 3])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for position, module in enumerate(args):
                self.add_module(str(position), module)

    def forward(self, input: Any) -> Any:
        """Calls each module with the result of the one before."""
        for module in self._modules.values():
            input = module(input)  # noqa: A001
        return input

    def _name(self, index: Any) -> str:
        position = _position("Sequential", index, len(self))
        return next(islice(self._modules, position, None))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]

    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: Any) -> None:
        if isinstance(index, slice):
            for name in list(self._modules)[index]:
                delattr(self, name)
        else:
            delattr(self, self._name(index))
        self._renumber(self)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(
                problem(
                    "Sequential",
                    "add operator supports only objects of Sequential class, but "
                    f"{type(other)} is given.",
                    "wrap it in nn.Sequential",
                )
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            return self.__add__(other)
        return self.extend(list(other))

    def __mul__(self, other: int) -> Any:
        return Sequential(*(list(self) * _times(other)))

    def __rmul__(self, other: int) -> Any:
        return self.__mul__(other)

    def __imul__(self, other: int) -> Any:
        self._renumber(list(self) * _times(other))
        return self

    def append(self, module: Any) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Puts a module before position `index`.

        Raises:
            AssertionError: not a module.
            IndexError: out of range.
        """
        if not isinstance(module, Module):
            raise AssertionError(
                problem("insert", f"module should be of type: {Module}", "pass a module")
            )
        if not -len(self) <= index <= len(self):
            raise IndexError(problem("insert", f"Index out of range: {index}", f"{len(self)} long"))
        return super().insert(index, module)

    def extend(self, sequential: Iterable[Any]) -> Any:
        """Adds modules at the end."""
        for module in list(sequential):
            self.append(module)
        return self


def _times(other: Any) -> int:
    if not isinstance(other, int):
        raise TypeError(
            problem(
                "Sequential",
                f"unsupported operand type(s) for *: {type(Sequential)} and {type(other)}",
                "multiply by an int",
            )
        )
    if other <= 0:
        text = f"Non-positive multiplication factor {other} for {Sequential}"
        raise ValueError(problem("Sequential", text, "use 1 or more"))
    return other


class ModuleList(_Numbered):
    """A list of modules.

    Args:
        modules: modules to start with.

    Example:
        >>> len(nn.ModuleList([nn.ReLU(), nn.Tanh()]))
        2
    """

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[str(_position("ModuleList", idx, len(self)))]

    def insert(self, index: int, module: Any) -> None:
        """Puts a module before position `index`."""
        super().insert(index, module)

    def __setitem__(self, idx: int, module: Any) -> None:
        setattr(self, str(_position("ModuleList", idx, len(self))), module)

    def __delitem__(self, idx: Any) -> None:
        modules = list(self)
        del modules[idx]
        self._renumber(modules)

    def __add__(self, other: Iterable[Any]) -> Any:
        return ModuleList([*self, *other])

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def append(self, module: Any) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Any]) -> Any:
        """Adds modules at the end.

        Raises:
            TypeError: not an iterable.
        """
        if not isinstance(modules, container_abcs.Iterable):
            raise TypeError(
                problem(
                    "ModuleList",
                    "ModuleList.extend should be called with an iterable, but got "
                    f"{type(modules).__name__}",
                    "use append for one module",
                )
            )
        offset = len(self)
        for position, module in enumerate(modules):
            self.add_module(str(offset + position), module)
        return self

    def __repr__(self) -> str:
        """Equal neighbours share a line: `(0-3): 4 x Linear(...)`."""
        texts = [repr(module) for module in self]
        if not texts:
            return self._get_name() + "()"
        groups: list[tuple[int, int, str]] = []
        for position, text in enumerate(texts):
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], position, text)
            else:
                groups.append((position, position, text))
        lines = [
            _addindent(f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}", 2)
            for a, b, text in groups
        ]
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules, in insertion order.

    Args:
        modules: a mapping or pairs to start with.

    Example:
        >>> list(nn.ModuleDict({"a": nn.ReLU()}))
        ['a']
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all items."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Removes a key and returns its module."""
        found = self[key]
        del self[key]
        return found

    def keys(self) -> Any:
        """The keys."""
        return self._modules.keys()

    def items(self) -> Any:
        """Keys and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Adds or replaces modules from a mapping or pairs.

        Raises:
            TypeError: neither.
            ValueError: an item is no pair.
        """
        for key, module in _pairs("ModuleDict", modules):
            self[key] = module


def _pairs(name: str, values: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a mapping, or of an iterable of pairs."""
    if not isinstance(values, container_abcs.Iterable):
        raise TypeError(
            problem(
                name,
                f"{name}.update should be called with an iterable of key/value pairs, but got "
                f"{type(values).__name__}",
                "pass a dict",
            )
        )
    if isinstance(values, (Mapping, ModuleDict, ParameterDict)):
        yield from values.items()
        return
    for position, pair in enumerate(values):
        if not isinstance(pair, container_abcs.Iterable):
            text = f"{name} update sequence element #{position} should be Iterable; is"
            raise TypeError(problem(name, text + type(pair).__name__, "pass pairs"))
        if len(pair) != 2:  # type: ignore[arg-type]
            text = (
                f"{name} update sequence element #{position} has length {len(pair)}; 2 is required"  # type: ignore[arg-type] # noqa: E501
            )
            raise ValueError(problem(name, text, "pass pairs"))
        yield pair[0], pair[1]  # type: ignore[index]


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; anything else stays."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) \
        else value  # fmt: skip


def _dtype(value: Any) -> str:
    return str(value.dtype)


def _describe(key: Any, value: Any, kind_of_elements: Any) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(extent) for extent in value.size())
    return f"  ({key}): {kind} containing: [{kind_of_elements(value)} of size {size}]"


class ParameterList(Module):
    """A list of parameters (and other values); tensors become parameters.

    Args:
        values: values to start with.

    Example:
        >>> len(list(nn.ParameterList([torch.ones(2), torch.ones(3)]).parameters()))
        2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            found = type(self)()
            for position in range(*idx.indices(len(self))):
                found.append(self[position])
            return found
        return getattr(self, str(_position("ParameterList", idx, len(self))))

    def __setitem__(self, idx: int, param: Any) -> None:
        name = str(_position("ParameterList", idx, len(self)))
        setattr(self, name, _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[position] for position in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Any:
        """Adds a value at the end."""
        position = len(self)
        self._size += 1
        self[position] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Adds values at the end.

        Raises:
            TypeError: not an iterable.
        """
        if not isinstance(values, container_abcs.Iterable) or isinstance(values, Tensor):
            raise TypeError(
                problem(
                    "ParameterList",
                    "ParameterList.extend should be called with an iterable, but got "
                    f"{type(values).__name__}",
                    "use append for one value",
                )
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """One line per value."""
        return "\n".join(_describe(i, value, _dtype) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises RuntimeError: a list of parameters is no layer."""
        raise RuntimeError(
            problem("ParameterList", "ParameterList should not be called.", "index it")
        )


class ParameterDict(Module):
    """A dictionary of parameters (and other values), in insertion order; tensors become
    parameters.

    Args:
        parameters: a mapping or pairs to start with.

    Example:
        >>> list(nn.ParameterDict({"a": torch.ones(2)}))
        ['a']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _name(key: Any) -> str:
        if not isinstance(key, str):
            text = f"keys must be strings, got one of type {type(key).__name__}"
            raise TypeError(problem("ParameterDict", text, "use str(key)"))
        return key

    def __getitem__(self, key: str) -> Tensor:
        return getattr(self, self._name(key))

    def __setitem__(self, key: str, value: Any) -> None:
        name = self._name(key)
        self._keys[name] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._name(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> Any:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: ParameterDict) -> Any:
        merged = other.copy()
        merged.update(self)
        return merged

    def __ior__(self, other: ParameterDict) -> Any:
        self.update(other)
        return self

    def copy(self) -> Any:
        """Another dictionary of the same parameters."""
        return ParameterDict(OrderedDict((key, self[key]) for key in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value at `key`, set to `default` first when absent."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes all items."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Tensor:
        """Removes a key and returns its value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes and returns the last pair."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> Any:
        """A dictionary of these keys, all with one value."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Keys and values."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Adds or replaces values from a mapping or pairs.

        Raises:
            TypeError: neither.
            ValueError: an item is no pair.
        """
        for key, value in _pairs("ParametersDict", parameters):
            self[key] = value

    def extra_repr(self) -> str:
        """One line per value."""
        return "\n".join(_describe(key, value, typename) for key, value in self.items())

    def __call__(self, input: Any = None) -> Any:
        """Raises RuntimeError: a dictionary of parameters is no layer."""
        raise RuntimeError(
            problem("ParameterDict", "ParameterDict should not be called.", "index it")
        )
