"""`aot_function` and its relatives: a function's forward and backward as two graphs, ahead of time.

The function and its backward run once (`make_fx`) on the first call's arguments; a partition splits
the joint graph, and the caller's compilers get one each.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import flambeau as torch
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau._subclasses.functional_storage import View
from flambeau._subclasses.functional_tensor import FunctionalTensorMode
from flambeau._subclasses.symbolic_calls import Answering, snapshot
from flambeau.fx import GraphModule
from flambeau.fx.experimental._operator_trace import Function, Value, tagged
from flambeau.fx.experimental._partition import BACKWARD, default_partition
from flambeau.fx.experimental._shape_env import ShapeEnv
from flambeau.fx.experimental.proxy_tensor import _Recording, make_fx
from flambeau.fx.graph import CodeGen
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils import _pytree as pytree

__all__ = [
    "aot_function", "aot_module", "aot_module_simplified", "make_boxed_compiler", "make_boxed_func",
]  # fmt: skip

Compiler = Callable[[GraphModule, list[Value]], Function]


def make_boxed_func(f: Function) -> Callable[[list[Value]], Value]:
    """A function that takes its arguments as one list."""

    def boxed(args: list[Value]) -> Value:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler whose result takes its arguments as one list."""

    @functools.wraps(compiler)
    def boxed(module: GraphModule, inputs: list[Value]) -> Value:
        return make_boxed_func(compiler(module, inputs))

    return boxed


class _Effects(NamedTuple):
    """Effects of a function beside its results.

    Attributes:
        spec: structure of its results.
        number: how many results there are.
        written: arguments that it writes; their new values come before the results.
        aliases: results that are arguments it writes, or views of these: which, and the views.
    """

    spec: Value
    number: int
    written: tuple[int, ...]
    aliases: dict[int, tuple[int, tuple[View, ...]]]

    def finish(self, values: Sequence[Value], args: Sequence[Value]) -> Value:
        """Writes the arguments and returns the results."""
        count = len(self.written)
        with torch.no_grad():
            for number, value in zip(self.written, values[:count], strict=True):
                args[number].copy_(value)
        results = list(values[count:])
        for place, (number, views) in self.aliases.items():
            results[place] = args[number]
            for view in views:
                results[place] = view.forward(results[place])
        return pytree.tree_unflatten(results, self.spec)


class _Joint(NamedTuple):
    """A function that has a gradient.

    Attributes:
        effects: of the function.
        number: of outputs of the forward graph: arguments it writes, then results.
        tangents: which outputs have a gradient.
        gradients: which arguments need one.
    """

    effects: _Effects
    number: int
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]


class _Run:
    """One run of a function without writes.

    Args:
        function: of flat arguments.
        args: tensors and numbers; tensors that require gradients are leaves inside.

    Attributes:
        inside: the tensors that stand for the arguments.
        results: tensors inside, flat.
        effects: of the function.
    """

    def __init__(self, function: Function, args: Sequence[Value]) -> None:
        self.mode = FunctionalTensorMode(taped=True)
        self.inside = [self.mode.wrap(x) for x in args]
        with self.mode:
            self.results, spec = pytree.tree_flatten(function(*self.inside))
        tensors = [n for n, x in enumerate(args) if isinstance(x, torch.Tensor)]
        self._written = {tensors[n]: value for n, value in self.mode.written().items()}
        aliases = {}
        for place, result in enumerate(self.results):
            origin = self.mode.origin(result)
            if origin is not None and tensors[origin[0]] in self._written:
                aliases[place] = (tensors[origin[0]], origin[1])
        self.effects = _Effects(spec, len(self.results), tuple(self._written), aliases)

    def outputs(self) -> list[Value]:
        """New values of arguments, then results."""
        return [*self._written.values(), *map(self.mode.value, self.results)]


