"""Patterns and graphs, written with either library, that both match alike."""

from __future__ import annotations

import importlib


class Library:
    """The parts of a library that match patterns.

    Args:
        name: "torch" or "flambeau".
    """

    def __init__(self, name):
        self.torch = importlib.import_module(name)
        self.matcher = importlib.import_module(f"{name}._inductor.pattern_matcher")
        self.counters = importlib.import_module(f"{name}._dynamo.utils").counters
        self.make_fx = importlib.import_module(f"{name}.fx.experimental.proxy_tensor").make_fx
        self.aten = self.torch.ops.aten

    def tensor(self, *shape, grad=False):
        return self.torch.ones(shape, requires_grad=grad)

    def trace(self, function, *shapes):
        """The graph of a function of tensors of these shapes."""
        args = [self.tensor(*shape) for shape in shapes or [(4, 4)]]
        return self.make_fx(function, tracing_mode="fake")(*args)

    def apply(self, patterns, module):
        """Matches, the counters, and what is called afterwards."""
        self.counters.clear()
        number = patterns.apply(module.graph)
        self.matcher.stable_topological_sort(module.graph)
        module.graph.lint()
        calls = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
        return number, dict(self.counters["inductor"]), calls


def _cases(library):
    """name: (pattern, function to trace)"""
    aten, m, torch = library.aten, library.matcher, library.torch
    call, x, y = m.CallFunction, m.KeywordArg("x"), m.KeywordArg("y")
    shared = call(aten.sigmoid.default, x, _users=2)
    add_relu = call(aten.relu.default, call(aten.add.Tensor, x, y))

    def twice(x):
        total = x + x
        return torch.relu(total) + total

    def written(x, y):
        sine = x.sin()
        x.copy_(y)
        return x + sine

    def other_written(x, y):
        sine = x.sin()
        y.add_(1)
        return x + sine

    sine = call(aten.add.Tensor, x, call(aten.sin.default, x))
    joined = lambda inner: call(aten.cat.default, inner, m.Ignored())  # noqa: E731
    arg_relu, named_relu = call(aten.relu.default, m.Arg()), call(aten.relu.default, x)
    return {
        "nested": (add_relu, lambda x: torch.relu(x + 1) * torch.relu(x + x)),
        "several users": (add_relu, twice),
        "any users": (
            call(aten.relu.default, call(aten.add.Tensor, x, y, _users=m.MULTIPLE)),
            twice,
        ),
        "two users": (call(aten.relu.default, call(aten.add.Tensor, x, y, _users=2)), twice),
        "shared": (
            call(aten.mul.Tensor, shared, call(aten.neg.default, shared)),
            lambda x: (lambda s: s * -s)(x.sigmoid()),
        ),
        "not shared": (
            call(aten.mul.Tensor, shared, call(aten.neg.default, shared)),
            lambda x: x.sigmoid() * -(x.sigmoid()),
        ),
        "equal names": (call(aten.mul.Tensor, x, m.KeywordArg("x")), lambda x: x * x + x * (x + 1)),
        "order of operands": (
            call(aten.add.Tensor, call(aten.sin.default, x), y),
            lambda x: x + x.sin(),
        ),
        "constants": (call(aten.add.Tensor, x, 1), lambda x: (x + 1) * (x + 2)),
        "alpha": (
            call(aten.add.Tensor, x, y, alpha=2),
            lambda x: torch.add(x, x, alpha=2) + torch.add(x, x, alpha=3),
        ),
        "further names": (call(aten.add.Tensor, x, y), lambda x: torch.add(x, x, alpha=2) + x),
        "any arguments": (
            m.CallFunctionVarArgs(aten.add),
            lambda x: torch.add(x, x, alpha=2) + 1,
        ),
        "list": (joined(m.ListOf(arg_relu)), lambda x: torch.cat([x.relu(), (x + 1).relu()], 1)),
        "list of others": (joined(m.ListOf(arg_relu)), lambda x: torch.cat([x.relu(), x + 1], 1)),
        "a part of a list": (
            joined(m.ListOf(named_relu, partial=True)),
            lambda x: torch.cat([x.relu(), x + 1], 1),
        ),
        "fixed list": (
            call(aten.cat.default, [named_relu, y], m.Ignored()),
            lambda x: torch.cat([x.relu(), x + 1], 1),
        ),
        "several results": (
            m.MultiOutputPattern([call(aten.sin.default, x), call(aten.cos.default, x)]),
            lambda x: x.sin() + x.cos() * (x + 1).sin(),
        ),
        "repeated": (
            m.RepeatedExpr(call(aten.relu.default, call(aten.add.Tensor, x, 1, _users=m.MULTIPLE))),
            lambda x: (lambda s: s.relu() * s.relu())(x + 1),
        ),
        "no write": (sine, lambda x, y: x + x.sin() + y),
        "written between": (sine, written),
        "another written between": (sine, other_written),
        "a mode between": (sine, lambda x: _without_gradients(torch, x)),
    }


