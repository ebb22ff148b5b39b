"""Small algorithms: search, physics, signal processing, probability, linear models."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.differential.show import describe, numbers, raised


def linear_regression() -> None:
    x = torch.cat([torch.randn(20, 2), torch.ones(20, 1)], 1)
    w = torch.tensor([2.0, -1.0, 0.5])
    y = x @ w + 0.01 * torch.randn(20)
    solution = torch.linalg.solve(x.T @ x + 1e-3 * torch.eye(3), x.T @ y)
    residual = y - x @ solution
    print(numbers(solution, 3), numbers(1 - residual.var() / y.var(), 3), describe(solution))


def logistic_regression() -> None:
    x = torch.randn(30, 2)
    y = (x.sum(1) > 0).float()
    w, b = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
    for _ in range(20):
        loss = F.binary_cross_entropy_with_logits(x @ w + b, y)
        gw, gb = torch.autograd.grad(loss, (w, b))
        with torch.no_grad():
            w.sub_(gw)
            b.sub_(gb)
    print(numbers(w), numbers(b), numbers(loss), ((x @ w + b > 0) == y.bool()).sum())


def softmax_by_hand() -> None:
    x = torch.tensor([[1000.0, 1001.0], [-1000.0, -1001.0]])
    stable = (x - x.max(1, keepdim=True).values).exp()
    print(
        x.exp(),
        stable / stable.sum(1, keepdim=True),
        x.softmax(1),
        torch.logsumexp(x, 1),
        x.log_softmax(1).exp().sum(1),
    )


def power_iteration() -> None:
    a = torch.tensor([[4.0, 1.0], [2.0, 3.0]])
    v = torch.ones(2)
    for _ in range(30):
        v = F.normalize(a @ v, dim=0)
    print(
        numbers(v),
        numbers(v @ a @ v),
        numbers(torch.linalg.eigvals(a).real.max()),
        numbers(torch.linalg.norm(a @ v - 5 * v)),
    )


def gram_schmidt() -> None:
    a = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    q = []
    for row in a:
        for other in q:
            row = row - (row @ other) * other
        q.append(row / row.norm())
    q = torch.stack(q)
    print(numbers(q), numbers(q @ q.T), torch.allclose(q @ q.T, torch.eye(3), atol=1e-6))


def conjugate_gradient() -> None:
    a = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    b, x = torch.tensor([1.0, 2.0]), torch.zeros(2)
    r = b - a @ x
    p = r.clone()
    for _ in range(2):
        alpha = (r @ r) / (p @ a @ p)
        x = x + alpha * p
        new = r - alpha * (a @ p)
        p = new + (new @ new) / (r @ r) * p
        r = new
    print(numbers(x), numbers(r), numbers(torch.linalg.solve(a, b)))


def finite_differences() -> None:
    x = torch.linspace(0, 2 * math.pi, 9, dtype=torch.float64)
    y = torch.sin(x)
    h = x[1] - x[0]
    print(
        numbers((y[2:] - y[:-2]) / (2 * h)),
        numbers(torch.gradient(y, spacing=h.item())[0]),
        numbers((y[2:] - 2 * y[1:-1] + y[:-2]) / h**2),
        numbers(torch.trapezoid(y.abs(), x)),
        numbers(torch.cumulative_trapezoid(y, dx=h.item())[-1]),
    )


def monte_carlo() -> None:
    points = torch.rand(500, 2)
    inside = (points**2).sum(1) < 1
    print(
        inside.sum(),
        4 * inside.double().mean(),
        torch.randn(1000).abs().mean() > 0.7,
        torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(1.96)),
        points.quantile(0.5, dim=0).shape,
    )


def random_walks() -> None:
    steps = torch.randint(0, 2, (3, 10)) * 2 - 1
    paths = steps.cumsum(1)
    print(
        paths,
        paths.max(1).values,
        (paths == 0).sum(1),
        paths.float().std(1),
        paths.diff(dim=1).abs().unique(),
        paths.cummax(1).values[:, -1],
    )


def bootstrap() -> None:
    data = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    index = torch.randint(len(data), (50, len(data)))
    means = data[index].mean(1)
    print(
        numbers(means.mean()),
        numbers(means.quantile(torch.tensor([0.05, 0.95]))),
        index[0],
        numbers(means.std()),
    )


def matrix_factorisation() -> None:
    target = torch.tensor([[5.0, 3.0, 0.0], [4.0, 0.0, 1.0], [1.0, 1.0, 5.0]])
    mask = target > 0
    u, v = torch.rand(3, 2, requires_grad=True), torch.rand(3, 2, requires_grad=True)
    optimizer = torch.optim.Adam([u, v], lr=0.1)
    for _ in range(20):
        loss = ((u @ v.T - target)[mask] ** 2).mean() + 0.01 * (u.norm() + v.norm())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(numbers(loss, 3), numbers((u @ v.T).round()), type(loss.grad_fn).__name__)


def principal_components() -> None:
    x = torch.randn(20, 3) @ torch.diag(torch.tensor([3.0, 1.0, 0.1]))
    centred = x - x.mean(0)
    _, s, vh = torch.linalg.svd(centred, full_matrices=False)
    values = torch.linalg.eigvalsh(torch.cov(centred.T))
    print(
        numbers(s**2 / 19),
        numbers(values.flip(0)),
        numbers((s**2 / (s**2).sum()).cumsum(0)),
        numbers((centred @ vh.T).var(0)),
        vh.shape,
    )


def kernel_density() -> None:
    data, grid = torch.tensor([-1.0, 0.0, 0.5]), torch.linspace(-2, 2, 5)
    k = torch.exp(-0.5 * ((grid[:, None] - data) / 0.5) ** 2) / (0.5 * math.sqrt(2 * math.pi))
    print(
        numbers(k.mean(1)),
        k.shape,
        numbers(torch.logsumexp(k.log(), 1)),
        numbers(torch.histc(data, 4, -2, 2)),
    )


def heat_equation() -> None:
    u = torch.zeros(7, 7)
    u[3, 3] = 100.0
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    for _ in range(10):
        u = u + 0.1 * F.conv2d(u[None, None], kernel, padding=1)[0, 0]
    print(numbers(u[3]), numbers(u.sum(), 2), torch.allclose(u, u.T), u.argmax())


def pendulum() -> None:
    theta, omega, path = torch.tensor(1.0), torch.tensor(0.0), []
    for _ in range(20):
        omega = omega - 0.1 * torch.sin(theta)
        theta = theta + 0.1 * omega
        path.append(theta.item())
    energy = 0.5 * omega**2 - torch.cos(theta)
    print([round(v, 4) for v in path[::5]], numbers(energy))


def n_bodies() -> None:
    x, v, m = (
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]),
        torch.zeros(3, 2),
        torch.tensor([10.0, 1.0, 1.0]),
    )
    for _ in range(5):
        d = x[None] - x[:, None]
        r = d.norm(dim=-1).clamp(min=0.1)
        a = (m[None, :, None] * d / r[..., None] ** 3).sum(1)
        v = v + 0.01 * a
        x = x + 0.01 * v
    print(numbers(x), numbers((m[:, None] * v).sum(0)))


def mandelbrot() -> None:
    y, x = torch.meshgrid(torch.linspace(-1, 1, 5), torch.linspace(-2, 1, 7), indexing="ij")
    c = torch.complex(x, y)
    z, count = torch.zeros_like(c), torch.zeros(c.shape, dtype=torch.int32)
    for _ in range(10):
        z = torch.where(z.abs() < 2, z * z + c, z)
        count += z.abs() < 2
    print(count, describe(z), count.float().mean())


def convolution_by_fft() -> None:
    a, b = torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 0, -1])
    n = len(a) + len(b) - 1
    fast = torch.fft.irfft(torch.fft.rfft(a, n) * torch.fft.rfft(b, n), n)
    slow = F.conv1d(a[None, None], b.flip(0)[None, None], padding=2)[0, 0]
    print(
        numbers(fast), numbers(slow), torch.allclose(fast, slow, atol=1e-5), torch.fft.rfftfreq(n)
    )


def spectrograms() -> None:
    t = torch.arange(256) / 64
    x = torch.sin(2 * math.pi * 8 * t) + 0.5 * torch.cos(2 * math.pi * 20 * t)
    s = torch.stft(x, 64, hop_length=32, window=torch.hann_window(64), return_complex=True)
    back = torch.istft(s, 64, hop_length=32, window=torch.hann_window(64), length=256)
    print(
        s.shape,
        s.abs().mean(1).topk(2).indices,
        torch.allclose(back, x, atol=1e-4),
        numbers(s.abs().pow(2).sum(), 0),
        describe(s),
    )


def low_pass_filter() -> None:
    x = torch.tensor([0.0, 1, 0, 1, 0, 1, 10, 1])
    y, out = torch.tensor(0.0), []
    for v in x:
        y = 0.8 * y + 0.2 * v
        out.append(y)
    padded = F.pad(x[None, None], (1, 1), mode="reflect")
    print(
        numbers(torch.stack(out)),
        x.unfold(0, 3, 1).median(1).values,
        padded,
        numbers(F.avg_pool1d(padded, 3, 1)),
    )


def run_lengths() -> None:
    x = torch.tensor([1, 1, 2, 2, 2, 1])
    values, counts = torch.unique_consecutive(x, return_counts=True)
    starts = F.pad(counts.cumsum(0)[:-1], (1, 0))
    print(
        values,
        counts,
        starts,
        values.repeat_interleave(counts).equal(x),
        (x[1:] != x[:-1]).nonzero().flatten(),
        torch.tensor_split(x, starts[1:].tolist()),
    )


def prefix_sums() -> None:
    x = torch.arange(12).view(3, 4)
    integral = F.pad(x.cumsum(0).cumsum(1), (1, 0, 1, 0))
    print(
        integral,
        integral[3, 3] - integral[1, 3] - integral[3, 1] + integral[1, 1],
        x[1:3, 1:3].sum(),
        x.flip(1).cumsum(1).flip(1),
        torch.logcumsumexp(x.float(), 1)[:, -1],
    )


def shortest_paths() -> None:
    inf = float("inf")
    d = torch.tensor([[0, 3, inf, 7], [8, 0, 2, inf], [5, inf, 0, 1], [2, inf, inf, 0]])
    for k in range(4):
        d = torch.minimum(d, d[:, k, None] + d[None, k])
    print(d, d.max(), (d < inf).all(), torch.linalg.matrix_power((d < 4).float(), 2))


def page_rank() -> None:
    links = torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 1, 0]])
    p = links / links.sum(0)
    rank = torch.full((3,), 1 / 3)
    for _ in range(20):
        rank = 0.15 / 3 + 0.85 * p @ rank
    print(numbers(rank), rank.argsort(descending=True), numbers(rank.sum()))


def edit_distance() -> None:
    a, b = "kitten", "sitting"
    d = torch.zeros(len(a) + 1, len(b) + 1, dtype=torch.long)
    d[:, 0], d[0] = torch.arange(len(a) + 1), torch.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(
                d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            )
    print(d[-1, -1], d[2], d.dtype)


def sieve() -> None:
    prime = torch.ones(50, dtype=torch.bool)
    prime[:2] = False
    for k in range(2, 8):
        if prime[k]:
            prime[k * k :: k] = False
    print(
        prime.nonzero().squeeze(),
        prime.sum(),
        prime.int().diff().abs().sum(),
        torch.arange(50)[prime].prod(),
    )


def polynomials() -> None:
    c = torch.tensor([1.0, -6.0, 11.0, -6.0])
    companion = torch.diag(torch.ones(2), -1)
    companion[0] = -c[1:] / c[0]
    roots = torch.linalg.eigvals(companion)
    x = torch.tensor(2.5)
    value = torch.zeros(())
    for k in c:
        value = value * x + k
    print(
        numbers(roots.real.sort().values, 3),
        value,
        torch.vander(torch.tensor([1.0, 2.0]), 3),
        numbers(torch.special.chebyshev_polynomial_t(torch.tensor(0.5), 3)),
        numbers((torch.vander(x[None], 4) @ c)),
    )


def bisection() -> None:
    low, high = torch.zeros(3), torch.full((3,), 4.0)
    target = torch.tensor([2.0, 3.0, 5.0])
    for _ in range(30):
        middle = (low + high) / 2
        above = middle**2 > target
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    print(numbers(middle), numbers(middle - target.sqrt()), above.dtype)


def hidden_states() -> None:
    a, b = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    alpha = torch.tensor([0.5, 0.5]) * b[:, 0]
    for o in (0, 1, 0):
        alpha = (alpha @ a) * b[:, o]
    beta = torch.ones(2)
    for o in (0, 1, 0):
        beta = a @ (b[:, o] * beta)
    print(numbers(alpha), numbers(alpha.sum(), 6), numbers(beta), numbers(alpha / alpha.sum()))


def kalman_filter() -> None:
    f, h = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    x, p = torch.zeros(2, 1), torch.eye(2)
    for z in (1.0, 2.1, 2.9):
        x, p = f @ x, f @ p @ f.T + 0.01 * torch.eye(2)
        k = p @ h.T @ torch.linalg.inv(h @ p @ h.T + 0.5)
        x = x + k @ (torch.tensor([[z]]) - h @ x)
        p = (torch.eye(2) - k @ h) @ p
    print(numbers(x), numbers(p), describe(k))


def gaussian_mixture() -> None:
    x = torch.tensor([-2.0, -1.9, -2.1, 2.0, 2.1, 1.8])
    mean, std, weight = torch.tensor([-1.0, 1.0]), torch.ones(2), torch.full((2,), 0.5)
    for _ in range(5):
        log_p = torch.distributions.Normal(mean, std).log_prob(x[:, None]) + weight.log()
        r = log_p.softmax(1)
        n = r.sum(0)
        mean = (r * x[:, None]).sum(0) / n
        std = ((r * (x[:, None] - mean) ** 2).sum(0) / n).sqrt() + 1e-3
        weight = n / 6
    print(numbers(mean), numbers(std), numbers(weight), numbers(torch.logsumexp(log_p, 1).sum(), 3))


def decision_stump() -> None:
    x, y = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 0, 1, 1])
    cuts = (x[1:] + x[:-1]) / 2
    left = x[None] <= cuts[:, None]
    counts = torch.stack([left.sum(1), (~left).sum(1)], 1).float()
    positive = torch.stack([(left * y).sum(1), (~left * y).sum(1)], 1) / counts
    gini = (2 * positive * (1 - positive) * counts).sum(1) / 4
    print(gini, cuts[gini.argmin()], describe(left), left.long().tolist())


def attention_by_einsum() -> None:
    q, k, v = (torch.randn(2, 3, 2, 4) for _ in range(3))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2
    out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    print(
        out.shape,
        numbers(out[0, 0]),
        describe(scores),
        numbers(torch.einsum("bqhd->bh", out)),
        numbers(torch.einsum("ii->i", torch.eye(2))),
        torch.einsum("ij,jk,kl->il", torch.ones(2, 3), torch.ones(3, 2), torch.ones(2, 1)),
    )


def strides_of_einsum() -> None:
    print(torch.einsum("bhqk,bkhd->bqhd", torch.ones(2, 2, 3, 3), torch.ones(2, 3, 2, 4)).stride())


def bloom_of_hashes() -> None:
    keys = torch.tensor([3, 17, 99])
    slots = torch.stack([(keys * 31 + 7) % 16, (keys * 17 + 3) % 16])
    table = torch.zeros(16, dtype=torch.bool)
    table[slots.flatten()] = True
    test = torch.tensor([3, 4])
    print(
        table.int(),
        table[(test * 31 + 7) % 16] & table[(test * 17 + 3) % 16],
        slots,
        hash(int(keys[0])),
        keys.sum().item() % 7,
    )


def voting() -> None:
    votes = torch.tensor([[0, 1, 1], [2, 2, 0], [1, 1, 1]])
    tally = F.one_hot(votes, 3).sum(1)
    print(
        tally,
        tally.argmax(1),
        votes.mode(1),
        tally.float().softmax(1).max(1).values,
        torch.stack([votes[0].bincount(minlength=3)]),
        tally.max(),
        (tally == tally.max(1, keepdim=True).values).sum(1),
    )


def rank_correlation() -> None:
    x, y = torch.tensor([1.0, 5.0, 3.0, 4.0]), torch.tensor([2.0, 6.0, 1.0, 8.0])
    rank = lambda v: v.argsort().argsort().float()  # noqa: E731
    pearson = torch.corrcoef(torch.stack([x, y]))[0, 1]
    spearman = torch.corrcoef(torch.stack([rank(x), rank(y)]))[0, 1]
    kendall = (torch.sign(x[:, None] - x) * torch.sign(y[:, None] - y)).sum() / 12
    print(numbers(pearson), numbers(spearman), numbers(kendall), rank(y))


def binned_means() -> None:
    x, y = torch.tensor([0.1, 0.4, 0.35, 0.8, 0.95]), torch.arange(5.0)
    bins = torch.bucketize(x, torch.linspace(0, 1, 5)[1:-1])
    sums = torch.zeros(4).scatter_add(0, bins, y)
    counts = torch.zeros(4).scatter_add(0, bins, torch.ones(5))
    print(
        bins,
        sums / counts,
        torch.zeros(4).scatter_reduce(0, bins, y, "amax"),
        torch.zeros(4).index_reduce(0, bins, y, "mean", include_self=False),
        torch.histogram(x, 4, range=(0.0, 1.0)),
    )


def top_indices_in_blocks() -> None:
    x = torch.tensor([[3.0, 1, 2, 9], [4, 8, 7, 0]])
    values, index = x.view(2, 2, 2).max(-1)
    flat = x.flatten().topk(3).indices
    rows, columns = flat // 4, flat % 4
    print(
        values,
        index,
        torch.stack([rows, columns], 1),
        torch.unravel_index(flat, (2, 4)),
        x.gather(1, index),
        raised(lambda: x.topk(9)),
    )


def checksums() -> None:
    x = torch.arange(100, dtype=torch.int64)
    a = (x * x % 97).cumsum(0) % 1009
    print(
        a[-1],
        a.sum(),
        a.max(),
        a.bitwise_and(7).bincount(),
        (a ^ (a >> 3)).sum(),
        torch.bitwise_or(a, 1)[:3],
        a.to(torch.int16).sum(dtype=torch.int16),
        a.float().sum().item(),
    )
