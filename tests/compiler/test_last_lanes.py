"""Loads and stores of the last lanes of a row: which elements they touch, for any count."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from flambeau.compiler import targets, toolchain
from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.math.records import MEMORY
from flambeau.compiler.codegen.c.printer.c_unit import render

STRIDE = 3
UNTOUCHED = 0xEE


def probe(kind: str, lanes: int) -> str:
    """C that calls each function once; results are 64 elements apart."""
    vector, one = f"{kind}x{lanes}", f"{kind}x1"
    steps = ", ".join("0" * lanes)
    return f"""
__attribute__((visibility("default")))
void fb_probe(const {one}* p, {one}* to, const long long* at, long long m) {{
  union {{ i64x{lanes} v; long long t[{lanes}]; }} i = {{{{{steps}}}}};
  for (int l = 0; l < {lanes}; ++l) i.t[l] = at[l];
  *({vector}*)(to + 0 * 64) = fb_loadm_{vector}(p, m);
  *({vector}*)(to + 1 * 64) = fb_gatherm_{vector}(p, {STRIDE}, m);
  *({vector}*)(to + 2 * 64) = fb_takem_{vector}(p, i.v, m);
  fb_storem_{vector}(to + 3 * 64, *(const {vector}*)p, m);
}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lanes")


def called(kind: str, lanes: int, folder: Path) -> ctypes.CDLL:
    """The functions of a kind and lane count, compiled for this machine."""
    target, output = targets.current(), folder / f"{kind}x{lanes}.so"
    toolchain.find().compile(render([("fb_probe", probe(kind, lanes))], target), target, output)
    return ctypes.CDLL(str(output))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("kind", MEMORY)
def test_only_active_lanes_count(kind: str, lanes: int, folder: Path) -> None:
    size = int(kind[1:]) // 8
    if library.parse(f"fb_loadm_{kind}x{lanes}") is None:
        pytest.skip("no such vector")
    functions = called(kind, lanes, folder)
    content = bytes((7 * i + i // 251) % 251 + 1 for i in range(64 * size))
    at = [5, 0, 9, 1, 7, 7, 2, 11, 3, 8, 4, 6, 10, 12, 13, 14][:lanes]
    for active in range(1, lanes + 3):
        count = min(active, lanes)
        results = ctypes.create_string_buffer(bytes([UNTOUCHED]) * (4 * 64 * size))
        functions.fb_probe(
            ctypes.c_char_p(content), results, (ctypes.c_longlong * lanes)(*at),
            ctypes.c_longlong(active),
        )  # fmt: skip
        places = [range(count), [STRIDE * lane for lane in range(count)], at[:count]]
        for number, places_read in enumerate(places):
            read = b"".join(content[p * size : (p + 1) * size] for p in places_read)
            begin = number * 64 * size
            found = results.raw[begin : begin + lanes * size]
            assert found == read.ljust(lanes * size, b"\0"), (number, active)
        written = results.raw[3 * 64 * size : (3 * 64 + 16) * size]
        assert written == content[: count * size].ljust(16 * size, bytes([UNTOUCHED])), active
