"""Operators that take functions as nodes of `make_fx`: each function becomes a graph.

A function is traced on tensors without data, so that branches that are not taken have no effect.
Tensors that it reads beside its arguments become further operands of the node.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import flambeau as torch
from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.arrangements import Like, arranged
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.autograd.transforms.wrappers import levels
from flambeau.fx import GraphModule
from flambeau.fx._symbolic_trace import PH
from flambeau.fx.experimental._operator_trace import (
    Function,
    OperatorMode,
    OperatorTracer,
    Value,
    _described,
    with_named_parameters,
)
from flambeau.fx.proxy import Proxy
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import _disable_current_modes

# ------------------------------------------------------------------------------- functions


def _view(tensor: Value, function: Function, *args: Value) -> Value:
    """A view of a tensor that is not recorded; a fake of one without data."""
    with _disable_current_modes():
        if isinstance(tensor, FakeTensor):
            return fake_calls.answer(tensor.fake_mode, function, (tensor, *args), {})
        return function(tensor, *args)


class Lifting(OperatorMode):
    """Records a function; tensors that it reads beside its arguments become placeholders.

    Args:
        tracer: owns the graph.
        outer: the mode that records the node.

    Attributes:
        lifted: these tensors, in the order of their placeholders.
    """

    def __init__(self, tracer: OperatorTracer, outer: OperatorMode) -> None:
        fakes = outer.fakes or FakeTensorMode(allow_non_fake_inputs=True)
        super().__init__(tracer, outer.table, fakes)
        self.lifted: list[Value] = []

    def placeholder(self) -> Proxy:
        """Adds a parameter behind those that the graph has."""
        graph = self.tracer.graph
        parameters = [node for node in graph.nodes if node.op == "placeholder"]
        name = f"arg{len(parameters)}_1"
        first = next(iter(graph.nodes), None)
        if parameters:
            position = graph.inserting_after(parameters[-1])
        else:
            position = graph.inserting_before(first)
        with position:
            return Proxy(graph.create_node("placeholder", name, name=name), self.tracer)

    def unknown(self, tensor: Value) -> Proxy:
        """The placeholder of a tensor from outside of the function."""
        proxy = self.placeholder()
        self.lifted.append(tensor)
        self._track(tensor, proxy)
        return proxy

    def _fake(self, value: Value) -> Value:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        entry = self.tracking.find(value)
        if entry is not None and isinstance(entry.tensor, FakeTensor):
            return entry.tensor
        return self.fakes.from_tensor(value)


class Body:
    """The graph of a function.

    Args:
        outer: the mode that records the node.
        function: of the operands.
        operands: tensors and numbers.
        lifted: tensors that other functions of the node read, further parameters of the graph.

    Attributes:
        mode: recorded the function.
        results: what it returned: tensors without data.
    """

    def __init__(
        self, outer: OperatorMode, function: Function, operands: Sequence[Value],
        lifted: Sequence[Value] = (),
    ) -> None:  # fmt: skip
        self.function, self.count = function, len(operands)
        self.operands = [*operands, *lifted]
        lifting = getattr(outer, "lifting", Lifting)  # of a mode that records other calls
        self.mode = lifting(OperatorTracer(), outer)
        with _disable_current_modes():
            self.fakes = [self._fake(value) for value in self.operands]
        plain = function.forward if isinstance(function, GraphModule) else function
        named = with_named_parameters(self._run, plain, len(self.operands))
        with _disable_current_modes():
            holes: Value = (PH,) * len(self.operands)
            self.graph = self.mode.tracer.trace(named, holes)

    def _fake(self, value: Value) -> Value:
        if not isinstance(value, torch.Tensor):
            return value
        return _view(self.mode.fakes.from_tensor(value), torch.Tensor.detach)

    def _run(self, *proxies: Proxy) -> Value:
        for fake, outside, proxy in zip(self.fakes, self.operands, proxies, strict=True):
            if isinstance(fake, torch.Tensor):
                self.mode._track(fake, proxy)
                self.mode.tracking.add(outside, proxy)
        with torch._C.DisableTorchFunctionSubclass(), self.mode:
            self.results = self.function(*self.fakes[: self.count])
        return pytree.tree_map(self._proxy, self.results)

    def _proxy(self, value: Value) -> Value:
        if not isinstance(value, torch.Tensor):
            return value
        entry = self.mode.tracking.find(value)
        return self.mode.unknown(value) if entry is None else entry.proxy

    def module(self) -> GraphModule:
        """The graph as a module."""
        return GraphModule(self.mode.tracer.root, self.graph, "<lambda>")


def _traced(
    outer: OperatorMode, functions: Sequence[Function], operands: Sequence[Value]
) -> tuple[list[Body], list[Value]]:
    """Graphs of functions with equal parameters, and the tensors to pass for all of these."""
    bodies: list[Body] = []
    lifted: list[Value] = []
    for function in functions:
        body = Body(outer, function, operands, lifted)
        lifted += body.mode.lifted
        bodies.append(body)
    for body in bodies:
        parameters = sum(node.op == "placeholder" for node in body.graph.nodes)
        for tensor in lifted[parameters - len(operands) :]:
            body.mode.placeholder().node.meta.update(_described(tensor))
    return bodies, lifted


# ------------------------------------------------------------------------------- nodes


def _typed(mode: OperatorMode, value: Value) -> Value:
    """A fake in place of a tensor of its memory that has lost the type: a gradient, say."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    entry = mode.tracking.find(value)
    return entry.tensor if entry and isinstance(entry.tensor, FakeTensor) else value


