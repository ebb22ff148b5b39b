"""`autocast`: regions in which operators choose the dtype they compute in.

Each operator says in its definition what happens to its operands (docs/design.md § 8, `autocast`).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flambeau import _core
from flambeau.amp import state
from flambeau.amp.state import is_autocast_available
from flambeau.runtime import boundaries

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]


def autocast_decorator(autocast_instance: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls run inside of a region."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


def _require_text(device_type: object) -> None:
    if not isinstance(device_type, str):
        raise ValueError(
            "[autocast] Expected `device_type` of type `str`, got: "
            f"`{type(device_type)}`\nhint: device.type"
        )


class autocast:  # noqa: N801 - PyTorch's name
    """A region of mixed precision, as a context manager or a decorator.

    Within it matrix products and convolutions run in `dtype`, losses and factorisations in float32,
    joins in the widest dtype of their operands; all other operators promote as ever. Operands are
    cast by calls of `to`, so gradients arrive in the dtype of the parameters.

    Args:
        device_type: "cpu"; others are stored, without effect on tensors of the CPU.
        dtype: of lower precision, bfloat16 or float16; None: `torch.get_autocast_dtype`.
        enabled: False turns autocast off within the region.
        cache_enabled: whether the cast of a float32 parameter is reused until the outermost region
            ends; None: as it is.

    Raises:
        ValueError: `device_type` is no str.
        RuntimeError: a device type without autocast.

    Example:
        >>> x, w = torch.ones(2, 3), torch.ones(3, 4, requires_grad=True)
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     y = x @ w
        >>> y.dtype
        torch.bfloat16
        >>> y.sum().backward()
        >>> w.grad.dtype
        torch.float32
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        _require_text(device_type)
        default = state.get_autocast_dtype(device_type)
        if device_type == "privateuseone":
            raise AssertionError(
                "[autocast] Tried to use AMP with the `privateuseone` backend, but the backend has "
                "not registered a module\nhint: 'cpu'"
            )
        self.fast_dtype = default if dtype is None else dtype
        self.device = device_type
        self.custom_backend_name = "privateuseone"
        if cache_enabled is None:
            cache_enabled = state.is_autocast_cache_enabled()
        self._cache_enabled = cache_enabled
        self._enabled = enabled and self._is_supported()

    def _is_supported(self) -> bool:
        """Whether the region can be enabled; warns where it can not."""
        if self.device == "cuda":
            text = "CUDA is not available or torch_xla is imported. Disabling autocast."
        elif self.device == "cpu" and self.fast_dtype not in _lower_dtypes():
            text = (
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
            )
        else:
            return True
        warnings.warn(text, stacklevel=3)
        return False

    def __enter__(self) -> autocast:
        boundaries.crossing("autocast")
        before = (
            state.is_autocast_cache_enabled(),
            state.is_autocast_enabled(self.device),
            state.get_autocast_dtype(self.device),
        )
        if self._enabled or isinstance(self.fast_dtype, _core.dtype):
            state.set_autocast_dtype(self.device, self.fast_dtype)
        _core.autocast_push(self, before)
        state.set_autocast_enabled(self.device, bool(self._enabled))
        state.autocast_increment_nesting()
        state.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *exception: object) -> None:
        boundaries.crossing("autocast")
        cache, enabled, dtype = _core.autocast_pop(self)
        if state.autocast_decrement_nesting() == 0:
            state.clear_autocast_cache()
        state.set_autocast_enabled(self.device, enabled)
        state.set_autocast_dtype(self.device, dtype)
        state.set_autocast_cache_enabled(cache)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates a function."""
        return autocast_decorator(self, func)


def _current() -> autocast:
    """A region with the state that this thread has now, for what runs again later."""
    enabled = state.is_autocast_enabled("cpu")
    return autocast("cpu", state.get_autocast_dtype("cpu"), enabled)


def _lower_dtypes() -> tuple[Any, ...]:
    return tuple(state.DTYPE_OBJECTS[name] for name in ("bf16", "f16"))


def _enter_autocast(*values: Any) -> autocast:
    """Enters a region that `_exit_autocast` ends."""
    mode = autocast(*values)
    mode.__enter__()
    return mode


def _exit_autocast(mode: autocast) -> None:
    mode.__exit__(None, None, None)


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """A value whose floating-point tensors on a device are cast, in containers too."""
    if isinstance(value, _core.Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type
        float64 = value.dtype is state.DTYPE_OBJECTS["f64"]
        return value.to(dtype) if eligible and not float64 else value
    if isinstance(value, (str, bytes)) or type(value).__module__ == "numpy":
        return value
    if isinstance(value, Mapping):
        return {
            _cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()
        }
    if isinstance(value, Iterable):
        items = (_cast(item, device_type, dtype) for item in value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items  # type: ignore[call-arg]
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorates `forward` of an `autograd.Function` that may run under autocast.

    Args:
        fwd: the method.
        device_type: whose autocast is meant.
        cast_inputs: where autocast is on, floating-point tensors are cast to this dtype and
            `forward` runs without autocast; None: it runs under autocast as it is.

    Raises:
        ValueError: `device_type` is no str.

    Example:
        >>> class Product(torch.autograd.Function):
        ...     @staticmethod
        ...     @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        ...     def forward(ctx, a, b):
        ...         ctx.save_for_backward(a, b)
        ...         return a @ b
        ...
        ...     @staticmethod
        ...     @torch.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, grad):
        ...         a, b = ctx.saved_tensors
        ...         return grad @ b.mT, a.mT @ grad
        >>> with torch.autocast("cpu"):
        ...     Product.apply(torch.ones(2, 2), torch.ones(2, 2)).dtype
        torch.float32
    """
    _require_text(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        enabled = state.is_autocast_enabled(device_type)
        args[0]._dtype = state.get_autocast_dtype(device_type)
        args[0]._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            values = _cast(args[1:], device_type, cast_inputs)
            return fwd(args[0], *values, **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorates `backward` of a Function: it runs under the autocast state of `custom_fwd`.

    Raises:
        ValueError: `device_type` is no str.
    """
    _require_text(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type, context._dtype, context._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return decorate_bwd
