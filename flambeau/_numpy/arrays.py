"""Arrays that have a tensor, on which NumPy's functions run as operators on tensors."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy import indexing, ufuncs
from flambeau._numpy.dtypes import Untranslated, numpy_dtype, torch_dtype
from flambeau.utils import _pytree as pytree

__all__ = ["FUNCTIONS", "asarray", "ndarray", "register", "tensor_of"]

Value = Any  # an array, a number, what NumPy's functions take and give
# NumPy's functions -> functions of arrays and numbers that compute them on tensors.
FUNCTIONS: dict[Value, Callable[..., Value]] = {}
_SIGNATURES: dict[Value, inspect.Signature] = {}


def register(*names: str, module: Value = np) -> Callable[[Callable[..., Value]], Value]:
    """A decorator: what functions of NumPy are in operators on tensors.

    Args:
        names: of the functions.
        module: of NumPy.
    """

    def add(function: Callable[..., Value]) -> Callable[..., Value]:
        for name in names:
            theirs = getattr(module, name)
            FUNCTIONS[theirs] = function
            _SIGNATURES[theirs] = inspect.signature(function)
        return function

    return add


def asarray(value: Value) -> ndarray:
    """An array of a tensor, of one of NumPy's, or of numbers and lists.

    Raises:
        Untranslated: the elements have no type of ours.
    """
    if type(value) is ndarray:
        return value
    if isinstance(value, torch.Tensor):
        return ndarray(value)
    if isinstance(value, (list, tuple)) and _has_arrays(value):
        return np.stack([asarray(x) for x in value])
    array = np.asarray(value)
    torch_dtype(array.dtype)
    if any(step < 0 for step in array.strides) or not array.flags.writeable:
        array = array.copy()
    return ndarray(torch.from_numpy(array))


def tensor_of(value: Value) -> Value:
    """The tensor of an array, or of what is taken for one."""
    return asarray(value).tensor


def _operand(value: Value) -> Value:
    """An operand of a universal function: a number of Python, or a tensor and NumPy's dtype."""
    if type(value) in (int, float, complex):
        return value
    array = asarray(value)
    return array.tensor, array.dtype


def _to_numpy(value: Value) -> Value:
    return value.__array__() if type(value) is ndarray else value


def _from_numpy(value: Value) -> Value:
    if isinstance(value, (np.ndarray, np.generic)) and type(value) is not ndarray:
        try:
            return asarray(value)
        except Untranslated:
            return value
    return value


def as_numpy(function: Callable[..., Value], args: Value, kwargs: Value) -> Value:
    """The results of NumPy itself, which reads and writes the tensors' memory."""
    args, kwargs = pytree.tree_map(_to_numpy, (args, kwargs))
    return pytree.tree_map(_from_numpy, function(*args, **kwargs))


def _binary(name: str) -> Value:
    ufunc = getattr(np, name)

    def method(self: Value, other: Value) -> Value:
        return ufunc(self, other) if _is_operand(other) else NotImplemented

    return method


def _reflected(name: str) -> Value:
    ufunc = getattr(np, name)

    def method(self: Value, other: Value) -> Value:
        return ufunc(other, self) if _is_operand(other) else NotImplemented

    return method


def _in_place(name: str) -> Value:
    ufunc = getattr(np, name)

    def method(self: Value, other: Value) -> Value:
        return ufunc(self, other, out=(self,))

    return method


def _unary(name: str) -> Value:
    return lambda self: getattr(np, name)(self)


def _is_operand(value: Value) -> bool:
    return not isinstance(value, torch.Tensor)


def _by_function(name: str) -> Value:
    """A method that is a function of NumPy of the same arguments."""
    function = getattr(np, name)

    def method(self: Value, *args: Value, **kwargs: Value) -> Value:
        return function(self, *args, **kwargs)

    return method


