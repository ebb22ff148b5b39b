"""`compile(mode="max-autotune")`: no candidate changes a bit, and choices outlive their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import _core
from flambeau.compiler import cache
from flambeau.compiler.schedule.candidates import CANDIDATES
from flambeau.driver import autotune
from flambeau.runtime import settings

MODE = "max-autotune"
THREADS = (1, 2, 3, 7)


def tuned(function):
    return torch.compile(function, mode=MODE)


def same(one, other) -> bool:
    """Whether all elements have the same bits."""
    return _core.tensor_bytes(one.contiguous()) == _core.tensor_bytes(other.contiguous())


def random(*shape, dtype="float32"):
    values = torch.randn(*shape) if shape else torch.randn(())
    return (values * 9).to(getattr(torch, dtype))


def on_threads(function, *arguments):
    """Results on several numbers of threads."""
    for threads in THREADS:
        torch.set_num_threads(threads)
        yield function(*arguments)


# ------------------------------------------------------------------------------------ bits

PRODUCTS = [
    (300, 257, 131), (29, 131, 600), (301, 260, 5), (3, 130, 1031), (1, 700, 263), (2, 1, 3),
    (1, 1, 1), (0, 5, 3), (4, 0, 6), (61, 33, 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "complex64"])
def test_candidates_of_products_have_the_same_bits(dtype: str) -> None:
    cases = []
    for m, k, n in PRODUCTS if dtype == "float32" else PRODUCTS[:4]:
        a, b, turned = (random(*s, dtype=dtype) for s in ((m, k), (k, n), (n, k)))
        cases += [(case, torch.mm(*case)) for case in ((a, b), (a, turned.t()))]
    for choice in CANDIDATES["matmul"]:
        torch.compiler.reset()
        compiled = tuned(torch.mm)
        with autotune.forced(choice):
            for case, expected in cases:
                for got in on_threads(compiled, *case):
                    assert same(got, expected), (choice, [x.shape for x in case])


def test_candidates_of_batched_and_strided_products_have_the_same_bits() -> None:
    a, b = random(5, 67, 140), random(5, 140, 290)
    wide = random(5, 67, 300)[:, :, ::2][:, :, :140]
    plain = torch.compile(torch.bmm)
    for choice in CANDIDATES["matmul"]:
        torch.compiler.reset()
        with autotune.forced(choice):
            compiled = tuned(torch.bmm)
            for x, y in ((a, b), (wide, b), (b.transpose(1, 2), a.transpose(1, 2))):
                expected = torch.bmm(x, y)
                assert same(plain(x, y), expected)
                assert all(same(got, expected) for got in on_threads(compiled, x, y))


def train(function, *arguments):
    """A result, and gradients of all arguments."""
    leaves = [x.detach().requires_grad_() for x in arguments]
    out = function(*leaves)
    out.square().sum().backward()
    return [out.detach(), *(x.grad for x in leaves)]


NETWORKS = {
    "convolution": (
        lambda x, w: F.conv2d(x, w, padding=1), [(3, 5, 37, 41), (29, 5, 3, 3)],
    ),
    "strided": (
        lambda x, w: F.conv2d(x, w, stride=2, groups=2), [(1, 6, 19, 23), (34, 3, 3, 2)],
    ),
    "depthwise": (
        lambda x, w: F.conv2d(x, w, padding=1, groups=7), [(2, 7, 67, 45), (7, 1, 3, 3)],
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 3, 151, 24), (2, 3, 151, 24), (2, 3, 151, 24)],
    ),
    "few queries": (
        F.scaled_dot_product_attention, [(1, 3, 2, 24), (1, 3, 1500, 24), (1, 3, 1500, 24)],
    ),
    "linear": (
        lambda x, w, b: F.relu(F.linear(x, w, b)), [(61, 131), (263, 131), (263,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_candidates_have_the_same_bits_in_training(name: str) -> None:
    function, shapes = NETWORKS[name]
    arguments = [random(*shape) * 0.1 for shape in shapes]
    expected = train(function, *arguments)
    choices = dict.fromkeys(choice for names in CANDIDATES.values() for choice in names)
    if name == "linear":
        choices = dict.fromkeys(("128 columns", "both ahead", "transposed", "many tiles"))
    for choice in choices:
        if name != "linear" and choice in CANDIDATES["matmul"] and choice != "many tiles":
            continue
        torch.compiler.reset()
        compiled = tuned(function)
        with autotune.forced(choice):
            for threads in (1, 3):
                torch.set_num_threads(threads)
                got = train(compiled, *arguments)
                assert all(map(same, got, expected)), choice


def test_channels_last_images_have_the_same_bits() -> None:
    x = random(2, 16, 31, 29).contiguous(memory_format=torch.channels_last)
    w = random(23, 16, 3, 3)
    expected = F.conv2d(x, w)
    for choice in CANDIDATES["convolution"]:
        torch.compiler.reset()
        with autotune.forced(choice):
            assert all(same(got, expected) for got in on_threads(tuned(F.conv2d), x, w))


# ------------------------------------------------------------------------------------ measuring


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Measurements of hardly any time, and an own cache."""
    monkeypatch.setattr(autotune, "BUDGET", 0.005)
    torch.compiler.reset()
    autotune.forget()
    with settings.override(CACHE_DIR=tmp_path):
        yield
    autotune.forget()


