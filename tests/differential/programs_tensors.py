"""Creation, dtypes, indexing, views, in-place operations, printing."""

from __future__ import annotations

import copy
import math
import pickle

import torch

from tests.differential.show import describe, numbers, raised


def creation() -> None:
    for tensor in (
        torch.tensor([1, 2]),
        torch.tensor([1.0, 2]),
        torch.tensor([True, False]),
        torch.tensor(3 + 2j),
        torch.tensor([]),
        torch.tensor([[]]),
        torch.arange(5),
        torch.arange(0, 1, 0.25),
        torch.arange(5.0),
        torch.linspace(0, 1, 5),
        torch.logspace(0, 2, 3),
        torch.eye(2, 3),
        torch.full((2, 2), 7),
        torch.full((2,), True),
        torch.full((2,), 1.5),
        torch.zeros(2, 0, 3),
        torch.ones(3, dtype=torch.bfloat16),
        torch.complex(torch.ones(2), torch.zeros(2)),
        torch.tril_indices(3, 3),
        torch.vander(torch.tensor([1, 2, 3])),
        torch.cartesian_prod(torch.arange(2), torch.arange(2)),
        torch.combinations(torch.arange(3)),
        torch.block_diag(torch.ones(1, 2), torch.eye(2)),
    ):
        print(describe(tensor), tensor)


def promotion() -> None:
    kinds = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16]
    kinds += [torch.bfloat16, torch.float32, torch.float64, torch.complex64]
    for a in kinds:
        print([str((torch.ones(2, dtype=a) + torch.ones(2, dtype=b)).dtype) for b in kinds])
        print([str((torch.ones(2, dtype=a) * torch.ones((), dtype=b)).dtype) for b in kinds])
        print([str((torch.ones(2, dtype=a) * v).dtype) for v in (True, 2, 2.5, 1j)])
        print(raised(lambda a=a: torch.ones(2, dtype=a) / 2), (torch.ones(2, dtype=a).sum()).dtype)
        print(raised(lambda a=a: torch.ones(2, dtype=a).mean()))


def reprs() -> None:
    print(torch.tensor([1e-5, 1.0, 1e5]))
    print(torch.tensor([0.1, 123456.0]))
    print(torch.tensor([float("nan"), float("inf"), -1.0]))
    print(torch.arange(2000))
    print(torch.arange(2000.0).view(2, 1000))
    print(torch.ones(2, 2, requires_grad=True) * 2)
    print(torch.nn.Parameter(torch.zeros(2)))
    print(torch.tensor(1.5), torch.tensor(True), torch.tensor([1 + 2j, -0.5j]))
    print(torch.zeros(0, 3), torch.zeros(2, dtype=torch.float64))
    print(torch.eye(3).to_sparse())
    print(torch.ones(2, device="meta"))
    torch.set_printoptions(precision=2, sci_mode=True)
    print(torch.tensor([math.pi, 100.0]))
    torch.set_printoptions(edgeitems=1, threshold=4, sci_mode=False, linewidth=40)
    print(torch.rand(6, 6).round(decimals=1))
    torch.set_printoptions(profile="default")
    print(torch.Size([2, 3]), torch.float32, torch.device("cpu"), torch.strided, torch.int8)
    print(f"{torch.tensor(2.0):.3f} {torch.tensor(7):5d}", torch.tensor([1.0]))


def basic_indexing() -> None:
    x = torch.arange(24).reshape(2, 3, 4)
    for y in (x[0], x[:, 1], x[..., -1], x[:, None, ::2], x[1, 2, 3], x[:, :, [0, 2]], x[-1:]):
        print(describe(y), y.tolist(), y.storage_offset())
    print(
        x[x > 20], x[torch.tensor([True, False])].shape, x[:, torch.tensor([[0, 1], [2, 0]])].shape
    )
    print(
        x[[0, 1], [1, 2]].tolist(), x[(0, 1)].tolist(), x[[0]].shape, x[True].shape, x[None].shape
    )
    print(raised(lambda: x[2]), raised(lambda: x[0, 0, 0, 0]), raised(lambda: x[1.5]))
    print(raised(lambda: x["a"]), raised(lambda: x[:, 5]), raised(lambda: x[torch.tensor([5])]))
    print(raised(lambda: x[::-1]), raised(lambda: x[torch.tensor([0.5])]), x[..., 0, :].shape)


