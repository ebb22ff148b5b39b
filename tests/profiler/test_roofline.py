"""The roofline's arithmetic and its pages; times themselves are not tested."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from bench import perf_page, roofline, roofline_peaks
from bench.roofline import Case, Machine, Row

MEMORY = {
    level: {"read": 4e9, "write": 2e9, "copy": 2e9, "update": 2e9}
    for level in roofline_peaks.LEVELS
}
MACHINE = Machine(1, {"f32": 100e9, "f64": 50e9}, MEMORY)


def test_bounds():
    case = Case("x", lambda: lambda: None, "f32", "read")
    by_memory = roofline.bounded(Row("x", 1, 2.0, 10e9, 4e9, 1), case, MACHINE)
    assert by_memory.bound == "DRAM read" and by_memory.fraction == pytest.approx(0.5)
    by_units = roofline.bounded(Row("x", 1, 2.0, 100e9, 100.0, 1), case, MACHINE)
    assert by_units.bound == "f32 units" and by_units.fraction == pytest.approx(0.5)
    assert by_memory.intensity == 2.5
    halves = Case("x", lambda: lambda: None, "bf16", "read")  # a processor without such units
    assert roofline.bounded(Row("x", 1, 2.0, 100e9, 100.0, 1), halves, MACHINE).bound == "f32 units"


def test_levels():
    sizes = roofline_peaks.cache_sizes()
    assert sizes["L1"] < sizes["L2"] < sizes["L3"]
    assert roofline.level_of(sizes["L1"] / 2, 1) == "L1"
    assert roofline.level_of(sizes["L1"] * 1.5, 2) == "L1"
    assert roofline.level_of(sizes["L2"] / 2, 1) == "L2"
    assert roofline.level_of(4 * sizes["L3"], 2) == "DRAM"
    for level in roofline_peaks.LEVELS:
        assert roofline_peaks.working_set(level, 1) % 256 == 0


def test_the_loops_compile_and_run():
    library = roofline_peaks.load()
    for dtype in ("f32", "f64"):
        getattr(library, f"peak_{dtype}")(3)
    import flambeau

    buffer = flambeau.zeros(4096, dtype=flambeau.uint8)
    buffer[:64] = 7
    roofline_peaks._memory_call(library, "copy", buffer, 1024)(1)
    assert buffer[1024 : 1024 + 64].tolist() == [7] * 64
    assert buffer[2048:].sum().item() == 0


def test_programs_are_measured(monkeypatch):
    for name, value in {"SECONDS": 0.0, "CALLS": 2, "PASSES": 2}.items():
        monkeypatch.setattr(roofline, name, value)
    case = Case("product", roofline._product(8, 16, 32))
    monkeypatch.setattr(roofline, "CASES", [case])
    monkeypatch.setattr(roofline, "measure_machines", lambda machines: None)
    (row,) = roofline.measure_all([MACHINE], [])
    assert row.flops == 2 * 8 * 16 * 32 and row.nbytes > 0 and row.seconds > 0
    assert row.fraction > 0 and row.threads == 1
    quick = Row("product", 1, 1e-12, 1.0, 1.0, 1)
    assert roofline.measure_all([MACHINE], [quick]) == [quick]


def test_results_are_published(tmp_path: Path, capsys):
    rows = [Row("x", 1, 1e-3, 1e6, 1e6, 1, "L1 read", 0.5)]
    roofline.publish(rows, [MACHINE, MACHINE], roofline.about(), tmp_path)
    assert "| x | 1 | 1 ms | 1.0 | 1.0 | 1.00 | L1 read | 50% |" in capsys.readouterr().out
    text = perf_page.roofline_text(tmp_path)
    assert "| x | 1 |" in text and "Measured on" in text
    assert json.loads((tmp_path / "roofline.json").read_text())["rows"][0]["name"] == "x"
    known = roofline.earlier(roofline.about(), tmp_path)
    assert known == ([MACHINE, MACHINE], rows)
    assert roofline.earlier(roofline.about() | {"target": "other"}, tmp_path)[1] == []
    assert "No results" in perf_page.roofline_text(tmp_path / "none")


def test_the_page_is_filled():
    page = "a\n<!-- roofline:begin -->\nold\n<!-- roofline:end -->\nb\n"
    assert perf_page.filled(page, "roofline", "new").splitlines()[2] == "new"
    with pytest.raises(ValueError, match="lacks"):
        perf_page.filled("nothing", "roofline", "new")
    for name in ("roofline", "kernels"):
        perf_page.filled(perf_page.PAGE.read_text(), name, "")
    assert {case.name for case in roofline.CASES} >= set(perf_page.SHOWN)


def test_sizes_of_code():
    case = next(case for case in roofline.CASES if case.name == "gelu, 64 KB")
    (size,) = perf_page.kernel_sizes(case)
    assert size.form == "map" and 0 < size.text < size.unit and size.milliseconds > 0
    assert perf_page.text_bytes(b"\xcf\xfa\xed\xfe") == 0
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, 64)
    struct.pack_into("<HHH", header, 0x3A, 40, 2, 1)
    sections = struct.pack("<IIQQQQ", 6, 1, 6, 0, 0, 17)
    sections += struct.pack("<IIQQQQ", 1, 3, 0, 0, 64 + 80, 12)
    assert perf_page.text_bytes(bytes(header) + sections + b"\0null\0.text\0") == 17
