"""Tensors that are made of other tensors: the base of sparse, nested and masked ones.

Such a tensor is a `Tensor` by type whose own memory is a single zero that every position shows, so
that dtype and device are answered by the native type. Its parts are ordinary dense tensors, and
`__torch_function__` composes every operator of operators on these parts. In the graph of gradients
its *values* stand for it (`_on_tape`), so it needs no derivatives of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from flambeau.autograd import graph
from flambeau.core import tensors
from flambeau.core.tensors import Tensor
from flambeau.ir.lock import late


@functools.cache
def zero(dtype: Any) -> Any:
    """The one element that every such tensor of a dtype has for memory."""
    return tensors.from_python(0, dtype)


def hollow(kind: type, dtype: Any, size: Sequence[int]) -> Any:
    """An object of a subclass with these sizes and no memory of its own."""
    strides = (0,) * len(size)
    return tensors.reinterpreted(zero(dtype), dtype, tuple(size), strides, 0).as_subclass(kind)


def mapped(function: Callable[[Any], Any], result: Any) -> Any:
    """A result, or several with their names, with a function applied to each tensor."""
    if isinstance(result, Tensor):
        return function(result)
    if isinstance(result, (list, tuple)):
        items = [mapped(function, item) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


class Composite(Tensor):  # type: ignore[misc]
    """A tensor whose values are another tensor, which represents it on the tape."""

    _kept: Any
    _operators_only = True  # attributes and functions in Python are ordinary
    _made_by = ("Composite", "a function that makes one")  # its public name, and how to get one
    _called = ("composite tensor", "to_dense()")  # what it is, and what to take instead
    _composed_in: str  # the package of its modules dispatch, geometry and printing

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refused: there is no constructor.

        Raises:
            TypeError: always.
        """
        del args, kwargs
        name, maker = cls._made_by
        raise TypeError(f"[{name}] is not constructed directly\nhint: {maker}")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Composes the operator of operators on the parts."""
        del types
        return late(f"{cls._composed_in}.dispatch").call(func, args, kwargs or {})

    # ------------------------------------------------------------------ what a subclass says
    def _like(self, values: Any) -> Any:
        """A tensor of this kind with other values at the same indices."""
        raise NotImplementedError(type(self).__name__)

    def _values_of_gradient(self, gradient: Any) -> Any:
        """The gradient of the values that a gradient of the tensor means."""
        raise NotImplementedError(type(self).__name__)

    # ------------------------------------------------------------------ gradients: the values'
    @property
    def requires_grad(self) -> bool:
        """Whether gradients of the values are wanted."""
        return bool(self._kept.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._kept.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets `requires_grad` of a leaf."""
        self._kept.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from a tensor that needs gradients."""
        return bool(self._kept.is_leaf)

    @property
    def grad_fn(self) -> Any:
        """The node that computed the values, or None."""
        return self._kept.grad_fn

    @property
    def output_nr(self) -> int:
        """The number of these values among the outputs of `grad_fn`."""
        return int(self._kept.output_nr)

    @property
    def grad(self) -> Any:
        """The accumulated gradient, of the same kind and at the same indices; or None."""
        return self._gradient(self._kept.grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        if isinstance(value, Tensor):
            value = self._values_of_gradient(value)
        self._kept.grad = value

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return bool(self._kept.retains_grad)

    def retain_grad(self) -> None:
        """Stores the gradient of this interior tensor in its `grad`."""
        self._kept.retain_grad()

    def register_hook(self, hook: Callable[[Any], Any]) -> graph.RemovableHandle:
        """Calls *hook* with the gradient, a tensor of this kind, when it is computed."""

        def inner(values: Any) -> Any:
            changed = hook(self._gradient(values))
            return None if changed is None else self._values_of_gradient(changed)

        handle: graph.RemovableHandle = self._kept.register_hook(inner)
        return handle

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Adds the gradient of this tensor to the `.grad` of the leaves."""
        from flambeau import autograd

        autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def _on_tape(self) -> Any:
        """The dense tensor that represents this one in the graph of gradients."""
        return self._kept

    def _gradient(self, values: Any) -> Any:
        """A gradient of the values as a gradient of the tensor."""
        return None if values is None else self._like(values)

    def _overwrite(self, source: Any) -> Tensor:
        """Takes the result of an operator; a dense tensor may be given for `self`."""
        return self.copy_(source)

    def as_subclass(self, cls: type) -> Any:
        """The same tensor as another object, whose type is the same.

        Raises:
            TypeError: another type is requested.
        """
        if cls is not type(self):
            raise TypeError(
                f"[as_subclass] a {self._called[0]} cannot be a {cls.__name__}\n"
                "hint: wrap it instead"
            )
        return self._like(self._kept)

    def detach(self) -> Tensor:
        """The same data outside the autograd graph."""
        return self._like(self._kept.detach())

    def detach_(self) -> Tensor:
        """Leaves the autograd graph."""
        self._kept = self._kept.detach()
        return self

    @property
    def data(self) -> Any:
        """The data outside the autograd graph."""
        return self.detach()

    # ------------------------------------------------------------------ what needs memory
    def _no_memory(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"[{name}] Cannot access data pointer of Tensor that doesn't have storage\n"
            "hint: make it dense first, or look at values()"
        )

    def data_ptr(self) -> int:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        return self._no_memory("data_ptr")

    def tolist(self) -> Any:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        return self._no_memory("tolist")

    def storage_offset(self) -> int:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        return self._no_memory("storage_offset")

    def is_shared(self) -> bool:
        """Whether the values are in shared memory."""
        return bool(self._kept.is_shared())

    def is_pinned(self) -> bool:
        """False: there is no pinned memory."""
        return False

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        del dtype, copy
        return self.numpy()

    # ------------------------------------------------------------------ one element
    def _only_element(self) -> Any:
        """The number of a tensor of one element; a subclass says where it is."""
        raise NotImplementedError(type(self).__name__)

    def item(self) -> Any:
        """The number of a tensor of one element.

        Raises:
            RuntimeError: there are more or fewer.
            ValueError: the element is masked out.
        """
        if self.numel() != 1:
            raise RuntimeError(
                f"[item] a Tensor with {self.numel()} elements cannot be converted to Scalar\n"
                "hint: reduce it first"
            )
        return self._only_element()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(
                "[bool] Boolean value of Tensor with no or more than one value is ambiguous\n"
                "hint: use any() or all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # ------------------------------------------------------------------ Python's protocols
    def __getitem__(self, key: Any) -> Any:
        return late(f"{self._composed_in}.geometry").subscript(self, key)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        del tensor_contents
        return str(late(f"{self._composed_in}.printing").text(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError(
                "[deepcopy] Only Tensors created explicitly by the user (graph leaves) support the "
                "deepcopy protocol at the moment\nhint: deepcopy x.detach(), or clone() it"
            )
        if id(self) not in memo:
            memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __hash__(self) -> int:
        return object.__hash__(self)


class Wrapper(Composite):
    """One that PyTorch writes in Python, a tensor subclass: no block of memory to hand out."""

    @property
    def device(self) -> Any:
        """The device of the values."""
        return self._kept.device

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self._kept.nbytes)

    @property
    def _version(self) -> int:
        return int(self._kept._version)

    def _untyped(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"[{name}] .{name}() is not supported for tensor subclasses, got {self._made_by[0]}\n"
            f"hint: {self._called[1]}"
        )

    def untyped_storage(self) -> Any:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        self._untyped("untyped_storage")

    storage = _typed_storage = untyped_storage

    def numpy(self, *, force: bool = False) -> Any:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        del force
        self._untyped("numpy")

    def tolist(self) -> Any:
        """Not there.

        Raises:
            RuntimeError: always.
        """
        self._untyped("tolist")

    def __dlpack__(self, **options: Any) -> Any:
        del options
        raise BufferError(
            f"[dlpack] a {self._called[0]} is no block of memory\nhint: {self._called[1]}"
        )


GEOMETRY = (
    "squeeze_ unsqueeze_ transpose_ swapaxes_ swapdims_ t_ set_ resize_ resize_as_ as_strided "
    "as_strided_"
)  # methods that change the geometry of memory


def refuse_methods(
    kind: type[Composite], names: str, refuse: Callable[[str, Composite], NoReturn]
) -> None:
    """Gives a kind methods that raise, for a geometry of memory that is not there.

    Args:
        kind: the class.
        names: of the methods, separated by spaces.
        refuse: raises; called with the name and the tensor.
    """
    for name in names.split():

        def method(self: Composite, *args: Any, _name: str = name, **kwargs: Any) -> NoReturn:
            refuse(_name, self)

        method.__name__ = name
        method.__doc__ = f"Not for a {kind._called[0]}: `{name}` raises."
        setattr(kind, name, method)
