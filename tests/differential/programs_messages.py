"""Types of errors for wrong arguments, printing options, comparisons, optimizers and schedules."""

from __future__ import annotations

import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812
from torch import distributions as D  # noqa: N812
from torch import optim
from torch.optim import lr_scheduler as schedules

from tests.differential.show import describe, numbers, raised

X = torch.arange(6.0).view(2, 3)


def wrong_arguments_of_shapes() -> None:
    print(
        raised(X.view, 4),
        raised(X.reshape, -1, -1),
        raised(X.permute, 0),
        raised(X.permute, 0, 0),
        raised(X.transpose, 0, 2),
    )
    print(
        raised(X.expand, 3, 3),
        raised(X.repeat, 2),
        raised(X.unsqueeze, 4),
        raised(X.squeeze, 3),
        raised(X.flatten, 2, 1),
    )
    print(
        raised(torch.cat, []),
        raised(torch.cat, [X, X[0]]),
        raised(torch.cat, [X, X], 2),
        raised(torch.stack, [X, X[:1]]),
        raised(torch.cat, X),
    )
    print(
        raised(X.split, 0),
        raised(X.split, [1, 2]),
        raised(X.chunk, 0),
        raised(torch.tensor_split, X, 0),
        raised(X.unbind, 2),
    )
    print(
        raised(torch.zeros, -1),
        raised(torch.zeros, "a"),
        raised(torch.zeros, 2.5),
        raised(torch.ones, (2, None)),
        raised(torch.empty),
    )
    print(
        raised(X.view, "a"),
        raised(X.reshape, 2.0, 3),
        raised(X.t().contiguous().view, -2),
        raised(X[None].t),
        raised(torch.flip, X, [0, 0]),
    )
    print(
        raised(X.roll, 1, (0, 1)),
        raised(X.rot90, 1, (0, 0)),
        raised(X.unfold, 1, 4, 1),
        raised(X.tile, "a"),
        raised(X.diag, 9),
        raised(torch.diagonal, X[0]),
    )


def wrong_arguments_of_products() -> None:
    print(
        raised(torch.mm, X, X),
        raised(torch.mv, X, X),
        raised(torch.dot, X, X),
        raised(torch.bmm, X, X),
        raised(torch.matmul, X, torch.tensor(1.0)),
    )
    print(
        raised(torch.addmm, X, X, X),
        raised(torch.mm, X, X.T.double()),
        raised(torch.outer, X, X),
        raised(torch.einsum, "ij,jk", X, X),
        raised(torch.einsum, "i", X),
    )
    print(
        raised(torch.einsum, "ij->ijk", X),
        raised(torch.tensordot, X, X, 3),
        raised(torch.kron, X, 2),
        raised(torch.cross, X, X, 0),
        raised(torch.cdist, X, X.T),
    )
    print(
        raised(torch.linalg.inv, X),
        raised(torch.linalg.solve, X @ X.T, X.T),
        raised(torch.linalg.cholesky, -torch.eye(2)),
        raised(torch.linalg.inv, torch.zeros(2, 2)),
    )
    print(
        raised(torch.linalg.norm, X, "nope"),
        raised(torch.linalg.svd, X[0]),
        raised(torch.linalg.qr, X, "x"),
        raised(torch.linalg.eigh, X),
        raised(torch.linalg.matrix_power, X, 2),
    )
    print(
        raised(torch.fft.fft, X, dim=3),
        raised(torch.fft.fft, X, n=0),
        raised(torch.fft.irfft, X, norm="x"),
        raised(torch.stft, X, 9),
        raised(torch.trapezoid, X, dim=4),
    )


def wrong_arguments_of_pointwise() -> None:
    print(
        raised(torch.add, X, "a"),
        raised(torch.add, X),
        raised(torch.add, 1, 2),
        raised(torch.mul, X, None),
        raised(lambda: X + [1]),
        raised(lambda: X + None),
    )
    print(
        raised(torch.clamp, X),
        raised(torch.clamp, X, "a"),
        raised(torch.pow, X, "a"),
        raised(torch.div, X, 2, rounding_mode="up"),
        raised(torch.where, X > 1, X),
    )
    print(
        raised(torch.lerp, X, X, "a"),
        raised(torch.exp, 1),
        raised(torch.exp, X, X),
        raised(torch.relu, X, inplace=True),
        raised(torch.sum, X, dim="a"),
        raised(X.sum, 5),
    )
    print(
        raised(X.softmax),
        raised(X.softmax, 3),
        raised(torch.cumsum, X),
        raised(X.cumsum, 2),
        raised(X.sort, 2),
        raised(X.topk, 4),
        raised(X.topk, -1),
        raised(X.kthvalue, 0),
    )
    print(
        raised(X.to, "float32"),
        raised(X.to, 3),
        raised(X.type, "x"),
        raised(X.to, "nothere"),
        raised(X.item),
        raised(X.__bool__),
        raised(X.__index__),
        raised(float, X),
        raised(int, X),
    )
    print(
        raised(X.masked_fill, X, 1),
        raised(X.masked_fill, X > 1, "a"),
        raised(X.fill_, X),
        raised(X.copy_, torch.ones(4)),
        raised(X.quantile, 2.0),
        raised(X.histc, -1),
        raised(torch.bincount, X),
    )
    print(
        raised(torch.bitwise_and, X, X),
        raised(torch.gcd, X, X),
        raised(torch.isclose, X, X.double()),
        raised(torch.searchsorted, X, X[0]),
        raised(torch.bucketize, X, X),
        raised(torch.unique, X, dim=5),
    )


