"""Benchmarks side by side with PyTorch: `./go bench [part ...]`. See `bench/harness.py`."""

import os

# Both peers' threads park between calls. PyTorch's would spin by default, for milliseconds, on the
# core where a block of ours is timed next: one process holds both. Read when PyTorch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Times of kernels are those of compiled ones; parts about the first minute choose otherwise.
os.environ.setdefault("FLAMBEAU_COMPILER", "wait")