def _without_gradients(torch, x):
    sine = x.sin()
    with torch.no_grad():
        return x + sine


CASES = [
    "nested", "several users", "any users", "two users", "shared", "not shared", "equal names",
    "order of operands", "constants", "alpha", "further names", "any arguments", "list",
    "list of others", "a part of a list", "fixed list", "several results", "repeated", "no write",
    "written between", "another written between", "a mode between",
]  # fmt: skip


def matches(library, name):
    """Counts of a case, and what its handler got."""
    pattern, function = _cases(library)[name]
    values = []

    def handler(match, *args, **kwargs):
        values.append((str(args), str(sorted(kwargs.items())), str(match.nodes)))

    patterns = library.matcher.PatternMatcherPass()
    library.matcher.register_graph_pattern(pattern, pass_dict=patterns)(handler)
    shapes = [(4, 4)] * function.__code__.co_argcount
    return *library.apply(patterns, library.trace(function, *shapes)), values


def _replacements(library):
    """name: (search, replacement, example inputs, options, function to trace)"""
    torch, t = library.torch, library.tensor
    grad = {"trace_fn": library.matcher.joint_fwd_bwd}
    return {
        "pair": (lambda x, y: (x * y).sum(1), lambda x, y: (x + y).amax(1), 2, {},
                 lambda x: (x * x).sum(1) + (x * 2).sum(1) + (x * (x + 1)).sum(0)),
        "number": (lambda x: x * 3.0, lambda x: x + 5, 1, {}, lambda x: x * 3.0 + x * 4.0),
        "parameter": (lambda x, c: (x * c).tanh(), lambda x, c: (x + c).relu(), 1,
                      {"scalar_workaround": {"c": 0.123}},
                      lambda x: (x * 3.0).tanh() + (x * 4.0).tanh()),
        "sizes": (lambda x: x.view(-1).relu(), lambda x: x.view(-1).tanh(), 1, {},
                  lambda x: x.view(-1).relu()),
        "other sizes": (lambda x: x.view(2, -1).relu(), lambda x: x.view(2, -1).tanh(), 1, {},
                        lambda x: x.view(-1, 2).relu()),
        "two results": (lambda x, y: (lambda s: (s, s.relu()))(x + y),
                        lambda x, y: (y - x, x.tanh()), 2, {},
                        lambda x: (lambda s: s * s.relu())(x + x * 2)),
        "different": (lambda x, y: (x * y).relu(), lambda x, y: x + y, 2,
                      {"exclusive_arg_names": ["x", "y"]},
                      lambda x: (x * x).relu() + (x * (x + 1)).relu()),
        "checked": (lambda x, y: x + y, lambda x, y: x - y, 2,
                    {"extra_check": lambda match: match.kwargs["y"].meta["val"].shape[0] == 4},
                    lambda x: (x + x).sum() * (x[:2] + x[2:])),
        "joint": (lambda x: x.relu().sum(), lambda x: x.tanh().sum(), [t(4, 4, grad=True)], grad,
                  lambda x: x.relu().sum() * 2),
        "joint one": (lambda x: x.sin(), lambda x: x.exp(), [t(4, 4, grad=True)], grad,
                      lambda x: x.sin() * x.detach()),
    }, torch  # fmt: skip


REPLACEMENTS = [
    "pair", "number", "parameter", "sizes", "other sizes", "two results", "different", "checked",
    "joint", "joint one",
]  # fmt: skip


def replaced(library, name):
    """Counts of a replacement, what is called afterwards, and the module."""
    search, replace, examples, options, function = _replacements(library)[0][name]
    matcher = library.matcher
    if isinstance(examples, int):
        examples = [library.tensor(8, 8) for _ in range(examples)]
    options = {"trace_fn": matcher.fwd_only, **options}
    patterns = matcher.PatternMatcherPass()
    matcher.register_replacement(search, replace, examples, pass_dicts=patterns, **options)
    if options["trace_fn"] is matcher.joint_fwd_bwd:
        module = matcher.joint_fwd_bwd(function, [library.tensor(4, 4, grad=True)])
    else:
        module = library.trace(function)
    return *library.apply(patterns, module), module