def wrong_arguments_of_layers() -> None:
    print(
        raised(F.linear, X, X),
        raised(F.linear, X, X[:, :3], X),
        raised(F.conv2d, X, X),
        raised(F.conv1d, X[None], X[None].transpose(1, 2)),
        raised(F.embedding, X, X),
    )
    print(
        raised(F.embedding, torch.tensor([5]), X),
        raised(F.cross_entropy, X, torch.tensor([0, 5])),
        raised(F.cross_entropy, X, torch.tensor([0])),
        raised(F.nll_loss, X, X),
    )
    print(
        raised(F.cross_entropy, X, X.long()),
        raised(F.binary_cross_entropy, X, X),
        raised(F.binary_cross_entropy, X / 9, X[:1] / 9),
        raised(F.one_hot, torch.tensor([-1])),
        raised(F.one_hot, X),
    )
    print(
        raised(F.max_pool2d, X, 2),
        raised(F.max_pool2d, X[None], 5),
        raised(F.avg_pool1d, X, 0),
        raised(F.interpolate, X[None], size=2, scale_factor=2),
        raised(F.interpolate, X, 2),
        raised(F.pad, X, (1,)),
    )
    print(
        raised(F.pad, X, (1, 1), "wrong"),
        raised(F.pad, X[None], (4, 4), "reflect"),
        raised(F.dropout, X, 2.0),
        raised(F.layer_norm, X, (2,)),
        raised(F.batch_norm, X, None, None),
        raised(F.group_norm, X[None], 4),
    )
    print(
        raised(nn.Linear, 2),
        raised(nn.Linear, "a", 2),
        raised(nn.Conv2d, 3, 4, 2, groups=2),
        raised(nn.Conv2d, 2, 2, 1, padding_mode="x"),
        raised(nn.MultiheadAttention, 5, 2),
        raised(nn.BatchNorm2d(2), X),
        raised(nn.Embedding, 3, 2, 7),
    )
    print(
        raised(nn.LSTM(3, 2), X[None, None]),
        raised(nn.LSTM(4, 2), X),
        raised(nn.GRUCell(2, 2), X),
        raised(nn.Sequential, 3),
        raised(nn.ModuleList([nn.ReLU()]).__getitem__, 3),
        raised(nn.ModuleDict, [3]),
        raised(nn.ReLU(), "a"),
    )
    print(
        raised(F.mse_loss, X, X, reduction="none "),
        raised(nn.CrossEntropyLoss, reduction=3),
        raised(F.kl_div, X, X, reduction="x"),
        raised(F.gelu, X, approximate="x"),
        raised(F.glu, X),
        raised(F.pixel_shuffle, X, 2),
        raised(F.grid_sample, X, X),
    )


def wrong_arguments_of_gradients() -> None:
    a = torch.ones(2, requires_grad=True)
    print(
        raised(torch.autograd.grad, a.sum(), X),
        raised(torch.autograd.grad, a * 2, a),
        raised(torch.autograd.grad, a.sum(), [a, torch.ones(1, requires_grad=True)]),
    )
    print(
        raised((a * 2).backward, torch.ones(3)),
        raised(a.sum().backward, inputs=[]),
        raised(torch.tensor([1]).requires_grad_),
        raised(torch.ones, 2, dtype=torch.int64, requires_grad=True),
    )
    print(
        raised(a.numpy),
        raised((a * 2).requires_grad_, False),
        raised(setattr, a * 2, "requires_grad", False),
        raised(a.register_hook, 3),
        raised(X.register_hook, print),
        raised(a.register_post_accumulate_grad_hook, print),
    )
    print(
        raised((a * 2).register_post_accumulate_grad_hook, print),
        raised(X.retain_grad),
        raised(setattr, a, "grad", X.double()),
        raised(delattr, a, "grad"),
        a.grad,
        raised(a.view(2).detach_),
    )
    print(
        raised(torch.set_grad_enabled, "a"),
        raised(torch.autograd.gradcheck, lambda v: v * 2, a),
        raised(torch.autograd.functional.jacobian, lambda v: 3, a),
        raised(torch.autograd.functional.hessian, lambda v: v, a),
    )

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g, g

    print(
        raised(Bad.apply(a).sum().backward),
        raised(Bad),
        raised(Bad().forward, a) if False else "",
        raised(torch.autograd.Function.apply, a),
    )


