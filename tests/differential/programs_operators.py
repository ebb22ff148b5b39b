"""Operators as scripts call them: forms of arguments, defaults, results."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.differential.show import describe, numbers, raised


def reductions_and_dims() -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    for call in (
        lambda: x.sum(),
        lambda: x.sum(-1),
        lambda: x.sum((0, 2)),
        lambda: x.sum([1], keepdim=True),
        lambda: x.mean(1),
        lambda: x.max(),
        lambda: x.max(2),
        lambda: x.min(0)[1],
        lambda: x.argmax(),
        lambda: x.argmin(1, keepdim=True),
        lambda: x.prod(2),
        lambda: x.std(0),
        lambda: x.var((1, 2)),
        lambda: x.norm(),
        lambda: x.norm(dim=1),
        lambda: x.logsumexp((0, 1)),
        lambda: x.any(),
        lambda: x.all(2),
        lambda: x.cumsum(1),
        lambda: x.median(1),
        lambda: x.mode(),
        lambda: x.amax((0, 1)),
        lambda: x.count_nonzero(),
        lambda: x.nansum(1),
        lambda: x.sum(dim=None),
        lambda: torch.sum(x, 0, True),
        lambda: torch.max(x, torch.tensor(5.0)),
        lambda: torch.amin(x, dim=()),
        lambda: x.aminmax(dim=0),
        lambda: x.quantile(0.3, dim=2, keepdim=True),
        lambda: x.sum(axis=1),
        lambda: x.mean(dim=(0, -1), dtype=torch.float64),
    ):
        r = call()
        print(
            type(r).__name__,
            [describe(t) for t in r]
            if isinstance(r, tuple)
            else (describe(r), numbers(r.double().sum())),
        )


def shapes_and_views() -> None:
    x = torch.arange(24).view(2, 3, 4)
    for r in (
        x.view(6, 4),
        x.view(-1),
        x.reshape(4, -1),
        x.flatten(),
        x.flatten(0, 1),
        x.unflatten(2, (2, 2)),
        x.unsqueeze(1),
        x[None].squeeze(),
        x.squeeze(0),
        x.transpose(0, 2),
        x.permute(2, 0, 1),
        x.swapaxes(0, 1),
        x.movedim(0, 2),
        x.expand(5, 2, 3, 4),
        x.expand_as(x),
        x.repeat(1, 2, 1),
        x.T if x.dim() == 2 else x.mT,
        x.narrow(1, 1, 2),
        x.select(1, 0),
        x.unfold(2, 2, 2),
        x.diagonal(dim1=1, dim2=2),
        x.contiguous(),
        x.view(torch.int32),
        x.ravel(),
        x.reshape_as(x),
        x.view_as(x),
        x.swapdims(0, 1),
        x.adjoint(),
        x.as_strided((2, 2), (1, 2), 3),
        x.roll((1, 2), (0, 1)),
        x.flip(-1),
        x.rot90(1, (0, 1)),
        x.tile(2, 1),
        x.broadcast_to(2, 2, 3, 4),
        x.index_select(2, torch.tensor([3, 0])),
        x.hsplit(3)[1],
        x.tril(),
        x.triu(1),
        x.movedim((0, 1), (1, 0)),
        x.squeeze((0, 1)),
    ):
        print(describe(r), r.storage_offset(), r.is_contiguous(), int(r.sum()))


def casts() -> None:
    x = torch.tensor([1.7, -2.3, 0.0, 300.5])
    for name in ("int", "long", "short", "half", "double", "bool", "bfloat16", "float", "char"):
        print(name, getattr(x[:3], name)())
    print(
        x.to(torch.int8)[:3],
        x.to("cpu").dtype,
        x.to(torch.ones(1).double()).dtype,
        x.to(dtype=torch.half, copy=True).dtype,
        x.type(torch.long),
        x.cfloat().dtype,
        x.to(torch.float64).is_floating_point(),
        x.to("cpu", torch.int32).dtype,
    )
    print(
        torch.tensor([True, False]).float(),
        torch.tensor([1, 0]).bool(),
        torch.tensor(3).double() / 2,
        torch.tensor(2.5).long(),
        torch.tensor([2**31]).int(),
        torch.tensor([float("inf"), float("nan")]).isnan(),
        torch.as_tensor(3).dtype,
        torch.asarray([1.0]).dtype,
        torch.scalar_tensor(2).dtype,
    )


def scalar_arithmetic() -> None:
    a = torch.tensor([2, 3])
    b = torch.tensor(4)
    for r in (
        a + 1.5,
        a * True,
        a - 2j,
        a / 2,
        a // 2,
        a % 2,
        a**2,
        a**0.5,
        2**a,
        2 - a,
        1 / a,
        7 // a,
        7 % a,
        -a,
        +a,
        abs(-a),
        a * b,
        a * torch.tensor(2.5),
        a.float() * b.double(),
        a & 1,
        1 | a,
        a ^ b,
        a << 1,
        16 >> a,
        a == 2,
        a != b,
        a < 2.5,
        divmod(7, 2)[0] * a,
        a.pow(-1.0),
        a.true_divide(2),
        round(2.5) * a,
        math.pi * a,
        a.float().pow(b),
        torch.pow(2, a),
        torch.rsub(a, 1),
        a.sub(1, alpha=2),
        torch.add(a, a, alpha=3),
        a.bool() & True,
        a.fmod(2),
        a.logical_not(),
        a @ a,
    ):
        print(describe(r), r)


def clamping_and_rounding() -> None:
    x = torch.tensor([-2.5, -0.5, 0.5, 1.5, float("nan"), float("inf")])
    for r in (
        x.round(),
        x.floor(),
        x.ceil(),
        x.trunc(),
        x.frac(),
        x.clamp(-1, 1),
        x.clamp(min=0),
        x.clip(max=torch.tensor(0.2)),
        x.sign(),
        x.sgn(),
        x.abs(),
        x.nan_to_num(),
        x.nan_to_num(nan=1, posinf=2),
        x.relu(),
        x.round(decimals=1),
        F.relu6(x),
        F.hardtanh(x),
        x.clamp(torch.tensor(1.0), torch.tensor(0.0)),
        torch.maximum(x, -x),
        x.isinf(),
        x.isposinf(),
        x.signbit(),
        x.reciprocal(),
        x.rsqrt(),
        x.square(),
        x.sigmoid(),
        x.exp2(),
        x.expm1(),
        x.logit(0.1),
        x.erf(),
        x.lgamma(),
        x.sinc(),
        x.positive(),
        x.heaviside(x),
    ):
        print(numbers(r))


def selecting() -> None:
    x = torch.tensor([[3, 1, 2], [6, 5, 4]])
    print(
        x.sort(),
        x.sort(0, descending=True).values,
        x.argsort(1),
        x.topk(2, largest=False),
        x.kthvalue(2, 1),
        x.msort(),
        torch.sort(x, stable=True, dim=1).indices,
        x.unique(),
        x.nonzero(),
        (x > 2).nonzero(as_tuple=True),
        torch.argwhere(x > 4),
    )
    print(
        torch.where(x > 2),
        torch.where(x > 2, x, 0),
        torch.where(x > 2, 1.5, x),
        x.masked_select(x % 2 == 0),
        x.take(torch.tensor([0, 5])),
        x.gather(1, torch.tensor([[0], [2]])),
        x.index_select(0, torch.tensor([1, 1])),
        x[:, [True, False, True]],
        x[x.argmax(0), torch.arange(3)],
    )
    print(
        torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([0, 3, 6]), right=True),
        torch.bucketize(torch.tensor([2.5]), torch.tensor([1.0, 2.0, 3.0])),
        torch.isin(x, torch.tensor([1, 6])),
        x.unique(dim=0),
        torch.unique(torch.tensor([1.0, float("nan"), 1.0])),
        x.eq(x).all(),
        x.equal(x),
        torch.histogram(x.float(), 2)[0],
    )


def scatter_forms() -> None:
    i = torch.tensor([[0, 1, 0]])
    z = torch.zeros(2, 3)
    print(
        z.scatter(0, i, 5.0),
        z.scatter(0, i, torch.ones(1, 3), reduce="add"),
        z.scatter_add(0, i, torch.ones(1, 3)),
        z.index_add(0, torch.tensor([0, 0]), torch.ones(2, 3), alpha=2),
        z.index_copy(1, torch.tensor([2]), torch.ones(2, 1)),
        z.index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor(7.0)),
        z.masked_scatter(z == 0, torch.arange(6.0)),
        z.slice_scatter(torch.ones(1, 3), 0, 1),
        z.select_scatter(torch.ones(3), 0, 1),
        z.diagonal_scatter(torch.ones(2)),
        z.index_reduce(0, torch.tensor([1]), torch.ones(1, 3), "mean"),
    )
    print(
        raised(lambda: z.scatter(0, i, torch.ones(1, 2))),
        raised(lambda: z.scatter(0, i.int(), 1.0)),
        raised(lambda: z.scatter_add(0, i, torch.ones(1, 3).double())),
        raised(lambda: z.index_add(0, torch.tensor([5, 0]), torch.ones(2, 3))),
        raised(lambda: z.index_put((torch.tensor([3]),), torch.tensor(1.0))),
    )


def padding_and_windows() -> None:
    x = torch.arange(6.0).view(1, 1, 2, 3)
    for mode, pad in (
        ("constant", (1, 2)),
        ("constant", (0, -1, 1, 0)),
        ("reflect", (1, 1, 1, 0)),
        ("replicate", (2, 0, 0, 1)),
        ("circular", (1, 0, 1, 1)),
    ):
        print(mode, F.pad(x, pad, mode=mode))
    print(
        F.unfold(x, 2),
        F.avg_pool2d(x, 2, 1),
        F.max_pool2d(x, 2, 1, return_indices=True),
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(3, 3), mode="bilinear", align_corners=True),
        F.pixel_unshuffle(torch.arange(4.0).view(1, 1, 2, 2), 2).shape,
        F.adaptive_avg_pool2d(x, (1, None)),
        F.conv_transpose2d(x, torch.ones(1, 1, 2, 2), stride=2).sum(),
    )
    print(
        F.conv1d(torch.arange(5.0)[None, None], torch.tensor([[[1.0, 0, -1]]]), padding=1),
        F.conv2d(x, torch.ones(1, 1, 1, 1)),
        torch.conv1d(torch.ones(1, 2, 4), torch.ones(2, 1, 2), groups=2),
        F.lp_pool1d(x[0], 2, 2),
        F.max_pool1d(x[0], 2),
        F.avg_pool1d(x[0], 2, ceil_mode=True),
    )


def matrix_forms() -> None:
    a, b, v = torch.arange(6.0).view(2, 3), torch.ones(3, 2), torch.tensor([1.0, 2, 3])
    for r in (
        a @ b,
        a.mm(b),
        a.matmul(v),
        v @ v,
        v.dot(v),
        torch.mv(a, v),
        a.addmv(v) if False else torch.addmv(torch.ones(2), a, v),
        torch.addmm(torch.ones(2, 2), a, b),
        torch.addr(torch.zeros(3, 3), v, v),
        torch.bmm(a[None], b[None]),
        torch.outer(v, v),
        torch.ger(v, v),
        torch.einsum("ij,j->i", a, v),
        torch.einsum("bij,bjk->bik", a[None], b[None]),
        torch.einsum("...i,i", a, v),
        torch.tensordot(a, b, 1),
        torch.kron(v, v),
        torch.linalg.vecdot(a, a),
        torch.inner(a, v),
        torch.chain_matmul(a, b) if False else torch.linalg.multi_dot([a, b]),
        a.T.matmul(a),
        F.linear(a, b.T),
        F.bilinear(v[None], v[None], torch.ones(1, 3, 3)),
        torch.baddbmm(torch.zeros(1, 2, 2), a[None], b[None], beta=0),
        a.mT @ a,
        torch.trace(a @ b),
        (a @ b).det(),
        torch.cdist(a, a),
        torch.vdot(v, v),
        torch.cross(v, v.flip(0), dim=0),
    ):
        print(describe(r), numbers(r))


def out_arguments() -> None:
    out = torch.empty(2)
    r = torch.add(torch.ones(2), 1, out=out)
    print(
        r is out,
        out,
        torch.sum(torch.ones(2, 2), 0, out=out),
        tuple(
            torch.max(
                torch.tensor([1.0, 2.0]),
                0,
                out=(torch.empty(()), torch.empty((), dtype=torch.long)),
            )
        ),
        torch.cat([torch.ones(1)] * 2, out=out),
        torch.arange(2, out=torch.empty(2)),
    )
    print(
        raised(lambda: torch.add(torch.ones(2), 1, out=torch.empty(2, dtype=torch.long))),
        raised(lambda: torch.add(torch.ones(2, requires_grad=True), 1, out=out)),
        torch.mm(torch.eye(2), torch.eye(2), out=torch.empty(2, 2)),
        tuple(
            torch.sort(
                torch.tensor([2.0, 1.0]), out=(torch.empty(2), torch.empty(2, dtype=torch.long))
            )
        ),
        torch.zeros(2, out=out),
        torch.linspace(0, 1, 2, out=out),
        torch.abs(-out, out=out),
    )


def keyword_forms() -> None:
    x = torch.arange(6.0).view(2, 3)
    for call in (
        lambda: torch.sum(input=x, dim=0),
        lambda: torch.mean(x, axis=0),
        lambda: x.transpose(dim0=0, dim1=1),
        lambda: torch.zeros(size=(2,)),
        lambda: torch.full(size=(1,), fill_value=2),
        lambda: x.add(other=1),
        lambda: x.view(size=(6,)),
        lambda: x.permute(dims=(1, 0)),
        lambda: torch.cat(tensors=[x], dim=0),
        lambda: torch.ones([2, 3]),
        lambda: x.reshape(shape=(3, 2)),
        lambda: x.expand(size=(2, 3)),
        lambda: x.expand(2, 3, implicit=False),
        lambda: x.repeat(repeats=(1, 2)) if False else x.repeat((1, 2)),
        lambda: torch.normal(0.0, 1.0, (2,)).shape and x,
        lambda: torch.normal(0.0, 1.0, size=(2,)).shape and x,
        lambda: torch.clamp(input=x, min=0, max=1),
        lambda: x.copy_(other=x),
        lambda: x.clone(memory_format=torch.contiguous_format),
        lambda: torch.arange(start=0, end=4, step=2),
        lambda: torch.linspace(start=0, end=1, steps=3),
        lambda: torch.where(condition=x > 0, input=x, other=x),
        lambda: x.softmax(dim=1),
        lambda: torch.randint(low=0, high=2, size=(2,)),
        lambda: torch.randint(3, size=(2,)),
        lambda: torch.tensor(data=[1]),
        lambda: torch.squeeze(x, dim=0),
        lambda: torch.max(input=x, dim=1).values,
        lambda: x.to(device="cpu", dtype=torch.half),
        lambda: torch.einsum("ij->j", [x]),
        lambda: torch.einsum("ij->j", x),
        lambda: x.split(split_size=1)[0],
        lambda: torch.split(x, split_size_or_sections=[1, 1])[1],
        lambda: x.sum(dtype=torch.int32),
        lambda: torch.stack(tensors=(x, x), dim=1),
        lambda: x.norm(p="fro", dim=(0, 1)),
        lambda: x.type(dtype=torch.int8),
        lambda: torch.rand(2, 2, generator=torch.Generator().manual_seed(1)),
        lambda: torch.empty(2, 3, pin_memory=False).zero_(),
        lambda: torch.ones_like(x, dtype=torch.long),
        lambda: x.new_zeros(2),
        lambda: x.new_tensor([1]),
        lambda: x.new_full((2,), 3.0),
        lambda: x.new_ones((1, 2), dtype=torch.int32),
        lambda: torch.view_copy(x, (6,)),
        lambda: torch.view_copy(x, dtype=torch.int32),
    ):
        try:
            r = call()
            print(describe(r), numbers(r.double().sum()))
        except Exception as error:
            print(type(error).__name__)


def functional_activations() -> None:
    x = torch.linspace(-2, 2, 5)
    for r in (
        F.relu(x),
        F.leaky_relu(x, 0.1),
        F.elu(x, 0.5),
        F.selu(x),
        F.celu(x, 2.0),
        F.gelu(x),
        F.gelu(x, approximate="tanh"),
        F.silu(x),
        F.mish(x),
        F.softplus(x, 2, 1),
        F.softsign(x),
        F.tanhshrink(x),
        F.hardswish(x),
        F.hardsigmoid(x),
        F.hardshrink(x),
        F.softshrink(x, 0.3),
        F.logsigmoid(x),
        F.threshold(x, 0.1, -1),
        F.glu(x[:4]),
        F.softmax(x, 0),
        F.softmin(x, 0),
        F.log_softmax(x, -1),
        F.softmax(x, 0, dtype=torch.float64),
        F.normalize(x, dim=0),
        F.prelu(x, torch.tensor([0.2])),
        F.rrelu(x),
        F.layer_norm(x, (5,)),
        F.rms_norm(x, (5,)),
        F.dropout(x, 0.5, training=False),
        F.alpha_dropout(x, 0.3, training=True),
        F.feature_alpha_dropout(x[None], 0.3),
        F.one_hot(x.abs().long(), 3),
        F.local_response_norm(x.view(1, 5, 1), 2),
        F.gumbel_softmax(x, tau=0.5),
        F.relu_(x.clone()),
        F.hardtanh(x, -0.5, 0.5),
    ):
        print(describe(r), numbers(r))


def time_series() -> None:
    t = torch.arange(16) / 16
    x = torch.sin(2 * math.pi * 3 * t) + 0.1 * torch.randn(16)
    spectrum = torch.fft.rfft(x * torch.hann_window(16)).abs()
    kernel = torch.ones(1, 1, 3) / 3
    smooth = F.conv1d(F.pad(x[None, None], (1, 1), mode="replicate"), kernel).squeeze()
    print(
        spectrum.argmax(),
        numbers(smooth),
        numbers(x.unfold(0, 4, 2).mean(1)),
        numbers(torch.cumsum(x, 0)[-1]),
        numbers((x[1:] - x[:-1]).abs().mean()),
    )
    lags = torch.stack([x[k : k + 12] for k in range(4)], 1)
    solution = torch.linalg.lstsq(lags, x[4:16].unsqueeze(1)).solution
    print(
        numbers(solution),
        numbers(torch.corrcoef(torch.stack([x, smooth]))),
        numbers(F.conv1d(x[None, None], x.flip(0)[None, None], padding=4)[0, 0]),
    )


def geometry() -> None:
    angle = torch.tensor(math.pi / 6)
    r = torch.stack(
        [torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])]
    )
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    moved = points @ r.T + torch.tensor([1.0, 2.0])
    a, b = points - points.mean(0), moved - moved.mean(0)
    u, _, vt = torch.linalg.svd(a.T @ b)
    print(
        numbers(moved),
        numbers(vt.T @ u.T),
        numbers(torch.linalg.det(r)),
        numbers(torch.linalg.cross(torch.tensor([1.0, 0, 0]), torch.tensor([0, 1.0, 0]))),
        numbers(torch.cdist(points, moved)),
    )
    q = torch.tensor([0.5, 0.5, 0.5, 0.5])
    w, x, y, z = q
    print(
        numbers(torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)])),
        numbers(torch.atan2(moved[:, 1], moved[:, 0])),
        torch.deg2rad(torch.tensor(180.0)),
    )
    boxes = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    top, bottom = torch.max(boxes[0, :2], boxes[1, :2]), torch.min(boxes[0, 2:], boxes[1, 2:])
    inter = (bottom - top).clamp(min=0).prod()
    print(inter / ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum().sub(inter))


def clustering() -> None:
    x = torch.cat([torch.randn(10, 2) * 0.1, torch.randn(10, 2) * 0.1 + 3])
    centers = x[[0, 15]].clone()
    for _ in range(3):
        labels = torch.cdist(x, centers).argmin(1)
        counts = torch.bincount(labels, minlength=2)
        centers = torch.zeros(2, 2).index_add_(0, labels, x) / counts.unsqueeze(1)
    print(
        labels.tolist(),
        numbers(centers),
        counts,
        numbers(torch.pca_lowrank(x, q=2)[1]),
        numbers((x - x.mean(0)).T.cov().diag()),
    )
    knn = torch.cdist(x, x).fill_diagonal_(float("inf")).topk(2, largest=False).indices
    print(
        knn[:3].tolist(),
        torch.mode(labels).values,
        torch.scatter_reduce(torch.zeros(2), 0, labels, x[:, 0], "mean"),
    )


def game_of_life() -> None:
    grid = torch.zeros(6, 6, dtype=torch.int64)
    grid[1, 2] = grid[2, 3] = grid[3, 1] = grid[3, 2] = grid[3, 3] = 1
    for _ in range(4):
        neighbours = sum(
            grid.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j
        )
        grid = ((neighbours == 3) | ((grid == 1) & (neighbours == 2))).long()
    print(grid, grid.sum().item(), type(neighbours).__name__, grid.nonzero().tolist())


def markov_chain() -> None:
    p = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    values, vectors = torch.linalg.eig(p.T)
    stationary = vectors[:, values.real.argmax()].real
    print(
        numbers(stationary / stationary.sum()),
        numbers(torch.linalg.matrix_power(p, 20)[0]),
        values.dtype,
    )
    state, visits = 0, torch.zeros(2, dtype=torch.long)
    for _ in range(20):
        state = torch.multinomial(p[state], 1).item()
        visits[state] += 1
    print(visits, visits.float() / visits.sum())


def viterbi() -> None:
    emit, trans = torch.randn(5, 3).log_softmax(1), torch.randn(3, 3).log_softmax(1)
    score, back = emit[0], []
    for t in range(1, 5):
        score, index = (score[:, None] + trans).max(0)
        score = score + emit[t]
        back.append(index)
    path = [score.argmax().item()]
    for index in reversed(back):
        path.append(index[path[-1]].item())
    alpha = emit[0]
    for t in range(1, 5):
        alpha = torch.logsumexp(alpha[:, None] + trans, 0) + emit[t]
    print(path[::-1], numbers(score), numbers(alpha.logsumexp(0)))
