"""`autograd.functional`: Jacobians, Hessians and products with them, of functions of tensors.

The older interface to what `flambeau.func` composes: a function of one tensor or a tuple of them,
whose derivatives are computed at given inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd.grad_mode import enable_grad
from flambeau.autograd.transforms.vmap import _operator, vmap
from flambeau.ir.lock import importing

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensor = Any
Tensors = tuple[Any, ...]
Func = Callable[..., Any]


# ------------------------------------------------------------------------------------ arguments


def _tuple(name: str, what: str, value: Any) -> tuple[bool, Tensors]:
    if isinstance(value, _core.Tensor):
        return False, (value,)
    values = tuple(value) if isinstance(value, (tuple, list)) else ()
    if not values or not all(isinstance(x, _core.Tensor) for x in values):
        hint = "Tensors" if what == "inputs" else "a Tensor or a tuple of Tensors"
        raise TypeError(
            f"[{name}] The {what} given to {name} must be either a Tensor or a tuple of Tensors "
            f"but got {type(value)}\nhint: pass {hint}"
        )
    return isinstance(value, (tuple, list)), values


def _as_tuple(
    inp: Any, arg_name: str | None = None, fn_name: str | None = None
) -> tuple[bool, Tensors]:
    """PyTorch's private name: whether a value is a tuple of tensors, and the tuple.

    Raises:
        TypeError: it is no tensor, or holds something else.
    """
    return _tuple(fn_name or "functional", arg_name or "inputs", inp)


def _tuple_postprocess(res: Any, to_unpack: Any) -> Any:
    """PyTorch's private name: a result without the tuples that the arguments did not have."""
    if not isinstance(to_unpack, tuple):
        return res if to_unpack else res[0]
    if not to_unpack[1]:
        res = tuple(each[0] for each in res)
    return res if to_unpack[0] else res[0]


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """PyTorch's private name: tensors (nested in tuples) detached unless a graph is needed."""
    if isinstance(inputs[0], _core.Tensor):
        return tuple(inputs) if create_graph else tuple(x.detach() for x in inputs)
    return tuple(_grad_postprocess(each, create_graph) for each in inputs)


def _construct_standard_basis_for(tensors: Tensors, tensor_numels: tuple[int, ...]) -> Tensors:
    """PyTorch's private name: per tensor its rows of the identity over all their elements."""
    identity = _operator("eye")(sum(tensor_numels))
    columns = identity.split(list(tensor_numels), 1)
    return tuple(
        block.to(dtype=x.dtype, device=x.device).contiguous()
        for block, x in zip(columns, tensors, strict=True)
    )


def _variables(inputs: Tensors, create_graph: bool) -> Tensors:
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                     for x in inputs)  # fmt: skip
    return tuple(x.detach().requires_grad_() for x in inputs)


def _called(name: str, func: Func, inputs: Tensors) -> tuple[bool, Tensors]:
    return _tuple(name, "outputs", func(*inputs)) if inputs else (False, ())


def _vector(name: str, what: str, v: Any, like: Tensors, single: bool) -> Tensors:
    """The given direction, checked; ones where a single number needs none."""
    if v is None:
        if single and like[0].numel() == 1:
            return (like[0].new_ones(like[0].shape),)
        raise RuntimeError(
            f"[{name}] The vector v can only be None if {what} is a single Tensor containing a "
            "single element.\nhint: pass v"
        )
    _, values = _tuple(name, "v", v)
    if len(values) != len(like):
        raise RuntimeError(
            f"[{name}] v is a tuple of invalid length: should be {len(like)} but got "
            f"{len(values)}.\nhint: one tensor per {what}"
        )
    for i, (a, b) in enumerate(zip(values, like, strict=True)):
        if tuple(a.shape) != tuple(b.shape):
            raise RuntimeError(
                f"[{name}] Entry {i} in v has invalid size: should be {b.shape} but got "
                f"{a.shape}.\nhint: v has the sizes of {what}"
            )
    return values


