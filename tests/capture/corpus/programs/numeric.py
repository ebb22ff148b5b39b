"""Numeric methods, physics, number theory, small nets in Python and tensors."""

import math
import random

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from tests.capture.corpus.cases import Call, case, family, t

FUNCTIONS = {
    "square": [(lambda x: x * x - 2, 0.0, 2.0), (lambda x: x * x - 2, 1.5, 2.0)],
    "cosine": [(lambda x: math.cos(x) - x, 0.0, 1.0)],
    "wrong": [(lambda x: x * x + 1, -1.0, 1.0), (lambda x: 1 / x, 0.0, 1.0)],
}


@family(**FUNCTIONS)
def bisection(f, low, high):
    if f(low) * f(high) > 0:
        raise ValueError("no change of sign")
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if f(low) * f(middle) <= 0 else (middle, high)
    return low


@family(**FUNCTIONS)
def newton(f, low, high):
    x = high
    for step in range(30):
        slope = (f(x + 1e-6) - f(x - 1e-6)) / 2e-6
        if slope == 0:
            raise ArithmeticError(f"flat at {x}")
        x, before = x - f(x) / slope, x
        if abs(x - before) < 1e-10:
            return x, step
    return None


@family(**FUNCTIONS)
def secant(f, a, b):
    while abs(b - a) > 1e-9 and abs(b) < 1e6:
        if f(b) == f(a):
            break
        a, b = b, b - f(b) * (b - a) / (f(b) - f(a))
    return b


@family(**FUNCTIONS)
def simpson(f, a, b, n=10):
    h = (b - a) / n
    inner = sum((4 if k % 2 else 2) * f(a + k * h) for k in range(1, n))
    return h / 3 * (f(a) + inner + f(b))


@family(**FUNCTIONS)
def golden(f, a, b):
    ratio = (5**0.5 - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    while b - a > 1e-3:
        if f(c) < f(d):
            b, d, c = d, c, d - ratio * (d - a)
        else:
            a, c, d = c, d, c + ratio * (b - c)
    return (a + b) / 2


def _decay(x, time):
    return -x


def _spring(x, time):
    return torch.stack([x[1], -x[0]])


def _forced(x, time):
    return torch.sin(x) + time


SYSTEMS = {
    "decay": [(_decay, t(3), 4), (_decay, t(2), 1), (_decay, t(3), 0)],
    "spring": [(_spring, t(2), 3), (_spring, t(2, 2), 2), (_spring, t(1), 2)],
    "forced": [(_forced, t(3), 3), (_decay, t(3), 3)],
}


@family(**SYSTEMS)
def euler(f, x, steps):
    time = 0.0
    for _ in range(steps):
        x, time = x + 0.1 * f(x, time), time + 0.1
    return x, time


@family(**SYSTEMS)
def midpoint(f, x, steps):
    states = [x]
    for i in range(steps):
        half = states[-1] + 0.05 * f(states[-1], i * 0.1)
        states.append(states[-1] + 0.1 * f(half, i * 0.1 + 0.05))
    return torch.stack(states)


@family(**SYSTEMS)
def runge_kutta(f, x, steps):
    h = 0.1
    for i in range(steps):
        time = i * h
        k1 = f(x, time)
        k2 = f(x + h / 2 * k1, time + h / 2)
        k3 = f(x + h / 2 * k2, time + h / 2)
        k4 = f(x + h * k3, time + h)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


@family(**SYSTEMS)
def adaptive(f, x, steps):
    h, time, rejected = 0.5, 0.0, 0
    while time < steps * 0.1 and rejected < 10:
        whole = x + h * f(x, time)
        half = x + h / 2 * f(x, time)
        two = half + h / 2 * f(half, time + h / 2)
        if float((whole - two).abs().max()) > 0.05:
            h, rejected = h / 2, rejected + 1
            continue
        x, time = two, time + h
    return x, h, rejected


@case((t(3, 3) + 4 * torch.eye(3), t(3)), (t(2, 2), t(2)), (t(2, 3), t(2)))
def gauss(a, b):
    rows = [torch.cat([a[i], b[i : i + 1]]) for i in range(len(a))]
    for i in range(len(rows)):
        rows[i] = rows[i] / rows[i][i]
        for j in range(len(rows)):
            if j != i:
                rows[j] = rows[j] - rows[i] * rows[j][i]
    return torch.stack(rows)[:, -1]


@case(
    ([[2.0, 1.0], [1.0, 3.0]], [3.0, 5.0]), ([[0.0, 1.0], [1.0, 0.0]], [1.0, 2.0]), ([[0.0]], [1])
)
def gauss_lists(a, b):
    n = len(b)
    rows = [[*row, value] for row, value in zip(a, b)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(i + 1, n):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i])]
    result = [0.0] * n
    for i in reversed(range(n)):
        known = sum(rows[i][j] * result[j] for j in range(i + 1, n))
        result[i] = (rows[i][n] - known) / rows[i][i]
    return result


