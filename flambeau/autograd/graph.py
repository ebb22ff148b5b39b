"""The autograd graph seen from Python: nodes, edges, hooks, saved tensors."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from flambeau import _core
from flambeau._core import Node
from flambeau.ir.lock import fork_safe_lock
from flambeau.runtime import boundaries

Tensor = Any
Hook = Callable[..., Any]

_multi_hooks = fork_safe_lock(level=3)  # guards the state of all of them

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_warn_on_accumulate_grad_stream_mismatch",
]


class RemovableHandle:
    """Removes a hook again; also a context manager that removes it at the end.

    Attributes:
        id: key of the hook in its dictionary.
    """

    def __init__(self, hooks: OrderedDict[int, Any], *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks)
        self.id = _core.hook_number()
        others = extra_dict if isinstance(extra_dict, (list, tuple)) else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in others if d is not None)

    def remove(self) -> None:
        """Takes the hook out; a second call does nothing."""
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = reference()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> Any:  # copies hold the copies of the dictionaries
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: Any) -> None:
        hooks, self.id, others = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(d) for d in others if d is not None)
        _core.set_hook_number(max(_core.hook_number(), self.id + 1))

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def _add_hook(hooks: OrderedDict[int, Hook], hook: Hook) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor goes: input number `output_nr` of `node`.

    `ownership_token` is PyTorch's third field; `node` is an owning reference here, so it is None.
    """

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the edge along which the gradient of *tensor* flows; usable as input or root.

    Raises:
        RuntimeError: the tensor does not require a gradient.
    """
    return GradientEdge(*_core.gradient_edge(tensor))


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count an in-place write that autograd could not see (a foreign kernel, for example)."""
    for item in [tensor] if isinstance(tensor, _core.Tensor) else tensor:
        item._bump_version()


class saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Within the block, tensors saved for backward go through `pack_hook` and back.

    Args:
        pack_hook: called with each tensor when it is saved; may return anything.
        unpack_hook: called with what pack returned when backward needs the tensor; must return a
            tensor of equal contents, dtype and shape.

    Example:
        >>> with saved_tensors_hooks(lambda t: t.numpy(), torch.from_numpy):
        ...     y = torch.ones(2, requires_grad=True).exp()
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        boundaries.crossing("saved_tensors_hooks")
        _core.push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exception: object) -> None:
        _core.pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - PyTorch's name
    """Within the block, tensors saved for backward are moved to the CPU.

    Args:
        pin_memory: accepted; there is no pinned memory here.
        device_type: accepted; every device is treated alike.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.to("cpu")), lambda packed: packed[1].to(packed[0]))


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Generator[None]:
    """Within the block, entering `saved_tensors_hooks` raises RuntimeError(error_message)."""
    before = _core.disable_saved_hooks(error_message)
    try:
        yield
    finally:
        _core.disable_saved_hooks(before)


class _MutationStore:
    """The value that `allow_mutation_on_saved_tensors` yields; it has only `clear`."""

    def __init__(self) -> None:
        self.entries: list[tuple[Tensor, int, Tensor]] = []

    def clear(self) -> None:
        """Drops all copies."""
        self.entries.clear()


@contextmanager
def allow_mutation_on_saved_tensors() -> Generator[_MutationStore]:
    """Within the block, tensors saved for backward may be written: a copy of each is saved.

    PyTorch copies at the first write; here every saved tensor is copied when it is saved.
    """
    store = _MutationStore()
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        yield store


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Accepted for compatibility: the CPU has no streams."""


def _node_of(item: Tensor | GradientEdge) -> Any:
    if isinstance(item, GradientEdge):
        return item.node
    return get_gradient_edge(item).node


def register_multi_grad_hook(
    tensors: Sequence[Tensor | GradientEdge],
    fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None],
    *,
    mode: Literal["all", "any"] = "all",
) -> RemovableHandle:
    """Call *fn* when the gradients of several tensors were computed.

    Args:
        tensors: tensors that require a gradient.
        fn: mode "all": called once per backward with the list of all gradients (None where there
            was none); mode "any": called with the first one.
        mode: "all" or "any".

    Returns:
        A handle that removes the hooks of all tensors.

    Raises:
        AssertionError: a tensor does not require a gradient.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"[register_multi_grad_hook] unknown mode: {mode!r}\nhint: 'all' or 'any'")
    if not all(isinstance(x, GradientEdge) or x.requires_grad for x in tensors):
        raise AssertionError(
            "[register_multi_grad_hook] Expected gradient function to be set: a tensor does not "
            "require a gradient\nhint: tensors that require gradients"
        )
    register = _register_all if mode == "all" else _register_any
    return _MultiHandle(register(tensors, fn))


class _MultiHandle(RemovableHandle):
    """One handle for the hooks of several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Takes all hooks out."""
        for handle in self.handles:
            handle.remove()


def _register_all(tensors: Sequence[Tensor], fn: Hook) -> list[RemovableHandle]:
    counts: dict[int, int] = {}
    grads: dict[int, list[Tensor | None]] = {}
    expected: dict[int, int] = {}

    def hook_of(position: int) -> Hook:
        def hook(grad: Tensor) -> None:
            task = _core.current_graph_task_id()
            with _multi_hooks:
                if task not in grads:
                    counts[task], grads[task] = 0, [None] * len(tensors)
                    expected[task] = sum(_core.will_execute_node(_node_of(t)) for t in tensors)
                grads[task][position] = grad
                counts[task] += 1
                if counts[task] < expected[task]:
                    return
                gradients = grads.pop(task)
                del counts[task], expected[task]
            fn(gradients)

        return hook

    return [t.register_hook(hook_of(i)) for i, t in enumerate(tensors)]


def _register_any(tensors: Sequence[Tensor], fn: Hook) -> list[RemovableHandle]:
    seen: list[int] = [-1]

    def hook(grad: Tensor) -> None:
        task = _core.current_graph_task_id()
        with _multi_hooks:
            if seen[0] == task:
                return
            seen[0] = task
        fn(grad)

    return [t.register_hook(hook) for t in tensors]


@contextmanager
def region_activation_memory_budget(budget: float) -> Iterator[None]:
    """A block in a compiled region, whose forward then saves fewer activations.

    The budget holds for the whole region, as `torch._functorch.config.activation_memory_budget`,
    and comes before it.

    Args:
        budget: fraction of the bytes that are saved without one, between 0 and 1.

    Raises:
        ValueError: another number.
        RuntimeError: outside of `torch.compile`, or another block of the region has another one.

    Example:
        >>> @torch.compile
        ... def f(x):
        ...     with torch.autograd.graph.region_activation_memory_budget(0.0):
        ...         return x.sin().softmax(0).exp().sum()
        >>> f(torch.ones(3, requires_grad=True)).backward()
    """
    if not 0.0 <= budget <= 1.0:
        raise ValueError(f"budget must be in [0, 1], got {budget}\nhint: 0.5")
    if not _core.is_recording():
        raise RuntimeError(
            "[region_activation_memory_budget] only has an effect under torch.compile\n"
            "hint: torch.utils.checkpoint saves memory outside"
        )
    _core.record_budget(budget)
    yield


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Accepts: there are no CUDA graphs to capture."""
