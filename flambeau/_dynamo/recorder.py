"""Records the operators of a compiled call as fx graphs, for backends that are functions.

Python runs at every call; operators are delayed. Their results are fake tensors, which the user's
code may ask for everything but data. A segment ends where data is needed (`item`, `print`, a
condition), where state changes (`runtime/boundaries.py`) and at the end of the call. Then the
segment becomes a graph, whose inputs are the real tensors that occurred and whose outputs are the
fake results that are still referenced, and these fakes become the real results in place. No guards
are needed: equal segments (operators, arguments, metadata of inputs) share one compiled graph.
"""

from __future__ import annotations

import contextlib
import dis
import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau import _C, _core
from flambeau._dynamo.sizes import RECORDED, SizeReads, plain
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.autograd.transforms import wrappers
from flambeau.autograd.transforms.programs import program_of
from flambeau.fx import _calls, _function_names
from flambeau.fx.proxy import Proxy
from flambeau.ir.lock import late
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.overrides import TorchFunctionMode
from flambeau.runtime import boundaries
from flambeau.utils import _python_dispatch
from flambeau.utils._pytree import tree_leaves

__all__ = ["Call", "Recorder", "Reference", "Segment"]

Tensor = _core.Tensor

# Metadata: the fake has the answer, and nothing is recorded.
_METADATA = frozenset(
    """shape dtype device ndim layout requires_grad is_cpu is_cuda is_meta is_sparse is_quantized
    itemsize nbytes names is_mps is_xpu size dim ndimension stride numel nelement is_contiguous
    storage_offset is_floating_point is_complex is_signed element_size is_conj is_neg get_device
    is_inference is_same_size __len__ __hash__ type_of is_nested is_coalesced is_sparse_csr
    is_tensor result_type""".split()
)
_PLACE = frozenset(("device", "is_cpu", "is_cuda", "is_meta", "get_device"))
_GRADIENT, _EMPTY = ("grad.__get__", "grad.__set__"), ((), (None,))
_VIEW_ATTRIBUTES = frozenset(("T", "mT", "H", "mH", "real", "imag"))
_SUBSCRIPTS = ("__getitem__", "__setitem__")
# Functions and methods that change what a tensor is, or hand out more than results.
_UNRECORDED = frozenset(
    """backward grad register_hook requires_grad_ retain_grad detach_ set_ resize_ resize_as_ t_
    transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ rename_ _deepcopy share_memory_
    apply_ map_ map2_ storage untyped_storage from_numpy frombuffer as_subclass _make_subclass
    get_rng_state set_rng_state manual_seed seed item tolist numpy data_ptr type
    """.split()
)
_LEAVES = (bool, int, float, complex, str, type(None), type(...), _core.dtype, _core.device,
           _core.layout, _core.memory_format)  # fmt: skip
_PLAIN = (Tensor, Parameter, Buffer)
_OPERATORS: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "matmul": operator.matmul, "pow": operator.pow, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "add_": operator.iadd,
    "sub_": operator.isub, "mul_": operator.imul, "div_": operator.itruediv,
}  # fmt: skip
_FAKE_ATTRIBUTES = ("fake_mode", "fake_device", "constant", "_is_param")
_BINARY = ("BINARY_OP", "COMPARE_OP")


class Unrecordable(Exception):  # noqa: N818 - control flow within this module
    """A call that a graph cannot hold; it runs at once."""


class Interrupted(BaseException):  # no code of the user catches it
    """A function of an operator does what its graph cannot hold; see `higher_order`."""


class Reference:
    """A value of a segment, in the arguments of a call.

    Args:
        index: number of the input (negative: `~index`) or of the call.
    """

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.index}"