def index_assignment() -> None:
    x = torch.zeros(3, 4)
    x[0] = 1
    x[:, 1] = torch.tensor([5.0, 6, 7])
    x[x == 0] = -1
    x[[0, 2], [2, 3]] = torch.tensor([9.0, 8.0])
    x[1, ...] += 0.5
    x[torch.tensor([0, 0, 1]), 0] += 1
    print(x)
    x[:, ::2] = x[:, 1::2].clone()
    print(x)
    print(raised(lambda: x.__setitem__(0, torch.ones(3))))
    print(raised(lambda: x.__setitem__(7, 1)))
    y = torch.zeros(3, dtype=torch.long)
    y[0] = 2.7
    y[1] = True
    print(y)
    y.index_put_((torch.tensor([1, 1, 2]),), torch.tensor([1, 2, 3]), accumulate=True)
    print(
        y,
        y.index_fill(0, torch.tensor([0]), 9),
        y.index_add(0, torch.tensor([0, 0]), torch.tensor([4, 5])),
    )


def scatter_and_gather() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    index = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    print(x.gather(0, index), x.take_along_dim(x.argsort(1, descending=True), 1))
    print(torch.zeros(3, 4).scatter(0, index, 1.0), torch.zeros(3, 4).scatter_add(0, index, x[:2]))
    for how in ("sum", "prod", "mean", "amax", "amin"):
        print(how, torch.ones(3, 4).scatter_reduce(0, index, x[:2], how, include_self=False))
    print(x.take(torch.tensor([0, -1, 5])), x.put(torch.tensor([0, 1]), torch.tensor([50.0, 60.0])))
    print(
        x.masked_select(x > 7), x.masked_fill(x > 7, -1.0), x.masked_scatter(x > 7, torch.zeros(12))
    )
    print(
        torch.bincount(torch.tensor([0, 1, 1, 5])),
        torch.histc(x, 4),
        torch.bucketize(x[0], x[:, 0]),
    )
    print(torch.unique(torch.tensor([3, 1, 1, 2]), return_inverse=True, return_counts=True))
    print(
        torch.unique_consecutive(torch.tensor([1, 1, 2, 1])),
        torch.searchsorted(x[0], torch.tensor(1.5)),
    )


def views_share_memory() -> None:
    x = torch.arange(6.0)
    y = x.view(2, 3)
    y.t()[0, 1] = 100
    print(x, y.T.is_contiguous(), y.t().contiguous().stride(), x.data_ptr() == y.data_ptr())
    z = x.reshape(3, 2).unsqueeze(0).expand(4, 3, 2)
    print(
        describe(z),
        z.untyped_storage().nbytes(),
        raised(lambda: z.add_(1)),
        raised(lambda: z.view(-1)),
    )
    w = x.unfold(0, 3, 1)
    print(w, describe(w))
    x.resize_(3, 4)
    print(x.shape, raised(lambda: x.view(5)), raised(lambda: x.view(-1, -1)))
    print(
        describe(torch.randn(2, 3, 4).movedim(0, -1)),
        describe(torch.randn(2, 3, 4).permute(2, 0, 1).flatten(1)),
    )
    a, b = torch.arange(10).split([3, 7])
    a.zero_()
    print(
        b,
        [len(c) for c in torch.arange(10).chunk(4)],
        [len(c) for c in torch.arange(10).tensor_split(4)],
    )
    print(
        x.as_strided((2, 2), (1, 2)).shape,
        torch.diagonal(torch.eye(3)).stride(),
        x[0].is_set_to(x[0]),
    )
    d = torch.eye(3)
    d.diagonal().fill_(7)
    print(d, d.swapaxes(0, 1).stride(), d.ravel().shape, d.narrow(0, 1, 2).storage_offset())


def bases_of_views() -> None:
    x = torch.ones(2, 2)
    print(x[0]._base is x, x.t()._is_view(), x.detach()._base, x._base, x.view(4)._base.shape)


