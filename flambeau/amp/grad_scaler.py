"""`GradScaler`: losses are multiplied by a scale, so that small gradients survive in float16.

The scale grows after many steps without infinite gradients, and falls after each with them, which
is left out (Micikevicius et al. 2018, "Mixed precision training").
"""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import flambeau as torch

__all__ = ["GradScaler", "OptState"]

Tensor = Any


class _MultiDeviceReplicator:
    """A tensor, and its copies on other devices.

    Args:
        master_tensor: the tensor.
    """

    def __init__(self, master_tensor: Tensor) -> None:
        self.master = master_tensor
        self._copies: dict[Any, Tensor] = {}

    def get(self, device: Any) -> Tensor:
        """The copy on a device."""
        if device not in self._copies:
            self._copies[device] = self.master.to(device)
        return self._copies[device]


class OptState(Enum):
    """How far an optimizer is between two updates of the scale."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, unscales gradients before a step, leaves out steps with infinite ones.

    Args:
        device: "cpu"; "cuda" warns and disables the scaler.
        init_scale: the first scale.
        growth_factor: of the scale, after `growth_interval` steps in a row without inf or nan.
        backoff_factor: of the scale, after a step with inf or nan.
        growth_interval: steps between two rises.
        enabled: False makes every method do nothing; `step` then steps.

    Raises:
        AssertionError: factors on the wrong side of 1.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.SGD([w], lr=0.5)
        >>> scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        >>> scaler.scale(w.sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> w
        tensor([0.5000, 0.5000], requires_grad=True)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda":
            text = "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling."
            warnings.warn(text, stacklevel=2)
            self._enabled = False
        if not self._enabled:
            return
        assert growth_factor > 1.0, "The growth factor must be > 1.0."
        assert backoff_factor < 1.0, "The backoff factor must be < 1.0."
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states = _fresh_states()

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[Tensor, Tensor]:
        fix = "This may indicate your script did not use scaler.scale(loss or outputs) earlier."
        assert self._scale is not None, f"Attempted {funcname} but _scale is None.  {fix}"
        tracker = self._growth_tracker
        assert tracker is not None, f"Attempted {funcname} but _growth_tracker is None.  {fix}"
        return self._scale, tracker

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        assert self._growth_tracker is None, "_growth_tracker initialized before _scale"
        self._scale = torch.full((), self._init_scale, dtype=torch.float32, device=dev)
        start = self._init_growth_tracker
        self._growth_tracker = torch.full((), start, dtype=torch.int32, device=dev)

    def scale(self, outputs: Any) -> Any:
        """Multiplies a tensor, or each in an iterable of tensors, by the scale.

        Raises:
            ValueError: neither a tensor nor an iterable.
        """
        return self._scaled(outputs) if self._enabled else outputs

    def _scaled(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(value.device)
            assert self._scale is not None
            return value * self._scale.to(value.device)
        if not isinstance(value, Iterable):
            raise ValueError(
                "[GradScaler] outputs must be a Tensor or an iterable of Tensors, got "
                f"{type(value).__name__}\nhint: scaler.scale(loss)"
            )
        items = map(self._scaled, value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items  # type: ignore[call-arg]

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        """Unscales the gradients of an optimizer: one flag per device that has some."""
        groups: dict[Any, dict[Any, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            grad = parameter.grad
            if grad is None:
                continue
            if not allow_fp16 and grad.dtype == torch.float16:
                raise ValueError(
                    "[GradScaler] Attempting to unscale FP16 gradients.\n"
                    "hint: parameters are float32; autocast casts them"
                )
            if grad.is_sparse:
                if grad.dtype is torch.float16:  # sums of duplicate entries may overflow
                    parameter.grad = grad.coalesce()
                grad = parameter.grad._values()
            groups[grad.device][grad.dtype].append(grad)
        flags, factors = _MultiDeviceReplicator(found_inf), _MultiDeviceReplicator(inv_scale)
        for device, per_dtype in groups.items():
            for grads in per_dtype.values():
                torch._amp_foreach_non_finite_check_and_unscale_(
                    grads, flags.get(device), factors.get(device)
                )
        return {device: flags.get(device) for device in groups}

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters by the scale, once per step.

        Raises:
            RuntimeError: called twice since the last update, or after the step.
            ValueError: gradients are float16.
        """
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        states = self._per_optimizer_states[id(optimizer)]
        if states["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "[GradScaler] unscale_() has already been called on this optimizer since the last "
                "update().\nhint: once per step"
            )
        if states["stage"] is OptState.STEPPED:
            raise RuntimeError(
                "[GradScaler] unscale_() is being called after step().\nhint: before it"
            )
        self._check_inf(optimizer, states, inverse=True, allow_fp16=False)
        states["stage"] = OptState.UNSCALED

    def _check_inf(
        self, optimizer: Any, states: dict[str, Any], inverse: bool, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        assert self._scale is not None
        scale = self._scale
        factor = scale.double().reciprocal().float() if inverse else torch.ones_like(scale)
        flag = torch.full((), 0.0, dtype=torch.float32, device=scale.device)
        flags = self._unscale_grads_(optimizer, factor, flag, allow_fp16)
        states["found_inf_per_device"] = flags
        return flags

    def _maybe_opt_step(
        self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        flags = optimizer_state["found_inf_per_device"].values()
        return None if sum(v.item() for v in flags) else optimizer.step(*args, **kwargs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales gradients, unless that was done, and steps where all of them are finite.

        Args:
            optimizer: what steps.
            args, kwargs: of its step.

        Returns:
            What `optimizer.step` returned, or None.

        Raises:
            RuntimeError: called twice since the last update, or with a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError(
                "[GradScaler] Closure use is not currently supported if GradScaler is enabled.\n"
                "hint: call backward() before step()"
            )
        self._check_scale_growth_tracker("step")
        states = self._per_optimizer_states[id(optimizer)]
        if states["stage"] is OptState.STEPPED:
            raise RuntimeError(
                "[GradScaler] step() has already been called since the last update().\n"
                "hint: update() after each step"
            )
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_by_scale(optimizer, states, *args, **kwargs)
        else:
            if states["stage"] is OptState.READY:
                self.unscale_(optimizer)
            assert states["found_inf_per_device"], "No inf checks were recorded for this optimizer."
            result = self._maybe_opt_step(optimizer, states, *args, **kwargs)
        states["stage"] = OptState.STEPPED
        return result

    def _step_by_scale(
        self, optimizer: Any, states: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """A step of an optimizer that unscales gradients and leaves out steps by itself."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            text = (
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
                "`found_inf: Tensor` to the passed optimizer and let the optimizer use them "
                "directly."
            )
            warnings.warn(text, FutureWarning, stacklevel=3)
            return optimizer.step(*args, **{**kwargs, "grad_scaler": self})
        if states["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        scale = self._get_scale_async()
        assert scale is not None
        flags = list(states["found_inf_per_device"].values())
        flag = torch.zeros_like(scale) + sum(flags) if flags else torch.zeros_like(scale)
        earlier = getattr(optimizer, "grad_scale", None)
        unscaled = states["stage"] is OptState.UNSCALED
        optimizer.grad_scale = earlier if unscaled else scale * (1 if earlier is None else earlier)
        optimizer.found_inf = flag
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale
            del optimizer.found_inf

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Ends a step: raises or lowers the scale, or sets it.

        Args:
            new_scale: the new scale: a number, or a float32 tensor of one element.

        Raises:
            AssertionError: no gradients were looked at since the last update.
        """
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set_scale(scale, new_scale)
        else:
            flags = [
                flag
                for states in self._per_optimizer_states.values()
                for flag in states["found_inf_per_device"].values()
            ]
            assert flags, "No inf checks were recorded prior to update."
            total = flags[0] if len(flags) == 1 else torch.stack(flags).sum()
            torch._amp_update_scale_(
                scale, tracker, total,
                self._growth_factor, self._backoff_factor, self._growth_interval,
            )  # fmt: skip
        self._per_optimizer_states = _fresh_states()

    def _set_scale(self, scale: Tensor, new_scale: float | Tensor) -> None:
        if isinstance(new_scale, float):
            scale.fill_(new_scale)
            return
        reason = (
            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
            "torch.FloatTensor with requires_grad=False."
        )
        assert isinstance(new_scale, torch.Tensor), reason
        fits = new_scale.dtype == torch.float32 and new_scale.numel() == 1
        assert fits and new_scale.device.type == self._device, reason
        assert new_scale.requires_grad is False, reason
        scale.copy_(new_scale.reshape(()))

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The scale as a number; 1.0 where the scaler is disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The factor of rises."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor of rises."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor after a step with inf or nan."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor after a step with inf or nan."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Steps between two rises."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the steps between two rises."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker.item())

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale, its factors and the steps since its last change; empty where disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned.

        Raises:
            RuntimeError: it is that of a disabled scaler.
        """
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "[GradScaler] The source state dict is empty, possibly because it was saved from a "
                "disabled instance of GradScaler.\nhint: GradScaler(enabled=False) loads nothing"
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            assert len(self._per_optimizer_states) == 0, (
                "A GradScaler instance may only be pickled at the beginning of an iteration, or "
                "at the end after scaler.update()."
            )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
            del state["_per_optimizer_states"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._enabled:
            self._per_optimizer_states = _fresh_states()

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        self._check_scale_growth_tracker("_check_inf_per_device")
        states = self._per_optimizer_states[id(optimizer)]
        return self._check_inf(optimizer, states, inverse=False, allow_fp16=True)

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        flags: dict[Any, Tensor]
        flags = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        return flags


def _fresh_states() -> defaultdict[int, dict[str, Any]]:
    return defaultdict(_refresh_per_optimizer_state)
