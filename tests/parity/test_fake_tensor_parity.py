"""Fake tensors: the same calls in both libraries give the same texts and the same exceptions."""

from __future__ import annotations

import re

import pytest

import flambeau
import flambeau._subclasses.fake_tensor as ours

oracle = pytest.importorskip("torch")
theirs = pytest.importorskip("torch._subclasses.fake_tensor")

CALLS = """
x
x + 1
x.t().stride()
x.to(torch.float64)
x.device, x.is_cpu, x.is_meta, x.fake_device
x.sum().item()
x.item()
x.tolist()
bool(x.sum())
int(x.sum())
x.numpy()
x.nonzero()
x[x > 0]
torch.masked_select(x, x > 0)
torch.unique(x)
torch.unique(x, dim=0)
torch.unique_consecutive(x)
torch.is_nonzero(x.sum())
torch.bincount(x.long().flatten())
torch.repeat_interleave(x.long().flatten())
torch.argwhere(x)
torch.equal(x, x)
torch.allclose(x, x)
x + real
real + 1
torch.nn.Parameter(x)
mode.from_tensor(torch.nn.Parameter(real))
mode.from_tensor(real) is mode.from_tensor(real)
x.untyped_storage().nbytes()
x.constant
torch.empty(3, device="cuda")
torch.ones(3, device="cuda") + torch.ones(3)
torch.ones(3, device="cuda") + torch.ones(())
torch.ones(()) + torch.ones(3, device="cuda")
torch.ones(3, device="cuda:1") * torch.ones(3, device="cuda:0")
torch.cat([torch.ones(2), torch.ones(2, device="cuda")])
torch.ones(3, device="meta") + torch.ones(3)
torch.ones(4).copy_(torch.ones(4, device="cuda"))
torch.zeros(2, device="cuda").add_(torch.ones(2))
torch.ones(4)[torch.tensor([0, 1], device="cuda")]
torch.ones(2, device="cuda").cpu()
torch.ones(2).to("meta")
torch.tensor(3).item()
(torch.tensor(5) * 2).item()
torch.tensor([1.0, 2.0]).tolist()
torch.tensor(3).add_(1).item()
torch.full((), 3).item()
torch.tensor([1, 2]), torch.arange(5), torch.randn(2), torch.eye(2), torch.linspace(0, 1, 3)
torch.nn.Linear(3, 4).weight
torch.nn.Linear(3, 4)(torch.randn(2, 3)).shape
torch.randint(0, 3, (2,)), torch.randperm(4), torch.hann_window(4), torch.scalar_tensor(3.0)
torch.bincount(torch.tensor([1, 2]))
torch.repeat_interleave(torch.tensor([1, 2]))
torch.ones(3).view(torch.int32), torch.ones(2, dtype=torch.bool).any()
torch.nn.LSTM(3, 4)(torch.randn(5, 2, 3))[1][0].shape
torch.ones(2, 3, device="cuda").new_zeros(2), torch.zeros_like(torch.ones(2, device="cuda"))
torch.linalg.svd(torch.ones(3, 2)).S, torch.max(torch.ones(2, 3), 1).indices
""".strip().splitlines()
INSIDE = CALLS.index('torch.empty(3, device="cuda")')


def outcome(torch, fake, call, inside):
    mode, real = fake.FakeTensorMode(), torch.ones(2, 3)
    names = {"torch": torch, "mode": mode, "real": real, "x": mode.from_tensor(real)}
    try:
        if inside or call == "real + 1":
            with mode:
                return repr(eval(call, names)).replace("flambeau.", "torch.")
        return repr(eval(call, names)).replace("flambeau.", "torch.")
    except Exception as error:
        text = str(error).partition("\n")[0]
        return type(error).__name__, re.sub(r"^\[\w+\] ", "", text)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda number: CALLS[number])
def test_same_outcome(number):
    call, inside = CALLS[number], number >= INSIDE
    assert outcome(flambeau, ours, call, inside) == outcome(oracle, theirs, call, inside)
