"""Functionalization: a mode in which no operator that reaches the modes below writes or aliases.

The function that runs inside sees fake tensors, whose geometry, memory and gradients are those of
an ordinary run. Each has a value, a tensor of the modes below, that writes replace.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau._subclasses.functional_storage import (
    INPLACE_VIEWS,
    VIEWS,
    Alias,
    Base,
    View,
    tensors_of,
)
from flambeau._subclasses.identities import Identities
from flambeau._subclasses.symbolic_calls import OverFakes, attach
from flambeau._subclasses.traced_tensor import TracedTensor, geometry_of
from flambeau.decompositions.inner_writes import functional_form, statistics
from flambeau.ir.failure import failure
from flambeau.ops import aten
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import (
    _disable_current_modes,
    _modes,
    _pop_mode_temporarily,
)

__all__ = ["FunctionalTensorMode", "functionalized"]

Value = Any  # a tensor, a number, a container of them


class FunctionalTensorMode(OverFakes):
    """A `with` block whose operators reach the modes below without writes.

    Args:
        copies: whether views become copies.
        taped: whether gradients are computed inside of the block, of leaves that are inputs;
            otherwise outside of it, of the values.

    Example:
        >>> from flambeau._subclasses.functional_tensor import FunctionalTensorMode
        >>> mode = FunctionalTensorMode()
        >>> x = mode.wrap(torch.ones(2))
        >>> with mode:
        ...     y = x.view(2, 1).add_(1)
        >>> mode.value(x)
        tensor([2., 2.])
    """

    def __init__(self, copies: bool = False, taped: bool = False) -> None:
        super().__init__()
        self.copies, self.taped = copies, taped
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self.fakes.kind = TracedTensor
        self._aliases: Identities[Alias] = Identities()
        self._inputs: list[tuple[Value, Value]] = []

    # ---- tensors
    def wrap(self, tensor: Value) -> Value:
        """The tensor that represents an input inside; other values as they are."""
        if not isinstance(tensor, _core.Tensor):
            return tensor
        inside = self._inside(tensor, Alias(tensor, Base(tensor)))
        if self.taped and tensor.requires_grad:
            inside.requires_grad_()
        self._inputs.append((tensor, inside))
        return inside

    def value(self, tensor: Value) -> Value:
        """The present value of a tensor of the block; other values as they are."""
        if not isinstance(tensor, _core.Tensor):
            return tensor
        alias = self._aliases.find(tensor)
        return tensor if alias is None else alias.value()

    def origin(self, tensor: Value) -> tuple[int, tuple[View, ...]] | None:
        """The input whose memory a tensor shows, by number, and the views that lead there."""
        alias = self._aliases.find(tensor) if _is_tensor(tensor) else None
        for number, (_, inside) in enumerate(self._inputs):
            base = self._aliases.find(inside)
            if alias is not None and base is not None and base.base is alias.base:
                return number, alias.views
        return None

    def finish(self, results: Value) -> Value:
        """The values of results; inputs that were written get theirs."""
        values = pytree.tree_map(self.value, results)
        for number, value in self.written().items():
            self._inputs[number][0].copy_(value)
        return values

    def written(self) -> dict[int, Value]:
        """Values of inputs that were written, by number.

        Raises:
            NotImplementedError: one of them shares memory with another input.
        """
        values = [self.value(inside) for _, inside in self._inputs]
        pairs = enumerate(zip(self._inputs, values, strict=True))
        written = {n: value for n, ((tensor, _), value) in pairs if value is not tensor}
        memory = [_memory(tensor) for tensor, _ in self._inputs]
        if any(memory.count(memory[n]) > 1 for n in written):
            problem = "an input is written whose memory another input shares"
            hint = "pass one of them, and make the other inside of the function"
            raise failure(NotImplementedError, "functionalize", problem, hint)
        return written

    def _inside(self, value: Value, alias: Alias) -> Value:
        """A fake tensor with the geometry of a value and memory of its own."""
        place = value.fake_device if isinstance(value, FakeTensor) else value.device
        geometry = geometry_of(value)
        self.fakes.shape_env = geometry.env or self.fakes.shape_env
        with fake_calls.below(), _disable_current_modes(), _core.no_grad():
            nbytes = value.untyped_storage().nbytes()
            hollow = _core.tensor_empty_strided((nbytes,), (1,), _core.uint8, "meta")
            example = (tuple(value.shape), value.stride(), value.storage_offset())
            shown = _core.tensor_from_storage(hollow.untyped_storage(), value.dtype, *example)
            inside = fake_calls.adopted(self.fakes, shown, place)
        attach(inside, geometry)
        self._aliases.set(inside, alias)
        return inside

    # ---- calls
    def __torch_dispatch__(
        self, func: Value, types: Value, args: tuple[Value, ...] = (), kwargs: Value = None
    ) -> Value:
        """Calls the operator's form without writes on values."""
        kwargs = kwargs or {}
        with _core.no_grad() if self.taped else contextlib.nullcontext():
            alias = self._aliases.find(args[0]) if args and _is_tensor(args[0]) else None
            name = func.overloadpacket.__name__
            if alias is not None and name in VIEWS:
                return self._view(func, alias, args, kwargs)
            if alias is not None and name in INPLACE_VIEWS:
                return self._view_in_place(func, alias, args, kwargs)
            targets = _targets(func, args, kwargs)
            if targets:
                return self._write(func, targets, args, kwargs)
            return self._computed(func, args, kwargs)

    def _computed(self, func: Value, args: Value, kwargs: Value) -> Value:
        """The results of an operator that writes nothing."""
        operands = tensors_of(pytree.tree_leaves((args, kwargs)))
        tracked = [x for x in operands if self._aliases.find(x) is not None]
        results = func(*self._values(args), **self._values(kwargs))
        lifts = func.overloadpacket.__name__ == "lift_fresh"
        if operands and not tracked and not lifts:
            return results  # of tensors from elsewhere alone, which are real
        own = {id(self.value(x)): x for x in tracked}

        def inside(value: Value) -> Value:
            if not _is_tensor(value):
                return value
            operand = own.get(id(value))
            if operand is not None:
                return operand
            return self._inside(value, Alias(value, Base(value)))

        return pytree.tree_map(inside, results)

    def _values(self, values: Value) -> Value:
        return pytree.tree_map(self.value, values)

    def _on_fakes(self, func: Value, args: Value, kwargs: Value) -> Value:
        """The results of an operator for the tensors inside, which have a geometry alone."""
        function = func.overloadpacket._function
        with _disable_current_modes(), _core.no_grad():
            return fake_calls.answer(self.fakes, function, args, kwargs)

    def _view(self, func: Value, alias: Alias, args: Value, kwargs: Value) -> Value:
        views = View(func, self._values(args[1:]), self._values(kwargs), None, self.copies)
        values = views.results(alias.stale)
        shown = self._on_fakes(func, args, kwargs)
        if _is_tensor(values):
            return self._shown(shown, Alias(values, alias.base, (*alias.views, views)))
        return [
            self._shown(part, Alias(value, alias.base, (*alias.views, views._replace(item=item))))
            for item, (part, value) in enumerate(zip(shown, values, strict=True))
        ]

    def _shown(self, tensor: Value, alias: Alias) -> Value:
        self._aliases.set(tensor, alias)
        return tensor

    def _view_in_place(self, func: Value, alias: Alias, args: Value, kwargs: Value) -> Value:
        name = INPLACE_VIEWS[func.overloadpacket.__name__]
        operator = getattr(aten.__getattr__(name), func._overloadname)
        self._on_fakes(func, args, kwargs)
        alias.view(View(operator, self._values(args[1:]), self._values(kwargs), None, self.copies))
        self._aliases.set(args[0], alias)
        return args[0]

    def _write(self, func: Value, targets: Sequence[Value], args: Value, kwargs: Value) -> Value:
        aliases = [self._aliases.find(target) for target in targets]
        if all(alias is None for alias in aliases):
            return self._foreign(func, args, kwargs)
        if any(alias is None for alias in aliases):
            problem = f"{func} writes a tensor from outside of the function, and one from inside"
            raise failure(RuntimeError, "functionalize", problem, "make both of them inputs")
        form = functional_form(func)
        values = form.call(self._values(args), self._values(kwargs))
        results, new = form.split(values, len(targets))
        for target, alias, value in zip(targets, aliases, new, strict=True):
            assert alias is not None
            alias.write(value)
            target._bump_version()
        return form.returned(args[0], [self._inside(x, Alias(x, Base(x))) for x in results])

    def _foreign(self, func: Value, args: Value, kwargs: Value) -> Value:
        """A write into a tensor that is no input: it happens at every run."""
        operands = tensors_of(pytree.tree_leaves((args, kwargs)))
        if any(self._aliases.find(x) is not None for x in operands):
            problem = f"{func} writes a tensor that is no input of the function"
            raise failure(RuntimeError, "functionalize", problem, "make it an input")
        return func(*args, **kwargs)

    def _restored(self, tensor: Value) -> Value:
        return self._aliases.original(tensor)

    def _detached(self, tensor: Value) -> Value:
        alias = self._aliases.find(tensor)
        if alias is not None:
            with _pop_mode_temporarily():
                alias.view(View(aten.detach.default, (), {}, None, self.copies))
        return tensor

    def _replaces(self, target: Value, value: Value) -> bool:
        """Gives `out=` a result; False: it is copied as elsewhere."""
        alias = self._aliases.find(target)
        if alias is None or tuple(target.shape) != tuple(value.shape):
            return False
        with _core.no_grad() if self.taped else contextlib.nullcontext(), _pop_mode_temporarily():
            alias.write(self.value(value))
        target._bump_version()
        return True


def _is_tensor(x: Value) -> bool:
    return isinstance(x, _core.Tensor)


def _memory(tensor: Value) -> int:
    return int(tensor.untyped_storage()._cdata)


def _targets(func: Value, args: Value, kwargs: Value) -> list[Value]:
    """The tensors that a call writes."""
    running = statistics(func, args)
    function = func.overloadpacket._function
    if running or not hasattr(function, "bind"):
        return running
    specs, values = aten.bound(func, args, kwargs)
    written = [value for spec, value in zip(specs, values, strict=True) if spec.mutated]
    return tensors_of([value for value in written if value is not None])


def functionalized(function: Callable[..., Value], copies: bool) -> Callable[..., Value]:
    """A function whose operators reach dispatch modes without writes.

    Args:
        function: of tensors and containers.
        copies: whether views become copies.
    """

    @functools.wraps(function)
    def functional(*args: Value, **kwargs: Value) -> Value:
        if not _modes.stack:  # nothing can see the difference
            return function(*args, **kwargs)
        mode = FunctionalTensorMode(copies)
        args, kwargs = pytree.tree_map(mode.wrap, (args, kwargs))
        with mode:
            results = function(*args, **kwargs)
        return mode.finish(results)

    return functional