def aot_function(
    fn: Function,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]] = default_partition,
    decompositions: Value = None,
    num_params_lifted: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
) -> Function:
    """The function, run by what the compilers make of the graphs of its forward and backward.

    The graphs are made at the first call, of operators (`torch.ops.aten`), and hold for arguments
    of its sizes that take the same branches; others are made where other arguments need gradients.

    Args:
        fn: takes and gives tensors, in any containers. The graphs hold no operator that writes:
            new values of arguments that it writes come before its results.
        fw_compiler: (module, example arguments) -> callable.
        bw_compiler: of the backward; by default the same.
        partition_fn: splits the joint graph.
        decompositions: operators that are replaced, see `make_fx`.
        num_params_lifted: in PyTorch, how many leading arguments are parameters; without effect.
        inference_compiler: where no gradient is needed; by default `fw_compiler`.
        dynamic: whether sizes, and integers among the arguments, are symbols: the graphs hold for
            all sizes of which their guards are true, and others are made for other sizes.
        enable_log: without effect.

    Raises:
        NotImplementedError: an argument is written that requires a gradient.

    Example:
        >>> from torch._functorch.aot_autograd import aot_function
        >>> def show(module, inputs):
        ...     print([n.name for n in module.graph.nodes if n.op == "call_function"])
        ...     return module
        >>> x = torch.ones(2, requires_grad=True)
        >>> aot_function(lambda x: x.sin().sum(), show)(x).backward()
        ['sin', 'sum_1']
        ['expand', 'cos', 'mul']
    """
    stages = _Stages(fw_compiler, bw_compiler, inference_compiler, partition_fn)
    programs: dict[tuple[int, ...], Function] = {}
    symbolic = _SymbolicPrograms(stages, decompositions)

    @functools.wraps(fn)
    def compiled(*args: Value, **kwargs: Value) -> Value:
        leaves, spec = pytree.tree_flatten((args, kwargs))

        def flat(*values: Value) -> Value:
            positional, named = pytree.tree_unflatten(list(values), spec)
            return fn(*positional, **named)

        if dynamic:
            return symbolic.run(flat, leaves)
        needed = _needed(leaves)
        if needed not in programs:
            programs[needed] = stages.program(flat, leaves, decompositions)
        return programs[needed](*leaves)

    return compiled


class _Stages(NamedTuple):
    """The compilers and the partition."""

    forward: Compiler
    backward: Compiler | None
    inference: Compiler | None
    partition: Callable[..., tuple[GraphModule, GraphModule]]

    def program(
        self, function: Function, args: Sequence[Value], table: Value, trace: _Trace | None = None
    ) -> Function:
        """The program that runs in place of a function of flat arguments.

        Args:
            function: the function.
            args: its arguments.
            table: operators that are replaced, see `make_fx`.
            trace: whose sizes are symbols; None: they are numbers.
        """
        needed = _needed(args)
        trace = trace or _Trace(table)
        with torch.random.fork_rng():  # the recorded runs draw nothing for the program
            if not needed:
                return self._inference(function, args, trace)
            return self._training(function, args, needed, trace)

    def _inference(self, function: Value, args: Sequence[Value], trace: _Trace) -> Function:
        effects: list[_Effects] = []

        def flat(*values: Value) -> Value:
            once = _Run(function, values)
            effects.append(once.effects)
            return tuple(once.outputs())

        with torch.no_grad():
            module = trace.recorded(flat, trace.leaves(args))
        trace.require_plain(effects[0])
        module.graph.eliminate_dead_code()
        module.recompile()
        run = _caller((self.inference or self.forward)(module, list(args)))
        return lambda *values: effects[0].finish(list(run(values)), values)

    def _training(
        self, function: Value, args: Sequence[Value], needed: Sequence[int], trace: _Trace
    ) -> Function:
        leaves = trace.leaves(args)
        joint, tangents = _examined(function, leaves, needed, trace)
        if not tangents:
            return self._inference(function, args, trace.again())
        module = _joint_module(function, joint, leaves, tangents, trace)
        with trace.without_guards():
            forward, backward = self.partition(
                module, (leaves, tangents), num_fwd_outputs=joint.number
            )
        run = _caller(self.forward(forward, list(args)))
        run_backward = _later(self.backward or self.forward, backward)
        return _joined(joint, run, run_backward)


def _answering(values: Value) -> contextlib.AbstractContextManager[Value]:
    """A `with` block whose operators run on tensors without data, if some of the values are."""
    modes = [x.fake_mode for x in pytree.tree_leaves(values) if isinstance(x, FakeTensor)]
    return Answering(modes[0]) if modes else contextlib.nullcontext()


