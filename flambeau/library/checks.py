"""`opcheck`: checks an operator against its schema, its fake function and its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.ir.lock import importing
from flambeau.library.operators import OpOverload, find, flat_tensors

Tensor = Any
DEFAULT = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


class OpCheckError(Exception):
    """An operator failed one of the checks of `opcheck`."""


class MetadataMismatchError(RuntimeError):
    """The function given to `register_fake` returned other sizes than the results have."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = DEFAULT,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Checks an operator on sample arguments.

    - test_schema: it writes what its schema says, and results are memory of their own.
    - test_autograd_registration: a derivative is registered as a formula, not hidden in a kernel.
    - test_faketensor: `register_fake` returns the sizes, strides and dtypes that results have.
    - test_aot_dispatch_dynamic, test_aot_dispatch_static: compiled, it gives the same bits and the
      same gradients.

    Args:
        op: an operator, or a definition.
        args, kwargs: of a call.
        test_utils: which checks.
        raise_exception: False: failures are results.
        atol, rtol: of the comparison of compiled results; None: bits are compared.

    Returns:
        Per check "SUCCESS", or its exception.

    Raises:
        OpCheckError: a check failed.
        ValueError: a check is unknown.

    Example:
        >>> @torch.library.custom_op("docs::halved", mutates_args=())
        ... def halved(x: torch.Tensor) -> torch.Tensor:
        ...     return x / 2
        >>> _ = halved.register_fake(lambda x: torch.empty_like(x))
        >>> torch.library.opcheck(halved, (torch.ones(3),))["test_faketensor"]
        'SUCCESS'
    """
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(names) - CHECKS.keys()
    if unknown:
        raise ValueError(
            f"opcheck(op, ..., test_utils={names}), expected test_utils to be subset of "
            f"{tuple(CHECKS)} but it was not"
        )
    overload = find(op)
    close = None if atol is None and rtol is None else (atol or 0.0, rtol or 0.0)
    results: dict[str, Any] = {}
    for name in names:
        try:
            CHECKS[name](overload, _copied(args), _copied(kwargs or {}), close)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = error
    return results


Close = tuple[float, float] | None


def _copied(value: Any) -> Any:
    """The arguments with tensors of their own."""
    if isinstance(value, _core.Tensor):
        fresh = _core.tensor_empty_strided(
            tuple(value.shape), value.stride(), value.dtype, value.device
        )
        fresh.copy_(value.detach())
        return fresh.requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return value


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    return flat_tensors([*args, *kwargs.values()])


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.is_floating_point() or a.is_complex():
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return bool((a == b).all())


def _schema(op: OpOverload, args: Any, kwargs: Any, close: Close) -> None:
    values = op.bind(args, kwargs)
    before = [[t.detach().clone() for t in flat_tensors([v])] for v in values]
    with _core.no_grad():
        result = op(*args, **kwargs)
    for argument, value, old in zip(op._schema.arguments, values, before, strict=True):
        same = all(_equal(a.detach(), b) for a, b in zip(flat_tensors([value]), old, strict=True))
        if not same and not argument.is_write:
            raise RuntimeError(
                f"Argument {argument.name} is not defined as mutable but was mutated"
            )
    if op._schema.is_view or op.custom is not None:
        return
    seen = {t.untyped_storage()._cdata: a.name for a, v in zip(op._schema.arguments, values)
            for t in flat_tensors([v]) if t.numel() and not a.is_write}  # fmt: skip
    for x in flat_tensors(result if isinstance(result, (tuple, list)) else [result]):
        name = seen.get(x.untyped_storage()._cdata) if x.numel() else None
        if name is not None:
            raise RuntimeError(f"Argument {name} is not defined to alias output but was aliasing")


def _registration(op: OpOverload, args: Any, kwargs: Any, close: Close) -> None:
    if op.custom is not None or op.backward is not None or op._schema.is_mutable:
        return
    if any(key in op.kernels for key in ("AUTOGRAD", "COMPOSITEIMPLICITAUTOGRAD")):
        return
    if not any(t.requires_grad for t in _tensors(args, kwargs)):
        return
    result = op(*args, **kwargs)
    if any(x.requires_grad for x in flat_tensors([result])):
        raise AssertionError(
            f"{op.name()}: at least one output of this operator has requires_grad=True but the "
            "operator does not have an autograd kernel defined at an autograd key (e.g. "
            "DispatchKey::Autograd). This could mean that you have incorrectly registered an "
            "autograd kernel to a non-Autograd DispatchKey, which may lead to silently incorrect "
            "results."
        )


def _sizes(op: OpOverload, args: Any, kwargs: Any, close: Close) -> None:
    def hollow(value: Any) -> Any:
        if isinstance(value, _core.Tensor):
            return _core.tensor_empty_strided(
                tuple(value.shape), value.stride(), value.dtype, "meta"
            )
        if isinstance(value, dict):
            return {name: hollow(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(hollow(item) for item in value)
        return value

    with _core.no_grad():
        told = op(*hollow(args), **hollow(kwargs))
        real = op(*args, **kwargs)
    expected, fake = flat_tensors([real]), flat_tensors([told])
    if len(expected) != len(fake):
        raise MetadataMismatchError(f"{op}: {len(fake)} results were told, {len(expected)} came")
    for a, b in zip(expected, fake, strict=True):
        for what, mine, theirs in (
            ("Shapes", a.shape, b.shape),
            ("Dtypes", a.dtype, b.dtype),
            ("Strides", a.stride(), b.stride()),
        ):
            if mine != theirs:
                raise MetadataMismatchError(
                    f"When comparing the output of {op} on FakeTensor and concrete Tensors, found "
                    f"mismatched tensor metadata: {what} {mine} and {theirs} are not equal!"
                )


def _compiled(op: OpOverload, args: Any, kwargs: Any, close: Close) -> None:
    with importing:
        from flambeau.capture.regions import compile as compile_function

    if any(a.is_tensor for a in op._schema.arguments):
        op.shape_function()  # it must be there

    def call(arguments: Any, named: Any) -> list[Tensor]:
        return flat_tensors([op(*arguments, **named)])

    def run(function: Callable[..., Any]) -> list[Tensor]:
        arguments, named = _copied(args), _copied(kwargs)
        outputs = function(arguments, named)
        tensors = _tensors(arguments, named)
        differentiable = [x for x in outputs if x.requires_grad]
        leaves = [t for t in tensors if t.requires_grad]
        if not (differentiable and leaves):
            return [*outputs, *tensors]
        total = sum((x.sum() for x in differentiable[1:]), differentiable[0].sum())
        total.backward()
        return [*outputs, *tensors, *(t.grad for t in leaves if t.grad is not None)]

    expected, compiled = run(call), run(compile_function(call))
    for a, b in zip(expected, compiled, strict=True):
        a, b = a.detach(), b.detach()
        same = _equal(a, b)
        if not same and close is not None:
            same = bool(((a - b).abs() <= close[0] + close[1] * b.abs()).all())
        if not same:
            raise AssertionError(
                f"{op}: compiled results differ from eager ones\n"
                "hint: do the kernel and register_fake depend on state?"
            )


CHECKS: dict[str, Callable[[OpOverload, Any, Any, Close], None]] = {
    "test_schema": _schema,
    "test_autograd_registration": _registration,
    "test_faketensor": _sizes,
    "test_aot_dispatch_static": _compiled,
    "test_aot_dispatch_dynamic": _compiled,
}
