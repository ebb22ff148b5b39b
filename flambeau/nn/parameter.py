"""`Parameter` and `Buffer`: tensors that a module registers when they are assigned to it."""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau import _core
from flambeau._core import Tensor
from flambeau.nn.messages import problem

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "is_lazy",
]


class _Marked(type(Tensor)):  # type: ignore[misc]
    """A tensor of another subclass counts as an instance when it carries the mark of the class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance):
            return True
        mark = _MARKS.get(cls)  # classes derived from a marked one have none
        if mark is None or not isinstance(instance, Tensor):
            return False
        return bool(getattr(instance, mark, False))


_MARKS: dict[type, str] = {}


class Parameter(Tensor, metaclass=_Marked):
    """A tensor that is a parameter of the module it is assigned to.

    Args:
        data: the values; an empty tensor when None. The storage is shared.
        requires_grad: whether gradients are wanted (True).

    Example:
        >>> nn.Parameter(torch.zeros(2))
        Parameter containing:
        tensor([0., 0.], requires_grad=True)
    """

    __torch_function__ = _core._disabled_torch_function

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        """An alias of `data` that is a parameter."""
        if data is None:
            data = _core.tensor_empty((0,))
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        if not isinstance(data, Tensor):
            raise TypeError(
                problem(
                    "Parameter",
                    f"data must be a Tensor, but got {type(data).__name__}",
                    "nn.Parameter(torch.tensor(data))",
                )
            )
        marked = data.detach()
        if type(marked) is not type(data):  # a wrapper's `detach` gives a wrapper
            marked = marked.as_subclass(type(data))
        marked.requires_grad_(requires_grad)
        marked._is_param = True
        return marked

    def __repr__(self) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self)


class Buffer(Tensor, metaclass=_Marked):
    """A tensor that becomes a buffer of the module it is assigned to.

    Args:
        data: the values; an empty tensor when None.
        persistent: whether it is part of `state_dict()`.
    """

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        """An alias of `data` that is marked as a buffer."""
        if data is None:
            data = _core.tensor_empty((0,))
        marked = data.detach().requires_grad_(data.requires_grad)
        marked.persistent = persistent
        marked._is_buffer = True
        return marked

    __torch_function__ = _core._disabled_torch_function


_MARKS.update({Parameter: "_is_param", Buffer: "_is_buffer"})


def _no_lazy(name: str) -> NoReturn:
    raise NotImplementedError(
        problem(
            name,
            "lazy modules and uninitialised parameters are not supported",
            "give the sizes and use the module without 'Lazy'",
        )
    )


class UninitializedParameter(Parameter):
    """A parameter without a shape; not supported."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises NotImplementedError."""
        _no_lazy(cls.__name__)


class UninitializedBuffer(Buffer):
    """A buffer without a shape; not supported."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises NotImplementedError."""
        _no_lazy(cls.__name__)


def is_lazy(param: Any) -> bool:
    """Whether a tensor waits for its shape."""
    return isinstance(param, (UninitializedParameter, UninitializedBuffer))
