"""Promotion, odd indices, views and versions, complex numbers, subclasses, autocast, transforms."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812

from tests.differential.show import describe, numbers, raised


def promotion_with_numpy_scalars() -> None:
    i, f, h = torch.arange(3), torch.ones(3), torch.ones(3, dtype=torch.float16)
    for value in (np.float32(2), np.float64(2), np.int64(2), np.int8(2), 2, 2.0, True, 2j):
        print(type(value).__name__, (i + value).dtype, (f * value).dtype, (h - value).dtype)
        print(raised(lambda value=value: (value + i).dtype), raised(lambda value=value: value * h))
    print((torch.tensor(2.0, dtype=torch.float64) * f).dtype, (torch.tensor(2) * h).dtype)
    print(
        (torch.tensor([2.0], dtype=torch.float64) * f).dtype,
        (i / i).dtype,
        (i // 2).dtype,
        (i**2.0).dtype,
    )
    print((np.ones(3) * f.numpy()).dtype, (f + np.ones(3)).dtype, type(np.ones(3) + f).__name__)
    print(
        torch.result_type(i, 2.0),
        torch.result_type(h, 1j),
        torch.promote_types(torch.uint8, torch.int8),
    )


def promotion_in_place() -> None:
    i, f = torch.arange(3), torch.ones(3)
    print(
        raised(i.add_, 1.5), raised(i.mul_, f), raised(i.div_, 2), i.div_(2, rounding_mode="floor")
    )
    print(
        raised(f.add_, 1j), raised(lambda: torch.add(f, f, out=torch.empty(3, dtype=torch.int64)))
    )
    print(
        torch.add(i, i, out=torch.empty(3)),
        raised(f.bool().add_, 1),
        f.half().add_(f.double()).dtype,
    )
    b = torch.tensor([True, False])
    print(
        b + b, b * 2, raised(lambda: b - b), raised(lambda: -b), b.sum(), (b + 1).dtype, b / 2, ~b
    )
    print(
        raised(lambda: torch.ones(2, dtype=torch.uint8) - 3), torch.ones(2, dtype=torch.uint8) - 3
    )
    print(raised(lambda: i << 1.0), raised(lambda: f & 1), i & 1, i ^ 3, raised(lambda: f << 1))


def reductions_of_dtypes() -> None:
    x = torch.tensor([[1, 2], [3, 4]])
    print(
        x.sum().dtype,
        x.to(torch.int8).sum().dtype,
        raised(x.mean),
        x.mean(dtype=torch.float64),
        x.prod(),
    )
    print(
        x.bool().sum(), x.to(torch.uint8).cumsum(0).dtype, raised(lambda: x.std()), x.float().var(0)
    )
    print(
        x.max(),
        x.max(0),
        x.argmax(),
        raised(lambda: x.max(2)),
        raised(lambda: torch.empty(0).max()),
    )
    print(
        torch.empty(0).sum(), torch.empty(0, 3).sum(0), torch.empty(0).prod(), torch.empty(0).mean()
    )
    print(
        x.float().norm(),
        raised(x.norm),
        x.float().norm(1, 0),
        x.any(),
        x.all(1),
        x.float().logsumexp(1),
    )
    print(x.median(), x.float().quantile(0.3), x.mode(0), x.aminmax(), x.count_nonzero(0))


def index_put_forms() -> None:
    x = torch.zeros(3, 4)
    x.index_put_(
        (torch.tensor([0, 0, 2]), torch.tensor([1, 1, 3])), torch.tensor([1.0, 2, 3]), True
    )
    print(x)
    x.index_put_((torch.tensor([True, False, True]),), torch.tensor(7.0))
    print(x, raised(lambda: x.index_put_((torch.tensor([5]),), torch.tensor(1.0))))
    print(raised(lambda: x.index_put_((torch.tensor([0]),), torch.ones(1, dtype=torch.float64))))
    print(raised(lambda: x.index_put_((torch.tensor([0.5]),), torch.tensor(1.0))))
    print(x.index_put((torch.tensor([-1]),), torch.arange(4.0)))
    print(raised(lambda: x.index_put_((torch.tensor([0, 1]),), torch.ones(3, 4))))
    x[torch.tensor([[0, 1], [1, 2]])] = torch.tensor([1.0, 2, 3, 4])
    print(x, raised(lambda: x.__setitem__(torch.tensor([0, 1, 2, 0, 0]), torch.ones(2))))
    x[..., None, 0] = 5
    x[1:, [0, 2]] = torch.tensor([[9.0], [8.0]])
    print(
        x, x[None, :, ::2].shape, raised(lambda: x[::-1]), raised(lambda: x[0, 0, 0]), x[[]].shape
    )


def scatter_with_odd_arguments() -> None:
    x, src = torch.zeros(3, 3), torch.arange(1.0, 10).view(3, 3)
    index = torch.tensor([[0, 2], [1, 1]])
    print(
        x.scatter(1, index, src), x.scatter(0, index, 5.0), x.scatter(-1, index, src, reduce="add")
    )
    print(x.scatter_add(0, index, src), raised(lambda: x.scatter(1, torch.tensor([[3]]), src)))
    print(
        raised(lambda: x.scatter(1, index.float(), src)), raised(lambda: x.scatter(2, index, src))
    )
    print(raised(lambda: x.scatter(1, torch.zeros(4, 1, dtype=torch.int64), src)))
    print(raised(lambda: x.scatter(1, index, src.double())), x.scatter(1, index[:0], src).equal(x))
    ones = torch.ones(3)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        print(
            reduce,
            ones.scatter_reduce(0, torch.tensor([0, 0, 2]), torch.tensor([2.0, 4, 6]), reduce),
            ones.scatter_reduce(
                0, torch.tensor([0, 0]), torch.tensor([2.0, 4]), reduce, include_self=False
            ),
        )
    print(raised(lambda: ones.scatter_reduce(0, torch.tensor([0]), ones, "median")))
    print(ones.index_add(0, torch.tensor([0, 0]), torch.tensor([1.0, 2]), alpha=2))
    print(
        ones.index_reduce(0, torch.tensor([1]), torch.tensor([5.0]), "prod"),
        ones.index_copy(0, torch.tensor([2]), torch.tensor([9.0])),
    )
    print(
        ones.index_fill(0, torch.tensor([1]), -1),
        ones.put(torch.tensor([0, -1]), torch.tensor([3.0, 4])),
        src.take(torch.tensor([0, -1])),
    )


def gather_and_select() -> None:
    x = torch.arange(6.0).view(2, 3)
    print(x.gather(1, torch.tensor([[2], [0]])), raised(lambda: x.gather(1, torch.tensor([[3]]))))
    print(
        raised(lambda: x.gather(0, torch.tensor([0]))),
        x.take_along_dim(torch.tensor([[1], [2]]), 1),
    )
    print(
        x.index_select(1, torch.tensor([0, 0])),
        raised(lambda: x.index_select(1, torch.tensor([[0]]))),
    )
    print(
        x.masked_select(x > 2),
        raised(lambda: x.masked_select(x)),
        x.masked_fill(x > 4, float("inf")),
    )
    print(
        x.masked_scatter(x > 3, torch.tensor([7.0, 8, 9])),
        raised(lambda: x.masked_scatter(x > -1, torch.ones(2))),
    )
    print(
        x.narrow(1, -2, 2),
        raised(lambda: x.narrow(1, 2, 2)),
        raised(lambda: x.select(2, 0)),
        x.select(-1, -1),
    )
    print(
        torch.where(x > 2, x, -1),
        torch.where(x > 2, 1, 0.5).dtype,
        raised(lambda: torch.where(x, x, x)),
    )
    print(
        x.diagonal(1),
        x.diagonal_scatter(torch.zeros(2)),
        x.select_scatter(torch.ones(2), 1, 0),
        x.slice_scatter(torch.ones(2, 1), 1, 2),
    )


def views_and_versions() -> None:
    x = torch.zeros(4)
    v = x.view(2, 2)
    w = v[0]
    print(x._version, v._version, v._is_view(), w._base is x, x._base)
    w.add_(1)
    print(x, x._version, v._version, w._version, x.detach()._version, x.data._version)
    x.data.add_(1)
    x.detach().add_(1)
    print(x._version, x.clone()._version, x.view(4)._version)
    a = torch.ones(3, requires_grad=True)
    b = a * 2
    c = b.exp()
    b.add_(1)
    print(raised(c.sum().backward), b._version)
    d = a * 2
    e = d * d
    with torch.no_grad():
        d.zero_()
    print(raised(e.sum().backward), raised(lambda: a.add_(1)), raised(lambda: a.view(3).add_(1)))
    with torch.inference_mode():
        n = torch.ones(2)
    print(
        n.is_inference(),
        raised(lambda: n._version),
        raised(lambda: (n * a[:2]).sum()),
        raised(lambda: n.add_(1)),
    )


def views_of_views() -> None:
    x = torch.arange(12.0).view(3, 4)
    print(
        x.t().is_contiguous(),
        raised(lambda: x.t().view(12)),
        x.t().reshape(12)._base is None,
        x.flatten()._base is x._base,
    )
    print(
        x[:, 1:3].stride(),
        x[:, 1:3].storage_offset(),
        x.expand(2, 3, 4).stride(),
        x[::2, ::3].stride(),
    )
    print(
        x.unfold(1, 2, 1).shape,
        x.as_strided((2, 2), (1, 5), 2),
        raised(lambda: x.as_strided((20,), (1,))),
    )
    print(
        x.view(torch.int32).dtype,
        x.view(-1).view(2, -1).shape,
        raised(lambda: x.view(5, -1)),
        x.view(torch.uint8).shape,
    )
    y = x.expand(2, 3, 4)
    print(
        raised(lambda: y.add_(1)), y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    )
    print(
        x.squeeze(0).data_ptr() == x.data_ptr(),
        x.contiguous() is x,
        x.t().contiguous().stride(),
        x.movedim(0, 1).stride(),
    )
    a, b = x.split([1, 2])
    a.fill_(-1)
    print(
        x[0],
        b.storage_offset(),
        [c.shape for c in x.chunk(5)],
        [c.shape for c in x.tensor_split((1, 1), 1)],
    )
    print(
        torch.broadcast_tensors(x, torch.ones(1, 4))[1].stride(),
        x.T.T.is_set_to(x),
        x.mT.shape,
        raised(lambda: x[0].mT),
    )


def complex_tensors() -> None:
    z = torch.tensor([1 + 2j, -3j, 0.5])
    print(
        z,
        z.real,
        z.imag,
        z.abs(),
        z.angle(),
        z.conj(),
        z.conj().is_conj(),
        z.conj().resolve_conj().is_conj(),
    )
    print(z * 2, z / (1 + 1j), z**2, z.exp(), z.sqrt(), z.log(), z.sum(), z.prod(), z.mean())
    print(
        raised(lambda: z > 1),
        raised(z.max),
        raised(lambda: z.sort()),
        raised(lambda: z.float()),
        raised(lambda: z // 2),
    )
    print(
        torch.view_as_real(z),
        torch.view_as_complex(torch.ones(2, 2)),
        torch.complex(torch.ones(1), torch.ones(1)),
    )
    print(
        torch.polar(torch.tensor([2.0]), torch.tensor([math.pi / 2])),
        z.isnan(),
        z.isreal(),
        z.sgn(),
        raised(z.sign),
    )
    print(
        torch.vdot(z, z),
        torch.dot(z, z),
        z.norm(),
        z @ z.conj(),
        z[None].mH.shape,
        raised(lambda: torch.vdot(z, z.real)),
    )
    w = z.clone().requires_grad_()
    (w * w.conj()).real.sum().backward()
    print(w.grad, raised(lambda: (w * w).sum().backward()), torch.is_complex(z), z.dtype.to_real())
    z.real = torch.zeros(3)
    z.imag[0] = 9
    print(
        z,
        torch.tensor([1, 2j]).dtype,
        torch.tensor([1, 2j], dtype=torch.complex128).dtype,
        complex(z[0]),
    )


def ranges_and_spaces() -> None:
    print(
        torch.linspace(0, 1j, 3),
        torch.linspace(1, 2, 5, dtype=torch.float64).tolist(),
        torch.linspace(3, 9, 3, dtype=torch.int64),
    )
    print(
        torch.logspace(0, 2, 3),
        torch.logspace(0, 1j, 2, 2.0),
        torch.linspace(0, 1, 1),
        torch.linspace(0, 1, 0),
    )
    print(
        raised(torch.linspace, 0, 1, -1),
        raised(torch.linspace, 0, 1),
        raised(lambda: torch.linspace(0, 1j, 2, dtype=torch.float32)),
    )
    print(
        torch.arange(0, 1, 0.25),
        torch.arange(5, 0, -2),
        raised(torch.arange, 0, 5, -1),
        raised(torch.arange, 0, 1, 0),
        torch.arange(2.5),
    )
    print(
        torch.eye(2, 3),
        raised(torch.eye, -1),
        torch.full((2,), True),
        torch.full((), 3j),
        raised(torch.full, (2,), "a"),
        torch.zeros(()),
    )
    print(
        torch.tril_indices(3, 2),
        torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3])),
        torch.combinations(torch.arange(3)),
    )
    print(
        torch.vander(torch.tensor([1, 2, 3])),
        torch.meshgrid(torch.arange(2), torch.arange(2), indexing="xy")[0],
        torch.hann_window(4),
    )
    for name in ("mm", "bmm"):
        a = torch.ones((1,) * (name == "bmm") + (2, 2))
        print(raised(lambda name=name, a=a: getattr(torch, name)(a, a, out_dtype=torch.float32)))


class _Noted(torch.Tensor):
    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def noting_subclass() -> None:
    _Noted.calls.clear()
    x = torch.ones(2, 2).as_subclass(_Noted)
    y = (x + 1) * 2
    z = torch.cat([y, torch.zeros(1, 2)]).sum(0)
    print(type(z).__name__, z, [c for c in _Noted.calls if not c.startswith("__get")][:4])
    print(
        type(x[0]).__name__,
        type(x.shape).__name__,
        type(x.tolist()).__name__,
        type(x.max(0)).__name__,
        type(x.max(0).values).__name__,
    )
    print(
        type(x.detach()).__name__,
        type(x.data).__name__,
        type(copy.copy(x)).__name__,
        type(torch.ones_like(x)).__name__,
    )
    print(
        type(F.relu(x)).__name__,
        type(nn.Parameter(x)).__name__,
        isinstance(nn.Parameter(x), _Noted),
        type(np.asarray(x)).__name__,
    )
    with torch._C.DisableTorchFunctionSubclass():
        print(type(x + 1).__name__)


class _Refusing:
    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add:
            return cls(sum(a.value if isinstance(a, cls) else a for a in args))
        return NotImplemented


def duck_with_functions() -> None:
    d = _Refusing(2)
    print(
        torch.add(d, 3).value,
        torch.add(torch.ones(1), d).value,
        raised(torch.mul, d, 2),
        raised(F.relu, d),
    )
    print(raised(lambda: torch.stack([torch.ones(1), d])), torch.overrides.has_torch_function((d,)))
    print(
        torch.overrides.is_tensor_like(d),
        torch.is_tensor(d),
        torch.overrides.is_tensor_method_or_property(torch.Tensor.add),
    )


def function_modes() -> None:
    class Log(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(torch.overrides.resolve_name(func) or getattr(func, "__name__", "?"))
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    x = torch.ones(2, requires_grad=True)
    with Log():
        y = x * 2 + 1
        y.sum().backward()
        torch.zeros(2).fill_(3)
        F.softmax(x, 0)
        x.shape, x.grad
    print([name.rpartition(".")[2] if "__get__" not in name else name for name in names])
    with torch.device("meta"):
        print(torch.ones(2).device, torch.ones(2, device="cpu").device, torch.tensor([1]).device)


def autocast_rules() -> None:
    a, b = torch.ones(2, 2), torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        print(
            (a @ b).dtype,
            torch.mm(a, b).dtype,
            (a + b).dtype,
            (a @ b + a).dtype,
            F.linear(a, b).dtype,
            torch.bmm(a[None], b[None]).dtype,
        )
        print(
            F.mse_loss((a @ b), a).dtype,
            (a @ b).softmax(0).dtype,
            torch.cat([a @ b, a]).dtype,
            (a @ b).sum().dtype,
            (a @ b).exp().dtype,
        )
        with torch.autocast("cpu", enabled=False):
            print((a @ b).dtype, torch.is_autocast_enabled("cpu"))
        print(
            (a.double() @ b.double()).dtype,
            (a.long() @ b.long()).dtype,
            torch.get_autocast_dtype("cpu"),
            F.conv1d(a[None], b[None]).dtype,
        )
        print(
            raised(lambda: F.binary_cross_entropy((a @ b).sigmoid(), a)),
            torch.linalg.inv(a + torch.eye(2)).dtype,
            F.layer_norm(a @ b, (2,)).dtype,
        )
    net = nn.Linear(2, 2)
    with torch.autocast("cpu", dtype=torch.float16):
        y = net(a)
    y.sum().backward()
    print(
        y.dtype,
        net.weight.grad.dtype,
        describe(y),
        torch.is_autocast_enabled("cpu"),
        raised(torch.autocast, "nothing"),
    )
    print(
        raised(lambda: torch.autocast("cpu", dtype=torch.float32).__enter__().fast_dtype),
        raised(lambda: torch.autocast()),
    )


def compositions_of_transforms() -> None:
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

    def f(x):
        return (x.sin() * x).sum()

    x = torch.tensor([0.5, 1.0])
    print(
        numbers(grad(f)(x)),
        numbers(hessian(f)(x)),
        numbers(jacfwd(grad(f))(x)),
        numbers(jacrev(jacfwd(f))(x)),
    )
    print(
        numbers(vmap(grad(f))(torch.stack([x, x * 2]))),
        numbers(grad(lambda y: vmap(f)(y).sum())(torch.stack([x, x]))),
    )
    value, pull = vjp(lambda y: (y * 2, y.sum()), x)
    print(numbers(pull((x, torch.tensor(1.0)))[0]), numbers(jvp(f, (x,), (x,))[1]), raised(pull, x))
    print(
        grad_and_value(f, has_aux=False)(x)[1],
        raised(grad(lambda y: y), x),
        raised(vmap(f), torch.tensor(1.0)),
    )
    print(
        vmap(lambda a, b: a @ b, in_dims=(0, None))(torch.ones(3, 2), torch.ones(2)),
        vmap(torch.sum, in_dims=1, out_dims=0)(torch.ones(2, 3)),
    )
    print(
        raised(vmap(lambda a: a.item()), x),
        raised(vmap(lambda a: a if a > 0 else -a), x),
        raised(vmap(lambda a: 3), x),
    )
    print(
        raised(vmap(torch.rand_like), x),
        vmap(torch.rand_like, randomness="same")(torch.zeros(3, 1)).unique().numel(),
        vmap(torch.add, in_dims=({"a": 0}["a"], 0))(x, x),
    )
    net = nn.Linear(2, 1)
    loss = grad(lambda p: functional_call(net, p, (x[None],)).sum())(dict(net.named_parameters()))
    print(
        {k: tuple(v.shape) for k, v in loss.items()},
        raised(functional_call, net, {"no": x}, (x,)),
        vmap(f, chunk_size=1)(torch.stack([x, x])),
    )


def saved_tensor_hooks_nested() -> None:
    from torch.autograd import graph

    log = []

    def pair(name):
        return (
            lambda t: (log.append(("pack", name, tuple(t.shape))), t)[1],
            lambda t: (log.append(("unpack", name)), t)[1],
        )

    x = torch.ones(2, requires_grad=True)
    with graph.saved_tensors_hooks(*pair("outer")):
        y = x * x
        with graph.saved_tensors_hooks(*pair("inner")):
            z = y.exp()
        w = z + y
    w.sum().backward()
    print(log, x.grad)
    with graph.disable_saved_tensors_hooks("not here"):
        print(raised(lambda: graph.saved_tensors_hooks(*pair("no")).__enter__()))
    with graph.save_on_cpu():
        (x.sin() * 2).sum().backward()
    print(x.grad)
    print(x.sin().grad_fn._saved_self is x, (x * 2).exp().grad_fn._saved_result.shape)


def hooks_of_graphs() -> None:
    from torch.autograd import graph

    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = y.exp()
    z.register_hook(lambda g: print("z", g))
    y.grad_fn.register_prehook(lambda g: print("pre", g[0].shape))
    y.grad_fn.register_hook(lambda gi, go: print("post", len(gi), len(go)))
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda p: print("accumulated", p.grad.shape))
    handle = graph.register_multi_grad_hook(
        [x, y], lambda grads: print("all", [g is not None for g in grads])
    )
    z.sum().backward()
    print(
        y.grad.shape,
        graph.get_gradient_edge(y).output_nr,
        raised(graph.get_gradient_edge, torch.ones(1)),
    )
    handle.remove()
    first = graph.register_multi_grad_hook([x], lambda g: print("any", g.shape), mode="any")
    (x * 3).sum().backward()
    first.remove()
    print(
        raised(graph.register_multi_grad_hook, [torch.ones(1)], print),
        graph.increment_version(x.detach()),
        (x * 2).grad_fn.metadata,
    )
    edge = graph.GradientEdge((x * 2).grad_fn, 0)
    print(torch.autograd.grad(((x * 2) * 3).sum(), x), edge.node.name())
