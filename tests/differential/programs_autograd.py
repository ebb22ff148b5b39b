"""Gradients, custom functions, hooks, higher derivatives, modes."""

from __future__ import annotations

import torch
from torch.autograd import Function

from tests.differential.show import describe, numbers, raised


def graph_nodes() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    w = torch.randn(3, requires_grad=True)
    y = ((x @ x.t()).relu() * w + 1).log_softmax(-1)[0].mean()
    node, depth = y.grad_fn, 0
    while node is not None and depth < 12:
        print(
            node.name(),
            type(node).__name__,
            [n[0].name() if n[0] else None for n in node.next_functions],
        )
        node, depth = node.next_functions[0][0] if node.next_functions else None, depth + 1
    print(y.grad_fn, x.grad_fn, x.is_leaf, y.is_leaf, x.detach().is_leaf, (x * 1).is_leaf)


def accumulation() -> None:
    x = torch.ones(2, requires_grad=True)
    for _ in range(3):
        (x * 2).sum().backward()
    print(x.grad, x.grad.requires_grad, x.grad.grad_fn)
    x.grad = None
    y = (x**2).sum()
    y.backward(retain_graph=True)
    y.backward()
    print(x.grad, raised(y.backward))
    print(raised(lambda: (x * 2).backward()), raised(lambda: torch.ones(2).sum().backward()))
    (x * 2).backward(torch.tensor([1.0, 10.0]))
    print(x.grad, raised(lambda: (x * 2).backward(torch.ones(3))))
    print(raised(lambda: setattr(x, "grad", torch.ones(3))), raised(lambda: setattr(x, "grad", 1)))
    z = x * 3
    print(z.grad)
    z.retain_grad()
    z.sum().backward()
    print(z.grad, z.retains_grad)


def grad_function() -> None:
    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    z = x**2 * y
    print(torch.autograd.grad(z, (x, y), retain_graph=True), x.grad)
    (g,) = torch.autograd.grad(z, x, create_graph=True)
    print(g, torch.autograd.grad(g, (x, y), allow_unused=True))
    print(
        raised(lambda: torch.autograd.grad(x * 2, y)),
        torch.autograd.grad(x * 2, y, allow_unused=True),
    )
    print(torch.autograd.grad(x * 2, y, allow_unused=True, materialize_grads=True))
    out = torch.stack([x, y * 2])
    print(torch.autograd.grad(out, (x, y), torch.eye(2), is_grads_batched=True))
    print(
        raised(lambda: torch.autograd.grad(out, x)),
        raised(lambda: torch.autograd.grad(out.sum(), torch.ones(1))),
    )


class _Cube(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        print("needs", ctx.needs_input_grad)
        return grad * 3 * x**2 * ctx.scale, None


class _Sign(Function):
    @staticmethod
    def forward(x):
        return x.sign(), x.abs()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[0])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx, sign_grad, abs_grad):
        print("grads", sign_grad is None, abs_grad is None)
        return abs_grad * ctx.saved_tensors[0]


def custom_functions() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = _Cube.apply(x, 2.0)
    print(y, type(y.grad_fn).__name__, y.grad_fn.name(), describe(y))
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    print(g, torch.autograd.grad(g.sum(), x))
    sign, size = _Sign.apply(x)
    print(sign.requires_grad, size.requires_grad, size)
    size.sum().backward()
    print(x.grad, raised(lambda: _Cube(x)), raised(lambda: _Cube.apply(x)))


class _InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class _Wrong(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad):
        return grad


