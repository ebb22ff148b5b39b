"""`torch._C`: the few of its names that programs with extension points use.

PyTorch's private module of its native core. `__torch_function__` and `__torch_dispatch__` are
disabled for a type, or within a block, by these names in PyTorch's own documentation.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from flambeau import _core
from flambeau._core import Generator, Size
from flambeau.ir.lock import late, loaded

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size"]

_disabled_torch_function_impl = _core._disabled_torch_function
_disabled_torch_dispatch_impl = _core._disabled_torch_function  # by identity: never called


class DisableTorchFunctionSubclass:
    """A `with` block in which subclasses are plain tensors to every function; modes stay.

    Example:
        >>> with torch._C.DisableTorchFunctionSubclass():
        ...     torch._C._is_torch_function_enabled()
        False
    """

    def __enter__(self) -> None:
        self._before = _core.set_torch_function_enabled(False)

    def __exit__(self, *exception: object) -> None:
        _core.set_torch_function_enabled(self._before)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A `with` block without any `__torch_function__`: of types and of modes."""

    def __enter__(self) -> None:
        super().__enter__()
        self._modes = _core.set_function_modes_enabled(False)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        _core.set_function_modes_enabled(self._modes)


def _is_torch_function_enabled() -> bool:
    """Whether `__torch_function__` of types is on in this thread."""
    before: bool = _core.set_torch_function_enabled(True)
    _core.set_torch_function_enabled(before)
    return before


def _is_torch_function_mode_enabled() -> bool:
    """Whether a `TorchFunctionMode` is active in this thread."""
    before: bool = _core.set_function_modes_enabled(True)
    _core.set_function_modes_enabled(before)
    return before


def _set_grad_enabled(enabled: bool) -> None:
    """Whether operators are recorded for backward from now on; graphs call it."""
    _core.set_grad_enabled(enabled)


def _are_functorch_transforms_active() -> bool:
    """Whether this thread is inside a transformation of `torch.func`."""
    wrappers = loaded("flambeau.autograd.transforms.wrappers")
    return wrappers is not None and bool(wrappers.levels())


def _len_torch_function_stack() -> int:
    """Number of active `TorchFunctionMode`s."""
    return len(_core.function_modes())


def _get_function_stack_at(index: int) -> Any:
    """An active `TorchFunctionMode`; 0 is the oldest."""
    return _core.function_modes()[index]


