"""`torch._inductor.compile_fx`: graphs of forward and backward, changed by passes of the user, run
through the compiler.

A compiled function takes this way only where a pass is set. Its operators become a graph
(`_dynamo/custom_backend.py`), forward and backward become graphs of aten operators
(`_functorch/aot_autograd.py`), and the modules after the passes run as recorded regions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from flambeau._functorch.aot_autograd import aot_module_simplified
from flambeau._functorch.partitioners import min_cut_rematerialization_partition
from flambeau._inductor.custom_graph_pass import (
    CustomInferenceAwareGraphPass,
    CustomPassBase,
    get_custom_graph_passes,
)
from flambeau._inductor.decomposition import select_decomp_table
from flambeau._inductor.pattern_graphs import (
    remove_noop_ops,
    stable_topological_sort,
)
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.capture import options, recording
from flambeau.fx import GraphModule
from flambeau.fx.experimental._operator_trace import Function, Value
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.ir.failure import failure
from flambeau.utils import _pytree as pytree

__all__ = ["compile_fx", "compile_fx_inner"]

Pass = Callable[..., object]


def compile_fx(
    model_: GraphModule,
    example_inputs_: Sequence[Value],
    inner_compile: Callable[..., Function] | None = None,
    config_patches: Mapping[str, Value] | None = None,
    decompositions: Mapping[Value, Function] | None = None,
) -> Function:
    """Compiles a graph, changed by the passes that are set: a backend of `torch.compile`.

    Args:
        model_: the graph of the function's own operators.
        example_inputs_: its arguments.
        inner_compile: (module, example arguments, is_inference=...) -> callable, for each of
            forward and backward; by default `compile_fx_inner`, which applies the last passes.
        config_patches: settings of `torch._inductor.config`, passes among them.
        decompositions: operators that are replaced by others.
    """
    passes = Passes.of(options.graph_passes(dict(config_patches or {})))
    compiler = _Compiler(passes, inner_compile or _inner(passes, False))
    return compiler.compiled(model_, example_inputs_, decompositions)


def compile_fx_inner(
    gm: GraphModule, example_inputs: Sequence[Value], *, is_inference: bool = False, **more: Value
) -> Function:
    """Compiles a graph of operators after the passes that are set for graphs of this kind.

    Args:
        gm: the graph.
        example_inputs: without effect: programs hold for every size.
        is_inference: whether it is of a call without gradients.
        more: options of PyTorch, without effect.
    """
    passes = Passes.of(options.graph_passes(None))
    return _inner(passes, False)(gm, example_inputs, is_inference=is_inference)


def _inner(passes: Passes, tuned: bool) -> Callable[..., Function]:
    """The function that applies the last passes to a graph, and compiles it."""

    def inner(module: GraphModule, inputs: Sequence[Value], *, is_inference: bool) -> Function:
        _apply((*passes.post_grad_pre, *passes.post_grad_post), module, is_inference)
        return recording.in_region(module.forward, tuned)

    return inner


class Passes(NamedTuple):
    """The user's passes.

    Attributes:
        pre_grad: of the graph of the function's own operators.
        joint_pre, joint_post: of the graph of forward and backward.
        post_grad_pre, post_grad_post: of each of both.
    """

    pre_grad: tuple[Pass, ...] = ()
    joint_pre: tuple[Pass, ...] = ()
    joint_post: tuple[Pass, ...] = ()
    post_grad_pre: tuple[Pass, ...] = ()
    post_grad_post: tuple[Pass, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Passes:
        """The passes of settings by name."""
        return cls(*[get_custom_graph_passes(values.get(name)) for name in options.PASSES])

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for passes that do the same."""
        return tuple([tuple(map(_identity, each)) for each in self])


def _identity(function: Pass) -> object:
    identity = function.uuid() if isinstance(function, CustomPassBase) else None
    return function if identity is None else identity


def backend_of(passes: Passes, tuned: bool) -> Callable[[GraphModule, Sequence[Value]], Function]:
    """The backend that applies passes.

    Args:
        passes: the passes.
        tuned: whether kernels are measured.
    """
    compiler = _Compiler(passes, _inner(passes, tuned))

    def inductor(module: GraphModule, inputs: Sequence[Value]) -> Function:
        return compiler.compiled(module, inputs, None)

    return inductor


class _Compiler(NamedTuple):
    """The passes, and what compiles forward and backward."""

    passes: Passes
    inner: Callable[..., Function]

    def compiled(
        self, module: GraphModule, inputs: Sequence[Value], table: Mapping[Value, Function] | None
    ) -> Function:
        """The function that runs in place of a graph."""
        if self.passes.pre_grad:
            _with_values(module, inputs)
            _apply(self.passes.pre_grad, module)
        return aot_module_simplified(
            module,
            inputs,
            fw_compiler=functools.partial(self.inner, is_inference=False),
            bw_compiler=functools.partial(self.inner, is_inference=False),
            inference_compiler=self._inference,
            partition_fn=self._partition,
            decompositions=select_decomp_table() if table is None else table,
        )

    def _partition(
        self, module: GraphModule, inputs: Value, **settings: Value
    ) -> tuple[GraphModule, GraphModule]:
        self._joint(module, inputs)
        return min_cut_rematerialization_partition(module, inputs, **settings)

    def _joint(self, module: GraphModule, inputs: Value) -> None:
        """Applies the passes of a joint graph, or of one without a backward."""
        remove_noop_ops(module.graph)
        _apply((*self.passes.joint_pre, *self.passes.joint_post), module)

    def _inference(self, module: GraphModule, inputs: Sequence[Value]) -> Function:
        self._joint(module, inputs)
        return self.inner(module, inputs, is_inference=True)


def _apply(passes: Sequence[Pass], module: GraphModule, inference: bool | None = None) -> None:
    """Applies passes in order; the graph is well-formed afterwards.

    Raises:
        RuntimeError: it is not, or has another number of results.
    """
    before = _results(module)
    for each in passes:
        if isinstance(each, CustomInferenceAwareGraphPass) and inference is not None:
            each(module.graph, inference)
        else:
            each(module.graph)
    if passes:
        stable_topological_sort(module.graph)
        module.graph.lint()
    if _results(module) != before:
        problem = f"a pass left a graph with {_results(module)} results in place of {before}"
        raise failure(RuntimeError, "compile", problem, "replace the arguments of the output node")
    module.recompile()


def _results(module: GraphModule) -> int:
    """How many values a graph returns."""
    return len(pytree.tree_leaves(list(module.graph.output_node().args)))


def _with_values(module: GraphModule, inputs: Sequence[Value]) -> None:
    """Notes the value of each node of a function's graph, without data."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    FakeTensorProp(module, mode).propagate(*inputs)
    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["example_value"] = node.meta["val"]
