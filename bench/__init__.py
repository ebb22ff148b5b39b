"""Benchmarks side by side with PyTorch: `./go bench [part ...]`. See `bench/harness.py`."""