class _Trace:
    """How a function is recorded: on numbers for sizes.

    Args:
        table: operators that are replaced, see `make_fx`.
    """

    def __init__(self, table: Value) -> None:
        self.table = table

    def again(self) -> _Trace:
        """Another one."""
        return type(self)(self.table)

    def leaves(self, args: Sequence[Value]) -> list[Value]:
        """Leaves of their own that represent the arguments."""
        return _detached(args)

    def recorded(self, function: Value, args: Sequence[Value]) -> GraphModule:
        """The graph of a function; its inputs and outputs are those of its containers, flat."""
        with _answering(args):
            return _flat(make_fx(function, decomposition_table=self.table)(*args))

    def run(self, function: Value, leaves: Sequence[Value]) -> _Run:
        """Runs a function of leaves, unrecorded."""
        with _answering(leaves):
            return _Run(function, leaves)

    def tangent(self, output: Value) -> Value:
        """A gradient of an output."""
        return torch.ones_like(output.detach())

    def without_guards(self) -> contextlib.AbstractContextManager[Value]:
        """A `with` block in which code may read sizes."""
        return contextlib.nullcontext()

    def require_plain(self, effects: _Effects) -> None:
        """Raises where effects depend on sizes that are symbols."""


class _SymbolicTrace(_Trace):
    """How a function is recorded: on symbols for sizes, which are guarded.

    Args:
        table: see `_Trace`.
    """

    def __init__(self, table: Value) -> None:
        super().__init__(table)
        self._recording = _Recording(None, table or {}, "symbolic")
        self._leaves: list[Value] = []

    def leaves(self, args: Sequence[Value]) -> list[Value]:
        """Tensors without data, and symbolic numbers, that represent the arguments."""
        pairs = enumerate(_detached(args))
        self._leaves = [self._recording._input(x, number) for number, x in pairs]
        return self._leaves

    def recorded(self, function: Value, args: Sequence[Value]) -> GraphModule:
        """The graph of a function; see `_Trace.recorded`."""
        self._recording.function = function
        return _flat(self._recording.run(tuple(args)))

    def run(self, function: Value, leaves: Sequence[Value]) -> _Run:
        """Runs a function of leaves, unrecorded."""
        with Answering(self._recording.fakes):
            return _Run(function, leaves)

    def tangent(self, output: Value) -> Value:
        """A gradient of an output, without data."""
        if isinstance(output, FakeTensor):
            return snapshot(output)
        return self._recording.fakes.from_tensor(torch.ones_like(output), static_shapes=True)

    def without_guards(self) -> contextlib.AbstractContextManager[Value]:
        """A `with` block in which code may read sizes."""
        return self._recording.shape_env.suppress_guards()

    def require_plain(self, effects: _Effects) -> None:
        """Raises where effects depend on sizes that are symbols."""
        views = [view for _, path in effects.aliases.values() for view in path]
        if any(is_symbolic(x) for x in pytree.tree_leaves([tuple(view) for view in views])):
            problem = "a result is a view of a written argument, by a size that varies"
            hint = "dynamic=False, or return a copy"
            raise failure(NotImplementedError, "aot_function", problem, hint)

    def holds(self, args: Sequence[Value]) -> bool:
        """Whether the guards are true for arguments."""
        env: ShapeEnv = self._recording.shape_env
        return env.evaluate_guards_for_args(self._leaves, args)


class _SymbolicPrograms:
    """Programs of a function whose sizes are symbols.

    Args:
        stages: compile graphs.
        table: operators that are replaced, see `make_fx`.
    """

    def __init__(self, stages: _Stages, table: Value) -> None:
        self._stages, self._table = stages, table
        self._programs: dict[Value, list[tuple[_SymbolicTrace, Function]]] = {}

    def run(self, function: Function, args: Sequence[Value]) -> Value:
        """Calls the program whose guards are true, or makes one.

        Args:
            function: takes flat arguments.
            args: the arguments.
        """
        programs = self._programs.setdefault(_facts(args), [])
        for trace, program in programs:
            if trace.holds(args):
                return program(*args)
        trace = _SymbolicTrace(self._table)
        program = self._stages.program(function, args, self._table, trace)
        programs.append((trace, program))
        return program(*args)


