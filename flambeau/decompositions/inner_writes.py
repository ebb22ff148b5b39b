"""Operators that write, in their forms that do not: `aten.add_` is `aten.add`.

Most are the operator without its underscore. Those whose form has another name, or exists for
functionalization alone, are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.decompositions.inner import inner, public
from flambeau.ir.failure import failure
from flambeau.ops import aten

__all__ = ["Form", "functional_form"]

Tensor = Any
Value = Any


class Form(NamedTuple):
    """The form of an operator that writes nothing.

    Attributes:
        func: the overload.
        many: whether its results are those of the operator, then what is written.
    """

    func: aten.Overload
    many: bool = False

    def call(self, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Calls it with the arguments of the operator."""
        if self.func.__name__ == "bernoulli.p" and len(args) == 1 and "p" not in kwargs:
            args = (*args, 0.5)  # the default of `bernoulli_` alone
        return self.func(*args, **kwargs)

    def split(self, values: Value, count: int) -> tuple[list[Tensor], list[Tensor]]:
        """The operator's new tensors, and the values of those that it writes."""
        flat = list(values) if isinstance(values, (list, tuple)) else [values]
        return (flat[:-count], flat[-count:]) if self.many else ([], flat)

    def returned(self, target: Value, results: Sequence[Tensor]) -> Value:
        """The operator's result."""
        return tuple(results) if self.many else target


_STATISTICS = "_native_batch_norm_legit_functional"
# Operators whose form has another name: that, and the overload.
_NAMES = {
    "bernoulli_.float": ("bernoulli", "p"),
    "bernoulli_.Tensor": ("bernoulli", "p"),
    "normal_.default": ("normal_functional", "default"),
    "native_batch_norm.default": (_STATISTICS, "default"),
    "_native_batch_norm_legit.default": (_STATISTICS, "default"),
}


def statistics(func: aten.Overload, args: Sequence[Value]) -> list[Tensor]:
    """Running statistics that a batch norm writes.

    Args:
        func: any overload.
        args: its arguments.
    """
    normed = _NAMES.get(func.__name__, ("", ""))[0] == _STATISTICS and args[5]
    return [x for x in args[3:5] if x is not None] if normed else []


def functional_form(func: aten.Overload) -> Form:
    """The form of an operator that writes nothing.

    Args:
        func: writes arguments.

    Raises:
        NotImplementedError: it has none.
    """
    name, overload = _NAMES.get(func.__name__, (func.overloadpacket.__name__, func._overloadname))
    try:
        packet = aten.__getattr__(name.removesuffix("_"))
    except AttributeError:
        packet = None
    if packet is None or aten.is_absent(packet):
        problem = f"{func} has no form that writes nothing"
        hint = "compute a new tensor instead of writing one"
        raise failure(NotImplementedError, "functionalize", problem, hint)
    return Form(getattr(packet, overload), name == _STATISTICS)


# ------------------------------------------------------------------------------ writes
@inner("copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor")
def _copy(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    return public("empty_like")(self).copy_(src)


@inner(
    f"{_STATISTICS}(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, "
    "Tensor running_var, bool training, float momentum, float eps) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def _batch_norm(
    input: Tensor, weight: Value, bias: Value, running_mean: Tensor, running_var: Tensor,  # noqa: A002
    *numbers: Value,
) -> tuple[Tensor, ...]:  # fmt: skip
    written = (running_mean.clone(), running_var.clone())
    return (*public("native_batch_norm")(input, weight, bias, *written, *numbers), *written)


@inner("zero(Tensor self) -> Tensor")
def _zero(self: Tensor) -> Tensor:
    return public("zeros_like")(self)


def _drawn(name: str, form: str, arguments: str) -> None:
    """A method that fills a tensor with draws, as a function of the tensor."""

    def run(self: Tensor, *values: Value) -> Tensor:
        draw = getattr(_core.Tensor, f"{name}_")
        return draw(public("empty_like")(self), *values[:-1], generator=values[-1])

    inner(f"{form}(Tensor self, {arguments}*, generator? generator=None) -> Tensor")(run)


_drawn("normal", "normal_functional", "float mean=0.0, float std=1.0, ")
_drawn("uniform", "uniform", "float from=0.0, float to=1.0, ")
_drawn("exponential", "exponential", "float lambd=1.0, ")