def _outside(mode: OperatorMode, value: Value) -> Value:
    """The node of a tensor, or of a symbol, in the graph that gets the operator's."""
    if is_symbolic(value):
        return mode.sizes.proxy(value)
    entry = mode.tracking.find(value) if isinstance(value, torch.Tensor) else None
    if entry is not None:
        return entry.proxy
    if isinstance(value, torch.Tensor) and isinstance(mode, Lifting):
        return mode.unknown(value)
    return value


def _attributes(mode: OperatorMode, modules: dict[str, GraphModule]) -> list[Proxy]:
    """Nodes that read graphs from attributes of the root, which get one number."""
    root, number = mode.tracer.root, 0
    while any(hasattr(root, f"{prefix}{number}") for prefix in modules):
        number += 1
    for prefix, module in modules.items():
        setattr(root, f"{prefix}{number}", module)
    names = [f"{prefix}{number}" for prefix in modules]
    return [mode.tracer.create_proxy("get_attr", name, (), {}) for name in names]


class Call:
    """An operator that becomes a node.

    Args:
        mode: records it.
        operator: the operator.
        args, kwargs: its arguments.

    Attributes:
        operands: of its functions, with the tensors that these read besides.
        modules: the graphs of its functions, by the names that their attributes get.
    """

    def __init__(
        self, mode: OperatorMode, operator: operators.HigherOrderOperator, args: Value,
        kwargs: Value,
    ) -> None:  # fmt: skip
        self.mode, self.operator = mode, operator
        parts = arranged(operator.name(), _first, args, kwargs)
        bodies, lifted = _traced(mode, parts.functions, parts.operands)
        self.results = parts.results([body.results for body in bodies])
        self.leading, self.template = parts.leading, parts.template(lifted)
        self.operands = [*parts.operands, *lifted]
        names = _GRAPHS[operator.name()]
        self.modules = {name: body.module() for name, body in zip(names, bodies, strict=True)}

    def record(self) -> Value:
        """Adds the node and returns the operator's results."""
        mode = self.mode
        leading = pytree.tree_map(lambda x: _outside(mode, x), self.leading)
        graphs = _attributes(mode, self.modules)
        template = pytree.tree_map(lambda x: _outside(mode, x), self.template)
        proxy = mode.tracer.create_proxy(
            "call_function", self.operator, (*leading, *graphs, *template), {},
            name=self.operator.name(),
        )  # fmt: skip
        if mode.fakes is not None:
            results = pytree.tree_map(self._fresh, self.results, is_leaf=_is_like)
        else:
            with _disable_current_modes(), torch.no_grad():
                results = self.operator.run(*self.leading, *self.modules.values(), *self.template)
        results = self._separate(results)
        mode._track(results, proxy)
        return results

    def _fresh(self, like: Like) -> Value:
        options = {"dtype": like.tensor.dtype, "device": like.tensor.device}
        with _disable_current_modes():
            return fake_calls.answer(self.mode.fakes, torch.empty, (like.shape,), options)

    def _separate(self, results: Value) -> Value:
        """Results that are other objects than the operands."""
        operands = {id(x) for x in pytree.tree_leaves((self.leading, self.template))}
        return pytree.tree_map(
            lambda x: _view(x, torch.Tensor.detach) if id(x) in operands else x, results
        )


def _is_like(value: Value) -> bool:
    return isinstance(value, Like)


# ------------------------------------------------------------------------------- gradients


class _Differentiable(torch.autograd.Function):
    """A node on the tape whose backward records a node of the graph."""

    @staticmethod
    def forward(ctx: Value, run: Function, pull: Function, *operands: Value) -> Value:
        """Records the operator."""
        ctx.pull = pull
        ctx.set_materialize_grads(False)
        return run()

    @staticmethod
    def backward(ctx: Value, *gradients: Value) -> tuple[Value, ...]:
        """Records the operator of the gradients."""
        return (None, None, *ctx.pull(gradients))


def _needs_gradient(operands: Sequence[Value]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in operands
    )


