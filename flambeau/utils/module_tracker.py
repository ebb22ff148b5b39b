"""`torch.utils.module_tracker`: which module a program is inside of, forwards and backwards."""

from __future__ import annotations

import weakref
from typing import Any

from flambeau import _core
from flambeau.nn.modules.hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """A block in which `parents` holds the names of the modules that are running.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Identity())
        >>> with ModuleTracker() as tracker:
        ...     _ = net[0].register_forward_pre_hook(lambda m, x: print(sorted(tracker.parents)))
        ...     _ = net(torch.ones(1))
        ['Global', 'Sequential', 'Sequential.0']
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._backward = 0

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is running."""
        return self._backward > 0

    def _name(self, module: Any) -> str:
        if module not in self._names:
            self._name_children(module, type(module).__name__)
        return self._names[module]

    def _name_children(self, module: Any, name: str) -> None:
        self._names.setdefault(module, name)
        if module in self._known:
            return
        self._known.add(module)
        for key, child in module.named_children():
            self._names[child] = f"{name}.{key}"
            self._name_children(child, f"{name}.{key}")

    def _before_forward(self, module: Any, inputs: Any) -> Any:
        name = self._name(module)
        self.parents.add(name)
        return self._watched(inputs, name, leaves=True)

    def _after_forward(self, module: Any, inputs: Any, output: Any) -> Any:
        name = self._name(module)
        self.parents.discard(name)
        return self._watched(output, name, leaves=False)

    def _watched(self, value: Any, name: str, leaves: bool) -> None:
        """Notes in the backward pass when gradients reach the outputs or the inputs of a module."""
        for tensor in value if isinstance(value, (tuple, list)) else (value,):
            if getattr(tensor, "requires_grad", False) and tensor.grad_fn is not None:
                if leaves:
                    tensor.register_hook(lambda gradient: self._leave(name))
                else:
                    tensor.register_hook(lambda gradient: self._enter(name))

    def _enter(self, name: str) -> None:
        if not self._backward:
            _core.queue_callback(self._end_backward)
        self._backward += 1
        self.parents.add(name)

    def _leave(self, name: str) -> None:
        self.parents.discard(name)

    def _end_backward(self) -> None:
        """Modules whose inputs need no gradients are left here."""
        self._backward = 0
        self.parents = {"Global"}

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            register_module_forward_pre_hook(self._before_forward),
            register_module_forward_hook(self._after_forward, always_call=True),
        ]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()
        self.parents = {"Global"}
        self._backward = 0