class _Once(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * 2


def custom_function_rules() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    z = _InPlace.apply(y)
    z.sum().backward()
    print(x.grad, z is y, y)
    print(raised(lambda: _Wrong.apply(x, x).sum().backward()), raised(lambda: _InPlace.apply(x)))
    (g,) = torch.autograd.grad(_Once.apply(x).sum(), x, create_graph=True)
    print(g.requires_grad, raised(lambda: g.sum().backward()))
    print(
        torch.autograd.gradcheck(
            lambda v: _Cube.apply(v, 1.0), torch.ones(1, dtype=torch.double, requires_grad=True)
        )
    )


def tensor_hooks() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: print("seen", g))
    x.register_post_accumulate_grad_hook(lambda p: print("post", p.grad))
    y.sum().backward()
    handle.remove()
    (x * 2).sum().backward()
    print(raised(lambda: torch.ones(1).register_hook(print)), x._backward_hooks)
    z = (x * 3).exp()
    z.grad_fn.register_hook(lambda gi, go: print("node", len(gi), len(go), gi))
    z.grad_fn.register_prehook(lambda go: (go[0] * 2,))
    z.sum().backward()
    print(numbers(x.grad))
    outs = [x * 2, x * 3]
    torch.autograd.graph.register_multi_grad_hook(
        outs, lambda gs: print("multi", [g is not None for g in gs])
    )
    (outs[0] + outs[1]).sum().backward()


def saved_tensor_hooks() -> None:
    packed = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.clone()

    x = torch.randn(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = (x.exp() * x).sum()
    y.backward()
    print(packed, numbers(x.grad - (x.exp() * (1 + x)).detach()))
    with torch.autograd.graph.save_on_cpu():
        z = (x * x).sum()
    z.backward()
    y = x * x
    print(
        y.grad_fn._saved_self is x,
        y.grad_fn._saved_other.shape,
        "_saved_self" in dir(y.grad_fn),
        "_saved_tensors" in dir(y.grad_fn),
    )
    print(x.exp().grad_fn._saved_result.shape, x.sum(0).grad_fn._saved_self_sym_sizes)


def grad_modes() -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad() as value:
        y = x * 2
        print(y.requires_grad, torch.is_grad_enabled(), value)
        with torch.enable_grad():
            print((x * 2).requires_grad)
    with torch.inference_mode():
        z = x * 2
        print(z.is_inference(), z.requires_grad, torch.is_inference_mode_enabled())
    print(
        raised(lambda: z.add_(1)),
        raised(lambda: (z * x).sum()),
        z._is_view() if hasattr(z, "_is_view") else None,
    )
    print(raised(lambda: z._version))

    @torch.no_grad()
    def evaluate(v):
        return v * 2

    print(evaluate(x).requires_grad, evaluate.__name__)
    torch.set_grad_enabled(False)
    print((x * 2).requires_grad)
    torch.set_grad_enabled(True)
    with torch.set_grad_enabled(False):
        print(torch.is_grad_enabled())
    a = x.view(2)
    with torch.no_grad():
        b = x.view(2)
    print(raised(lambda: a.add_(1)), raised(lambda: b.add_(1)), describe(b))
    print(
        x.requires_grad_(False).requires_grad,
        raised(lambda: torch.ones(2, dtype=torch.int64, requires_grad=True)),
    )


def anomaly_mode() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with torch.autograd.detect_anomaly():
        y = (torch.sqrt(x) * 0).sum()
        print(raised(y.backward))
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        (torch.sqrt(x) * 0).sum().backward()
    print(x.grad, torch.is_anomaly_enabled())


def jacobians_and_hessians() -> None:
    from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

    f = lambda x: (x**3).sum()  # noqa: E731
    g = lambda x, y: (x * y, x.sum())  # noqa: E731
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    print(jacobian(lambda v: v**2, x), hessian(f, x), hvp(f, x, y), vhp(f, x, y))
    print(jacobian(g, (x, y)), jvp(g, (x, y), (y, x)), vjp(lambda v: v**2, x, y))
    print(hessian(lambda a, b: (a * b).sum(), (x, y)), jacobian(lambda v: v**2, x, vectorize=True))
    print(
        jacobian(lambda v: v.exp(), x, create_graph=True).requires_grad,
        raised(lambda: hessian(lambda v: v, x)),
    )


def functorch_transforms() -> None:
    from torch.func import (
        functional_call,
        grad,
        grad_and_value,
        hessian,
        jacfwd,
        jacrev,
        jvp,
        vjp,
        vmap,
    )

    f = lambda x: (x.sin() * x).sum()  # noqa: E731
    x = torch.tensor([0.5, 1.0, 1.5])
    print(numbers(grad(f)(x)), numbers(hessian(f)(x)), [numbers(v) for v in grad_and_value(f)(x)])
    print(
        numbers(jacrev(torch.sin)(x)),
        numbers(jacfwd(lambda v: v**2)(x)),
        numbers(vmap(grad(lambda v: v**3))(x)),
    )
    value, pull = vjp(torch.exp, x)
    print(
        numbers(pull(torch.ones(3))[0]),
        [numbers(v) for v in jvp(torch.exp, (x,), (torch.ones(3),))],
    )
    net = torch.nn.Linear(3, 2)
    parameters = dict(net.named_parameters())
    loss = lambda p, a: functional_call(net, p, (a,)).pow(2).sum()  # noqa: E731
    per_sample = vmap(grad(loss), (None, 0))(parameters, torch.randn(5, 3))
    print({k: tuple(v.shape) for k, v in per_sample.items()})
    print(vmap(lambda a, b: a @ b, in_dims=(0, None))(torch.ones(4, 2, 3), torch.ones(3)).shape)
    print(
        raised(lambda: vmap(lambda a: a.item())(x)), raised(lambda: vmap(torch.sum, in_dims=3)(x))
    )
    print(
        raised(lambda: grad(torch.sin)(x)),
        vmap(lambda a: a + torch.rand(()), randomness="different")(x).shape,
    )
    print(
        raised(lambda: vmap(lambda a: a + torch.rand(()))(x)),
        vmap(lambda a: (a, a * 2), out_dims=(0, -1))(torch.ones(2, 3))[1].shape,
    )


def forward_mode() -> None:
    import torch.autograd.forward_ad as fwad

    x, t = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.5])
    with fwad.dual_level():
        dual = fwad.make_dual(x, t)
        out = fwad.unpack_dual((dual**2).sin() * dual[0])
        print(numbers(out.primal), numbers(out.tangent), fwad.unpack_dual(x).tangent)
    print(raised(lambda: fwad.make_dual(x, t)))


