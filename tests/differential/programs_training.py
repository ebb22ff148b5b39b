"""Small models of many kinds, trained for a few steps."""

from __future__ import annotations

import math
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.differential.show import describe, numbers, raised


def classifier() -> None:
    x = torch.randn(64, 8)
    y = (x[:, 0] + x[:, 1] > 0).long()
    net = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    for epoch in range(3):
        net.train()
        total = 0.0
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(net(xb), yb)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(xb)
        schedule.step()
        net.eval()
        with torch.no_grad():
            accuracy = (net(x).argmax(1) == y).float().mean()
        print(f"{epoch} {total / 64:.3f} {accuracy:.3f} {schedule.get_last_lr()[0]:.5f}")


def convolutional_network() -> None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 8, 3, padding=1),
                nn.ReLU(inplace=True),
                nn.AdaptiveAvgPool2d(1),
            )
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(torch.flatten(self.features(x), 1))

    net, x, y = Net(), torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        print(numbers(loss), numbers(net.features[1].running_mean), numbers(net.head.bias.grad))


def character_model() -> None:
    text = "hello world, hello there, hello again"
    vocabulary = sorted(set(text))
    ids = torch.tensor([vocabulary.index(c) for c in text])

    class Model(nn.Module):
        def __init__(self, size, hidden=16):
            super().__init__()
            self.embed = nn.Embedding(size, 8)
            self.rnn = nn.GRU(8, hidden, batch_first=True)
            self.out = nn.Linear(hidden, size)

        def forward(self, x, state=None):
            y, state = self.rnn(self.embed(x), state)
            return self.out(y), state

    model = Model(len(vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(12):
        logits, _ = model(ids[None, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), ids[None, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(numbers(loss, 3))
    model.eval()
    state, token, out = None, ids[:1][None], []
    with torch.no_grad():
        for _ in range(8):
            logits, state = model(token, state)
            token = logits[:, -1].argmax(-1, keepdim=True)
            out.append(vocabulary[token.item()])
    print("".join(out), describe(state))


def small_transformer() -> None:
    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.qkv, self.proj, self.heads = (
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
                heads,
            )

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).split(c, dim=2)
            q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            scores = scores.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
            return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))

    class Block(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn = Attention(width, 2)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    model = nn.Sequential(
        nn.Embedding(11, 16), Block(), Block(), nn.LayerNorm(16), nn.Linear(16, 11, bias=False)
    )
    model[-1].weight = model[0].weight
    data = torch.randint(0, 11, (4, 9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(4):
        logits = model(data[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 11), data[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(numbers(loss), numbers(model[0].weight.grad.norm()))
    print(
        len(list(model.parameters())), len(model.state_dict()), model[-1].weight is model[0].weight
    )


def variational_autoencoder() -> None:
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.mu, self.logvar = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)
            self.dec = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6), nn.Sigmoid())

        def forward(self, x):
            h = F.relu(self.enc(x))
            mu, logvar = self.mu(h), self.logvar(h)
            z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
            return self.dec(z), mu, logvar

    model, x = VAE(), torch.rand(10, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x, reduction="sum")
        kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        optimizer.zero_grad()
        (bce + kl).backward()
        optimizer.step()
        print(numbers(bce, 3), numbers(kl))


def adversarial_networks() -> None:
    g = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    d = nn.Sequential(nn.Linear(1, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    og = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.5, 0.999))
    od = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.5, 0.999))
    loss = nn.BCEWithLogitsLoss()
    for _ in range(4):
        real = torch.randn(16, 1) * 0.5 + 2
        fake = g(torch.randn(16, 2))
        od.zero_grad()
        loss_d = loss(d(real), torch.ones(16, 1)) + loss(d(fake.detach()), torch.zeros(16, 1))
        loss_d.backward()
        od.step()
        og.zero_grad()
        loss_g = loss(d(fake), torch.ones_like(fake))
        loss_g.backward()
        og.step()
        print(numbers(loss_d), numbers(loss_g))


def gradient_penalty() -> None:
    critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    for _ in range(3):
        real, fake = torch.randn(8, 2), torch.randn(8, 2) + 1
        alpha = torch.rand(8, 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        (grads,) = torch.autograd.grad(
            critic(mixed).sum(), mixed, create_graph=True, retain_graph=True
        )
        penalty = ((grads.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(numbers(loss), numbers(penalty))


def q_learning() -> None:
    net, target = nn.Linear(4, 2), nn.Linear(4, 2)
    target.load_state_dict(net.state_dict())
    memory = deque(maxlen=50)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    state = torch.zeros(4)
    for step in range(20):
        action = random.randrange(2) if random.random() < 0.3 else net(state).argmax().item()
        after = state + torch.randn(4) * 0.1
        memory.append((state, action, float(after.sum() > 0), after, step % 7 == 6))
        state = after
        if len(memory) >= 8:
            s, a, r, n, done = zip(*random.sample(memory, 8))
            s, n, a = torch.stack(s), torch.stack(n), torch.tensor(a)
            q = net(s).gather(1, a.unsqueeze(1)).squeeze(1)
            with torch.no_grad():
                goal = torch.tensor(r) + 0.9 * target(n).max(1)[0] * (
                    1 - torch.tensor(done).float()
                )
            loss = F.smooth_l1_loss(q, goal)
            optimizer.zero_grad()
            loss.backward()
            for p in net.parameters():
                p.grad.data.clamp_(-1, 1)
            optimizer.step()
            for tp, p in zip(target.parameters(), net.parameters()):
                tp.data.mul_(0.9).add_(p.data, alpha=0.1)
    print(numbers(net.weight), numbers(target.bias), numbers(loss))


def policy_gradient() -> None:
    policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    for _ in range(3):
        log_probs, rewards, entropies, state = [], [], [], torch.zeros(3)
        for _ in range(6):
            dist = torch.distributions.Categorical(logits=policy(state))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            entropies.append(dist.entropy())
            rewards.append(action.item())
            state = torch.tensor([action.item(), state[0], state[1]])
        returns, total = [], 0.0
        for r in reversed(rewards):
            total = r + 0.9 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(log_probs) * returns).sum() - 0.01 * torch.stack(entropies).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(rewards, numbers(loss), describe(returns))


def diffusion() -> None:
    steps = 10
    betas = torch.linspace(1e-4, 0.02, steps)
    alphas_bar = torch.cumprod(1 - betas, 0)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Embedding(steps, 8)
            self.net = nn.Sequential(nn.Linear(2 + 8, 16), nn.SiLU(), nn.Linear(16, 2))

        def forward(self, x, t):
            return self.net(torch.cat([x, self.time(t)], dim=-1))

    model, data = Denoiser(), torch.randn(32, 2) * 0.3 + 1
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(5):
        t = torch.randint(0, steps, (32,))
        noise = torch.randn_like(data)
        noisy = alphas_bar[t].sqrt()[:, None] * data + (1 - alphas_bar[t]).sqrt()[:, None] * noise
        loss = F.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(numbers(loss))
    x = torch.randn(3, 2)
    with torch.inference_mode():
        for t in reversed(range(steps)):
            eps = model(x, torch.full((3,), t))
            x = (x - betas[t] / (1 - alphas_bar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
            if t > 0:
                x = x + betas[t].sqrt() * torch.randn_like(x)
    print(numbers(x), x.is_inference(), raised(lambda: x.requires_grad_()))


def meta_learning() -> None:
    from torch.func import functional_call

    net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(3):
        outer = 0.0
        for _ in range(2):
            phase = torch.rand(1) * math.pi
            x = torch.rand(10, 1) * 4
            y = torch.sin(x + phase)
            weights = dict(net.named_parameters())
            inner = F.mse_loss(functional_call(net, weights, x[:5]), y[:5])
            grads = torch.autograd.grad(inner, tuple(weights.values()), create_graph=True)
            fast = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads)}
            outer = outer + F.mse_loss(functional_call(net, fast, x[5:]), y[5:])
        optimizer.zero_grad()
        outer.backward()
        optimizer.step()
        print(numbers(outer), numbers(net[0].weight.grad.norm()))


def graph_network() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
    x = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 0, 1])

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)

        def propagate(self, h):
            source, target = edges
            degree = torch.zeros(4).scatter_add_(0, target, torch.ones(8))
            norm = degree.pow(-0.5)
            messages = h[source] * (norm[source] * norm[target]).unsqueeze(-1)
            return torch.zeros_like(h).index_add_(0, target, messages) + h

        def forward(self, x):
            return self.propagate(self.b(F.relu(self.propagate(self.a(x)))))

    net = GCN()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(4):
        loss = F.nll_loss(F.log_softmax(net(x), dim=1)[:3], labels[:3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(numbers(loss))
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(8), (4, 4)).coalesce()
    print(
        numbers(torch.sparse.mm(adjacency, x)),
        adjacency._nnz(),
        numbers(torch.sparse.sum(adjacency, 1)),
    )
    out = torch.full((4, 3), float("-inf")).scatter_reduce(
        0, edges[1][:, None].expand(-1, 3), x[edges[0]], "amax"
    )
    print(numbers(out))


def physics_informed() -> None:
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    t = torch.linspace(0, 2, 12).view(-1, 1).requires_grad_()

    def closure():
        optimizer.zero_grad()
        u = net(t)
        du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
        d2u = torch.autograd.grad(du.sum(), t, create_graph=True)[0]
        loss = (d2u + u).pow(2).mean() + (u[0] - 1).pow(2).sum() + du[0].pow(2).sum()
        loss.backward()
        return loss

    for _ in range(2):
        print(numbers(optimizer.step(closure).detach(), 2))


def siamese_and_contrastive() -> None:
    encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    base = torch.randn(5, 6)
    for _ in range(3):
        a, b = (
            encoder(base + 0.1 * torch.randn_like(base)),
            encoder(base + 0.1 * torch.randn_like(base)),
        )
        z = F.normalize(torch.cat([a, b]), dim=1)
        sim = z @ z.T / 0.5
        sim.fill_diagonal_(float("-inf"))
        targets = torch.cat([torch.arange(5, 10), torch.arange(5)])
        loss = F.cross_entropy(sim, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(numbers(loss), type(sim.grad_fn).__name__)


def mixture_of_experts() -> None:
    class MoE(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows, slot = torch.where(chosen == i)
                if rows.numel():
                    out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
            return out, chosen

    net, x = MoE(), torch.randn(6, 4)
    out, chosen = net(x)
    out.pow(2).sum().backward()
    print(
        numbers(out),
        chosen,
        [numbers(e.bias.grad) if e.bias.grad is not None else None for e in net.experts],
        describe(out),
    )


def low_rank_adapters() -> None:
    class LoRA(nn.Module):
        def __init__(self, base, rank=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.01)
            self.b = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + x @ self.a.T @ self.b.T

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.Linear):
            setattr(net, name, LoRA(module))
    trainable = [n for n, p in net.named_parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.1)
    x = torch.randn(5, 4)
    for _ in range(3):
        loss = net(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        merged = net[0].base.weight + net[0].b @ net[0].a
    print(
        trainable,
        numbers(loss),
        numbers(merged[0]),
        sum(p.numel() for p in net.parameters() if p.requires_grad),
    )


def text_classifier() -> None:
    texts = [("good great fun", 1), ("bad awful sad", 0), ("great good good", 1), ("sad bad", 0)]
    words = {w: i + 1 for i, w in enumerate(sorted({w for t, _ in texts for w in t.split()}))}

    def collate(batch):
        ids = [torch.tensor([words[w] for w in t.split()]) for t, _ in batch]
        offsets = torch.tensor([0] + [len(i) for i in ids[:-1]]).cumsum(0)
        return torch.cat(ids), offsets, torch.tensor([y for _, y in batch])

    bag, head = nn.EmbeddingBag(len(words) + 1, 4, mode="sum", sparse=True), nn.Linear(4, 2)
    sparse = torch.optim.SparseAdam(bag.parameters(), lr=0.05)
    dense = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(3):
        for ids, offsets, y in DataLoader(texts, batch_size=2, shuffle=True, collate_fn=collate):
            loss = F.cross_entropy(head(bag(ids, offsets)), y)
            sparse.zero_grad(), dense.zero_grad()
            loss.backward()
            sparse.step(), dense.step()
        print(numbers(loss), bag.weight.grad.is_sparse, bag.weight.grad._nnz())


def sequence_to_sequence() -> None:
    encoder, decoder = nn.LSTM(3, 6, batch_first=True), nn.LSTMCell(3, 6)
    out = nn.Linear(6, 3)
    source, target = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    parameters = [*encoder.parameters(), *decoder.parameters(), *out.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(3):
        _, (h, c) = encoder(source)
        h, c, x, loss = h[0], c[0], torch.zeros(2, 3), 0
        for t in range(4):
            h, c = decoder(x, (h, c))
            prediction = out(h)
            loss = loss + F.mse_loss(prediction, target[:, t])
            x = target[:, t] if random.random() < 0.5 else prediction.detach()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(numbers(loss), type(loss.grad_fn).__name__, numbers(encoder.weight_hh_l0.grad.norm()))


def accumulated_gradients() -> None:
    net, x = nn.Linear(3, 1), torch.randn(12, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for step, part in enumerate(x.chunk(4)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 0):
            loss = net(part).pow(2).mean() / 2
        scaler.scale(loss).backward()
        print(loss.dtype, numbers(net.weight.grad, 2))
        if step % 2:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    print(numbers(net.weight, 2), net.weight.grad)


def early_stopping() -> None:
    import copy

    net, x = nn.Linear(2, 1), torch.randn(20, 2)
    y = x @ torch.tensor([[1.0], [-1.0]])
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.5)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    best, kept, bad = float("inf"), None, 0
    for epoch in range(10):
        loss = F.l1_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plateau.step(loss)
        if loss.item() < best:
            best, kept, bad = loss.item(), copy.deepcopy(net.state_dict()), 0
        else:
            bad += 1
        if bad > 2:
            break
    net.load_state_dict(kept)
    print(epoch, round(best, 4), numbers(net.weight), plateau.best, optimizer.param_groups[0]["lr"])
