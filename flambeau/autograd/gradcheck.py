"""Checks derivatives against finite differences.

Everything is compared as functions of real numbers: a complex input counts as two of them, and so
does a complex output. With the convention grad = dL/dRe(z) + i dL/dIm(z), starting backward from 1
gives the derivatives of the real part of an output, starting from i those of its imaginary part.
Forward mode needs no such convention: tangents 1 and i of an input are its two directions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.autograd.function import Function
from flambeau.ir.lock import importing

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
    results = (result,) if _is_tensor(result) else tuple(result)
    return tuple(o for o in results if _is_tensor(o))


def _values(tensor: Tensor) -> list[Any]:
    flat = tensor.detach().reshape(-1).tolist()
    return list(flat)


def _from_values(values: list[Any], like: Tensor) -> Tensor:
    tensor = _public().tensor(values, dtype=like.dtype, device=like.device).reshape(like.shape)
    return tensor.requires_grad_(like.requires_grad)


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

    jacobians: list[list[list[float]]] = [[] for _ in inputs]
    units: list[complex] = [1.0]
    if output.is_complex():
        units.append(1j)
    for unit in units:
        for position in range(output.numel()):
            values: list[Any] = [0.0] * output.numel()
            values[position] = unit
            start = _from_values(values, output.detach())
            grads = grad(output, inputs, start, retain_graph=True, allow_unused=True)
            for rows, got, tensor in zip(jacobians, grads, inputs, strict=True):
                empty: list[Any] = [0.0] * tensor.numel()
                rows.append(_parts(empty if got is None else _values(got), tensor.is_complex()))
    return jacobians


def get_numerical_jacobian(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    target: Any = None,
    eps: float = 1e-3,
    grad_out: float = 1.0,
) -> tuple[Tensor, ...]:
    """Jacobians of a function's first output by central differences.

    Args:
        fn: takes all of the inputs as one tuple.
        inputs: the tuple.
        target: one of the inputs, or several; those that require gradients by default.
        eps: the step.
        grad_out: 1.0.

    Returns:
        One matrix per target, [component of the target, component of the output].

    Raises:
        ValueError: another `grad_out`.
        NotImplementedError: a target that is not an input.
    """
    warnings.warn(
        "`get_numerical_jacobian` is private and will be removed: use torch.autograd.functional",
        FutureWarning,
        stacklevel=2,
    )
    if grad_out != 1.0:
        raise ValueError(
            f"[get_numerical_jacobian] Expected grad_out to be 1.0, got {grad_out}\n"
            "hint: multiply the result"
        )
    if target is None:
        target = [value for value in inputs if _differentiable(value)]
    places = []
    for tensor in [target] if _is_tensor(target) else target:
        place = next((i for i, value in enumerate(inputs) if value is tensor), None)
        if place is None:
            raise NotImplementedError(
                "[get_numerical_jacobian] a target is not one of the inputs\n"
                "hint: pass it in `inputs`, and in `target`"
            )
        places.append(place)
    result = []
    for place in places:
        first, *_ = _numerical(lambda *values: fn(values), inputs, place, eps)
        result.append(_public().tensor(first, dtype=inputs[place].real.dtype))
    return tuple(result)


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., Any],
    input_idx: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    eps: float,
    input: Any = None,  # noqa: A002
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """Per output: the Jacobian with respect to one input by central differences.

    Args:
        fn: the function.
        input_idx: which input.
        inputs: all of them.
        outputs: of the function; computed again.
        eps: the step.
        input: the input itself; taken from `inputs`.
        is_forward_ad: without effect.
    """
    jacobians = _numerical(fn, inputs, input_idx, eps)
    return tuple(_public().tensor(columns) for columns in jacobians)


def get_analytical_jacobian(inputs: Sequence[Tensor], output: Tensor) -> list[Tensor]:
    """Per input: the Jacobian of *output* by backward, [input component, output component]."""
    targets = [i for i in inputs if _differentiable(i)]
    rows = _analytical(output, targets)
    return [_public().tensor([list(c) for c in zip(*r, strict=True)]) for r in rows]


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    if a != a or b != b:
        return a != a and b != b
    return a == b or abs(a - b) <= atol + rtol * abs(b)


def _check_inputs(inputs: Sequence[Any]) -> None:
    targets = [i for i in inputs if _differentiable(i)]
    if not targets:
        raise ValueError(
            "[gradcheck] gradcheck expects at least one input tensor to require gradient, but none "
            "of the them have requires_grad=True.\nhint: x.requires_grad_()"
        )
    for tensor in targets:
        if str(tensor.dtype).rsplit(".", 1)[-1] not in ("float64", "complex128"):
            warnings.warn(
                "Input with requires_grad=True that is not a double precision floating point or "
                "complex: finite differences will be inaccurate.",
                stacklevel=5,
            )
        if any(
            stride == 0 and size > 1
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        ):
            raise RuntimeError(
                "[gradcheck] an input that requires grad has a dimension with stride 0. gradcheck "
                "only supports inputs that are non-overlapping.\nhint: call .contiguous()"
            )


class _Tolerances(NamedTuple):
    """Numbers of one check."""

    eps: float
    atol: float
    rtol: float
    nondeterminism: float


class _Checks(NamedTuple):
    """The properties that `gradcheck` checks."""

    backward: bool
    forward: bool = False
    batched: bool = False
    batched_forward: bool = False
    undefined: bool = False
    dtypes: bool = False


def _tangents(
    func: Callable[..., Any], inputs: Sequence[Any], tangents: Sequence[Tensor | None]
) -> list[tuple[Tensor, Tensor | None]]:
    """Per floating output of *func*: its value, and its tangent by forward mode (or None).

    *given* are the inputs' tangents; an input without one is passed as it is, detached.
    """
    with importing:
        from flambeau.autograd import forward_ad

    with forward_ad.dual_level():
        passed = []
        for value, tangent in zip(inputs, tangents, strict=True):
            detached = value.detach() if _is_tensor(value) else value
            passed.append(detached if tangent is None else forward_ad.make_dual(detached, tangent))
        outputs = [o for o in _outputs(func, passed) if _is_floating(o)]
        return [tuple(forward_ad.unpack_dual(o)) for o in outputs]


def _zero_tangents(inputs: Sequence[Any]) -> list[Tensor | None]:
    return [v.new_zeros(v.shape) if _differentiable(v) else None for v in inputs]


def _forward(
    func: Callable[..., Any], inputs: Sequence[Any], target: int, dtypes: bool
) -> list[list[list[float]]]:
    """By forward mode: per output, per component of input *target*, per output component."""
    tensor = inputs[target].detach()
    units: list[complex] = [1.0, 1j] if tensor.is_complex() else [1.0]
    columns: list[list[list[float]]] = []
    for unit in units:
        for position in range(tensor.numel()):
            values: list[Any] = [0.0] * tensor.numel()
            values[position] = unit
            tangents = _zero_tangents(inputs)
            tangents[target] = _from_values(values, tensor)
            column = []
            for primal, tangent in _tangents(func, inputs, tangents):
                if dtypes and tangent is not None and tangent.dtype != primal.dtype:
                    raise GradcheckError(
                        f"[gradcheck] Forward AD gradient has dtype mismatch: {tangent.dtype} of "
                        f"an output of {primal.dtype}\nhint: tangents are like their values"
                    )
                zeros: list[Any] = [0.0] * primal.numel()
                flat_tangent = zeros if tangent is None else _values(tangent)
                column.append(_parts(flat_tangent, primal.is_complex()))
            columns.append(column)
    count = len(columns[0]) if columns else 0
    return [[column[k] for column in columns] for k in range(count)]


def _check_jacobians(
    func: Callable[..., Any],
    inputs: Sequence[Any],
    outputs: Sequence[Tensor],
    checks: _Checks,
    tolerances: _Tolerances,
) -> None:
    positions = [i for i, value in enumerate(inputs) if _differentiable(value)]
    targets = [inputs[i] for i in positions]
    by_backward = [
        _analytical(o, targets) if checks.backward and o.requires_grad else None for o in outputs
    ]
    for k, i in enumerate(positions):
        numerical = _numerical(func, inputs, i, tolerances.eps)
        if checks.backward:
            for j, columns in enumerate(numerical):
                rows = by_backward[j]
                analytical = [[0.0] * len(c) for c in columns] if rows is None else _turned(rows[k])
                _compare(
                    columns, analytical, f"mismatch for output {j} with respect to", i, tolerances
                )
        if checks.forward:
            pairs = zip(numerical, _forward(func, inputs, i, checks.dtypes), strict=True)
            for j, (columns, analytical) in enumerate(pairs):
                what = f"computed with forward mode mismatch for output {j} with respect to"
                _compare(columns, analytical, what, i, tolerances)


def _turned(rows: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _compare(
    numerical: list[list[float]],
    analytical: list[list[float]],
    what: str,
    i: int,
    tolerances: _Tolerances,
) -> None:
    for numeric, analytic in zip(numerical, analytical, strict=False):
        for a, n in zip(analytic, numeric, strict=True):
            if not _close(a, n, tolerances.rtol, tolerances.atol):
                raise GradcheckError(
                    f"[gradcheck] Jacobian {what} input {i},\n"
                    f"numerical:{numerical}\nanalytical:{analytical}\n"
                    "hint: rows are input components, columns output components"
                )


def _check_determinism(
    func: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Tensor], tolerance: float
) -> None:
    targets = [i for i in inputs if _differentiable(i)]
    for j, output in enumerate(outputs):
        if not output.requires_grad:
            continue
        first, second = _analytical(output, targets), _analytical(output, targets)
        for rows, again in zip(first, second, strict=True):
            for row, other in zip(rows, again, strict=True):
                if any(not _close(a, b, 0.0, tolerance) for a, b in zip(row, other, strict=True)):
                    raise GradcheckError(
                        "[gradcheck] Backward is not reentrant, i.e., running backward with same "
                        f"input and grad_output multiple times gives different values (output {j})."
                        f" The tolerance for nondeterminism was {tolerance}.\n"
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
        gradients = (None if lost else g for lost, g in zip(ctx.lost, grads, strict=True))
        return (None, *gradients)


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
            gradients = grad(passed, targets, starts, allow_unused=True)
        except RuntimeError as error:
            raise GradcheckError(
                "[gradcheck] Expected backward function to handle undefined output grads. Please "
                'look at "Notes about undefined output gradients"\nhint: treat None as zeros'
            ) from error
        if all(lost) and any(g is not None and any(v != 0 for v in _values(g)) for g in gradients):
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
        gradients = grad(output, targets, start, retain_graph=True, allow_unused=True)
        for got, tensor in zip(gradients, targets, strict=True):
            if got is not None and (got.dtype != tensor.dtype or got.shape != tensor.shape):
                raise GradcheckError(
                    f"[gradcheck] grad is {got.dtype} {tuple(got.shape)}, its input is "
                    f"{tensor.dtype} {tuple(tensor.shape)}\nhint: gradients are like their inputs"
                )


def _check_undefined_tangents(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """No tangent of an input means what a tangent of zeros means."""
    torch = _public()
    tangents = [_random_like(v) if _differentiable(v) else None for v in inputs]
    for i, value in enumerate(inputs):
        if not _differentiable(value):
            continue
        zeros, absent = list(tangents), list(tangents)
        zeros[i], absent[i] = value.new_zeros(value.shape), None
        pairs = zip(_tangents(func, inputs, zeros), _tangents(func, inputs, absent), strict=True)
        for j, ((_, expected), (_, got)) in enumerate(pairs):
            if expected is None or got is None:
                continue
            if not torch.allclose(got, expected, equal_nan=True):
                raise GradcheckError(
                    f"[gradcheck] Mismatch in tangent values for output with index: {j} when input "
                    f"{i} has an undefined tangent value. Got: {got} but expected: {expected}\n"
                    "hint: treat None as zeros"
                )


def _check_batched(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> None:
    """Checks that two backwards at once, by `vmap`, give the results of single ones."""
    from flambeau.autograd import grad

    targets = [i for i in inputs if _differentiable(i)]
    for j, output in enumerate(outputs):
        if not output.requires_grad:
            continue

        def pull(start: Tensor, output: Tensor = output) -> tuple[Tensor, ...]:
            gradients = grad(output, targets, start, retain_graph=True, allow_unused=True)
            pairs = zip(gradients, targets, strict=True)
            return tuple(t.new_zeros(t.shape) if g is None else g for g, t in pairs)

        _compare_batched(pull, output.detach(), "batched gradients", f"output {j}")


def _check_batched_forward(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Checks that two tangents at once, by `vmap`, give the results of single ones."""
    for i, value in enumerate(inputs):
        if not _differentiable(value):
            continue

        def push(tangent: Tensor, i: int = i) -> tuple[Tensor, ...]:
            tangents: list[Tensor | None] = [None] * len(inputs)
            tangents[i] = tangent
            pairs = _tangents(func, inputs, tangents)
            return tuple(p.new_zeros(p.shape) if t is None else t for p, t in pairs)

        _compare_batched(push, value.detach(), "batched forward gradients", f"input {i}")