def printing_options() -> None:
    x = torch.tensor([[1.5, -2.25, 1e-5], [1e6, float("nan"), float("inf")]])
    for options in (
        {"precision": 2},
        {"sci_mode": False},
        {"sci_mode": True, "precision": 1},
        {"threshold": 3, "edgeitems": 1},
        {"linewidth": 20},
        {"profile": "full"},
        {"profile": "short"},
    ):
        torch.set_printoptions(profile="default")
        torch.set_printoptions(**options)
        print(sorted(options), x, torch.arange(20), sep="\n")
    torch.set_printoptions(profile="default")
    print(
        torch.tensor([]),
        torch.empty(0, 3),
        torch.tensor(3.0),
        torch.tensor(1e-9),
        torch.tensor([1, 1000000]),
        torch.tensor([0.1, 100000.0]),
    )
    print(
        torch.tensor([True]),
        torch.tensor([1 + 1e-6j]),
        torch.ones(2, dtype=torch.float16),
        torch.zeros(2, requires_grad=True),
        nn.Parameter(torch.ones(1)),
        torch.ones(1, device="meta"),
    )
    print(
        torch.ones(2, 1, 2, dtype=torch.float64),
        repr(torch.ones(2, requires_grad=True) * 2),
        str(torch.float32),
        torch.Size([1, 2]),
        torch.arange(2000.0).view(2, 10, 100),
    )
    print(
        raised(torch.set_printoptions, profile="none"),
        f"{torch.tensor(2.5):.3f}",
        raised(format, torch.ones(2), ".2f"),
        f"{torch.ones(2)}",
    )


def close_and_equal() -> None:
    from torch.testing import assert_close

    def message(*args, **keywords):
        try:
            assert_close(*args, **keywords)
        except Exception as error:
            text = str(error).removeprefix("[assert_close] ").partition("\nhint:")[0]
            return f"{type(error).__name__}: {text}"
        return "close"

    print(
        message(X, X + 1e-7),
        message(X, X + 0.1),
        message(X, X[:1]),
        message(X, X.double()),
        message(X, X.double(), check_dtype=False),
        sep="\n---\n",
    )
    print(
        message(torch.tensor([1, 2]), torch.tensor([1, 5])),
        message(1.0, 1.1),
        message([X, X], [X, X + 1]),
        message({"a": X}, {"b": X}),
        message("a", "a"),
        sep="\n---\n",
    )
    print(
        message(torch.tensor(float("nan")), torch.tensor(float("nan"))),
        message(torch.tensor(float("nan")), torch.tensor(float("nan")), equal_nan=True),
        message(X, X + 1, rtol=0.5),
        message(X, X, rtol=1, atol=None),
        sep="\n---\n",
    )
    print(
        message(X, X + 1, msg="mine"),
        message(X, X + 1, msg=lambda m: m[:20]),
        message(X, X.t().contiguous().t(), check_stride=True),
        message([1, 2], [1]),
        message(True, False),
        message(X, [1.0]),
        sep="\n---\n",
    )
    print(
        torch.allclose(X, X + 1e-9),
        torch.equal(X, X.clone()),
        raised(torch.equal, X, X.tolist()),
        torch.isclose(X, X + 1e-9).all(),
        raised(torch.allclose, X, X.double()),
        torch.testing.make_tensor(2, dtype=torch.float32, device="cpu").shape,
    )