@case(([[1, 2], [3, 4]], [[5, 6], [7, 8]]), ([[1]], [[2]]), ([[1, 2]], [[3]]), ([], []))
def product(a, b):
    if a and len(a[0]) != len(b):
        raise ValueError(f"{len(a[0])} columns, {len(b)} rows")
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


@case(([[2, 1], [5, 3]],), ([[1, 2, 3], [0, 1, 4], [5, 6, 0]],), ([],), ([[1, 2]],))
def determinant(m):
    if not m:
        return 1
    return sum(
        (-1) ** j * m[0][j] * determinant([row[:j] + row[j + 1 :] for row in m[1:]])
        for j in range(len(m))
    )


@case((t(3, 3), 3), (t(2, 2), 0), (t(2, 2), 5), (t(2, 3), 2))
def power(a, n):
    result = torch.eye(a.shape[0])
    while n:
        if n & 1:
            result = result @ a
        a = a @ a
        n >>= 1
    return result


@case((t(3, 3) + 5 * torch.eye(3), t(3), 4), (torch.eye(2), t(2), 2))
def jacobi(a, b, rounds):
    diagonal = a.diagonal()
    others = a - torch.diag(diagonal)
    x = torch.zeros_like(b)
    for _ in range(rounds):
        x = (b - others @ x) / diagonal
    return x


@case((t(3, 2),), (t(2, 2),), (t(1, 2),))
def gram_schmidt(a):
    basis = []
    for row in a.unbind():
        for other in basis:
            row = row - (row * other).sum() * other
        basis.append(row / (row * row).sum().sqrt())
    return torch.stack(basis)


@case((t(8), 3), (t(4), 1), (t(2), 5))
def smooth(x, width):
    windows = [x[i : i + width].mean() for i in range(len(x) - width + 1)]
    return torch.stack(windows)


@case(([1, 0, 2, 0],), ([1],), ([1, 2, 3],))
def fourier(values):
    n = len(values)
    if n == 1:
        return [complex(values[0])]
    if n % 2:
        raise ValueError(f"{n} values")
    even, odd = fourier(values[::2]), fourier(values[1::2])
    turn = [complex(math.cos(-2 * math.pi * k / n), math.sin(-2 * math.pi * k / n))
            for k in range(n // 2)]  # fmt: skip
    return [e + w * o for e, w, o in zip(even, turn, odd)] + [
        e - w * o for e, w, o in zip(even, turn, odd)
    ]


@family(
    few=[(12, 18), (7, 0), (0, 0), (-4, 6)],
    large=[(10**20 + 1, 3**30), (2**61, 6)],
    wrong=[(1.5, 1), (1, None)],
)
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@family(few=[(30,), (2,), (1,), (-3,)], wrong=[(10,), (2.5,), ("x",)])
def sieve(n):
    marks = [True] * (n + 1)
    for p in range(2, int(n**0.5) + 1):
        if marks[p]:
            for multiple in range(p * p, n + 1, p):
                marks[multiple] = False
    return [p for p in range(2, n + 1) if marks[p]]


@family(few=[(360,), (97,), (1,)], wrong=[(12,), (0.5,)])
def factors(n):
    result, p = {}, 2
    while p * p <= n:
        while n % p == 0:
            result[p] = result.get(p, 0) + 1
            n //= p
        p += 1
    if n > 1:
        result[n] = 1
    return result


@family(few=[(27,), (1,), (6,)], wrong=[(5,), (-1,)])
def collatz(n):
    steps = 0
    while n != 1:
        if n < 1:
            raise ValueError(n)
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@case((2024,), (4,), (0,), (3999,))
def roman(n):
    table = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL",
             10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}  # fmt: skip
    text = ""
    for value, letters in table.items():
        count, n = divmod(n, value)
        text += letters * count
    return text


@case((255, 2), (255, 16), (0, 3), (5, 1))
def digits(n, base):
    if base < 2:
        raise ValueError("a base of at least 2")
    result = []
    while n:
        n, digit = divmod(n, base)
        result.append("0123456789abcdef"[digit])
    return "".join(reversed(result)) or "0"


@case((3, 200, 13), (2, 10, 1000), (5, 0, 7), (2, 5, 0))
def modular(base, exponent, modulus):
    result = 1
    while exponent > 0:
        if exponent % 2:
            result = result * base % modulus
        base, exponent = base * base % modulus, exponent // 2
    return result


@case((10,), (50,), (0,), (1,))
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@case((3, 2), (2, 3), (0, 0))
def ackermann(m, n):
    if m == 0:
        return n + 1
    return ackermann(m - 1, ackermann(m, n - 1) if n else 1)


@case((4, 2), (3, 1), (2, 5))
def stirling(n, k):
    memo = {}

    def count(n, k):
        if (n, k) not in memo:
            memo[n, k] = 1 if n == k else 0 if k == 0 or k > n else (
                k * count(n - 1, k) + count(n - 1, k - 1)
            )  # fmt: skip
        return memo[n, k]

    return count(n, k)


@case((20,), (5,))
def monte_carlo(n):
    inside = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(n))
    return 4 * inside / n


