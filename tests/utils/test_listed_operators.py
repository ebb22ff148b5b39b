"""`torch.ops.aten` has every name of PyTorch's; those that are not computed are counted."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.ops import aten

ABSENT = 258  # operators of other devices, of back ends, of PyTorch's own tests; may fall


def test_every_name_resolves():
    names = dir(torch.ops.aten)
    assert len(names) == 1730
    packets = [getattr(torch.ops.aten, name) for name in names]
    assert all(packet.overloads() for packet in packets)
    assert sum(map(aten.is_absent, packets)) <= ABSENT


def test_absent_operators_say_so():
    with pytest.raises(NotImplementedError, match=r"\[aten._foobar\]"):
        torch.ops.aten._foobar(torch.ones(1))


def test_public_names_of_the_compiler():
    assert {"compile", "reset", "disable", "is_compiling"} <= set(dir(torch.compiler))
    assert "compile" in dir(torch._inductor) and "reset" in dir(torch._dynamo)