def _facts(args: Sequence[Value]) -> Value:
    """Facts of arguments beside sizes that programs depend on."""
    facts: list[Value] = [torch.is_grad_enabled()]
    for x in args:
        if isinstance(x, torch.Tensor):
            facts.append((x.dtype, x.ndim, x.requires_grad))
        else:
            facts.append(int if type(x) is int else (type(x), x))
    return tuple(facts)


def _needed(args: Sequence[Value]) -> tuple[int, ...]:
    """The arguments that need a gradient, by number."""
    if not torch.is_grad_enabled():
        return ()
    tensors = [(n, x) for n, x in enumerate(args) if isinstance(x, torch.Tensor)]
    return tuple([n for n, x in tensors if x.requires_grad])


def _later(compiler: Compiler, module: GraphModule) -> Callable[[Sequence[Value]], Value]:
    """Compiles at the first call, whose arguments are the examples."""
    callers: list[Callable[[Sequence[Value]], Value]] = []

    def run(values: Sequence[Value]) -> Value:
        if not callers:
            callers.append(_caller(compiler(module, list(values))))
        return callers[0](values)

    return run


def _caller(function: Function) -> Callable[[Sequence[Value]], Value]:
    """Calls a compiled function, which may take its arguments in one list."""
    if getattr(function, "_boxed_call", False):
        return lambda values: function(list(values))
    return lambda values: function(*values)


def _flat(module: GraphModule) -> GraphModule:
    """A module whose inputs and outputs are those of its containers."""
    module.graph.set_codegen(CodeGen())
    module.recompile()
    return module


def _detached(args: Sequence[Value]) -> list[Value]:
    """Leaves of their own that stand for the arguments."""
    return [
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in args
    ]


def joint_graph(function: Function, args: Sequence[Value], table: Value) -> GraphModule:
    """The module of a function's arguments and of tangents that gives results and gradients.

    Args:
        function: takes tensors and numbers.
        args: its arguments; those that require a gradient have one.
        table: operators that are replaced, see `make_fx`.
    """
    leaves, trace = _detached(args), _Trace(table)
    joint, tangents = _examined(function, leaves, _needed(args), trace)
    return _joint_module(function, joint, leaves, tangents, trace)


def _examined(
    function: Value, leaves: Sequence[Value], needed: Sequence[int], trace: _Trace
) -> tuple[_Joint, list[Value]]:
    """Runs a function once, for what it gives; returns tangents for it, too."""
    once = trace.run(function, leaves)
    trace.require_plain(once.effects)
    effects, outputs = once.effects, once.outputs()
    if any(once.inside[number].requires_grad for number in effects.written):
        problem = "the function writes an argument whose new value has a gradient"
        hint = "give the new value as a result, or use torch.compile"
        raise failure(NotImplementedError, "aot_function", problem, hint)
    count = len(effects.written)
    differentiable = [
        count + n
        for n, x in enumerate(once.results)
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    tangents = [trace.tangent(outputs[n]) for n in differentiable]
    return _Joint(effects, len(outputs), tuple(differentiable), tuple(needed)), tangents


def _joint_module(
    function: Value, joint: _Joint, leaves: list[Value], tangents: list[Value], trace: _Trace
) -> GraphModule:
    """The module of primals and tangents that gives results and gradients."""

    def run(primals: list[Value], tangents: list[Value]) -> Value:
        once = _Run(function, primals)
        outputs, count = once.outputs(), len(once.effects.written)
        seeds = [once.mode.wrap(x) for x in tangents]
        with tagged(partitioner_tag=BACKWARD), once.mode:
            gradients = torch.autograd.grad(
                [once.results[n - count] for n in joint.tangents],
                [once.inside[n] for n in joint.gradients],
                seeds,
                allow_unused=True,
            )
        values = [once.mode.value(gradient) for gradient in gradients]
        by_argument = dict(zip(joint.gradients, values, strict=True))
        return [*outputs, *(by_argument.get(n) for n in range(len(primals)))]

    return trace.recorded(run, (leaves, tangents))


def _joined(joint: _Joint, run: Value, run_backward: Value) -> Function:
    """The compiled forward as a function whose gradient is the compiled backward."""
    differentiable = frozenset(joint.tangents)

    class CompiledFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Value, *args: Value) -> Value:
            """Results; what the backward reads is saved."""
            values = list(run(args))
            results, saved = values[: joint.number], values[joint.number :]
            ctx.plain = [None if isinstance(x, torch.Tensor) else x for x in saved]
            ctx.save_for_backward(*[x for x in saved if isinstance(x, torch.Tensor)])
            tensors = [(n, x) for n, x in enumerate(results) if isinstance(x, torch.Tensor)]
            ctx.mark_non_differentiable(*[x for n, x in tensors if n not in differentiable])
            return tuple(results)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Value, *gradients: Value) -> Value:
            """Gradients of the arguments."""
            tensors = iter(ctx.saved_tensors)
            saved = [next(tensors) if x is None else x for x in ctx.plain]
            tangents = [gradients[n].contiguous() for n in joint.tangents]
            return tuple(run_backward([*saved, *tangents]))

    def call(*args: Value) -> Value:
        return joint.effects.finish(list(CompiledFunction.apply(*args)), args)

    return call


