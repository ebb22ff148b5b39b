"""`Parameter` and `Buffer`: tensors that a module registers when they are assigned to it.

The uninitialised kinds stand for one whose shape the first call of a lazy module tells; they change
their class, not their identity, so that optimizers made before that call hold the right tensors.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from flambeau import _core
from flambeau._core import Tensor
from flambeau.nn.messages import problem

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
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
_ParameterMeta = _Marked  # PyTorch's name


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

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Tensor:
        """An alias of `data` that is a parameter."""
        if data is None:
            data = _core.tensor_empty((0,))
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        if not isinstance(data, Tensor):
            raise AttributeError(
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """The values in memory of their own, without a gradient or attributes."""
        if id(self) not in memo:
            values = self.detach().clone()
            memo[id(self)] = type(self)(values, self.requires_grad)
        return memo[id(self)]

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


class UninitializedTensorMixin:
    """The base of parameters and buffers without a shape: they refuse all but a few operations."""

    cls_to_become: Any = Tensor

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Turns this tensor, in place, into an ordinary one of a shape; its values are arbitrary.

        Args:
            shape: the sizes.
            device, dtype: those of this tensor when None.
        """
        device = self.device if device is None else device  # type: ignore[has-type]
        dtype = self.dtype if dtype is None else dtype  # type: ignore[has-type]
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        self.data = _core.tensor_empty(sizes, dtype, device)
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """There is none yet; raises RuntimeError."""
        raise RuntimeError(
            problem(
                type(self).__name__,
                "Can't access the shape of an uninitialized parameter or buffer (one cannot be "
                "loaded into an initialized module)",
                "call the lazy module once, with an example input",
            )
        )

    def share_memory_(self) -> NoReturn:
        """There is no memory yet; raises RuntimeError."""
        raise RuntimeError(
            problem(
                "share_memory_",
                "Can't share memory on an uninitialized parameter or buffer",
                "call the lazy module once, with an example input, before module.share_memory()",
            )
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Attributes, copies and conversions pass; all else raises ValueError."""
        if type(func).__name__ == "method-wrapper" or func in _without_shape():
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]
        raise ValueError(
            problem(
                getattr(func, "__name__", str(func)).strip("_"),
                f"Attempted to use an uninitialized parameter or buffer ({cls.__name__})",
                "call the lazy module once, with an example input, or materialize(shape)",
            )
        )


@functools.cache
def _without_shape() -> frozenset[Any]:
    """The methods that mean something before the shape is known; `Module.to` needs them."""
    names = (
        "__hash__ size copy_ is_complex is_floating_point half float double char short int long "
        "cuda cpu to get_device"
    )
    return frozenset(getattr(Tensor, name) for name in names.split())


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet: `materialize` gives it one.

    Args:
        requires_grad: whether gradients are wanted (True).
        device, dtype: of the parameter to be.

    Example:
        >>> weight = nn.UninitializedParameter()
        >>> weight
        <UninitializedParameter>
        >>> weight.materialize((2, 3))
        >>> type(weight).__name__, weight.shape
        ('Parameter', torch.Size([2, 3]))
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        """A parameter of no size."""
        data = _core.tensor_empty((0,), dtype, device)
        return Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Another one with the same options."""
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet: `materialize` gives it one.

    Args:
        requires_grad: whether gradients are wanted (False).
        device, dtype: of the buffer to be.
        persistent: whether it is part of `state_dict()`.

    Example:
        >>> mean = nn.UninitializedBuffer(dtype=torch.float64)
        >>> mean.materialize((2,))
        >>> type(mean).__name__, mean.dtype
        ('Tensor', torch.float64)
    """

    persistent: bool = True

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        """A buffer of no size."""
        data = _core.tensor_empty((0,), dtype, device)
        made = Tensor._make_subclass(cls, data, requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype, self.persistent)


def is_lazy(param: Any) -> bool:
    """Whether a tensor waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)


def reset_gradient(parameter: Any, set_to_none: bool) -> None:
    """Drops a parameter's gradient, or fills it with zeros, without its graph.

    Args:
        parameter: a leaf.
        set_to_none: False keeps the tensor; it may be a view unless it has a graph.
    """
    if set_to_none:
        parameter.grad = None  # without a look at the old one, which compiled calls then ignore
        return
    gradient = parameter.grad
    if gradient is None:
        return
    if gradient.grad_fn is not None:
        gradient.detach_()
    else:
        gradient.requires_grad_(False)
    gradient.zero_()
