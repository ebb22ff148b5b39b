"""The contents of a module: parameters, buffers and submodules by name, and walks over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau._core import Tensor
from flambeau.nn.messages import problem, typename
from flambeau.nn.modules import hooks
from flambeau.nn.parameter import Buffer, Parameter


def _check_name(kind: str, name: Any, owner: Any, known: dict[str, Any]) -> None:
    """Names of members are identifiers of `getattr`: strings without dots, not taken."""
    op = f"register_{kind}"
    if not isinstance(name, str):
        raise TypeError(
            problem(op, f"{kind} name should be a string. Got {typename(name)}", "use a str")
        )
    if hasattr(owner, name) and name not in known:
        raise KeyError(problem(op, f"attribute '{name}' already exists", "choose another name"))
    if "." in name:
        got = f", got: {name}" if kind == "module" else ""
        raise KeyError(problem(op, f'{kind} name can\'t contain "."{got}', "nest modules instead"))
    if name == "":
        raise KeyError(problem(op, f'{kind} name can\'t be empty string ""', "name it"))


def _forget(name: str, *places: Any) -> None:
    for place in places:
        if isinstance(place, dict):
            place.pop(name, None)
        else:
            place.discard(name)


class Registry:
    """The members of a module. Mixed into `Module`, which creates the dictionaries."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    # ------------------------------------------------------------------------ registration
    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Adds a tensor that is state but no parameter.

        Args:
            name: attribute name.
            tensor: the tensor, or None (then it is not part of the state).
            persistent: whether it is part of `state_dict()`.

        Raises:
            KeyError: the name is taken, empty or contains a dot.
            TypeError: not a tensor.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError(_before_init("register_buffer", "buffer"))
        _check_name("buffer", name, self, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                problem(
                    "register_buffer",
                    f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                    "(torch Tensor or None required)",
                    "pass a tensor",
                )
            )
        for hook in hooks._global_buffer_registration_hooks.values():
            output = hook(self, name, tensor)
            tensor = tensor if output is None else output
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Adds a parameter (or None, a parameter that is switched off).

        Raises:
            KeyError: the name is taken, empty or contains a dot.
            TypeError: not a `Parameter`.
            ValueError: the tensor was computed, so it is no leaf.
        """
        if "_parameters" not in self.__dict__:
            raise AttributeError(_before_init("register_parameter", "parameter"))
        _check_name("parameter", name, self, self._parameters)
        if param is not None:
            self._check_parameter(name, param)
            for hook in hooks._global_parameter_registration_hooks.values():
                output = hook(self, name, param)
                param = param if output is None else output
        self._parameters[name] = param

    def _check_parameter(self, name: str, param: Any) -> None:
        if not isinstance(param, Parameter):
            raise TypeError(
                problem(
                    "register_parameter",
                    f"cannot assign '{typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)",
                    "wrap it: nn.Parameter(tensor)",
                )
            )
        if param.grad_fn is not None:
            raise ValueError(
                problem(
                    "register_parameter",
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must "
                    f"be created explicitly. To express '{name}' as a function of another Tensor, "
                    "compute the value in the forward() method.",
                    "nn.Parameter(tensor.detach())",
                )
            )

    def add_module(self, name: str, module: Any) -> None:
        """Adds a submodule (or None).

        Raises:
            KeyError: the name is taken, empty or contains a dot.
            TypeError: not a `Module`.
        """
        if module is not None and not isinstance(module, Registry):
            raise TypeError(
                problem(
                    "add_module", f"{typename(module)} is not a Module subclass", "pass a module"
                )
            )
        _check_name("module", name, self, self._modules)
        for hook in hooks._global_module_registration_hooks.values():
            output = hook(self, name, module)
            module = module if output is None else output
        self._modules[name] = module

    def register_module(self, name: str, module: Any) -> None:
        """Alias of `add_module`."""
        self.add_module(name, module)

    # ------------------------------------------------------------------------ attributes
    def __getattr__(self, name: str) -> Any:
        members = self.__dict__  # a name is in at most one table; forward mostly asks for modules
        if "_modules" in members:
            if name in (table := members["_modules"]):
                return table[name]
            if name in (table := members["_parameters"]):
                return table[name]
            if name in (table := members["_buffers"]):
                return table[name]
        raise AttributeError(
            f"[{type(self).__name__}] '{type(self).__name__}' object has no attribute '{name}'\n"
            "hint: see its modules, parameters and buffers: named_children(), state_dict()",
            name=name,
            obj=self,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__dict__
        parameters = members.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError(_before_init("setattr", "parameters"))
            _forget(name, members, self._buffers, self._modules, self._non_persistent_buffers_set)
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    _wrong_kind(name, value, "parameter", "torch.nn.Parameter or None expected")
                )
            self.register_parameter(name, value)
        elif isinstance(value, Registry):
            self._set_module(name, value)
        elif name in members.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    _wrong_kind(name, value, "child module", "torch.nn.Module or None expected")
                )
            for hook in hooks._global_module_registration_hooks.values():
                output = hook(self, name, value)
                value = value if output is None else output
            self._modules[name] = value
        elif name in members.get("_buffers", ()) or isinstance(value, Buffer):
            self._set_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _set_module(self, name: str, value: Any) -> None:
        members = self.__dict__
        if members.get("_modules") is None:
            raise AttributeError(_before_init("setattr", "module"))
        _forget(name, members, self._parameters, self._buffers, self._non_persistent_buffers_set)
        for hook in hooks._global_module_registration_hooks.values():
            output = hook(self, name, value)
            value = value if output is None else output
        self._modules[name] = value

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            expected = "torch.nn.Buffer, torch.Tensor or None expected"
            raise TypeError(_wrong_kind(name, value, "buffer", expected))
        if isinstance(value, Buffer):
            if "_buffers" not in self.__dict__:
                raise AttributeError(_before_init("setattr", "buffer"))
            _forget(
                name,
                self.__dict__,
                self._parameters,
                self._modules,
                self._non_persistent_buffers_set,
            )
            self.register_buffer(name, value, value.persistent)
            return
        for hook in hooks._global_buffer_registration_hooks.values():
            output = hook(self, name, value)
            value = value if output is None else output
        self._buffers[name] = value

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = [*dir(type(self)), *self.__dict__]
        names += [*self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())

    # ------------------------------------------------------------------------ lookup by path
    def get_submodule(self, target: str) -> Any:
        """The submodule at a dotted path; the module itself for "".

        Raises:
            AttributeError: the path leads nowhere, or to something else.
        """
        found: Any = self
        for item in target.split(".") if target else ():
            if not hasattr(found, item):
                text = f"{found._get_name()} has no attribute `{item}`"
                raise AttributeError(problem("get_submodule", text, "see named_modules()"))
            found = getattr(found, item)
            if not isinstance(found, Registry):
                text = f"`{item}` is not an nn.Module"
                raise AttributeError(problem("get_submodule", text, "see named_modules()"))
        return found

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Replaces or adds the submodule at a dotted path.

        Args:
            strict: only replace, never add.

        Raises:
            ValueError: the path is empty.
            AttributeError: the path leads nowhere or not to a module.
        """
        if target == "":
            text = "Cannot set the submodule without a target name!"
            raise ValueError(problem("set_submodule", text, "name a submodule"))
        if not isinstance(module, Registry):
            text = f"`module` is not an nn.Module, found {type(module)}"
            raise ValueError(problem("set_submodule", text, "pass a module"))
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            text = f"{parent._get_name()} has no attribute `{name}`"
            raise AttributeError(problem("set_submodule", text, "strict=False adds it"))
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Registry):
            text = f"`{name}` is not an nn.Module"
            raise AttributeError(problem("set_submodule", text, "choose another name"))
        setattr(parent, name, module)

    def _get_member(
        self, op: str, target: str, known: Callable[[Any, str], bool], kind: str
    ) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            text = f"{owner._get_name()} has no attribute `{name}`"
            raise AttributeError(problem(op, text, "see state_dict()"))
        if not known(owner, name):
            raise AttributeError(problem(op, f"`{name}` is not {kind}", "see state_dict()"))
        return getattr(owner, name)

    def get_parameter(self, target: str) -> Tensor:
        """The parameter at a dotted path.

        Raises:
            AttributeError: it is missing or no parameter.
        """

        def known(owner: Any, name: str) -> bool:
            return isinstance(getattr(owner, name), Parameter)

        return self._get_member("get_parameter", target, known, "an nn.Parameter")

    def get_buffer(self, target: str) -> Any:
        """The buffer at a dotted path.

        Raises:
            AttributeError: it is missing or no buffer.
        """
        return self._get_member("get_buffer", target, lambda o, n: n in o._buffers, "a buffer")

    # ------------------------------------------------------------------------ walks
    def _named_members(
        self,
        get_members_fn: Callable[[Any], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        memo: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else ((prefix, self),)
        )
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in memo:
                    continue
                if remove_duplicate:
                    memo.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Every parameter once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Dotted names and parameters; shared ones once unless `remove_duplicate` is False."""
        return self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """Every buffer once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Dotted names and buffers; shared ones once unless `remove_duplicate` is False."""
        return self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def children(self) -> Iterator[Any]:
        """The direct submodules."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Names and direct submodules, each once."""
        memo: set[Any] = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """The module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Dotted names and modules, this one ("") first."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)


def _before_init(op: str, kind: str) -> str:
    text = f"cannot assign {kind} before Module.__init__() call"
    return problem(op, text, "call super().__init__() first")


def _wrong_kind(name: str, value: Any, kind: str, expected: str) -> str:
    text = f"cannot assign '{typename(value)}' as {kind} '{name}' ({expected})"
    return problem("setattr", text, f"del the {kind} first to replace it by another kind of value")