def _parse_to(
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, whether not to wait, and memory format of the arguments of `Module.to`.

    Raises:
        TypeError: an argument of another type.
    """
    arguments = list(args)
    if arguments and isinstance(arguments[0], _core.Tensor):
        other = arguments.pop(0)
        device, dtype = other.device, other.dtype
    elif arguments and (arguments[0] is None or isinstance(arguments[0], (str, int, _core.device))):
        device = arguments.pop(0)
        if arguments and (arguments[0] is None or isinstance(arguments[0], _core.dtype)):
            dtype = arguments.pop(0)
    elif arguments and isinstance(arguments[0], _core.dtype):
        dtype = arguments.pop(0)
    if len(arguments) > 2 or not all(isinstance(flag, bool) for flag in arguments):
        text = f"[to] received an invalid combination of arguments: {args}"
        raise TypeError(f"{text}\nhint: a device")
    non_blocking = arguments[0] if arguments else non_blocking
    target = None if device is None else _core.device(device)
    return target, dtype, non_blocking, memory_format


# Functions of torch._C._nn with the signature of nn.functional; the others are inner operators.
_LAYERS = frozenset(
    """adaptive_avg_pool2d adaptive_avg_pool3d avg_pool2d avg_pool3d elu elu_ gelu glu hardsigmoid
    hardswish hardtanh hardtanh_ leaky_relu leaky_relu_ linear mish one_hot pad relu6
    scaled_dot_product_attention silu softplus softshrink""".split()
)


class _Functions(types.ModuleType):
    """The functions of a namespace under the names that PyTorch's native module has for them."""

    def __init__(self, name: str, home: str, prefix: str = "") -> None:
        super().__init__(f"torch._C.{name}")
        self._home, self._prefix = home, prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        torch = sys.modules["flambeau"]
        home: Any = torch
        for part in self._home.split("."):
            home = getattr(home, part)
        if self._prefix:
            value = getattr(home, name.removeprefix(self._prefix), None)
            fits = value is not None and name.startswith(self._prefix)
        else:
            fits = name in _LAYERS or name == "log_sigmoid"
            value = getattr(home, name.replace("log_sigmoid", "logsigmoid")) if fits else None
        if not fits:
            value = getattr(torch.ops.aten, name, None)
        if value is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value


_nn = _Functions("_nn", "nn.functional")
_nn._parse_to = _parse_to
_fft = _Functions("_fft", "fft", "fft_")
_linalg = _Functions("_linalg", "linalg", "linalg_")
_special = _Functions("_special", "special", "special_")

_GLIBCXX_USE_CXX11_ABI = True
_TensorMeta = type(_core.Tensor)


class _ExcludeDispatchKeyGuard:
    """A `with` block without some dispatch keys: without autocast where its key is among them.

    Args:
        keyset: the keys; others than AutocastCPU have no effect.
    """

    def __init__(self, keyset: Any) -> None:
        self.keyset = keyset
        self._block: Any = None

    def __enter__(self) -> None:
        if self.keyset.has(sys.modules["flambeau"].DispatchKey.AutocastCPU):
            self._block = late("flambeau.amp.autocast_mode").autocast("cpu", enabled=False)
            self._block.__enter__()

    def __exit__(self, *exception: object) -> None:
        if self._block is not None:
            self._block.__exit__(*exception)


ExcludeDispatchKeyGuard = _ExcludeDispatchKeyGuard
StorageBase = _core.UntypedStorage
cpp = types.ModuleType("torch._C.cpp", "PyTorch's layers in C++, of which there are none.")
_dynamo = types.ModuleType("torch._C._dynamo", "PyTorch's hooks of frames: settings alone.")
_dynamo.eval_frame = types.ModuleType("torch._C._dynamo.eval_frame")


def _set_lru_cache(enabled: bool) -> None:
    """Accepts: programs are found by what they record."""


_dynamo.eval_frame._set_lru_cache = _set_lru_cache

# Settings of PyTorch's compiler of TorchScript: stored, without effect.
_jit: dict[str, Any] = {
    "profiling_executor": True, "profiling_mode": True, "bailout_depth": 20,
    "nvfuser_enabled": False, "nvfuser_guard_mode": False, "texpr_fuser_enabled": False,
    "can_fuse_on_cpu": False, "can_fuse_on_gpu": False,
}  # fmt: skip


def _jit_setter(key: str) -> Callable[..., Any]:
    def function(value: Any) -> Any:
        before, _jit[key] = _jit[key], value
        return before

    function.__doc__ = "Stores a setting, and returns the one before."
    return function


def _jit_getter(key: str) -> Callable[..., Any]:
    def function() -> Any:
        return _jit[key]

    function.__doc__ = "A setting."
    return function


for _key in _jit:
    _fuses = _key.startswith("can_fuse")
    globals()[f"_jit_override_{_key}" if _fuses else f"_jit_set_{_key}"] = _jit_setter(_key)
    globals()[f"_jit_{_key}" if _fuses else f"_jit_get_{_key}"] = _jit_getter(_key)


def __getattr__(name: str) -> Any:
    """Names that PyTorch's native module and the public one share: types, classes, operators."""
    if not name.startswith("_") and name != "torch":
        torch = sys.modules["flambeau"]
        home = torch._LAZY.get(name)
        if home is not None or isinstance(vars(torch).get(name), (type, _core.dtype)):
            return getattr(torch, name)
    from flambeau.runtime import missing

    missing.refuse(__name__, name)


def _log_api_usage_once(event: str) -> None:
    """Records nothing."""


def _get_tracing_state() -> Any:
    """The state of `torch.jit.trace`, or None where it is not running."""
    tracer = loaded("flambeau.jit")
    state = getattr(tracer, "_tracing_state", None)
    return state() if callable(state) else None


def _get_accelerator(check: bool | None = None) -> Any:
    """The accelerator: the CPU, for there is none.

    Raises:
        RuntimeError: `check`, for there is none.
    """
    if check:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return _core.device("cpu")


def _get_default_device() -> str:
    """The device of new tensors, as text."""
    return str(_core.get_default_device())


def _get_privateuse1_backend_name() -> str:
    """The name of devices that other packages add."""
    return "privateuseone"


def _current_graph_task_id() -> int:
    """The number of the running backward pass: not counted, -1."""
    return -1


def _current_autograd_node() -> Any:
    """The node whose gradient this thread is computing, or None."""
    return _core.current_autograd_node()


def _set_math_sdp_allow_fp16_bf16_reduction(enabled: bool) -> None:
    """Accepts: attention of these dtypes sums in float32."""


def _get_math_sdp_allow_fp16_bf16_reduction() -> bool:
    """Whether attention may sum in these dtypes: it does not."""
    return False


def _storage_Use_Count(address: int) -> int:  # noqa: N802 - PyTorch's name
    """Tensors of a storage; not counted here: 1."""
    return 1


def _is_alias_of(tensor: Any, other: Any) -> bool:
    """Whether two tensors share a storage."""
    first, second = tensor.untyped_storage(), other.untyped_storage()
    return bool(first.data_ptr() == second.data_ptr() and first.nbytes() == second.nbytes())


def _is_tracing() -> bool:
    """Whether `torch.jit.trace` runs this function to record it."""
    return bool(late("flambeau.jit").is_tracing())


def _get_cudnn_enabled() -> bool:
    """The setting `torch.backends.cudnn.enabled`."""
    return bool(late("flambeau.backends.cudnn").enabled)
