"""`GraphModule`: a module whose `forward` is generated from a graph."""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau.fx import _function_names
from flambeau.fx._compatibility import compatibility
from flambeau.fx._module_attributes import (
    _assign_attr,
    _copy_attr,
    _del_attr,
    _get_attr,
    _get_attr_via_attr_list,
    _has_attr,
)
from flambeau.fx._names import _custom_builtins
from flambeau.fx._pytree_codegen import _PyTreeCodeGen
from flambeau.fx.graph import CodeGen, Graph, PythonCode
from flambeau.ir.lock import late
from flambeau.nn import Module

__all__ = ["GraphModule", "reduce_graph_module", "reduce_package_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
FX_GRAPH_MODULE_FILE_PREFIX = "fx_generated_"
_ELSEWHERE = (_del_attr, _get_attr, _get_attr_via_attr_list, _has_attr, _custom_builtins)


class _EvalCacheLoader:
    """Stores generated source, so that tracebacks can show its lines."""

    def __init__(self) -> None:
        self.eval_cache: dict[str, str] = {}
        self._numbers = itertools.count()

    def cache(self, src: str, globals: dict[str, Any], co_fields: Any = None) -> str:  # noqa: A002
        """Remembers a source.

        Args:
            src: the text.
            globals: its names, which learn where it is.
            co_fields: file, line and name of the traced function.

        Returns:
            str: a name that replaces its file's.
        """
        key = self._get_key()
        if co_fields:
            place = f"{co_fields['co_filename']}:{co_fields['co_firstlineno']}"
            key += f" from {place} in {co_fields['co_name']}"
        self.eval_cache[key] = src
        globals.update({"__name__": key, "__loader__": self})
        lines = [line + "\n" for line in src.splitlines()]
        linecache.cache[key] = (len(src), None, lines, key)
        return key

    def get_source(self, module_name: str) -> str | None:
        """The source of a name that `cache` returned."""
        return self.eval_cache.get(module_name)

    def _get_key(self) -> str:
        return f"<eval_with_key>.{next(self._numbers)}"


_loader = _EvalCacheLoader()


def _exec_with_source(src: str, globals: dict[str, Any], co_fields: Any = None) -> None:  # noqa: A002
    file = _loader.cache(src, globals, co_fields)
    exec(compile(src, file, "exec", dont_inherit=True), globals)  # annotations are evaluated


def _forward_from_src(
    src: str,
    globals: dict[str, Any],
    co_fields: Any = None,  # noqa: A002
) -> Callable[..., Any]:
    return _method_from_src("forward", src, globals, co_fields)


def _method_from_src(
    method_name: str,
    src: str,
    globals: dict[str, Any],
    co_fields: Any = None,  # noqa: A002
) -> Callable[..., Any]:
    names = globals.copy()
    _exec_with_source(src, names, co_fields)
    function: Callable[..., Any] = names[method_name]
    return function


def _format_import_statement(name: str, obj: Any) -> str:
    """The statement that defines a name of generated code."""
    if name in _custom_builtins:
        statement = _custom_builtins[name].import_str
        if name == "torch" or name in ("fx_pytree", "pytree"):
            return _function_names.import_of(statement.removeprefix("import "))
        if name == "device" and not _is_alias():
            return statement.replace("from torch", "from flambeau")
        return statement
    if isinstance(obj, (str, int, float)) or obj is ...:
        return f"{name} = {obj!r}"
    if isinstance(obj, type(os)):
        return f"import {obj.__name__} as {name}"
    module = getattr(obj, "__module__", None)
    if module == "_operator":
        module = "operator"
    attribute = getattr(obj, "__qualname__", None) or getattr(obj, "_name", None) or name
    if (
        module is None
        or "." in attribute
        or getattr(sys.modules.get(module), attribute, obj) != obj
    ):
        return f"# {name} cannot be imported"
    return f"from {module} import {attribute} as {name}"


def _is_alias() -> bool:
    return sys.modules.get("torch") is torch


def _format_import_block(globals: dict[str, Any], importer: Any = None) -> str:  # noqa: A002
    statements = {_format_import_statement(name, obj) for name, obj in globals.items()}
    return "\n".join(sorted(statements))


class _CodeOnlyModule(Module):
    """The state of a module without its class."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


@compatibility(is_backward_compatible=True)
def reduce_graph_module(body: dict[str, Any], import_block: str) -> torch.nn.Module:
    """Rebuilds a pickled module: its source is run and traced again.

    Args:
        body: the module's state, its source in "_code".
        import_block: the statements that define the names in the source.
    """
    source = body.get("_code") or body.get("code")
    if source is None:
        raise AssertionError("no source code in the pickled module")
    names: dict[str, Any] = {"__name__": "__fx_imports__"}
    exec(import_block, names)
    return _deserialize_graph_module(_forward_from_src(source, names), body)


@compatibility(is_backward_compatible=True)
def reduce_package_graph_module(
    importer: Any, body: dict[str, Any], generated_module_name: str
) -> torch.nn.Module:
    """Rebuilds a module of a package, whose source is a file there."""
    forward = importer.import_module(generated_module_name).forward
    return _deserialize_graph_module(forward, body)


def _deserialize_graph_module(
    forward: Callable[..., Any], body: dict[str, Any], graph_module_cls: type | None = None
) -> torch.nn.Module:
    """A module from its state and its generated function."""
    body = dict(body)
    tracer_cls = body.get("_tracer_cls") or late("flambeau.fx._symbolic_trace").Tracer
    extras = body.get("_tracer_extras") or {}
    class_name = body.pop("_graphmodule_cls_name", None)
    _CodeOnlyModule.forward = forward  # type: ignore[method-assign]
    holder = _CodeOnlyModule(body)

    class KeepModules(tracer_cls):  # type: ignore[misc,valid-type]
        """Every call of a module is one node, as it was."""

        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return True

    graph = KeepModules().trace(holder, **extras)
    graph._tracer_cls = tracer_cls
    codegen = body.get("_graph_codegen")
    if codegen is not None:
        graph._codegen = codegen
    cls = GraphModule if graph_module_cls is None else graph_module_cls
    module = cls(holder, graph, class_name=class_name or cls.__name__)
    for key, value in body.items():
        if not hasattr(module, key):
            setattr(module, key, value)
    return module


class _WrappedCall:
    """The call of a graph module: an error shows the line of the generated source."""

    def __init__(self, cls: type, cls_call: Callable[..., Any] | None) -> None:
        self.cls = cls
        self.cls_call = cls_call

    @staticmethod
    def _generate_error_message(frame_summary: traceback.FrameSummary) -> str:
        """The lines around one of the generated source, with a mark."""
        number = frame_summary.lineno
        if number is None:
            raise AssertionError("frame_summary.lineno must not be None")
        lines = linecache.getlines(frame_summary.filename)
        head = (
            f"Call using an FX-traced Module, line {number} of the traced Module's generated "
            "forward function:"
        )
        before = "".join(lines[number - 2 : number])
        marker = (
            "~" * len(lines[number - 1].rstrip() if number <= len(lines) else "") + "~~~ <--- HERE"
        )
        after = "\n".join(line.rstrip("\n") for line in lines[number : number + 2])
        return "\n".join([head, before, marker, after])

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            return super(self.cls, obj).__call__(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if error.__traceback__ is None:
                raise
            frames = traceback.extract_tb(error.__traceback__)
            if frames and "eval_with_key" in frames[-1].filename:
                print(_WrappedCall._generate_error_message(frames[-1]), file=sys.stderr)
            raise


@compatibility(is_backward_compatible=True)
class GraphModule(Module):
    """A module made of a graph. `code` is the source of its `forward`, made from `graph`.

    An assignment to `graph` makes new source; after a change of the graph itself call `recompile`.

    Args:
        root: the module whose submodules, parameters and buffers the graph names, or a dictionary
            of them by name.
        graph: the graph.
        class_name: the name of the class, for printing.

    Example:
        >>> traced = torch.fx.symbolic_trace(lambda x: x + 1)
        >>> traced(torch.zeros(2))
        tensor([1., 1.])
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """An object of a class of its own, whose `forward` is generated."""
        for each in cls.__mro__:
            if each.__name__ == "GraphModuleImpl" or each is GraphModule:
                base = cls.__bases__[0] if cls.__name__ == "GraphModuleImpl" else cls
                break
        own = cls.__dict__.get("_graph_module_base", base)

        class GraphModuleImpl(own):  # type: ignore[misc,valid-type]
            __module__ = GraphModule.__module__
            _graph_module_base = own

        instance: GraphModule = super().__new__(GraphModuleImpl)
        return instance

    def __init__(
        self, root: torch.nn.Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, torch.nn.Module):
            if hasattr(root, "training"):
                self.training = root.training
            self._copy_from_module(root, graph)
        elif isinstance(root, dict):
            self._assign_from_dict(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self._code = ""
        self._replace_hooks: list[Callable[..., Any]] = []
        self._create_node_hooks: list[Callable[..., Any]] = []
        self._erase_node_hooks: list[Callable[..., Any]] = []
        self._deepcopy_hooks: list[Callable[..., Any]] = []
        self._tracer_cls = None
        tracer = graph._tracer_cls
        if tracer and "<locals>" not in tracer.__qualname__:
            self._tracer_cls = tracer
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        self.graph = graph
        self.shape_env = None

    def _copy_from_module(self, root: Any, graph: Graph) -> None:
        """Takes over what the graph names."""
        if hasattr(root, "meta") and isinstance(root.meta, dict):
            preserved = root.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {})
            for name, value in preserved.items():
                setattr(self, name, value)
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if not isinstance(node.target, str):
                    raise AssertionError(f"Expected node.target to be str, got {type(node.target)}")
                _copy_attr(root, self, node.target)

    def _assign_from_dict(self, root: dict[str, Any], graph: Graph) -> None:
        targets = []
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not "
                        "provided in ``root``!"
                    )
                targets.append(node.target)
        for target in sorted(targets, key=lambda name: name.count(".")):
            _assign_attr(root[target], self, target)

    __jit_unused_properties__ = ["graph", "_boxed_call"]

    # ------------------------------------------------------------------------ code
    @property
    def graph(self) -> Graph:
        """The graph. An assignment makes new source."""
        graph: Graph = self._graph
        return graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of `forward`."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        text: str = self._code
        return text

    @property
    def _boxed_call(self) -> bool:
        return type(self.graph._codegen).__name__ == "_BoxedCodeGen"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "graph":
            GraphModule.graph.fset(self, value)  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)

    @compatibility(is_backward_compatible=True)
    def recompile(self) -> PythonCode:
        """Makes the source anew from the graph.

        Returns:
            PythonCode: source and names.
        """
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self.__dict__["_in_spec"] = codegen.pytree_info.in_spec
            self.__dict__["_out_spec"] = codegen.pytree_info.out_spec
        generated = self._graph.python_code(root_module="self")
        self.__dict__["_code"] = generated.src
        self.__dict__["_lineno_map"] = generated._lineno_map
        self.__dict__["_prologue_start"] = generated._prologue_start
        cls: Any = type(self)
        fields = self._graph._co_fields
        cls.forward = _method_from_src(codegen._func_name, generated.src, generated.globals, fields)
        call = cls.__dict__.get("__call__")
        if "_wrapped_call" not in cls.__dict__:
            cls._wrapped_call = _WrappedCall(cls, call)

        def call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return cls._wrapped_call(self, *args, **kwargs)

        cls.__call__ = call_wrapped
        return generated

    def _recompile_submodules(self) -> list[tuple[str, PythonCode]]:
        """Makes the source of all graph modules within anew."""
        return [
            (name, module.recompile())
            for name, module in self.named_modules()
            if isinstance(module, GraphModule)
        ]

    @compatibility(is_backward_compatible=True)
    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Writes the module as a package of Python source and files of weights.

        Args:
            folder: made if it is not there.
            module_name: the name of the class.
        """
        late("flambeau.fx._folder").write(self, Path(folder), module_name)

    # ------------------------------------------------------------------------ submodules
    @compatibility(is_backward_compatible=True)
    def add_submodule(self, target: str, m: torch.nn.Module) -> bool:
        """Adds a submodule under a dotted name; modules in between are made.

        Args:
            target: the name.
            m: the module.

        Returns:
            bool: False if a part of the path is no module.
        """
        *prefix, field = target.split(".")
        module: torch.nn.Module = self
        for item in prefix:
            child = getattr(module, item, None)
            if child is None:
                child = torch.nn.Module()
                setattr(module, item, child)
            if not isinstance(child, torch.nn.Module):
                return False
            module = child
        module.add_module(field, m)
        return True

    @compatibility(is_backward_compatible=True)
    def delete_submodule(self, target: str) -> bool:
        """Removes a submodule; calls of it stay in the graph.

        Args:
            target: its dotted name.

        Returns:
            bool: whether it was there.
        """
        *prefix, field = target.split(".")
        module: Any = self
        for item in prefix:
            module = getattr(module, item, None)
            if not isinstance(module, torch.nn.Module):
                return False
        if not isinstance(getattr(module, field, None), torch.nn.Module):
            return False
        delattr(module, field)
        return True

    @compatibility(is_backward_compatible=True)
    def delete_all_unused_submodules(self) -> None:
        """Removes the submodules that the graph does not use."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = str(node.target).split(".")
            used.update(".".join(parts[: index + 1]) for index in range(len(parts)))
            if node.op == "call_module":
                with contextlib.suppress(AttributeError):
                    inner = self.get_submodule(node.target).named_modules()
                    used.update(".".join((node.target, name)) for name, _ in inner if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ------------------------------------------------------------------------ copies, files
    def __reduce_package__(self, exporter: Any) -> tuple[Any, ...]:
        """How `torch.package` stores it: source in a file of its own."""
        state = self._state()
        name = f"fx-generated._{exporter.get_unique_id()}"
        imports = _format_import_block(self._graph.python_code("self").globals)
        exporter.save_source_string(name, f"{imports}\n{self.code}")
        return reduce_package_graph_module, (state, name)

    def _state(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_graph"]
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            state["_graph_codegen"] = codegen
            self._graph._codegen = CodeGen()  # source that can be traced again
            try:
                state["_code"] = self._graph.python_code(root_module="self").src
            finally:
                self._graph._codegen = codegen
        return state

    def __reduce__(self) -> tuple[Any, ...]:
        """How `pickle` stores it: state and source; the graph is traced anew from the source."""
        generated = self._graph.python_code(root_module="self")
        return reduce_graph_module, (self._state(), _format_import_block(generated.globals))

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        """A copy with a graph of its own."""
        duplicate = type(self).__new__(type(self))
        memo[id(self)] = duplicate
        holder = _CodeOnlyModule(copy.deepcopy(self._without_graph(), memo))
        graph = copy.deepcopy(self.graph)
        self._deepcopy_init()(duplicate, holder, graph, type(self).__name__)
        hooks = (
            "_state_dict_hooks",
            "_load_state_dict_pre_hooks",
            "_load_state_dict_post_hooks",
            "_replace_hooks",
            "_create_node_hooks",
            "_erase_node_hooks",
            "_deepcopy_hooks",
        )
        for name in hooks:
            if name in self.__dict__:
                setattr(duplicate, name, copy.deepcopy(self.__dict__[name], memo))
        duplicate.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        self._copy_preserved(duplicate)
        for hook in self._deepcopy_hooks:
            hook(duplicate)
        return duplicate

    def _without_graph(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_graph"}

    def _copy_preserved(self, duplicate: GraphModule) -> None:
        preserved = getattr(self, "meta", {}).get(_USER_PRESERVED_ATTRIBUTES_KEY, {})
        for name, value in preserved.items():
            setattr(duplicate, name, value)

    def __copy__(self) -> GraphModule:
        """A copy that shares parameters and submodules, with a graph of its own."""
        duplicate = GraphModule(self, self.graph, type(self).__name__)
        duplicate.meta = getattr(self, "meta", {})
        return duplicate

    # ------------------------------------------------------------------------ text
    def __str__(self) -> str:
        text = super().__str__()
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{text}\n{self._code}\n{reminder}"

    @compatibility(is_backward_compatible=False)
    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The source with shapes and the lines that nodes come from, of submodules too.

        Args:
            print_output: whether it is printed.
            include_stride: adds strides to shapes.
            include_device: adds devices.
            colored: adds colors of terminals.
            fast_sympy_print: accepted; sizes are numbers here.
            expanded_def: writes each parameter on a line of its own.
            additional_meta: keys of `Node.meta` that are shown.

        Returns:
            str: the text.
        """
        return _print_readable(
            self, self._get_name(), print_output, include_stride, include_device, colored,
            expanded_def, additional_meta,
        )  # fmt: skip

    def _replicate_for_data_parallel(self) -> GraphModule:
        """A copy for one device."""
        duplicate: GraphModule = self.__copy__()
        duplicate._is_replica = True
        return duplicate

    # ------------------------------------------------------------------------ hooks
    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        """A `with` block in which a function is called for every replaced node."""
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.append(_callable(f, "replace"))

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.append(_callable(f, "create_node"))

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.append(_callable(f, "erase_node"))

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.append(_callable(f, "deepcopy"))

    def _unregister_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.remove(f)


def _callable(f: Callable[..., Any], kind: str) -> Callable[..., Any]:
    if not callable(f):
        raise AssertionError(f"{kind} hook must be a callable.")
    return f


def _print_readable(
    module: Any,
    module_name: str,
    print_output: bool = True,
    include_stride: bool = False,
    include_device: bool = False,
    colored: bool = False,
    expanded_def: bool = False,
    additional_meta: list[str] | None = None,
) -> str:
    """`GraphModule.print_readable` of a module that has a graph."""
    graph = module.graph
    if not isinstance(graph, Graph):
        raise AssertionError("print_readable must be used on a module with a graph")
    options = (include_stride, include_device, colored)
    code = graph.python_code(
        "self",
        verbose=True,
        include_stride=include_stride,
        include_device=include_device,
        colored=colored,
        expanded_def=expanded_def,
        additional_meta=additional_meta,
    ).src.lstrip("\n")
    text = f"class {module_name}(torch.nn.Module):\n" + _indent(code, 4)
    for name, child in module.named_children():
        if hasattr(child, "graph") and isinstance(child.graph, Graph):
            inner = _print_readable(
                child, name, False, *options, expanded_def=expanded_def,
                additional_meta=additional_meta,
            )  # fmt: skip
            text += _indent("\n" + inner, 4)
    if print_output:
        print(text)
    return text


def _indent(text: str, count: int) -> str:
    lines = text.split("\n")
    return "\n".join(" " * count + line if line.strip() else "" for line in lines)
