"""Function transforms, higher derivatives, views under autograd, hooks on parameters."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from tests.differential.show import describe, numbers, raised


def model_ensemble() -> None:
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = stack_module_state(models)
    base = nn.Linear(3, 2).to("meta")
    x = torch.randn(5, 3)
    out = vmap(lambda p, b, v: functional_call(base, (p, b), (v,)), in_dims=(0, 0, None))(
        params, buffers, x
    )
    print(
        out.shape,
        torch.allclose(out[1], models[1](x)),
        {k: describe(v) for k, v in params.items()},
        buffers,
    )


def per_sample_gradients() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    params = {k: v.detach() for k, v in net.named_parameters()}
    x, y = torch.randn(6, 3), torch.randint(0, 2, (6,))
    loss = lambda p, a, b: F.cross_entropy(functional_call(net, p, (a[None],)), b[None])  # noqa: E731
    grads = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
    total = grad(lambda p: F.cross_entropy(functional_call(net, p, (x,)), y))(params)
    print(
        {
            k: (tuple(g.shape), torch.allclose(g.mean(0), total[k], atol=1e-6))
            for k, g in grads.items()
        }
    )


def nested_transforms() -> None:
    f = lambda x: (x**3).sum()  # noqa: E731
    x = torch.tensor([1.0, 2.0])
    print(
        grad(lambda v: grad(f)(v).sum())(x),
        hessian(f)(x),
        jacfwd(jacrev(f))(x),
        vmap(vmap(torch.sin))(torch.zeros(2, 2)),
        jvp(grad(f), (x,), (x,)),
    )
    out, fn = linearize(f, x)
    print(
        out,
        fn(torch.ones(2)),
        grad(f, argnums=0)(x),
        grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x),
        grad(lambda a: (a.sum(), a * 2), has_aux=True)(x),
    )
    print(
        vjp(lambda a: (a, a * 2), x)[1]((x, x)),
        jacrev(lambda a: {"y": a * 2})(x),
        jacfwd(lambda a, b: a * b, argnums=1)(x, x),
        vmap(lambda d: d["a"] + 1)({"a": x}),
    )
    print(
        raised(lambda: grad(lambda v: v)(x)),
        raised(lambda: grad(f)(x.long())),
        raised(lambda: vmap(torch.add)(x, torch.ones(3))),
        raised(lambda: jvp(f, (x,), (torch.ones(3),))),
    )


def vmap_over_modules() -> None:
    x = torch.randn(3, 2, 4)
    print(
        vmap(nn.Linear(4, 2))(x).shape,
        vmap(lambda v: F.softmax(v, -1))(x).sum(),
        vmap(torch.dot)(x[:, 0], x[:, 1]).shape,
        vmap(torch.linalg.inv)(torch.eye(2).expand(3, 2, 2)).shape,
    )
    print(
        vmap(lambda v: v.sort()[0])(x).shape,
        vmap(lambda v: torch.where(v > 0, v, 0.0).sum())(x).shape,
        vmap(lambda v: v[0], in_dims=2)(x).shape,
        vmap(lambda v, k: v * k, (0, None))(x, 2).shape,
        vmap(torch.mm, chunk_size=2)(x, x.mT).shape,
    )
    print(
        raised(lambda: vmap(lambda v: v if v.sum() > 0 else -v)(x)),
        raised(lambda: vmap(lambda v: 3)(x)),
        raised(lambda: vmap(lambda v: v.add_(1))(3)),
        raised(lambda: vmap(lambda: 1)()),
        vmap(F.mse_loss)(x, x).shape,
    )


def third_derivatives() -> None:
    x = torch.tensor(1.5, requires_grad=True)
    y = x.sin() * x**2
    for _ in range(4):
        (y,) = torch.autograd.grad(y, x, create_graph=True)
        print(numbers(y), y.requires_grad)
    w = torch.randn(3, 3, requires_grad=True)
    g = torch.autograd.grad((w @ w).trace().exp(), w, create_graph=True)[0]
    hv = torch.autograd.grad((g * torch.ones(3, 3)).sum(), w)[0]
    print(numbers(hv.norm(), 2), raised(lambda: torch.autograd.grad(g.sum(), w)))


def views_with_gradients() -> None:
    x = torch.zeros(4, requires_grad=True)
    y = x * 1
    v = y[1:3]
    v += 2
    y[0] = 5
    y.sum().backward()
    print(
        x.grad,
        y,
        type(y.grad_fn).__name__,
        type(v.grad_fn).__name__,
        v._is_view(),
        v._base is y,
        y._version,
    )
    a = torch.ones(2, 2, requires_grad=True)
    b = a.clone()
    b.t()[0].mul_(3)
    b.diagonal().zero_()
    b.view(-1)[1:2].fill_(7)
    (b * torch.arange(4.0).view(2, 2)).sum().backward()
    print(a.grad, b, b.grad_fn.name())
    c = torch.ones(3, requires_grad=True) * 2
    p, q = c.chunk(2)
    print(raised(lambda: p.add_(1)), raised(lambda: c.detach().add_(1)), c._version)
    d = c.detach()
    d.zero_()
    print(c, raised(lambda: (c * c).sum().backward()))


def inplace_on_results() -> None:
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    for name in (
        "relu_",
        "sigmoid_",
        "tanh_",
        "exp_",
        "neg_",
        "sqrt_",
        "abs_",
        "sin_",
        "clamp_",
        "square_",
        "floor_",
        "zero_",
    ):
        y = x * 1
        z = getattr(y, name)(0.5) if name == "clamp_" else getattr(y, name)()
        z.sum().backward()
        print(name, numbers(x.grad), type(z.grad_fn).__name__, z is y)
        x.grad = None
    y = x * 1
    y.masked_fill_(y > 0, 9.0).index_fill_(0, torch.tensor([1]), 4.0)
    y.sum().backward()
    print(x.grad, y)


def parameter_hooks() -> None:
    net = nn.Linear(2, 2)
    order = []
    for name, p in net.named_parameters():
        p.register_hook(lambda g, n=name: order.append(("grad", n)))
        p.register_post_accumulate_grad_hook(
            lambda p, n=name: order.append(("post", n, p.grad is not None))
        )
    net(torch.ones(1, 2)).sum().backward()
    print(sorted(order))
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in nn.Linear(2, 2).parameters()}
    params = list(optimizers)
    for p in params:
        p.register_post_accumulate_grad_hook(
            lambda q: (optimizers[q].step(), optimizers[q].zero_grad()) and None
        )
    (params[0].sum() + params[1].sum()).backward()
    print([p.grad for p in params], numbers(params[1]))
    h = params[0].register_hook(lambda g: g * 0)
    print(
        h.id in params[0]._backward_hooks,
        raised(lambda: params[0].register_hook(lambda g: "x") and params[0].sum().backward()),
    )


def _order_of_hooks(run, parameters) -> list[str]:
    order: list[str] = []
    for name, p in parameters:
        p.register_hook(lambda g, n=name: order.append(n))
    result = run()
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    return order


def order_of_hooks() -> None:
    layers = [
        (nn.Linear(2, 2), (3, 2)),
        (nn.Linear(2, 2), (3, 1, 2)),
        (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), (3, 2)),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2)), (1, 2, 7, 7)),
        (nn.RMSNorm(2), (3, 2)),
        (nn.LayerNorm(2), (3, 2)),
        (nn.TransformerEncoderLayer(4, 2, 8), (3, 1, 4)),
    ]
    for net, shape in layers:
        x = torch.randn(shape, requires_grad=True)
        named = [*net.named_parameters(), ("x", x)]
        print(_order_of_hooks(lambda net=net, x=x: net(x), named))
    for function in (
        lambda a, b, c, d: torch.stack([a, b, c, d]),
        lambda a, b, c, d: torch.cat([d, c, b, a]),
        lambda a, b, c, d: (a * b).sin() * c + d,
        torch.addcmul,
        nn.functional.mse_loss,
    ):
        count = 2 if function is nn.functional.mse_loss else 4 - (function is torch.addcmul)
        leaves = [torch.ones(2, requires_grad=True) for _ in range(count)]
        print(_order_of_hooks(lambda f=function, x=leaves: f(*x), zip("abcd", leaves)))


def straight_through() -> None:
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g.clamp(-1, 1)

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.scale * g, None

    x = torch.tensor([0.4, 1.6], requires_grad=True)
    y = Round.apply(x) * 3 + Reverse.apply(x, 0.5)
    y.sum().backward()
    print(y, x.grad, Round.apply(x), Reverse.apply(x, 1.0))
    z = x + (x.round() - x).detach()
    z.sum().backward()
    print(x.grad, z)


def multiple_outputs() -> None:
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2, x.sum(), 5, None

        @staticmethod
        def backward(ctx, a, b, c, d):
            print(a, b, c, d)
            return a * 2 + b

    x = torch.ones(2, requires_grad=True)
    out = Split.apply(x)
    print(out)
    out[0].sum().backward(retain_graph=True)
    out[1].backward()
    print(x.grad, out[0].grad_fn is out[1].grad_fn, out[1].output_nr, out[0].grad_fn.next_functions)


def gradient_checks() -> None:
    from torch.autograd import gradcheck, gradgradcheck

    x = torch.randn(3, dtype=torch.double, requires_grad=True)
    print(
        gradcheck(torch.sin, x),
        gradgradcheck(lambda v: (v**3).sum(), x),
        gradcheck(lambda a: a.float().double(), x, raise_exception=False),
    )

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    print(
        gradcheck(Bad.apply, x, raise_exception=False),
        raised(lambda: gradcheck(Bad.apply, x)),
        raised(lambda: gradcheck(torch.sin, x.float())),
    )


def influence_of_data() -> None:
    w = torch.zeros(2, requires_grad=True)
    x = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    eps = torch.zeros(2, requires_grad=True)
    losses = ((x @ w - 1) ** 2) * (1 + eps)
    (g,) = torch.autograd.grad(losses.sum(), w, create_graph=True)
    new = w - 0.1 * g
    (e,) = torch.autograd.grad(((x @ new) ** 2).sum(), eps)
    print(e, new, g.grad_fn is not None)


def adversarial_examples() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    x = torch.rand(2, 4)
    y = torch.tensor([0, 2])
    adversary = x.clone().detach()
    for _ in range(3):
        adversary.requires_grad_(True)
        loss = F.cross_entropy(net(adversary), y)
        (g,) = torch.autograd.grad(loss, adversary)
        adversary = adversary.detach() + 0.1 * g.sign()
        adversary = torch.min(torch.max(adversary, x - 0.2), x + 0.2).clamp(0, 1)
    print(
        numbers(adversary),
        numbers(loss),
        adversary.requires_grad,
        [p.grad for p in net.parameters()][0],
    )


def saliency() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    store = {}
    net[0].register_forward_hook(lambda m, i, o: store.__setitem__("a", o))
    net[0].register_full_backward_hook(lambda m, gi, go: store.__setitem__("g", go[0]))
    x = torch.randn(1, 1, 4, 4, requires_grad=True)
    net(x)[0, 1].backward()
    weights = store["g"].mean((2, 3), keepdim=True)
    cam = F.relu((weights * store["a"]).sum(1))
    print(numbers(cam), numbers(x.grad.abs().max()), describe(store["a"]), store["g"].requires_grad)


def second_order_optimizer() -> None:
    w = torch.tensor([2.0, -1.0], requires_grad=True)
    f = lambda v: v[0] ** 4 + v[0] * v[1] + (1 + v[1]) ** 2  # noqa: E731
    for _ in range(4):
        g = torch.autograd.grad(f(w), w)[0]
        h = torch.autograd.functional.hessian(f, w)
        with torch.no_grad():
            w -= torch.linalg.solve(h, g)
        print(numbers(w), numbers(f(w)))


def detached_branches() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    a = x * 2
    b = a.detach() * x
    c = (a.data * x).sum() + b.sum()
    c.backward()
    print(
        x.grad,
        a.detach().grad_fn,
        b.requires_grad,
        a.detach()._version,
        (x.detach() is x),
        x.data.data_ptr() == x.data_ptr(),
    )
    with torch.no_grad():
        d = x * 2
    print(
        d.requires_grad,
        d.is_leaf,
        (d * x).requires_grad,
        torch.tensor([1.0]).requires_grad_().is_leaf,
        x[0].is_leaf,
        nn.Parameter(x.detach()).is_leaf,
    )
    y = x.detach().clone().requires_grad_(True)
    (y * a.detach()).sum().backward()
    print(y.grad, x.grad, x.retains_grad, a.retains_grad)
