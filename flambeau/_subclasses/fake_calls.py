"""How a call with fake tensors is answered: by the operator itself, on the meta device.

A call first compares the devices of its fake operands and replaces a requested device by meta. The
operator then runs with modes off, on fakes that are meta tensors in every respect
(`state.kernel`); the tape records as usual. The results become fakes. An operator whose result
depends on data raises.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flambeau.autograd as autograd
from flambeau import _core
from flambeau._subclasses.fake_errors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
)
from flambeau.ir.lock import late
from flambeau.language.definition import REGISTRY
from flambeau.ops import aten
from flambeau.runtime.symbolic import lowered
from flambeau.utils import _python_dispatch
from flambeau.utils._pytree import tree_leaves, tree_map_only

Tensor = _core.Tensor
Value = Any  # an argument or a result of a function


class _State(threading.local):
    def __init__(self) -> None:
        self.kernel = False


state = _State()


@functools.cache
def _fake() -> Any:
    from flambeau._subclasses import fake_tensor

    return fake_tensor


# ------------------------------------------------------------------------------ modes
def active_mode() -> Any:
    """The fake mode that this thread is in, or None."""
    kind = _fake().FakeTensorMode
    modes = [m for m in _python_dispatch._modes.stack if isinstance(m, kind)]
    return modes[-1] if modes else None


def mode_of(values: Sequence[Any]) -> Any:
    """The mode of the first fake tensor among arguments."""
    return next(x.__dict__["fake_mode"] for x in _tensors(values) if _is_fake(x))


@contextmanager
def below() -> Iterator[None]:
    """A `with` block in which fakes are meta tensors and fake modes are inactive."""
    kernel, state.kernel = state.kernel, True
    types = _core.set_torch_function_enabled(False)
    functions = _core.set_function_modes_enabled(False)
    stack = _python_dispatch._modes.stack
    kind = _fake().FakeTensorMode
    _python_dispatch._set_modes([m for m in stack if not isinstance(m, kind)])
    try:
        yield
    finally:
        _python_dispatch._set_modes(stack)
        _core.set_function_modes_enabled(functions)
        _core.set_torch_function_enabled(types)
        state.kernel = kernel


# ------------------------------------------------------------------------------ values
def _is_fake(value: Any) -> bool:
    return isinstance(value, _fake().FakeTensor)


def _tensors(values: Any) -> list[Any]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    return tree_map_only(Tensor, change, value)


def indexed(device: Any) -> Any:
    """A device with its index: accelerators are numbered."""
    device_object = device if isinstance(device, _core.device) else _core.device(device)
    if device_object.index is None and device_object.type in ("cuda", "xpu", "hpu", "mps", "mtia"):
        return _core.device(device_object.type, 0)
    return device_object


def adopted(mode: Any, tensor: Any, device: Any) -> Any:
    """A fake with the geometry and the history of a tensor on the meta device."""
    kind = _fake().FakeTensor if mode is None else mode.kind
    with below():
        if tensor._is_view():
            with _core.enable_grad():  # it stays a view, which may be written as one
                fake = tensor.as_subclass(kind)
        else:
            with _core.no_grad():
                fake = tensor.as_subclass(kind)
        if tensor.grad_fn is not None:
            with _core.no_grad():  # nothing is written: a view of a leaf may be adopted
                _core.tensor_take_over(fake, tensor, False)
        elif tensor.requires_grad and not fake.requires_grad:
            fake.requires_grad_()
    fake.__dict__.update(fake_mode=mode, fake_device=device, constant=None)
    return fake


def _results(mode: Any, value: Any, device: Any) -> Any:
    return _mapped(value, lambda x: x if _is_fake(x) else _result(mode, x, device))


def _result(mode: Any, tensor: Any, device: Any) -> Any:
    if tensor.layout is not _core.strided:
        return tensor
    return adopted(mode, tensor, device) if tensor.is_meta else mode.from_tensor(tensor)


def _operands(mode: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments in which every tensor is a fake of this mode.

    Raises:
        AssertionError: one is of another mode, or real where that is not allowed.
    """

    def checked(x: Any) -> Any:
        if _is_fake(x):
            if x.fake_mode is not mode:
                raise AssertionError(f"Mixing fake modes NYI {x.fake_mode=} vs self={mode}")
            return x
        if x.is_meta:  # a gradient on its way: the engine knows of no pretended device
            return x
        if not mode.allow_non_fake_inputs:
            shown = [*map(_shown, args), *(f"{k}={_shown(v)}" for k, v in kwargs.items())]
            raise AssertionError(
                "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode "
                "with 'allow_non_fake_inputs'. Found in "
                f"{_called(func, args, kwargs)}({', '.join(shown)})"
            )
        return mode.from_tensor(x)

    return tuple([_mapped(x, checked) for x in args]), _mapped(kwargs, checked)


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    """The overload that a call means, for messages."""
    if not isinstance(func, _core.Op):
        return operator(name_of(func))
    with below():
        number, values, _ = func.bind(args, kwargs)
    return aten.overload_of(func, func.overloads[number][0], values)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor) and not _is_fake(value):
        return f"tensor([...], size={tuple(value.shape)})"
    return repr(value)