def _compare_batched(
    linear: Callable[[Tensor], tuple[Tensor, ...]], like: Tensor, what: str, place: str
) -> None:
    """A linear map of two random tensors: `vmap` of it beside the map of each."""
    with importing:
        from flambeau.autograd.transforms.vmap import vmap

    torch = _public()
    starts = [_random_like(like) for _ in range(2)]
    expected = [torch.stack(parts) for parts in zip(*map(linear, starts), strict=True)]
    try:
        batched = vmap(linear)(torch.stack(starts))
    except RuntimeError as error:
        raise GradcheckError(
            f"[gradcheck] While computing {what}, got: {error}\n"
            "hint: what the derivative calls must work under torch.vmap"
        ) from error
    for k, (got, reference) in enumerate(zip(batched, expected, strict=True)):
        if not torch.allclose(got, reference, equal_nan=True):
            raise GradcheckError(
                f"[gradcheck] For {place} and result {k}: {what} differ from those one by one.\n"
                f"Got:\n{got}\nExpected:\n{reference}\n"
                "hint: does the derivative depend on values, or draw random numbers?"
            )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(f"{message}\nhint: see the arguments of the check")


def _check_modes(checks: _Checks) -> None:
    """Raises where no mode is to be checked, or batches of a mode that is not."""
    _require(
        checks.forward or checks.backward,
        "Expected at least one of check_forward_ad or check_backward_ad to be True",
    )
    _require(
        checks.backward or not checks.batched,
        "Setting check_batched_grad=True requires check_backward_ad to be True",
    )
    _require(
        checks.forward or not checks.batched_forward,
        "Setting check_batched_forward_grad=True requires check_forward_ad to be True",
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
    """Compare the derivatives of *func* with central differences.

    Args:
        func: takes the inputs, returns a tensor or several.
        inputs: its arguments; those that require a gradient are checked and should be float64.
        eps: step of the differences.
        atol, rtol: tolerances: |analytical - numerical| <= atol + rtol |numerical|.
        raise_exception: raise instead of returning False.
        nondet_tol: how far two runs of the same backward may differ.
        check_undefined_grad: whether absent output gradients (tangents) must count as zeros.
        check_grad_dtypes: whether gradients must have the dtype and shape of their inputs, and
            tangents the dtype of their outputs.
        check_batched_grad: whether `torch.vmap` of the backward must give what it gives one by
            one (with tolerance, as `torch.allclose`).
        check_batched_forward_grad: the same of forward mode; needs `check_forward_ad`.
        check_forward_ad: compare the derivatives by forward mode (`autograd.forward_ad`), too.
        check_backward_ad: False leaves out all that needs a backward.
        fast_mode: accepted; every component is checked anyway.
        masked: accepted for compatibility (it concerns sparse tensors).

    Returns:
        True if all agree.

    Raises:
        GradcheckError: they do not, and *raise_exception* is set.
        AssertionError: neither mode is to be checked, or a batched check of a mode that is not.
        ValueError: no input requires a gradient.
        RuntimeError: an input that does has elements which share memory.

    Example:
        >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
        >>> torch.autograd.gradcheck(torch.exp, x, check_forward_ad=True, check_batched_grad=True)
        True
    """
    batched = (check_batched_grad, check_batched_forward_grad)
    checks = _Checks(
        check_backward_ad, check_forward_ad, *batched, check_undefined_grad, check_grad_dtypes
    )
    _check_modes(checks)
    tolerances = _Tolerances(eps, atol, rtol, nondet_tol)
    return _verdict(func, _tuple(inputs), checks, tolerances, raise_exception)


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if _is_tensor(value) else tuple(value)


def _verdict(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    checks: _Checks,
    tolerances: _Tolerances,
    raise_exception: bool,
) -> bool:
    """True, or what *raise_exception* says of a derivative that is wrong."""
    try:
        _check_all(func, inputs, checks, tolerances)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_all(
    func: Callable[..., Any], inputs: tuple[Any, ...], checks: _Checks, tolerances: _Tolerances
) -> None:
    _check_inputs(inputs)
    outputs = [o for o in _outputs(func, inputs) if _is_floating(o)]
    _check_jacobians(func, inputs, outputs, checks, tolerances)
    if checks.forward and checks.undefined:
        _check_undefined_tangents(func, inputs)
    if checks.batched_forward:
        _check_batched_forward(func, inputs)
    if not checks.backward:
        return
    _check_determinism(func, inputs, outputs, tolerances.nondeterminism)
    if checks.batched:
        _check_batched(outputs, inputs)
    if checks.dtypes:
        _check_dtypes(outputs, inputs)
    if checks.undefined:
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
        check_fwd_over_rev: compare the tangents of gradients, too (forward over reverse mode).
        check_rev_over_rev: compare the gradients of gradients.
        Others: as for `gradcheck`.

    Returns:
        True if all agree.

    Raises:
        GradcheckError: they do not, and *raise_exception* is set.
        AssertionError: neither combination is to be checked, or `check_undefined_grad` or
            `check_batched_grad` without `check_rev_over_rev`.

    Example:
        >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
        >>> torch.autograd.gradgradcheck(torch.exp, x, check_fwd_over_rev=True)
        True
    """
    _require(
        check_fwd_over_rev or check_rev_over_rev,
        "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True",
    )
    for name, enabled in (
        ("check_undefined_grad", check_undefined_grad),
        ("check_batched_grad", check_batched_grad),
    ):
        needs = f"Setting {name}=True requires check_rev_over_rev to be True"
        _require(check_rev_over_rev or not enabled, needs)
    arguments = _tuple(inputs)
    starts = _starts(func, arguments, grad_outputs, gen_non_contig_grad_outputs)
    gradients = _gradients(func, arguments, starts)
    batched = (check_batched_grad, False)
    checks = _Checks(
        check_rev_over_rev, check_fwd_over_rev, *batched, check_undefined_grad, check_grad_dtypes
    )
    tolerances = _Tolerances(eps, atol, rtol, nondet_tol)
    return _verdict(gradients, (*arguments, *starts), checks, tolerances, raise_exception)


def _gradients(
    func: Callable[..., Any], inputs: Sequence[Any], starts: Sequence[Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """The gradients of *func* as a function of its inputs and of what backward starts from.

    Forward mode passes detached values: what required a gradient does again.
    """
    from flambeau.autograd import grad

    differentiable = [_differentiable(value) for value in (*inputs, *starts)]
    count = len(inputs)

    def gradients(*values: Any) -> tuple[Tensor, ...]:
        variables = [
            v.requires_grad_() if w else v for v, w in zip(values, differentiable, strict=True)
        ]
        targets = [v for v, w in zip(variables[:count], differentiable, strict=False) if w]
        outputs = [o for o in _outputs(func, variables[:count]) if o.requires_grad]
        gradients_of_targets = grad(
            outputs, targets, variables[count:], create_graph=True, allow_unused=True
        )
        return tuple(g for g in gradients_of_targets if g is not None)

    return gradients


def _random_like(tensor: Tensor) -> Tensor:
    torch = _public()
    if not tensor.is_complex():
        return torch.randn(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    options = {"dtype": tensor.dtype.to_real(), "device": tensor.device}
    return torch.complex(torch.randn(tensor.shape, **options), torch.randn(tensor.shape, **options))


def _starts(
    func: Callable[..., Any], inputs: Sequence[Any], grad_outputs: Any, non_contiguous: bool
) -> tuple[Tensor, ...]:
    """Returns the cotangents of the first backward; random ones unless the caller passes some."""
    if grad_outputs is not None:
        return _tuple(grad_outputs)
    outputs = [o for o in _outputs(func, inputs) if o.requires_grad]
    return tuple(_random_start(o, non_contiguous) for o in outputs)


def _random_start(output: Tensor, non_contiguous: bool) -> Tensor:
    start = _random_like(output)
    if non_contiguous and start.numel() > 1:
        start = _public().stack([start, start], -1).select(-1, 0)
    return start.detach().requires_grad_()
