"""Exceptions as programs catch them, and warnings."""

from __future__ import annotations

import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.differential.show import raised


def shapes_that_do_not_fit() -> None:
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    for call in (
        lambda: a + b,
        lambda: a @ b,
        lambda: torch.cat([a, b]),
        lambda: a.view(7),
        lambda: a.reshape(-1, 4),
        lambda: a.expand(3, 3),
        lambda: a.transpose(0, 2),
        lambda: a.permute(0),
        lambda: a.squeeze(5),
        lambda: a.unsqueeze(4),
        lambda: a.sum(2),
        lambda: a.split(0),
        lambda: a.split([1, 2], 1).count(3),
        lambda: a.chunk(0),
        lambda: a.gather(0, torch.tensor([[5]])),
        lambda: a.index_select(0, torch.tensor([3])),
        lambda: a.scatter(0, torch.tensor([[9]]), 1.0),
        lambda: a.masked_fill(torch.ones(3, 3).bool(), 0),
        lambda: a.repeat(1),
        lambda: a.flatten(1, 0),
        lambda: a.unflatten(1, (2, 2)),
        lambda: a.narrow(0, 1, 5),
        lambda: a.diagonal(0, 1, 1),
        lambda: torch.stack([a, b]),
        lambda: a.topk(5),
        lambda: a.kthvalue(9),
        lambda: torch.einsum("ab,bc->ac", a, b),
        lambda: torch.bmm(a, b),
        lambda: torch.broadcast_to(a, (2, 2)),
        lambda: a.roll(1, 5),
        lambda: a.unfold(0, 9, 1),
        lambda: torch.where(a > 0, a, b),
        lambda: a.copy_(b),
        lambda: a.add_(b),
        lambda: torch.add(a, a, out=torch.ones(3, 3, dtype=torch.int32)),
        lambda: a.T @ a.T,
    ):
        print(raised(call))


def types_that_do_not_fit() -> None:
    a = torch.ones(2)
    for call in (
        lambda: torch.tensor("a"),
        lambda: torch.tensor([1, "a"]),
        lambda: torch.tensor([[1], [1, 2]]),
        lambda: torch.tensor(None),
        lambda: torch.ones("a"),
        lambda: torch.zeros(2.5),
        lambda: torch.ones(-1),
        lambda: a + "x",
        lambda: a + None,
        lambda: a + [1, 2],
        lambda: torch.add(a),
        lambda: torch.add(a, a, a, a),
        lambda: a.add(other=a, foo=1),
        lambda: a.sum(dim="x"),
        lambda: a.to("nope"),
        lambda: a.to(5),
        lambda: torch.cat(a),
        lambda: torch.stack(3),
        lambda: a & a,
        lambda: a.long() << 0.5,
        lambda: torch.arange(0, 5, 0),
        lambda: torch.arange(5, 0),
        lambda: torch.linspace(0, 1, -1),
        lambda: torch.eye(-1),
        lambda: a.item(),
        lambda: a[0].backward(),
        lambda: torch.nn.Parameter(3),
        lambda: F.relu([1]),
        lambda: torch.full((2,), "a"),
        lambda: torch.randperm(-1),
        lambda: a.nope,
        lambda: torch.nope,
        lambda: a.__setitem__("x", 1),
        lambda: a ** "x",
        lambda: a.clamp(),
        lambda: torch.tensor(1).unbind(),
        lambda: torch.sqrt("x"),
        lambda: torch.manual_seed("x"),
        lambda: torch.device(3.5),
        lambda: a.requires_grad_("x"),
        lambda: torch.Size([1.5]),
        lambda: a.numpy().nope,
        lambda: round(a),
        lambda: a < "x",
        lambda: sorted([a, a]),
        lambda: a.dtype.nope,
        lambda: divmod(a, 2),
    ):
        print(raised(call))


