"""Selective checkpoints: which operators' results are stored instead of computed again.

Two dispatch modes share one store. In the forward pass, a policy is called for each operator, and
results of those to be saved are stored; in the recomputation, they are taken from the store in the
same order. Other operators run as they do without a mode.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.ir.failure import failure
from flambeau.ops import aten
from flambeau.utils import _pytree
from flambeau.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
]

Tensor = Any
Policy = Callable[..., Any]


class CheckpointPolicy(enum.Enum):
    """The treatment of an operator's results under a selective checkpoint.

    MUST_ and PREFER_ are alike in eager mode. The offloading policies move stored results to the
    CPU, where they already are.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVED = frozenset(
    {
        CheckpointPolicy.MUST_SAVE,
        CheckpointPolicy.PREFER_SAVE,
        CheckpointPolicy.MUST_CPU_OFFLOAD,
        CheckpointPolicy.PREFER_CPU_OFFLOAD,
    }
)
SAC_IGNORED_OPS = {aten.__getattr__("detach").default}


class SelectiveCheckpointContext:
    """The context of a policy function, beside the operator and its arguments.

    Attributes:
        is_recompute: whether this is the recomputation.
        op_output: the operator's result where it is known, else None.
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


class _Stored:
    """A stored result: its tensors outside of the graph, and their versions."""

    def __init__(self, result: Any) -> None:
        leaves, self.spec = _pytree.tree_flatten(result)
        self.leaves = [x.detach() if isinstance(x, torch.Tensor) else x for x in leaves]
        self.versions = [x._version if isinstance(x, torch.Tensor) else 0 for x in self.leaves]

    def result(self, written: bool) -> Any:
        """The result again.

        Args:
            written: whether in-place writes to it are allowed.
        """
        for leaf, version in zip(self.leaves, self.versions, strict=True):
            if not written and isinstance(leaf, torch.Tensor) and leaf._version != version:
                problem = "Tensor cached during selective activation checkpoint has been mutated"
                raise failure(
                    RuntimeError, "checkpoint", problem, "allow_cache_entry_mutation=True allows it"
                )
        return _pytree.tree_unflatten(self.leaves, self.spec)


class _Store:
    """Per operator, its calls in order: a stored result, or None for one to run again."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.calls: dict[Any, deque[_Stored | None]] = {}
        self.used = False

    def saves(self, recompute: bool, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether the policy stores the results of a call."""
        answer = self.policy(
            SelectiveCheckpointContext(is_recompute=recompute), func, *args, **kwargs
        )
        if isinstance(answer, bool):
            return answer
        return answer in _SAVED


class _Storing(TorchDispatchMode):
    """Around the forward pass: stores results."""

    def __init__(self, store: _Store) -> None:
        self.store = store

    def _steps_aside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if func in SAC_IGNORED_OPS:
            return True
        if self.store.saves(False, func, args, kwargs):
            return False
        self.store.calls.setdefault(func, deque()).append(None)
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs the call and stores its result."""
        result = func(*args, **(kwargs or {}))
        self.store.calls.setdefault(func, deque()).append(_Stored(result))
        return result


class _Restoring(TorchDispatchMode):
    """Around the recomputation: returns stored results."""

    def __init__(self, store: _Store, mutation: bool) -> None:
        self.store, self.mutation = store, mutation

    def __enter__(self) -> Any:
        if self.store.used:
            raise RuntimeError(
                "[checkpoint] Trying to backward an extra time. You are only allowed to backward "
                "once on any region computed under selective activation checkpoint.\n"
                "hint: checkpoint without policies, or run the forward pass again"
            )
        self.store.used = True
        return super().__enter__()

    def _steps_aside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if func in SAC_IGNORED_OPS:
            return True
        calls = self.store.calls.get(func)
        if calls:
            if calls[0] is None:
                calls.popleft()
                return True
            return False
        if self.store.saves(True, func, args, kwargs):
            problem = f"{func} encountered during backward but not found in storage. This can "
            problem += "happen if the operations in the checkpointed region are nondeterministic"
            raise failure(
                RuntimeError, "checkpoint", problem, "the function must do the same both times"
            )
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Returns the stored result of the call."""
        stored = self.store.calls[func].popleft()
        assert stored is not None
        return stored.result(self.mutation)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[TorchDispatchMode, TorchDispatchMode]:
    """Contexts for `checkpoint(context_fn=...)` that store the results of chosen operators.

    Args:
        policy_fn_or_list: overloads of `torch.ops.aten` whose results are stored; or a function
            `policy(context, operator, *args, **kwargs)` that returns a `CheckpointPolicy`, or a
            bool (True: store).
        allow_cache_entry_mutation: a stored result may be written in place.

    Returns:
        Two modes, for the forward pass and for the recomputation. They serve one backward pass.

    Example:
        >>> stored = [torch.ops.aten.mm.default]
        >>> x = torch.ones(2, 2, requires_grad=True)
        >>> y = torch.utils.checkpoint.checkpoint(
        ...     lambda v: torch.mm(v, v).sin(),
        ...     x,
        ...     use_reentrant=False,
        ...     context_fn=lambda: create_selective_checkpoint_contexts(stored),
        ... )
        >>> y.sum().backward()
    """
    if isinstance(policy_fn_or_list, (list, tuple)):
        for item in policy_fn_or_list:
            if not hasattr(item, "overloadpacket"):
                raise ValueError(
                    f"[create_selective_checkpoint_contexts] Expected op in `op_list` to be an "
                    f"OpOverload but got: {item} of type {type(item)}.\n"
                    "hint: torch.ops.aten.mm.default"
                )
        stored = set(policy_fn_or_list)

        def policy(context: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            if func in stored:
                return CheckpointPolicy.MUST_SAVE
            return CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError(
            "[create_selective_checkpoint_contexts] policy_fn_or_list must be either a function or "
            "a list of ops.\nhint: [torch.ops.aten.mm.default]"
        )
    store = _Store(policy)
    return _Storing(store), _Restoring(store, allow_cache_entry_mutation)
