"""Checks derivatives against finite differences.

Everything is compared as functions of real numbers: a complex input counts as two of them, and so
does a complex output. With the convention grad = dL/dRe(z) + i dL/dIm(z), starting backward from 1
gives the derivatives of the real part of an output, starting from i those of its imaginary part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from flambeau import _core
from flambeau.autograd.function import Function

Tensor = Any
Values = list[complex]
Jacobian = list[Values]  # per component of the output, per component of the input

__all__ = ["GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck",
           "gradgradcheck"]  # fmt: skip


class GradcheckError(RuntimeError):
    """A derivative does not agree with finite differences."""


def _public() -> Any:
    """The public namespace, which is not there yet when this module is loaded."""
    return import_module("flambeau")


def _is_tensor(value: object) -> bool:
    return isinstance(value, _core.Tensor)


def _differentiable(value: object) -> bool:
    return _is_tensor(value) and bool(value.requires_grad)  # type: ignore[attr-defined]


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    result = func(*inputs)
    found = (result,) if _is_tensor(result) else tuple(result)
    return tuple(o for o in found if _is_tensor(o))


def _values(tensor: Tensor) -> list[Any]:
    flat = tensor.detach().reshape(-1).tolist()
    return list(flat)


def _from_values(values: list[Any], like: Tensor) -> Tensor:
    made = _public().tensor(values, dtype=like.dtype, device=like.device).reshape(like.shape)
    return made.requires_grad_(like.requires_grad)


def _parts(values: list[Any], is_complex: bool) -> list[float]:
    """Real numbers: first all real parts, then all imaginary parts."""
    if not is_complex:
        return [float(v) for v in values]
    return [v.real for v in values] + [v.imag for v in values]


def _perturbed(tensor: Tensor, position: int, step: complex) -> Tensor:
    values = _values(tensor)
    values[position] = values[position] + step
    return _from_values(values, tensor)


def _numerical(
    func: Callable[..., Any], inputs: Sequence[Any], target: int, eps: float
) -> list[list[list[float]]]:
    """Central differences: per output, per component of input *target*, per output component."""
    tensor = inputs[target]
    steps: list[complex] = [eps]
    if tensor.is_complex():
        steps.append(1j * eps)
    columns: list[list[list[float]]] = []
    for step in steps:
        for position in range(tensor.numel()):
            sides = []
            for sign in (1, -1):
                moved = list(inputs)
                moved[target] = _perturbed(tensor, position, sign * step)
                outputs = [o for o in _outputs(func, moved) if _is_floating(o)]
                sides.append([_parts(_values(o), o.is_complex()) for o in outputs])
            above, below = sides
            columns.append(
                [
                    [(a - b) / (2 * eps) for a, b in zip(high, low, strict=True)]
                    for high, low in zip(above, below, strict=True)
                ]
            )
    count = len(columns[0]) if columns else 0
    return [[column[k] for column in columns] for k in range(count)]


def _is_floating(tensor: Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _analytical(output: Tensor, inputs: Sequence[Tensor]) -> list[list[list[float]]]:
    """Per input, per output component, per component of the input."""
    from flambeau.autograd import grad

    found: list[list[list[float]]] = [[] for _ in inputs]
    units: list[complex] = [1.0]
    if output.is_complex():
        units.append(1j)
    for unit in units:
        for position in range(output.numel()):
            values: list[Any] = [0.0] * output.numel()
            values[position] = unit
            start = _from_values(values, output.detach())
            grads = grad(output, inputs, start, retain_graph=True, allow_unused=True)
            for rows, got, tensor in zip(found, grads, inputs, strict=True):
                empty: list[Any] = [0.0] * tensor.numel()
                rows.append(_parts(empty if got is None else _values(got), tensor.is_complex()))
    return found


def get_numerical_jacobian(
    fn: Callable[..., Any], inputs: Sequence[Any], eps: float = 1e-6
) -> list[list[Tensor]]:
    """Per differentiable input, per output: the Jacobian by central differences (real parts)."""
    result = []
    for i, value in enumerate(inputs):
        if _differentiable(value):
            found = _numerical(fn, inputs, i, eps)
            result.append([_public().tensor(columns) for columns in found])
    return result


def get_analytical_jacobian(inputs: Sequence[Tensor], output: Tensor) -> list[Tensor]:
    """Per input: the Jacobian of *output* by backward, [input component, output component]."""
    wanted = [i for i in inputs if _differentiable(i)]
    rows = _analytical(output, wanted)
    return [_public().tensor([list(c) for c in zip(*r, strict=True)]) for r in rows]


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    if a != a or b != b:
        return a != a and b != b
    return a == b or abs(a - b) <= atol + rtol * abs(b)


def _check_inputs(inputs: Sequence[Any]) -> None:
    wanted = [i for i in inputs if _differentiable(i)]
    if not wanted:
        raise ValueError(
            "[gradcheck] gradcheck expects at least one input tensor to require gradient, but none "
            "of the them have requires_grad=True.\nhint: x.requires_grad_()"
        )
    for tensor in wanted:
        if str(tensor.dtype).rsplit(".", 1)[-1] not in ("float64", "complex128"):
            warnings.warn(
                "Input with requires_grad=True that is not a double precision floating point or "
                "complex: finite differences will be inaccurate.",
                stacklevel=4,
            )
        if any(
            stride == 0 and size > 1
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        ):
            raise RuntimeError(
                "[gradcheck] an input that requires grad has a dimension with stride 0. gradcheck "
                "only supports inputs that are non-overlapping.\nhint: call .contiguous()"
            )


def _check_jacobians(
    func: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Tensor], options: _Options
) -> None:
    positions = [i for i, value in enumerate(inputs) if _differentiable(value)]
    targets = [inputs[i] for i in positions]
    analytical = [_analytical(o, targets) if o.requires_grad else None for o in outputs]
    for k, i in enumerate(positions):
        numerical = _numerical(func, inputs, i, options.eps)
        for j, columns in enumerate(numerical):
            rows_found = analytical[j]
            rows = [[0.0] * len(columns)] * (len(columns[0]) if columns else 0)
            if rows_found is not None:
                rows = rows_found[k]
            _compare(columns, rows, i, j, options)


def _compare(
    columns: list[list[float]], rows: list[list[float]], i: int, j: int, options: _Options
) -> None:
    transposed = [list(c) for c in zip(*rows, strict=True)] if rows else [[] for _ in columns]
    for numeric, analytic in zip(columns, transposed, strict=True):
        for a, n in zip(analytic, numeric, strict=True):
            if not _close(a, n, options.rtol, options.atol):
                raise GradcheckError(
                    f"[gradcheck] Jacobian mismatch for output {j} with respect to input {i},\n"
                    f"numerical:{columns}\nanalytical:{transposed}\n"
                    "hint: rows are input components, columns output components"
                )


class _Options:
    """Tolerances of one check."""

    def __init__(self, eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol


def _check_determinism(
    func: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Tensor], options: _Options
) -> None:
    targets = [i for i in inputs if _differentiable(i)]
    for j, output in enumerate(outputs):
        if not output.requires_grad:
            continue
        first, second = _analytical(output, targets), _analytical(output, targets)
        for rows, again in zip(first, second, strict=True):
            for row, other in zip(rows, again, strict=True):
                if any(
                    not _close(a, b, 0.0, options.nondet_tol)
                    for a, b in zip(row, other, strict=True)
                ):
                    raise GradcheckError(
                        "[gradcheck] Backward is not reentrant, i.e., running backward with same "
                        f"input and grad_output multiple times gives different values (output {j})."
                        f" The tolerance for nondeterminism was {options.nondet_tol}.\n"
                        "hint: does the function draw random numbers?"
                    )


class _Undefined(Function):
    """Passes values on; some gradients get lost on the way back."""

    @staticmethod
    def forward(ctx: Any, lost: tuple[bool, ...], *values: Tensor) -> Any:
        ctx.lost = lost
        ctx.set_materialize_grads(False)
        return tuple(v.clone() for v in values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        kept = (None if lost else g for lost, g in zip(ctx.lost, grads, strict=True))
        return (None, *kept)


def _check_undefined(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    from flambeau.autograd import grad

    targets = [i for i in inputs if _differentiable(i)]
    outputs = [o for o in _outputs(func, inputs) if o.requires_grad]
    if not outputs:
        return
    cases = [tuple(True for _ in outputs)]
    if len(outputs) > 1:
        cases += [tuple(i == k for i in range(len(outputs))) for k in range(len(outputs))]
    for lost in cases:
        fresh = [o for o in _outputs(func, inputs) if o.requires_grad]
        passed = _Undefined.apply(lost, *fresh)
        starts = [o.new_ones(o.shape) for o in passed]
        try:
            found = grad(passed, targets, starts, allow_unused=True)
        except RuntimeError as error:
            raise GradcheckError(
                "[gradcheck] Expected backward function to handle undefined output grads. Please "
                'look at "Notes about undefined output gradients"\nhint: treat None as zeros'
            ) from error
        if all(lost) and any(g is not None and any(v != 0 for v in _values(g)) for g in found):
            raise GradcheckError(
                "[gradcheck] Expected all input grads to be undefined or zero when all output "
                "grads are undefined or zero.\nhint: the backward invents a gradient"
            )


def _check_dtypes(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> None:
    from flambeau.autograd import grad

    targets = [i for i in inputs if _differentiable(i)]
    for output in outputs:
        if not output.requires_grad:
            continue
        start = output.new_ones(output.shape)
        found = grad(output, targets, start, retain_graph=True, allow_unused=True)
        for got, tensor in zip(found, targets, strict=True):
            if got is not None and (got.dtype != tensor.dtype or got.shape != tensor.shape):
                raise GradcheckError(
                    f"[gradcheck] grad is {got.dtype} {tuple(got.shape)}, its input is "
                    f"{tensor.dtype} {tuple(tensor.shape)}\nhint: gradients are like their inputs"
                )


def _unsupported(name: str, what: str) -> None:
    raise NotImplementedError(
        f"[{name}] {what} is not supported\nhint: leave it False; backward mode is checked"
    )


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of *func* with central differences.

    Args:
        func: takes the inputs, returns a tensor or several.
        inputs: its arguments; those that require a gradient are checked and should be float64.
        eps: step of the differences.
        atol, rtol: tolerances.
        raise_exception: raise instead of returning False.
        nondet_tol: how far two runs of the same backward may differ.
        check_undefined_grad: whether absent output gradients must count as zeros.
        check_grad_dtypes: whether gradients must have the dtype and shape of their inputs.
        fast_mode: accepted; every component is checked anyway.
        check_batched_grad, check_batched_forward_grad, check_forward_ad: not supported.
        check_backward_ad, masked: accepted for compatibility.

    Returns:
        True if all agree.

    Raises:
        GradcheckError: they do not, and *raise_exception* is set.
    """
    for wanted, what in (
        (check_batched_grad, "check_batched_grad"),
        (check_batched_forward_grad, "check_batched_forward_grad"),
        (check_forward_ad, "check_forward_ad"),
    ):
        if wanted:
            _unsupported("gradcheck", what)
    if not check_backward_ad:
        raise ValueError(
            "[gradcheck] Expected either check_forward_ad or check_backward_ad to be True\n"
            "hint: leave check_backward_ad"
        )
    arguments = (inputs,) if _is_tensor(inputs) else tuple(inputs)
    options = _Options(eps, atol, rtol, nondet_tol)
    try:
        _check_all(func, arguments, options, check_undefined_grad, check_grad_dtypes)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_all(
    func: Callable[..., Any],
    inputs: Sequence[Any],
    options: _Options,
    undefined: bool,
    dtypes: bool,
) -> None:
    _check_inputs(inputs)
    outputs = [o for o in _outputs(func, inputs) if _is_floating(o)]
    _check_jacobians(func, inputs, outputs, options)
    _check_determinism(func, inputs, outputs, options)
    if dtypes:
        _check_dtypes(outputs, inputs)
    if undefined:
        _check_undefined(func, inputs)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Compare second derivatives: `gradcheck` of the gradient of *func*.

    Args:
        grad_outputs: what the first backward starts from; default: random, of the outputs' shape.
        gen_non_contig_grad_outputs: make those non-contiguous.
        check_fwd_over_rev: not supported.
        check_rev_over_rev: accepted for compatibility.
        Others: as for `gradcheck`.
    """
    from flambeau.autograd import grad

    if check_fwd_over_rev:
        _unsupported("gradgradcheck", "check_fwd_over_rev")
    arguments = (inputs,) if _is_tensor(inputs) else tuple(inputs)
    if grad_outputs is None:
        outputs = [o for o in _outputs(func, arguments) if o.requires_grad]
        starts = tuple(_random_start(o, gen_non_contig_grad_outputs) for o in outputs)
    else:
        starts = (grad_outputs,) if _is_tensor(grad_outputs) else tuple(grad_outputs)
    count = len(starts)

    def gradients(*values: Any) -> tuple[Tensor, ...]:
        own, given = values[:-count], values[-count:]
        targets = [v for v in own if _differentiable(v)]
        outputs = [o for o in _outputs(func, own) if o.requires_grad]
        found = grad(outputs, targets, given, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        (*arguments, *starts),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        masked=masked,
    )


def _random_start(output: Tensor, non_contiguous: bool) -> Tensor:
    made = _public().randn(output.shape, dtype=output.dtype, device=output.device)
    if non_contiguous and made.numel() > 1:
        made = _public().stack([made, made], -1).select(-1, 0)
    return made.detach().requires_grad_()
