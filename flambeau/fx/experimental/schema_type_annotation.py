"""Types of nodes by the signatures of the functions that they call."""

from __future__ import annotations

import inspect
from typing import Any

import flambeau as torch
from flambeau.fx import Transformer
from flambeau.fx.operator_schemas import get_signature_for_torch_op

__all__ = ["AnnotateTypesWithSchema"]


class AnnotateTypesWithSchema(Transformer):
    """A transformer that sets the type of each node whose signature says it.

    Args:
        module: the module.
        annotate_functionals: whether functions count.
        annotate_modules: whether modules count.
        annotate_get_attrs: whether reads of attributes count.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        annotate_functionals: bool = True,
        annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:
        super().__init__(module)  # type: ignore[arg-type]
        self.annotate_functionals = annotate_functionals
        self.annotate_modules = annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copies a call of a function."""
        kind = None
        if self.annotate_functionals and callable(target):
            signatures = get_signature_for_torch_op(target) or ()
            fitting = [each for each in signatures if _fits(each, args, kwargs)]
            kinds = {each.return_annotation for each in fitting}
            kind = kinds.pop() if len(kinds) == 1 else None
        proxy = super().call_function(target, args, kwargs)
        proxy.node.type = proxy.node.type if proxy.node.type else kind
        return proxy

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copies a call of a module."""
        kind = None
        if self.annotate_modules:
            submodule = self.fetch_attr(target)
            if type(submodule).__name__ in vars(torch.nn):
                kind = inspect.signature(submodule.forward).return_annotation
        proxy = super().call_module(target, args, kwargs)
        named = kind not in (None, inspect.Signature.empty, "Any")
        proxy.node.type = proxy.node.type if proxy.node.type else (kind if named else None)
        return proxy

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copies a read of an attribute."""
        proxy = super().get_attr(target, args, kwargs)
        if self.annotate_get_attrs:
            value = self.fetch_attr(target)
            if isinstance(value, torch.nn.Parameter):
                proxy.node.type = torch.nn.Parameter
            elif isinstance(value, torch.Tensor):
                proxy.node.type = torch.Tensor
        return proxy


def _fits(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