def penalties() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x = torch.randn(5, 2, requires_grad=True)
    out = net(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    penalty = ((g.norm(dim=1) - 1) ** 2).mean()
    penalty.backward()
    print(
        numbers(penalty),
        [numbers(p.grad) if p.grad is not None else None for p in net.parameters()],
    )
    print(type(g.grad_fn).__name__, type(penalty.grad_fn).__name__)


def checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    calls = []

    def block(v):
        calls.append(torch.is_grad_enabled())
        return torch.nn.functional.dropout(v.tanh(), 0.5)

    x = torch.ones(8, requires_grad=True)
    for reentrant in (True, False):
        torch.manual_seed(3)
        y = checkpoint(block, x, use_reentrant=reentrant)
        y.sum().backward()
        print(y.detach() != 0, numbers(x.grad), calls, type(y.grad_fn).__name__)
        x.grad = None
    layers = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(4)])
    out = checkpoint_sequential(
        layers, 2, torch.ones(1, 3, requires_grad=True), use_reentrant=False
    )
    print(numbers(out))
    checkpoint(block, x)


def complex_gradients() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (z.abs() ** 2).sum().backward()
    print(z.grad, raised(lambda: (z * 2).sum().backward()))
    z.grad = None
    torch.view_as_real(z * 1j).sum().backward()
    print(
        z.grad,
        z.conj().is_conj(),
        z.real.requires_grad,
        type(z.real.grad_fn).__name__,
        z.imag.grad_fn.name(),
    )
    z.grad = None
    (z.conj() * z).real.sum().backward()
    print(
        z.grad,
        z.mH if z.dim() > 1 else z.angle(),
        z.is_complex(),
        torch.polar(torch.ones(1), torch.zeros(1)),
    )