# ------------------------------------------------------------------------------ names
def name_of(func: Any) -> str:
    """Returns a function's name; attributes are `name.__get__` and `name.__set__`."""
    name = str(getattr(func, "__name__", func)).rpartition(".")[2]
    if name in ("__get__", "__set__"):
        return f"{func.__self__.__name__}.{name}"
    return name


def operator(name: str, overload: str = "default") -> Any:
    """The overload of an operator, for messages; of unknown ones, an object of that name."""
    try:
        packet = getattr(aten, name)
    except AttributeError:
        packet = aten.Packet(name, lambda *args: None)
    return getattr(packet, overload)


@functools.cache
def _host_operators() -> frozenset[int]:
    return frozenset(
        id(d.native) for d in REGISTRY.values() if all(o.options.host for o in d.overloads)
    )


def is_hosted(func: object) -> bool:
    """Whether a function is an operator in Python."""
    return id(func) in _host_operators()


def _is_operator(func: Any) -> bool:
    return isinstance(func, _core.Op) or id(func) in _host_operators()


@functools.cache
def _takes_device(func: Any) -> bool:
    if isinstance(func, _core.Op):
        return any(a.kind.startswith("device") for o in func.overloads for a in o[0])
    code = getattr(getattr(func, "__wrapped__", None), "__code__", None)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    return "device" in names


def _custom(func: Any) -> Any:
    """The user's operator (`torch.library`) behind a native one, or None."""
    if not isinstance(func, _core.Op) or len(func.overloads) != 1:
        return None
    owner = getattr(func.overloads[0][1], "__self__", None)
    return owner if hasattr(owner, "shape_function") else None


