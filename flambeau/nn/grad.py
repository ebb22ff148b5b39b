"""`torch.nn.grad`: gradients of convolutions as functions, also as `nn.functional.grad`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.messages import problem
from flambeau.ops.neural.convolution_gradients import convolution_backward

__all__ = [f"conv{n}d_{what}" for n in (1, 2, 3) for what in ("input", "weight")]

_DOCUMENTS = {
    "input": """The gradient of `conv{n}d` with respect to its input.

    Args:
        input_size: sizes of the input, `(N, C, {space})`.
        weight: `(O, C / groups, {kernel})`.
        grad_output: gradient of the result, `(N, O, {out})`.
        stride, padding, dilation: numbers, or one per dimension.
        groups: of channels that do not mix.

    Returns:
        A tensor of *input_size*.

    Raises:
        RuntimeError: sizes or dtypes that do not fit each other.
        NotImplementedError: no real floating-point numbers.

    Example:
        >>> weight, grad = torch.ones({ones}), torch.ones({ones})
        >>> torch.nn.grad.conv{n}d_input(({twos}), weight, grad, stride=2).sum()
        tensor(1.)
    """,
    "weight": """The gradient of `conv{n}d` with respect to its weight.

    Args:
        input: `(N, C, {space})`.
        weight_size: sizes of the weight, `(O, C / groups, {kernel})`.
        grad_output: gradient of the result, `(N, O, {out})`.
        stride, padding, dilation: numbers, or one per dimension.
        groups: of channels that do not mix.

    Returns:
        A tensor of *weight_size*.

    Raises:
        RuntimeError: sizes or dtypes that do not fit each other.
        NotImplementedError: no real floating-point numbers.

    Example:
        >>> x, grad = torch.ones({twos}), torch.ones({ones})
        >>> torch.nn.grad.conv{n}d_weight(x, ({ones}), grad, stride=2).shape == ({ones})
        True
    """,
}


def _check_rank(what: str, count: int, rank: int) -> None:
    if rank != count + 2:
        raise RuntimeError(
            problem(
                f"conv{count}d_{what}",
                f"the weight has {count + 2} dimensions, not {rank}",
                f"conv{rank - 2}d_{what}, or (O, C / groups, ...)",
            )
        )


def _documented(function: Any, what: str, count: int) -> Any:
    space = {
        "space": ", ".join("DHW"[3 - count :]),
        "kernel": ", ".join(f"k{d}" for d in "DHW"[3 - count :]),
        "out": ", ".join(f"{d}_out" for d in "DHW"[3 - count :]),
        "ones": ", ".join("1" * (count + 2)),
        "twos": ", ".join("11" + "2" * count),
    }
    function.__name__ = function.__qualname__ = f"conv{count}d_{what}"
    function.__doc__ = _DOCUMENTS[what].format(n=count, **space)
    return function


def _backward(which: int, grad: Any, x: Any, weight: Any, *options: Any) -> Any:
    windows = (*options[:3], False, 0, options[3], [k == which for k in range(3)])
    return convolution_backward.native(grad, x, weight, None, *windows)[which]


def _input_function(count: int) -> Any:
    def gradient(
        input_size: Sequence[int],
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        _check_rank("input", count, weight.ndim)
        x = grad_output.new_empty(1).expand(input_size)
        return _backward(0, grad_output, x, weight, stride, padding, dilation, groups)

    return _documented(gradient, "input", count)


def _weight_function(count: int) -> Any:
    def gradient(
        input: Any,
        weight_size: Sequence[int],
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        _check_rank("weight", count, len(weight_size))
        weight = grad_output.new_empty(1).expand(weight_size)
        return _backward(1, grad_output, input, weight, stride, padding, dilation, groups)

    return _documented(gradient, "weight", count)


conv1d_input, conv2d_input, conv3d_input = (_input_function(n) for n in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_weight_function(n) for n in (1, 2, 3))
