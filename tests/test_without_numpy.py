"""NumPy is optional: a session without it, with an import hook that refuses to find it."""

import subprocess
import sys

import pytest

BLOCK = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "scipy", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import flambeau as torch
"""
SESSIONS = {
    "tensors": """
a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
assert (a @ a).tolist() == [[7.0, 10.0], [15.0, 22.0]]
assert (a + 1).sum().item() == 14.0
assert a.to(torch.int64).tolist() == [[1, 2], [3, 4]]
assert a[1, :].tolist() == [3.0, 4.0] and a.t()[0, 1].item() == 3.0
assert "tensor([[1., 2.]" in repr(a)
assert torch.arange(6).reshape(2, 3).shape == (2, 3)
assert bool(torch.isfinite(torch.randn(100)).all())
""",
    "autograd": """
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 4.0, 6.0]
(second,) = torch.autograd.grad(
    torch.autograd.grad((x ** 3).sum(), x, create_graph=True)[0].sum(), x
)
assert second.tolist() == [6.0, 12.0, 18.0]
""",
    "training": """
from flambeau import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(16, 4), torch.randn(16, 1)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
""",
    "compile": """
def f(x, w):
    return torch.relu(x @ w).sum(1)

x, w = torch.ones(3, 4), torch.ones(4, 5)
assert torch.compile(f)(x, w).tolist() == f(x, w).tolist() == [20.0] * 3
""",
    "save and load": """
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "state")
    torch.save({"w": torch.arange(4), "epoch": 3}, path)
    state = torch.load(path)
assert state["epoch"] == 3 and state["w"].tolist() == [0, 1, 2, 3]
""",
    "interchange": """
import array
a = torch.ones(3)
try:
    a.numpy()
except (ModuleNotFoundError, ImportError, RuntimeError) as error:
    assert "umpy" in str(error)
else:
    raise AssertionError("numpy() needs NumPy")
shared = torch.frombuffer(array.array("f", [1.0, 2.0]), dtype=torch.float32)
assert shared.tolist() == [1.0, 2.0]
assert torch.from_dlpack(a).tolist() == [1.0, 1.0, 1.0]
""",
}


@pytest.mark.parametrize("name", SESSIONS)
def test_session(name):
    end = "\nassert 'numpy' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + SESSIONS[name] + end],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