# ------------------------------------------------------------------------------ one call
def answer(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes a function's result for fake tensors.

    Args:
        mode: the fake mode.
        func: an operator, a method, an accessor of an attribute, or a function in Python.
        args, kwargs: its arguments.
    """
    if state.kernel:
        return _inner(mode, func, args, kwargs)
    if _core.is_autocast_enabled() and getattr(func, "autocast", None):
        return _autocast(mode, func, args, kwargs)
    name = name_of(func)
    if isinstance(func, _core.Op):
        kinds = {type(x) for x in _tensors((*args, *kwargs.values()))}
        inner = tuple(k for k in kinds if getattr(k, "_operators_only", False))
        if inner:  # samples of `vmap`, sparse tensors: what they are made of is fake
            with mode:
                return inner[0].__torch_function__(func, inner, args, kwargs)
    if _puts_under_mask(name, args):
        return run(mode, Tensor.clone, args[:1], {}) if name == "index_put" else args[0]
    if mode.shape_env is not None:
        result = _symbolic_answer(mode, func, name, args, kwargs)
        if result is not NotImplemented:
            return result
    special = SPECIAL.get(name)
    if special is not None and (name != "grad" or func is autograd.grad):
        return special(mode, func, args, kwargs)
    if _custom(func) is not None:
        return _custom_call(mode, func, args)
    if not _is_operator(func) and name not in ("__getitem__", "__setitem__"):
        if isinstance(getattr(func, "__wrapped__", None), type(answer)):
            with mode:  # a function in Python: what it calls is answered
                return func.__wrapped__(*args, **kwargs)
        return _inner(mode, func, args, kwargs)
    return run(mode, func, args, kwargs)


def _symbolic_answer(mode: Value, func: Value, name: str, args: Value, kwargs: Value) -> Value:
    """The result of a call for whose sizes symbols have rules of their own."""
    calls = late("flambeau._subclasses.symbolic_calls")
    result = calls.special(mode, name, args, kwargs)
    if mode.recorder is not None and result is not NotImplemented:
        mode.recorder.add_special(name, args, kwargs, result)
    return calls.compose(mode, func, args, kwargs) if result is NotImplemented else result


def _autocast(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator whose operands are cast first: fakes say that they are on the CPU."""

    def again(*operands: Any, **options: Any) -> Any:
        return answer(mode, func, operands, options)

    return _core.autocast_call(func.autocast, again, args, kwargs)


def _inner(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method or an attribute of the native type, or a function that knows of handlers."""
    with below():
        result = func(*args, **kwargs)
    fake = next((x for x in _tensors((*args, *kwargs.values())) if _is_fake(x)), None)
    if fake is None or isinstance(result, _core.Size):
        return result
    fake_result = _results(mode, result, fake.fake_device)
    if mode.shape_env is not None:
        late("flambeau._subclasses.symbolic_calls").inherit(mode, func, args, kwargs, fake_result)
    if mode.recorder is not None:
        mode.recorder.add_alias(name_of(func), args, fake_result)
    return fake_result


def run(
    mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: Any = None
) -> Any:
    """Calls an operator on the meta device.

    Args:
        place: the device of the results; None: what the arguments tell.
    """
    args, kwargs = _operands(mode, func, args, kwargs)
    if mode.shape_env is not None:
        args, kwargs = lowered(args), lowered(kwargs)
    tensors = _tensors((*args, *kwargs.values()))
    asked = kwargs.get("device")
    if asked is not None:
        place = indexed(asked)
        kwargs = {**kwargs, "device": "meta"}
    elif not tensors and _takes_device(func):
        kwargs = {**kwargs, "device": "meta"}
    if place is None:
        place = common_device(func, tensors)
    constant = _constant(func, args, kwargs, tensors) if asked is None else None
    with below():
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if not hasattr(error, "asked_by"):
                raise
            raise _explained(func, error.asked_by) from None
    fake_result = _results(mode, result, place)
    if mode.shape_env is not None:
        calls = late("flambeau._subclasses.symbolic_calls")
        sized = calls.annotate if isinstance(func, _core.Op) else calls.inherit
        sized(mode, func, args, kwargs, fake_result)
    if mode.recorder is not None:
        if isinstance(func, _core.Op):
            mode.recorder.add(func, args, kwargs, fake_result)
        else:
            mode.recorder.add_alias(name_of(func), args, fake_result)
    if constant is None:
        _forget_constants(mode, func, result, args)
    elif isinstance(fake_result, Tensor) and not any(fake_result is x for x in tensors):
        remember(mode, fake_result, constant)
    return fake_result


def _explained(func: Any, asked_by: str) -> Exception:
    """Returns the exception that PyTorch raises where a number or a size depends on data."""
    if name_of(func) == "allclose":  # reads an element itself; PyTorch's error names allclose
        return DataDependentOutputException(operator("allclose"))
    name, _, overload = asked_by.partition(".")
    overload_object = operator(name, overload or "default")
    if name in ("_local_scalar_dense", "equal"):
        return DataDependentOutputException(overload_object)
    return DynamicOutputShapeException(overload_object)


def _custom_call(mode: Any, func: Any, args: tuple[Any, ...]) -> Any:
    """A user's operator: its `register_fake` function runs on fakes, in the mode."""
    args, _ = _operands(mode, func, args, {})
    place = common_device(func, _tensors(args))
    with mode:
        result = _custom(func).run(*args)
    return _results(mode, result, place)


# ------------------------------------------------------------------------------ devices
_FOREIGN_INDEX = frozenset(
    {"index", "index_put", "index_put_", "_index_put_impl_", "__getitem__", "__setitem__",
     "_getitem", "_setitem"}
)  # fmt: skip


def common_device(func: Any, tensors: Sequence[Any]) -> Any:
    """The device of the results: that of the operands, of which CPU tensors of no dimensions fit
    any other.

    Raises:
        FakeTensorDeviceMismatchError: there are several.
    """
    fakes = [x for x in tensors if _is_fake(x)]
    if not fakes:
        return _core.get_default_device()
    first = fakes[0].fake_device
    if name_of(func) in _FOREIGN_INDEX:
        return first
    loose = first.type == "cpu" and fakes[0].dim() == 0
    for x in fakes[1:]:
        place = x.fake_device
        small = place.type == "cpu" and x.dim() == 0
        if place == first:
            loose = loose and small
        elif loose:
            first, loose = place, small
        elif not small:
            raise FakeTensorDeviceMismatchError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{first} and {place}!"
            )
    return first


def _moved(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`to`, `cpu`, `cuda`: the same geometry on another device."""
    (x, *options), kwargs = _operands(mode, func, args, dict(kwargs))
    target, options = _target(name_of(func), options, kwargs)
    kwargs.pop("non_blocking", None)
    if target is None and name_of(func) == "to":
        return run(mode, func, (x, *options), kwargs)
    result = x
    copied = bool(kwargs.pop("copy", False))
    kwargs = {name: value for name, value in kwargs.items() if value is not None}
    if options or kwargs:
        result = run(mode, Tensor.to, (x, *options), kwargs)
    elsewhere = target is not None and target != x.fake_device
    if result is x and (elsewhere or copied):
        result = run(mode, Tensor.clone, (x,), {})
    if elsewhere:
        result.__dict__["fake_device"] = target
    return result


def _target(name: str, options: list[Any], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The target device of a move, and the arguments without it."""
    if name == "cpu":
        return _core.device("cpu"), []
    if name == "cuda":
        asked = options[0] if options else kwargs.pop("device", None)
        kwargs.pop("device", None)
        return indexed("cuda" if asked is None else _named(asked)), []
    target = kwargs.pop("device", None)
    other = kwargs.pop("other", None)
    left = []
    for place, value in enumerate(options):
        if isinstance(value, Tensor):
            other = value
        elif isinstance(value, (str, _core.device)) or (
            place == 0 and isinstance(value, int) and not isinstance(value, bool)
        ):
            target = value
        elif isinstance(value, _core.dtype):
            left.append(value)
        elif value is True and place == len(options) - 1 and place >= 2:
            kwargs["copy"] = True  # to(device, dtype, non_blocking, copy)
    if other is not None:
        return other.fake_device if _is_fake(other) else other.device, [other.dtype]
    return None if target is None else indexed(_named(target)), left


def _named(device: Any) -> Any:
    return f"cuda:{device}" if isinstance(device, int) else device


def _copied(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`copy_`: from any device."""
    return run(mode, func, args, kwargs, args[0].fake_device if _is_fake(args[0]) else None)


# ------------------------------------------------------------------------------ constants
def remember(mode: Any, fake: Any, value: Any) -> None:
    """Stores the value of a one-element fake, so that `item()` can return it."""
    fake.__dict__["constant"] = value
    key, forget = id(fake), mode.constants
    forget[key] = weakref.ref(fake, lambda _: forget.pop(key, None))


def _constant(func: Any, args: Any, kwargs: Any, tensors: Sequence[Any]) -> Any:
    """The result where every operand is known, or None."""
    if not tensors or not isinstance(func, _core.Op) or "out" in kwargs:
        return None
    if any(not _is_fake(x) or x.constant is None for x in tensors) or _is_random(func):
        return None

    def real(x: Any) -> Any:
        return x.constant

    with below():
        result = func(*[_mapped(x, real) for x in args], **_mapped(kwargs, real))
    return result if isinstance(result, Tensor) and result.numel() <= 1 else None


@functools.cache
def _is_random(func: Any) -> bool:
    return any(a.kind.startswith("generator") for o in func.overloads for a in o[0])


def _forget_constants(mode: Any, func: Any, result: Any, args: tuple[Any, ...]) -> None:
    """Drops the constants of the tensors that a call writes, and of all that share their memory."""
    if not mode.constants or not args or not _is_fake(args[0]):
        return
    if result is not args[0] and name_of(func) != "__setitem__":
        return
    if name_of(func) in ("requires_grad_", "to", "contiguous"):
        return
    with below():
        memory = args[0].untyped_storage()._cdata
        for key, reference in list(mode.constants.items()):
            x = reference()
            if x is not None and x.untyped_storage()._cdata == memory:
                x.__dict__["constant"] = None
                mode.constants.pop(key, None)


def _from_data(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`tensor` and its relatives: made for real, since the numbers exist anyway."""
    asked = kwargs.get("device")
    if args and isinstance(args[0], Tensor):
        if name_of(func) != "new_tensor":
            return _like_data(mode, func, args, kwargs)
        data, place = args[1:], args[0].fake_device
        kwargs = {"dtype": args[0].dtype, **kwargs}
        func = REGISTRY["tensor"].native
    else:
        data, place = args, _core.get_default_device()
    place = place if asked is None else indexed(asked)
    with below():
        value = func(*data, **{**kwargs, "device": "cpu"})
        hollow = _core.tensor_empty_strided(
            tuple(value.shape), value.stride(), value.dtype, "meta"
        ).requires_grad_(value.requires_grad)
    fake = adopted(mode, hollow, place)
    if value.numel() <= 1 and not value.requires_grad:
        remember(mode, fake, value)
    return fake


def _like_data(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`as_tensor(x)` and `tensor(x)` of a tensor: itself, moved; or a copy."""
    if name_of(func) == "tensor":
        args = (run(mode, Tensor.clone, args[:1], {}).detach(), *args[1:])
    options = {k: v for k, v in kwargs.items() if k in ("device", "dtype") and v is not None}
    fake = _moved(mode, Tensor.to, args, options) if options or len(args) > 1 else args[0]
    return fake.requires_grad_() if kwargs.get("requires_grad") else fake


# ------------------------------------------------------------------------------ data
def _number(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`item`, `bool(x)` and others: a number, where it is known.

    Raises:
        DataDependentOutputException: it is not.
    """
    x = args[0]
    constant = x.constant if _is_fake(x) else x
    if constant is None and (x.numel() == 1 or name_of(func) == "tolist"):
        raise DataDependentOutputException(operator("_local_scalar_dense"))
    with below():
        return func(x if constant is None else constant, *args[1:], **kwargs)


def _format(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args[0].dim() == 0:
        return format(_number(mode, Tensor.item, args[:1], kwargs), *args[1:])
    return object.__format__(args[0], *args[1:])


def _array(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _is_fake(args[0]):
        raise RuntimeError(f".{name_of(func)}() is not supported for tensor subclasses.")
    with below():
        return func(*args, **kwargs)


def _rows(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`for row in x`."""
    if args[0].dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(run(mode, Tensor.unbind, (args[0],), {}))


def _contains(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return bool((args[0] == args[1]).any())


def _deepcopy(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _operands(mode, operator("detach"), args[:1], {})
    return args[0].__deepcopy__(*args[1:])


# ------------------------------------------------------------------------------ attributes
def _read_grad(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.grad`: the engine's result, made fake when it is first looked at."""
    with below():
        grad = func(*args, **kwargs)
        if grad is None or _is_fake(grad) or not _is_fake(args[0]):
            return grad
        fake = _gradient_of(mode, args[0], grad)
        args[0].grad = fake
        return fake


def _write_data(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.data = y`: its device, too."""
    if _is_fake(args[0]):
        _ = args[0].grad  # becomes a fake while its dtype still fits
    with below():
        func(*args, **kwargs)
    if all(map(_is_fake, args)):
        args[0].__dict__.update(fake_device=args[1].fake_device, constant=None)


def _type_of(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with mode:
        return func.__wrapped__(*args, **kwargs)


def _backward(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.backward()`: what runs along the tape are meta tensors."""
    with below():
        return func(*args, **kwargs)


def _gradients(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`autograd.grad`: each gradient is where its input is."""
    inputs = kwargs["inputs"] if "inputs" in kwargs else args[1]
    inputs = [inputs] if isinstance(inputs, Tensor) else inputs
    with below():
        gradients = func(*args, **kwargs)
    return tuple(
        grad if grad is None or _is_fake(grad) or not _is_fake(x)
        else _gradient_of(mode, x, grad)
        for x, grad in zip(inputs, gradients, strict=True)
    )  # fmt: skip


def _gradient_of(mode: Value, tensor: Value, grad: Value) -> Value:
    """A fake of a gradient, which is where its tensor is and has its sizes."""
    fake = adopted(mode, grad, tensor.fake_device)
    if mode.shape_env is not None:
        late("flambeau._subclasses.symbolic_calls").inherit(mode, None, (tensor,), {}, fake)
    return fake


_NUMBERS = (
    "item tolist __bool__ __nonzero__ __int__ __long__ __float__ __index__ __complex__".split()
)


def _puts_under_mask(name: str, args: Sequence[Value]) -> bool:
    """Whether a call replaces elements where masks are true: the geometry is its tensor's."""
    if name not in ("index_put", "index_put_") or len(args) < 2:
        return False
    return any(x is not None and x.dtype in (_core.bool, _core.uint8) for x in args[1])


SPECIAL: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(("to", "cpu", "cuda"), _moved),
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "new_tensor", "frombuffer"), _from_data),
    **dict.fromkeys(("numpy", "__array__", "__dlpack__"), _array),
    "copy_": _copied,
    "__iter__": _rows,
    "__contains__": _contains,
    "__format__": _format,
    "_deepcopy": _deepcopy,
    "grad.__get__": _read_grad,
    "data.__set__": _write_data,
    "type_of": _type_of,
    "grad": _gradients,
    "backward": _backward,
}
