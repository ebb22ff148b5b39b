"""A part of PyTorch's operator database on graphs of primitives; the command runs the whole."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
pytest.importorskip("scipy", reason="PyTorch's operator database needs it")

from tests.parity.decomposed_database import primitives, summary  # noqa: E402
from tests.parity.entry_checks import entry_name  # noqa: E402
from tests.parity.operator_database import database  # noqa: E402

NAMES = """
    add addmm amax cat cumsum div einsum exp fft.rfft gather index_select linalg.svdvals log_softmax
    logsumexp masked_fill matmul mean nn.functional.conv2d nn.functional.cross_entropy
    nn.functional.gelu nn.functional.interpolate.bilinear nn.functional.layer_norm nn.functional.pad
    permute scatter_add sort std sum take topk transpose var where
""".split()
ENTRIES = {entry_name(entry): entry for entry in database()}


@pytest.mark.parametrize("name", [name for name in NAMES if name in ENTRIES])
def test_entry_in_primitives(name):
    records = primitives(ENTRIES[name], torch.float32, 4)
    assert records[0].samples > 0
    assert not records[0].failed - records[0].excused, records[0].reason
    operators = [record.check for record in records[2:]]
    assert operators and all(operator.startswith("prims.") for operator in operators)


def test_a_summary_counts_primitives():
    records = [record.as_dict() for record in primitives(ENTRIES["addmm"], torch.float32, 2)]
    text = summary({("addmm",): records})
    assert "0 differ" in text and "other operators: none" in text