def inplace_versions() -> None:
    x = torch.ones(3)
    print(x._version)
    x.add_(1).mul_(2)
    x[0] = 5
    print(x._version, x.detach()._version)
    y = x.view(3)
    y.zero_()
    print(x._version, x)
    p = torch.ones(3, requires_grad=True)
    print(raised(lambda: p.add_(1)), raised(lambda: p.__setitem__(0, 1)))
    with torch.no_grad():
        p.add_(1)
    print(p, p._version)
    q = p * 2
    q.mul_(3)
    q.sum().backward()
    print(p.grad, describe(q))
    r = p.exp()
    r.add_(1)
    print(raised(lambda: r.sum().backward()))
    print(
        raised(lambda: torch.ones(2, dtype=torch.int32).add_(1.5)),
        raised(lambda: torch.ones(2).add_(torch.ones(3))),
    )
    s = torch.ones(2)
    s += 1
    s //= 2
    s **= 2
    print(s, s.sub_(1), s.copy_(torch.tensor([1, 2])), s.fill_(3), s.clamp_(max=2))


def copies_and_identity() -> None:
    x = torch.ones(2, requires_grad=True)
    x.note = "hello"
    y = copy.deepcopy(x)
    z = pickle.loads(pickle.dumps(x))
    print(y.note, z.requires_grad, hasattr(z, "note"), y is x, y == x, type(y).__name__)
    print(raised(lambda: copy.deepcopy(x * 2)), copy.copy(x).data_ptr() == x.data_ptr())
    print(
        x.clone().requires_grad,
        x.detach().requires_grad,
        x.data.requires_grad,
        torch.tensor([1, 2]).clone().dtype,
    )
    a = torch.arange(3)
    print(
        a.to(torch.int64) is a,
        a.to(torch.float32) is a,
        a.contiguous() is a,
        a.cpu() is a,
        a.long() is a,
    )
    print(
        {a: 1}[a],
        a in [a],
        hash(a) == id(a),
        len({a, a.clone()}),
        bool(torch.tensor(0)),
        raised(lambda: bool(a)),
    )
    print(
        list(a),
        [int(v) for v in a],
        len(a),
        a.tolist(),
        a.numel(),
        a.nelement(),
        a.element_size(),
        a.dim(),
    )
    print(
        raised(lambda: len(torch.tensor(1))),
        raised(lambda: list(torch.tensor(1))),
        raised(lambda: a.item()),
    )
    print(
        int(torch.tensor(2.9)),
        float(torch.tensor(2)),
        complex(torch.tensor(2.0)),
        torch.tensor(3).__index__(),
    )
    print(
        raised(lambda: range(torch.tensor(2.0))),
        [1, 2, 3][torch.tensor(1)],
        2 in a,
        torch.tensor(1) in a,
    )


def comparisons_and_sorting() -> None:
    x = torch.tensor([3.0, float("nan"), -1.0, 2.0])
    print(x.sort(), x.argsort(descending=True), x.max(), x.argmax(), x.topk(2), x.kthvalue(2))
    print(
        x.nansum(),
        x.nanmean(),
        x.nanmedian(),
        x.median(),
        x.amax(),
        x.isnan(),
        x == x,
        x.isfinite(),
    )
    print(
        torch.maximum(x, torch.zeros(4)),
        torch.fmax(x, torch.zeros(4)),
        x.clamp(0, 2),
        x.nan_to_num(0.5),
    )
    print(torch.tensor([[1, 2], [1, 0]]).max(dim=1), torch.tensor([[1, 1], [0, 2]]).mode(1))
    print(torch.tensor([2, 1, 2]).sort(stable=True), torch.tensor([[5, 1], [3, 1]]).msort())
    print(
        torch.allclose(x, x),
        torch.allclose(x, x, equal_nan=True),
        torch.equal(x, x),
        torch.isclose(x, x + 1e-9),
    )
    print(x[[0, 2, 3]].quantile(0.5), x.nanquantile(torch.tensor([0.1, 0.9])), x[[0, 2]].aminmax())
    print(
        torch.tensor([1, 2, 3]).lt(2),
        torch.tensor([1, 2]).logical_xor(torch.tensor([0, 1])),
        ~torch.tensor([True]),
    )
    print(
        x[[0, 2, 3]].cummax(0),
        torch.arange(1, 5).cumprod(0),
        torch.ones(3, dtype=torch.bool).cumsum(0).dtype,
    )
    print(
        torch.logcumsumexp(torch.arange(3.0), 0),
        torch.arange(4).diff(),
        torch.trapezoid(torch.arange(4.0)),
    )


