"""Lazy modules: the first input tells the sizes that were left out.

A lazy module is its eager class with parameters that have no shape. Two hooks do the rest: one
gives them the shapes of a state dict that is loaded; the other, before the first forward, those
that the input implies, then removes both and turns the module into an instance of the eager class.
"""

from __future__ import annotations

import itertools
from typing import Any, NoReturn

from flambeau.autograd import no_grad
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(Module):
    """Makes a module lazy: put it before the eager class among the bases.

    The subclass assigns `UninitializedParameter`s and `UninitializedBuffer`s in its `__init__` and
    gives them shapes in `initialize_parameters`.

    Attributes:
        cls_to_become: the class of the module after its first call; None to keep it.

    Example:
        >>> from flambeau.nn.modules.lazy import LazyModuleMixin
        >>> class Scale(LazyModuleMixin, nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight = nn.UninitializedParameter()
        ...     def initialize_parameters(self, x):
        ...         self.weight.materialize(x.shape[-1:])
        ...         nn.init.ones_(self.weight)
        ...     def forward(self, x):
        ...         return x * self.weight
        >>> Scale()(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives the uninitialised members their shapes and values; takes what `forward` takes.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        text = f"initialize_parameters is not implemented for {type(self).__name__}"
        raise NotImplementedError(problem("initialize_parameters", text, "define it"))

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module itself waits for its shape."""
        return any(is_lazy(t) for _, t in self._own_tensors())

    def _own_tensors(self) -> Any:
        return itertools.chain(self._parameters.items(), self._buffers.items())

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """The hook before the first forward."""
        with no_grad():
            module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            text = f"module {module._get_name()} has not been fully initialized"
            hint = "materialize every parameter and buffer in initialize_parameters"
            raise RuntimeError(problem("lazy module", text, hint))
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    # ------------------------------------------------------------------------ loading
    def _lazy_load_hook(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """The hook before loading: shapes come from what will be copied."""
        for name, tensor in self._own_tensors():
            given = state_dict.get(prefix + name)
            if is_lazy(tensor) and given is not None and not is_lazy(given):
                with no_grad():
                    tensor.materialize(given.shape)

    def _replicate_for_data_parallel(self) -> NoReturn:
        text = "Modules with uninitialized parameters can't be used with `DataParallel`"
        hint = "call the module once, with an example input"
        raise RuntimeError(problem("DataParallel", text, hint))
