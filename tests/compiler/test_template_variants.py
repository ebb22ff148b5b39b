"""The prebuilt kernels of templates: what they are, and that launches use them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import pytest
from test_split import stages

import flambeau as torch
from flambeau.compiler import cache, pipeline, targets
from flambeau.compiler.baseline.variants import is_variant, variants
from flambeau.compiler.codegen import print_kernel
from flambeau.compiler.dry_run import dry_run
from flambeau.compiler.templates import TEMPLATES
from flambeau.driver import prebuilt
from flambeau.ir.kernel_grammar import verify
from flambeau.runtime import plan_cache_clear
from tests.ops.exercise import everything
from tests.ops.table import TABLE
from tools.workload import STEPS

MOST = 100  # kernels of a target
# Operators that come down to templates; every so many of the others is tried as well.
NAMES = (
    "mm",
    "matmul",
    "linear",
    "conv",
    "attention",
    "einsum",
    "lstm",
    "gru",
    "multi",
    "bilinear",
)
SHARE = 60
CALLS = 5  # of an operator


@pytest.mark.parametrize("name", targets.TARGETS)
def test_variants_are_few_and_printable(name):
    target = targets.TARGETS[name]
    kernels = list(variants(target))
    texts = [kernel.text() for kernel in kernels]
    assert len(set(texts)) == len(texts) <= MOST
    assert {kernel.template for kernel in kernels} == TEMPLATES.keys()
    assert texts == [kernel.text() for kernel in variants(target)]
    for kernel in kernels:
        verify(kernel)
    for kernel in kernels[::9]:
        assert "fb_kernel(" in print_kernel(kernel, target)


def test_what_is_no_variant():
    [first, *_] = variants(targets.TARGETS["avx2"])
    assert is_variant(first, targets.TARGETS["avx2"])
    assert not is_variant(first.__class__("map", (), 0, (), (), 1, ()), targets.TARGETS["avx2"])


def chosen():
    """Operators whose launches are looked at."""
    for number, (key, entry) in enumerate(TABLE.items()):
        if not entry.mutating and (number % SHARE == 0 or any(name in key for name in NAMES)):
            yield key, entry


@pytest.mark.skipif(not hasattr(os, "fork"), reason="dry runs fork")
def test_every_launch_of_a_template_has_a_variant(monkeypatch):
    """Of operators, forward and backward, in several dtypes, compiled, and of training steps."""
    plan_cache_clear()
    monkeypatch.setattr(pipeline, "STAGES", stages([]))
    labels, calls = [], []
    for key, entry in chosen():
        own = list(everything(entry))
        own = own[:: max(1, len(own) // CALLS)]
        calls += own
        labels += [key] * len(own)
    calls += [partial(step, torch) for step in STEPS.values()]
    labels += STEPS
    missing, launched = {}, 0
    for number, texts in dry_run(calls, described):
        launched += len(texts)
        absent = [text for text in texts if text]
        if absent:
            missing.setdefault(labels[number], absent[0])
    plan_cache_clear()
    assert missing == {}
    assert launched > 300


def described(kernels):
    """Of each template's kernel its text if it is not prebuilt, else nothing."""
    target = targets.current()
    for kernel in kernels:
        if kernel.form == "template":
            yield "" if is_variant(kernel, target) else kernel.text()


def test_a_level_has_the_variants_of_every_target(tmp_path, monkeypatch):
    """Some of them: each is found by its key and loads, and both times the bytes are the same."""
    everyone = prebuilt.parts_of
    monkeypatch.setattr(prebuilt, "parts_of", lambda target: islice(everyone(target), 3))
    finished = []
    levels = [tmp_path / "one", tmp_path / "two"]
    pool = ThreadPoolExecutor(2)
    everywhere = targets.of_this_architecture()
    entries, blobs = prebuilt.fill(levels[0], everywhere, {}, pool, finished.append)
    assert sum(finished) == len(entries) == 3 * len(everywhere)
    assert prebuilt.fill(levels[1], everywhere, {}, pool, finished.append) == (entries, blobs)
    assert prebuilt.fill(levels[0], everywhere, entries, pool, finished.append) == (entries, blobs)
    assert sum(finished) == 2 * len(entries)  # what is there is not compiled again
    prebuilt.write_level(levels[0], entries)
    level, target = cache.Level(levels[0], writable=False), targets.current()
    for part in islice(everyone(target), 3):
        address, symbol, _ = cache.load(level, part.key)
        assert address and symbol == part.symbol
