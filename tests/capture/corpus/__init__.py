"""A corpus of Python programs that must behave compiled as they do in plain Python.

`python -m tests.capture.corpus` runs it; docs/compile.md states the share that runs without Python.
"""
