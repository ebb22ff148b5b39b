"""The records of helper functions: texts, needs, and that each compiles with its needs alone."""

from __future__ import annotations

import re
import subprocess

import pytest

from flambeau.compiler import targets, toolchain
from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.math.records import HELPERS
from flambeau.compiler.codegen.c.printer.c_unit import render
from flambeau.compiler.codegen.c.template import SUFFIX, TemplateError, helpers

LANES = (1, 2, 4, 8, 16)
NAME = re.compile(r"\bfb_\w+x\d+\b")


def test_every_text_has_a_record_and_every_record_a_text():
    recorded = {(h.file, h.section) for records in HELPERS.values() for h in records}
    files = [path.name.removesuffix(SUFFIX) for path in library.FOLDER.glob(f"*{SUFFIX}")]
    written = {(file, section) for file in files for section in library.load(file)}
    assert written - recorded == {("unit", "unit")} and recorded <= written


@pytest.mark.parametrize("target", ["avx512", "avx2", "neon", "generic"])
@pytest.mark.parametrize("lanes", LANES)
def test_needs_are_what_a_text_calls(target, lanes):
    chosen = targets.TARGETS[target]
    for name in library.names_of(lanes):
        found = library.definition(name, chosen)
        called = dict.fromkeys(NAME.findall(found.text))
        assert name in called, name
        assert set(found.needs) == called.keys() - {name}, name
        for need in found.needs:
            assert library.definition(need, chosen) is not None, (name, need)


def alone(lanes):
    """A name of each record, and the first of each where there are several."""
    for stem, records in HELPERS.items():
        for helper in records:
            if helper.covers(helper.kinds[0], lanes):
                yield f"fb_{stem}_{helper.kinds[0]}x{lanes}"


@pytest.mark.parametrize("lanes", [1, 8])
def test_each_compiles_with_its_needs_alone(lanes):
    compiler, target = toolchain.find(), targets.current()
    flags = [*compiler.flags(target), "-Wall", "-Wno-unused-function", "-Werror", "-fsyntax-only"]
    command = [*compiler.command, *flags, "-x", "c", "-"]
    for name in alone(lanes):
        macro = library.definition(name, target).text.startswith("#define")
        use = "" if macro else f"void *const fb_first = (void *){name};\n"
        source = render([("fb_first", use)], target)
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}\n{done.stderr[:2000]}"


def test_callees_stand_before_callers():
    texts = library.definitions(["fb_pow_f32x8", "fb_tanh_f32x8"], targets.current())
    defined: set[str] = set()
    for text, _, _ in texts:
        names = NAME.findall(text)
        defined.add(names[0] if text.startswith("#define") else re.search(r"(fb_\w+)\(", text)[1])
        assert set(names) <= defined


def test_mistakes_in_a_file_of_helpers():
    with pytest.raises(TemplateError, match=r"t\.c\.in:4: a second helper 'a'"):
        helpers("t.c.in", "//$ helper a\nint a;\n\n//$ helper a\n")
    with pytest.raises(TemplateError, match=r"t\.c\.in:3: unknown name 'x'"):
        helpers("t.c.in", "// text\n//$ helper a\nint $x;\n")["a"].render({})


def test_functions_that_a_kernel_calls_often_are_its_own():
    """Under the symbol of a kernel their names look like helpers'."""
    text = "static f32x8 fb_kernel_often_pow_f32x8(f32x8 a, f32x8 b) { return fb_pow_f32x8(a, b); }"
    source = render([("fb_7295b34b0aa23fb1", text)], targets.TARGETS["avx2"])
    assert "fb_7295b34b0aa23fb1_often_pow_f32x8(f32x8 a" in source
    assert source.count("fb_pow_f32x8(") >= 2
