"""`Tracer` and `symbolic_trace`: run a function with proxies and record its operations."""

from __future__ import annotations

import collections
import copy
import inspect
import math
import types
import warnings
from collections.abc import Callable
from itertools import chain
from typing import Any

import flambeau as torch
from flambeau.fx import _patching
from flambeau.fx._compatibility import compatibility
from flambeau.fx._patching import (
    _autowrap_check,
    _create_wrapped_func,
    _create_wrapped_method,
    _find_proxy,
    _maybe_revert_all_patches,
    _new_patcher,
    _patch_wrapped_functions,
    _Patcher,
    _proxyable_classes,
    _without_varargs,
    _wrapped_fns_to_patch,
    _wrapped_methods_to_patch,
    wrap,
)
from flambeau.fx._pytree_codegen import _PyTreeCodeGen
from flambeau.fx.graph import Graph, _PyTreeInfo
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Argument, base_types, map_aggregate
from flambeau.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from flambeau.utils import _pytree as pytree

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

_constant_attribute_types = (torch.Tensor,)
_is_fx_tracing_flag = False

_ELSEWHERE = (_Patcher, _create_wrapped_method, _find_proxy, _maybe_revert_all_patches,
              _wrapped_fns_to_patch, _wrapped_methods_to_patch, base_types)  # fmt: skip


def is_fx_tracing() -> bool:
    """Whether a function is being traced by `torch.fx`."""
    return _is_fx_tracing_flag


def is_fx_symbolic_tracing() -> bool:
    """Whether `symbolic_trace` runs."""
    return _is_fx_tracing_flag


@compatibility(is_backward_compatible=True)
class ProxyableClassMeta(type):
    """A metaclass: objects that are made with proxies while tracing are recorded as calls.

    Example:
        >>> class Pair(metaclass=torch.fx.ProxyableClassMeta):
        ...     def __init__(self, left, right):
        ...         self.left, self.right = left, right
        >>> traced = torch.fx.symbolic_trace(lambda x: Pair(x, x + 1).right)
        >>> traced(torch.ones(1))
        tensor([2.])
    """

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = cls.__new__(cls)  # type: ignore[call-overload]
        if not is_fx_tracing():
            cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]
            return instance
        proxies = []

        def collect(value: Any) -> Any:
            if isinstance(value, Proxy):
                proxies.append(value)
            return value

        map_aggregate(args, collect)
        map_aggregate(kwargs, collect)
        if not proxies:
            cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]
            return instance
        return proxies[0].tracer.create_proxy("call_function", cls, args, kwargs)


