"""The same call in both libraries: PyTorch's values and functions in Flambeau's terms.

PyTorch's operator database holds calls as tensors, plain values and functions that name `torch`.
Tensors keep their strides, offsets and shared storage; a function whose code names `torch` is made
anew with `torch` meaning Flambeau, so that an entry runs its own code in both libraries.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

import torch

import flambeau

INTEGER_OF_SIZE = {2: torch.int16}
# Where PyTorch's public functions are looked for, the nearest name first.
NAMESPACES = (
    "", "Tensor", "nn.functional", "linalg", "fft", "special", "signal.windows", "masked", "nn",
    "_C._nn", "_C._linalg", "_C._fft", "_C._special", "_C._sparse", "_VF", "functional",
)  # fmt: skip
PRIVATE_NAMESPACES = {"_C._nn": "nn.functional", "_C._linalg": "linalg", "_C._fft": "fft"}
PRIVATE_NAMESPACES |= {"_C._special": "special", "_C._sparse": "sparse", "_VF": ""}
PRIVATE_NAMESPACES |= {"functional": ""}


class MissingNameError(AttributeError):
    """Flambeau has no function of this name."""


def found(root: Any, name: str) -> Any:
    """The object of a dotted name, or None."""
    for part in name.split(".") if name else ():
        root = getattr(root, part, None)
    return root


@functools.cache
def public_names() -> dict[int, str]:
    """Dotted names of PyTorch's functions, by identity."""
    names: dict[int, str] = {}
    for space in NAMESPACES:
        holder = found(torch, space)
        shown = PRIVATE_NAMESPACES.get(space, space)
        for name in dir(holder):
            with contextlib.suppress(Exception):
                value = getattr(holder, name)
                if callable(value):
                    names.setdefault(id(value), f"{shown}.{name}".lstrip("."))
    return names


def named(name: str) -> Any:
    """Flambeau's object of a dotted name.

    Raises:
        MissingNameError: there is none.
    """
    value = found(flambeau, name)
    if value is None:
        raise MissingNameError(f"no name {name}")
    return value