@case((t(4, 2), 2), (t(4, 2), 3), (t(3, 2), 1))
def k_means(points, k):
    centers = points[:k]
    for _ in range(3):
        distances = ((points[:, None] - centers[None]) ** 2).sum(-1)
        nearest = distances.argmin(1)
        picked = [(nearest == i).float()[:, None] for i in range(k)]
        centers = torch.stack([(points * p).sum(0) / p.sum().clamp(min=1) for p in picked])
    return centers, nearest


@case((t(3), 3), (t(2), 5), (t(2), 0))
def momentum(x, steps):
    velocity = torch.zeros_like(x)
    for step in range(steps):
        rate = 0.1 if step < 2 else 0.1 / step
        velocity = 0.9 * velocity - rate * 2 * x
        x = x + velocity
    return {"x": x, "velocity": velocity}


@case(
    (t(2, 3), [t(3, 4), t(4, 2)], [t(4), t(2)]),
    (t(1, 3), [t(3, 2)], [t(2)]),
    (t(1, 2), [t(3, 2)], [None]),
)
def perceptron(x, weights, biases):
    for layer, (w, b) in enumerate(zip(weights, biases)):
        x = x @ w if b is None else x @ w + b
        if layer < len(weights) - 1:
            x = x.clamp(min=0)
    return x.softmax(-1), x.shape


@case((t(4, 3), 2), (t(5, 3), 1), (t(2, 3), 4))
def attention(x, heads):
    outputs = []
    for head in range(heads):
        q, k, v = x * (head + 1), x - head, x + head
        scores = q @ k.t() / math.sqrt(x.shape[-1])
        mask = torch.ones(len(x), len(x)).tril() == 0
        outputs.append(scores.masked_fill(mask, float("-inf")).softmax(-1) @ v)
    return torch.cat(outputs, -1) if outputs else x


@case(({"w": t(3, 3), "u": t(3, 3), "b": t(3)}, t(4, 3)), ({"w": t(3, 3), "u": t(3, 3)}, t(2, 3)))
def recurrent(params, inputs):
    state = torch.zeros(3)
    states = []
    for row in inputs:
        state = torch.tanh(row @ params["w"] + state @ params["u"] + params.get("b", 0))
        states.append(state)
    return torch.stack(states), state


@case((t(6), 2), (t(6), 3), (t(5), 2))
def pooled(x, size):
    count, rest = divmod(len(x), size)
    if rest:
        x = F.pad(x, (0, size - rest), value=float("-inf"))
        count += 1
    return torch.stack([part.max() for part in x.split(size)]), count


@case((3, 4), (1, 1), Call(2, columns=5), (0, 2))
def spiral(rows, columns):
    grid = [[i * columns + j for j in range(columns)] for i in range(rows)]
    result = []
    while grid:
        result += grid.pop(0)
        grid = [list(column) for column in zip(*grid)][::-1]
    return result


@case((2.0, [1, -3, 2]), (0.5, []), (1j, [1, 0, 1]), (t(3), [1.0, 2.0]))
def horner(x, coefficients):
    result = 0
    for c in coefficients:
        result = result * x + c
    return result


@case(([0.0, 1.0, 2.0], [1.0, 3.0, 2.0], 1.5), ([0.0], [1.0], 7), ([0, 0], [1, 2], 1))
def lagrange(xs, ys, x):
    total = 0.0
    for i, y in enumerate(ys):
        term = y
        for j, other in enumerate(xs):
            if i != j:
                term *= (x - other) / (xs[i] - other)
        total += term
    return total


@case((t(3), t(3, start=2.0)), (t(2), t(2)))
def planets(position, velocity):
    trail = []
    for day in range(4):
        force = -position / ((position**2).sum().sqrt() ** 3 + 1e-3)
        velocity = velocity + force * 0.01
        position = position + velocity * 0.01
        if day % 2:
            trail.append((day, position))
    return trail


@case((5, 7), (0, 1), (3, 30))
def noise(seed, n):
    values = []
    for _ in range(n):
        seed = (1103515245 * seed + 12345) % 2**31
        values.append(seed / 2**31)
    mean = sum(values) / n
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / n)