def loss_of(x, w, r):
    """A product and a convolution with what follows them, and random numbers between."""
    y = F.dropout(torch.relu(x @ w), 0.5, True)
    image = y.reshape(1, 1, *y.shape)
    return F.conv2d(image, r).square().sum()


def test_what_is_measured(quick) -> None:
    """Nothing of the user's changes, generators included; the choice is among what was measured."""
    x, w, r = (random(*s).requires_grad_() for s in ((64, 60), (60, 96), (4, 1, 3, 3)))
    kept = [x.detach().clone(), w.detach().clone(), r.detach().clone()]
    torch.manual_seed(5)
    expected = train(loss_of, x, w, r)
    after = torch.get_rng_state()
    found: list[autotune.Report] = []
    torch.manual_seed(5)
    with autotune.watch(found.append):
        got = train(tuned(loss_of), x, w, r)
    assert all(map(same, got, expected))
    assert torch.equal(torch.get_rng_state(), after)
    assert all(same(a.detach(), b) for a, b in zip((x, w, r), kept))
    ops = [report.call.split()[0] for report in found]
    assert ops.count("matmul") == 3 and "convolution" in ops and "convolution_input" in ops
    for report in found:
        names = CANDIDATES[report.call.split()[0]]
        assert report.choice in report.seconds and set(report.seconds) <= set(names)
        assert all(seconds > 0 for seconds in report.seconds.values())
        assert "default" in report.seconds


