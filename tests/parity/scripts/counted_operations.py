"""Floating-point operations of modules, by module and operator."""

# ruff: noqa
import torch, torch.nn as nn, torch.nn.functional as F, warnings

warnings.simplefilter("ignore")
from torch.utils.flop_counter import FlopCounterMode


def go(n, f):
    m = FlopCounterMode(display=False)
    with m:
        f()
    print(
        n,
        m.get_total_flops(),
        sorted(
            (k, sorted((str(a), b) for a, b in v.items())) for k, v in m.get_flop_counts().items()
        ),
    )


q = torch.randn(2, 2, 5, 4, requires_grad=True)
go("sdpa", lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())
go("sdpan", lambda: F.scaled_dot_product_attention(q.detach(), q.detach(), q.detach()))
m = torch.ones(5, 5, dtype=torch.bool)
go("sdpam", lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=m).sum().backward())
go("sdpad", lambda: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).sum().backward())
go(
    "enc",
    lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(torch.randn(2, 5, 8))
        .sum()
        .backward()
    ),
)
go(
    "mha",
    lambda: (
        nn.MultiheadAttention(8, 2)(
            torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
        )[0]
        .sum()
        .backward()
    ),
)
go("conv", lambda: nn.Conv2d(4, 8, 3, groups=2)(torch.ones(2, 4, 8, 8)).sum().backward())
go(
    "convx",
    lambda: (
        nn.Conv2d(4, 8, 3, groups=2)(torch.ones(2, 4, 8, 8, requires_grad=True)).sum().backward()
    ),
)
go(
    "conv1",
    lambda: (
        nn.Conv1d(4, 8, 3, stride=2, padding=1)(torch.ones(2, 4, 8, requires_grad=True))
        .sum()
        .backward()
    ),
)
go(
    "conv3",
    lambda: nn.Conv3d(4, 8, 2)(torch.ones(2, 4, 5, 5, 5, requires_grad=True)).sum().backward(),
)
go(
    "convt",
    lambda: (
        nn.ConvTranspose2d(4, 8, 3, stride=2)(torch.ones(2, 4, 8, 8, requires_grad=True))
        .sum()
        .backward()
    ),
)
go(
    "convtg",
    lambda: (
        nn.ConvTranspose2d(4, 8, 3, stride=2, groups=2)(torch.ones(2, 4, 8, 8, requires_grad=True))
        .sum()
        .backward()
    ),
)
go("lin3", lambda: nn.Linear(3, 4)(torch.ones(2, 5, 3, requires_grad=True)).sum().backward())
go("lin3n", lambda: nn.Linear(3, 4)(torch.ones(2, 5, 3)).sum().backward())
go("lin1", lambda: nn.Linear(3, 4)(torch.ones(3, requires_grad=True)).sum().backward())
go("linnb", lambda: nn.Linear(3, 4, bias=False)(torch.ones(2, 5, 3)).sum().backward())
go("ein", lambda: torch.einsum("bhd,bhe->de", q[0], q[0]))
go(
    "mm",
    lambda: (
        torch.ones(2, 3) @ torch.ones(3, 4),
        torch.ones(5, 2, 3) @ torch.ones(5, 3, 4),
        torch.ones(5, 2, 3) @ torch.ones(3, 4),
        torch.ones(3) @ torch.ones(3),
        torch.ones(2, 3) @ torch.ones(3),
    ),
)
go("bad", lambda: torch.baddbmm(q[0], q[0], torch.ones(2, 4, 4)))
go("addmm", lambda: torch.addmm(torch.ones(4), torch.ones(2, 3), torch.ones(3, 4)))


class N(nn.Module):
    def __init__(s):
        super().__init__()
        s.a = nn.Linear(4, 4)
        s.b = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(s, x):
        return s.b(s.a(x)) @ torch.ones(4, 2)


go("N", lambda: N()(torch.ones(3, 4)).sum().backward())
go("lin4", lambda: nn.Linear(3, 4)(torch.ones(2, 5, 6, 3)).sum().backward())
go("lint", lambda: nn.Linear(3, 4)(torch.ones(2, 3, 5).mT).sum().backward())