def layer_errors() -> None:
    for call in (
        lambda: nn.Linear(3, 4)(torch.ones(2)),
        lambda: nn.Linear(3, 4)(torch.ones(2, 3).long()),
        lambda: nn.Linear(3, 4)(torch.ones(3).double()),
        lambda: nn.Linear("a", 3),
        lambda: nn.Conv2d(1, 1, 3)(torch.ones(5)),
        lambda: nn.Conv2d(1, 1, 3)(torch.ones(1, 1, 2, 2)),
        lambda: nn.Embedding(3, 2)(torch.ones(2)),
        lambda: nn.Embedding(3, 2)(torch.tensor([3])),
        lambda: nn.BatchNorm2d(3)(torch.ones(1, 2, 2, 2)),
        lambda: nn.LayerNorm(3)(torch.ones(2, 4)),
        lambda: nn.LSTM(2, 3)(torch.ones(4, 5)),
        lambda: nn.GRU(2, 3)(torch.ones(1, 1, 2), torch.ones(2, 1, 3)),
        lambda: nn.MultiheadAttention(5, 2),
        lambda: nn.Dropout(1.5),
        lambda: nn.Softmax(3)(torch.ones(2, 2)),
        lambda: nn.CrossEntropyLoss()(torch.ones(2, 3), torch.tensor([0, 9])),
        lambda: nn.NLLLoss()(torch.ones(2, 3), torch.ones(2)),
        lambda: nn.BCELoss()(torch.tensor([2.0]), torch.tensor([1.0])),
        lambda: nn.Sequential(1, 2),
        lambda: nn.ModuleList([1]),
        lambda: nn.Module()(1),
        lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 3))(torch.ones(2)),
        lambda: nn.MaxPool2d(2)(torch.ones(2)),
        lambda: nn.Upsample(2)(torch.ones(2)),
        lambda: F.interpolate(torch.ones(1, 1, 2, 2)),
        lambda: F.pad(torch.ones(2), (1,)),
        lambda: F.pad(torch.ones(2, 2), (1, 1), mode="reflect3"),
        lambda: F.one_hot(torch.tensor([-1])),
        lambda: F.one_hot(torch.tensor([3]), 2),
        lambda: F.conv2d(torch.ones(1, 2, 3, 3), torch.ones(1, 1, 2, 2)),
        lambda: F.embedding(torch.tensor([0]), torch.ones(2, 2), padding_idx=5),
        lambda: F.dropout(torch.ones(2), -1),
        lambda: nn.PixelShuffle(2)(torch.ones(1, 3, 2, 2)),
        lambda: nn.Identity(1, 2)(3),
        lambda: nn.Flatten(3)(torch.ones(2, 2)),
        lambda: nn.Unflatten(1, (2, 2))(torch.ones(2, 3)),
        lambda: nn.GroupNorm(2, 3),
        lambda: nn.Transformer(7, 2),
        lambda: nn.Bilinear(2, 2, 1)(torch.ones(2), torch.ones(3)),
        lambda: F.softmax(torch.ones(2).long(), 0),
        lambda: F.gelu(torch.ones(2), approximate="x"),
        lambda: F.scaled_dot_product_attention(
            torch.ones(1, 2, 3), torch.ones(1, 2, 4), torch.ones(1, 2, 3)
        ),
    ):
        print(raised(call))


def gradient_errors() -> None:
    x = torch.ones(2, requires_grad=True)
    y = (x * 2).sum()
    y.backward()

    def freed():
        z = x.exp()
        z.sum().backward()
        z.sum().backward()

    def overwritten():
        z = x.sigmoid()
        z.mul_(2)
        z.sum().backward()

    for call in (
        freed,
        overwritten,
        lambda: x.numpy(),
        lambda: x.add_(1),
        lambda: (x * 2).backward(),
        lambda: torch.ones(1).backward(),
        lambda: x.detach().requires_grad_(False).sum().backward(),
        lambda: torch.autograd.grad(x.sum(), torch.ones(1)),
        lambda: (x.view(2)).add_(1),
        lambda: x.data.add_(1),
        lambda: x.long().requires_grad_(),
        lambda: torch.tensor([1], requires_grad=True),
        lambda: x.detach_(),
        lambda: (x * 1).requires_grad_(False),
        lambda: x.resize_(3),
        lambda: setattr(x * 1, "requires_grad", False),
        lambda: setattr(x, "data", torch.ones(3)),
        lambda: setattr(x, "grad", torch.ones(2).double()),
        lambda: torch.autograd.backward([y, y], [None]),
        lambda: x.unbind()[0].add_(1),
        lambda: x.split(1)[0].mul_(2),
        lambda: x.expand(2, 2).add_(1),
        lambda: torch.set_grad_enabled("x"),
    ):
        print(raised(call))