def groups_of_optimizers() -> None:
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    o = optim.SGD(
        [{"params": [a], "lr": 0.5, "name": "first"}, {"params": b}], lr=0.1, momentum=0.9
    )
    print(o, [sorted(g) for g in o.param_groups][0], o.param_groups[0]["name"], o.defaults["lr"])
    print(
        raised(o.add_param_group, {"params": [a]}),
        raised(o.add_param_group, {"params": [X * 2]}),
        raised(o.add_param_group, [a]),
        raised(o.add_param_group, {"params": {a}}),
    )
    print(
        raised(optim.SGD, [], 0.1),
        raised(optim.SGD, [a, a], 0.1),
        raised(optim.SGD, a, 0.1),
        raised(optim.SGD, [a], -1),
        raised(optim.SGD, [a], 0.1, nesterov=True),
        raised(optim.Adam, [a], betas=(1.0, 0.9)),
    )
    print(
        raised(optim.SGD, ["a"], 0.1),
        raised(optim.AdamW, [a], eps=-1),
        raised(optim.SGD, [(1, 2)], 0.1),
        raised(optim.SGD, [a, [b]], 0.1),
        raised(optim.Adam, [a], foreach=True, fused=True),
    )
    a.grad = torch.ones(2)
    o.step()
    state = o.state_dict()
    print(
        state["state"],
        [g["params"] for g in state["param_groups"]],
        list(o.state) == [a],
        raised(o.step, 3),
    )
    other = optim.SGD([a], 0.1)
    print(
        raised(other.load_state_dict, state),
        raised(other.load_state_dict, {}),
        raised(optim.Adam([{"params": [b]}, {"params": [a]}]).load_state_dict, state),
    )
    named = optim.SGD(nn.Linear(1, 1).named_parameters(), lr=0.1)
    print(
        named.param_groups[0]["param_names"],
        named.state_dict()["param_groups"][0]["param_names"],
        raised(optim.SGD, [("a", a), b], 0.1),
    )


def steps_of_optimizers() -> None:
    p = nn.Parameter(torch.ones(2))
    o = optim.Adam([p], lr=torch.tensor(0.1), amsgrad=True, capturable=False, foreach=False)
    o.register_step_pre_hook(lambda opt, args, kwargs: print("pre", args, kwargs))
    o.register_step_post_hook(lambda opt, args, kwargs: print("post"))
    p.grad = torch.tensor([1.0, -1.0])
    print(
        o.step(lambda: torch.tensor(3.0)),
        p,
        sorted(o.state[p]),
        o.state[p]["step"],
        o.param_groups[0]["lr"],
    )
    o.zero_grad(set_to_none=False)
    print(p.grad, o.zero_grad(), p.grad)
    sgd = optim.SGD([p], lr=0.1, maximize=True, weight_decay=0.1, dampening=0.5, momentum=0.9)
    for _ in range(2):
        p.grad = torch.ones(2)
        sgd.step()
    print(
        p,
        sgd.state[p],
        raised(optim.LBFGS([p]).step),
        raised(optim.LBFGS, [{"params": [p]}, {"params": []}]),
        raised(optim.SparseAdam, [p], lr=-1),
    )
    half = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    half.grad = torch.ones(2, dtype=torch.bfloat16)
    o = optim.AdamW([half], lr=0.1)
    o.step()
    print(
        half,
        o.state[half]["exp_avg"].dtype,
        o.state[half]["step"].dtype,
        o.state_dict()["param_groups"][0]["decoupled_weight_decay"],
    )


def chains_of_schedules() -> None:
    def make(factory, steps=5):
        o = optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        s = factory(o)
        values = []
        for _ in range(steps):
            values.append(round(o.param_groups[0]["lr"], 5))
            o.step()
            s.step()
        return values, s

    print(
        make(
            lambda o: schedules.ChainedScheduler(
                [schedules.ConstantLR(o, 0.5, 2), schedules.ExponentialLR(o, 0.9)]
            )
        )[0]
    )
    print(
        make(
            lambda o: schedules.SequentialLR(
                o, [schedules.LinearLR(o, 0.1, 1.0, 2), schedules.StepLR(o, 1, 0.5)], [2]
            )
        )[0]
    )
    print(
        make(lambda o: schedules.LambdaLR(o, lambda e: 1 / (e + 1)))[0],
        make(lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, 2), 7)[0],
    )
    print(
        make(lambda o: schedules.OneCycleLR(o, 2.0, 5))[0],
        make(lambda o: schedules.CyclicLR(o, 0.1, 1.0, 2, cycle_momentum=False), 6)[0],
        make(lambda o: schedules.PolynomialLR(o, 4, 2.0))[0],
    )
    values, s = make(lambda o: schedules.MultiStepLR(o, [1, 3], 0.1))
    print(values, s.state_dict(), s.get_last_lr(), s.last_epoch)
    twin = schedules.MultiStepLR(optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0), [1], 0.5)
    twin.load_state_dict(s.state_dict())
    print(twin.milestones, twin.gamma, twin.last_epoch, twin.get_last_lr())
    o = optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    print(
        raised(schedules.StepLR, o, 1, last_epoch=3),
        raised(schedules.LambdaLR, o, [lambda e: 1, lambda e: 2]),
        raised(schedules.SequentialLR, o, [], [1]),
        raised(schedules.OneCycleLR, o, 1.0),
        raised(schedules.StepLR, 3, 1),
    )
    print(
        raised(schedules.ReduceLROnPlateau, o, "x"),
        raised(schedules.ReduceLROnPlateau, o, factor=1.0),
        raised(schedules.CyclicLR, o, 0.1, 1.0),
        raised(schedules.LinearLR, o, 2.0),
        raised(schedules.CosineAnnealingWarmRestarts, o, 0),
        raised(schedules.ChainedScheduler, []),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        s = schedules.StepLR(optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0), 1)
        s.step()
        s.step(3)
        print([w.category.__name__ for w in caught], s.get_last_lr(), s.last_epoch)


