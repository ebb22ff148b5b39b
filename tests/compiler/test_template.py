"""The template engine of the kernels' C, and interfaces of templates."""

from __future__ import annotations

import pytest

from flambeau.compiler.codegen.c.kernels.c_interface import complete
from flambeau.compiler.codegen.c.template import Template, TemplateError
from flambeau.compiler.templates.interface import (
    Array,
    Buffer,
    Group,
    Interface,
    SizeArgument,
)
from flambeau.ir.size import symbol


def rendered(text, **names):
    return Template("t.c.in", text).render(names)


def test_names_end_at_other_characters_or_are_closed():
    text = "$T x = fb_$kind$_f32x$lanes($x) + $T$$kind;\n"
    filled = rendered(text, T="float", kind="exp", lanes=16, x="y")
    assert filled == "float x = fb_exp_f32x16(y) + floatexp;\n"


def test_loops_and_choices():
    text = """\
//$ for w, at in vectors
  v$w = $at;
  //$ for i in inner
  //$ if last
  w$w$_$i = 1;
  //$ else
  w$w$_$i = 2;
  //$ end
  //$ end
//$ end
"""
    out = rendered(text, vectors=[(0, "a"), (1, "b")], inner=[7], last=0)
    assert out == "  v0 = a;\n  w0_7 = 2;\n  v1 = b;\n  w1_7 = 2;\n"
    assert "w1_7 = 1" in rendered(text, vectors=[(1, "b")], inner=[7], last=True)
    assert rendered(text, vectors=[], inner=[], last=False) == ""


def test_blocks_within_else():
    text = "//$ if a\n1\n//$ else\n//$ if b\n2\n//$ end\n3\n//$ end\n4\n"
    assert rendered(text, a=0, b=1) == "2\n3\n4\n"
    assert rendered(text, a=0, b=0) == "3\n4\n"
    assert rendered(text, a=1, b=1) == "1\n4\n"


def test_items_may_be_sequences():
    text = "//$ for row in rows\n//$ for x in row\n$x\n//$ end\n//$ end\n"
    assert rendered(text, rows=[["a", "b"], ["c"]]) == "a\nb\nc\n"


@pytest.mark.parametrize(
    "text, names, message",
    [
        ("a\n$b\n", {}, r"t\.c\.in:2: unknown name 'b'"),
        ("//$ if a\n$b\n//$ end\n", {"a": 0}, r"t\.c\.in:2: unknown name 'b'"),
        ("//$ for b in a\n//$ end\n$b\n", {"a": []}, r"t\.c\.in:3: unknown name 'b'"),
        ("a\n", {"b": 1}, r"t\.c\.in:1: the name 'b' is passed and never used"),
        ("a\n//$ for b in a\n", {"a": []}, r"t\.c\.in:2: the block has no"),
        ("//$ end\n", {}, r"t\.c\.in:1: `//\$ end` is no directive that can stand here"),
        ("//$ if a\n//$ else\n//$ else\n//$ end\n", {"a": 1}, r"t\.c\.in:3: "),
        ("//$ while a\n", {"a": 1}, r"t\.c\.in:1: "),
        ("x\n5 $ 3\n", {}, r"t\.c\.in:2: a `\$` without a name"),
        ("$a\n", {"a": [1]}, r"t\.c\.in:1: 'a' is \[1\], which is no text"),
        ("$a\n", {"a": True}, r"t\.c\.in:1: 'a' is True, which is no text"),
        ("//$ for b in a\n//$ end\n", {"a": "xy"}, r"t\.c\.in:1: 'a' is 'xy', which is no seq"),
        ("//$ for b, c in a\n$b$c\n//$ end\n", {"a": [(1,)]}, r"t\.c\.in:1: an item of 'a'"),
    ],
)
def test_mistakes_name_file_and_line(text, names, message):
    with pytest.raises(TemplateError, match=message):
        rendered(text, **names)


def test_common_names_may_stay_unused():
    template = Template("t.c.in", "$a $b\n")
    assert template.render({"a": 1}, {"b": 2, "c": 3}) == "1 2\n"
    with pytest.raises(TemplateError, match="never used"):
        template.render({"a": 1, "c": 3}, {"b": 2})


STEP = Group("step", ("row", "element"))
INTERFACE = Interface(
    (SizeArgument("rows"), SizeArgument("outer", STEP, 2), SizeArgument("x", STEP)),
    (Buffer("x", "bf16", "r"), Buffer("y", "f32", "w")),
    (("scale", "f64"), ("count", "i64")),
    (
        Array("first", "f32", symbol("rows") * 3 + 1),
        Array("second", "f64", 2, alignment=64),
        Array("third", "u8", symbol("known_later")),
    ),
)


def test_arguments_by_name():
    values = {"x": (5, 6), "rows": 7, "outer": (1, 2, 3, 4)}
    assert INTERFACE.arguments(values) == [7, 1, 2, 3, 4, 5, 6] and INTERFACE.size_count == 7
    with pytest.raises(ValueError, match=r"no \['rows'\], unknown \['row'\]"):
        INTERFACE.arguments({"x": (5, 6), "row": 7, "outer": (1, 2, 3, 4)})
    with pytest.raises(ValueError, match="'x' has 2 size arguments"):
        INTERFACE.arguments(values | {"x": (5, 6, 7)})


def test_scratch_follows_the_arrays():
    assert INTERFACE.scratch_bytes({"rows": 7, "x": (5, 6), "known_later": 3}) == 128 + 16 + 3


def test_declarations():
    text = complete(INTERFACE, "")
    assert "  long long row, element;\n} fb_kernel_step;" in text
    assert "  long long rows;\n  fb_kernel_step outer[2], x;\n} fb_kernel_sizes;" in text
    assert "  const u16x1 *x;\n  f32x1 *y;\n} fb_kernel_buffers;" in text
    assert "  double scale;\n  long long count;\n} fb_kernel_scalars;" in text
    assert "  a.second = (f64x1 *)(((unsigned long long)(a.first + (3*rows + 1)) + 63)" in text