def integer_arithmetic() -> None:
    a, b = torch.tensor([7, -7, 7, -7]), torch.tensor([2, 2, -2, -2])
    print(
        a // b,
        a % b,
        a / b,
        torch.fmod(a, b),
        torch.div(a, b, rounding_mode="trunc"),
        a.remainder(3),
    )
    print(
        a >> 1,
        a << 2,
        a & 3,
        a | 8,
        a ^ 5,
        ~a,
        -a,
        a**2,
        abs(a),
        a.sign(),
        2 ** b.abs(),
        10 // b,
        10 % a,
    )
    print(
        raised(lambda: a // 0), raised(lambda: a**-1), torch.tensor([200], dtype=torch.uint8) + 100
    )
    print(
        torch.tensor(2**62) * 4,
        torch.tensor([1, 2], dtype=torch.int8) * 100,
        torch.gcd(a, b),
        torch.lcm(a, b),
    )
    print(
        torch.tensor([1.5, -1.5, 2.5]).round(),
        torch.tensor([300.7, -1.2]).to(torch.uint8)[:1],
        torch.tensor(3.99).int(),
    )
    print(
        torch.tensor([0.5]).bool(),
        torch.iinfo(torch.int16),
        torch.finfo(torch.float16),
        torch.finfo(torch.bfloat16).eps,
    )
    print(
        torch.tensor(5) / torch.tensor(2),
        torch.true_divide(5, torch.tensor(2)),
        torch.floor_divide(torch.tensor(-5), 2),
    )
    print(
        torch.tensor([1, 2, 3]).float().mean(),
        raised(lambda: torch.tensor([1, 2]).mean()),
        torch.tensor([True]) + True,
    )
    print(
        torch.bitwise_left_shift(torch.tensor(1), torch.tensor([1, 63])),
        torch.tensor([1, 2]).sum(dtype=torch.int8),
    )


def joining_and_tiling() -> None:
    a, b = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.int32)
    for joined in (
        torch.cat([a, b]),
        torch.stack([a, b], 1),
        torch.hstack([a, b]),
        torch.vstack([a, b]),
        torch.dstack([a, b]),
    ):
        print(describe(joined), joined.sum())
    print(
        torch.cat([a, torch.tensor([])]).shape,
        raised(lambda: torch.cat([a, torch.ones(2)])),
        raised(lambda: torch.cat([])),
    )
    print(
        raised(lambda: torch.stack([a, a[0]])),
        a.repeat(2, 1, 2).shape,
        a.tile(2).shape,
        raised(lambda: a.repeat(2)),
    )
    print(
        torch.arange(3).repeat_interleave(2),
        torch.arange(3).repeat_interleave(torch.tensor([0, 1, 3])),
    )
    print(
        torch.arange(6).view(2, 3).flip(0, 1),
        torch.arange(5).roll(2),
        torch.rot90(torch.arange(4).view(2, 2)),
    )
    grid = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="xy")
    print(
        [describe(g) for g in grid],
        torch.broadcast_shapes((3, 1), (1, 4)),
        [t.shape for t in torch.broadcast_tensors(a, a[0])],
    )
    print(
        torch.column_stack([torch.arange(2), torch.arange(2)]),
        torch.atleast_2d(torch.tensor(1)),
        torch.tril(torch.ones(2, 3), -1),
    )
    print(
        [t.tolist() for t in torch.arange(4).view(2, 2).unbind(1)],
        torch.nn.functional.pad(torch.ones(1, 2), (1, 1, 0, 1), value=2),
    )
    print(
        [t.shape for t in torch.ones(4, 4).hsplit(2)],
        torch.unravel_index(torch.tensor(5), (2, 3)),
        numbers(torch.cdist(a, a + 1)),
    )