def arguments_of_distributions() -> None:
    one = torch.ones(2)
    print(
        raised(D.Normal, 0.0, -1.0),
        raised(D.Normal, one, torch.ones(3)),
        raised(D.Bernoulli),
        raised(D.Bernoulli, 0.5, 0.1),
        raised(D.Bernoulli, 1.5),
        raised(D.Categorical, -one),
    )
    print(
        raised(D.Normal(0.0, 1.0).log_prob, "a"),
        raised(D.Uniform(0.0, 1.0).log_prob, torch.tensor(2.0)),
        raised(D.Uniform, 1.0, 0.0),
        raised(D.Gamma, 0.0, 1.0),
        raised(D.Poisson, -1.0),
        raised(D.Dirichlet, torch.tensor(1.0)),
    )
    print(
        raised(D.MultivariateNormal, one),
        raised(D.MultivariateNormal, one, -torch.eye(2)),
        raised(D.MultivariateNormal, one, torch.eye(2), torch.eye(2)),
        raised(D.Binomial(3, 0.5).log_prob, torch.tensor(4.0)),
        raised(D.Geometric, 0.0),
    )
    print(
        raised(D.Normal(0.0, 1.0, validate_args=False).log_prob, torch.tensor(float("nan"))),
        D.Normal(0.0, -1.0, validate_args=False),
        raised(D.Categorical(one).log_prob, torch.tensor(5)),
        raised(D.Multinomial, 2, one, one),
        raised(D.Beta, -1.0, 1.0),
    )
    print(
        D.Normal(one, 2.0),
        D.Normal(one, 2.0).expand((3, 2)).batch_shape,
        D.Independent(D.Normal(one, one), 1),
        raised(D.Independent, D.Normal(one, one), 2),
        D.Categorical(logits=one).probs,
        D.Bernoulli(one / 2).entropy(),
    )
    print(
        raised(D.kl_divergence, D.Normal(0.0, 1.0), D.Poisson(1.0)),
        D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 2.0)),
        D.Normal(0.0, 1.0).cdf(torch.tensor(0.0)),
        raised(D.Normal(0.0, 1.0).enumerate_support),
        D.Bernoulli(one / 3).enumerate_support(False).shape,
    )
    print(
        D.TransformedDistribution(D.Normal(0.0, 1.0), [D.transforms.ExpTransform()]).log_prob(
            torch.tensor(2.0)
        ),
        raised(D.TransformedDistribution, D.Normal(0.0, 1.0), [3]),
        D.biject_to(D.constraints.positive)(torch.tensor(0.0)),
        D.constraints.simplex.check(one / 2),
        D.constraints.positive,
    )
    print(
        raised(D.Distribution.set_default_validate_args, 3),
        raised(D.register_kl, 1, 2),
        raised(D.Normal(0.0, 1.0).expand, (2,)),
        D.Normal(0.0, 1.0).has_rsample,
        D.Poisson(3.0).support,
        D.Normal.arg_constraints,
    )


def warnings_and_deprecations() -> None:
    X.T[None].T if False else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F.mse_loss(X, X[:1])
        F.softmax(X)
        nn.MSELoss(size_average=True)
        torch.ones(3).T
        F.tanh(X)
        torch.tensor(X)
        F.upsample(X[None], size=4)
        (torch.ones(2, requires_grad=True) * 2).grad
        nn.utils.clip_grad_norm(nn.Linear(1, 1).parameters(), 1.0)
        torch.range(1, 2)
        nn.init.uniform(torch.empty(2))
        torch.norm(X)
        torch.meshgrid(X[0], X[0])
        nn.LSTM(2, 2, dropout=0.5)
    print([f"{w.category.__name__}" for w in caught])
    print(describe(X), numbers(X))
