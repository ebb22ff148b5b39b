"""Fake tensors: they pretend to be on a device and have no data, whatever their size.

A fake tensor is a tensor on the meta device that reports another device. Operators and the tape
handle it as they handle every meta tensor; `fake_calls.py` compares the devices of operands and
makes results fakes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import _core
from flambeau._core import Tensor
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_calls import state
from flambeau._subclasses.fake_errors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from flambeau.core.printing import gradient_note, join_notes
from flambeau.ir.lock import importing, late
from flambeau.overrides import TorchFunctionMode
from flambeau.runtime import boundaries
from flambeau.utils import _python_dispatch
from flambeau.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeCopyMode",
    "FakeTensor",
    "FakeTensorDeviceMismatchError",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]


_META = _core.device("meta")


class FakeTensor(Tensor):
    """A tensor without data that says it is on some device; made by a `FakeTensorMode`.

    Args:
        fake_mode: the mode it belongs to.
        elem: a tensor on the meta device, which gives the geometry.
        device: where it pretends to be.
        constant: the real tensor that it represents, if its one number is known.

    Attributes:
        fake_mode, fake_device, constant: as given.

    Raises:
        AssertionError: *elem* is not on the meta device, or no device is given.

    Example:
        >>> from torch._subclasses import FakeTensorMode
        >>> with FakeTensorMode():
        ...     x = torch.ones(2, 3, device="cuda")
        >>> x @ x.T
        FakeTensor(..., device='cuda:0', size=(2, 2))
    """

    fake_mode: FakeTensorMode
    fake_device: Any
    constant: Any

    @staticmethod
    def __new__(
        cls: type,
        fake_mode: Any = None,
        elem: Any = None,
        device: Any = None,
        constant: Any = None,
        *,
        fake_device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        """A fake that shares the geometry, and the place in the graph, of *elem*."""
        place = device if device is not None else fake_device
        if place is None:
            raise AssertionError("device must be provided")
        if elem.device.type != "meta":
            raise AssertionError(f"elem.device.type must be 'meta', got {elem.device.type}")
        fake = fake_calls.adopted(fake_mode, elem, fake_calls.indexed(place))
        fake.constant = constant
        return fake if requires_grad is None else fake.requires_grad_(requires_grad)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """All is done by `__new__`."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answers a call outside of the mode, as the mode of its tensors would."""
        foreign = [t for t in types if not issubclass(cls, t) and not _is_ours(t)]
        if foreign:
            return NotImplemented
        mode = fake_calls.mode_of((*args, *(kwargs or {}).values()))
        return fake_calls.answer(mode, func, args, kwargs or {})

    @property
    def device(self) -> Any:
        """Where it pretends to be; the meta device while an operator computes its sizes."""
        return _META if state.kernel else self.fake_device

    @property
    def is_cpu(self) -> bool:
        """Whether it pretends to be on the CPU."""
        return bool(self.device.type == "cpu")

    @property
    def is_cuda(self) -> bool:
        """Whether it pretends to be on a CUDA device."""
        return bool(self.device.type == "cuda")

    @property
    def is_meta(self) -> bool:
        """Whether it pretends to be on the meta device."""
        return bool(self.device.type == "meta")

    def get_device(self) -> int:
        """The index of its device, -1 on the CPU."""
        place = self.device
        return -1 if place.type in ("cpu", "meta") else int(place.index or 0)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Another fake, with memory of its own."""
        if _computed(self, "deepcopy"):
            return self.__deepcopy__(memo)
        if id(self) not in memo:
            with _core.no_grad():
                twin = self.clone()
            twin.requires_grad_(self.requires_grad)
            if self.__dict__.get("_is_param"):
                twin._is_param = True
            memo[id(self)] = twin
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuses: there is nothing to store."""
        if _computed(self, "pickle"):
            return self.__reduce_ex__(protocol)  # type: ignore[misc]
        raise TypeError(
            "[FakeTensor] cannot pickle a fake tensor: it has no data and belongs to a mode\n"
            "hint: pickle its shape, stride() and dtype"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """`FakeTensor(..., device='cuda:0', size=(2, 3))`; the default device is left out."""
        if _computed(self, "repr"):
            return repr(self)
        param = bool(self.__dict__.get("_is_param"))
        start = "Parameter(FakeTensor(" if param else "FakeTensor("
        notes = [f"size={tuple(self.shape)}"]
        place = self.fake_device
        if place.type != str(_core.get_default_device()).partition(":")[0]:
            notes.insert(0, f"device='{place}'")
        if self.dtype is not _core.get_default_dtype():
            notes.append(f"dtype={self.dtype}")
        gradient = gradient_note(self)
        if gradient is not None:
            notes.append(gradient)
        return join_notes(start + "...", notes, len(start)) + (")" if param else "")

    @staticmethod
    def from_tensor(t: Any, fake_mode: FakeTensorMode) -> Any:
        """`fake_mode.from_tensor(t)`."""
        return fake_mode.from_tensor(t)


def _computed(fake: Any, reason: str) -> bool:
    """Whether a fake stood for a delayed result, which runs now: it is a real tensor then."""
    recorder = boundaries.local.recorder
    if recorder is None or recorder.segment.mode is not fake.fake_mode:
        return False
    recorder.interrupt(reason)
    return not isinstance(fake, FakeTensor)


def _is_ours(kind: type) -> bool:
    with importing:
        from flambeau.nn.parameter import Buffer, Parameter

    return kind in (FakeTensor, Parameter, Buffer)


class _Functions(TorchFunctionMode):
    """Brings every call to a fake mode: factories too, which no tensor's type could answer."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answers the call."""
        del types
        return fake_calls.answer(self.mode, func, args, kwargs or {})


class FakeTensorMode(TorchDispatchMode):
    """A `with` block in which tensors have no data: what is made there is fake.

    Every operator gives fakes of the right shape, dtype, stride and device, and the tape works.
    Devices need not exist. A call that only data could answer raises. So a model of any size can
    be built and run, for its sizes, without memory.

    Args:
        allow_fallback_kernels: accepted for compatibility; no operator needs a fallback.
        allow_non_fake_inputs: real tensors may be operands; they are converted.
        shape_env: sizes of tensors are symbols of this environment
            (`torch.fx.experimental.symbolic_shapes.ShapeEnv`); None: they are integers.
        static_shapes: whether sizes of converted tensors are integers; by default, where there is
            no environment.
        export: accepted for compatibility.

    Attributes:
        kind: the type of the fakes.

    Example:
        >>> from torch._subclasses import FakeTensorMode
        >>> with FakeTensorMode() as mode:
        ...     layer = nn.Linear(1_000_000, 1_000_000)
        >>> layer(mode.from_tensor(torch.ones(2, 1_000_000))).shape
        torch.Size([2, 1000000])
    """

    recorder: Any = None  # told of each operator with a program (`standalone/program.py`)

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        self.allow_fallback_kernels = allow_fallback_kernels
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env = shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.kind: type[FakeTensor] = FakeTensor
        if shape_env is not None:
            self.kind = late("flambeau._subclasses.traced_tensor").TracedTensor
        self.export = export
        self.constants: dict[int, Any] = {}  # fakes whose number is known, by identity
        self._tensors: dict[int, tuple[Any, Any]] = {}
        self._storages: dict[int, tuple[Any, Any]] = {}
        self._functions: list[_Functions] = []

    @property
    def in_kernel_invocation(self) -> bool:
        """Whether an operator computes sizes right now, for which fakes are meta tensors."""
        return state.kernel

    def __enter__(self) -> FakeTensorMode:
        ours = _Functions(self)
        self._functions.append(ours)
        _under(ours)
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        _taken_out(self._functions.pop())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answers an operator that another dispatch mode passes on."""
        del types
        packet = getattr(func, "overloadpacket", None)
        plain = getattr(packet, "_function", func)
        return fake_calls.answer(self, plain, args, kwargs or {})

    def is_our_fake(self, t: object) -> bool:
        """Whether a value is a fake tensor of this mode."""
        return isinstance(t, FakeTensor) and t.fake_mode is self

    def from_tensor(
        self,
        tensor: Any,
        *,
        static_shapes: bool | None = None,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> Any:
        """The fake of a tensor: same geometry, dtype, device, and wish for a gradient.

        A tensor has one fake; tensors that share memory have fakes that do.

        Args:
            tensor: real, on the meta device, or a fake of another mode.
            static_shapes: whether its sizes are integers; by default as in the mode.
            source: where it comes from, a text for guards.
            symbolic_context: which of its sizes vary.
            trace: of PyTorch, without effect.

        Raises:
            UnsupportedFakeTensorException: the tensor is sparse.

        Example:
            >>> from torch._subclasses import FakeTensorMode
            >>> FakeTensorMode().from_tensor(torch.zeros(2, 3, dtype=torch.int64).T)
            FakeTensor(..., size=(3, 2), dtype=torch.int64)
        """
        del trace
        if tensor.layout is not _core.strided:
            raise UnsupportedFakeTensorException(f"sparse layout: {tensor.layout}")
        cached = self._tensors.get(id(tensor))
        if cached is not None and cached[0]() is tensor:
            return cached[1]
        with fake_calls.below():
            fake = self._made(tensor)
        static = self.static_shapes if static_shapes is None else static_shapes
        if self.shape_env is not None and not static:
            self._symbolic(tensor, fake, source, symbolic_context)
        key = id(tensor)
        forget = self._tensors
        self._tensors[key] = (weakref.ref(tensor, lambda _: forget.pop(key, None)), fake)
        return fake

    def _made(self, tensor: Any) -> Any:
        geometry = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        if isinstance(tensor, FakeTensor):
            place = tensor.fake_device
        else:
            place = tensor.device
        if place.type == "meta":
            elem = _core.tensor_empty_strided(*geometry[:2], tensor.dtype, "meta")
        else:
            storage = self._storage(tensor)
            elem = _core.tensor_from_storage(storage, tensor.dtype, *geometry)
        fake = fake_calls.adopted(self, elem, place)
        if tensor.requires_grad:
            fake.requires_grad_()
        with importing:
            from flambeau.nn.parameter import Parameter

        if isinstance(tensor, Parameter):
            fake._is_param = True
        return fake

    def _symbolic(self, tensor: Tensor, fake: Tensor, source: object, context: object) -> None:
        """Makes the sizes of a fake symbols; those of a fake of a trace are symbols already."""
        tensors = late("flambeau._subclasses.traced_tensor")
        geometry = tensors.geometry_of(tensor)
        if geometry.env is not self.shape_env:
            create = self.shape_env.create_symbolic_sizes_strides_storage_offset
            text = f"tensor{len(self._tensors)}" if source is None else source
            parts = create(tensor, text, symbolic_context=context)
            geometry = tensors.geometry_from(*parts, self.shape_env)
        late("flambeau._subclasses.symbolic_calls").attach(fake, geometry)

    def _storage(self, tensor: Any) -> Any:
        """Memory on the meta device that represents a tensor's."""
        real = tensor.untyped_storage()
        key = real._cdata
        cached = self._storages.get(key)
        if cached is not None and cached[0]() is not None:
            return cached[1]
        hollow = _core.tensor_empty_strided((real.nbytes(),), (1,), _core.uint8, "meta")
        storage, forget = hollow.untyped_storage(), self._storages
        owner = weakref.ref(tensor, lambda _: forget.pop(key, None))
        self._storages[key] = (owner, storage)
        return storage


def _under(mode: TorchFunctionMode) -> None:
    """Enters a function mode below those of users, so that theirs handle calls first."""
    stack = list(_core.function_modes())
    place = 0
    while place < len(stack) and isinstance(stack[place], _Functions):
        place += 1
    _restack([*stack[:place], mode, *stack[place:]])


def _taken_out(mode: TorchFunctionMode) -> None:
    _restack([m for m in _core.function_modes() if m is not mode])


def _restack(modes: Sequence[Any]) -> None:
    while _core.function_modes():
        _core.pop_function_mode()
    for mode in modes:
        _core.push_function_mode(mode)


class FakeCopyMode(TorchFunctionMode):
    """A `with` block in which `copy.deepcopy` makes fakes of tensors: of a whole module, say.

    Args:
        fake_mode: the mode the fakes belong to.

    Example:
        >>> import copy
        >>> from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
        >>> with FakeCopyMode(FakeTensorMode()):
        ...     twin = copy.deepcopy(nn.Linear(3, 4))
        >>> twin.weight
        Parameter(FakeTensor(..., size=(4, 3), requires_grad=True))
    """

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Makes a fake where a tensor would be copied."""
        if func is Tensor.clone:
            return self.fake_mode.from_tensor(args[0])
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = self.fake_mode.from_tensor(tensor)
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


def is_fake(x: object) -> bool:
    """Whether a value is a fake tensor."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t: object) -> FakeTensorMode | None:
    """The mode of a fake tensor, None of anything else."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


@contextmanager
def unset_fake_temporarily() -> Iterator[FakeTensorMode | None]:
    """A `with` block in which new tensors are real again; gives the mode that was active."""
    active = fake_calls.active_mode()
    functions = list(_core.function_modes())
    stack = _python_dispatch._modes.stack
    _restack([m for m in functions if not isinstance(m, _Functions)])
    _python_dispatch._set_modes([m for m in stack if not isinstance(m, FakeTensorMode)])
    try:
        yield active
    finally:
        _python_dispatch._set_modes(stack)
        _restack(functions)