class ndarray:  # noqa: N801 - NumPy's name
    """An array whose elements are those of a tensor.

    It is an instance of `numpy.ndarray` for `isinstance`. Results of reductions have no dimensions
    where NumPy gives numbers. Slices with negative steps are copies.

    Args:
        tensor: the tensor.

    Example:
        >>> import numpy
        >>> from flambeau._numpy import ndarray
        >>> numpy.add(ndarray(torch.ones(2)), 1).tensor
        tensor([2., 2.])
    """

    __slots__ = ("tensor",)
    __array_priority__ = 1000.0

    def __init__(self, tensor: Value) -> None:
        numpy_dtype(tensor.dtype)
        self.tensor = tensor

    @property
    def __class__(self) -> type:
        return np.ndarray

    # ---- NumPy's functions
    def __array_ufunc__(self, ufunc: Value, method: str, *inputs: Value, **kwargs: Value) -> Value:
        """A universal function of arrays of which one is of this type."""
        targets = kwargs.pop("out", ())
        try:
            results = _ufunc(ufunc, method, inputs, dict(kwargs))
        except Untranslated:
            function = getattr(ufunc, method) if method != "__call__" else ufunc
            if targets:
                kwargs["out"] = targets[0] if len(targets) == 1 else targets
            results = as_numpy(function, inputs, kwargs)
            return targets[0] if len(targets) == 1 else results
        if not targets or all(target is None for target in targets):
            return results
        many = results if isinstance(results, tuple) else (results,)
        given_back = tuple([_written(t, x) for t, x in zip(targets, many, strict=True)])
        return given_back if isinstance(results, tuple) else given_back[0]

    def __array_function__(self, func: Value, types: Value, args: Value, kwargs: Value) -> Value:
        """Another function of NumPy."""
        rule = FUNCTIONS.get(func)
        if rule is not None:
            target = kwargs.get("out")
            options = {name: x for name, x in kwargs.items() if name != "out"}
            try:
                _SIGNATURES[func].bind(*args, **options)
            except TypeError:
                return as_numpy(func, args, kwargs)
            try:
                result = rule(*args, **options)
                return result if target is None else _written(target, result)
            except Untranslated:
                pass
        return as_numpy(func, args, kwargs)

    def __array__(self, dtype: Value = None, copy: bool | None = None) -> Value:
        """An array of NumPy with the tensor's memory."""
        array = self.tensor.numpy()
        return array if dtype is None and not copy else np.array(array, dtype=dtype, copy=True)

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):
            raise AttributeError(f"'ndarray' object has no attribute {name!r}")
        value = getattr(self.__array__(), name)
        if not callable(value):
            return _from_numpy(value)
        return lambda *args, **kwargs: as_numpy(getattr(self.__array__(), name), args, kwargs)

    # ---- attributes
    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        """The number of elements."""
        count: int = self.tensor.numel()
        return count

    @property
    def dtype(self) -> Value:
        """NumPy's type of the elements."""
        return numpy_dtype(self.tensor.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps in bytes."""
        return tuple([step * self.itemsize for step in self.tensor.stride()])

    @property
    def T(self) -> ndarray:  # noqa: N802 - NumPy's name
        """The array with its dimensions reversed."""
        return ndarray(self.tensor.permute(*reversed(range(self.ndim))))

    @property
    def mT(self) -> ndarray:  # noqa: N802 - NumPy's name
        """The array with its last two dimensions swapped."""
        return ndarray(self.tensor.mT)

    @property
    def real(self) -> ndarray:
        """Real parts."""
        return ndarray(self.tensor.real if self.tensor.is_complex() else self.tensor)

    @property
    def imag(self) -> ndarray:
        """Imaginary parts."""
        zeros = torch.zeros_like
        return ndarray(self.tensor.imag if self.tensor.is_complex() else zeros(self.tensor))

    # ---- elements
    def __getitem__(self, key: Value) -> ndarray:
        return ndarray(indexing.read(self.tensor, _indices(key)))

    def __setitem__(self, key: Value, value: Value) -> None:
        indexing.write(self.tensor, _indices(key), tensor_of(value))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return int(self.tensor.shape[0])

    def __iter__(self) -> Iterator[ndarray]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return map(ndarray, self.tensor.unbind(0))

    def __contains__(self, value: Value) -> bool:
        return bool((self == value).any())

    def item(self, *args: int) -> Value:
        """An element as a number of Python."""
        return self.__array__().item(*args)

    def tolist(self) -> Value:
        """The elements as numbers of Python."""
        return self.tensor.tolist()

    def __bool__(self) -> bool:
        return bool(self.__array__())

    def __int__(self) -> int:
        return int(self.__array__())

    def __float__(self) -> float:
        return float(self.__array__())

    def __complex__(self) -> complex:
        return complex(self.__array__())

    def __index__(self) -> int:
        return operator.index(self.__array__())

    def __repr__(self) -> str:
        return repr(self.__array__())

    def __str__(self) -> str:
        return str(self.__array__())

    def __format__(self, spec: str) -> str:
        return format(self.__array__()[()], spec)

    __hash__ = None

    # ---- methods
    def astype(self, dtype: Value, order: str = "K", copy: bool = True, **options: Value) -> Value:
        """The elements in another type."""
        try:
            kind = torch_dtype(dtype)
        except Untranslated:
            return self.__array__().astype(dtype)
        tensor = (
            self.tensor.real if self.tensor.is_complex() and not kind.is_complex else self.tensor
        )
        return ndarray(tensor.to(kind, copy=copy))

    def copy(self, order: str = "C") -> ndarray:
        """An array with memory of its own."""
        return ndarray(self.tensor.clone())

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Value) -> ndarray:
        return self.copy()

    def reshape(self, *shape: Value, **options: Value) -> ndarray:
        """The elements in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        result: ndarray = np.reshape(self, tuple(sizes), **options)
        return result

    def transpose(self, *axes: Value) -> ndarray:
        """The array with its dimensions in another order."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        result: ndarray = np.transpose(self, order)
        return result

    def flatten(self, order: str = "C") -> Value:
        """A copy with one dimension."""
        if order not in ("C", "K"):
            return as_numpy(self.__array__().flatten, (order,), {})
        return ndarray(self.tensor.flatten().clone())

    def dot(self, other: Value) -> Value:
        """`numpy.dot`."""
        return np.dot(self, other)

    def fill(self, value: Value) -> None:
        """Writes a number to all elements."""
        self.tensor.fill_(tensor_of(value).to(self.tensor.dtype))

    def sort(self, axis: int = -1, **options: Value) -> None:
        """Sorts in place."""
        self.tensor.copy_(np.sort(self, axis).tensor)

    def conj(self) -> Value:
        """Conjugates."""
        return np.conjugate(self)

    conjugate = conj


for _name in ("add subtract multiply divide floor_divide remainder power matmul bitwise_and "
              "bitwise_or bitwise_xor left_shift right_shift").split():  # fmt: skip
    _short = {"subtract": "sub", "multiply": "mul", "divide": "truediv", "remainder": "mod",
              "floor_divide": "floordiv", "power": "pow", "left_shift": "lshift",
              "right_shift": "rshift"}.get(_name, _name.removeprefix("bitwise_"))  # fmt: skip
    setattr(ndarray, f"__{_short}__", _binary(_name))
    setattr(ndarray, f"__r{_short}__", _reflected(_name))
    setattr(ndarray, f"__i{_short}__", _in_place(_name))
for _short, _name in (("lt", "less"), ("le", "less_equal"), ("gt", "greater"),
                      ("ge", "greater_equal"), ("eq", "equal"), ("ne", "not_equal")):  # fmt: skip
    setattr(ndarray, f"__{_short}__", _binary(_name))
for _short, _name in (("neg", "negative"), ("pos", "positive"), ("abs", "absolute"),
                      ("invert", "invert")):  # fmt: skip
    setattr(ndarray, f"__{_short}__", _unary(_name))
ndarray.__divmod__ = _binary("divmod")
for _name in ("sum prod mean std var max min argmax argmin any all cumsum cumprod ptp round clip "
              "take repeat ravel squeeze swapaxes diagonal trace nonzero argsort "
              "searchsorted").split():  # fmt: skip
    setattr(ndarray, _name, _by_function(_name))


# ------------------------------------------------------------------------------ calls
def _indices(key: Value) -> tuple[Value, ...]:
    """A subscript as numbers, slices, tensors, None and an ellipsis."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple([_index(item) for item in items])


def _index(item: Value) -> Value:
    if type(item) is ndarray:
        return item.tensor
    if isinstance(item, (list, np.ndarray)):
        array = asarray(np.asarray(item) if not _has_arrays(item) else item)
        return array.tensor.to(torch.int64) if array.size == 0 else array.tensor
    if isinstance(item, np.bool_):
        return bool(item)
    return int(item) if isinstance(item, np.integer) else item


def _has_arrays(value: Value) -> bool:
    return any(type(x) is ndarray for x in pytree.tree_leaves(value))


def _written(target: Value, result: Value) -> Value:
    """Copies a result to where the call says."""
    if type(target) is not ndarray:
        target[...] = result.__array__()
        return target
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast ufunc output from {result.dtype!r} to {target.dtype!r} with casting "
            "rule 'same_kind'"
        )
    target.tensor.copy_(result.tensor)
    return target


def _ufunc(ufunc: Value, method: str, inputs: Value, kwargs: dict[str, Value]) -> Value:
    if method == "__call__":
        dtype = kwargs.pop("dtype", None)
        if kwargs.pop("where", True) is not True or kwargs:
            raise Untranslated("options of a universal function")
        results = ufuncs.called(ufunc, [_operand(x) for x in inputs], dtype)
        return tuple(map(ndarray, results)) if isinstance(results, tuple) else ndarray(results)
    if method == "outer" and not kwargs:
        a, b = ufuncs.outer(*map(asarray, inputs))
        return ufunc(a, b)
    if method in ("reduce", "accumulate"):
        name = getattr(ufuncs, f"{method}d")(ufunc.__name__)
        positional = inputs[1:] if len(inputs) > 1 else ()
        options = {"axis": 0, **dict(zip(("axis", "dtype"), positional, strict=False)), **kwargs}
        return FUNCTIONS[getattr(np, name)](inputs[0], **options)
    raise Untranslated(f"{ufunc.__name__}.{method}")


from flambeau._numpy import creation, manipulation, products, reductions  # noqa: E402,F401
