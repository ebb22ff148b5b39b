"""Archives of PyTorch's TorchScript: written there, run here."""

from __future__ import annotations

import io
import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(o)
        self.down = nn.Sequential(nn.Conv2d(i, o, 1, 2), nn.GroupNorm(2, o))
        self.act = nn.SiLU()
        self.up = nn.Upsample(scale_factor=2.0, mode="bilinear")

    def forward(self, x):
        return self.up(self.act(self.norm(self.conv(x)) + self.down(x)))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(3, 4), Block(4, 4)])
        self.emb, self.norm = nn.Embedding(7, 4), nn.LayerNorm(4)
        self.gru = nn.GRU(4, 3, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 5)
        self.drop, self.elu = nn.Dropout(0.5), nn.ELU()

    def forward(self, x, idx):
        for block in self.blocks:
            x = block(x)
        e = self.norm(self.emb(idx))
        g, _ = self.gru(e)
        m, _ = self.attention(e, e, e)
        z = self.head(self.drop(self.pool(x).flatten(1))) + g.mean() + m.sum(dim=(1, 2))[:, None]
        b, c = z.shape
        z = z.view(b, c).clamp(min=-1.0, max=1.0)
        y = torch.cat([self.elu(z), nn.functional.softplus(z)], dim=-1)
        parts = torch.split(y, 5, dim=1)
        k = torch.arange(c, dtype=torch.float32, device=y.device)
        loss = nn.functional.cross_entropy(z, idx[:, 0] % 5)
        return parts[0] * k + parts[1].softmax(-1), y.argmax(1), loss, y[:, 1:3].to(torch.float64)


def read(scripted):
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    return flambeau.jit.load(io.BytesIO(file.getvalue()))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compare(theirs, ours):
    for a, b in zip(theirs, ours, strict=True):
        assert tuple(a.shape) == tuple(b.shape) and str(a.dtype) == str(b.dtype)
        torch.testing.assert_close(a, torch.from_numpy(b.detach().numpy()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["scripted", "traced", "frozen"])
def test_module_of_many_layers(kind):
    torch.manual_seed(1)
    model = Mixed().eval()
    x, idx = torch.randn(2, 3, 8, 8), torch.tensor([[1, 2, 3], [4, 5, 6]])
    if kind == "traced":
        scripted = torch.jit.trace(model, (x, idx), check_trace=False)
    else:
        scripted = torch.jit.script(model)
    if kind == "frozen":
        scripted = torch.jit.freeze(scripted)
    loaded = read(scripted)
    for name, value in scripted.state_dict().items():
        assert torch.equal(value, torch.from_numpy(loaded.state_dict()[name].numpy()))
    ours = loaded(flambeau.from_numpy(x.numpy()), flambeau.from_numpy(idx.numpy()))
    with torch.no_grad():
        compare(scripted(x, idx), ours)


@pytest.mark.parametrize("grad", [True, False])
def test_encoder_layer(grad):
    torch.manual_seed(2)
    layer = torch.jit.script(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval())
    x = torch.randn(2, 3, 8)
    loaded = read(layer)
    with flambeau.set_grad_enabled(grad), torch.set_grad_enabled(grad):
        compare([layer(x).detach()], [loaded(flambeau.from_numpy(x.numpy()))])
