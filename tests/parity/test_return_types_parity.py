"""`torch.return_types` against PyTorch: the same names, the same fields in the same order."""

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

NAMES = sorted(kind.__name__ for kind in torch.return_types.all_return_types)


@pytest.mark.parametrize("name", NAMES)
def test_fields(name):
    theirs, ours = getattr(torch.return_types, name), getattr(flambeau.return_types, name)
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.n_fields == theirs.n_fields
    values = tuple(range(ours.n_fields))
    text = repr(ours(values)).replace("linalg_slogdet", "slogdet")  # one type for both
    assert text == repr(theirs(values)).replace("_out(", "(").replace("linalg_slogdet", "slogdet")


def test_nothing_else():
    ours = {kind.__name__ for kind in flambeau.return_types.all_return_types}
    assert ours <= set(NAMES)