@dataclass
class Call:
    """One operator call of a segment.

    Attributes:
        kind: of the node: call_function or call_method.
        target: of the node.
        args, kwargs: with a `Reference` for each tensor.
        name: suggests the node's name.
    """

    kind: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for calls that do the same; `repr` of the leaves distinguishes 1 from True."""
        return self.kind, self.target, repr(self.args), repr(self.kwargs)


@dataclass
class Segment:
    """Operators that were recorded since the last one ran.

    Attributes:
        mode: makes the fakes.
        grad, inference: the modes in which it begins.
        calls: the operators, in order.
        inputs: real tensors that occur.
        references: by identity of a fake.
        results: fakes of calls, weakly, with the call's number.
        now: whether gradients are enabled after the last call.
        outer: the segment that calls it, where it is a function of an operator.
        writes: whether its graph may write inputs that operators with a gradient computed.
    """

    mode: FakeTensorMode = field(default_factory=FakeTensorMode)
    grad: bool = field(default_factory=_core.is_grad_enabled)
    inference: bool = field(default_factory=_core.is_inference_mode_enabled)
    calls: list[Call] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    real: dict[int, Tensor] = field(default_factory=dict)
    references: dict[int, Reference] = field(default_factory=dict)
    results: dict[int, weakref.ref[Tensor]] = field(default_factory=dict)
    now: bool = field(default_factory=_core.is_grad_enabled)
    outer: Segment | None = None
    writes: bool = False

    def fake_of(self, tensor: Tensor) -> Any:
        """The fake tensor that represents an operand.

        Raises:
            Unrecordable: the tensor is of a kind that graphs do not hold.
        """
        if type(tensor) is FakeTensor and tensor.fake_mode is self.mode:
            return tensor
        if type(tensor) not in _PLAIN or tensor.layout is not _core.strided or tensor.is_meta:
            raise Unrecordable(f"an operand is a {type(tensor).__name__}")
        if self.outer is not None:
            fake = self.outer.fake_of(tensor)
            self.real[id(fake)] = tensor
            return fake
        fake = self.mode.from_tensor(tensor)
        if id(fake) not in self.references:
            self.references[id(fake)] = Reference(~len(self.inputs))
            self.inputs.append(tensor)
            self.real[id(fake)] = tensor
            if self.writes and tensor.requires_grad and not tensor.is_leaf:
                without_history(fake)  # it may be written, as a leaf may not
        return fake

    def parameter(self, value: Any) -> Any:
        """Makes a value a parameter of the graph of a function, and returns it.

        Args:
            value: a fake of the outer segment, or a number.
        """
        if isinstance(value, Tensor):
            self.references[id(value)] = Reference(~len(self.inputs))
        self.inputs.append(value)
        return value

    def live(self) -> list[tuple[int, Tensor]]:
        """Call numbers and fakes of the results that something outside still refers to."""
        results = [(index, reference()) for index, reference in sorted(self.results.items())]
        return [(index, fake) for index, fake in results if fake is not None]


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Changes tensors in an argument, in the containers that graphs hold.

    Raises:
        Unrecordable: there is another value inside.
    """
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list, _core.Size):
        items = [_mapped(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _mapped(item, change) for key, item in value.items()}
    if type(value) is slice:
        return slice(*[_mapped(v, change) for v in (value.start, value.stop, value.step)])
    if type(value) in _LEAVES or type(value) in RECORDED:
        return value
    raise Unrecordable(f"an argument is a {type(value).__name__}")


def _unrecorded(value: Any) -> Any:
    """Arguments of a call in which recorded numbers are numbers."""
    if type(value) in (tuple, list):
        return type(value)([_unrecorded(item) for item in value])
    if type(value) is dict:
        return {key: _unrecorded(item) for key, item in value.items()}
    if type(value) is slice:
        return slice(*[plain(part) for part in (value.start, value.stop, value.step)])
    return plain(value) if type(value) in RECORDED else value


class Recorder(TorchFunctionMode):
    """Delays the operators of one call of a compiled function.

    Args:
        run: called with the segment, its live results and the reason of its end; returns the real
            tensors of the results.
        reads: records numbers that are read of tensors, where sizes may vary.
        writes: of the segments.
    """

    def __init__(
        self,
        run: Callable[[Segment, Sequence[Any], str], Sequence[Tensor]],
        reads: SizeReads | None = None,
        writes: bool = False,
    ) -> None:
        self._run, self._reads = run, reads
        self.segment = Segment(writes=writes)
        self._answering = self._suspended = False
        self._backwards = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Records a call, or runs what was recorded and then the call."""
        kwargs = kwargs or {}
        if self._suspended:  # a mode that was entered since then has enabled this one
            return func(*args, **kwargs)
        name = fake_calls.name_of(func)
        attribute, _, accessor = name.partition(".")
        try:
            if attribute in _PLACE and type(args[0]) is not FakeTensor:
                return func(*args, **kwargs)
            if attribute in _METADATA:
                result = self._metadata(func, args, kwargs)
                if self._reads is None or kwargs:
                    return result
                return self._reads.read(self.segment, name, args, result)
            if name in _GRADIENT and type(args[0]) is not FakeTensor and args[1:] in _EMPTY:
                return func(*args, **kwargs)  # one that is delayed is a fake
            if name == "__iter__":
                return iter(self._record(Tensor.unbind, args, kwargs, "unbind", None))
            if accessor and (accessor != "__get__" or attribute not in _VIEW_ATTRIBUTES):
                raise Unrecordable(f"Tensor.{attribute}")
            self._require_recordable(func, name, kwargs)
            return self._record(func, args, kwargs, name, sys._getframe(1))
        except Unrecordable as stop:
            self.interrupt(f"{attribute}: {stop}")
        if _of_node(func):  # types of users do not see what the engine calls
            with _C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _metadata(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def known(tensor: Tensor) -> Any:
            entry = self.segment.mode._tensors.get(id(tensor))
            return tensor if entry is None else entry[1]

        args = tuple([known(x) if isinstance(x, Tensor) else x for x in args])
        if any(type(x) is FakeTensor and x.fake_mode is self.segment.mode for x in args):
            return fake_calls.answer(self.segment.mode, func, args, kwargs)
        return func(*args, **kwargs)

    def _require_recordable(self, func: Any, name: str, kwargs: dict[str, Any]) -> None:
        if name in _UNRECORDED or kwargs.get("out") is not None or kwargs.get("requires_grad"):
            raise Unrecordable("it runs at once")
        if not self.segment.calls:
            self.segment.inference = _core.is_inference_mode_enabled()
        if _core.saved_hooks_depth() or wrappers.levels() or _python_dispatch._modes.stack:
            raise Unrecordable("hooks of saved tensors or another mode are active")
        if _core.is_inference_mode_enabled() != self.segment.inference:
            raise Unrecordable("inference mode changed")
        if name in _SUBSCRIPTS or "." in name or _function_names.method_name(func) is not None:
            return
        if _function_names.public_name(func) is None and not _of_node(func):
            raise Unrecordable("Python needs its result")

    def _record(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, frame: Any
    ) -> Any:
        segment = self.segment
        if self._reads is not None and _of_node(func):
            args = self._with_sizes(func, args, self._reads)
        fake_args = _mapped(args, segment.fake_of)
        fake_kwargs = _mapped(kwargs, segment.fake_of)
        referring = [_mapped(x, self._reference) for x in (fake_args, fake_kwargs)]
        before = {id(x) for x in tree_leaves((fake_args, fake_kwargs)) if isinstance(x, Tensor)}
        self._answering = True
        if self._reads is not None:
            fake_args, fake_kwargs = _unrecorded(fake_args), _unrecorded(fake_kwargs)
        try:
            result = fake_calls.answer(segment.mode, func, fake_args, fake_kwargs)
        except Exception as error:  # it raises again where it runs, or does not
            raise Unrecordable(type(error).__name__) from None
        finally:
            self._answering = False
        leaves = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if not leaves and result is not None:
            if before:
                raise Unrecordable("Python needs its result")
            return result
        if any(type(x) is not FakeTensor for x in leaves):
            raise Unrecordable("its result cannot be delayed")
        self._follow_grad_mode()
        call = _node_call(func, args, referring, name, frame)
        segment.calls.append(call)
        return self._bound(result, Reference(len(segment.calls) - 1), before)

    def _with_sizes(self, func: Any, args: tuple[Any, ...], reads: SizeReads) -> tuple[Any, ...]:
        """The engine's arguments for a backward; sizes that vary are recorded numbers."""
        self._backwards += 1
        number, values, _ = func.bind(args, {})
        kinds = [each.kind for each in program_of(func, number).arguments]
        return tuple([
            reads.argument(f"backward{self._backwards}.{position}", value)
            if kind == "SymInt" else value
            for position, (kind, value) in enumerate(zip(kinds, values, strict=True))
        ])  # fmt: skip

    def _reference(self, fake: Tensor) -> Reference:
        references = self.segment.references
        if self.segment.outer is not None and id(fake) not in references:
            self.segment.parameter(fake)
        return references[id(fake)]

    def _follow_grad_mode(self) -> None:
        enabled = _core.is_grad_enabled()
        if self.segment.now is enabled:
            return
        if not self.segment.calls:
            self.segment.grad = enabled
        else:
            switch = Call(
                "call_function", _C._set_grad_enabled, (enabled,), {}, "_set_grad_enabled"
            )
            self.segment.calls.append(switch)
        self.segment.now = enabled

    def _bound(self, result: Any, reference: Reference, before: set[int]) -> Any:
        """Notes which value of the graph a result is; written operands are the tensors themselves.

        Args:
            result: a fake, or containers of fakes.
            reference: the call's.
            before: identities of the fakes among the operands.
        """
        if isinstance(result, Tensor):
            self._bind(result, reference, before)
            return self.segment.real.get(id(result), result)
        if not isinstance(result, (tuple, list)):
            return result
        parts = []
        for index, item in enumerate(result):
            if isinstance(item, (Tensor, tuple, list)):
                part = Call("call_function", operator.getitem, (reference, index), {}, "getitem")
                self.segment.calls.append(part)
                item = self._bound(item, Reference(len(self.segment.calls) - 1), before)
            parts.append(item)
        if all(new is old for new, old in zip(parts, result, strict=True)):
            return result
        return type(result)(parts)

    def _bind(self, fake: Tensor, reference: Reference, before: set[int]) -> None:
        segment = self.segment
        old = segment.references.get(id(fake))
        segment.references[id(fake)] = reference
        if old is not None and id(fake) in before:
            segment.results.pop(old.index, None)
            if id(fake) in segment.real:
                return
        if id(fake) not in before and fake.grad_fn is not None:
            without_history(fake)
        segment.results[reference.index] = weakref.ref(fake, self._forgetting(id(fake)))

    def _forgetting(self, key: int) -> Callable[[Any], None]:
        references = self.segment.references
        return lambda _: references.pop(key, None) and None

    def __enter__(self) -> Recorder:
        boundaries.local.recorder = self
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        boundaries.local.recorder = None

    def interrupt(self, reason: str) -> None:
        """Runs what was recorded; the next call begins another segment.

        Args:
            reason: why it cannot wait, for reports.
        """
        if self.segment.outer is not None and not self._answering:
            raise Interrupted(reason)
        if self._answering or not self.segment.calls:
            return
        segment, self.segment = self.segment, Segment(writes=self.segment.writes)
        with self.suspended(), _core.set_grad_enabled(segment.grad):
            live = segment.live()
            reals = self._run(segment, live, reason)
            for (_, fake), real in zip(live, reals, strict=True):
                become(fake, real)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """A `with` block in which operators run at once."""
        modes = _core.set_function_modes_enabled(False)
        boundaries.local.recorder, self._suspended = None, True
        try:
            yield
        finally:
            boundaries.local.recorder, self._suspended = self, False
            _core.set_function_modes_enabled(modes)


def without_history(fake: Any) -> None:
    """Takes a result off the tape; it requires a gradient still, and is no leaf.

    The tape would refer to operands, which would count as referenced by the user's code.
    """
    with fake_calls.below():
        hollow = fake.detach()
        with _core.enable_grad():
            leaf = _core.tensor_empty_strided((), (), fake.dtype, "meta").requires_grad_()
            _core.tensor_become(fake, leaf.clone())
        with _core.no_grad():
            _core.tensor_take_over(fake, hollow, False)


def become(fake: Any, real: Tensor) -> None:
    """Makes a fake the tensor that was computed for it; everything that refers to it sees data."""
    with fake_calls.below():
        fake.__class__ = Tensor
        for name in _FAKE_ATTRIBUTES:
            fake.__dict__.pop(name, None)
        _core.tensor_become(fake, real)


def _of_node(func: Any) -> bool:
    """Whether a call is the engine's, of the backward of an operator: one without a public name."""
    return (
        isinstance(func, _core.Op)
        and _core.current_autograd_node() is not None
        and _function_names.method_name(func) is None
        and _function_names.public_name(func) is None
    )


def _node_call(
    func: Any, args: tuple[Any, ...], referring: list[Any], name: str, frame: Any
) -> Call:
    """The call as a node of a graph: operators and methods as the user's code spells them."""
    values, named = referring
    if _of_node(func):
        node = _core.current_autograd_node().name()
        op = late("flambeau._dynamo.compiled_autograd").ops.of(node, func)
        return Call("call_function", op, values, named, node)
    if name.endswith(".__get__"):
        attribute = name.partition(".")[0]
        return Call("call_function", getattr, (values[0], attribute), {}, "getattr")
    if name in _SUBSCRIPTS:
        short = name.strip("_")
        return Call("call_function", getattr(operator, short), values, named, short)
    if frame is None:
        return Call("call_method", name, values, named, name)
    operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    if operation in _BINARY and len(values) == 2 and not named:
        if name in _OPERATORS:
            return Call("call_function", _OPERATORS[name], values, named, name)
        if name == "rsub":
            return Call("call_function", operator.sub, values[::-1], named, "sub")
    method = _calls._by_method(func, args, named, frame, Proxy)
    if method is not None:
        return Call("call_method", method, values, named, method)
    return Call("call_function", func, values, named, name)
