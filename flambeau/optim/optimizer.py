"""The base of all optimizers: groups, state, hooks, checkpoints, and the recorded step.

A step is one operator per parameter (`ops/pointwise/optimizer_steps.py`), called in a native loop:
parameters of one kind share a plan, whatever their number. Inside of a compiled region the calls
are recorded like any others. The state of the first step is made apart from it (`new_state`), so
that all steps are the same program.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

import flambeau
from flambeau import Tensor
from flambeau.autograd import enable_grad, no_grad, set_grad_enabled
from flambeau.autograd.graph import RemovableHandle
from flambeau.capture import recording
from flambeau.core.tensors import call_each
from flambeau.ir.failure import failure
from flambeau.nn.parameter import reset_gradient
from flambeau.optim.private_names import (  # noqa: F401 - imported from here by packages
    _capturable_doc,
    _default_to_fused_or_foreach,
    _differentiable_doc,
    _disable_dynamo_if_unsupported,
    _foreach_doc,
    _fused_doc,
    _get_capturable_supported_devices,
    _get_scalar_dtype,
    _get_value,
    _maximize_doc,
    _params_doc,
    _RequiredParameter,
    _stack_if_compiling,
    _use_grad_for_differentiable,
    _view_as_real,
)
from flambeau.profiler.session import record_function

Closure = Callable[[], Any]
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
required = _RequiredParameter()

# Hooks around the steps of all optimizers.
_global_optimizer_pre_hooks: OrderedDict[int, Any] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Any] = OrderedDict()
_HOOKS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


class Optimizer:
    """Base class.

    Args:
        params: parameters, or dicts of groups with a "params" entry; `(name, parameter)` pairs too.
        defaults: options of groups that do not set them.

    Raises:
        TypeError: `params` is a tensor or holds something that is no tensor.
        ValueError: no parameters, a parameter in two groups, a parameter that is no leaf.
    """

    _later_options: Mapping[str, Any] = MappingProxyType(
        {}
    )  # groups of older state dicts lack them
    _step_is_tensor = False  # whether `state["step"]` is a tensor, which older state dicts lack
    OptimizerPreHook: TypeAlias = Callable[["Optimizer", Any, Any], Any]
    OptimizerPostHook: TypeAlias = Callable[["Optimizer", Any, Any], None]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            problem = "params argument given to the optimizer should be an iterable of Tensors or "
            problem += "dicts, but got a Tensor"
            raise failure(TypeError, "optim", problem, "pass [tensor]")
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._add_hook_tables()
        groups = list(params)
        if not groups:
            problem = "optimizer got an empty parameter list"
            raise failure(ValueError, "optim", problem, "model.parameters()")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wraps a subclass's `step` so that hooks run around it."""
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__ and not hasattr(cls.__dict__["step"], "hooked"):
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def _patch_step_function(self) -> None:
        """Wraps the class's `step` so that hooks run around it, where that is left to do."""
        cls = type(self)
        if not hasattr(cls.step, "hooked"):
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._add_hook_tables()
        self.defaults.setdefault("differentiable", False)
        for group in self.param_groups:
            for name, value in self._later_options.items():
                group.setdefault(name, value)
        for entry in self.state.values() if self._step_is_tensor else ():
            if "step" in entry and not isinstance(entry["step"], Tensor):
                entry["step"] = scalar_state(float(entry["step"]))

    def _add_hook_tables(self) -> None:
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())

    def __repr__(self) -> str:
        lines = [self.__class__.__name__ + " ("]
        for number, group in enumerate(self.param_groups):
            lines.append("\n" * (number > 0) + f"Parameter Group {number}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group; options it lacks come from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"[optim] param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else params
        if isinstance(params, set):
            raise TypeError("[optim] optimizer parameters need to be ordered\nhint: use a list")
        params = list(params)
        if params and isinstance(params[0], tuple):
            param_group["param_names"] = [name for name, _ in params]
            params = [parameter for _, parameter in params]
        for parameter in params:
            _check_parameter(parameter)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"[optim] parameter group didn't specify a value of {name}")
            param_group.setdefault(name, default)
        registered = set(chain.from_iterable(g["params"] for g in self.param_groups))
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information",
                stacklevel=3,
            )
        if not registered.isdisjoint(params):
            raise ValueError("[optim] some parameters appear in more than one parameter group")
        self.param_groups.append(param_group | {"params": params})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or sets them to zero."""
        with record_function(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
            for parameter in chain.from_iterable(group["params"] for group in self.param_groups):
                reset_gradient(parameter, set_to_none)

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once.

        Args:
            closure: evaluates the model again and returns the loss.
        """
        problem = "an optimizer defines step()"
        raise failure(NotImplementedError, "optim", problem, "subclass and override")

    def _closure_loss(self, closure: Closure | None) -> Any:
        if closure is None:
            return None
        with enable_grad():
            return closure()

    def _run(self, update: Callable[[dict[str, Any]], None], closure: Closure | None) -> Any:
        """The usual step: loss of the closure, then `update` of every group."""
        loss = self._closure_loss(closure)
        with set_grad_enabled(bool(self.defaults.get("differentiable"))):
            if recording.is_compiling():  # memory that others reach is written at the step's end
                recording.record_sealed(self._update_groups, (update,), {})
            else:
                self._update_groups(update)
        return loss

    def _update_groups(self, update: Callable[[dict[str, Any]], None]) -> None:
        for group in self.param_groups:
            update(group)

    # ------------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """State and groups, parameters replaced by their numbers; the state is live, no copy."""
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        numbers: dict[Tensor, int] = {}
        for parameter in chain.from_iterable(group["params"] for group in self.param_groups):
            numbers.setdefault(parameter, len(numbers))
        groups = [
            {k: v for k, v in group.items() if k != "params"}
            | {"params": [numbers[p] for p in group["params"]]}
            for group in self.param_groups
        ]
        result: dict[str, Any] = {
            "state": {
                numbers[p] if isinstance(p, Tensor) else p: values
                for p, values in self.state.items()
            },
            "param_groups": groups,
        }
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and options of `state_dict`.

        Raises:
            ValueError: groups or their sizes differ.
        """
        state_dict = state_dict.copy()
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("[optim] loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(self.param_groups, saved)):
            raise ValueError(
                "[optim] loaded state dict contains a parameter group that doesn't match the "
                "size of "
                "optimizer's group"
            )
        mine = chain.from_iterable(g["params"] for g in self.param_groups)
        parameters = dict(zip(chain.from_iterable(s["params"] for s in saved), mine))
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, values in state_dict["state"].items():
            parameter = parameters.get(number)
            if parameter is None:  # an entry of the optimizer's own
                state[number] = values
            else:
                state[parameter] = {k: _adopt(k, v, parameter) for k, v in values.items()}
        groups = [_adopted_group(g, s) for g, s in zip(self.param_groups, saved)]
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    # ------------------------------------------------------------------ hooks

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` runs before every step; may return other arguments."""
        return _added(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` runs after every step."""
        return _added(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` runs before `state_dict()`; first of all if `prepend`."""
        return _added(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` runs on the result, which it may change or replace."""
        return _added(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """`hook(optimizer, state_dict)` runs before loading; may return another dict."""
        return _added(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """`hook(optimizer)` runs after loading."""
        return _added(self._optimizer_load_state_dict_post_hooks, hook, prepend)


def register_optimizer_step_pre_hook(hook: Any) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` runs before every step of every optimizer.

    Returns:
        A handle; `handle.remove()` takes the hook out.
    """
    return _added(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Any) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` runs after every step of every optimizer.

    Returns:
        A handle; `handle.remove()` takes the hook out.
    """
    return _added(_global_optimizer_post_hooks, hook)


def _added(hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        self: Optimizer = args[0]  # hooks see it among the arguments, and may replace them all
        with record_function(f"Optimizer.step#{type(self).__name__}.step"):
            # A subclass may never have called __init__.
            own = self.__dict__.get("_optimizer_step_pre_hooks", {})
            for hook in [*_global_optimizer_pre_hooks.values(), *own.values()]:
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    problem = f"{step} must return None or a tuple of (new_args, new_kwargs), but "
                    problem += f"got {changed}."
                    raise failure(RuntimeError, "optim", problem, "return args, kwargs")
                args, kwargs = changed
            if "_opt_called" in self.__dict__:  # a schedule looks after the order of calls
                self._opt_called = True
            result = step(*args, **kwargs)
            own = self.__dict__.get("_optimizer_step_post_hooks", {})
            for hook in [*own.values(), *_global_optimizer_post_hooks.values()]:
                hook(self, args, kwargs)
        return result

    wrapped.hooked = True  # type: ignore[attr-defined]
    return wrapped


def _check_parameter(parameter: Any) -> None:
    if not isinstance(parameter, Tensor):
        problem = f"optimizer can only optimize Tensors, but one of the params is {type(parameter)}"
        raise failure(TypeError, "optim", problem, "pass model.parameters()")
    if not (parameter.is_leaf or parameter.retains_grad):
        problem = "can't optimize a non-leaf Tensor"
        raise failure(ValueError, "optim", problem, "pass the leaf it came from")


def _adopt(key: str, value: Any, parameter: Tensor) -> Any:
    """A saved state entry as this parameter's: copied, floats in the parameter's dtype."""
    if not isinstance(value, Tensor):
        return deepcopy(value)
    if key == "step" or not parameter.is_floating_point():
        return value.clone()
    return value.detach().clone().to(parameter.dtype)


def _adopted_group(mine: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """The saved options with this optimizer's parameters, and their names if only it has them."""
    group = deepcopy({k: v for k, v in saved.items() if k != "params"})
    if "param_names" in mine and "param_names" not in group:
        group["param_names"] = mine["param_names"]
    return group | {"params": mine["params"]}


def scalar_state(value: float) -> Tensor:
    """A number of the state as a tensor: float64 if that is the default dtype, else float32."""
    wide = flambeau.get_default_dtype() == flambeau.float64
    return flambeau.tensor(value, dtype=flambeau.float64 if wide else flambeau.float32)


def gradients(
    group: dict[str, Any], sparse: bool = False, name: str = "this optimizer"
) -> Iterable[tuple[Tensor, Tensor]]:
    """Parameters of a group that have a gradient, with it.

    Args:
        sparse: the optimizer has a step for sparse gradients.
        name: what the error calls the optimizer.

    Raises:
        RuntimeError: a gradient is sparse, and the optimizer has no step for it.
    """
    for parameter in group["params"]:
        grad = parameter.grad
        if grad is None:
            continue
        if grad.is_sparse and not sparse:
            raise RuntimeError(
                f"[optim] {name} does not support sparse gradients, please consider "
                "SparseAdam instead\nhint: SGD and Adagrad take them, too; or sparse=False"
            )
        yield parameter, grad


def new_state(make: Callable[[], Any]) -> Any:
    """Calls `make` outside of a recorded region.

    The first step then meets its state as all later ones do, and is the same program.
    """
    with no_grad():
        return recording.unrecorded(make)


def each(step: Any, columns: Sequence[Any]) -> None:
    """Calls `step` for every parameter: columns that are lists have a value for each."""
    call_each(step, len(columns[0]), tuple(columns), ())


def check_lr(lr: Any) -> None:
    """A rate that is a tensor has one element.

    Raises:
        ValueError: it has more.
    """
    if isinstance(lr, Tensor) and lr.numel() != 1:
        problem = f"Tensor lr must be 1-element, got {lr.numel()}"
        raise failure(ValueError, "optim", problem, "a rate per group")


def check_implementation(
    foreach: bool | None, fused: bool | None, differentiable: bool | None
) -> None:
    """Options that exclude each other. Every step is fused here; they stand for PyTorch's checks.

    Raises:
        RuntimeError: `fused` with `foreach` or `differentiable`.
    """
    if fused and differentiable:
        problem = "`fused` does not support `differentiable`"
        raise failure(RuntimeError, "optim", problem, "leave out fused=True")
    if fused and foreach:
        problem = "`fused` and `foreach` cannot be `True` together."
        raise failure(RuntimeError, "optim", problem, "leave out one")


def as_real(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Complex tensors as their real and imaginary parts, which are optimized one by one."""
    return [flambeau.view_as_real(t) if t.is_complex() else t for t in tensors]


def private(name: str) -> Any:
    """The native op of a private definition (`_adam_step`, ...)."""
    from flambeau.language.definition import REGISTRY

    return REGISTRY["private." + name].native