def caught_and_continued() -> None:
    x = torch.ones(3)
    try:
        x @ torch.ones(4)
    except RuntimeError as error:
        print("caught", type(error).__mro__[1].__name__, bool(str(error)))
    try:
        x[10]
    except IndexError:
        print("index")
    for bad in (lambda: torch.load("nothing.pt"), lambda: open("nothing.pt")):
        try:
            bad()
        except FileNotFoundError as error:
            print(error.errno, error.filename)
    try:
        torch.linalg.inv(torch.zeros(2, 2))
    except torch.linalg.LinAlgError as error:
        print("singular", isinstance(error, RuntimeError))
    try:
        raise torch.cuda.OutOfMemoryError("x")
    except RuntimeError as error:
        print(type(error).__name__, torch.OutOfMemoryError is torch.cuda.OutOfMemoryError)
    print(
        issubclass(torch.AcceleratorError, RuntimeError),
        raised(lambda: torch._assert(False, "no")),
        raised(lambda: torch._check(False)),
        raised(lambda: torch._check_type(1 == 2, lambda: "x")),
    )
    print(
        raised(lambda: torch.testing.assert_close(torch.ones(1), torch.zeros(1))),
        raised(lambda: torch.testing.assert_close(torch.ones(1), torch.ones(2))),
        raised(lambda: torch.testing.assert_close(1, "a")),
    )


def warnings_of_operators() -> None:
    x = torch.randn(3, 3)
    x.T
    torch.ones(2, 2, 2).T
    torch.ones(2, 2, 2).H if False else None
    torch.meshgrid(torch.arange(2), torch.arange(2))
    torch.tensor(x)
    torch.range(0, 2)
    torch.chain_matmul(x, x)
    torch.add(torch.ones(3), torch.ones(3), out=torch.ones(2))
    x[torch.tensor([1, 0, 1], dtype=torch.uint8)]
    torch.floor_divide(x, 2)
    x.norm(), torch.norm(x)
    torch.triangular_solve(x, x)
    torch.ones(2, requires_grad=True).grad
    (torch.ones(2, requires_grad=True) * 2).grad
    torch.tensor([1 + 1j]).float()
    torch.nn.functional.upsample(torch.ones(1, 1, 2, 2), 4)
    torch.nn.functional.dropout2d(torch.ones(2, 2))
    torch.ones(1).storage()
    torch.vmap, torch.symeig, torch.rand(3).std(0), torch.tensor([1.0]).var()
    torch.nn.utils.clip_grad_norm_([torch.ones(1)], 1.0)
    torch.cuda.amp.autocast, torch.norm(x, p=2, dim=1)
    torch.masked_fill(x, torch.zeros(3, 3).byte(), 1) if False else None
    torch.linalg.matrix_norm(x, "fro"), torch.lobpcg
    torch.nn.functional.binary_cross_entropy(torch.rand(2, 1), torch.rand(2, 1))
    torch.utils.checkpoint.checkpoint(lambda v: v * 2, torch.ones(1))
    print("done")


def filters_and_contexts() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        print(
            raised(lambda: F.mse_loss(torch.ones(2, 1), torch.ones(2))),
            raised(lambda: F.softmax(torch.ones(2))),
            raised(lambda: torch.ones(1).std()),
        )
        warnings.simplefilter("ignore")
        print(raised(lambda: F.mse_loss(torch.ones(2, 1), torch.ones(2))))
    torch.use_deterministic_algorithms(True, warn_only=True)
    print(
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.empty(2),
    )
    torch.use_deterministic_algorithms(False)
    print(
        torch.get_num_threads() > 0,
        torch.is_warn_always_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.is_available() in (True, False),
        torch.__version__ >= "2.0",
    )
    with torch.autograd.profiler.record_function("x"):
        pass
    print(
        raised(lambda: torch.set_num_threads(-1)),
        raised(lambda: torch.set_float32_matmul_precision("x")),
        raised(lambda: torch.set_printoptions(profile="x")),
    )