def _grad(
    name: str,
    outputs: Sequence[Tensor],
    inputs: Tensors,
    seeds: Sequence[Tensor],
    create: bool,
    strict: bool,
) -> list[Tensor]:
    """Gradients, zeros where there are none (an error under `strict`)."""
    from flambeau import autograd

    pairs = [(y, g) for y, g in zip(outputs, seeds, strict=True) if y.requires_grad]
    if strict and len(pairs) < len(outputs):
        raise RuntimeError(
            f"[{name}] Output {[y.requires_grad for y in outputs].index(False)} of the "
            "user-provided function does not require gradients. The outputs must be computed in a "
            "differentiable manner from the input when running in strict mode.\n"
            "hint: strict=False gives zeros"
        )
    if not pairs:
        return [x.new_zeros(x.shape) for x in inputs]
    gradients = autograd.grad(
        [y for y, _ in pairs], inputs, [g for _, g in pairs],
        retain_graph=True, create_graph=create, allow_unused=True,
    )  # fmt: skip
    for i, g in enumerate(gradients):
        if g is None and strict:
            raise RuntimeError(
                f"[{name}] The output of the user-provided function is independent of input {i}. "
                "This is not allowed in strict mode.\nhint: strict=False gives zeros"
            )
    return [
        x.new_zeros(x.shape) if g is None else g for g, x in zip(gradients, inputs, strict=True)
    ]


def _given(several: bool, values: Sequence[Tensor], create: bool) -> Any:
    results = tuple(values) if create else tuple(x.detach() for x in values)
    return results if several else results[0]


def _scalar(name: str, several: bool, outputs: Tensors) -> None:
    if several or len(outputs) != 1:
        raise RuntimeError(
            f"[{name}] The function given to {name} should return a single Tensor\n"
            "hint: return one number"
        )
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"[{name}] The Tensor returned by the function given to {name} should contain a single "
            "element\nhint: reduce it with sum()"
        )


# ------------------------------------------------------------------------------------ products


