"""A tracer whose values also know their shapes: each call runs on tensors without data."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx import Graph, GraphModule, Node, Proxy, Tracer
from flambeau.fx._patching import _maybe_revert_all_patches
from flambeau.fx.node import map_aggregate
from flambeau.fx.proxy import Attribute

__all__ = [
    "MetaAttribute",
    "MetaDeviceAttribute",
    "MetaProxy",
    "MetaTracer",
    "embedding_override",
    "functional_relu_override",
    "gen_constructor_wrapper",
    "manual_meta_overrides",
    "nn_layernorm_override",
    "proxys_to_metas",
    "symbolic_trace",
    "torch_abs_override",
    "torch_nn_relu_override",
    "torch_relu_override",
    "torch_where_override",
]


def embedding_override(self: Any, input: Any) -> Any:  # noqa: A002
    """The result's shape of `nn.Embedding`."""
    return torch.empty(*input.shape, self.weight.shape[-1], device="meta")


def nn_layernorm_override(self: Any, input: Any) -> Any:  # noqa: A002
    """The result's shape of `nn.LayerNorm`."""
    return input


def torch_relu_override(x: Any) -> Any:
    """The result's shape of `torch.relu`."""
    return x


def torch_nn_relu_override(self: Any, x: Any) -> Any:
    """The result's shape of `nn.ReLU`."""
    return x


def functional_relu_override(x: Any, inplace: bool = False) -> Any:
    """The result's shape of `nn.functional.relu`."""
    if inplace:
        raise AssertionError("dont support inplace functional.relu for metatensor analysis")
    return x


def torch_where_override(condition: Any, x: Any, y: Any) -> Any:
    """The result's shape of `torch.where`."""
    return condition.to(device="meta") + x.to(device="meta") + y.to(device="meta")


def torch_abs_override(input: Any, *, out: Any = None) -> Any:  # noqa: A002
    """The result's shape of `torch.abs`."""
    if out is not None:
        raise AssertionError("Dont support in-place abs for MetaTensor analysis")
    return input


manual_meta_overrides: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.nn.Embedding: embedding_override,
    torch.nn.LayerNorm: nn_layernorm_override,
    torch.relu: torch_relu_override,
    torch.nn.functional.relu: functional_relu_override,
    torch.nn.ReLU: torch_nn_relu_override,
    torch.where: torch_where_override,
    torch.abs: torch_abs_override,
}