class _AotModule(torch.nn.Module):
    """A module whose forward and backward are compiled."""

    def __init__(self, module: torch.nn.Module, options: dict[str, Value]) -> None:
        super().__init__()
        self.orig_module = module

        def functional(named: Value, args: Value, kwargs: Value) -> Value:
            return torch.func.functional_call(module, named, args, kwargs)

        self._compiled = aot_function(functional, **options)

    def forward(self, *args: Value, **kwargs: Value) -> Value:
        """Runs the compiled module."""
        return self._compiled(_members(self.orig_module), args, kwargs)


def _members(module: torch.nn.Module) -> dict[str, Value]:
    """Parameters and buffers of a module, by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def aot_module(
    mod: torch.nn.Module, fw_compiler: Compiler, *args: Value, **kwargs: Value
) -> torch.nn.Module:
    """`aot_function` of a module: its parameters and buffers are arguments of the graphs.

    Args:
        mod: the module.
        fw_compiler: see `aot_function`, as are all further arguments.
        args, kwargs: of `aot_function`.
    """
    names = ("bw_compiler", "partition_fn", "decompositions")
    options = dict(zip(names, args, strict=False)) | kwargs
    return _AotModule(mod, {"fw_compiler": fw_compiler, **options})


def aot_module_simplified(
    mod: torch.nn.Module,
    args: Sequence[Value],
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]] = default_partition,
    decompositions: Value = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    **options: Value,
) -> Function:
    """`aot_module` without containers: a function of flat arguments, compiled at once.

    Args:
        mod: a module of tensors that gives a tuple or list of tensors.
        args: example arguments; symbolic numbers among them make all sizes symbols.
        fw_compiler, bw_compiler, partition_fn, decompositions: see `aot_function`.
        inference_compiler: see `aot_function`.
        options: further ones of PyTorch, without effect.
    """
    members = _members(mod)
    names, values = list(members), list(members.values())

    def flat(*flat_args: Value) -> Value:
        named = dict(zip(names, flat_args, strict=False))
        return torch.func.functional_call(mod, named, tuple(flat_args[len(names) :]))

    stages = _Stages(fw_compiler, bw_compiler, inference_compiler, partition_fn)
    if any(map(is_symbolic, args)):  # of `torch.compile(dynamic=True)`, say
        symbolic = _SymbolicPrograms(stages, decompositions)

        def program(*runtime: Value) -> Value:
            return symbolic.run(flat, runtime)

    else:
        program = stages.program(flat, [*values, *args], decompositions)

    def forward(*runtime: Value) -> Value:
        return program(*values, *runtime)

    forward.zero_grad = mod.zero_grad  # type: ignore[attr-defined]
    forward.named_parameters = mod.named_parameters  # type: ignore[attr-defined]
    forward.named_buffers = mod.named_buffers  # type: ignore[attr-defined]
    return forward