def vjp(
    func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return func(*inputs), and the product of *v* with the Jacobian.

    Args:
        func: takes tensors, returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors.
        v: of the outputs' sizes; may be left out where the output is one number.
        create_graph: the results can be differentiated.
        strict: raise where an output does not depend on an input.
    """
    with enable_grad():
        several, primals = _tuple("vjp", "inputs", inputs)
        variables = _variables(primals, create_graph)
        many, outputs = _called("vjp", func, variables)
        vector = _vector("vjp", "the user-provided function output", v, outputs, not many)
        gradients = _grad("vjp", outputs, variables, vector, create_graph, strict)
    return _given(many, outputs, create_graph), _given(several, gradients, create_graph)


def jvp(
    func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return func(*inputs), and the product of the Jacobian with *v*.

    Args:
        func: takes tensors, returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors.
        v: of the inputs' sizes; may be left out where the input is one number.
        create_graph: the results can be differentiated.
        strict: raise where an output does not depend on an input.
    """
    with importing:
        from flambeau.autograd.transforms.tangents import jvp as forward

    with enable_grad():
        several, primals = _tuple("jvp", "inputs", inputs)
        vector = _vector("jvp", "the input to the user-provided function", v, primals, not several)
        if strict:
            variables = _variables(primals, create_graph)
            outputs = _called("jvp", func, variables)[1]
            seeds = [y.new_zeros(y.shape) for y in outputs]
            _grad("jvp", outputs, variables, seeds, False, True)
        primals = primals if create_graph else tuple(x.detach() for x in primals)
        many = False

        def called(*values: Tensor) -> Tensors:
            nonlocal many
            many, results = _called("jvp", func, values)
            return results

        outputs, moved = forward(called, primals, vector)
    return _given(many, outputs, create_graph), _given(many, moved, create_graph)


def vhp(
    func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return func(*inputs), one number, and the product of *v* with its Hessian.

    Args:
        func: takes tensors, returns one number.
        inputs: a tensor or a tuple of tensors.
        v: of the inputs' sizes; may be left out where the input is one number.
        create_graph: the results can be differentiated.
        strict: raise where the gradient does not depend on an input.
    """
    return _second("vhp", func, inputs, v, create_graph, strict)


def hvp(
    func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return func(*inputs), one number, and the product of its Hessian with *v*.

    Args: see `vhp`; a Hessian is symmetric.
    """
    return _second("hvp", func, inputs, v, create_graph, strict)


def _second(
    name: str, func: Func, inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    with enable_grad():
        several, primals = _tuple(name, "inputs", inputs)
        vector = _vector(name, "the input to the user-provided function", v, primals, not several)
        variables = _variables(primals, create_graph)
        many, outputs = _called(name, func, variables)
        _scalar(name, many, outputs)
        ones = [outputs[0].new_ones(outputs[0].shape)]
        first = _grad(name, outputs, variables, ones, True, strict)
        products = _grad(name, first, variables, vector, create_graph, strict)
    return _given(False, outputs, create_graph), _given(several, products, create_graph)


# ------------------------------------------------------------------------------------ matrices


def jacobian(
    func: Func,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian of *func*.

    Args:
        func: takes tensors, returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of tensors.
        create_graph: the result can be differentiated.
        strict: raise where an output does not depend on an input; not with *vectorize*.
        vectorize: compute all rows at once.
        strategy: "reverse-mode", or "forward-mode" (with *vectorize*).

    Returns:
        A tensor of the output's sizes, then the input's; a tuple of them for several outputs, of
        tuples for several outputs and inputs.

    Example:
        >>> from flambeau.autograd.functional import jacobian
        >>> jacobian(torch.exp, torch.zeros(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, strict, vectorize)
    if strict and vectorize:
        raise RuntimeError(
            "[jacobian] torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` "
            "are not supported together. Please either set `strict=False` or `vectorize=False`.\n"
            "hint: vectorize=False"
        )
    with enable_grad():
        several, primals = _tuple("jacobian", "inputs", inputs)
        variables = _variables(primals, create_graph)
        many, outputs = _called("jacobian", func, variables)
        rows = [_rows(y, variables, create_graph, strict, vectorize) for y in outputs]
    blocks = [_given(several, row, create_graph) for row in rows]
    return tuple(blocks) if many else blocks[0]


def _rows(
    output: Tensor, inputs: Tensors, create: bool, strict: bool, vectorize: bool
) -> list[Tensor]:
    """Per input the Jacobian of one output."""
    count = output.numel()
    shape = tuple(output.shape)

    def row(seed: Tensor) -> tuple[Tensor, ...]:
        return tuple(_grad("jacobian", [output], inputs, [seed], create, strict))

    if count == 0 or not (output.requires_grad or strict):
        return [x.new_zeros((*shape, *x.shape)) for x in inputs]
    unit = output.new_zeros((count, count))
    unit.fill_diagonal_(1)
    unit = unit.view(count, *shape)
    if vectorize:
        stacked: Sequence[Tensor] = vmap(row)(unit)
    else:
        columns = zip(*(row(unit[i]) for i in range(count)), strict=True)
        stacked = [_operator("stack")(list(column)) for column in columns]
    return [j.reshape(*shape, *tuple(j.shape)[1:]) for j in stacked]


def _forward_jacobian(
    func: Func, inputs: Any, create_graph: bool, strict: bool, vectorize: bool
) -> Any:
    with importing:
        from flambeau.autograd.transforms.tangents import jacfwd

    if strict:
        raise NotImplementedError(
            "[jacobian] `strict=True` with strategy='forward-mode' is not supported\n"
            "hint: strategy='reverse-mode'"
        )
    if not vectorize:
        raise NotImplementedError(
            "[jacobian] strategy='forward-mode' needs vectorize=True\nhint: vectorize=True"
        )
    several, primals = _tuple("jacobian", "inputs", inputs)
    primals = primals if create_graph else tuple(x.detach() for x in primals)
    many = False

    def called(*values: Tensor) -> Tensors:
        nonlocal many
        many, outputs = _called("jacobian", func, values)
        return outputs

    with enable_grad():
        jacobians = jacfwd(called, tuple(range(len(primals))))(*primals)
    blocks = [_given(several, row, create_graph) for row in jacobians]
    return tuple(blocks) if many else blocks[0]


def hessian(
    func: Func,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the Hessian of *func*, a function with one number as its result.

    Args:
        func: takes tensors, returns one number.
        inputs: a tensor or a tuple of tensors.
        create_graph: the result can be differentiated.
        strict: raise where the gradient does not depend on an input; not with *vectorize*.
        vectorize: compute all rows at once.
        outer_jacobian_strategy: "reverse-mode", or "forward-mode" (with *vectorize*).

    Returns:
        A tensor of the input's sizes twice; a tuple of tuples of them for several inputs.
    """
    several, primals = _tuple("hessian", "inputs", inputs)
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def gradient(*values: Tensor) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            with importing:
                from flambeau.autograd.transforms.reverse import grad

            gradients = grad(_number, tuple(range(len(values))))(*values)
        else:
            many, outputs = _called("hessian", func, values)
            _scalar("hessian", many, outputs)
            ones = [outputs[0].new_ones(outputs[0].shape)]
            gradients = _grad("jacobian", outputs, values, ones, True, strict)
        return tuple(gradients) if several else gradients[0]

    def _number(*values: Tensor) -> Tensor:
        many, outputs = _called("hessian", func, values)
        _scalar("hessian", many, outputs)
        return outputs[0].reshape(())

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