class Translator:
    """Translates what belongs to one call; equal tensors and storages stay shared."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[Any, Any]] = {}
        self.storages: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        """`value` for Flambeau.

        Raises:
            MissingNameError: it names a function that Flambeau lacks.
        """
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.Size):
            return flambeau.Size(value)
        if isinstance(value, (list, tuple)):
            items = [self(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return named(str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return flambeau.device(str(value))
        if isinstance(value, torch.Generator):
            made = flambeau.Generator()
            made.set_state(flambeau.from_numpy(value.get_state().numpy()))
            return made
        callable_ = callable(value) or isinstance(value, types.ModuleType)
        return function(value) if callable_ else value

    def tensor(self, value: torch.Tensor) -> Any:
        """A copy with the same strides, over a storage that its other views share."""
        known = self.tensors.get(id(value))
        if known is None:
            known = self.tensors[id(value)] = (value, self._tensor(value))
        return known[1]

    def _tensor(self, value: torch.Tensor) -> Any:
        if value.layout != torch.strided:
            return sparse_copy(value.detach(), flambeau, self).requires_grad_(value.requires_grad)
        if value.device.type == "meta":
            place = {"dtype": self(value.dtype), "device": "meta"}
            return flambeau.empty_strided(tuple(value.shape), value.stride(), **place)
        plain = value.detach().resolve_conj().resolve_neg()
        storage = plain.untyped_storage()
        key = (storage.data_ptr(), plain.dtype) if storage.nbytes() else (id(value), None)
        flat = self.storages.get(key)
        if flat is None:
            flat = self.storages[key] = storage, _flat(plain)
        made = flat[1].as_strided(plain.shape, plain.stride(), plain.storage_offset())
        return made.detach().requires_grad_(value.requires_grad)


def _flat(value: torch.Tensor) -> Any:
    """The whole storage as one dimension."""
    count = value.untyped_storage().nbytes() // value.element_size()
    whole = torch.as_strided(value, (count,), (1,), 0).clone()
    dtype = named(str(value.dtype).removeprefix("torch."))
    if whole.dtype == torch.complex32:
        return flambeau.from_numpy(whole.view(torch.int32).numpy()).view(dtype)
    if whole.dtype in (torch.bfloat16,):
        return flambeau.from_numpy(whole.view(torch.int16).numpy()).view(dtype)
    return flambeau.from_numpy(whole.numpy())


def sparse_copy(value: Any, library: Any, translate: Any) -> Any:
    """A sparse tensor of one library as one of the other, kept element by kept element.

    Raises:
        NotImplementedError: the layout is made of blocks, or is no sparse one.
    """
    layout = str(value.layout).rpartition(".")[2]
    size = tuple(value.shape)
    if layout == "sparse_coo":
        parts = (translate(value._indices()), translate(value._values()))
        return library.sparse_coo_tensor(*parts, size, is_coalesced=value.is_coalesced())
    if layout not in ("sparse_csr", "sparse_csc"):
        raise NotImplementedError(f"layout {value.layout}")
    names = {"sparse_csr": ("crow_indices", "col_indices"),
             "sparse_csc": ("ccol_indices", "row_indices")}[layout]  # fmt: skip
    index = (translate(getattr(value, name)()) for name in names)
    kind = getattr(library, layout)
    return library.sparse_compressed_tensor(*index, translate(value.values()), size, layout=kind)


def oracle_tensor(value: Any) -> torch.Tensor:
    """Flambeau's tensor as PyTorch's; contiguous where it is strided."""
    if value.layout is not flambeau.strided:
        return sparse_copy(value.detach(), torch, oracle_tensor)
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    if plain.dtype == flambeau.bfloat16:
        return torch.from_numpy(plain.view(flambeau.int16).numpy().copy()).view(torch.bfloat16)
    if plain.dtype == flambeau.complex32:
        return torch.from_numpy(plain.view(flambeau.int32).numpy().copy()).view(torch.complex32)
    return torch.from_numpy(plain.numpy().copy())


MODULES = {
    "torch": "", "torch.nn.functional": "nn.functional", "torch.nn": "nn", "torch.fft": "fft",
    "torch.special": "special", "torch.linalg": "linalg", "torch.masked": "masked",
}  # fmt: skip


@contextlib.contextmanager
def _unchanged(*_: Any) -> Any:
    yield


def function(value: Any) -> Any:
    """A function of PyTorch, or one that calls PyTorch, for Flambeau."""
    if isinstance(value, types.ModuleType):
        return named(MODULES[value.__name__]) if value.__name__ in MODULES else value
    if isinstance(value, torch.nn.Module):  # a distance, a layer without parameters
        options = {name: vars(value)[name] for name in value.__constants__}
        options = {{"norm": "p"}.get(name, name): option for name, option in options.items()}
        return named(f"nn.{type(value).__name__}")(**options)
    if isinstance(value, functools.partial):
        keywords = {name: Translator()(item) for name, item in value.keywords.items()}
        return functools.partial(function(value.func), *map(Translator(), value.args), **keywords)
    if isinstance(value, torch.nn.Module) and not list(value.parameters()):
        made = named(f"nn.{type(value).__name__}")()
        numbers = {name: own for name, own in vars(value).items() if name in vars(made)}
        vars(made).update({n: own for n, own in numbers.items() if isinstance(own, (int, float))})
        return made
    if getattr(value, "__name__", "") == "freeze_rng_state":
        return _unchanged
    if getattr(value, "__module__", "") == "torch._ops.aten":
        return named(f"ops.aten.{value.__name__}")
    name = public_names().get(id(value))
    if name is not None:
        return named(name)
    internal = str(getattr(value, "__module__", "")).startswith("torch.testing")
    return _rebound(value) if isinstance(value, types.FunctionType) and internal else value


def _names(code: types.CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


_REBOUND: dict[int, tuple[Any, Any]] = {}  # by identity: what was made anew must stay alive


def _rebound(original: types.FunctionType) -> Any:
    """The same code, with every global and captured value translated."""
    if id(original) in _REBOUND:
        return _REBOUND[id(original)][1]
    space = dict(original.__globals__)
    cells = tuple(types.CellType() for _ in original.__closure__ or ())
    made = types.FunctionType(original.__code__, space, original.__name__, None, cells)
    _REBOUND[id(original)] = original, made
    translate = Translator()
    for name in _names(original.__code__) & space.keys():
        if isinstance(space[name], (types.ModuleType, types.FunctionType, torch.dtype)):
            space[name] = translate(space[name])
    for cell, old in zip(cells, original.__closure__ or ()):
        cell.cell_contents = translate(old.cell_contents)
    made.__defaults__ = translate(original.__defaults__)
    made.__kwdefaults__ = translate(original.__kwdefaults__)
    return made


def entry_function(entry: Any) -> Any:
    """What an entry of the database calls, in Flambeau.

    Raises:
        MissingNameError: Flambeau lacks the name.
    """
    name = entry.name.removeprefix("torch.")
    for candidate in (name, f"Tensor.{name}"):
        if found(torch, candidate) is entry.op:
            return named(candidate)
    if entry.op.__class__.__name__ == "OpOverload":
        return named(f"ops.{entry.op}")
    if getattr(entry.op, "__module__", "") in ("torch.signal.windows.windows", "torch.masked._ops"):
        return named(name)
    return function(entry.op)