def test_measured_launches_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that packs an operand for the copies of parameters writes that much here, too."""
    packed = []

    def shortest(trials):
        tensors = {}
        for trial in trials.values():
            trial.prepared(tensors)
            for call, chunks in zip(trial.calls, trial.chunks, strict=True):
                if call.name == "matmul_pack" and chunks:
                    packed.append((trial._number(call.spare), tensors[call.memory[1]].numel()))
        return dict.fromkeys(trials, 1.0)

    autotune.forget()
    monkeypatch.setattr(autotune, "_kept", lambda name: None)
    monkeypatch.setattr(autotune, "_shortest", shortest)
    tuned(lambda x, y: x @ y)(torch.ones(300, 200), torch.ones(200, 100))
    autotune.forget()
    assert any(spare for spare, _ in packed), packed
    assert all(spare <= size for spare, size in packed)


def test_sizes_after_the_first_ones(quick) -> None:
    """A program that was tuned on some sizes serves others, without being measured again."""
    found: list[autotune.Report] = []
    compiled = tuned(lambda a, b: a @ b)
    with autotune.watch(found.append):
        for m, k, n in ((70, 64, 90), (33, 140, 7), (5, 3, 300)):
            a, b = random(m, k), random(k, n)
            assert same(compiled(a, b), a @ b)
    assert len(found) == 1


def test_modes_have_plans_of_their_own(quick) -> None:
    a, b = random(40, 50), random(50, 60)
    found: list[autotune.Report] = []
    with autotune.watch(found.append):
        torch.compile(torch.mm)(a, b)
        assert not found
        tuned(torch.mm)(a, b)
        assert len(found) == 1
        torch.compile(torch.mm)(a, b)
        tuned(torch.mm)(a, b)
        torch.compile(mode=MODE)(torch.mm)(a, b)
        assert len(found) == 1


def test_choices_are_shown(quick, capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(DEBUG=1):
        tuned(torch.mm)(random(40, 50), random(50, 60))
    shown = capsys.readouterr().err
    assert "autotune: matmul f32[40, 50] f32[50, 60]" in shown and " us  default" in shown


def never(*arguments: object) -> None:
    raise AssertionError("measured again")


def test_choices_are_kept(quick, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found again on disk; whatever bytes lie there count as nothing."""
    a, b = random(70, 50), random(50, 60)
    expected = a @ b
    names: list[str] = []
    keep = cache.put_blob
    monkeypatch.setattr(cache, "put_blob", lambda key, value: names.append(key) or keep(key, value))
    measure = autotune._shortest
    assert same(tuned(torch.mm)(a, b), expected)
    assert len(names) == 1 and cache.get_blob(names[0]).decode() in CANDIDATES["matmul"]

    def again() -> None:
        torch.compiler.reset()
        autotune.forget()
        assert same(tuned(torch.mm)(a, b), expected)

    monkeypatch.setattr(autotune, "_shortest", never)
    again()
    counts: list[int] = []
    monkeypatch.setattr(autotune, "_shortest", lambda t: counts.append(len(t)) or measure(t))
    for damage in (b"", b"\xff\xfe", b"transposed\n", b"no such candidate", b"default" * 9999):
        keep(names[0], damage)  # whole, but nonsense
        again()
    Path(cache._blob_path(cache._root(), names[0])).write_bytes(os.urandom(100))
    again()
    assert len(counts) == 6
    torch.set_num_threads(1 + torch.get_num_threads() % 2)
    again()
    assert len(counts) == 7, "threads are part of the name"


def test_memory_that_is_not_there(quick, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int, dtype: str) -> None:
        raise MemoryError

    monkeypatch.setattr(autotune, "_filled", full)
    a, b = random(70, 50), random(50, 60)
    assert same(tuned(torch.mm)(a, b), a @ b)


PROGRAM = f"""
import sys
import flambeau as torch
from flambeau import _core
from flambeau.capture import stream
torch.manual_seed(0)
model = torch.nn.Linear(40, 64)
compiled = torch.compile(model, mode={MODE!r})
if len(sys.argv) > 1:
    from flambeau.driver import autotune
    autotune.BUDGET = 0.005
x = torch.randn(33, 40)
compiled(x).backward(torch.ones(33, 64))
known = "flambeau.compiler.pipeline" not in sys.modules
print(known, _core.tensor_bytes(model.weight.grad)[:400].hex())
"""


def test_tuned_plans_of_training_are_kept(tmp_path: Path) -> None:
    """The next process neither measures nor compiles."""
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(tmp_path), "FLAMBEAU_VERIFY": "0"}

    def run(*arguments: str) -> list[str]:
        command = [sys.executable, "-c", PROGRAM, *arguments]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    (first, bits), (second, again) = run("quick"), run()
    assert (first, second) == ("False", "True")
    assert bits == again


def test_unknown_modes() -> None:
    with pytest.raises(RuntimeError, match=r"^\[compile\] unrecognized mode .*\nhint: "):
        torch.compile(torch.mm, mode="fastest")
