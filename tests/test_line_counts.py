"""The size of the project's parts: the page that states it, and the core's limit."""

from __future__ import annotations

from tools import line_counts

# Aim: 34,000. It may only fall. 38,250 before the tiers: a policy and a worker process that
# compiles in the background, kernels as bytes, prebuilt kernels for every target, plans of both
# tiers. The baseline tier itself is a new part and has a number of its own.
# 39,600 before programs ran step by step (the stepper, the search for the origin of a NaN), and
# waits for the compiler showed their progress. 40,150 before plans came with the package.
# 40,201 before graph breaks had reasons of their own, and equal regions were compiled once.
# 40,340 before passes of users over graphs and kernels, lowerings of primitives, their checks, and
# before programs of a process were saved. 41,360 before arguments of compiled functions were
# NumPy's arrays; 41,400 before horizontal fusion, and values that are stored because a broadcast of
# them is crossed; 41,640 before frozen programs, and before saved activations had a budget.
# 42,550 before kernels read rolled, padded and concatenated operands by whole vectors.
# 42,840 before equal layers were planned once.
# 43,770 before layers of training steps were planned once.
# 44,120 before results took over operands' memory, and Windows' compilers.
# 44,630 before kernels and their executor became one library.
CORE_LINES = 44_710
# 2,000 before programs had a text, which prints, reads and quotes them, and values with dtypes;
# 2,590 before positions, registers and constants were modules; 2,710 before casts by way of
# float32 called the functions of their halves, 0.4 MB less of code.
BASELINE_LINES = 2_720
# An interpreter of CPython's bytecode, and what it notes. 1,920 before handlers of errors,
# generators, patterns, operators of objects and functions that call code were explained; 3,340
# before CPython 3.12 and 3.13 had their instructions; 3,560 before whole training steps were
# explained: gradients, effects, and numbers that differ between calls; 3,970 before CPython 3.14
# had its instructions.
# 4,050 before counters, gradients of gradients and parts of steps were explained.
# 4,403 before autocast, custom functions, hooks, checkpoints and modes of others were explained.
# 4,720 before the error that is handled was readable, and decoded code was stored.
FRAME_LINES = 4_725
TOLERANCE = 0.03  # of the numbers on the page


def test_the_page_states_the_sizes() -> None:
    """`python -m tools.line_counts --write` updates docs/design.md."""
    stated, counted = line_counts.stated(), line_counts.counts()
    assert stated.keys() == counted.keys()
    for name, count in counted.items():
        assert abs(stated[name] - count) <= TOLERANCE * count, (name, stated[name], count)


def test_the_core_only_falls() -> None:
    apart = line_counts.BASELINE + line_counts.FRAMES
    count = line_counts.lines(line_counts.CORE, (".py",), apart)
    assert count <= CORE_LINES, count


def test_the_baseline_tier_stays_small() -> None:
    count = line_counts.lines(line_counts.BASELINE, (".py",))
    assert count <= BASELINE_LINES, count


def test_the_interpreter_of_frames_stays_small() -> None:
    count = line_counts.lines(line_counts.FRAMES, (".py",))
    assert count <= FRAME_LINES, count
