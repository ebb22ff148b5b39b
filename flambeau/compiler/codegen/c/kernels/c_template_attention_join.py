"""Attention for few queries: joins the segments of keys of a row (`attention_join.c.in`)."""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_attention import names_of
from flambeau.compiler.codegen.c.kernels.c_interface import complete
from flambeau.compiler.codegen.c.printer.c_types import HALVES
from flambeau.compiler.codegen.c.template import render
from flambeau.compiler.targets import Target
from flambeau.compiler.templates.attention import JOIN, AttentionSettings
from flambeau.ir.kernel import Kernel


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    settings = AttentionSettings.of(kernel)
    half = settings.dtype if settings.dtype in HALVES else ""
    text = render("attention_join", {"half": half}, names_of(settings, target))
    return complete(JOIN.of(kernel, target), text)
