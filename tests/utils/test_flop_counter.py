"""Counted operations: figures by hand, modules, tables, custom operators."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils.flop_counter import FlopCounterMode, register_flop_formula
from flambeau.utils.module_tracker import ModuleTracker

aten = torch.ops.aten


def counted(function, **options):
    with FlopCounterMode(display=False, **options) as counter:
        function()
    return counter


def test_linear_forwards_and_backwards():
    layer = nn.Linear(3, 4)
    counts = counted(lambda: layer(torch.ones(5, 3)).sum().backward()).get_flop_counts()
    assert counts["Global"] == counts["Linear"] == {aten.addmm: 120, aten.mm: 120}
    x = torch.ones(5, 3, requires_grad=True)
    assert counted(lambda: layer(x).sum().backward()).get_total_flops() == 360


@pytest.mark.parametrize(
    ("transposed", "forward", "backward"), [(0, 20736, 62208), (1, 36864, 110592)]
)
def test_convolutions(transposed, forward, backward):
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(4, 8, 3, groups=2, stride=2 if transposed else 1)
    x = torch.ones(2, 4, 8, 8, requires_grad=True)
    counts = counted(lambda: layer(x).sum().backward()).get_flop_counts()["Global"]
    assert counts == {aten.convolution: forward, aten.convolution_backward: backward}


def test_products():
    a, b = torch.ones(5, 2, 3), torch.ones(5, 3, 4)
    assert counted(lambda: a @ b).get_flop_counts()["Global"] == {aten.bmm: 240}
    assert counted(lambda: a @ b[0]).get_flop_counts()["Global"] == {aten.mm: 240}
    assert counted(lambda: a[0, 0] @ b[0, :, 0]).get_total_flops() == 0
    assert counted(lambda: torch.einsum("bij,bjk->bik", a, b)).get_total_flops() == 240
    assert counted(lambda: (a + 1).sum()).get_total_flops() == 0


def test_attention_with_dropout():
    q = torch.randn(2, 2, 5, 4, requires_grad=True)
    attention = nn.functional.scaled_dot_product_attention
    assert counted(lambda: attention(q, q, q).sum().backward()).get_total_flops() == 0
    dropped = counted(lambda: attention(q, q, q, dropout_p=0.5).sum().backward())
    assert dropped.get_flop_counts()["Global"] == {aten.bmm: 4800}


def test_modules_and_table(capsys):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU())

        def forward(self, x):
            return self.b(self.a(x))

    net = Net()
    with FlopCounterMode(depth=3) as counter:
        net(torch.ones(3, 4)).sum().backward()
    assert {name: sum(c.values()) for name, c in counter.get_flop_counts().items()} == {
        "Global": 768, "Net": 768, "Net.a": 192, "Net.b": 576, "Net.b.0": 576,
    }  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"] and len(lines) == 14
    assert lines[2].split() == ["Net", "768", "100.00%"] and lines[5].startswith(" Net.a ")
    counted(lambda: net(torch.ones(3, 4)))  # the passes before left no module open
    with ModuleTracker() as tracker:
        net(torch.ones(3, 4)).sum().backward()
        assert tracker.parents == {"Global"} and not tracker.is_bw


def test_formulas_of_a_program():
    def formula(a_shape, b_shape, out_shape=None):
        return 7 * out_shape[0]

    a = torch.ones(5, 2)
    counter = counted(lambda: torch.mm(a, a.T), custom_mapping={aten.mm: formula})
    assert counter.get_total_flops() == 35
    with pytest.raises(RuntimeError, match="duplicate"):
        register_flop_formula(aten.mm)(formula)