@compatibility(is_backward_compatible=False)
class PHBase:
    """An argument that stays an input, among `concrete_args`."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


@compatibility(is_backward_compatible=False)
class PHWithMeta(PHBase):
    """A `PH` whose attributes become entries of the placeholder's `meta`.

    Args:
        ph_key: a name for it.
    """

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


def _transfer_attrs(fr: object, to: object) -> None:
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


def _assert_is_none(value: object, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


def _annotation(function: Any, name: str) -> Any:
    """A parameter's annotation. PyTorch's modules have none where those here say "Any"."""
    kind = getattr(function, "__annotations__", {}).get(name)
    own = (getattr(function, "__module__", None) or "").startswith(("flambeau.", "torch."))
    return None if own and kind == "Any" else kind


@compatibility(is_backward_compatible=True)
class Tracer(TracerBase):
    """Records a function or module as a graph. Subclasses decide what is recorded how.

    Args:
        autowrap_modules: modules whose functions are recorded as calls where users call them.
        autowrap_functions: functions that are recorded as calls wherever they are imported.
        param_shapes_constant: whether sizes of parameters are numbers, not proxies.

    Example:
        >>> class Whole(torch.fx.Tracer):
        ...     def is_leaf_module(self, m, module_qualified_name):
        ...         return False
        >>> graph = Whole().trace(nn.Sequential(nn.ReLU()))
        >>> [node.name for node in graph.nodes]
        ['input_1', 'relu', 'output']
    """

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids: set[int] = {
            id(value)
            for name, value in chain.from_iterable(vars(m).items() for m in autowrap_modules)
            if not name.startswith("_") and callable(value)
        }
        self._autowrap_function_ids.update(id(function) for function in autowrap_functions)
        self._autowrap_search: list[types.ModuleType] = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[torch.nn.Module, str] | None = None
        self.root_module_name: str = ""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, type]] = {}

    _qualname_counter: dict[str, int] = collections.defaultdict(int)

    @compatibility(is_backward_compatible=True)
    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that the root has no attribute of.

        Args:
            prefix: its beginning; a number follows.
        """
        number = self._counters.get(prefix, 0)
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        self._counters[prefix] = number + 1
        return f"{prefix}{number}"

    @property
    def _counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.__dict__.setdefault("_fresh_names", {})
        return counters

    # ------------------------------------------------------------------------ arguments
    @compatibility(is_backward_compatible=True)
    def create_arg(self, a: Any) -> Argument:
        """The argument of a node that represents a value.

        Parameters, buffers and other tensors become `get_attr` nodes; a tensor that the root does
        not have becomes an attribute of it.

        Args:
            a: the value.

        Raises:
            NameError: a parameter that the root does not have.
        """
        if isinstance(a, torch.nn.Parameter):
            name = self._member_name(a, "named_parameters")
            if name is None:
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, torch.Tensor):
            name = self._member_name(a, "named_buffers")
            if name is not None:
                return self.create_node("get_attr", name, (), {})
        if isinstance(a, _constant_attribute_types):
            return self.create_node("get_attr", self._attribute_of(a, "_tensor_constant"), (), {})
        if type(a) in _proxyable_classes:
            prefix = f"_{a.__class__.__name__}_constant_"
            return self.create_node("get_attr", self._attribute_of(a, prefix), (), {})
        return super().create_arg(a)

    def _attribute_of(self, value: Any, prefix: str) -> str:
        """The name of a constant in the root, which gets it if it has it not."""
        entry = self.tensor_attrs.get(id(value))
        if entry is not None:
            return entry[0]
        if not isinstance(value, torch.Tensor):
            for name, each in self.root.__dict__.items():
                if each is value:
                    return name
        name = self.get_fresh_qualname(prefix)
        self.tensor_attrs[id(value)] = (name, value)
        setattr(self.root, name, value)
        return name

    # ------------------------------------------------------------------------ modules
    @compatibility(is_backward_compatible=True)
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Whether calls of a module are one node, instead of what happens inside.

        Args:
            m: the module.
            module_qualified_name: its name in the root.

        Returns:
            bool: by default True for the modules of `torch.nn`, except `Sequential`.
        """
        home = m.__module__
        ours = home.startswith(("torch.nn", "torch.ao.nn", "flambeau.nn", "flambeau.ao.nn"))
        return ours and not isinstance(m, torch.nn.Sequential)

    @compatibility(is_backward_compatible=True)
    def path_of_module(self, mod: torch.nn.Module) -> str:
        """The name of a module in the root.

        Raises:
            NameError: the root does not have it.
        """
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, module in self.root.named_modules():
            if mod is module:
                return name
        raise NameError("module is not installed as a submodule")

    @compatibility(is_backward_compatible=True)
    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Called for each call of a module: a node for leaves, else the call itself.

        Args:
            m: the module.
            forward: calls it as if it were not traced; what happens inside is recorded.
            args: positional arguments of the call.
            kwargs: arguments by name.
        """
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            count = self.num_calls.get(path, 0)
            key = f"{scope.module_path}@{count}" if count > 0 else scope.module_path
            self.module_stack[key] = (scope.module_path, scope.module_type)
            self.num_calls[path] = count + 1
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem()

    @compatibility(is_backward_compatible=False)
    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """Called for each attribute of a module that Python finds not by itself.

        Args:
            attr: the name.
            attr_val: the value.
            parameter_proxy_cache: proxies of parameters that were read before, by full name.

        Returns:
            Any: the proxy of a parameter, other values as they are.
        """
        if isinstance(attr_val, torch.nn.Parameter):
            return self._proxy_of(attr_val, "named_parameters", parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor):
            return self._proxy_of(attr_val, "named_buffers", parameter_proxy_cache)
        return attr_val

    def _member_name(self, value: Any, walk: str) -> str | None:
        """The name of a parameter or buffer; the root is walked once, not for each of them."""
        tables: dict[Any, dict[int, tuple[str, Any]]] = self.__dict__.setdefault("_members", {})
        key = walk, id(self.root)
        missing = walk == "named_parameters" and id(value) not in tables.get(key, ())
        if missing or key not in tables:
            members = getattr(self.root, walk)()
            tables[key] = {id(member): (name, member) for name, member in members}
        entry = tables[key].get(id(value))
        return entry[0] if entry is not None and entry[1] is value else None

    def _proxy_of(self, value: Any, walk: str, cache: dict[str, Proxy]) -> Any:
        name = self._member_name(value, walk)
        if name is None:
            return value
        if name not in cache:
            options: dict[str, Any] = {}
            if self.param_shapes_constant and isinstance(value, torch.nn.Parameter):
                options["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, name, value)
            cache[name] = self.create_proxy("get_attr", name, (), {}, **options)
        return cache[name]

    # ------------------------------------------------------------------------ inputs
    def _proxy_placeholder(
        self,
        name: str,
        concrete_args: dict[str, Any] | None,
        sig: inspect.Signature,
        fn_for_analysis: Callable[..., Any],
    ) -> Any:
        """A parameter's proxies, or its concrete value."""
        if concrete_args is not None and name in concrete_args:
            return self._concrete(name, concrete_args[name], sig)
        if name[0] == "*":
            default: tuple[Any, ...] = ()
        else:
            parameter = sig.parameters[name]
            empty = parameter.default is inspect.Parameter.empty
            default = () if empty else (parameter.default,)
        annotation = _annotation(fn_for_analysis, name)
        return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)

    def _concrete(self, name: str, value: Any, sig: inspect.Signature) -> Any:
        count = 0

        def replace(leaf: Any) -> Any:
            nonlocal count
            count += 1
            parameter = sig.parameters.get(name)
            has_default = parameter is not None and parameter.default is not parameter.empty
            default = (parameter.default,) if has_default and parameter is not None else ()
            out = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(leaf, PHBase):
                if leaf is not PH:
                    _transfer_attrs(leaf, out.node)
                return out
            self._check_specialized(name, leaf, out)
            return leaf

        return pytree.tree_map(replace, value)

    def _check_specialized(self, name: str, leaf: Any, out: Proxy) -> None:
        """Adds the check that later calls pass the value for which the graph holds."""
        if isinstance(leaf, (int, float, bool, str)) and not isinstance(leaf, torch.Tensor):
            torch._assert(
                out == leaf,
                f"{name} has been specialized to have value {leaf} but got another value",
            )
        elif leaf is None:
            checked = _create_wrapped_func(_assert_is_none)(
                out, f"{name} has been specialized to have value None but got another value"
            )
            checked.node.meta.pop("is_wrapped", None)
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs "
                "you specialized the function with.",
                stacklevel=2,
            )

    @compatibility(is_backward_compatible=False)
    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:
        """The function to run and its arguments: a proxy for each parameter.

        Args:
            root_fn: the function.
            is_module: whether its first parameter is the module.
            concrete_args: values of parameters that are not traced.

        Returns:
            tuple: a function (with `*args` as a plain parameter) and a list of arguments.
        """
        analysed = inspect.unwrap(root_fn)
        code = analysed.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = iter(code.co_varnames)
        args: list[Any] = []
        skipped = 0
        if is_module:
            if total == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            skipped = 1
            next(names)
            args.append(self.root)
        sig = inspect.signature(analysed)
        concrete_args = self._named_concrete(concrete_args, code.co_varnames[skipped:total])
        for _ in range(skipped, total):
            args.append(self._proxy_placeholder(next(names), concrete_args, sig, analysed))
        if code.co_kwonlyargcount > 0 or code.co_flags & HAS_VARSTUFF:
            if code.co_flags & inspect.CO_VARARGS:
                args.append(
                    self._proxy_placeholder("*" + next(names), concrete_args, sig, analysed)
                )
            if code.co_flags & inspect.CO_VARKEYWORDS:
                args.append(
                    self._proxy_placeholder("**" + next(names), concrete_args, sig, analysed)
                )
            root_fn = _without_varargs(analysed, len(args))
        leaves, in_spec = pytree.tree_flatten(tuple(args))
        if not self._is_nested(concrete_args):
            return root_fn, args
        names_of_arguments = list(code.co_varnames[:total])
        self.graph._codegen = _PyTreeCodeGen(_PyTreeInfo(names_of_arguments, in_spec, None))

        def flatten_fn(*values: Any) -> Any:
            tree_args = pytree.tree_unflatten(list(values), in_spec)
            leaves_out, out_spec = pytree.tree_flatten(root_fn(*tree_args))
            codegen: Any = self.graph._codegen
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return leaves_out

        return flatten_fn, leaves

    def _named_concrete(self, concrete_args: Any, names: tuple[str, ...]) -> Any:
        if not isinstance(concrete_args, tuple):
            return concrete_args
        if len(names) != len(concrete_args):
            raise RuntimeError(
                f"Tracing expected {len(names)} arguments but got {len(concrete_args)} "
                "concrete arguments"
            )
        return dict(zip(names, concrete_args, strict=True))

    def _is_nested(self, concrete_args: Any) -> bool:
        if concrete_args is None:
            return False
        values = concrete_args.values() if isinstance(concrete_args, dict) else concrete_args
        return any(isinstance(value, (list, tuple, dict)) for value in values)

    # ------------------------------------------------------------------------ tracing
    @compatibility(is_backward_compatible=True)
    def trace(
        self,
        root: torch.nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """Runs a module or function with proxies and returns what was recorded.

        Args:
            root: the module or function.
            concrete_args: parameters fixed to these values; `PH` within containers marks inputs.

        Returns:
            Graph: to be owned by a `GraphModule` of `self.root`.
        """
        global _is_fx_tracing_flag
        before = _is_fx_tracing_flag
        _is_fx_tracing_flag = True
        try:
            return self._trace(root, concrete_args)
        finally:
            _is_fx_tracing_flag = before

    def _trace(self, root: Any, concrete_args: Any) -> Graph:
        if isinstance(root, torch.nn.Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in "
                    f"{type(root).__name__}"
                )
            fn: Any = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root = torch.nn.Module()
            fn = root
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        self.__dict__.pop("_members", None)
        self._find_attributes()
        if not isinstance(fn, types.FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        names = fn.__globals__
        code = inspect.unwrap(fn).__code__
        self.graph._co_fields = {
            "co_name": code.co_name,
            "co_filename": code.co_filename,
            "co_firstlineno": code.co_firstlineno,
        }
        fn, args = self.create_args_for_root(fn, isinstance(root, torch.nn.Module), concrete_args)
        with _new_patcher() as patcher:
            self._patch_modules(patcher)
            _patch_wrapped_functions(patcher)
            _autowrap_check(patcher, names, self._autowrap_function_ids)
            for module in self._autowrap_search:
                _autowrap_check(patcher, module.__dict__, self._autowrap_function_ids)
            result = self.create_arg(fn(*args))
            annotation = inspect.unwrap(root if fn.__name__ == "flatten_fn" else fn)
            kind = _annotation(annotation, "return")
            self.create_node("output", "output", (result,), {}, type_expr=kind)
        self.submodule_paths = None
        return self.graph

    def _find_attributes(self) -> None:
        """Tensors that modules have as plain attributes, by identity."""
        self.tensor_attrs: dict[int, tuple[str, Any]] = {}
        for prefix, module in self.root.named_modules():
            for name, value in module.__dict__.items():
                if isinstance(value, _constant_attribute_types):
                    path = f"{prefix}.{name}" if prefix else name
                    self.tensor_attrs[id(value)] = (path, value)

    def _patch_modules(self, patcher: _Patcher) -> None:
        """Lets calls and attributes of all modules come here."""
        cache: dict[str, Proxy] = {}
        original_getattr = torch.nn.Module.__getattr__
        original_call = torch.nn.Module.__call__

        def module_getattr(mod: Any, attr: str) -> Any:
            return self.getattr(attr, original_getattr(mod, attr), cache)

        def module_call(mod: Any, *args: Any, **kwargs: Any) -> Any:
            def forward(*inner: Any, **named: Any) -> Any:
                return original_call(mod, *inner, **named)

            function = getattr(mod, "forward", mod)
            names = getattr(function, "__globals__", {})
            _autowrap_check(patcher, names, self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)

        Module: Any = torch.nn.Module
        patcher.patch_method(Module, "__getattr__", module_getattr, deduplicate=False)
        patcher.patch_method(Module, "__call__", module_call, deduplicate=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        """A copy that shares the table of modules."""
        duplicate = Tracer.__new__(type(self))
        for key, value in self.__dict__.items():
            duplicate.__dict__[key] = (
                value
                if key in ("_autowrap_search", "_members", "tensor_attrs")
                else copy.deepcopy(value, memo)
            )
        return duplicate


_orig_module_call = torch.nn.Module.__call__
_orig_module_getattr = torch.nn.Module.__getattr__


@compatibility(is_backward_compatible=True)
def symbolic_trace(
    root: torch.nn.Module | Callable[..., Any],
    concrete_args: dict[str, Any] | None = None,
) -> GraphModule:
    """Traces a module or function.

    Args:
        root: the module or function.
        concrete_args: parameters fixed to these values.

    Returns:
        GraphModule: computes the same, by generated code.

    Raises:
        TraceError: what is done depends on values.

    Example:
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) * 2)
        >>> print(traced.code.strip())
        def forward(self, x):
            relu = torch.relu(x);  x = None
            mul = relu * 2;  relu = None
            return mul
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root.__class__.__name__ if isinstance(root, torch.nn.Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


_wrapped_fns_to_patch[(id(globals()), "_assert_is_none")] = globals()
_PARTS = (_patching,)