def _pulled(module: GraphModule, operands: Sequence[Value], present: Sequence[bool]) -> Function:
    """The function of operands and gradients of results that gives gradients of the operands.

    Args:
        module: of the operands.
        operands: some of them require gradients.
        present: which results have a gradient.
    """
    needed = [isinstance(x, torch.Tensor) and x.requires_grad for x in operands]
    count = len(operands)

    def pull(*values: Value) -> list[Value]:
        inputs = values[:count]
        with torch.enable_grad():
            for value, needs in zip(inputs, needed, strict=True):
                if needs:
                    value.requires_grad_()
            results = itertools.compress(pytree.tree_leaves(module(*inputs)), present)
        pairs = [
            pair for pair in zip(results, values[count:], strict=True) if pair[0].requires_grad
        ]
        leaves = [value for value, needs in zip(inputs, needed, strict=True) if needs]
        gradients: Value = (None,) * len(leaves)
        if pairs:
            outputs, seeds = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves, gradients, strict=True)
        ]

    return pull


def _present(gradients: Sequence[Value]) -> tuple[list[bool], list[Value]]:
    present = [gradient is not None for gradient in gradients]
    return present, list(itertools.compress(gradients, present))


def _spread(operands: Sequence[Value], gradients: Sequence[Value]) -> list[Value]:
    """Gradients at the operands that require one; None at the others."""
    following = iter(gradients)
    return [
        next(following) if isinstance(x, torch.Tensor) and x.requires_grad else None
        for x in operands
    ]


# ------------------------------------------------------------------------------- operators

_GRAPHS = {
    "cond": ("true_graph_", "false_graph_"),
    "while_loop": ("while_loop_cond_graph_", "while_loop_body_graph_"),
    "scan": ("scan_combine_graph_",),
    "map_impl": ("body_graph_",),
    "associative_scan": ("associative_scan_combine_graph_",),
    "invoke_subgraph": ("repeated_subgraph",),
}


def _first(xs: Sequence[Value]) -> list[Value]:
    return [_view(x, torch.Tensor.select, 0, 0) for x in xs]


def _pull_cond(call: Call, gradients: Sequence[Value]) -> list[Value]:
    present, seeds = _present(gradients)
    operands = call.operands
    branches = [_pulled(module, operands, present) for module in call.modules.values()]
    return _spread(operands, operators.cond(*call.leading, *branches, (*operands, *seeds)))


def _pull_map(call: Call, gradients: Sequence[Value]) -> list[Value]:
    """Gradients of the mapped tensors, row by row; of the others, summed over the rows."""
    present, seeds = _present(gradients)
    xs, args = call.template
    count, total = len(xs), len(xs) + len(seeds)
    (module,) = call.modules.values()
    inner = _pulled(module, (*xs, *args), present)

    def step(*values: Value) -> list[Value]:  # slices, gradients of results, arguments
        return inner(*values[:count], *values[total:], *values[count:total])

    results = operators.map_impl(step, [*xs, *seeds], args)
    spread = _spread((*xs, *args), results)
    return [*spread[:count], *(x if x is None else x.sum(0) for x in spread[count:])]


_PULLS = {"cond": _pull_cond, "map_impl": _pull_map}


def _with_gradient(call: Call, tensors: Sequence[Value], args: Value, kwargs: Value) -> Value:
    """Records an operator on the tape."""
    name = call.operator.name()
    pull = _PULLS.get(name)
    if pull is not None:
        return _Differentiable.apply(call.record, functools.partial(pull, call), *tensors)
    if name in ("scan", "invoke_subgraph"):
        return call.operator.run(*args, **kwargs)  # what it does, operator by operator
    problem = "make_fx does not record gradients of this operator"
    hint = "scan, or a loop in Python"
    if name == "while_loop":
        problem = "make_fx does not record gradients of a loop whose length data decides"
    raise failure(NotImplementedError, name, problem, hint)


def record(
    mode: OperatorMode, operator: operators.HigherOrderOperator, args: Value, kwargs: Value
) -> Value:
    """Records an operator that takes functions, and returns its results.

    Args:
        mode: records it.
        operator: the operator.
        args, kwargs: its arguments.

    Raises:
        NotImplementedError: in a transformation of `torch.func`; gradients of `while_loop` and
            `associative_scan`.
    """
    if levels():
        problem = f"{operator} runs inside torch.func.vmap or jvp, which have calls of their own"
        hint = "record the function for a batch instead of mapping one for a row"
        raise failure(NotImplementedError, "make_fx", problem, hint)
    args, kwargs = pytree.tree_map(lambda x: _typed(mode, x), (args, kwargs))
    call = Call(mode, operator, args, kwargs)
    tensors = pytree.tree_leaves(call.template)
    if mode._tracks and _needs_gradient(tensors):
        return _with_gradient(call, tensors, args, kwargs)
    return call.record()
