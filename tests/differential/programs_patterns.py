"""Short patterns of real scripts: seeds, masks, schedules, logging, state, conversions."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import tempfile
from collections import OrderedDict, defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.differential.show import describe, numbers, raised


def seed_everything() -> None:
    def seed(n):
        random.seed(n)
        np.random.seed(n)
        torch.manual_seed(n)
        torch.cuda.manual_seed_all(n)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False

    seed(42)
    a = (random.random(), np.random.rand(), torch.rand(2))
    seed(42)
    print(
        a[0] == random.random(),
        a[1] == np.random.rand(),
        torch.equal(a[2], torch.rand(2)),
        a[2],
        torch.backends.cudnn.benchmark,
    )


def choose_device() -> None:
    device = torch.device(
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )
    x = torch.ones(2).to(device, non_blocking=True)
    print(
        device,
        x.device,
        str(x.device),
        x.device == torch.device("cpu"),
        x.is_cuda,
        x.get_device(),
        device.type,
        device.index,
        torch.device("cpu", 0),
        {device: 1}[torch.device("cpu")],
    )


def count_parameters() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2))
    total = sum(p.numel() for p in net.parameters())
    size = sum(p.numel() * p.element_size() for p in net.parameters()) + sum(
        b.numel() * b.element_size() for b in net.buffers()
    )
    print(
        f"{total:,} {size / 1e3:.2f}kB",
        {n: tuple(p.shape) for n, p in net.named_parameters()},
        next(net.parameters()).device,
        next(net.parameters()).dtype,
    )


def average_meter() -> None:
    history = defaultdict(list)
    for step in range(3):
        loss = torch.tensor(1.0 / (step + 1), requires_grad=True)
        history["loss"].append(loss.item())
        history["tensor"].append(loss.detach())
    print(
        dict(history),
        torch.stack(history["tensor"]).mean(),
        np.mean(history["loss"]),
        f"{loss:.4f}",
        f"{loss.item():>8.3f}",
        "%.2f" % loss,
        json.dumps(history["loss"]),
        round(loss.item(), 2),
        str(loss),
        repr(loss.detach()),
    )


def confusion_matrix() -> None:
    y, p = torch.tensor([0, 1, 2, 2, 1, 0]), torch.tensor([0, 2, 2, 2, 1, 1])
    cm = torch.zeros(3, 3, dtype=torch.int64)
    for a, b in zip(y, p):
        cm[a, b] += 1
    fast = torch.bincount(y * 3 + p, minlength=9).view(3, 3)
    tp = cm.diag().float()
    precision, recall = tp / cm.sum(0).clamp(min=1), tp / cm.sum(1)
    print(
        cm,
        cm.equal(fast),
        precision,
        recall,
        (2 * precision * recall / (precision + recall)).nan_to_num(),
        (y == p).float().mean().item(),
        (y == p).sum().item() / len(y),
    )


def top_k_accuracy() -> None:
    logits, target = torch.randn(8, 5), torch.randint(0, 5, (8,))
    _, predicted = logits.topk(3, 1, True, True)
    correct = predicted.t().eq(target.view(1, -1).expand_as(predicted.t()))
    print(
        [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / 8) for k in (1, 3)],
        predicted.t().shape,
        correct.dtype,
    )


def nucleus_sampling() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, -1.0, -3.0])
    logits = logits / 0.8
    values, indices = torch.sort(logits, descending=True)
    drop = values.softmax(-1).cumsum(-1) > 0.9
    drop[1:] = drop[:-1].clone()
    drop[0] = False
    filtered = logits.masked_fill(drop.scatter(0, indices, drop), -float("inf"))
    print(
        filtered,
        torch.multinomial(filtered.softmax(-1), 4, replacement=True),
        torch.topk(logits, 2).values[-1],
        logits[logits < torch.topk(logits, 2).values[..., -1, None]],
    )


def beam_search() -> None:
    step = torch.randn(4, 4).log_softmax(-1)
    beams = [([0], 0.0)]
    for _ in range(3):
        candidates = [
            (seq + [k], score + step[seq[-1], k].item()) for seq, score in beams for k in range(4)
        ]
        beams = sorted(candidates, key=lambda b: -b[1])[:2]
    print([(s, round(v, 4)) for s, v in beams])


def exponential_average() -> None:
    net = nn.Linear(2, 1)
    shadow = copy.deepcopy(net).requires_grad_(False)
    for step in range(3):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.randn_like(p))
            for s, p in zip(shadow.parameters(), net.parameters()):
                s.lerp_(p, 0.1)
            torch._foreach_mul_(list(shadow.parameters()), 0.99)
    print(
        numbers(shadow.weight),
        numbers(net.weight),
        shadow.weight.requires_grad,
        torch._foreach_norm(list(net.parameters()))[0].shape,
    )


def warmup_schedule() -> None:
    optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(1))], lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / 4, max(0.0, (12 - s) / 8))
    )
    rates = []
    for _ in range(12):
        optimizer.step()
        rates.append(schedule.get_last_lr()[0])
        schedule.step()
    print(
        [round(r, 6) for r in rates],
        schedule.last_epoch,
        schedule._step_count,
        sorted(schedule.state_dict()),
    )


def weight_decay_groups() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    decay = [p for p in net.parameters() if p.dim() >= 2]
    rest = [p for p in net.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=0.01
    )
    for _ in range(3):
        net(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(
        [len(g["params"]) for g in optimizer.param_groups],
        numbers(net[0].weight),
        numbers(net[1].weight),
        {k: v for k, v in optimizer.param_groups[0].items() if k != "params"},
    )


def load_partial_checkpoint() -> None:
    old, new = (
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)),
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 5)),
    )
    state = {k: v for k, v in old.state_dict().items() if v.shape == new.state_dict()[k].shape}
    result = new.load_state_dict(state, strict=False)
    print(result, result.missing_keys, torch.equal(new[0].weight, old[0].weight))
    wrapped = OrderedDict(("module." + k, v) for k, v in old.state_dict().items())
    print(
        raised(lambda: old.load_state_dict(wrapped)),
        old.load_state_dict({k.removeprefix("module."): v for k, v in wrapped.items()}),
    )


def files_on_disk() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt")
        torch.save(
            {
                "epoch": 3,
                "state": nn.Linear(1, 1).state_dict(),
                "best": torch.tensor(0.5),
                "names": ["a"],
                "config": {"lr": 1e-3},
            },
            path,
        )
        back = torch.load(path, map_location=torch.device("cpu"), weights_only=True)
        mapped = torch.load(path, mmap=True)
        print(
            back["epoch"],
            back["best"],
            list(back["state"]),
            type(back["state"]).__name__,
            torch.equal(mapped["best"], back["best"]),
            back["config"],
            os.path.getsize(path) > 500,
        )
        with open(path, "rb") as file:
            print(
                torch.load(file)["names"], raised(lambda: torch.load(os.path.join(folder, "no.pt")))
            )
        torch.save(torch.ones(3), path, _use_new_zipfile_serialization=False)
        print(torch.load(path))


def gradient_norm_logging() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    (net(torch.ones(2, 3)).sum() * 1e3).backward()
    norms = {n: p.grad.norm().item() for n, p in net.named_parameters()}
    total = torch.norm(torch.stack([p.grad.detach().norm(2) for p in net.parameters()]), 2)
    clipped = nn.utils.clip_grad_norm_(net.parameters(), 1.0, norm_type=2.0)
    print(
        {k: round(v, 2) for k, v in norms.items()},
        numbers(total, 2),
        torch.allclose(total, clipped),
        numbers(nn.utils.get_total_norm(p.grad for p in net.parameters())),
        any(torch.isnan(p.grad).any() for p in net.parameters()),
    )


def find_learning_rate() -> None:
    net, x = nn.Linear(2, 1), torch.randn(16, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    initial, losses = copy.deepcopy(net.state_dict()), []
    for rate in torch.logspace(-3, 1, 5).tolist():
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = (net(x) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 3))
    net.load_state_dict(initial)
    print(losses, numbers(net.weight))


def mixup_and_cutout() -> None:
    x, y = torch.rand(4, 1, 6, 6), torch.arange(4)
    lam = torch.distributions.Beta(0.4, 0.4).sample().item()
    order = torch.randperm(4)
    mixed = lam * x + (1 - lam) * x[order]
    targets = F.one_hot(y, 4) * lam + F.one_hot(y[order], 4) * (1 - lam)
    top, left = torch.randint(0, 4, (2,)).tolist()
    mixed[:, :, top : top + 2, left : left + 2] = 0
    print(
        round(lam, 4),
        order,
        numbers(mixed.mean()),
        targets.dtype,
        numbers(targets),
        (mixed == 0).sum(),
    )


def normalise_images() -> None:
    image = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    x = torch.from_numpy(image).permute(2, 0, 1).float().div(255)
    mean, std = (
        torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1),
        torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1),
    )
    y = x.sub(mean).div(std)
    back = (y * std + mean).clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy()
    print(
        describe(y),
        numbers(y),
        (back == image).all(),
        back.dtype,
        x.unsqueeze(0).shape,
        describe(x),
        torch.from_numpy(image.copy()).shape,
    )


def sliding_windows() -> None:
    series = torch.arange(10.0)
    windows = series.unfold(0, 4, 2)
    pairs = [(series[i : i + 3], series[i + 3]) for i in range(4)]
    x, y = torch.stack([p[0] for p in pairs]), torch.stack([p[1] for p in pairs])
    print(
        windows,
        describe(windows),
        x,
        y,
        y.view(-1, 1).shape,
        torch.split(series, [7, 3])[1],
        series.view(5, 2).mean(1),
    )


def attention_masks() -> None:
    lengths = torch.tensor([3, 1, 2])
    mask = torch.arange(3).expand(3, 3) < lengths.unsqueeze(1)
    causal = torch.triu(torch.full((3, 3), float("-inf")), diagonal=1)
    both = mask[:, None, None, :] & torch.ones(3, 3, dtype=torch.bool).tril()
    scores = torch.zeros(3, 1, 3, 3).masked_fill(~both, torch.finfo(torch.float32).min).softmax(-1)
    additive = (1.0 - mask[:, None, :].float()) * -10000.0
    print(
        mask,
        causal,
        numbers(scores[1]),
        additive[1],
        mask.sum(1),
        mask.logical_not().any(),
        torch.isinf(causal).sum(),
    )


def pack_bits() -> None:
    x = torch.tensor([1, 0, 1, 1, 0, 0, 1, 0], dtype=torch.uint8)
    packed = (x * 2 ** torch.arange(7, -1, -1)).sum()
    bits = packed.unsqueeze(-1).bitwise_and(2 ** torch.arange(7, -1, -1)).ne(0).byte()
    print(
        packed,
        packed.dtype,
        bits,
        torch.equal(bits, x),
        (x << 1).dtype,
        x.view(torch.int8).dtype,
        torch.bitwise_xor(x, 1),
        x.bool().all(),
        (~x)[:2],
    )


def context_managers() -> None:
    x = torch.ones(2, requires_grad=True)
    for manager in (
        torch.no_grad(),
        torch.enable_grad(),
        torch.inference_mode(),
        contextlib.nullcontext(),
        torch.autograd.set_detect_anomaly(False),
        torch.random.fork_rng(),
        torch.device("cpu"),
        torch.autocast("cpu", enabled=False),
    ):
        with manager:
            y = x * 2
        print(type(manager).__name__, y.requires_grad, torch.is_grad_enabled())

    @torch.enable_grad()
    def g(v):
        return v * 2

    @torch.inference_mode()
    def h(v):
        return v * 2

    with torch.no_grad():
        print(g(x).requires_grad, h(x).is_inference())

    @torch.no_grad
    def generator():
        yield torch.is_grad_enabled()

    print(list(generator()), torch.is_grad_enabled())


def dictionaries_of_tensors() -> None:
    batch = {"input_ids": torch.tensor([[1, 2]]), "mask": torch.ones(1, 2), "label": 3}
    moved = {k: v.to("cpu", torch.float64) if torch.is_tensor(v) else v for k, v in batch.items()}
    print(
        moved,
        {k: getattr(v, "dtype", None) for k, v in moved.items()},
        torch.utils._pytree.tree_map(lambda t: t + 1, batch),
        sorted(batch, key=len),
    )
    a = torch.tensor(2)
    print(
        a == 2,
        a in (1, 2),
        [1, 2, 3][a],
        "abc"[a],
        range(5)[a],
        {2: "x"}.get(a.item()),
        a.item() is not None,
        a and 1,
        not a,
        max(torch.tensor([1, 3, 2])),
        sum(torch.ones(3)),
        sorted(torch.tensor([2, 1]).tolist()),
        min(a, torch.tensor(1)),
    )


def printing_models() -> None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
            self.b = nn.ModuleDict({"x": nn.Sequential(nn.ReLU(), nn.Dropout(0.1))})
            self.p = nn.ParameterList([torch.ones(2)])
            self.e = nn.Embedding(3, 2, padding_idx=0)

        def extra_repr(self):
            return "size=3"

    print(Net())
    print(
        nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(1, 2, (3, 1), padding=(1, 0), bias=False),
                act=nn.LeakyReLU(0.2, inplace=True),
                up=nn.Upsample(scale_factor=2.0, mode="bicubic", align_corners=True),
                norm=nn.BatchNorm2d(2, eps=1e-3, affine=False),
            )
        )
    )
    print(
        nn.Transformer(4, 2, 1, 1, 8),
        nn.GRU(2, 3, 2, dropout=0.1, bidirectional=True),
        nn.CrossEntropyLoss(weight=torch.ones(2)),
        nn.Softmax(dim=-1),
        nn.Unflatten(1, (2, 2)),
        nn.Flatten(),
        nn.ZeroPad2d((1, 2, 0, 0)),
        nn.MaxPool2d((2, 1), stride=1),
        nn.AvgPool1d(3),
        nn.MultiheadAttention(4, 2),
        nn.PReLU(),
        nn.GLU(),
        nn.Hardtanh(),
        nn.AdaptiveAvgPool2d((None, 2)),
        nn.EmbeddingBag(3, 2),
        nn.Bilinear(1, 2, 3),
        nn.LSTMCell(1, 2),
        nn.GaussianNLLLoss(),
        nn.ConstantPad2d(1, 0.5),
        nn.PixelShuffle(3),
        nn.LPPool1d(2, 3),
        sep="\n",
    )


def loops_over_tensors() -> None:
    x = torch.arange(6).view(2, 3)
    for i, row in enumerate(x):
        print(i, row, [v.item() for v in row], int(row.sum()))
    for a, b in zip(x.unbind(1), torch.ones(3)):
        print(a, b)
    rows = [r for r in x if r[0] > 1]
    total = 0
    for v in x.flatten():
        total += v
    print(
        rows,
        total,
        type(total).__name__,
        len(x),
        [list(r) for r in x.tolist()],
        dict(enumerate(x[0].tolist())),
        list(map(float, x[1])),
        next(iter(x)),
        list(reversed(x))[0],
        x.tolist() == [[0, 1, 2], [3, 4, 5]],
        (x == x).all().item() is True,
    )


def numeric_edge_cases() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 1e-45, 3.4e38])
    print(
        x,
        1 / x,
        x * 2,
        x - x,
        x.sum(),
        x[:4].max(),
        x.argmax(),
        x.sort().values,
        x.softmax(0),
        x.clamp(-1, 1),
        torch.sqrt(-x),
        x.log(),
        x == 0,
        x.int()[:2],
        x.sign(),
        x.exp(),
        x.tanh(),
        torch.logsumexp(x[:3], 0),
        torch.logsumexp(x[3:4], 0),
        x[:2].prod(),
        x.isfinite(),
        x.unique().numel(),
    )
    print(
        torch.tensor(1e20).int().dtype,
        torch.tensor(5) // 2,
        torch.tensor(-5) // 2,
        torch.tensor(-5) % 3,
        torch.tensor(-5.5) % 2,
        torch.fmod(torch.tensor(-5.5), 2),
        torch.tensor(7).float() / 0,
        torch.tensor(2**53 + 1).double(),
        torch.tensor(0.1) + 0.2,
        torch.tensor(0.1, dtype=torch.float64) + 0.2,
        torch.tensor(16777217.0),
    )


def text_of_small_numbers() -> None:
    for values in (
        [1e-4, 1.0],
        [1e-3, 999.0],
        [1e8, 1.0],
        [0.00001],
        [100000.0, 0.1],
        [12345678.0],
        [1.0, 2.0, 3.5],
        [-1.0, float("nan")],
        [1e10],
        [0.1 + 0.2],
        [1 / 3] * 3,
    ):
        print(
            torch.tensor(values),
            torch.tensor(values, dtype=torch.float64),
            torch.tensor(values).half() if max(map(abs, values)) < 6e4 else "",
        )
    print(
        torch.tensor([[1, 20], [300, 4]]),
        torch.tensor([[[1.5]], [[2.0]]]),
        torch.zeros(2, 0),
        torch.tensor([1 + 1e-3j, 100j]),
        torch.tensor([True]),
        torch.empty(0, dtype=torch.long),
        torch.arange(1001),
        torch.ones(11, 300)[:, :1].T,
        torch.tensor([2**40]),
        torch.full((3, 3), -1.25),
        sep="\n",
    )


def buffers_in_memory() -> None:
    data = bytearray(np.arange(4, dtype=np.float32).tobytes())
    x = torch.frombuffer(data, dtype=torch.float32)
    y = torch.frombuffer(data, dtype=torch.float32, count=2, offset=8)
    data[0:4] = np.float32(9).tobytes()
    stream = io.BytesIO(x.numpy().tobytes())
    print(
        x,
        y,
        np.frombuffer(stream.read(), np.float32),
        x.numpy().tobytes()[:4],
        bytes(x[:1].numpy().data),
        memoryview(x.numpy()).shape,
        raised(lambda: torch.frombuffer(bytearray(3), dtype=torch.int16)),
        x.untyped_storage().nbytes(),
    )
