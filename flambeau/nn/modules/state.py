"""`state_dict` and `load_state_dict`: a module's tensors as a flat dictionary, and back."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from flambeau._core import Tensor
from flambeau.autograd import no_grad
from flambeau.autograd.graph import RemovableHandle
from flambeau.nn.messages import problem
from flambeau.nn.modules.hooks import add_hook
from flambeau.nn.parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The result of `load_state_dict`."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _WrappedHook:
    """A load hook; passes the module as the first argument when it was registered that way."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook = hook
        self.with_module = module is not None
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.with_module:
            return self.hook(self.module, *args, **kwargs)
        return self.hook(*args, **kwargs)


class State:
    """Saving and loading. Mixed into `Module`."""

    _version: int = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Any]
    _state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_post_hooks: OrderedDict[int, Any]

    # ------------------------------------------------------------------------ extra state
    def get_extra_state(self) -> Any:
        """State beyond tensors, for `state_dict`; override together with `set_extra_state`."""
        raise RuntimeError(
            problem(
                "get_extra_state",
                "Reached a code path in Module.get_extra_state() that should never be called.",
                "override get_extra_state()",
            )
        )

    def set_extra_state(self, state: Any) -> None:
        """Takes back what `get_extra_state` returned."""
        raise RuntimeError(
            problem(
                "set_extra_state",
                "Reached a code path in Module.set_extra_state() that should never be called.",
                "override set_extra_state()",
            )
        )

    def _has_extra(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(State, name)

    # ------------------------------------------------------------------------ hooks
    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` may return a new state dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                problem(
                    "_register_state_dict_hook",
                    "Cannot register the same function as the state dict post hook that was "
                    "previously registered via register_state_dict_post_hook",
                    "register another function",
                )
            )
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` changes a state dict in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, prefix, keep_vars)` runs before the state is collected."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        wrapped = _WrappedHook(hook, self if with_module else None)
        return add_hook(self._load_state_dict_pre_hooks, wrapped)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` runs before a module loads its part."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, incompatible_keys)` runs after loading and may edit the keys in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    # ------------------------------------------------------------------------ saving
    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Writes this module's own tensors, not its submodules'."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = _saved(parameter, keep_vars)
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = _saved(buffer, keep_vars)
        if self._has_extra("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """All parameters and persistent buffers by dotted name; tensors share memory.

        Args:
            destination: a dictionary to fill; a new OrderedDict when None.
            prefix: put in front of every key.
            keep_vars: give the parameters themselves instead of detached aliases.
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
                "state_dict for details.",
                FutureWarning,
                stacklevel=2,
            )
            given = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = given
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if not getattr(hook, "_from_public_api", False):
                destination = destination if result is None else result
            elif result is not None:
                text = "state_dict post-hook must return None"
                raise RuntimeError(problem("state_dict", text, "change the dictionary in place"))
        return destination

    # ------------------------------------------------------------------------ loading
    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Loads this module's own tensors, not its submodules'; errors go to the lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                error_msgs,
            )  # fmt: skip
        buffers = {
            k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set
        }
        local = {k: v for k, v in (*self._parameters.items(), *buffers.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in local.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, key, target, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if self._has_extra("set_extra_state"):
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            unexpected_keys.extend(self._unexpected(state_dict, prefix, local, extra_key))

    def _unexpected(
        self, state_dict: Any, prefix: str, local: dict[str, Any], extra_key: str
    ) -> list[str]:
        found = []
        for key in state_dict:
            if not key.startswith(prefix) or key == extra_key:
                continue
            first, dot, _ = key[len(prefix) :].partition(".")
            if (dot and first not in self._modules) or (not dot and first not in local):
                found.append(key)
        return found

    def _load_one(
        self,
        name: str,
        key: str,
        target: Any,
        value: Any,
        assign: bool,
        error_msgs: list[str],
    ) -> None:
        """Copies (or assigns) one tensor."""
        if not isinstance(value, Tensor):
            error_msgs.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                f"object from checkpoint but received {type(value)}"
            )
            return
        waiting = is_lazy(target)  # then so is the value: else its shape would be here by now
        if not waiting and target.dim() == 0 and value.dim() == 1 and len(value) == 1:
            value = value[0]  # files from before there were 0-dim tensors
        if not waiting and value.shape != target.shape:
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from "
                f"checkpoint, the shape in current model is {target.shape}."
            )
            return
        if target.is_meta and not value.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                "parameter in the current model, which is a no-op. (Did you mean to pass "
                "`assign=True` to assign items in the state dictionary to their corresponding "
                "key in the module instead of copying them in place?)",
                stacklevel=2,
            )
            return
        try:
            self._assign(name, target, value) if assign else _copy(target, value)
        except Exception as error:
            error_msgs.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are '
                f"{target.size()} and whose dimensions in the checkpoint are {value.size()}, an "
                f"exception occurred : {error.args}."
            )

    @no_grad()
    def _assign(self, name: str, target: Any, value: Any) -> None:
        if isinstance(target, Parameter):
            if isinstance(value, Parameter):
                value.requires_grad_(target.requires_grad)
            else:
                value = Parameter(value, requires_grad=target.requires_grad)
        setattr(self, name, value)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies tensors of `state_dict` into this module and those below it.

        Args:
            strict: missing and unexpected keys are errors.
            assign: take the tensors over instead of copying into the present ones.

        Returns:
            The missing and unexpected keys.

        Raises:
            TypeError: `state_dict` is no mapping.
            RuntimeError: sizes differ, or (strict) keys do.

        Example:
            >>> nn.Linear(2, 2).load_state_dict(nn.Linear(2, 2).state_dict())
            <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            text = f"Expected state_dict to be dict-like, got {type(state_dict)}."
            raise TypeError(problem("load_state_dict", text, "pass module.state_dict()"))
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata  # type: ignore[attr-defined]
        _load(self, state, "", metadata, assign, missing, unexpected, errors)
        if strict:
            quoted = ((keys, ", ".join(f'"{k}"' for k in keys)) for keys in (unexpected, missing))
            for label, (keys, text) in zip(("Unexpected", "Missing"), quoted):
                if keys:
                    errors.insert(0, f"{label} key(s) in state_dict: {text}. ")
        if errors:
            details = "\n\t".join(errors)
            text = f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{details}"
            hint = "strict=False ignores missing and unexpected keys"
            raise RuntimeError(problem("load_state_dict", text, hint))
        return _IncompatibleKeys(missing, unexpected)


def _saved(tensor: Any, keep_vars: bool) -> Any:
    """Returns a tensor's entry of a state dict; one without a shape has no alias."""
    return tensor if keep_vars or is_lazy(tensor) else tensor.detach()


@no_grad()
def _copy(target: Any, value: Any) -> None:
    target.copy_(value)


def _load(
    module: Any,
    state: Any,
    prefix: str,
    metadata: Any,
    assign: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Loads a module and everything below it."""
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = assign
    module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            path = prefix + name + "."
            below = OrderedDict((k, v) for k, v in state.items() if k.startswith(path))
            _load(child, below, path, metadata, assign, missing, unexpected, errors)
    incompatible = _IncompatibleKeys(missing, unexpected)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, incompatible) is not None:
            raise AssertionError(
                problem(
                    "load_state_dict",
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace.",
                    "return None",
                )
            )