def gen_constructor_wrapper(
    target: Callable[..., Any],
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function that makes tensors, recorded if a size is a proxy.

    Args:
        target: `torch.ones`, say.

    Returns:
        tuple: the wrapped function and the function itself.
    """

    @functools.wraps(target)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        proxies = []

        def collect(value: Any) -> Any:
            if isinstance(value, Proxy):
                proxies.append(value)
            return value

        map_aggregate(args, collect)
        map_aggregate(kwargs, collect)
        if not proxies:
            return target(*args, **kwargs)
        return proxies[0].tracer.create_proxy("call_function", target, args, kwargs)

    return wrapper, target


class MetaProxy(Proxy):
    """A proxy with a tensor of the meta device."""

    def install_tensor_meta(self, tensor_meta: Any) -> None:
        """Sets the value without data."""
        self._tensor_meta = tensor_meta

    def _meta(self) -> Any:
        return self.__dict__.get("_tensor_meta")

    def size(self, dim: int | None = None) -> Any:
        """Sizes as numbers, where they are known."""
        meta = self._meta()
        if meta is not None:
            return meta.size() if dim is None else meta.size(dim)
        arguments = (self,) if dim is None else (self, dim)
        return self.tracer.create_proxy("call_method", "size", arguments, {})

    def dim(self) -> Any:
        """Number of dimensions, where it is known."""
        meta = self._meta()
        if meta is not None:
            return meta.dim()
        return self.tracer.create_proxy("call_method", "dim", (self,), {})

    @property
    def shape(self) -> Any:
        """Sizes as numbers, where they are known."""
        meta = self._meta()
        if meta is not None:
            return meta.shape
        return self.tracer.create_proxy("call_function", getattr, (self, "shape"), {})

    @property
    def dtype(self) -> Any:
        """The dtype, where it is known."""
        meta = self._meta()
        if meta is not None:
            return meta.dtype
        return self.tracer.create_proxy("call_function", getattr, (self, "dtype"), {})

    @property
    def device(self) -> Any:
        """A proxy of the device, which a value without data does not know."""
        return MetaDeviceAttribute(self, "device")

    def __getattr__(self, k: str) -> Any:
        if k in ("_tensor_meta", "tracer"):
            raise AttributeError(k)
        return MetaAttribute(self, k)


class MetaAttribute(Attribute, MetaProxy):
    """An attribute of such a proxy."""


class MetaDeviceAttribute(MetaAttribute):
    """The device of such a proxy."""


def proxys_to_metas(v: Any) -> Any:
    """The value without data of a proxy; other values as they are."""
    if isinstance(v, MetaDeviceAttribute):
        return "meta"
    if isinstance(v, Proxy):
        if not isinstance(v, MetaProxy):
            raise AssertionError(f"Expected MetaProxy but got {type(v)}")
        meta = v._meta()
        if meta is None:
            raise AssertionError("MetaProxy does not have an associated meta")
        return meta
    return v


class MetaTracer(Tracer):
    """A tracer that runs each call on the meta device, so that conditions may use shapes."""

    allow_insert_stateless_mods: bool = True
    _TORCH_METHODS_TO_PATCH = ["arange", "zeros", "ones", "full_like", "eye"]

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, *options: Any, **named: Any
    ) -> Any:
        """Records a call, and runs it without data."""
        proxy = super().create_proxy(kind, target, args, kwargs, *options, **named)
        if kind == "placeholder" and target in self.meta_args:
            proxy.install_tensor_meta(self.meta_args[target])
            return proxy
        if target in self.orig_fns:
            kwargs = {**kwargs, "device": "meta"}
        try:
            meta_args = map_aggregate(args, proxys_to_metas)
            meta_kwargs = map_aggregate(kwargs, proxys_to_metas)
            with _maybe_revert_all_patches():  # modules run, they are not recorded
                meta = self._run(kind, target, meta_args, meta_kwargs)
            if isinstance(proxy, MetaProxy) and meta is not None:
                proxy.install_tensor_meta(meta)
        except Exception as error:
            warnings.warn(
                f"Could not compute metadata for {kind} target {target}: {error}", stacklevel=2
            )
        return proxy

    def _run(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        if kind == "call_function":
            return manual_meta_overrides.get(target, target)(*args, **kwargs)
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if kind == "call_module":
            module = self.root.get_submodule(target)
            override = manual_meta_overrides.get(type(module))
            if override is not None:
                return override(module, *args, **kwargs)
            state = {
                n: t.to("meta") for n, t in (*module.named_parameters(), *module.named_buffers())
            }
            return torch.func.functional_call(module, state, args, kwargs)
        if kind == "get_attr":
            value: Any = self.root
            for part in target.split("."):
                value = getattr(value, part)
            return value.to(device="meta") if isinstance(value, torch.Tensor) else None
        return None

    def proxy(self, node: Node) -> MetaProxy:
        """A `MetaProxy`."""
        return MetaProxy(node, self)

    def path_of_module(self, mod: torch.nn.Module) -> str:
        """A module's name; a module without state that the root lacks becomes a part of it."""
        try:
            return super().path_of_module(mod)
        except NameError:
            stateless = not list(mod.parameters()) and not list(mod.buffers())
            if not (self.allow_insert_stateless_mods and stateless):
                raise
            path = self.get_fresh_qualname(f"__inserted_{mod._get_name()}")
            self.root.add_module(path, mod)
            if self.submodule_paths is not None:
                self.submodule_paths[mod] = path
            return path

    def trace(  # type: ignore[override]
        self,
        root: torch.nn.Module | Callable[..., Any],
        meta_args: dict[str, torch.Tensor],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """Traces with inputs that know their shapes.

        Args:
            root: the module or function.
            meta_args: tensors of the meta device by name of the input.
            concrete_args: inputs with fixed values.
        """
        self.meta_args = meta_args
        wrapped = {
            n: gen_constructor_wrapper(getattr(torch, n)) for n in self._TORCH_METHODS_TO_PATCH
        }
        self.orig_fns = {original for _, original in wrapped.values()}
        for name, (wrapper, _) in wrapped.items():
            setattr(torch, name, wrapper)
        try:
            return super().trace(root, concrete_args)
        finally:
            for name, (_, original) in wrapped.items():
                setattr(torch, name, original)


def symbolic_trace(
    root: torch.nn.Module | Callable[..., Any],
    meta_args: dict[str, torch.Tensor] | None = None,
    concrete_args: dict[str, Any] | None = None,
) -> GraphModule:
    """Traces with inputs that know their shapes.

    Args:
        root: the module or function.
        meta_args: tensors of the meta device by name of the input.
        concrete_args: inputs with fixed values.

    Example:
        >>> from torch.fx.experimental.meta_tracer import symbolic_trace
        >>> def half(x):
        ...     return x[: x.shape[0] // 2] if x.dim() == 1 else x
        >>> traced = symbolic_trace(half, {"x": torch.empty(4, device="meta")})
        >>> traced(torch.arange(4))
        tensor([0, 1])
    """
    tracer = MetaTracer()
    graph = tracer.trace(root, meta_args or {}, concrete_args)
    name = root.__class__.__name__ if isinstance(root, torch.nn.Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
