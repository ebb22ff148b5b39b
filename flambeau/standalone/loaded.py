"""Packages in Python: `torch._inductor.aoti_load_package` gives an `AOTICompiledModel`."""

from __future__ import annotations

import ctypes
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import flambeau as torch
from flambeau.ir.dtypes import ROWS, SCALAR_TYPES
from flambeau.ir.failure import failure
from flambeau.serialization.sources import damaged
from flambeau.standalone import package
from flambeau.utils import _pytree as pytree

__all__ = ["AOTICompiledModel", "load"]

Value = Any  # an argument or a result of a model
_VERSION = 1
_DTYPES = {SCALAR_TYPES[row.name]: getattr(torch, row.public) for row in ROWS}
_NUMBERS_OF = {dtype: number for number, dtype in _DTYPES.items()}
_ERRORS: tuple[type[Exception], ...] = (IndexError, RuntimeError, ValueError, RuntimeError)
_MEMORY = 5
_HOST = torch.device("cpu")


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class _Slot(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("nbytes", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
    )


_NUMBERS, _ARRAYS = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(_Array)


class _Interface(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("constants", ctypes.c_int32),
        ("input", ctypes.POINTER(_Slot)),
        ("output", ctypes.POINTER(_Slot)),
        ("constant", ctypes.POINTER(_Slot)),
        ("missing", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("create", ctypes.CFUNCTYPE(ctypes.c_void_p)),
        ("destroy", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("set_constant", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)),
        ("set_threads", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)),
        ("prepare", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _ARRAYS, _NUMBERS)),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _ARRAYS, _ARRAYS)),
        ("error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    )


class _Library:
    """A model's library: `model.h` in Python.

    Args:
        content: the library's bytes.
    """

    def __init__(self, content: bytes) -> None:
        library = _loaded(content)
        try:
            entry = library.flambeau_model_interface
        except AttributeError:
            raise damaged("its library has no model") from None
        entry.restype = ctypes.POINTER(_Interface)
        self._library = library
        self.table: Value = entry().contents
        if self.table.version != _VERSION:
            problem = "the package has another interface than this release"
            raise failure(RuntimeError, "aoti_load_package", problem, "compile it again")
        lacking = self.table.missing()
        if lacking is not None:
            problem = f"this processor has no {lacking.decode()}"
            raise failure(
                RuntimeError, "aoti_load_package", problem, "compile the package on such a machine"
            )
        self.model = self.table.create()
        if not self.model:
            raise MemoryError("[aoti_load_package] there is no memory for the model")
        weakref.finalize(self, self.table.destroy, self.model)
        self.results = [(slot.rank, _DTYPES[slot.dtype]) for slot in self.slots("output")]
        self.words = sum(2 * rank for rank, _ in self.results)
        self._threads = 0

    def set_threads(self, count: int) -> None:
        """Chooses how many threads run the model; a call waits for the runs of others."""
        if count != self._threads:
            self.table.set_threads(self.model, count)
            self._threads = count

    def slots(self, kind: str) -> list[Value]:
        """The "input", "output" or "constant" slots."""
        count = getattr(self.table, f"{kind}s")
        return [getattr(self.table, kind)[k] for k in range(count)]

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The library's outputs."""
        arguments = _arrays(inputs)
        geometry = (ctypes.c_int64 * max(self.words, 1))()
        self._check(self.table.prepare(self.model, arguments, geometry))
        outputs, at = [], 0
        for rank, dtype in self.results:
            sizes, strides = geometry[at : at + rank], geometry[at + rank : at + 2 * rank]
            outputs.append(torch.empty_strided(sizes, strides, dtype=dtype))
            at += 2 * rank
        self._check(self.table.run(self.model, arguments, _arrays(outputs)))
        return outputs

    def _check(self, code: int) -> None:
        if not code:
            return
        text = self.table.error().decode(errors="replace")
        raise (MemoryError if code == _MEMORY else _ERRORS[code - 1])(text)


def _loaded(content: bytes) -> ctypes.CDLL:
    """A library of these bytes, by a file whose name is gone at once."""
    with tempfile.NamedTemporaryFile(prefix="flambeau-", suffix=".so") as file:
        file.write(content)
        file.flush()
        try:
            return ctypes.CDLL(file.name)
        except OSError as error:
            raise damaged(f"its library cannot be loaded: {error}") from None


def _arrays(tensors: Sequence[torch.Tensor]) -> ctypes.Array[_Array]:
    arrays = (_Array * max(len(tensors), 1))()
    for array, tensor in zip(arrays, tensors):
        numbers = ctypes.c_int64 * max(tensor.ndim, 1)
        array.data = tensor.data_ptr()
        array.sizes = numbers(*tensor.shape)
        array.strides = numbers(*tensor.stride())
        array.rank, array.dtype = tensor.ndim, _NUMBERS_OF[tensor.dtype]
    return arrays


class AOTICompiledModel:
    """A compiled model of a package; it is called as the exported module is.

    Made by `torch._inductor.aoti_load_package`. Calls have no gradients.

    Args:
        loader: the record of the package, and how many threads run it (None: as many as run
            everything else).
    """

    def __init__(self, loader: tuple[package.Record, int | None]) -> None:
        record, self._threads = loader
        form = record.form
        self._library = _Library(record.library)
        try:
            self._in_spec = pytree.treespec_loads(form["in_spec"])
            self._out_spec = pytree.treespec_loads(form["out_spec"])
            self._inputs = [(str(name), int(position)) for name, position in form["inputs"]]
            self._fixed = {int(position): value for position, value in form["fixed"]}
            self._outputs = [(str(kind), value) for kind, value in form["outputs"]]
            self._metadata = {str(key): str(value) for key, value in form["metadata"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(f"its description lacks {error}") from None
        counts = (self._library.table.inputs, self._library.table.outputs)
        numbers = [value for kind, value in self._outputs if kind == "tensor"]
        if counts != (len(self._inputs), len(numbers)) or numbers != list(range(len(numbers))):
            raise damaged("its description does not fit its library")
        self._constants = self._read_constants(record.constants)

    def _read_constants(self, content: bytes) -> dict[str, torch.Tensor]:
        constants: dict[str, torch.Tensor] = {}
        for number, slot in enumerate(self._library.slots("constant")):
            part = content[slot.offset : slot.offset + slot.nbytes]
            tensor = torch.empty(slot.sizes[: slot.rank], dtype=_DTYPES[slot.dtype])
            if len(part) != slot.nbytes or tensor.nbytes != slot.nbytes:
                raise damaged("its constants are too short")
            if part:
                ctypes.memmove(tensor.data_ptr(), part, slot.nbytes)
            constants[slot.name.decode()] = tensor
            self._library.table.set_constant(self._library.model, number, tensor.data_ptr())
        return constants

    @property
    def loader(self) -> AOTICompiledModel:
        """The model itself, which has `get_metadata` and `get_constant_fqns`."""
        return self

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        """Runs the model.

        Raises:
            ValueError: the arguments have another structure than the exported ones.
            RuntimeError: a tensor has sizes or a dtype that the program was not exported for.
        """
        library = self._library
        flat = self._flat(args, kwargs)
        inputs = [flat[position] for _, position in self._inputs]
        for (name, _), value in zip(self._inputs, inputs, strict=True):
            if not isinstance(value, torch.Tensor) or value.device != _HOST:
                raise _refused(f"{name} is no tensor on the CPU", "pass one")
        for position, expected in self._fixed.items():
            if type(flat[position]) is not type(expected) or flat[position] != expected:
                problem = f"an argument is {flat[position]!r}, in the program {expected!r}"
                raise _refused(problem, "it is a constant of the compiled program")
        threads = torch.get_num_threads() if self._threads is None else self._threads
        library.set_threads(threads)
        results = library.run([x.detach().resolve_conj().resolve_neg() for x in inputs])
        leaves = [results[value] if kind == "tensor" else value for kind, value in self._outputs]
        return pytree.tree_unflatten(leaves, self._out_spec)

    def _flat(self, args: tuple[Value, ...], kwargs: dict[str, Value]) -> list[Value]:
        named = self._in_spec.child(1).context
        if set(named) != set(kwargs):
            raise ValueError(
                "Ran into a kwarg keyword mismatch: Got the following keywords "
                f"{list(kwargs)} but expected {list(named)}"
            )
        flat, spec = pytree.tree_flatten((args, {name: kwargs[name] for name in named}))
        if spec != self._in_spec:
            raise ValueError(
                f"[aoti] arguments have the structure {spec}, expected {self._in_spec}\n"
                "hint: pass them as in the export"
            )
        return flat

    def get_metadata(self) -> dict[str, str]:
        """The machine that the package was compiled for, and what its author added."""
        return dict(self._metadata)

    def get_constant_fqns(self) -> list[str]:
        """Names of parameters, buffers and constants."""
        return list(self._constants)

    def load_constants(
        self,
        constants_map: Mapping[str, torch.Tensor],
        *,
        check_full_update: bool,
        user_managed: bool = False,
        allow_h2d_copy: bool = False,
    ) -> None:
        """Gives constants other values. Nothing else may run the model meanwhile.

        Args:
            constants_map: tensors by name.
            check_full_update: whether all constants have to be among them.
            user_managed: whether the model uses the tensors themselves from now on; their values
                must not be changed without another call.
            allow_h2d_copy: without effect: there is no other device.

        Raises:
            RuntimeError: a constant is not there, is missing, or has other sizes or another dtype.
        """
        missing = [name for name in self._constants if name not in constants_map]
        if check_full_update and missing:
            raise _refused(f"there is no value for {missing}", "or pass check_full_update=False")
        for name, value in constants_map.items():
            own = self._constants.get(name)
            if own is None:
                names = ", ".join(self._constants)
                raise _refused(f"there is no constant {name!r}", f"there are {names}")
            if own.shape != value.shape or own.dtype != value.dtype:
                problem = f"{name} has sizes {tuple(value.shape)} and dtype {value.dtype}"
                raise _refused(problem, f"pass {tuple(own.shape)} and {own.dtype}")
        library = self._library
        for number, name in enumerate(self._constants):
            if name not in constants_map:
                continue
            value = constants_map[name].detach()
            if user_managed and value.is_contiguous():
                self._constants[name] = value
            else:
                self._constants[name].copy_(value)
            pointer = self._constants[name].data_ptr()
            library.table.set_constant(library.model, number, pointer)

    def __deepcopy__(self, memo: dict[int, Value]) -> NoReturn:
        """Raises: a package is loaded again instead.

        Raises:
            NotImplementedError: always.
        """
        raise failure(NotImplementedError, "aoti", "a loaded model is not copied", "load it again")


def load(file: Value, name: str = "model", single: bool = False) -> AOTICompiledModel:
    """Loads a package.

    Args:
        file: a path or a binary file object.
        name: of the model in it.
        single: whether one thread runs it.
    """
    return AOTICompiledModel((package.read(file, name), 1 if single else None))


def _refused(problem: str, hint: str) -> Exception:
    return failure(RuntimeError, "aoti", problem, hint)
